"""CUDA 12 objects without an nvcc of CUDA 12: which commands make one. Runs none of them.

The wheels of CUDA 12 hold neither nvcc nor cicc, cudafe++ or fatbinary. NVRTC of CUDA 12 makes the
machine code; the host half goes through those programs of CUDA 13, on the headers of CUDA 12. What
is compiled so must be something that NVRTC takes: host functions are defined inside of
`#ifndef __CUDACC_RTC__`, and no host headers are included but `<cstdint>` and `<cstddef>`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernelmill.package.archs import Arch
    from kernelmill.package.nvcc import Cuda

__all__ = ["HINT", "Command", "commands"]

HINT: Final = (
    "CUDA 12 from wheels compiles device code with NVRTC: put host functions and their headers "
    "inside `#ifndef __CUDACC_RTC__`, or put an nvcc of that version on PATH"
)
HERE: Final = Path(__file__).parent
_STUB_CHIP: Final = "80"
_FILTERED: Final = re.compile(r"(__cudaLaunch\(.*), [0-9]+U\);")
# Options of nvcc that NVRTC has too, or that change nothing there.
_TAKEN: Final = re.compile(
    r"--?(use_fast_math|lineinfo|fmad=\w+|ftz=\w+|prec-div=\w+|prec-sqrt=\w+|maxrregcount=\d+|"
    r"extra-device-vectorization|std=[\w+]+|D\w+(=\S*)?|U\w+|I\S+)"
)
# What nvcc hands to the preprocessor of the host half too.
_SEEN_BY_BOTH: Final = re.compile(r"--?(std=[\w+]+|D\w+(=\S*)?|U\w+|I\S+)")
_DROPPED: Final = re.compile(
    r"--?(expt-relaxed-constexpr|expt-extended-lambda|extended-lambda|O[0-3s]|"
    r"static-global-template-stub=\w+|threads=\d+|t=?\d+|Wno-\S+|Xptxas=?\S*)"
)


@dataclass(frozen=True, slots=True)
class Command:
    """One command, or a change of a file (`edit`) between two commands."""

    words: tuple[str, ...] = ()
    edit: Callable[[], None] | None = None
    device: bool = False


def commands(
    source: str,
    work: Path,
    output: Path,
    *,
    cuda: Cuda,
    host: Sequence[str],
    flags: Sequence[str],
    device_flags: Sequence[str],
    archs: Sequence[Arch],
) -> list[Command]:
    """Return the commands that make `output` from `source`, in order.

    Parameters
    ----------
    source
        Relative to the directory that the commands run in.
    work
        An empty directory for what lies between.
    host, flags
        The host compiler, and its flags: standard, definitions, includes.
    device_flags
        The manifest's flags for nvcc.
    archs
        What to make machine code for.

    Raises
    ------
    PackageError
        A flag is asked for that NVRTC does not have.
    """
    assert cuda.host_tools is not None
    tools = cuda.host_tools.root
    stem = Path(source).stem
    at = {part: str(work / f"{stem}.{part}") for part in _BETWEEN}
    system = [word for path in cuda.system_include for word in ("-isystem", str(path))]
    includes = [*(f"-I{path}" for path in cuda.include), *system]
    flags = [*flags, *(flag for flag in device_flags if _SEEN_BY_BOTH.fullmatch(flag))]
    preprocess = [*host, "-E", "-x", "c++", "-D__CUDACC__", "-D__NVCC__", *flags, *includes]
    preprocess += [*_versions(cuda), "-include", "cuda_runtime.h", "-m64"]
    listed = f"-D__CUDA_ARCH_LIST__={','.join(f'{arch.major}{arch.minor}0' for arch in archs)}"
    # The stub is the same for each chip; this is one that the programs of CUDA 13 know.
    chip = f"-D__CUDA_ARCH__={_STUB_CHIP}0"
    front = _front(source, flags)
    steps = [
        Command((*preprocess, listed, source, "-o", at["cpp4.ii"])),
        Command((
            str(tools / "bin" / "cudafe++"), *front, "--m64", "--parse_templates",
            "--gen_c_file_name", at["cudafe1.cpp"], "--stub_file_name", f"{stem}.cudafe1.stub.c",
            "--gen_module_id_file", "--module_id_file_name", at["module_id"], at["cpp4.ii"],
        )),
        Command((
            *preprocess, listed, chip, "-DCUDA_DOUBLE_MATH_FUNCTIONS", source, "-o", at["cpp1.ii"],
        )),
        # Only its stub is used, which launches the kernels; its PTX is thrown away.
        Command((
            str(tools / "nvvm" / "bin" / "cicc"), *front, "-arch", f"compute_{_STUB_CHIP}", "-m64",
            "--no-version-ident", "-ftz=0", "-prec_div=1", "-prec_sqrt=1", "-fmad=1",
            "--include_file_name", f"{stem}.fatbin.c", "-tused",
            "--module_id_file_name", at["module_id"], "--gen_c_file_name", at["cudafe1.c"],
            "--stub_file_name", at["cudafe1.stub.c"], "--gen_device_file_name", at["cudafe1.gpu"],
            at["cpp1.ii"], "-o", at["unused.ptx"],
        )),
        Command(edit=lambda: _fit_launches(Path(at["cudafe1.stub.c"]))),
    ]  # fmt: skip
    taken = _taken(flags, device_flags)
    steps += [_device(source, work, cuda, name, taken) for name, _ in _images(archs)]
    steps += [
        _fatbinary(tools, work, at, archs),
        Command((
            *host, "-c", "-x", "c++", chip, listed, "-DCUDA_DOUBLE_MATH_FUNCTIONS", "-Wno-psabi",
            *flags, *includes, f"-I{work}", "-m64", at["cudafe1.cpp"], "-o", str(output),
        )),
    ]  # fmt: skip
    return steps


def _versions(cuda: Cuda) -> list[str]:
    """Return the macros by which CUDA's headers know their compiler."""
    major, minor, build = cuda.release.split(".")
    return [
        f"-D__CUDACC_VER_MAJOR__={major}",
        f"-D__CUDACC_VER_MINOR__={minor}",
        f"-D__CUDACC_VER_BUILD__={build}",
        f"-D__CUDA_API_VER_MAJOR__={major}",
        f"-D__CUDA_API_VER_MINOR__={minor}",
        "-D__NVCC_DIAG_PRAGMA_SUPPORT__=1",
    ]


def _front(source: str, flags: Sequence[str]) -> list[str]:
    """Return the flags that cudafe++ and cicc share."""
    standard = [f.rpartition("=")[2] for f in flags if f.startswith(("-std=", "--std="))][-1]
    return [
        f"--{standard}", "--static-host-stub", "--device-hidden-visibility", "--gnu_version=120200",
        "--display_error_number", "--orig_src_file_name", source, "--orig_src_path_name", source,
        "--allow_managed",
    ]  # fmt: skip


def _fatbinary(tools: Path, work: Path, at: Mapping[str, str], archs: Sequence[Arch]) -> Command:
    images = [
        f"--image3=kind={'elf' if name.startswith('sm') else 'ptx'},sm={sm},file={work / name}"
        for name, sm in _images(archs)
    ]
    return Command((
        str(tools / "bin" / "fatbinary"), f"--create={at['fatbin']}", "-64", *images,
        f"--embedded-fatbin={at['fatbin.c']}",
    ))  # fmt: skip


_BETWEEN: Final = (
    "cpp4.ii", "cpp1.ii", "cudafe1.cpp", "cudafe1.c", "cudafe1.gpu", "cudafe1.stub.c", "module_id",
    "unused.ptx", "fatbin", "fatbin.c",
)  # fmt: skip


def _fit_launches(stub: Path) -> None:
    """Take the second argument off `__cudaLaunch`: CUDA 13 has it, the headers of 12 do not."""
    stub.write_text(_FILTERED.sub(r"\1);", stub.read_text()))


def _taken(flags: Sequence[str], device_flags: Sequence[str]) -> list[str]:
    """Return the flags that NVRTC has; others of the host are left out, others of nvcc refused."""
    refused = [f for f in device_flags if not _TAKEN.fullmatch(f) and not _DROPPED.fullmatch(f)]
    if refused:
        raise PackageError(f"cuda-flags {refused[0]!r} is none that NVRTC takes", hint=HINT)
    taken = dict.fromkeys(f for f in (*flags, *device_flags) if _TAKEN.fullmatch(f))
    standards = [flag for flag in taken if flag.lstrip("-").startswith("std=")]
    return [flag for flag in taken if flag not in standards[:-1]]  # the last one counts


def _device(source: str, work: Path, cuda: Cuda, image: str, taken: Sequence[str]) -> Command:
    assert cuda.nvrtc is not None
    paths = (HERE / "nvrtc", *cuda.include, *cuda.system_include)
    program = (sys.executable, "-I", "-S", str(HERE / "nvrtc_child.py"), str(cuda.nvrtc))
    # A header may declare host functions: NVRTC takes them for device functions that nobody calls.
    options = ("-default-device", *taken, *(f"-I{path}" for path in paths))
    words = (*program, source, image, str(work / image), *options)
    return Command(words, device=True)


def _images(archs: Sequence[Arch]) -> list[tuple[str, str]]:
    """Return what the device code is compiled for, as NVRTC names it, with the number alone."""
    made = [(f"sm_{arch.sm}", arch.sm) for arch in archs]
    return made + [(f"compute_{arch.sm}", arch.sm) for arch in archs if arch.ptx]
