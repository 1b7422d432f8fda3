"""Keeps arrays alive until the stream that uses them has passed; frees nothing itself.

A library may reuse the memory of an array that is gone as soon as its own stream allows it. On any
other stream that is too early, so what is used there is held here, behind an event. On the stream
on which a library works at the time of the launch, its arrays are in its care, as for its own
operations: the native path serves only such calls, and holds nothing.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from kernelmill.runtime.cuda.driver import api, check
from kernelmill.runtime.cuda.stream import is_capturing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.runtime.cuda.arrays import DeviceView
    from kernelmill.runtime.cuda.stream import StreamHandle

__all__ = ["held", "hold"]

_LOCK: Final = threading.Lock()
_HELD: Final[deque[tuple[Any, tuple[object, ...]]]] = deque()  # Any: an event of the driver
# What is still held when the process ends goes while the driver is there: torch aborts a process
# that frees a tensor later.
atexit.register(_HELD.clear)


def hold(views: Sequence[DeviceView], stream: StreamHandle) -> None:
    """Hold the owners of arrays until `stream` has done what it was given so far.

    Torch's own allocator is told about the stream, which is cheaper; arrays of others are held.
    During a capture nothing is held: whoever keeps the graph keeps its arrays.
    """
    others = []
    for view in views:
        if view.maker == "torch":
            _record_stream(view, stream)
        elif view.ptr and not _is_on(view.owner, stream):  # an index is no memory
            others.append(view.owner)
    if others and not is_capturing(stream):
        cuda = api()
        flag = cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING
        event = check(cuda.cuEventCreate(int(flag)), "make an event")
        check(cuda.cuEventRecord(event, stream.handle), "record an event")
        with _LOCK:
            _HELD.append((event, tuple(others)))
    if _HELD:
        _release()


def held() -> int:
    """Return how many launches still hold arrays."""
    _release()
    return len(_HELD)


def _release() -> None:
    """Let go of what the oldest launches held, as far as they are done."""
    cuda = api()
    while True:
        with _LOCK:
            if not _HELD:
                return
            event, owners = _HELD[0]
            (status,) = cuda.cuEventQuery(event)
            if status.name == "CUDA_ERROR_NOT_READY":
                return
            _HELD.popleft()
        cuda.cuEventDestroy(event)
        del owners  # outside the lock: a destructor may run any code


def _record_stream(view: DeviceView, stream: StreamHandle) -> None:
    torch = sys.modules["torch"]
    if torch._C._cuda_getCurrentRawStream(view.device) == stream.handle:  # noqa: SLF001
        return
    owner: Any = view.owner
    owner.record_stream(_torch_stream(stream.handle, view.device))


@lru_cache(maxsize=256)
def _torch_stream(handle: int, device: int) -> Any:  # Any: a torch.cuda.Stream
    """Return a stream as torch's, which knows it by its handle alone."""
    torch = sys.modules["torch"]
    if not handle:
        return torch.cuda.default_stream(device)
    return torch.cuda.ExternalStream(handle, device=device)


def _is_on(owner: object, stream: StreamHandle) -> bool:
    """Whether the owner is ordered on the stream: ours say so, of others nothing is known."""
    own = getattr(owner, "stream", None)
    return getattr(own, "handle", None) == stream.handle and own is not None
