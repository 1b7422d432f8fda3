"""Axes, strides and broadcasting, against kernelmill itself on contiguous arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

import kernelmill as km
from harness import OURS, REFERENCE, Case, Contender, Goal
from kernelmill.runtime.native import stream_threshold
from peers import loops, threads, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

CONTIGUOUS: Final = "contiguous"
_GOALS: Final = (Goal(CONTIGUOUS, 1 / 1.5),)
_TOLERANCE: Final = {"float32": 1e-4, "float64": 1e-12}
_AXES: Final[tuple[int | tuple[int, ...], ...]] = (0, 1, 2, 3, (0, 2), (1, 3), (0, 1, 2), (1, 2, 3))

Array = np.ndarray[Any, Any]


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    for dtype in ("float32", "float64"):
        yield from _reductions(budget.large, dtype)
        yield from _transforms(budget.large, dtype)


# ----------------------------------------------------------------------------- reductions


def _shapes(elements: int) -> tuple[tuple[int, ...], ...]:
    """Return a shape of powers of two for that many elements, and an odd one of about as many."""
    power = elements.bit_length() - 1
    even = tuple(1 << (power + k) // 4 for k in (3, 2, 1, 0))
    odd = tuple(n + more for n, more in zip(even, (-3, 3, -5, 7), strict=True))
    return even, odd


def _reductions(elements: int, dtype: str) -> Iterator[Case]:
    for shape in _shapes(elements):
        (flat,) = values(1, math.prod(shape), dtype)
        x = flat.reshape(shape)
        for axis in _AXES:
            yield _reduction(x, axis)


def _reduction(x: Array, axis: int | tuple[int, ...]) -> Case:
    out = np.sum(x, axis)
    whole = np.empty((), x.dtype)
    return Case(
        name=f"sum over axis {axis} of {x.shape}",
        dtype=x.dtype.name,
        elements=x.size,
        contenders=(
            Contender(OURS, lambda: km.reduce(x, km.add, axis=axis, out=out)),
            Contender("numpy", lambda: np.sum(x, axis)),
            Contender(CONTIGUOUS, lambda: km.reduce(x, km.add, out=whole), compared=False),
        ),
        goals=_GOALS,
        bytes=x.nbytes + out.nbytes,
        tolerance=_TOLERANCE[x.dtype.name],
    )


# ----------------------------------------------------------------------------- transforms


class _View(NamedTuple):
    """A way to look at an array: `make` returns inputs and an output of some layout."""

    name: str
    make: Callable[[int, str], tuple[tuple[Array, ...], Array]]


def _square(elements: int, dtype: str) -> Array:
    side = math.isqrt(elements)
    return values(1, side * side, dtype)[0].reshape(side, side)


def _cube(elements: int, dtype: str) -> Array:
    shape = _shapes(elements)[0]
    return values(1, elements, dtype)[0].reshape(shape)


def _same(x: Array) -> tuple[tuple[Array, ...], Array]:
    return (x,), np.empty(x.shape, x.dtype)


def _transposed_output(elements: int, dtype: str) -> tuple[tuple[Array, ...], Array]:
    x = _square(elements, dtype)
    return (x,), np.empty_like(x).T


def _with_row(elements: int, dtype: str) -> tuple[tuple[Array, ...], Array]:
    x = _square(elements, dtype)
    return (x, x[0].copy()), np.empty_like(x)


def _with_column(elements: int, dtype: str) -> tuple[tuple[Array, ...], Array]:
    x = _square(elements, dtype)
    return (x, x[:, :1].copy()), np.empty_like(x)


_VIEWS: Final = (
    _View("x.T", lambda n, t: _same(_square(n, t).T)),
    _View("x, written to out.T", _transposed_output),
    _View("4-D, axes reversed", lambda n, t: _same(_cube(n, t).transpose(3, 2, 1, 0))),
    _View("4-D, axes 0 2 1 3", lambda n, t: _same(_cube(n, t).transpose(0, 2, 1, 3))),
    _View("4-D, axes 0 1 3 2", lambda n, t: _same(_cube(n, t).transpose(0, 1, 3, 2))),
    _View("x[::-1]", lambda n, t: _same(values(1, n, t)[0][::-1])),
    _View("x[::2]", lambda n, t: _same(values(1, 2 * n, t)[0][::2])),
    _View("x[:, :-1]", lambda n, t: _same(_square(n, t)[:, :-1])),
    _View("x + row", _with_row),
    _View("x + column", _with_column),
)


def _transforms(elements: int, dtype: str) -> Iterator[Case]:
    for view in _VIEWS:
        inputs, out = view.make(elements, dtype)
        yield _transform(view.name, inputs, out)


def _scale(a: Any) -> Any:
    return 2 * a + 1


def _add(a: Any, b: Any) -> Any:
    return a + b


def _transform(name: str, inputs: tuple[Array, ...], out: Array) -> Case:
    flat, flat_out = np.ascontiguousarray(inputs[0]).ravel(), np.empty(out.size, out.dtype)
    function = _scale if len(inputs) == 1 else _add
    reference = _reference(inputs, out)
    return Case(
        name=f"{'2*x + 1 of ' if len(inputs) == 1 else ''}{name}",
        dtype=out.dtype.name,
        elements=out.size,
        contenders=(
            Contender(OURS, lambda: km.transform(inputs, function, out=out)),
            *([reference] if isinstance(reference, Contender) else []),
            Contender("numpy", lambda: function(*inputs)),
            Contender(CONTIGUOUS, lambda: km.transform(flat, _scale, out=flat_out), compared=False),
        ),
        goals=_GOALS,
        bytes=inputs[0].nbytes + out.nbytes,
        written=out.nbytes,
        tolerance=_TOLERANCE[out.dtype.name],
        skipped={REFERENCE: reference} if isinstance(reference, str) else {},
    )


def _reference(inputs: tuple[Array, ...], out: Array) -> Contender | str:
    """Return the loop nest in C++ for the same arrays, or the reason why there is none."""
    loaded = loops()
    if loaded.missing:
        return loaded.missing
    streams = inputs[0].nbytes + out.nbytes > stream_threshold()
    run = loaded.bind_layout(inputs, out, threads=threads(), streams=streams)
    return Contender(REFERENCE, run)
