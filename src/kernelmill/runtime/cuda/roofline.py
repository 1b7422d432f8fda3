"""The roofline of a GPU, measured: how fast its memory is copied, read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kernelmill.runtime.calibrate import Roofline
from kernelmill.runtime.cuda.device import cuda_device
from kernelmill.runtime.cuda.driver import api, check
from kernelmill.runtime.cuda.launches import LaunchConfig, prepare
from kernelmill.runtime.cuda.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["measure_device_roofline"]

_LARGEST: Final = 1 << 30
_RUNS: Final = 5
_TURNS: Final = 4
_THREADS: Final = 256
_BLOCKS: Final = 8  # of a multiprocessor
_MILLI: Final = 1e-3
# Reads 16 bytes at a time, four in flight; writes nothing unless all bits happen to be one value.
_READ: Final = """
extern "C" __global__ void __launch_bounds__(256)
read_all(const uint4* from, unsigned* to, long n) {
  unsigned mixed = 0;
  const long step = (long)gridDim.x * blockDim.x;
#pragma unroll 4
  for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const uint4 v = from[i];
    mixed ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (mixed == 0x9e3779b9u) *to = mixed;
}
"""


def measure_device_roofline(number: int = 0) -> Roofline:
    """Measure how fast the memory of a GPU is copied, read and written; takes tenths of a second.

    Two arrays of 1 GiB, or of an eighth of the free memory each where that is less.

    Raises
    ------
    DeviceError
        There is no such device, or not that much memory.
    """
    device = cuda_device(number)
    device.set_current()
    free, _ = device.memory()
    size = min(_LARGEST, free // 8 // _THREADS * _THREADS)
    stream = device.create_stream()
    source, target = (device.allocate(size, stream) for _ in range(2))
    handle, cuda = int(stream.handle), api()
    here, there = int(source.handle), int(target.handle)
    config = LaunchConfig(_BLOCKS * device.limits.multiprocessors, _THREADS)
    kernel = Program(_READ, name="roofline.cu").compile("cubin", arch=device.arch)
    read = prepare(config, kernel.get_kernel("read_all"), source, target, size // 16)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: check(cuda.cuMemcpyDtoDAsync(there, here, size, handle), "copy an array"),
        lambda: read(handle),
        lambda: check(cuda.cuMemsetD32Async(there, 0, size // 4, handle), "fill an array"),
    )
    copy, reads, writes = (_seconds(call, device, stream) for call in calls)
    source.close(stream)
    target.close(stream)
    return Roofline(2 * size / copy, size / reads, size / writes, size, 1)


def _seconds(call: Callable[[], Any], device: Any, stream: Any) -> float:
    """Return the shortest time of a call on a stream, which is done several times in a row."""
    begin, end = device.create_event(), device.create_event()
    best = float("inf")
    for _ in range(_RUNS):
        stream.record(begin)
        for _ in range(_TURNS):
            call()
        stream.record(end)
        end.sync()
        best = min(best, (end - begin) * _MILLI / _TURNS)
    return best
