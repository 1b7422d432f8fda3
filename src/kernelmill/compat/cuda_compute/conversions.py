"""Operators that convert elements: between scalars as C does, and structs field by field."""

from __future__ import annotations

from functools import cache as once
from typing import TYPE_CHECKING, Any, Final

from kernelmill.dtypes import DType, StructType
from kernelmill.errors import DTypeError, NotImplementedHere
from kernelmill.structs import class_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Element = DType | StructType

__all__ = ["converter"]

# One for each number of fields: the language names a field of a struct by a constant.
_BUILDERS: Final[dict[int, Callable[..., Callable[[Any], Any]]]] = {
    1: lambda make, a: lambda v: make(a(v[0])),
    2: lambda make, a, b: lambda v: make(a(v[0]), b(v[1])),
    3: lambda make, a, b, c: lambda v: make(a(v[0]), b(v[1]), c(v[2])),
    4: lambda make, a, b, c, d: lambda v: make(a(v[0]), b(v[1]), c(v[2]), d(v[3])),
    5: lambda make, a, b, c, d, e: lambda v: make(a(v[0]), b(v[1]), c(v[2]), d(v[3]), e(v[4])),
    6: lambda make, a, b, c, d, e, f: (
        lambda v: make(a(v[0]), b(v[1]), c(v[2]), d(v[3]), e(v[4]), f(v[5]))
    ),
    7: lambda make, a, b, c, d, e, f, g: (
        lambda v: make(a(v[0]), b(v[1]), c(v[2]), d(v[3]), e(v[4]), f(v[5]), g(v[6]))
    ),
    8: lambda make, a, b, c, d, e, f, g, h: (
        lambda v: make(a(v[0]), b(v[1]), c(v[2]), d(v[3]), e(v[4]), f(v[5]), g(v[6]), h(v[7]))
    ),
}


def _caster(wanted: DType) -> Callable[[Any], Any]:
    def cast(value: Any) -> Any:  # Any: an element, as operators have it
        return wanted(value)  # type: ignore[operator]  # types are functions of the language

    return cast


@once
def converter(found: Element, wanted: Element) -> Callable[[Any], Any]:
    """Return an operator that makes one type of another.

    Raises
    ------
    DTypeError
        One is a struct and the other is not, or they have different numbers of fields.
    NotImplementedHere
        There are more than eight fields.
    """
    if isinstance(found, DType) and isinstance(wanted, DType):
        return _caster(wanted)
    if isinstance(found, DType) or isinstance(wanted, DType):
        raise DTypeError(f"elements of {found} meet {wanted}; neither is converted to the other")
    if len(found.fields) != len(wanted.fields):
        raise DTypeError(
            f"a struct of {len(found.fields)} fields meets one of {len(wanted.fields)}"
        )
    build = _BUILDERS.get(len(found.fields))
    if build is None:
        raise NotImplementedHere(
            f"a struct of {len(found.fields)} fields meets {wanted}; 8 is most"
        )
    pairs = zip(found.fields, wanted.fields, strict=True)
    return build(class_of(wanted), *(converter(f.type, w.type) for f, w in pairs))
