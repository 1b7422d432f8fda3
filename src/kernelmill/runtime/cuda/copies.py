"""Copies of arrays between host and device, and on a device; each is an event.

What an array is stands in `arrays.py`; which arguments of a call are copied, in
`algorithms/moves.py`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmill import events
from kernelmill.dtypes import dtype_of
from kernelmill.errors import ArgumentError
from kernelmill.runtime.cuda.arrays import CudaArray, empty, view_of, wait_for_producers
from kernelmill.runtime.cuda.device import cuda_device
from kernelmill.runtime.cuda.driver import api, check
from kernelmill.runtime.cuda.stream import as_stream, is_capturing

if TYPE_CHECKING:
    from kernelmill.runtime.cuda.arrays import DeviceView

__all__ = ["duplicate", "to_device", "to_host"]


def duplicate(view: DeviceView, name: str) -> DeviceView:
    """Return a private copy on the same device, made by the library that the array is of.

    Raises
    ------
    ArgumentError
        It is of no library, and not C-contiguous.
    """
    owner: Any = view.owner
    if view.maker == "torch":
        return view_of(owner.clone(), name)
    if view.maker == "cupy":
        return view_of(owner.copy(), name)
    if not view.is_c_contiguous:
        raise ArgumentError(
            f"argument {name!r} overlaps an output, has shape {view.shape} and strides "
            f"{view.strides}, and would be copied: only C-contiguous arrays are",
            hint="pass a copy of it, or another output",
        )
    on = as_stream(None, view.device)
    made = empty(view.shape, view.dtype, "cuda", device=view.device, stream=on)
    wait_for_producers((view,), on)
    target = int(made.buffer.handle)
    check(api().cuMemcpyDtoDAsync(target, view.ptr, view.nbytes, on.handle), "copy an array")
    return view_of(made, name)


def to_device(
    array: np.ndarray[Any, np.dtype[Any]], *, device: int = 0, stream: object = None
) -> CudaArray:
    """Return a copy of a NumPy array on a device; the copy is an event.

    The host array may be changed when this returns.

    Raises
    ------
    DeviceError
        There is no such device, or not that much memory.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> def there_and_back(x: np.ndarray):
    ...     return km.to_device(x).numpy()
    """
    target = cuda_device(device)
    held = np.ascontiguousarray(array)
    on = as_stream(stream, device)
    start = time.perf_counter()
    made: CudaArray = empty(array.shape, dtype_of(held.dtype), "cuda", device=device, stream=on)
    if held.nbytes:
        target.set_current()
        answer = api().cuMemcpyHtoDAsync(
            int(made.buffer.handle), held.ctypes.data, held.nbytes, on.handle
        )
        check(answer, f"copy {held.nbytes} bytes to {target.name}")
        if _is_pinned(held.ctypes.data) and not is_capturing(on):
            check(
                api().cuStreamSynchronize(on.handle), f"copy {held.nbytes} bytes to {target.name}"
            )
    _copied("host", target.name, held.nbytes, start)
    return made


def _is_pinned(address: int) -> bool:
    """Whether the driver reads the memory by itself, later: it copies other memory at once."""
    cuda = api()
    kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    status, _ = cuda.cuPointerGetAttribute(kind, address)
    return not int(status)


def to_host(view: DeviceView, *, stream: object = None) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a NumPy array with the elements of a device array; waits for the stream.

    Raises
    ------
    ArgumentError
        The array is not C-contiguous.
    DeviceError
        A kernel failed before.
    """
    if not view.is_c_contiguous:
        raise ArgumentError(
            f"an array of shape {view.shape} and strides {view.strides} is not C-contiguous; "
            "only such arrays are copied to the host",
            hint="make it contiguous on the device first",
        )
    device = cuda_device(view.device)
    device.set_current()
    on = as_stream(stream, view.device)
    made = np.empty(view.shape, view.dtype.to_numpy())
    start = time.perf_counter()
    if made.nbytes:
        answer = api().cuMemcpyDtoHAsync(made.ctypes.data, view.ptr, made.nbytes, on.handle)
        check(answer, f"copy {made.nbytes} bytes from {device.name}")
    check(api().cuStreamSynchronize(on.handle), f"copy {made.nbytes} bytes from {device.name}")
    _copied(device.name, "cpu", made.nbytes, start)
    return made


def _copied(source: str, target: str, nbytes: int, start: float) -> None:
    if events.active:
        seconds = time.perf_counter() - start
        place = "cpu" if source == "host" else source
        events.emit("copy", "array", device=target, source=place, seconds=seconds, bytes=nbytes)
