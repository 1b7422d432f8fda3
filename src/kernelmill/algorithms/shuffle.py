"""`shuffle`: elements in an order that a seed decides. What the order is, is in `iterators.py`."""

from __future__ import annotations

from typing import Any

from kernelmill.algorithms import iterators
from kernelmill.algorithms.arguments import arguments_of, integer_of
from kernelmill.algorithms.moves import computed
from kernelmill.algorithms.transform import transform
from kernelmill.errors import ShapeError

__all__ = ["shuffle"]


def shuffle(x: Any, *, seed: int = 0, out: Any = None) -> Any:
    """Return the elements in an order that looks random; a seed gives the same one everywhere.

    No numbers are drawn: a bijection says where each element comes from, on every device and for
    any number of threads. It is no source of secrets.

    Parameters
    ----------
    x
        An array of one dimension.
    seed
        An integer that chooses the order.
    out
        Array for the result; not `x` itself.

    Returns
    -------
    array
        Of the type and library of `x`; `out`, where that is given.

    Raises
    ------
    ShapeError, ArgumentError, DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> sorted(km.shuffle(np.arange(5), seed=3).tolist())
    [0, 1, 2, 3, 4]
    """
    (x,) = computed((x,), "x")
    (given,) = arguments_of((x,), "x")
    if len(given.view.shape) != 1:
        raise ShapeError(f"`x` has shape {given.view.shape}; expected: one dimension")
    order = iterators.shuffle(given.view.size, seed=integer_of(seed, "seed"))
    return transform(iterators.permutation(x, order), _same, out=out)


def _same(value: Any) -> Any:
    return value
