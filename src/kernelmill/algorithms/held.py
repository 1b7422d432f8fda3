"""Arrays that operators captured, at a launch: their addresses, and copies where those are needed.

Which arrays an operator captures is found by the front end; what is read from the scope of a
function at each call, in `compiler/captured.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import numpy as np

from kernelmill.dtypes import uint8
from kernelmill.errors import ArgumentError, DeviceError
from kernelmill.runtime.backend import Captured, reads_host
from kernelmill.runtime.memory import array_of, as_view, is_on_cuda, may_overlap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kernelmill.compiler.captured import Pointer
    from kernelmill.runtime.backend import Backend
    from kernelmill.runtime.cuda.arrays import DeviceView
    from kernelmill.runtime.cuda.stream import StreamHandle
    from kernelmill.runtime.memory import View

__all__ = ["Placed", "placed"]

_ADDRESS: Final = 8


@dataclass(frozen=True, slots=True)
class _Reached:
    """A captured array where the kernel reaches it: its address there, and the memory.

    `host` is the array of the host of which it is a copy, `start` the first address of that; None
    where it is no copy.
    """

    address: int
    view: View
    host: View | None = None
    start: int = 0

    def fetch(self, stream: StreamHandle) -> None:
        """Copy what was written on a stream back to the array of the host; waits for it."""
        from kernelmill.runtime.cuda.copies import to_host  # noqa: PLC0415 - only where it is used

        assert self.host is not None
        made = to_host(cast("DeviceView", self.view), stream=stream)
        shift = made.__array_interface__["data"][0] - self.start
        np.copyto(array_of(self.host), array_of(replace(self.host, ptr=self.host.ptr + shift)))


@dataclass(frozen=True, slots=True)
class Placed:
    """The captured arrays of one launch, as the kernel gets them.

    `sent` are the copies on the device of arrays of the host to which the operator writes.
    """

    captures: bytes
    arrays: tuple[Captured, ...]
    sent: tuple[_Reached, ...]

    def settle(self, operands: Sequence[View]) -> None:
        """Copy back what the operator wrote to arrays of the host; waits for the launch.

        `operands` are those of the launch: with the captured arrays, they decide its stream.
        """
        if not self.sent:
            return
        from kernelmill.runtime.cuda.arrays import DeviceView  # noqa: PLC0415 - as above
        from kernelmill.runtime.cuda.backend import launch_stream  # noqa: PLC0415 - as above

        views = (*operands, *(captured.view for captured in self.arrays))
        arrays = [view for view in views if isinstance(view, DeviceView)]
        stream = launch_stream(arrays, arrays[0].device)
        for reached in self.sent:
            reached.fetch(stream)


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
    given = tuple(found)
    changed = {id(array) for pointer, array, _ in given if pointer.written}
    known: dict[int, _Reached] = {}
    for pointer, array, offsets in given:
        reached = known.get(id(array))
        if reached is None:
            writes = id(array) in changed
            reached = known[id(array)] = _reached(pointer.name, array, backend, writes=writes)
        for offset in offsets:
            block[offset : offset + _ADDRESS] = reached.address.to_bytes(_ADDRESS, "little")
            arrays.append(Captured(offset, pointer.name, reached.view, pointer.written))
    sent = tuple(r for at, r in known.items() if at in changed and r.host is not None)
    _check_apart(sent, {id(c.view): c.name for c in arrays})
    return Placed(bytes(block), tuple(arrays), sent)


def _reached(name: str, array: Any, backend: Backend, *, writes: bool) -> _Reached:
    """Return an array where the kernel can reach it."""
    if reads_host(backend):
        view = _aligned(as_view(array, name, writable=writes), name, backend)
        return _Reached(view.ptr, view)
    number = int(backend.name.partition(":")[2])
    if not is_on_cuda(array):
        return _copied(as_view(array, name, writable=writes), name, number)
    from kernelmill.runtime.cuda.arrays import as_device_view  # noqa: PLC0415 - as above

    held = as_device_view(array, name, writable=writes)
    if held.device != number:
        raise DeviceError(
            f"captured array {name!r} is on {held.place}, this call runs on {backend.name}",
            hint="copy it there first",
        )
    return _Reached(held.ptr, _aligned(held, name, backend))


def _copied(host: View, name: str, number: int) -> _Reached:
    """Copy an array to a device with all that lies between its elements: strides stay the same."""
    from kernelmill.runtime.cuda import arrays, copies  # noqa: PLC0415 - as above

    start, end = host.bounds
    if not replace(host, ptr=host.ptr - start).is_aligned and host.size:
        _refuse(host, name)
    whole = replace(host, ptr=start, shape=(end - start,), strides=(1,), dtype=uint8)
    view = arrays.view_of(copies.to_device(array_of(whole), device=number), name)
    return _Reached(view.ptr + host.ptr - start, view, host, start)


def _check_apart(sent: Sequence[_Reached], names: Mapping[int, str]) -> None:
    """Refuse copies of which one would undo, when it comes back, what is in another."""
    for one, other in combinations(sent, 2):
        assert one.host is not None
        assert other.host is not None
        if may_overlap(one.host, other.host):
            first, second = names[id(one.view)], names[id(other.view)]
            raise ArgumentError(
                f"captured arrays {first!r} and {second!r} of the host share memory, and the "
                "operator writes to both: they would be copied to the device apart, and back one "
                "over the other",
                hint="capture one array and index it, or arrays that are on the device",
            )


def _aligned(view: View, name: str, backend: Backend) -> View:
    if backend.target != "host" and not view.is_aligned and view.size:
        _refuse(view, name)
    return view


def _refuse(view: View, name: str) -> NoReturn:
    raise ArgumentError(
        f"captured array {name!r} is at address {view.ptr:#x} with strides {view.strides}: "
        f"elements of {view.dtype} are at multiples of {view.dtype.alignment} on a device",
        hint="capture a copy of it",
    )
