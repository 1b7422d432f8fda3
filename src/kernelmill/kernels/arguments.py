"""What is passed to a kernel: arrays as views, numbers by value, the rest baked; and keys of it.

Nothing is translated or launched here.
"""

from __future__ import annotations

import itertools
import re
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from kernelmill.compiler.builder import weak_type_of
from kernelmill.compiler.frontend.kernel_program import (
    Argument,
    ArrayArgument,
    FixedArgument,
    ScalarArgument,
)
from kernelmill.compiler.kernel_ir import Array, Layout
from kernelmill.compiler.narrow import NARROW_LIMIT
from kernelmill.compiler.op import Op
from kernelmill.dtypes import DType, StructType, dtype_of, int64, weak_int
from kernelmill.errors import ArgumentError, ScalarOverflowError
from kernelmill.runtime.cuda.arrays import view_of
from kernelmill.runtime.memory import as_view, is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from kernelmill.runtime.memory import View

__all__ = ["Given", "given_argument", "overlapping", "views_of"]

# What is baked without being asked for: it can shape a kernel, never be computed with.
_SHAPING: Final = (
    DType,
    StructType,
    Op,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    np.ufunc,
)
_SPELLED: Final = re.compile(r"(?P<dtype>[\w]+)\[(?P<dims>:(, ?:)*)?\]")
# Bounds of a Python integer that is passed: a kernel is compiled for one of these classes.
_CLASSES: Final[tuple[tuple[int, int], ...]] = (
    (0, NARROW_LIMIT),
    (-NARROW_LIMIT, NARROW_LIMIT),
)

Value: TypeAlias = "View | bytes | int | float | np.generic | None"


@dataclass(frozen=True, slots=True)
class Given:
    """One argument of a call.

    `key` tells apart what needs another kernel; `value` is what is passed, `original` the array
    as it was given; `wide` says that positions in it need 64 bits.
    """

    name: str
    key: Hashable
    argument: Argument
    value: Value = None
    original: object = None
    wide: bool = False


def given_argument(name: str, value: object, *, fixed: bool) -> Given:
    """Describe an argument; `fixed` says that its parameter is annotated `km.static`.

    Raises
    ------
    ArgumentError, DTypeError
        It is nothing that a kernel takes.
    """
    if fixed or isinstance(value, _SHAPING):
        return _fixed(name, value)
    if isinstance(value, str):
        return _spelled(name, value)
    # NumPy's float64 and complex128 are Python's numbers too, but as strong as its others.
    if isinstance(value, np.generic) or hasattr(type(value), "__kernelmill_struct__"):
        return _strong(name, value)
    if isinstance(value, (bool, int, float, complex)):
        return _weak(name, value)
    return _array(name, value)


def _fixed(name: str, value: object) -> Given:
    if isinstance(value, np.ndarray):
        raise ArgumentError(
            f"argument {name!r} is an array; an argument annotated `km.static` is a number, a "
            "dtype or a function",
            hint="capture the array instead: it becomes constant memory",
        )
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(
            f"argument {name!r} is a {type(value).__name__}, which can change; what is baked "
            "into a kernel cannot",
            hint="pass a number, a tuple, a dtype or a function",
        ) from None
    return Given(name, ("fixed", type(value), value), FixedArgument(name, value))


# ----------------------------------------------------------------------------- numbers


def _bounds(value: int) -> tuple[int, int] | None:
    return next((c for c in _CLASSES if c[0] <= value <= c[1]), None)


def _weak(name: str, value: complex) -> Given:
    type_ = weak_type_of(value)
    if type_ == weak_int:
        assert isinstance(value, int)
        if not int64.min <= value <= int64.max:
            raise ScalarOverflowError(
                f"argument {name!r} is the Python integer {value}, which does not fit int64",
                hint="integers have at most 64 bits here; np.uint64(x) holds up to 2**64 - 1",
            )
        limits = _bounds(value)
        return Given(name, (weak_int, limits), ScalarArgument(name, weak_int, limits), value)
    passed: Value = int(value) if isinstance(value, bool) else value  # type: ignore[assignment]  # a float
    if isinstance(value, complex):
        passed = np.complex128(value).tobytes()
    return Given(name, type_, ScalarArgument(name, type_), passed)


def _strong(name: str, value: Any) -> Given:  # Any: a NumPy scalar or a struct
    if isinstance(value, np.generic):
        type_ = dtype_of(value.dtype)
        plain = isinstance(type_, DType) and type_.kind != "complex" and type_.itemsize > 2  # noqa: PLR2004 - halves
        plain = plain or (isinstance(type_, DType) and type_.is_integer)
        passed: Value = value if plain else value.tobytes()
        if isinstance(type_, DType) and type_.kind == "bool":
            passed = int(value)
        return Given(name, type_, ScalarArgument(name, type_), passed)
    struct: StructType = value.__kernelmill_struct__
    made = np.zeros((), struct.to_numpy())
    for field in struct.fields:
        made[field.name] = getattr(value, field.name)
    return Given(name, struct, ScalarArgument(name, struct), made.tobytes())


# ----------------------------------------------------------------------------- arrays


def _spelled(name: str, text: str) -> Given:
    """Describe an array by a text such as "float32[:, :]", to compile without one."""
    match = _SPELLED.fullmatch(text.strip())
    if match is None:
        raise ArgumentError(
            f"argument {name!r} is the text {text!r}; a kernel takes no texts",
            hint='to compile without arrays, spell one: "float32[:, :]"',
        )
    dtype = dtype_of(match["dtype"])
    ndim = (match["dims"] or "").count(":")
    return _of_layout(name, dtype, ndim, "contiguous", readonly=False)


def _array(name: str, value: object) -> Given:
    view: View = view_of(value, f"argument {name!r}") if is_on_cuda(value) else as_view(value, name)
    item = view.dtype.itemsize
    if not view.is_aligned or any(
        s % item for s, n in zip(view.strides, view.shape, strict=True) if n > 1
    ):
        raise ArgumentError(
            f"argument {name!r} has strides {view.strides} at address {view.ptr:#x}; elements of "
            f"{view.dtype} lie at multiples of {view.dtype.alignment}, {item} bytes apart",
            hint="pass a copy of it",
        )
    layout = _layout(view)
    low, high = view.bounds
    reach = max(view.size, (high - low) // item, *view.shape, 0)
    made = _of_layout(name, view.dtype, len(view.shape), layout, readonly=view.readonly)
    return Given(name, made.key, made.argument, view, value, reach > NARROW_LIMIT)


def _layout(view: View) -> Layout:
    if view.is_c_contiguous:
        return "contiguous"
    inner = view.strides[-1] == view.dtype.itemsize or view.shape[-1] == 1
    return "rows" if inner else "strided"


def _of_layout(
    name: str, dtype: DType | StructType, ndim: int, layout: Layout, *, readonly: bool
) -> Given:
    array = Array(name, dtype, ndim, "global", None, layout, readonly)
    return Given(name, (dtype, ndim, layout, readonly), ArrayArgument(array))


def overlapping(given: Sequence[Given]) -> bool:
    """Return whether two of the arrays share memory."""
    spans = sorted(v.bounds for v in views_of(given) if v.size)
    return any(first[1] > second[0] for first, second in itertools.pairwise(spans))


def views_of(given: Sequence[Given]) -> list[View]:
    """Return the arrays among the arguments."""
    return [g.value for g in given if isinstance(g.argument, ArrayArgument) and g.value is not None]  # type: ignore[misc]  # views
