"""The order that elements have of their own, as operators; sorts by an integer have it in C++."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelmill.compiler.op import as_op
from kernelmill.dtypes import DType, TupleType, bool_, storage
from kernelmill.errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.compiler.op import Op, Specialized
    from kernelmill.dtypes import Type

__all__ = ["check_comparator", "own_order"]


def _less(a: Any, b: Any) -> Any:
    return a < b


def _nan_last(a: Any, b: Any) -> Any:
    return a < b or (b != b and a == a)  # noqa: PLR0124 - whether it is nan


def _complex_nan_last(a: Any, b: Any) -> Any:
    """As NumPy sorts: by the real part, then by the imaginary one."""
    a_nan = a.imag != a.imag
    b_nan = b.imag != b.imag
    if a.real < b.real:
        return not a_nan or b_nan
    if a.real > b.real:
        return b_nan and not a_nan
    if a.real == b.real or (a.real != a.real and b.real != b.real):
        return a.imag < b.imag or (b_nan and not a_nan)
    return b.real != b.real


def own_order(types: Sequence[Type], names: Sequence[str]) -> Op:
    """Return whether an element comes before another one, nan behind all numbers.

    Raises DTypeError for structs, and where some elements are complex and others are not.
    """
    stored = [storage(t) for t in types]
    kinds = {t.kind if isinstance(t, DType) else "struct" for t in stored}
    if "struct" in kinds or ("complex" in kinds and len(kinds) > 1):
        found = ", ".join(
            f"`{n}` {'has elements of' if n == names[0] else 'of'} {t}"
            for n, t in zip(names, stored, strict=True)
        )
        raise DTypeError(f"{found}: they have no order", hint="pass a comparator")
    known = _complex_nan_last if "complex" in kinds else _less
    return as_op(_nan_last if "float" in kinds else known)


def check_comparator(found: Specialized) -> None:
    """Raise DTypeError for an operator that does not say whether something comes before."""
    if isinstance(storage(found.result), TupleType) or storage(found.result) != bool_:
        raise DTypeError(f"{found.op.name} returns {found.result}; a comparator returns a bool")
