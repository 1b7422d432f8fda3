"""From a CUDA text to a loaded library: rewriter, host compiler, cache, loader.

The runtime (`runtime.cpp`) is a library of its own that is compiled once; kernels find it in the
process, where it is loaded for all.
"""

from __future__ import annotations

import ctypes
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill import events
from kernelmill.cache import Bundle, EntryPoint, Image, default_cache, digest
from kernelmill.config import get_config
from kernelmill.errors import CompileError, DeviceError, ToolchainError
from kernelmill.runtime.emulator.refusals import refusal_at
from kernelmill.runtime.emulator.sources import HERE, SHIMS, definitions, emulator_digest, gather
from kernelmill.toolchain import compile_shared, find_host_compiler, toolchain_identity
from kernelmill.toolchain.includes import included

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kernelmill.runtime.emulator.rewrite import KernelName
    from kernelmill.toolchain import CompileResult, HostCompiler

__all__ = ["Built", "Request", "build_program", "build_runtime", "load_runtime"]

_TARGET: Final = "emulator"
# -O2: kernels are tested here, not timed. Integers wrap as on the chip, also where C++ leaves it
# open. Without -ftrapping-math g++ >= 12 makes a rounding of floats of `(float)(int)x`, which gives
# -0 for -0.5. The runtime's functions are found when the library is loaded.
_KERNEL_FLAGS: Final = (
    "-ftrapping-math",
    "-O2",
    "-fwrapv",
    "-fexceptions",
    "-frtti",
    "-Wno-unknown-pragmas",
    "-Wno-attributes",
    "-Wl,-z,undefs",
)
# A frame that is larger than the page that guards a stack touches it, instead of the stack below.
_STACK_FLAGS: Final = ("-fstack-clash-protection",)
# Plain forms are loops over arrays that may overlap, so what is tested before a loop is worth it.
_VECTOR_FLAGS: Final = ("-fvect-cost-model=dynamic",)
# A line of the compiler about an entry of `_entries`.
_ENTRY_LINE: Final = re.compile(r"^kernels:(\d+):\d+: error", re.MULTILINE)
# The same about a plain form.
_PLAIN_LINE: Final = re.compile(r"^plain:\d+:\d+: error", re.MULTILINE)
# A text that says `volatile` calls the runtime at every branch.
_SPIN_FLAGS: Final = ("-fsanitize-coverage=trace-pc", "-DKM_EMU_SPIN")
# The loader finds `main` among the symbols of the library.
_PROGRAM_FLAGS: Final = ("-fvisibility=default", "-Wl,--wrap=clock,--wrap=malloc")
# What a program that includes OpenMP's header is compiled with.
_OPENMP: Final = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<omp\.h>", re.MULTILINE)
_OPENMP_FLAGS: Final = ("-fopenmp", "-lgomp")
# The hooks are the runtime's own, so the libraries of the compiler's sanitizers are kept out. Lines
# must stay what they are: nothing is merged across them.
_SANITIZER_FLAGS: Final = (
    "-O1",
    "-gdwarf-4",
    "-fsanitize=thread,bounds,alignment",
    "--param=tsan-distinguish-volatile=1",
    "--param=tsan-instrument-func-entry-exit=0",
    "-fno-crossjumping",
    "-fno-tree-tail-merge",
    "-DKM_EMU_SANITIZER",
    "-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset,--wrap=malloc,--wrap=free",
    "-Wl,--wrap=_Znwm,--wrap=_Znam,--wrap=_ZdlPv,--wrap=_ZdaPv,--wrap=_ZdlPvm,--wrap=_ZdaPvm",
    "-nodefaultlibs",
    "-lstdc++",
    "-lgcc_s",
    "-lgcc",
    "-lc",
)
_RUNTIME_FLAGS: Final = ("-O2", "-Wl,-z,nodelete")
_SANITIZER_RUNTIME_FLAGS: Final = (*_RUNTIME_FLAGS, "-DKM_EMU_SANITIZER", "-lstdc++")
_LOCK: Final = threading.Lock()
_NONE: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Request:
    """One text to compile for the emulator.

    Parameters
    ----------
    text, name
        The text, and what it is called in messages.
    headers
        Texts that `#include "name"` finds before any file.
    include_dirs
        Where other includes are looked for.
    defines
        Macros, "NAME" or "NAME=VALUE".
    contract
        Let a * b + c be one operation with one rounding.
    expressions
        Template instances, or kernels that a macro makes, such as "scale<float>".
    program
        Whether it is a program with a `main` of its own.
    others
        Further files of a program: `.cu` is rewritten too, others are compiled as they are.
    std
        The C++ standard.
    sanitize
        Whether each access calls the runtime that looks on.
    """

    text: str
    name: str = "program.cu"
    headers: Mapping[str, str] = None  # type: ignore[assignment]  # __post_init__ puts one there
    include_dirs: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    contract: bool = True
    expressions: tuple[str, ...] = ()
    program: bool = False
    others: tuple[Path, ...] = ()
    std: str = "c++17"
    sanitize: bool = False

    def __post_init__(self) -> None:
        if self.headers is None:
            object.__setattr__(self, "headers", _NONE)

    def flags(self) -> tuple[str, ...]:
        """Return the compiler's options."""
        contract = "-ffp-contract=fast" if self.contract else "-ffp-contract=off"
        macro = ("-DKM_EMU_CONTRACT",) if self.contract else ()
        program = _PROGRAM_FLAGS if self.program else ()
        checked = _SANITIZER_FLAGS if self.sanitize else ()
        return (*_KERNEL_FLAGS, f"-std={self.std}", contract, *macro, *program, *checked)


@dataclass(frozen=True, slots=True)
class Built:
    """A library in the cache: where it is, and which function of it starts which kernel.

    `parameters` are the names of the parameters of each.
    """

    path: Path
    numbers: Mapping[str, int]
    parameters: Mapping[str, tuple[str, ...]]
    digest: str


def build_program(request: Request) -> Built:
    """Compile a text, or take what became of it from the cache.

    Raises
    ------
    CompileError
        The compiler refuses it; the lines are those of the text.
    NotImplementedHere
        There is PTX that the emulator does not know.
    ToolchainError
        There is no usable C++ compiler.
    """
    config = get_config()
    compiler = find_host_compiler(config)
    reached = included(request.text, request.headers, request.include_dirs)
    key = digest(
        kind="emulated program",
        text=request.text,
        name=request.name,
        headers=reached.texts,
        files=reached.files,
        defines=request.defines,
        expressions=request.expressions,
        flags=request.flags(),
        emulator=emulator_digest(),
        program=request.program,
        others=[_state(path, request.include_dirs) for path in request.others],
        toolchain=toolchain_identity(compiler, config.march),
    )

    def compile_here(directory: Path) -> Bundle:
        return _compile(request, compiler, config.march, directory)

    bundle = default_cache().get_or_build(key, compile_here)
    path = bundle.image(_TARGET).path
    assert path is not None, "the cache gives every image a file"
    numbers = {entry.name: int(entry.attributes["number"]) for entry in bundle.entries}
    parameters = {
        entry.name: tuple(str(entry.attributes["parameters"]).split(","))
        for entry in bundle.entries
    }
    return Built(path, numbers, parameters, key)


def _compile(request: Request, compiler: HostCompiler, march: str, directory: Path) -> Bundle:
    if request.sanitize and compiler.kind != "gcc":
        raise ToolchainError(
            f"the sanitizer needs g++; the compiler is {compiler.label}",
            hint="name one in KERNELMILL_CXX=g++",
        )
    sources = gather(
        request.text,
        name=request.name,
        headers=request.headers,
        directories=request.include_dirs,
        defines=request.defines,
        program=request.program,
    )
    include = directory / "include"
    _write(include, sources.files)
    others = [_other(path, number, request, include) for number, path in enumerate(request.others)]
    # The flags of kernels keep clang++ from linking a C++ library; host code may need one.
    library = ("-lstdc++",) if request.program and compiler.kind == "clang" else ()
    vectors = _VECTOR_FLAGS if compiler.kind == "gcc" else ()
    stacks = _STACK_FLAGS if compiler.kind != "zig" else ()
    openmp = _OPENMP_FLAGS if _OPENMP.search(_all_texts(request)) else ()
    spin = _SPIN_FLAGS if sources.spins and not request.sanitize else ()

    def attempt(text: str) -> CompileResult:
        return compile_shared(
            text,
            directory / "kernels.so",
            compiler=compiler,
            march=march,
            include_dirs=(include, HERE.parent, SHIMS, *request.include_dirs),
            extra=(
                *map(str, others),
                *request.flags(),
                *spin,
                *vectors,
                *stacks,
                *library,
                *openmp,
            ),
        )

    numbers = _numbers(sources.kernels, request.expressions)
    plain = {} if request.sanitize or request.program or spin else sources.plain
    made, text, numbers = _compiled(request, sources.text, numbers, plain, attempt)
    if events.active:
        size = made.path.stat().st_size
        events.emit("compile", request.name, device=_TARGET, seconds=made.seconds, bytes=size)
    names = {kernel.name: ",".join(kernel.parameters) for kernel in sources.kernels}
    rows = tuple(
        EntryPoint(n, {"number": i, "parameters": names.get(n.partition("<")[0].strip(), "")})
        for n, i in numbers.items()
    )
    image = Image(_TARGET, "so", made.path.read_bytes())
    return Bundle((image,), rows, signature=request.name, source=text)


def _compiled(
    request: Request,
    text: str,
    numbers: dict[str, int],
    plain: Mapping[str, str],
    attempt: Callable[[str], CompileResult],
) -> tuple[CompileResult, str, dict[str, int]]:
    """Compile, without the entries of kernels that the compiler does not see after all.

    A kernel may stand in a branch of the preprocessor that is not taken, or be a template behind a
    macro. One that was asked for by name is not left out. Plain forms are, when one of them fails.
    """
    while True:
        lines = _registered(numbers) if request.program else _entries(numbers, plain)
        try:
            return attempt(text + lines), text + lines, numbers
        except CompileError as error:
            if _PLAIN_LINE.search(error.log):
                plain = {}
                continue
            places = {int(line) - 1 for line in _ENTRY_LINE.findall(error.log)}
            unseen = {name for place, name in enumerate(numbers) if place in places}
            if not unseen - set(request.expressions):
                refused = refusal_at(error)
                if refused is not None:
                    raise refused from error
                if "kernels.cpp" in error.hint:  # what is there is gone when the user reads this
                    error.hint = f"it is the emulator's form of {request.name}"
                raise
            numbers = {n: i for n, i in numbers.items() if n not in unseen}


def _all_texts(request: Request) -> str:
    others = (path.read_text(encoding="utf-8", errors="replace") for path in request.others)
    return "\n".join([request.text, *others])


def _state(path: Path, directories: Sequence[Path]) -> tuple[object, ...]:
    """Return what a cache key must hold of a further file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return path.name, text, included(text, {}, (path.parent, *directories)).files


def _write(include: Path, files: Mapping[str, str]) -> None:
    for name, body in files.items():
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).write_text(body, encoding="utf-8")


def _other(path: Path, number: int, request: Request, include: Path) -> Path:
    """Return a further file in the form that the compiler takes."""
    if path.suffix != ".cu":
        if not request.defines:
            return path.resolve()
        body = "".join([*definitions(request.defines), f'#include "{path.resolve()}"\n'])
        _write(include, {f"other{number}.cpp": body})
        return include / f"other{number}.cpp"
    sources = gather(
        path.read_text(encoding="utf-8", errors="replace"),
        name=path.name,
        headers=request.headers,
        directories=(path.resolve().parent, *request.include_dirs),
        defines=request.defines,
        program=True,
        folder=f"disk{number}",
    )
    _write(include, {**sources.files, f"other{number}.cpp": sources.text})
    return include / f"other{number}.cpp"


def _numbers(kernels: Sequence[KernelName], expressions: Sequence[str]) -> dict[str, int]:
    """Return a number for each kernel that can be started: no templates, but their instances."""
    names = [kernel.name for kernel in kernels if not kernel.template]
    wanted = [e for e in expressions if e not in names]
    return {name: number for number, name in enumerate(dict.fromkeys([*names, *wanted]))}


def _entries(numbers: Mapping[str, int], plain: Mapping[str, str]) -> str:
    forms = [f"{plain[name]}\n" for name in numbers if name in plain]
    lines = [
        f"KM_EMU_KERNEL({number}, {name}{', km_emu_plain_' + name if name in plain else ''})\n"
        for name, number in numbers.items()
    ]
    return "".join(['#line 1 "plain"\n', *forms, '#line 1 "kernels"\n', *lines])


def _registered(numbers: Mapping[str, int]) -> str:
    """Return what makes a program's kernels known by their addresses."""
    lines = [
        f"static km_emu::Registered km_emu_known_{number}({name}, km_emu::Entry<{name}>::run);\n"
        for name, number in numbers.items()
    ]
    return "".join(['#line 1 "kernels"\n', *lines])


# ----------------------------------------------------------------------------- the runtime


class _Loaded:
    """The runtime of this process; there is one, whatever compiler made it."""

    library: ctypes.CDLL | None = None


def load_runtime(path: Path | None = None) -> ctypes.CDLL:
    """Return the runtime, loaded so that kernels find it; it is compiled at its first use.

    Parameters
    ----------
    path
        Of `build_runtime`, for a process that is to have the one that looks on; a process has one
        of the two.

    Raises
    ------
    ToolchainError
        There is no usable C++ compiler.
    """
    if _Loaded.library is None:
        with _LOCK:
            if _Loaded.library is None:
                _Loaded.library = _open(path or build_runtime(), ctypes.RTLD_GLOBAL)
    return _Loaded.library


def _open(path: Path, mode: int) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), mode=mode)
    except OSError as error:
        raise DeviceError(
            f"the emulator's library cannot be loaded: {error}",
            hint="`kernelmill cache clear` removes it; `kernelmill doctor` checks the compiler",
        ) from error


def build_runtime(*, sanitize: bool = False) -> Path:
    """Compile the runtime, or take it from the cache; returns the path of the library."""
    config = get_config()
    compiler = find_host_compiler(config)
    flags = _SANITIZER_RUNTIME_FLAGS if sanitize else _RUNTIME_FLAGS

    def compile_here(directory: Path) -> Bundle:
        made = compile_shared(
            (HERE / "runtime.cpp").read_text(encoding="utf-8"),
            directory / "runtime.so",
            compiler=compiler,
            march=config.march,
            include_dirs=(HERE,),
            extra=flags,
        )
        image = Image(_TARGET, "so", made.path.read_bytes())
        return Bundle((image,), (EntryPoint("km_emu_launch"),), signature="emulator")

    key = digest(
        kind="emulator",
        sources=emulator_digest(),
        flags=flags,
        toolchain=toolchain_identity(compiler, config.march),
    )
    path = default_cache().get_or_build(key, compile_here).image(_TARGET).path
    assert path is not None, "the cache gives every image a file"
    return path
