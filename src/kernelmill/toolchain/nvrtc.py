"""CUDA C++ to cubin, PTX or LTO-IR by NVRTC, with no driver and no GPU; results are cached.

What the text says is not decided here. Linking is in `nvjitlink.py`, finding the libraries in
`nvidia.py`; loading an image on a device is the business of `runtime`.

cuda.bindings is used, not cuda.core: without a driver that one cannot make PTX, and it hangs where
an image is printed twice.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from functools import cache as once
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from kernelmill import events
from kernelmill.cache import Bundle, EntryPoint, Image, default_cache, digest
from kernelmill.config import get_config
from kernelmill.errors import ArgumentError, CompileError, ToolchainError
from kernelmill.toolchain.diagnostics import bound_log
from kernelmill.toolchain.includes import Included, included
from kernelmill.toolchain.nvidia import bindings, load_library, toolkit_headers
from kernelmill.toolchain.nvrtc_memo import Compiler, keep, recalled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelmill.toolchain.nvidia import NvidiaLibrary

__all__ = [
    "CudaImage",
    "CudaOptions",
    "Output",
    "compile_cuda",
    "nvrtc_version",
    "supported_architectures",
]

Output: TypeAlias = Literal["cubin", "ptx", "ltoir"]
OUTPUTS: Final[tuple[Output, ...]] = get_args(Output)

# The atomic built-ins that the templates stand on came with CUDA 12.8.
OLDEST: Final = (12, 8)
OLDEST_CHIP: Final = 75
_ARCH: Final = re.compile(r"(?P<kind>sm|compute)_(?P<number>\d{2,3})(?P<feature>[af]?)", re.ASCII)
_ERROR: Final = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: "
    r"(?P<message>.*)$",
    re.MULTILINE,
)
_SPARE: Final = 16
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaOptions:
    """How a text is compiled.

    Parameters
    ----------
    contract
        Let a * b + c be one operation with one rounding; off for operators, whose bits are those
        of the CPU.
    lineinfo
        Keep source lines for profilers.
    debug
        Compile for a debugger: unoptimised.
    maxregcount
        The most registers a thread may use.
    defines
        Macros, "NAME" or "NAME=VALUE"; they hold from the first line of the text on, not in the
        compiler's own headers.
    include_dirs
        Directories for `#include`; what is reached there is part of the cache key.
    std
        The C++ standard.
    extra
        Further options of NVRTC, as they are.

    Examples
    --------
    >>> from kernelmill.toolchain.nvrtc import CudaOptions
    >>> CudaOptions(contract=True, maxregcount=64).flags()
    ('-std=c++17', '-fmad=true', '-maxrregcount=64')
    """

    contract: bool = False
    lineinfo: bool = False
    debug: bool = False
    maxregcount: int | None = None
    defines: tuple[str, ...] = ()
    include_dirs: tuple[str | Path, ...] = ()
    std: str = "c++17"
    extra: tuple[str, ...] = ()

    def flags(self) -> tuple[str, ...]:
        """Return the options of NVRTC, without architecture, includes and macros."""
        found = [f"-std={self.std}", f"-fmad={'true' if self.contract else 'false'}"]
        found += ["-lineinfo"] if self.lineinfo else []
        found += ["-G"] if self.debug else []
        found += [] if self.maxregcount is None else [f"-maxrregcount={self.maxregcount}"]
        return (*found, *self.extra)

    def prelude(self) -> str:
        """Return the macros as text to stand before the source."""
        return "".join(f"#define {d.replace('=', ' ', 1)}\n" for d in self.defines)


@dataclass(frozen=True, slots=True)
class CudaImage:
    """What NVRTC or nvJitLink made.

    Parameters
    ----------
    data
        The image; PTX is text without a closing zero.
    arch
        "sm_90", or "compute_90" for PTX that any later chip may take.
    output
        "cubin", "ptx" or "ltoir".
    log
        What the compiler said; empty for an image from the cache.
    seconds
        How long the compiler ran; 0 for an image from the cache.
    name
        What the source is called in messages.
    producer
        Version of the library that made it: LTO-IR is read by nvJitLink of that version or later.
    symbols
        The mangled name of each expression that was asked for.
    cached
        Whether it came from the cache.
    """

    data: bytes = field(repr=False)
    arch: str
    output: Output
    log: str = field(default="", repr=False)
    seconds: float = 0.0
    name: str = ""
    producer: tuple[int, int] = (0, 0)
    symbols: Mapping[str, str] = field(default_factory=dict)
    cached: bool = False


def compile_cuda(
    source: str,
    *,
    arch: str = "sm_90",
    output: Output = "cubin",
    options: CudaOptions | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
    name: str = "kernel.cu",
    expressions: Sequence[str] = (),
    cache: bool = True,
) -> CudaImage:
    r"""Compile CUDA C++; no driver and no GPU are needed.

    Parameters
    ----------
    source
        The text.
    arch
        "sm_75" to what the library knows, with the suffix a or f where it has one; for PTX and
        LTO-IR also "compute_90".
    output
        "cubin" (machine code), "ptx" or "ltoir" (for `link_cuda`).
    options
        By default those of `CudaOptions`.
    headers
        Texts that `#include "name"` finds before any file.
    name
        What the source is called in messages.
    expressions
        Template instances such as "scale<float>", whose mangled names are wanted.
    cache
        Whether to look in the cache of compiled kernels and to keep the result there.

    Raises
    ------
    CompileError
        NVRTC refuses the text or an option; its log is part of the error.
    ToolchainError
        NVRTC is too old.
    MissingExtraError
        NVRTC is not installed; the hint is the `pip install` line.
    ArgumentError
        The architecture or the kind of output does not exist.

    Examples
    --------
    >>> from kernelmill.toolchain.nvrtc import compile_cuda
    >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    >>> compile_cuda(text, arch="sm_90").data[:4]
    b'\x7fELF'
    """
    chosen = options or CudaOptions()
    compiler = _known()
    _check(compiler, arch, output)
    directories = [Path(d) for d in chosen.include_dirs]
    reached = included(source, headers, directories)
    request = _Request(source, arch, output, chosen, reached, name, tuple(expressions), compiler)
    if not cache or reached.computed:
        return _compile(request, headers)
    try:
        return _through_cache(request, headers)
    except _OtherLoadedError:
        _remembered.cache_clear()
        return _through_cache(replace(request, compiler=_asked()), headers)


class _OtherLoadedError(Exception):
    """The library that was loaded is another one than what was known told."""


@dataclass(frozen=True, slots=True)
class _Request:
    """One compile, with everything that decides its result."""

    source: str
    arch: str
    output: Output
    options: CudaOptions
    reached: Included
    name: str
    expressions: tuple[str, ...]
    compiler: Compiler

    def key(self) -> str:
        toolkit = toolkit_headers() if self.reached.outside else None
        return digest(
            kind="cuda",
            text=self.source,
            arch=self.arch,
            output=self.output,
            flags=self.options.flags(),
            defines=self.options.defines,
            headers=self.reached.texts,
            files=self.reached.files,
            toolkit=None if toolkit is None else toolkit.identity,
            name=self.name,
            expressions=self.expressions,
            compiler=("nvrtc", *self.compiler.version, self.compiler.stamps),
        )

    def command(self) -> list[str]:
        """Return the options of NVRTC."""
        found = [f"-arch={self.arch}", *self.options.flags()]
        if self.output == "ltoir":
            found += ["-dlto", "-rdc=true"]
        found += [f"-I{directory}" for directory in self.options.include_dirs]
        toolkit = toolkit_headers() if self.reached.outside or self.reached.computed else None
        return found if toolkit is None else [*found, f"-I{toolkit.path}"]


def _through_cache(request: _Request, headers: Mapping[str, str]) -> CudaImage:
    made: list[CudaImage] = []

    def build(_: Path) -> Bundle:
        if _asked() != request.compiler:
            raise _OtherLoadedError
        image = _compile(request, headers)
        made.append(image)
        entries = [EntryPoint(e, {"symbol": s}) for e, s in image.symbols.items()]
        return Bundle(
            (Image(request.arch, request.output, image.data),),
            tuple(entries),
            signature=request.name,
            source=request.source,
            source_suffix="cu",
        )

    bundle = default_cache().get_or_build(request.key(), build)
    if made:
        image = made[0]
        if events.active:
            size = len(image.data)
            events.emit("compile", request.name, device="cuda", seconds=image.seconds, bytes=size)
        return image
    return CudaImage(
        bundle.image(request.arch).data,
        request.arch,
        request.output,
        name=request.name,
        producer=request.compiler.version,
        symbols={entry.name: str(entry.attributes["symbol"]) for entry in bundle.entries},
        cached=True,
    )


# ----------------------------------------------------------------------------- the library


@once
def nvrtc_version() -> tuple[int, int]:
    """Return the version of NVRTC, such as (13, 0).

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    load_library("nvrtc")
    _, major, minor = bindings("nvrtc").nvrtcVersion()
    return int(major), int(minor)


@once
def supported_architectures() -> tuple[str, ...]:
    """Return the architectures that this NVRTC makes code for, from sm_75 on.

    Examples
    --------
    >>> from kernelmill.toolchain.nvrtc import supported_architectures
    >>> "sm_90" in supported_architectures()
    True
    """
    load_library("nvrtc")
    _, numbers = bindings("nvrtc").nvrtcGetSupportedArchs()
    return tuple(f"sm_{n}" for n in sorted(numbers) if n >= OLDEST_CHIP)


@once
def _remembered(directory: Path) -> Compiler | None:
    return recalled(directory)


def _known() -> Compiler:
    """Return what NVRTC is, without loading it where that is remembered."""
    return _remembered(_memos()) or _asked()


def _memos() -> Path:
    return get_config().cache_dir / "toolchain"


def _asked() -> Compiler:
    """Load NVRTC and ask it; raises ToolchainError where it is too old."""
    library, version = load_library("nvrtc"), nvrtc_version()
    if version < OLDEST:
        raise ToolchainError(
            f"NVRTC {version[0]}.{version[1]} was found in {library.path}; "
            f"needed is {OLDEST[0]}.{OLDEST[1]} or later",
            hint="pip install --upgrade 'kernelmill[cuda12]', or 'kernelmill[cuda13]'",
        )
    return _kept(library, Compiler(version, library.stamps, supported_architectures()), _memos())


@once
def _kept(library: NvidiaLibrary, found: Compiler, directory: Path) -> Compiler:
    keep(directory, library, found)
    return found


def _check(compiler: Compiler, arch: str, output: str) -> None:
    if output not in OUTPUTS:
        raise ArgumentError(f"output {output!r} does not exist; outputs: {', '.join(OUTPUTS)}")
    known = compiler.architectures
    match = _ARCH.fullmatch(arch)
    virtual = match is not None and match["kind"] == "compute" and output != "cubin"
    if (
        match is None
        or f"sm_{match['number']}" not in known
        or not (virtual or match["kind"] == "sm")
    ):
        version = ".".join(map(str, compiler.version))
        raise ArgumentError(
            f"NVRTC {version} makes no {output} for {arch!r}; it knows {', '.join(known)}",
            hint="older chips are not served; newer ones need a newer kernelmill[cuda13]",
        )


# ----------------------------------------------------------------------------- one compile


def _compile(request: _Request, headers: Mapping[str, str]) -> CudaImage:
    load_library("nvrtc")
    nvrtc = bindings("nvrtc")
    prelude = request.options.prelude()
    text = f'{prelude}#line 1 "{request.name}"\n{request.source}' if prelude else request.source
    used = dict(headers) if request.reached.computed else request.reached.texts
    program = _ask(
        nvrtc.nvrtcCreateProgram(
            text.encode(),
            request.name.encode(),
            len(used),
            [body.encode() for body in used.values()],
            [name.encode() for name in used],
        ),
        f"NVRTC did not take {request.name}",
    )
    try:
        for expression in request.expressions:
            _ask(
                nvrtc.nvrtcAddNameExpression(program, expression.encode()),
                f"NVRTC did not take the name {expression!r}",
            )
        command = [option.encode() for option in request.command()]
        start = time.perf_counter()
        (status,) = nvrtc.nvrtcCompileProgram(program, len(command), command)
        seconds = time.perf_counter() - start
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if int(status):
            _refuse(request, status, log)
        return CudaImage(
            _image(nvrtc, program, request.output),
            request.arch,
            request.output,
            bound_log(log.strip()),
            seconds,
            request.name,
            request.compiler.version,
            {e: _lowered(nvrtc, program, e) for e in request.expressions},
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _ask(answer: tuple[Any, ...], failure: str) -> Any:  # Any: what the call returns
    """Return the value of a call of NVRTC, or raise."""
    if int(answer[0]):
        raise CompileError(f"{failure}: {answer[0].name}")
    return answer[1] if len(answer) > 1 else None


def _bytes(size: Any, get: Any, program: Any) -> bytes:  # Any: calls of the bindings
    count = int(_ask(size(program), "NVRTC did not say how long its result is"))
    # NVRTC writes into the object, so it must be nobody else's: the interpreter shares the bytes
    # objects of length 0 and 1, and `b" " * 1` is b" " itself.
    found = bytes(count + _SPARE)
    _ask(get(program, found), "NVRTC did not give its result")
    return found[:count]


def _text(size: Any, get: Any, program: Any) -> str:  # Any: as above
    return _bytes(size, get, program).rstrip(b"\0").decode("utf-8", "replace")


def _image(nvrtc: Any, program: Any, output: Output) -> bytes:  # Any: as above
    spelling = {"cubin": "CUBIN", "ptx": "PTX", "ltoir": "LTOIR"}[output]
    size, get = (getattr(nvrtc, f"nvrtcGet{spelling}{suffix}") for suffix in ("Size", ""))
    data = _bytes(size, get, program)
    return data.rstrip(b"\0") if output == "ptx" else data


def _lowered(nvrtc: Any, program: Any, expression: str) -> str:  # Any: as above
    found = _ask(
        nvrtc.nvrtcGetLoweredName(program, expression.encode()),
        f"NVRTC has no name for {expression!r}",
    )
    return str(found, "ascii")


def _refuse(request: _Request, status: Any, log: str) -> None:  # Any: a member of an enumeration
    version = "NVRTC " + ".".join(map(str, request.compiler.version))
    first = _ERROR.search(log)
    if first is not None:
        found = f"{first['file']} line {first['line']}: {first['message'].strip()}"
    else:
        found = log.strip().partition("\n")[0] or str(status.name)
    raise CompileError(
        f"{version} failed on {request.name} for {request.arch}: {found}",
        log=bound_log(log.strip()),
        hint=_hint(log),
    )


def _hint(log: str) -> str:
    if "could not open source file" in log or "cannot open source file" in log:
        return (
            "headers of the CUDA toolkit are in the wheel nvidia-cuda-runtime; name other places "
            "in include_dirs"
        )
    return ""
