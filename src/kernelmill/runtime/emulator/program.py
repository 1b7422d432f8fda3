"""Programs for the emulator: compiled CUDA C++, and the kernels in it, in cuda.core's nouns."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill import events
from kernelmill.errors import ArgumentError, DeviceError
from kernelmill.runtime.emulator.arguments import Packed, Parameter, pack
from kernelmill.runtime.emulator.build import (
    Built,
    Request,
    build_program,
    load_runtime,
)
from kernelmill.runtime.emulator.launches import check_geometry, start
from kernelmill.runtime.emulator.sanitizer import Given, Job, current_sanitizer, run_job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelmill.runtime.emulator.launches import Geometry
    from kernelmill.toolchain.nvrtc import CudaOptions

__all__ = ["EmulatedCode", "EmulatedKernel", "EmulatedLaunch", "compile_emulated"]

_NONE: Final[Mapping[str, str]] = {}


class _Row(ctypes.Structure):
    """`km_emu::Parameter` of thread.hpp."""

    _fields_ = [
        (n, ctypes.c_int32) for n in ("kind", "size", "pointee", "pointee_size", "constant")
    ]


def compile_emulated(
    text: str,
    *,
    name: str = "program.cu",
    options: CudaOptions | None = None,
    headers: Mapping[str, str] = _NONE,
    expressions: Sequence[str] = (),
) -> EmulatedCode:
    """Compile CUDA C++ for the emulator.

    Parameters
    ----------
    text
        The source.
    name
        What it is called in messages.
    options
        Of `Program`; `contract`, `defines`, `include_dirs` and `std` count here.
    headers
        Texts that `#include "name"` finds before any file; the names of kernelmill's own device
        templates find their twins.
    expressions
        Template instances such as "scale<float>" that `get_kernel` is to know.

    Raises
    ------
    CompileError, NotImplementedHere, ToolchainError
        As `build_program` does.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> from kernelmill.runtime.emulator import compile_emulated
    >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    >>> kernel = compile_emulated(text).get_kernel("twice")
    >>> x = np.arange(3, dtype=np.float32)
    >>> kernel.launch((1, 1, 1), (3, 1, 1), [x])
    >>> x
    array([0., 2., 4.], dtype=float32)
    """
    request = Request(
        text,
        name,
        headers,
        include_dirs=tuple(Path(d) for d in options.include_dirs) if options else (),
        defines=options.defines if options else (),
        contract=options.contract if options else True,
        expressions=tuple(expressions),
        std=options.std if options else "c++17",
    )
    return EmulatedCode(request, build_program(request))


@dataclass(frozen=True, slots=True, repr=False)
class EmulatedCode:
    """Object code for the emulator: a library of the host."""

    request: Request
    built: Built
    _kernels: dict[str, EmulatedKernel] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"ObjectCode({self.request.name!r}, for the emulator)"

    @property
    def code(self) -> bytes:
        """The library."""
        return self.built.path.read_bytes()

    @property
    def code_type(self) -> str:
        """What it is: "emulator"."""
        return "emulator"

    @property
    def symbol_mapping(self) -> Mapping[str, str]:
        """The kernels that can be taken from it."""
        return {name: name for name in self.built.numbers}

    def parameter_names(self, kernel: str) -> tuple[str, ...]:
        """Return the names of a kernel's parameters; fewer where a macro made it."""
        return self.built.parameters[_number(self, kernel)[2]]

    def job(  # noqa: PLR0917 - the fields of a job, in their order
        self,
        kernel: str,
        values: Sequence[bytes],
        pointers: Sequence[tuple[int, int, int, int]],
        arrays: Sequence[Given],
        grid: Geometry,
        block: Geometry,
        shared: int = 0,
        *,
        cooperative: bool = False,
    ) -> Job:
        """Return a launch of the build that is looked at."""
        built = build_program(replace(self.request, sanitize=True))
        return Job(
            kernel,
            built.path,
            _number(self, kernel)[0],
            values,
            pointers,
            arrays,
            grid,
            block,
            shared,
            cooperative,
            {self.request.name: self.request.text, **self.request.headers},
            frozenset(map(_short, self.built.numbers)) - {_short(kernel)},
        )

    def get_kernel(self, name: str, *, signature: object = None) -> EmulatedKernel:
        """Return a kernel by its name, with or without its namespaces.

        Parameters
        ----------
        name
            Of a kernel, or a template instance that was named when compiling.
        signature
            Taken as by the GPU's object code; the emulator knows the types from the compiler.

        Raises
        ------
        DeviceError
            There is no such kernel in it; says which there are.
        """
        del signature
        found = self._kernels.get(name)
        if found is None:
            found = self._kernels[name] = _load(self, name)
        return found


def _short(name: str) -> str:
    """Return the name of a kernel without namespaces and template arguments."""
    return name.partition("<")[0].rpartition("::")[2].strip()


def _number(code: EmulatedCode, name: str) -> tuple[int, str, str]:
    """Return the number of a kernel, the name asked for, and its full name."""
    numbers = code.built.numbers
    if name in numbers:
        return numbers[name], name, name
    alike = [n for n in numbers if n.rpartition("::")[2] == name]
    if len(alike) == 1:
        return numbers[alike[0]], name, alike[0]
    there = ", ".join(numbers) or "none"
    raise DeviceError(
        f"{code!r} has no kernel {name!r}; kernels: {there}",
        hint="instances of templates, and kernels that a macro makes, are named when compiling: "
        "compile(..., name_expressions=[...])",
    )


def _load(code: EmulatedCode, name: str) -> EmulatedKernel:
    number, shown, _ = _number(code, name)
    load_runtime()
    try:
        library = ctypes.CDLL(str(code.built.path))
    except OSError as error:
        raise DeviceError(
            f"{code!r} cannot be loaded: {error}",
            hint="a function that is declared and nowhere defined cannot be found here",
        ) from error
    entry = ctypes.cast(library[f"km_emu_kernel_{number}"], ctypes.c_void_p).value
    assert entry is not None
    describe = library[f"km_emu_parameters_{number}"]
    describe.restype = ctypes.POINTER(_Row)
    count = ctypes.c_int()
    rows = describe(ctypes.byref(count))
    parameters = tuple(
        Parameter(r.kind, r.size, r.pointee, r.pointee_size, bool(r.constant))
        for r in (rows[i] for i in range(count.value))
    )
    return EmulatedKernel(shown, entry, parameters, code, library)


@dataclass(frozen=True, slots=True)
class EmulatedKernel:
    """A kernel on the emulator; made by `EmulatedCode.get_kernel`.

    `signature` are the types of its parameters, as the compiler knows them.
    """

    name: str
    entry: int
    signature: tuple[Parameter, ...]
    code: EmulatedCode = field(repr=False)
    _library: Any = field(repr=False, compare=False)  # Any: keeps the ctypes.CDLL

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, for the emulator)"

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        """Offset and size of each argument in bytes, as a GPU lays them out."""
        found, at = [], 0
        for parameter in self.signature:
            step = min(parameter.size & -parameter.size, 16)
            at = -(-at // step) * step
            found.append((at, parameter.size))
            at += parameter.size
        return tuple(found)

    def launch(
        self,
        grid: Geometry,
        block: Geometry,
        args: Sequence[object],
        *,
        shared: int = 0,
        cooperative: bool = False,
    ) -> None:
        """Run it to its end; see `start` for what is raised."""
        packed = pack(self.name, args, self.signature)
        self.run(packed, grid, block, shared=shared, cooperative=cooperative)
        if events.active:
            events.emit("launch", self.name, device="emulator")

    def run(
        self,
        packed: Packed,
        grid: Geometry,
        block: Geometry,
        *,
        shared: int = 0,
        cooperative: bool = False,
    ) -> None:
        """Run it on packed arguments, looked at where `sanitized()` says so."""
        sanitizer = current_sanitizer()
        if sanitizer is None:
            start(
                self.name,
                self.entry,
                packed.addresses,
                grid,
                block,
                shared=shared,
                cooperative=cooperative,
            )
            return
        check_geometry(self.name, grid, block, shared)
        names = [n.rstrip("_") for n in self.code.parameter_names(self.name)]
        order = list(packed.views)
        given = [
            Given(
                names[i] if i < len(names) and names[i] else f"argument {i}",
                packed.views[i],
                self.signature[i].constant,
            )
            for i in order
        ]
        pointers = [(i, 0, place, 0) for place, i in enumerate(order)]
        job = self.code.job(
            self.name, packed.values, pointers, given, grid, block, shared, cooperative=cooperative
        )
        run_job(job, sanitizer)

    def launch_config(self, config: Any, args: Sequence[object]) -> None:  # Any: a LaunchConfig
        """Run it as `launch(stream, config, kernel, *args)` asks."""
        self.prepare(config, args)()
        if events.active:
            events.emit("launch", self.name, device="emulator")

    def prepare(self, config: Any, args: Sequence[object]) -> EmulatedLaunch:  # Any: as above
        """Pack the arguments once, to launch often; see `km.prepare`.

        Raises
        ------
        ArgumentError
            There is a cluster of several blocks.
        """
        if config.cluster is not None and math.prod(config.cluster) > 1:
            raise ArgumentError(
                f"kernel {self.name!r}: clusters of {config.cluster} blocks cannot be launched on "
                "the emulator; the limit is 1",
                hint="blocks of a cluster share no memory here",
            )
        return EmulatedLaunch(self, config, pack(self.name, args, self.signature))


@dataclass(frozen=True, slots=True)
class EmulatedLaunch:
    """A launch whose arguments are packed: calling it runs the kernel to its end."""

    kernel: EmulatedKernel
    config: Any  # Any: a LaunchConfig
    packed: Packed = field(repr=False)

    def __call__(self, stream: int = 0) -> None:
        """Launch; there is one stream only, which is always at its end."""
        del stream
        self.kernel.run(
            self.packed,
            self.config.grid,
            self.config.block,
            shared=self.config.shmem_size,
            cooperative=bool(self.config.is_cooperative),
        )

    def update(self, index: int, value: bytes) -> None:
        """Replace the bytes of an argument; raises ArgumentError where they are not as many."""
        size = self.kernel.signature[index].size
        if len(value) != size:
            raise ArgumentError(
                f"argument {index} of kernel {self.kernel.name!r} takes {size} bytes, not "
                f"{len(value)}"
            )
        self.packed.update(index, value)
