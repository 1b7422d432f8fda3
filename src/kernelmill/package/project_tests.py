"""`kernelmill test`: a project's Python tests against what was built, and its CUDA programs.

`tests/*.py` run under pytest with the variant for this machine importable by the kernel's name.
`tests/*.cu` are programs with a `main`, linked with the sources of the CUDA kernels; where there is
no GPU the emulator runs them. What nothing here can run, the CUDA side of a binding without a
GPU, is said.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.config import child_environment
from kernelmill.errors import MissingExtraError, PackageError, ToolchainError
from kernelmill.package.choice import local_variant
from kernelmill.package.frameworks import kind_of
from kernelmill.package.manifest import TorchNoarch
from kernelmill.package.matrix import machine_entries
from kernelmill.package.metadata import read_metadata
from kernelmill.runtime.emulator import Sanitizer, run_program
from kernelmill.toolchain.nvrtc import CudaOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.package.manifest import Manifest
    from kernelmill.package.matrix import Project

__all__ = [
    "Outcome",
    "Program",
    "programs_of",
    "run_programs",
    "run_python",
    "untested",
    "variant_for",
]

_SECONDS: Final = 600.0
_NO_TESTS: Final = 5
_HOST: Final = (".c", ".cc", ".cpp", ".cxx")


@dataclass(frozen=True, slots=True)
class Program:
    """A CUDA program of the tests and what is compiled with it."""

    path: Path
    others: tuple[Path, ...]
    include: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one program, or all Python tests, ended; `on` is the device, `said` what it wrote."""

    name: str
    on: str
    passed: bool
    said: str = ""


def variant_for(project: Project) -> Path:
    """Return the built variant that this machine loads.

    Raises
    ------
    PackageError
        Nothing is built, or nothing for this machine, or it is of another version.
    """
    if not any((project.root / "build").glob("[!.]*/")):
        raise PackageError(f"{project.name} is not built yet", hint="`kernelmill build` makes it")
    try:
        variant = local_variant(project.root / "build")
    except PackageError as error:
        hint = _install_hint(project) or "`kernelmill build` makes it"
        raise PackageError(error.message, hint=hint) from None
    metadata, general = read_metadata(variant), project.manifest.general
    if (metadata.name, metadata.version) != (general.name, general.version):
        raise PackageError(
            f"{variant.name} is {metadata.name} {metadata.version}; "
            f"the project is {general.name} {general.version}",
            hint="`kernelmill build` makes it anew",
        )
    return variant


def _install_hint(project: Project) -> str:
    """Say what is missing where what this machine can build is built and cannot be loaded."""
    for entry in machine_entries(project):
        if (project.root / "build" / str(entry.variant)).is_dir():
            name = "apache-tvm-ffi" if kind_of(entry.variant) == "tvm-ffi" else "torch"
            return f"`pip install {name}` brings what it needs; `kernelmill build` made it"
    return ""


def untested(project: Project, variant: Path, *, gpu: bool) -> list[str]:
    """Say which parts of the project no test can reach on this machine."""
    backends = [b for b in project.manifest.general.backends if b != read_metadata(variant).backend]
    found = []
    why = "this torch is not for it" if gpu else "no GPU"
    if "cuda" in backends and isinstance(project.manifest.framework, TorchNoarch):
        found.append(f"what it does on a GPU was not run: {why}")
    elif "cuda" in backends:
        programs = programs_of(project)
        ran = (
            "its device code ran in tests/*.cu"
            if programs
            else "no tests/*.cu runs its device code"
        )
        found.append(f"the CUDA binding was not run: {why}; {ran}")
    others = [backend for backend in backends if backend not in ("cpu", "cuda")]
    if others:
        found.append(f"nothing here runs {', '.join(others)}")
    return found


# ----------------------------------------------------------------------------- Python


def run_python(project: Project, variant: Path, arguments: Sequence[str] = ()) -> Outcome | None:
    """Run the tests in Python; None where the project has none.

    What pytest writes goes where this process writes.

    Raises
    ------
    MissingExtraError
        pytest is not installed.
    """
    tests = project.root / "tests"
    if not any(tests.glob("**/test_*.py")) and not any(tests.glob("**/*_test.py")):
        return None
    if importlib.util.find_spec("pytest") is None:
        raise MissingExtraError("the tests need pytest", hint="pip install pytest")
    command = [sys.executable, "-B", "-m", "pytest", "-p", "kernelmill.package.pytest_kernel"]
    # The cache of pytest would be a file of the project that nobody made on purpose.
    command += ["-p", "no:cacheprovider", "--kernel-variant", str(variant), *arguments]
    if not any(_is_selection(argument) for argument in arguments):
        command.append("tests")
    done = subprocess.run(command, cwd=project.root, check=False, env=child_environment())
    passed = done.returncode == 0 or (not arguments and done.returncode == _NO_TESTS)
    return Outcome("tests in Python", variant.name, passed, f"pytest ended with {done.returncode}")


def _is_selection(argument: str) -> bool:
    return not argument.startswith("-") and (argument.startswith("tests") or ".py" in argument)


# ----------------------------------------------------------------------------- CUDA programs


def programs_of(project: Project) -> tuple[Program, ...]:
    """Return the CUDA programs of the tests, each with the sources of the project's kernels."""
    others: dict[Path, None] = {}
    include: dict[Path, None] = {project.root / "csrc": None, project.root: None}
    for _, manifest in project.manifests:
        others |= dict.fromkeys(_sources(project.root, manifest))
        include |= dict.fromkeys(_include(project.root, manifest))
    folders = tuple(folder for folder in include if folder.is_dir())
    return tuple(
        Program(path, tuple(others), folders)
        for path in sorted((project.root / "tests").glob("*.cu"))
    )


def _sources(root: Path, manifest: Manifest) -> list[Path]:
    """Return what the kernels compile, for CUDA and else for the processor; each file once."""
    kernels = [*manifest.kernels_of("cuda"), *manifest.kernels_of("cpu")]
    names = dict.fromkeys(name for kernel in kernels for name in kernel.src)
    return [root / name for name in names if Path(name).suffix in (*_HOST, ".cu")]


def _include(root: Path, manifest: Manifest) -> list[Path]:
    kernels = manifest.kernels_of("cuda")
    return [root / folder for kernel in kernels for folder in kernel.include or ()]


def run_programs(project: Project, *, gpu: bool, sanitize: bool = False) -> list[Outcome]:
    """Run the CUDA programs of the tests, on the GPU or on the emulator.

    `sanitize` looks for races, bounds and deadlocks, which only the emulator does.
    """
    emulated = sanitize or not gpu
    return [
        _emulated(program, sanitize=sanitize) if emulated else _on_gpu(program)
        for program in programs_of(project)
    ]


def _emulated(program: Program, *, sanitize: bool) -> Outcome:
    on = "the emulator, with the sanitizer" if sanitize else "the emulator"
    try:
        done = run_program(
            program.path,
            others=program.others,
            options=CudaOptions(include_dirs=tuple(map(str, program.include))),
            capture=True,
            timeout=_SECONDS,
            sanitizer=Sanitizer() if sanitize else None,
        )
    except subprocess.TimeoutExpired:
        return Outcome(program.path.name, on, passed=False, said=f"no end within {_SECONDS:.0f} s")
    reports = "".join(f"{report}\n" for report in done.reports)
    passed = done.returncode == 0 and not done.reports
    return Outcome(program.path.name, on, passed, done.stdout + done.stderr + reports)


def _on_gpu(program: Program) -> Outcome:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise ToolchainError(
            f"{program.path.name} needs nvcc to run on the GPU",
            hint="put CUDA's bin directory on PATH, or let the emulator run it: --emulator",
        )
    with tempfile.TemporaryDirectory(prefix="kernelmill-") as place:
        binary = Path(place) / "program"
        words = [nvcc, "-std=c++17", "-O2", "-arch=native", str(program.path)]
        words += [*map(str, program.others), *(f"-I{folder}" for folder in program.include)]
        made = _run([*words, "-o", str(binary)])
        if made.returncode:
            return Outcome(program.path.name, "the GPU", passed=False, said=made.stdout)
        done = _run([str(binary)])
    return Outcome(program.path.name, "the GPU", done.returncode == 0, done.stdout)


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_SECONDS,
        check=False,
        env=child_environment(),
    )
