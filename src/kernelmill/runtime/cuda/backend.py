"""The CUDA back end of plans: generated texts compiled for one device and loaded there."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kernelmill.errors import NotImplementedHere
from kernelmill.runtime.backend import Kernel
from kernelmill.runtime.cuda.device import cuda_device
from kernelmill.runtime.cuda.program import ObjectCode
from kernelmill.runtime.cuda.templates import device_headers
from kernelmill.toolchain.nvrtc import CudaOptions, compile_cuda

if TYPE_CHECKING:
    from kernelmill.runtime.backend import KernelSource, Launch
    from kernelmill.runtime.cuda.device import CudaDevice
    from kernelmill.runtime.cuda.program import Kernel as LoadedKernel

__all__ = ["ENTRY", "CudaBackend"]

# The kernel that a generated text defines.
ENTRY: Final = "km_kernel"
_LOCK: Final = threading.Lock()


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
    _loaded: dict[str, LoadedKernel] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.device = cuda_device(self.number)

    @property
    def name(self) -> str:
        """Name of the device: "cuda:0"."""
        return self.device.name

    def build(self, source: KernelSource) -> Kernel:
        """Compile and load a kernel, or take it from the cache; raises CompileError."""
        found = self._loaded.get(source.text)
        if found is None:
            with _LOCK:
                found = self._loaded.get(source.text) or self._build(source)
                self._loaded[source.text] = found
        return Kernel(source, found.handle)

    def _build(self, source: KernelSource) -> LoadedKernel:
        image = compile_cuda(
            source.text,
            arch=self.device.arch,
            options=CudaOptions(),  # no contraction: the bits are those of the CPU
            headers=device_headers(),
            name=f"{source.name}.cu",
        )
        return ObjectCode(image).get_kernel(ENTRY)

    def launch(self, kernel: Kernel, launch: Launch) -> None:
        """Refuse: no family of algorithms has a text for CUDA yet."""
        raise NotImplementedHere(
            f"{kernel.source.name} with {len(launch.pointers)} operands cannot run on "
            f"{self.name}: no algorithm has a CUDA form in this version",
            hint="use the CPU: km.Device('cpu')",
        )
