"""Arrays of one dimension that a call takes together, element by element: their checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelmill.algorithms.arguments import Argument, argument
from kernelmill.errors import DeviceError, ShapeError
from kernelmill.runtime.memory import is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["lines_of"]


def lines_of(
    arrays: Sequence[Any],  # Any: whatever the caller gave
    names: Sequence[str],
    family: str,
) -> tuple[Argument, ...]:
    """Return arrays of one dimension and one length, on one device.

    Raises
    ------
    ShapeError
        One has another number of dimensions or another length than the first.
    DeviceError
        One is on another device than the first.
    """
    on_cuda = any(map(is_on_cuda, arrays))
    given = tuple(argument(x, n, on_cuda=on_cuda) for x, n in zip(arrays, names, strict=True))
    first = given[0]
    for other in given:
        if other.scalar is not None or len(other.view.shape) != 1:
            shape = "a scalar" if other.scalar is not None else f"of shape {other.view.shape}"
            raise ShapeError(
                f"`{other.name}` is {shape}; {family} takes arrays of one dimension",
                hint="pass `x.ravel()`, which keeps the order of the elements",
            )
        if other.view.shape != first.view.shape:
            raise ShapeError(
                f"`{other.name}` has {other.view.shape[0]} elements, `{first.name}` has "
                f"{first.view.shape[0]}",
                hint="arrays that are taken together have one length",
            )
        if other.view.place != first.view.place:
            raise DeviceError(
                f"argument {other.name!r} is on {other.view.place or 'the host'}, {first.name!r} "
                f"on {first.view.place or 'the host'}; a call runs on one device",
                hint="copy them to one device first",
            )
    return given
