"""Generated texts as images: compiled, and linked with the LTO-IR they carry. Loads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelmill.runtime.cuda.templates import device_headers
from kernelmill.toolchain.attached import attached
from kernelmill.toolchain.nvjitlink import link_cuda
from kernelmill.toolchain.nvrtc import CudaOptions, compile_cuda

if TYPE_CHECKING:
    from kernelmill.runtime.backend import KernelSource
    from kernelmill.toolchain.nvrtc import CudaImage

__all__ = ["image_of"]

# No contraction: the bits are those of the CPU.
_OPTIONS: Final = CudaOptions()


def image_of(source: KernelSource, arch: str) -> CudaImage:
    """Compile a text for a chip; raises CompileError."""
    name, parts = f"{source.name}.cu", attached(source.text)
    image = compile_cuda(
        source.text,
        arch=arch,
        output="ltoir" if parts else "cubin",
        options=_OPTIONS,
        headers=device_headers(),
        name=name,
    )
    return link_cuda([image, *parts], arch=arch, options=_OPTIONS, name=name) if parts else image
