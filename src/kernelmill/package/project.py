"""A kernel project on disk: whether the files that its manifest names are there and are its own.

Everything that is wrong is found at once. Compiles nothing; what is wrong in a result is asked in
`check.py`.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from kernelmill.errors import ManifestError, PackageError
from kernelmill.package.archs import Arch
from kernelmill.package.manifest import MANIFEST, Manifest, TorchNoarch, TvmFfi

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["COMPILED", "EXTENSIONS", "Fault", "faults_of", "require_sound"]

# Where the Python sources of a kernel lie, by framework.
EXTENSIONS: Final = {"torch": "torch-ext", "torch-noarch": "torch-ext", "tvm-ffi": "tvm-ffi-ext"}
COMPILED: Final = (".c", ".cc", ".cpp", ".cxx", ".cu", ".hip", ".mm", ".metal", ".sycl")
_GLOB: Final = re.compile(r"[*?\[\]]")
_GFX: Final = re.compile(r"gfx[0-9a-f]{3,5}(:[a-z]+[+-])*", re.ASCII)
# Chips that NVIDIA has named, those before Turing for the toolkits that still serve them.
_CHIPS: Final = (
    (5, 0), (5, 2), (5, 3), (6, 0), (6, 1), (6, 2), (7, 0), (7, 2), (7, 5), (8, 0), (8, 6), (8, 7),
    (8, 8), (8, 9), (9, 0), (10, 0), (10, 1), (10, 3), (11, 0), (12, 0), (12, 1),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a project: the key of the manifest, what, and what helps."""

    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"`{self.key}`: {self.message}"


def require_sound(root: Path, manifest: Manifest, name: str = MANIFEST) -> None:
    """Make sure that a project can be built; `name` is that of the manifest's file.

    Raises
    ------
    ManifestError
        Files that the manifest names cannot be used, or it contradicts itself; names everything.
    """
    faults = faults_of(root, manifest)
    if not faults:
        return
    hints = dict.fromkeys(fault.hint for fault in faults if fault.hint)
    lines = [f"  {fault}" for fault in faults]
    count = f"{len(faults)} things are" if len(faults) > 1 else "something is"
    raise ManifestError(
        "\n".join([f"{root / name}: {count} wrong", *lines]),
        path=faults[0].key,
        hint="; ".join(hints),
    )


def faults_of(root: Path, manifest: Manifest) -> tuple[Fault, ...]:
    """Return everything that is wrong with a project, in the order of its manifest."""
    return (
        *_general(manifest),
        *_package(root, manifest),
        *_files(root, manifest),
        *_twice(manifest),
        *_archs(manifest),
    )


# ----------------------------------------------------------------------------- names


def _general(manifest: Manifest) -> Iterator[Fault]:
    backends = manifest.general.backends
    if not backends:
        yield Fault("general.backends", "it is empty, so there is nothing to build")
    for name, count in Counter(backends).items():
        if count > 1:
            yield Fault("general.backends", f"{name} stands there {count} times")
    names = Counter(kernel.name.replace("-", "_") for kernel in manifest.kernels)
    for name, count in names.items():
        if count > 1:
            yield Fault(f"kernel.{name}", f"{count} sections have this name but for dashes")
    for kernel in manifest.kernels:
        if kernel.backend not in backends:
            yield Fault(
                f"kernel.{kernel.name}.backend",
                f"{kernel.backend} is not among `general.backends`, so it would never be built",
            )


def _package(root: Path, manifest: Manifest) -> Iterator[Fault]:
    general = manifest.general
    start = f"{EXTENSIONS[manifest.framework_name]}/{general.python_name}/__init__.py"
    if not (root / start).is_file():
        yield Fault("general.name", f"the Python side is missing: {start}")
    elif not _is_inside(root, root / start):
        yield Fault("general.name", f"{start} leads out of the project")


# ----------------------------------------------------------------------------- files


def _files(root: Path, manifest: Manifest) -> Iterator[Fault]:
    for key, paths in _sources(manifest):
        for index, path in enumerate(paths):
            message, hint = _file(root, path)
            if message:
                yield Fault(f"{key}[{index}]", message, hint)
    for key, paths in _includes(manifest):
        for index, path in enumerate(paths):
            message = _directory(root, path)
            if message:
                yield Fault(f"{key}[{index}]", message)


def _sources(manifest: Manifest) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not isinstance(manifest.framework, TorchNoarch):
        yield f"{manifest.framework_name}.src", manifest.framework.src
    for kernel in manifest.kernels:
        yield f"kernel.{kernel.name}.src", kernel.src


def _includes(manifest: Manifest) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not isinstance(manifest.framework, TorchNoarch):
        yield f"{manifest.framework_name}.include", manifest.framework.include or ()
    for kernel in manifest.kernels:
        yield f"kernel.{kernel.name}.include", kernel.include or ()


def _file(root: Path, path: str) -> tuple[str, str]:
    """Return what is wrong with a source, and a hint; empty texts where it can be read."""
    if _GLOB.search(path) and not os.path.lexists(root / path):
        return f"{path!r} is a pattern", "each source is named: a pattern would hide a missing file"
    outside = _outside(root, path)
    if outside:
        return outside, ""
    full = root / path
    if full.is_symlink() and not full.exists():
        return f"{path!r} is a link to nothing", ""
    if not full.exists():
        return f"{path!r} is missing{_nearby(full)}", ""
    if not full.is_file():
        return f"{path!r} is no file", ""
    return "", ""


def _directory(root: Path, path: str) -> str:
    outside = _outside(root, path)
    if outside:
        return outside
    return "" if (root / path).is_dir() else f"{path!r} is no directory of the project"


def _outside(root: Path, path: str) -> str:
    pure = PurePosixPath(path)
    if not path or "\0" in path:
        return f"{path!r} is no path"
    if pure.is_absolute():
        return f"{path!r} is absolute; sources are named from the directory of build.toml"
    if not _is_inside(root, root / path):
        linked = ".." not in pure.parts
        return f"{path!r} {'is a link that leads' if linked else 'lies'} out of the project"
    return ""


def _is_inside(root: Path, path: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # links in a circle
        return False


def _nearby(path: Path) -> str:
    """Name a file that is called nearly so: but for upper case, the ending or a few letters."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return ""
    for name in names:
        same = name.lower() == path.name.lower()
        if same or Path(name).stem == path.stem:
            return f"; {name} is there"
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
    return f"; {close[0]} is there" if close else ""


def _twice(manifest: Manifest) -> Iterator[Fault]:
    """Find sources that would be compiled twice into one library."""
    for backend in dict.fromkeys(manifest.general.backends):
        seen: dict[str, str] = {}
        for key, paths in _compiled_for(manifest, backend):
            for path in map(os.path.normpath, paths):
                before = seen.get(path, "")
                # A source of several sections is compiled once, for all that they ask for.
                joined = (
                    before != key and key.startswith("kernel.") and before.startswith("kernel.")
                )
                if before and not joined:
                    place = "twice there" if before == key else f"in `{before}` too"
                    yield Fault(key, f"{path!r} stands {place}, so {backend} would link it twice")
                seen[path] = key


def _compiled_for(manifest: Manifest, backend: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    kernels = {f"kernel.{kernel.name}.src" for kernel in manifest.kernels_of(backend)}
    binding = f"{manifest.framework_name}.src"
    for key, paths in _sources(manifest):
        if key in kernels or key == binding:
            yield key, tuple(path for path in paths if path.endswith(COMPILED))


# ----------------------------------------------------------------------------- architectures


def _archs(manifest: Manifest) -> Iterator[Fault]:
    framework = manifest.framework
    if isinstance(framework, TorchNoarch):
        yield from _cuda(framework.cuda_capabilities, "torch-noarch.cuda_capabilities")
        yield from _rocm(framework.rocm_archs, "torch-noarch.rocm_archs")
    for kernel in manifest.kernels:
        yield from _cuda(kernel.cuda_capabilities, f"kernel.{kernel.name}.cuda-capabilities")
        yield from _rocm(kernel.rocm_archs, f"kernel.{kernel.name}.rocm-archs")
        built = kernel.backend in ("cpu", "cuda")  # others are refused before they are compiled
        if built and isinstance(framework, TvmFfi) and "torch" in kernel.depends:
            yield Fault(
                f"kernel.{kernel.name}.depends",
                "torch is named, but [tvm-ffi] builds without torch's headers",
            )


def _cuda(capabilities: Iterable[str] | None, key: str) -> Iterator[Fault]:
    known = ", ".join(f"{major}.{minor}" for major, minor in _CHIPS)
    for text in capabilities or ():
        try:
            arch = Arch.parse(text)
        except PackageError as error:
            yield Fault(key, error.message, error.hint)
            continue
        # A minor number that is not known yet fits nothing, or what it is above; no error.
        if arch.major not in {major for major, _ in _CHIPS}:
            yield Fault(key, f"no chip has compute capability {text}", f"known are {known}")


def _rocm(archs: Iterable[str] | None, key: str) -> Iterator[Fault]:
    for text in archs or ():
        if not _GFX.fullmatch(text):
            yield Fault(key, f"{text!r} is no architecture of ROCm", "they are written gfx942")
