"""What helps users to test operators: `check_associative`. Nothing here is used by the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.algorithms.transform import transform
from kernelmill.compiler.op import Op, as_op
from kernelmill.dtypes import DType, StructType, dtype_of
from kernelmill.errors import ArgumentError
from kernelmill.runtime.devices import Device

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_associative"]

# All triples of so many samples, and as many drawn ones of more.
_ALL: Final = 24
_DRAWN: Final = 20_000
# What roundings may add up to, in units of the last place of the largest value.
_ROUNDINGS: Final = 16


def check_associative(
    op: Op | Callable[..., Any], samples: Any, *, rtol: float | None = None
) -> None:
    """Check on samples that an operator obeys what reductions and scans rely on.

    That is `op(op(a, b), c)` equal to `op(a, op(b, c))`; for a `km.op` that says so, also
    `op(a, b)` equal to `op(b, a)`, and its identity. It runs on the CPU.

    Parameters
    ----------
    op
        An operator of two elements.
    samples
        An array, or a list, of elements: the more unlike each other, the better. All triples of
        up to 24 are tried, and 20,000 drawn ones of more.
    rtol
        How far floats may be apart, relative to the largest value involved; by default 16 units of
        the last place. Integers and bools must be equal, NaN is equal to NaN.

    Raises
    ------
    AssertionError
        It does not hold: the text names the elements, and both results.
    ArgumentError
        There are no samples, or results are of another type than elements.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> from kernelmill.testing import check_associative
    >>> check_associative(km.maximum, np.array([3, -1, 7]))
    >>> check_associative(lambda a, b: a - b, np.array([3, -1, 7]))
    Traceback (most recent call last):
        ...
    AssertionError: lambda is not associative: op(op(3, 3), 3) is -3, op(3, op(3, 3)) is 3
    """
    operator, x = as_op(op), np.asarray(samples).reshape(-1)
    if not x.size:
        raise ArgumentError("`samples` is empty; at least one element is needed")
    a, b, c = _triples(x)
    with Device("cpu"):
        ab, bc = _applied(operator, a, b), _applied(operator, b, c)
        left, right = _applied(operator, ab, c), _applied(operator, a, bc)
        at = _first_apart(left, right, (a, b, c), rtol)
        if at is not None:
            one, two, three = a[at], b[at], c[at]
            _fail(
                f"{operator.name} is not associative: op(op({one}, {two}), {three}) is {left[at]}, "
                f"op({one}, op({two}, {three})) is {right[at]}"
            )
        if operator.commutative:
            ba = _applied(operator, b, a)
            at = _first_apart(ab, ba, (a, b), rtol)
            if at is not None:
                _fail(
                    f"{operator.name} is not commutative: op({a[at]}, {b[at]}) is {ab[at]}, "
                    f"op({b[at]}, {a[at]}) is {ba[at]}"
                )
        _check_identity(operator, x, rtol)


def _triples(x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], ...]:
    count = len(x)
    if count <= _ALL:
        places = np.indices((count,) * 3).reshape(3, -1)
    else:
        places = np.random.default_rng(0).integers(0, count, (3, _DRAWN))
    return tuple(x[p] for p in places)


def _applied(op: Op, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made = transform((a, b), op)
    if type(made) is tuple or made.dtype != a.dtype:
        found = "a tuple" if type(made) is tuple else dtype_of(made.dtype)
        raise ArgumentError(
            f"{op.name} of two {dtype_of(a.dtype)} gives {found}; expected: the same type",
            hint="convert the result in the operator",
        )
    return np.asarray(made)


def _check_identity(op: Op, x: np.ndarray[Any, Any], rtol: float | None) -> None:
    type_ = dtype_of(x.dtype)
    identity = op.identity_for(type_)
    if identity is None:
        return
    filled = np.full(len(x), identity, x.dtype)
    for made, text in (
        (_applied(op, filled, x), "op({i}, {v}) is {r}"),
        (_applied(op, x, filled), "op({v}, {i}) is {r}"),
    ):
        at = _first_apart(made, x, (x, filled), rtol)
        if at is not None:
            told = text.format(i=filled[at], v=x[at], r=made[at])
            _fail(f"{identity!r} is not the identity of {op.name}: {told}")


def _first_apart(
    left: np.ndarray[Any, Any],
    right: np.ndarray[Any, Any],
    involved: tuple[np.ndarray[Any, Any], ...],
    rtol: float | None,
) -> int | None:
    """Return the first place at which two arrays differ by more than roundings; None nowhere."""
    apart = _apart(left, right, involved, rtol, dtype_of(left.dtype))
    return int(np.argmax(apart)) if apart.any() else None


def _apart(
    left: np.ndarray[Any, Any],
    right: np.ndarray[Any, Any],
    involved: tuple[np.ndarray[Any, Any], ...],
    rtol: float | None,
    type_: DType | StructType,
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if isinstance(type_, StructType):
        fields = [
            _apart(left[f.name], right[f.name], tuple(v[f.name] for v in involved), rtol, f.type)
            for f in type_.fields
        ]
        return np.asarray(np.any(fields, axis=0))
    if type_.kind not in ("float", "complex"):
        return np.asarray(left != right)
    exact = np.complex128 if type_.kind == "complex" else np.float64
    kind = left.real.dtype
    step = float(np.finfo(kind).eps) if kind.kind == "f" else 2.0**-7  # bfloat16
    with np.errstate(all="ignore"):
        one, other = left.astype(exact), right.astype(exact)
        sizes = [np.nan_to_num(abs(v.astype(exact)), posinf=0.0) for v in (left, right, *involved)]
        room = (step * _ROUNDINGS if rtol is None else rtol) * np.max(sizes, axis=0)
        close = (one == other) | (abs(one - other) <= room) | ((one != one) & (other != other))  # noqa: PLR0124 - NaN
    return np.asarray(~close)


def _fail(text: str) -> None:
    raise AssertionError(text)
