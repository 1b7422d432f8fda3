"""A new kernel project: its files, from the texts in `scaffold/`. Builds nothing."""

from __future__ import annotations

import json
import keyword
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernelmill.errors import PackageError
from kernelmill.package.manifest import KERNEL_BACKENDS, MANIFEST
from kernelmill.package.manifest_readers import read_name
from kernelmill.package.whole_file import replace_file

__all__ = ["FRAMEWORKS", "Plan", "plan", "write"]

# What binds the kernel: torch's stable ABI, classic torch, tvm-ffi, or Python alone.
FRAMEWORKS: Final = ("torch", "classic", "tvm-ffi", "noarch")
SERVED: Final = ("cpu", "cuda")
_TEXTS: Final = Path(__file__).with_name("scaffold")
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")
# What Python, C++ and torch would misread as the name of a function of the kernel.
_TAKEN: Final = frozenset((
    *keyword.kwlist, "kernels", "main", "np", "numpy", "ops", "pytest", "std", "torch", "tvm_ffi",
    # Words of C++ that are none of Python's.
    "auto", "bool", "case", "catch", "char", "const", "default", "delete", "do", "double", "enum",
    "explicit", "export", "extern", "float", "friend", "goto", "inline", "int", "long", "mutable",
    "namespace", "new", "operator", "private", "protected", "public", "register", "short",
    "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw", "typedef",
    "typename", "union", "unsigned", "using", "virtual", "void", "volatile",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """The files of a new project, by path from its directory, in the order of their names."""

    name: str
    files: tuple[tuple[str, str], ...]


def plan(
    name: str,
    *,
    framework: str = "torch",
    backends: tuple[str, ...] = SERVED,
    licence: str = "Apache-2.0",
) -> Plan:
    """Return the files of a new project; nothing is written.

    Raises
    ------
    PackageError, ManifestError
        The name cannot be that of a kernel, or nothing is known of a backend.

    Examples
    --------
    >>> from kernelmill.package.scaffold import plan
    >>> made = plan("img2gray", backends=("cpu",))
    >>> "torch-ext/img2gray/__init__.py" in dict(made.files)
    True
    """
    read_name(name, "general.name")
    if name.replace("-", "_") in _TAKEN:
        raise PackageError(
            f"{name} is a word of Python or C++, or the name of a module they need",
            hint=f"another name will do, such as {name}-kernel",
        )
    unknown = [backend for backend in backends if backend not in KERNEL_BACKENDS]
    if unknown or not backends:
        raise PackageError(
            f"backends of a kernel are {', '.join(KERNEL_BACKENDS)}; "
            f"asked for {', '.join(unknown) or 'none'}",
            hint="separate them by commas: --backends cpu,cuda",
        )
    python = name.replace("-", "_")
    chosen = tuple(dict.fromkeys(backends))
    words = {
        "name": name,
        "python_name": python,
        "license": licence,
        "backends": json.dumps(list(chosen)),
        "depends": "[]" if framework == "tvm-ffi" else '["torch"]',
        "needs": "apache-tvm-ffi numpy" if framework == "tvm-ffi" else "torch",
    }
    words["kernels"] = _kernels(framework, chosen, words)
    words["rows"] = _rows(framework, chosen, python)
    files = _files(framework, chosen, python, words)
    return Plan(name, tuple(sorted(files.items())))


def write(made: Plan, directory: Path) -> None:
    """Write a project into a directory that is absent or empty.

    Raises
    ------
    PackageError
        Something is there already.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise PackageError(
            f"{directory} is there already, and not empty",
            hint="give another directory with --directory, or remove this one",
        )
    # The manifest comes last: without it, what an interrupt left behind is no project.
    for path, text in sorted(made.files, key=lambda file: file[0] == MANIFEST):
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, text)


def _text(name: str, words: dict[str, str]) -> str:
    text = (_TEXTS / f"{name}.in").read_text(encoding="utf-8")
    return _PLACE.sub(lambda match: words[match[1]], text)


def _side(framework: str) -> str:
    return "tvm-ffi" if framework == "tvm-ffi" else "torch"


def _kernels(framework: str, backends: tuple[str, ...], words: dict[str, str]) -> str:
    """Return the sections of the backends; those that are not served get one to be filled in."""
    if framework == "noarch":
        return ""
    parts = []
    for backend in backends:
        if backend in SERVED:
            parts.append(_text(f"kernel.{backend}.toml", words))
        else:
            head = f"[kernel.{words['python_name']}_{backend}]"
            keys = f'backend = "{backend}"\ndepends = {words["depends"]}\nsrc = []'
            parts.append(f"\n# Sources for {backend} belong here.\n{head}\n{keys}\n")
    return "".join(parts).rstrip("\n")


def _rows(framework: str, backends: tuple[str, ...], python: str) -> str:
    folder = f"{_side(framework)}-ext"
    rows = [] if framework == "noarch" else ["| `csrc/` | the kernel, which knows no framework |"]
    rows.append(f"| `{folder}/{python}/` | what `import` sees: checks and allocation |")
    if framework != "noarch":
        rows.insert(1, f"| `{folder}/binding.cpp` | the operator: types, devices, registration |")
        if "cuda" in backends:
            rows.append("| `tests/on_device.cu` | the kernel without Python |")
    return "".join(f"{row}\n" for row in rows)


def _files(
    framework: str, backends: tuple[str, ...], python: str, words: dict[str, str]
) -> dict[str, str]:
    side, machine = _side(framework), framework != "noarch"
    folder = f"{side}-ext"
    init = framework if framework in ("tvm-ffi", "noarch") else "torch"
    sources = {
        MANIFEST: f"build.{framework}.toml",
        "pyproject.toml": "pyproject.toml",
        "README.md": "readme.md",
        ".gitignore": "gitignore",
        ".github/workflows/kernel.yml": "workflow.yml",
        "sanity.py": f"sanity.{side}.py",
        f"{folder}/{python}/__init__.py": f"init.{init}.py",
        f"benchmarks/benchmark_{python}.py": f"benchmark.{side}.py",
    }
    if machine:
        sources |= {
            f"csrc/{python}.h": "kernel.h",
            f"csrc/{python}_cpu.cpp": "kernel_cpu.cpp",
            f"{folder}/binding.cpp": f"binding.{framework}.cpp",
        }
    if machine and "cuda" in backends:
        sources |= {f"csrc/{python}.cu": "kernel.cu", "tests/on_device.cu": "on_device.cu"}
    made = {path: _text(source, words) for path, source in sources.items()}
    made[f"tests/test_{python}.py"] = _test(framework, words)
    return made


def _test(framework: str, words: dict[str, str]) -> str:
    text = _text(f"test.{_side(framework)}.py", words)
    more = {"torch": "torch", "classic": "torch", "noarch": "noarch"}.get(framework)
    return text + _text(f"test.{more}.opcheck.py", words) if more else text
