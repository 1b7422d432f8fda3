"""`km.inspect`: a kernel, plan or operator as IR, C++, PTX and machine code, and what it needs.

Nothing is launched. Without a device, occupancy is computed from what the chip has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill.algorithms.plan import Plan
from kernelmill.algorithms.source import loop_for, transform_source
from kernelmill.compiler.ir_text import ir_text
from kernelmill.compiler.op import Op, as_op, specialize
from kernelmill.compiler.raw import RawOp
from kernelmill.compiler.subject import Subject
from kernelmill.dtypes import TupleType, dtype_of, storage
from kernelmill.errors import ArgumentError, DeviceError, MissingExtraError
from kernelmill.kernels import KernelFunction
from kernelmill.kernels.variants import Variant
from kernelmill.toolchain.chips import Occupancy, chip_named, occupancy_of
from kernelmill.toolchain.regions import Region, regions_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelmill.runtime.cuda.program import Kernel, ObjectCode, Program
    from kernelmill.toolchain.cubin import Resources
    from kernelmill.toolchain.nvrtc import CudaImage, CudaOptions

__all__ = ["Inspection", "KernelNeeds", "Region", "inspect"]

_BLOCK: Final = 256  # threads of a block, where the kernel does not say
_SHOWN: Final = 12  # lines of the source in the table
_WIDEST: Final = 72


@dataclass(frozen=True, slots=True)
class KernelNeeds:
    """What one kernel needs of a chip; all in bytes but `registers`, of a thread.

    `spill_stores` and `spill_loads` are None where the compiler was not asked: for images that were
    compiled elsewhere. `most_threads` is what its launch bounds promise, or None.
    """

    name: str
    arch: str
    registers: int
    stack: int
    shared: int
    most_threads: int | None
    spill_stores: int | None = None
    spill_loads: int | None = None
    loaded: Kernel | None = field(default=None, repr=False, compare=False)

    def occupancy(self, block: int | None = None, *, shmem_size: int = 0) -> Occupancy:
        """Return how many blocks a multiprocessor runs at once; a loaded kernel asks the driver.

        Parameters
        ----------
        block
            Threads of a block: those of the launch bounds by default, else 256.
        shmem_size
            Bytes of dynamic shared memory.

        Raises
        ------
        ArgumentError
            Nothing is known of the chip, or the block is too large.
        """
        threads = block or self.most_threads or _BLOCK
        chip = chip_named(self.arch)
        if chip is None:
            raise ArgumentError(f"the figures of {self.arch} are not known")
        found = occupancy_of(chip, threads, self.registers, self.shared + shmem_size)
        if self.loaded is None:
            return found
        blocks = self.loaded.occupancy(threads, shmem_size=shmem_size)
        warps = -(-threads // 32)
        return replace(found, blocks=blocks, share=blocks * warps * 32 / chip.threads)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What `inspect` found; `str()` is a table, and what is "" is not there.

    `regions` are those of `sass`, or of `ptx` where there is no disassembler; `note` says what is
    missing and how to get it.
    """

    name: str
    arch: str
    ir: str = field(default="", repr=False)
    cpp: str = field(default="", repr=False)
    ptx: str = field(default="", repr=False)
    sass: str = field(default="", repr=False)
    kernels: tuple[KernelNeeds, ...] = ()
    regions: tuple[Region, ...] = field(default=(), repr=False)
    note: str = ""

    def __str__(self) -> str:
        parts = [f"{self.name}, {self.arch}"]
        if self.kernels:
            parts.append(_table(_needs_rows(self.kernels)))
        if self.regions:
            kind = "SASS" if self.sass else "PTX"
            parts.append(_table(_region_rows(self.regions, kind)))
        return "\n\n".join(part for part in (*parts, self.note) if part)


def inspect(obj: object, *types: object, arch: str | None = None) -> Inspection:
    """Show what a kernel, plan or operator becomes.

    Parameters
    ----------
    obj
        A `Program`, `ObjectCode` or `Kernel`, a plan, a kernel of `@km.kernel`, or an operator.
    *types
        For an operator the types of its arguments; for a kernel of `@km.kernel` arguments like
        those of a call, where an array may be spelled: "float32[:, :]".
    arch
        "sm_90"; by default that of cuda:0. Operators are shown as text of the host where there is
        neither.

    Raises
    ------
    ArgumentError
        It is nothing of these, or an operator without types.
    DeviceError
        No architecture is given, and there is no device to ask.
    CompileError
        It does not compile.

    Examples
    --------
    >>> import kernelmill as km
    >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    >>> found = km.inspect(km.Program(text, name="twice.cu"), arch="sm_90")
    >>> found.kernels[0].registers, found.kernels[0].occupancy(256).blocks
    (8, 8)
    >>> print(km.inspect(lambda a, b: a + 2 * b, km.float32, km.float32, arch="sm_90").ir)
    def op(a: float32, b: float32) -> float32:
        return add(a, mul(float32(2), b))
    """
    own = getattr(obj, "__kernelmill_inspect__", None)
    if own is not None:
        return _of_text(own(*types, arch=arch), arch)
    if isinstance(obj, Plan):
        return _of_plan(obj, arch)
    if isinstance(obj, (KernelFunction, Variant)):
        return _of_python(obj, types, arch)
    found = _of_runtime(obj, arch)
    if found is not None:
        return found
    if callable(obj):
        return _of_operator(obj, types, arch)
    raise ArgumentError(
        f"a {type(obj).__qualname__} cannot be inspected",
        hint="accepted: a Program, ObjectCode or Kernel, a plan, a kernel, an operator with types",
    )


def _of_runtime(obj: Any, arch: str | None) -> Inspection | None:
    from kernelmill.runtime.cuda.program import (  # noqa: PLC0415 - only where it is asked for
        Kernel,
        ObjectCode,
        Program,
    )

    if isinstance(obj, Program):
        return _of_program(obj, arch)
    if isinstance(obj, Kernel):
        return _of_kernel(obj, arch)
    if isinstance(obj, ObjectCode):
        return _of_image(obj, arch)
    kind = getattr(obj, "code_type", None)  # object code of cuda.core
    if kind in ("cubin", "ptx", "ltoir"):
        make = getattr(ObjectCode, f"from_{kind}")
        return _of_image(make(bytes(obj.code), name=str(obj.name or kind)), arch)
    return None


# ----------------------------------------------------------------------------- what there is


def _chosen(arch: str | None) -> str | None:
    """Return the architecture that is asked for, or the device's; None where there is none."""
    if arch is not None:
        return arch
    from kernelmill.runtime.cuda.device import cuda_device  # noqa: PLC0415 - as above

    try:
        return cuda_device().arch
    except (DeviceError, MissingExtraError):
        return None


def _of_program(program: Program, arch: str | None) -> Inspection:
    if program.code_type != "c++":
        return _of_image(program.compile("cubin", arch=arch), arch)
    text = program.code if isinstance(program.code, str) else program.code.decode()
    subject = Subject(program.name, program.name, text, program.options, headers=program.headers)
    return _of_text(subject, arch)


def _of_plan(plan: Plan, arch: str | None) -> Inspection:
    built = plan.built
    programs = [operator.translation.program for operator in built.scope.operators]
    text = "\n\n".join(map(ir_text, programs))
    if built.backend.target == "host":
        note = "machine code of the host is not shown; " + f"the library is {built.kernel.path}"
        return Inspection(plan.describe(built), built.backend.name, text, plan.source, note=note)
    return _of_text(_generated(plan.describe(built), plan.source, text), arch)


def _of_python(
    obj: KernelFunction | Variant, arguments: Sequence[object], arch: str | None
) -> Inspection:
    variant = obj.specialize(*arguments) if isinstance(obj, KernelFunction) else obj
    subject = Subject(
        variant.name,
        variant.file,
        variant.text,
        variant.cuda_options(),
        ir_text(variant.kernel.program),
        _device_headers(),
    )
    # To read, the text without the marks of lines.
    return replace(_of_text(subject, arch), cpp=variant.source)


def _of_operator(obj: Any, types: Sequence[object], arch: str | None) -> Inspection:
    operator = obj if isinstance(obj, Op) else as_op(obj)
    raw = operator.function if isinstance(operator.function, RawOp) else None
    arguments = tuple(dtype_of(t) for t in types) or (raw.arguments if raw else ())
    if not arguments:
        raise ArgumentError(
            f"the operator {operator.name} is inspected for types, and none were given",
            hint="for example `km.inspect(op, km.float32, km.float32)`",
        )
    found = specialize(operator, arguments)
    program, result = found.translation.program, storage(found.result)
    made = result.items if isinstance(result, TupleType) else (result,)
    assert not any(isinstance(t, TupleType) for t in made)
    chosen = _chosen(arch)
    name = f"{operator.name}({', '.join(map(str, arguments))})"
    source = transform_source(
        name,
        program,
        [(t, "contiguous") for t in arguments],
        [(t, "contiguous") for t in made],
        loop_for("host" if chosen is None else "cuda", 1),
    )
    if chosen is None:
        note = "for PTX and machine code, pass arch='sm_90', or another one; no GPU is needed"
        return Inspection(name, "host", ir_text(program), source.text, note=note)
    return _of_text(_generated(name, source.text, ir_text(program)), chosen)


def _generated(name: str, text: str, ir: str) -> Subject:
    """Return generated text as what the back end compiles: not contracted, with our headers."""
    from kernelmill.toolchain.nvrtc import CudaOptions  # noqa: PLC0415 - as above

    return Subject(name, "kernel.cu", text, CudaOptions(), ir, _device_headers())


def _device_headers() -> Mapping[str, str]:
    from kernelmill.runtime.cuda.templates import device_headers  # noqa: PLC0415 - as above

    return device_headers()


def _of_kernel(kernel: Kernel, arch: str | None) -> Inspection:
    if kernel.code is None:
        raise ArgumentError(
            f"kernel {kernel.name!r} was loaded by cuda.core, which does not keep its image",
            hint="inspect the object code that it is from",
        )
    found = _of_image(kernel.code, arch)
    needs = tuple(replace(k, loaded=kernel) for k in found.kernels if k.name == kernel.symbol)
    regions = tuple(r for r in found.regions if r.kernel == kernel.symbol)
    return replace(found, name=kernel.name, kernels=needs, regions=regions)


def _of_image(code: ObjectCode, arch: str | None) -> Inspection:
    from kernelmill.runtime.cuda.program import Program  # noqa: PLC0415 - as above

    kind = code.code_type
    ptx = code.code.decode() if kind == "ptx" else ""
    cubin = code
    if kind != "cubin":
        chosen = arch or code.image.arch.replace("compute_", "sm_") or None
        cubin = Program(code.code, "ptx" if ptx else "ltoir").compile("cubin", arch=chosen)
    return _assembled(code.image.name, cubin.code, {}, Inspection("", "", ptx=ptx), {})


# ----------------------------------------------------------------------------- compiled

_PROPERTIES: Final = re.compile(
    r"Function properties for (?P<name>\S+)\s.*?(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads",
    re.DOTALL,
)


def _of_text(subject: Subject, arch: str | None) -> Inspection:
    if subject.options is None:
        return Inspection(subject.name, "host", subject.ir, subject.cpp)
    chosen = _chosen(arch)
    if chosen is None:
        raise DeviceError(
            f"{subject.name} cannot be inspected: no architecture was given, and there is no "
            "device to ask",
            hint="pass arch='sm_90', or another one; no GPU is needed",
        )
    ptx = _compiled(subject, chosen, "ptx")
    cubin = _compiled(subject, chosen, "cubin")
    spills = {
        m["name"]: (int(m["stores"]), int(m["loads"])) for m in _PROPERTIES.finditer(cubin.log)
    }
    known = Inspection("", "", subject.ir, subject.cpp, ptx.data.decode())
    texts = {subject.file: subject.cpp, **subject.headers}
    return _assembled(subject.name, cubin.data, spills, known, texts)


def _compiled(subject: Subject, arch: str, output: Any) -> CudaImage:
    """Compile with source lines, and have the assembler say what it spilled."""
    from kernelmill.toolchain.attached import attached  # noqa: PLC0415 - as above
    from kernelmill.toolchain.nvjitlink import link_cuda  # noqa: PLC0415
    from kernelmill.toolchain.nvrtc import compile_cuda  # noqa: PLC0415

    options: CudaOptions | None = subject.options
    assert options is not None
    options = replace(options, lineinfo=True)
    parts = attached(subject.cpp)
    told = replace(options, extra=(*options.extra, "--ptxas-options=-v"))
    image = compile_cuda(
        subject.cpp,
        arch=arch,
        output="ltoir" if parts else output,
        options=told if output == "cubin" and not parts else options,
        headers=subject.headers,
        name=subject.file,
        cache=output != "cubin",  # what comes from the cache says nothing
    )
    return link_cuda([image, *parts], arch=arch, output=output, options=options) if parts else image


def _assembled(
    name: str,
    cubin: bytes,
    spills: dict[str, tuple[int, int]],
    known: Inspection,
    texts: dict[str, str],
) -> Inspection:
    """Return what is known, completed by what the cubin and its machine code say."""
    from kernelmill.toolchain.cubin import architecture_of, resources_of  # noqa: PLC0415 - as above
    from kernelmill.toolchain.disassembler import disassemble  # noqa: PLC0415

    arch, note, sass = architecture_of(cubin), "", ""
    try:
        sass = disassemble(cubin)
    except MissingExtraError as error:
        note = f"{error.message}: {error.hint}"
    return replace(
        known,
        name=name,
        arch=arch,
        sass=sass,
        note=note,
        kernels=tuple(_needs(r, arch, spills.get(r.name)) for r in resources_of(cubin)),
        regions=regions_of(sass, known.ptx, texts),
    )


def _needs(found: Resources, arch: str, spills: tuple[int, int] | None) -> KernelNeeds:
    stores, loads = spills or (None, None)
    return KernelNeeds(
        found.name,
        arch,
        found.registers,
        found.stack,
        found.shared,
        found.most_threads or None,
        stores,
        loads,
    )


# ----------------------------------------------------------------------------- tables


def _needs_rows(kernels: Sequence[KernelNeeds]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("kernel", "registers", "spilled", "stack", "shared", "occupancy")
    ]
    for kernel in kernels:
        spilled = (
            None if kernel.spill_stores is None else kernel.spill_stores + (kernel.spill_loads or 0)
        )
        rows.append(
            (
                kernel.name,
                str(kernel.registers),
                "?" if spilled is None else str(spilled),
                str(kernel.stack),
                str(kernel.shared),
                _occupancy(kernel),
            )
        )
    return rows


def _occupancy(kernel: KernelNeeds) -> str:
    if chip_named(kernel.arch) is None:
        return "?"
    found = kernel.occupancy()
    return f"{found.share:.0%}: {found.blocks} blocks of {found.block}, by {found.limit}"


def _region_rows(regions: Sequence[Region], kind: str) -> list[tuple[str, ...]]:
    total = sum(len(r.instructions) for r in regions)
    largest = sorted(regions, key=lambda r: -len(r.instructions))[:_SHOWN]
    rows: list[tuple[str, ...]] = [("line", kind, "share", "source")]
    for region in sorted(largest, key=lambda r: (r.kernel, r.file, r.line)):
        count = len(region.instructions)
        place = f"{Path(region.file).name}:{region.line}"
        rows.append((place, str(count), f"{count / total:.0%}", region.source[:_WIDEST]))
    return rows


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return "\n".join(
        "  ".join(
            cell if i == last else cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
