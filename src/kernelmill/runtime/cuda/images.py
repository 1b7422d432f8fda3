"""Generated texts as images: compiled, and linked with the LTO-IR they carry. Loads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelmill.runtime.cuda.templates import device_headers
from kernelmill.toolchain.attached import attached
from kernelmill.toolchain.nvjitlink import link_cuda
from kernelmill.toolchain.nvrtc import CudaOptions, compile_cuda

if TYPE_CHECKING:
    from kernelmill.runtime.backend import KernelSource
    from kernelmill.toolchain.nvjitlink import Linked
    from kernelmill.toolchain.nvrtc import CudaImage

__all__ = ["compile_text", "image_of"]

# No contraction: the bits are those of the CPU.
_OPTIONS: Final = CudaOptions()


def image_of(source: KernelSource, arch: str) -> CudaImage:
    """Compile the text of a primitive for a chip; raises CompileError."""
    return compile_text(source.text, arch=arch, options=_OPTIONS, name=f"{source.name}.cu")


def compile_text(
    text: str, *, arch: str, options: CudaOptions, name: str, output: Linked = "cubin"
) -> CudaImage:
    """Compile a text that includes our headers, and link it where it carries LTO-IR.

    Raises
    ------
    CompileError
        NVRTC or nvJitLink refuses.
    """
    parts = attached(text)
    image = compile_cuda(
        text,
        arch=arch,
        output="ltoir" if parts else output,
        options=options,
        headers=device_headers(),
        name=name,
    )
    if not parts:
        return image
    return link_cuda([image, *parts], arch=arch, output=output, options=options, name=name)
