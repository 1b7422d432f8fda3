"""A kernel for one choice of arguments: translated once, compiled and loaded for each device."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.compiler.cpp_kernel import (
    KernelParameter,
    PrintedKernel,
    print_kernel,
    written_arrays,
)
from kernelmill.compiler.frontend.kernel_program import KernelTranslation, translate_kernel
from kernelmill.dtypes import float32
from kernelmill.errors import ArgumentError
from kernelmill.runtime.cuda.images import compile_text
from kernelmill.runtime.cuda.templates import device_headers
from kernelmill.toolchain.nvrtc import CudaImage, CudaOptions, Output, compile_cuda

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Sequence

    from kernelmill.compiler.kernel_ir import Kernel
    from kernelmill.kernels.arguments import Given

__all__ = ["KernelOptions", "Shape", "Variant", "make_variant"]


_MOST_REGISTERS: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """How a kernel is compiled; see `kernel`."""

    debug: bool = False
    contract: bool = True
    max_registers: int | None = None
    fast_math: bool = False

    def __post_init__(self) -> None:
        """Refuse what no kernel can be compiled with."""
        for name in ("debug", "contract", "fast_math"):
            if not isinstance(found := getattr(self, name), bool):
                raise ArgumentError(
                    f"km.kernel({name}={found!r}): it is a switch", hint="write True or False"
                )
        most = self.max_registers
        if most is not None and not (type(most) is int and 1 <= most <= _MOST_REGISTERS):
            raise ArgumentError(
                f"km.kernel(max_registers={most!r}): no thread can have so many registers",
                hint=f"choose 1 to {_MOST_REGISTERS}, or leave it out",
            )


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a launch shapes the code: threads of a block, and facts about the grid.

    `flat`: the blocks lie in one direction; `small`: it has at most 2**30 threads; `covered`: which
    loops over the grid it covers.
    """

    block: tuple[int, int, int]
    flat: bool = True
    small: bool = True
    covered: tuple[bool, ...] = ()


@dataclass(slots=True)
class Variant:
    """A kernel for one choice of arguments and one shape of block.

    `kernel` is its IR, `text` the CUDA C++ with the user's lines, `entry` the symbol, `parameters`
    what a launch passes; `loaded` are the kernels by device.
    """

    translation: KernelTranslation
    printed: PrintedKernel
    options: KernelOptions
    readers: tuple[tuple[Callable[[], object], object], ...] = field(repr=False)
    loaded: dict[object, Any] = field(default_factory=dict, repr=False)  # Any: kernels of devices

    @property
    def kernel(self) -> Kernel:
        """The intermediate representation."""
        return self.translation.kernel

    @property
    def name(self) -> str:
        """What messages call it: the name of the Python function."""
        return self.kernel.name

    @property
    def text(self) -> str:
        """CUDA C++, with `#line` for the lines of the Python function."""
        return self.printed.text

    @property
    def entry(self) -> str:
        """The symbol of the kernel in the image."""
        return self.printed.entry

    @property
    def parameters(self) -> tuple[KernelParameter, ...]:
        """What a launch passes, in order."""
        return self.printed.parameters

    @property
    def source(self) -> str:
        """CUDA C++ to read, without `#line`."""
        options = self.options
        return print_kernel(
            self.kernel, exact=not options.contract, lines=False, registers=options.max_registers
        ).text

    @property
    def written(self) -> set[str]:
        """Names of the arrays that it writes."""
        return written_arrays(self.kernel)

    @property
    def file(self) -> str:
        """What the text is called in messages of compilers."""
        return f"{self.name}.cu"

    def is_current(self) -> bool:
        """Whether what was baked into it still holds."""
        return all(_same(read(), value) for read, value in self.readers)

    # ------------------------------------------------------------------ compiling

    def cuda_options(self) -> CudaOptions:
        """Return the options of NVRTC; lines are kept, for profilers and error texts."""
        return CudaOptions(
            contract=self.options.contract,
            lineinfo=True,
            maxregcount=self.options.max_registers,
            extra=("-use_fast_math",) if self.options.fast_math else (),
        )

    def compile(self, output: Output = "cubin", *, arch: str = "sm_90") -> CudaImage:
        """Compile for a chip, or take the image from the cache; needs neither driver nor GPU."""
        options = self.cuda_options()
        if output != "ltoir":
            return compile_text(
                self.text, arch=arch, output=output, options=options, name=self.file
            )
        return compile_cuda(
            self.text,
            arch=arch,
            output=output,
            options=options,
            headers=device_headers(),
            name=self.file,
        )

    def on_cuda(self, number: int) -> Any:  # Any: a Kernel of the CUDA runtime
        """Return the kernel loaded on a device."""
        found = self.loaded.get(number)
        if found is None:
            from kernelmill.runtime.cuda.device import cuda_device  # noqa: PLC0415 - needs a driver
            from kernelmill.runtime.cuda.program import ObjectCode  # noqa: PLC0415

            device = cuda_device(number)
            device.set_current()
            image = self.compile(arch=device.arch)
            found = self.loaded[number] = ObjectCode(image).get_kernel(self.entry)
            found.name = self.name
        return found

    def on_emulator(self) -> Any:  # Any: a kernel of the emulator
        """Return the kernel for the emulator."""
        found = self.loaded.get("emulator")
        if found is None:
            from kernelmill.runtime.emulator import compile_emulated, emulator_headers  # noqa: PLC0415 - only where it is asked for

            code = compile_emulated(
                self.text, name=self.file, options=self.cuda_options(), headers=emulator_headers()
            )
            found = self.loaded["emulator"] = code.get_kernel(self.entry)
        return found

    def passed(self, given: Sequence[Given]) -> list[object]:
        """Return what a launch passes for the arguments of a call."""
        by_name = {g.name: g for g in given}
        values: list[object] = []
        for parameter in self.parameters:
            found = by_name[parameter.name]
            view: Any = found.value  # Any: a view where the parameter is of an array
            if parameter.kind == "data":
                values.append(found.original)
            elif parameter.kind == "shape":
                values.append(view.shape[parameter.dim])
            elif parameter.kind == "stride":
                values.append(view.strides[parameter.dim] // view.dtype.itemsize)
            elif parameter.type is float32 and type(found.value) is float:
                values.append(_single(found.value))
            else:
                values.append(found.value)
        return values


def _single(value: float) -> float:
    """Round what float32 cannot hold to infinity, as a conversion does."""
    if abs(value) <= _LARGEST or math.isnan(value):
        return value
    with np.errstate(over="ignore"):
        return float(np.float32(value))


_LARGEST: Final = float(np.finfo(np.float32).max)
_PLAIN: Final = (int, float, complex, np.generic)


def _same(found: object, value: object) -> bool:
    """Whether an object that was baked is still the same, numbers by type and value."""
    if found is value:
        return True
    if type(found) is not type(value) or not isinstance(value, _PLAIN):
        return False
    return repr(found) == repr(value)


def make_variant(
    function: types.FunctionType,
    given: Sequence[Given],
    shape: Shape,
    options: KernelOptions,
    *,
    disjoint: bool,
) -> Variant:
    """Translate and print a kernel; raises OperatorError where the language refuses it."""
    translation = translate_kernel(
        function,
        [g.argument for g in given],
        block=shape.block,
        flat=shape.flat,
        small=shape.small,
        covered=shape.covered,
        wide=any(g.wide for g in given),
        debug=options.debug,
        disjoint=disjoint,
    )
    head = translation.source.header()
    printed = print_kernel(
        translation.kernel,
        exact=not options.contract,
        head=head,
        registers=options.max_registers,
    )
    readers = tuple((b.read, b.value) for b in translation.baked)
    return Variant(translation, printed, options, readers)
