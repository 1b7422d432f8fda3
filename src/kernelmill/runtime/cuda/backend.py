"""The CUDA back end of plans: generated texts compiled, loaded and launched on one device."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kernelmill.runtime.backend import ENTRY, MOST_BLOCKS, Kernel
from kernelmill.runtime.cuda.arguments import ArgumentRecord
from kernelmill.runtime.cuda.arrays import DeviceView, wait_for_producers
from kernelmill.runtime.cuda.device import cuda_device
from kernelmill.runtime.cuda.direct import allocator_of, launcher_of
from kernelmill.runtime.cuda.driver import api, explained, recent_kernels
from kernelmill.runtime.cuda.images import image_of
from kernelmill.runtime.cuda.lifetimes import hold
from kernelmill.runtime.cuda.program import ObjectCode
from kernelmill.runtime.cuda.records import SLOT, write
from kernelmill.runtime.cuda.scratch import scratch
from kernelmill.runtime.cuda.stream import StreamHandle, as_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.runtime.backend import (
        Allocator,
        Direct,
        Grid,
        KernelSource,
        Launch,
        Launcher,
        Target,
    )
    from kernelmill.runtime.cuda.device import CudaDevice
    from kernelmill.runtime.cuda.program import Kernel as LoadedKernel
    from kernelmill.runtime.memory import View
    from kernelmill.toolchain.nvrtc import CudaImage

__all__ = ["CudaBackend", "launch_stream"]

_NOTHING: Final[tuple[int, ...]] = ()
_LOCK: Final = threading.Lock()
# The compute capability from which on launches may begin before the one in front of them ends.
_TURNS_FROM: Final = 9


@dataclass(slots=True)
class CudaBackend:
    """Compiles for a device with NVRTC; `number` is that of the device.

    Raises
    ------
    DeviceError
        There is no such device.
    """

    number: int = 0
    device: CudaDevice = field(init=False)
    target: Target = "cuda"
    families: tuple[str, ...] = (
        "transform",
        "reduce",
        "scan",
        "histogram",
        "search",
        "segmented",
        "select",
        "sort",
        "merge",
        "batched_copy",
        "segmented_sort",
    )
    _loaded: dict[str, LoadedKernel] = field(default_factory=dict, repr=False)
    _ahead: dict[str, CudaImage] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.device = cuda_device(self.number)

    @property
    def name(self) -> str:
        """Name of the device: "cuda:0"."""
        return self.device.name

    @property
    def arch(self) -> str:
        """Architecture of the device: "sm_90"."""
        return self.device.arch

    @property
    def multiprocessors(self) -> int:
        """How many the device has."""
        return self.device.limits.multiprocessors

    def build(self, source: KernelSource) -> Kernel:
        """Compile and load a kernel, or take it from the cache; raises CompileError."""
        found = self._loaded.get(source.text)
        if found is None:
            with _LOCK:
                found = self._loaded.get(source.text) or self._build(source)
                self._loaded[source.text] = found
        return Kernel(source, found.handle)

    def compile_ahead(self, sources: Sequence[KernelSource]) -> None:
        """Compile several texts side by side, which `build` loads; raises CompileError."""
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - seldom used

        missing = [s for s in sources if s.text not in self._loaded and s.text not in self._ahead]
        with ThreadPoolExecutor(max(1, len(missing))) as pool:
            images = pool.map(partial(image_of, arch=self.device.arch), missing)
            self._ahead.update(zip((s.text for s in missing), images, strict=True))

    def _build(self, source: KernelSource) -> LoadedKernel:
        image = self._ahead.pop(source.text, None) or image_of(source, self.device.arch)
        return ObjectCode(image).get_kernel(ENTRY)

    def launch(self, kernel: Kernel, launch: Launch) -> None:
        """Launch a kernel on the current stream; it runs to its end by itself.

        Raises
        ------
        DeviceError
            The driver refuses, or an earlier kernel failed.
        """
        views = (*launch.views, *(c.view for c in launch.arrays))
        arrays = [view for view in views if isinstance(view, DeviceView)]
        loaded = self._loaded[kernel.source.text]
        self.device.set_current()
        stream = launch_stream(arrays, self.number)
        wait_for_producers(arrays, stream)
        grid, extra = kernel.source.tiles(launch.shape), _NOTHING
        if launch.grid is not None:
            grid = launch.grid
            extra = (*scratch(grid, stream, self.number), *grid.numbers)
            self._allow(loaded, grid.shared)
        try:
            record = loaded.spare.pop()
        except IndexError:
            record = ArgumentRecord(loaded.parameters)
        try:
            block = launch.captures + b"".join(map(_scalar, launch.views))
            write(record.data, block, launch.pointers, launch.shape, launch.strides, extra=extra)
            recent_kernels.append(kernel.source.name)
            status = self._start(kernel.source, loaded, grid, stream, record)
        finally:
            loaded.spare.append(record)
        if status:
            raise explained(status.name, f"launch {kernel.source.name!r}")
        hold(arrays, stream)

    def _start(
        self,
        source: KernelSource,
        loaded: LoadedKernel,
        grid: Grid,
        stream: StreamHandle,
        record: ArgumentRecord,
    ) -> Any:  # Any: a CUresult
        cuda = api()
        blocks, threads = (grid.blocks, 1, 1), (grid.threads, 1, 1)
        if not self._takes_turn(source):
            (status,) = cuda.cuLaunchKernel(
                loaded.handle, *blocks, *threads, grid.shared, stream.handle, record.handle, 0
            )
            return status
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = blocks
        config.blockDimX, config.blockDimY, config.blockDimZ = threads
        config.sharedMemBytes, config.hStream = grid.shared, stream.handle
        early = cuda.CUlaunchAttribute()
        early.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        config.attrs, config.numAttrs = [early], 1
        (status,) = cuda.cuLaunchKernelEx(config, loaded.handle, record.handle, 0)
        return status

    def _takes_turn(self, source: KernelSource) -> bool:
        return self.device.limits.major >= _TURNS_FROM and source.takes_turn

    def _allow(self, loaded: LoadedKernel, shared: int) -> None:
        """Ask once for so much dynamic shared memory, where a kernel wants more than each has."""
        if shared > loaded.prepared.get("shared", 0):
            loaded.allow_shared(shared, self.device)
            loaded.prepared["shared"] = shared

    def launcher(self, kernel: Kernel, direct: Direct) -> Launcher | None:
        """Return the native launcher for arrays of this device."""
        loaded = self._loaded[kernel.source.text]
        if direct.grid is not None:
            self._allow(loaded, direct.grid.shared)
        ((_, record),) = loaded.parameters
        return launcher_of(
            kernel.source.name,
            direct,
            self.device,
            function=loaded.handle,
            record=record,
            grid=direct.grid or kernel.source.tiles(direct.shape),
            tile=kernel.source.tile,
            most=MOST_BLOCKS,
            takes_turn=self._takes_turn(kernel.source),
        )

    def allocator(self, direct: Direct) -> Allocator | None:
        """Return what makes outputs in the library of the first input."""
        return allocator_of(direct)


def launch_stream(arrays: Sequence[DeviceView], number: int) -> StreamHandle:
    """Return the stream to launch on: the one that CuPy works on for its arrays, else torch's."""
    first = next((a for a in arrays if a.ptr), arrays[0])
    if first.maker == "cupy" and first.producer is not None:
        return StreamHandle(first.producer)
    return as_stream(None, number)


def _scalar(view: View) -> Any:  # Any: bytes
    """Return the slot of an operand that is given by value: what is on the host."""
    if isinstance(view, DeviceView):
        return b""
    return ctypes.string_at(view.ptr, view.dtype.itemsize).ljust(SLOT, b"\0")
