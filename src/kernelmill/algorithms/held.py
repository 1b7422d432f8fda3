"""Arrays that operators captured, at a launch: their addresses, and copies where those are needed.

Which arrays an operator captures is found by the front end; what is read from the scope of a
function at each call, in `compiler/captured.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmill.errors import ArgumentError, DeviceError
from kernelmill.runtime.backend import Captured, reads_host
from kernelmill.runtime.memory import array_of, as_view, is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelmill.compiler.captured import Pointer
    from kernelmill.runtime.backend import Backend
    from kernelmill.runtime.memory import View

__all__ = ["Placed", "placed"]

_ADDRESS = 8


@dataclass(frozen=True, slots=True)
class Placed:
    """The captured arrays of one launch, as the kernel gets them.

    `sent` are the copies on the device of arrays of the host to which the operator writes.
    """

    captures: bytes
    arrays: tuple[Captured, ...]
    sent: tuple[tuple[View, Any], ...]

    def settle(self) -> None:
        """Copy back what the operator wrote to arrays of the host; waits for the device."""
        if not self.sent:
            return
        from kernelmill.runtime.cuda.arrays import view_of  # noqa: PLC0415 - only where it is used
        from kernelmill.runtime.cuda.copies import to_host  # noqa: PLC0415

        for host, copy in self.sent:
            made = to_host(view_of(copy, "a captured array"))
            np.copyto(array_of(host), made.view(array_of(host).dtype))


def placed(
    captures: bytes, found: Iterable[tuple[Pointer, Any, Sequence[int]]], backend: Backend
) -> Placed:
    """Return captured scalars with the addresses of captured arrays among them.

    Parameters
    ----------
    captures
        What is packed for the kernel.
    found
        Each captured array: what is known of it, the array, and where its address goes.
    backend
        Where the kernel runs. An array of the host is copied to a GPU, which is an event, and
        copied back where the operator writes to it.

    Raises
    ------
    ArgumentError
        The operator writes to an array that is read-only; its elements are not aligned.
    DeviceError
        An array is in the memory of another device.
    """
    block = bytearray(captures)
    arrays: list[Captured] = []
    sent: list[tuple[View, Any]] = []
    views: dict[int, View] = {}
    for pointer, array, offsets in found:
        view = views.get(id(array))
        if view is None or (pointer.written and view.readonly):
            view, copy = _placed(pointer, array, backend)
            views[id(array)] = view
            if copy is not None:
                sent.append(copy)
        for offset in offsets:
            block[offset : offset + _ADDRESS] = view.ptr.to_bytes(_ADDRESS, "little")
            arrays.append(Captured(offset, pointer.name, view, pointer.written))
    return Placed(bytes(block), tuple(arrays), tuple(sent))


def _placed(pointer: Pointer, array: Any, backend: Backend) -> tuple[View, tuple[View, Any] | None]:
    """Return an array where the kernel can reach it, and what is to be copied back."""
    name = pointer.name
    if reads_host(backend):
        view = as_view(array, name, writable=pointer.written)
        return _aligned(view, name, backend), None
    from kernelmill.runtime.cuda.arrays import as_device_view, view_of  # noqa: PLC0415 - as above
    from kernelmill.runtime.cuda.copies import to_device  # noqa: PLC0415

    number = int(backend.name.partition(":")[2])
    if is_on_cuda(array):
        held = as_device_view(array, name, writable=pointer.written)
        if held.device != number:
            raise DeviceError(
                f"captured array {name!r} is on {held.place}, this call runs on {backend.name}",
                hint="copy it there first",
            )
        return _aligned(held, name, backend), None
    host = as_view(array, name, writable=pointer.written)
    copy = to_device(array_of(host).view(host.dtype.to_numpy()), device=number)
    return view_of(copy, name), (host, copy) if pointer.written else None


def _aligned(view: View, name: str, backend: Backend) -> View:
    if backend.target == "host" or view.is_aligned or not view.size:
        return view
    raise ArgumentError(
        f"captured array {name!r} begins at address {view.ptr:#x}: elements of {view.dtype} are at "
        f"multiples of {view.dtype.alignment} on a device",
        hint="capture a copy of it",
    )
