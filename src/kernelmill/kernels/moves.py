"""NumPy arrays given to a kernel that runs on a CUDA device: copied there, and back where written.

Each copy is an event. Arrays of other libraries are not moved: where they are decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmill.errors import ArgumentError
from kernelmill.kernels.arguments import Given, given_argument, overlapping, views_of
from kernelmill.runtime.cuda.arrays import view_of
from kernelmill.runtime.cuda.copies import to_device, to_host

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["Sent", "bring", "is_numpy", "send"]


@dataclass(frozen=True, slots=True)
class Sent:
    """A NumPy array and its copy on the device."""

    name: str
    host: np.ndarray[Any, np.dtype[Any]]
    copy: Any  # Any: a CudaArray

    def back(self, stream: object) -> None:
        """Copy the elements back; waits for the stream."""
        np.copyto(self.host, to_host(view_of(self.copy, self.name), stream=stream))


def is_numpy(given: Given) -> bool:
    """Whether an argument is a NumPy array."""
    return isinstance(given.original, np.ndarray)


def send(given: Sequence[Given], device: int, stream: object) -> tuple[list[Given], list[Sent]]:
    """Return the arguments with copies in the place of NumPy arrays, and those copies.

    Raises
    ------
    ArgumentError
        Two arrays overlap without being the same one.
    DeviceError
        There is not that much memory.
    """
    arrays = {id(g.original): g for g in given if is_numpy(g)}
    if overlapping(list(arrays.values())) and len(views_of(list(arrays.values()))) > 1:
        names = ", ".join(repr(g.name) for g in arrays.values())
        raise ArgumentError(
            f"among the NumPy arrays {names} two overlap; they would be copied to the device apart",
            hint="pass arrays that do not share memory, or arrays that are on the device",
        )
    copies = {key: to_device(_array(g), device=device, stream=stream) for key, g in arrays.items()}
    made, sent = [], []
    for one in given:
        if not is_numpy(one):
            made.append(one)
            continue
        copy = copies[id(one.original)]
        there = given_argument(one.name, copy, fixed=False)
        made.append(there)
        sent.append(Sent(one.name, _array(one), copy))
    return made, sent


def _array(given: Given) -> np.ndarray[Any, np.dtype[Any]]:
    assert isinstance(given.original, np.ndarray)
    return given.original


def bring(sent: Sequence[Sent], written: Collection[str], stream: object) -> None:
    """Copy back what the kernel wrote."""
    for one in sent:
        if one.name in written:
            one.back(stream)
