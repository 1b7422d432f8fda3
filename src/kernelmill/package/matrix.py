"""Which variants a project has, and which of them can be built. Reads manifests, compiles nothing.

A project is a directory with a `build.toml`, which stays what Hugging Face's tools read. What only
we know stands in `pyproject.toml`::

    [tool.kernelmill]
    version = "1.2.0"                              # the major number is that of build.toml
    manifests = ["build.toml", "build.classic.toml"]   # one framework each, over the same sources
    torch = ["2.11", "2.13"]                       # for classic bindings; of the stable ABI is one
    cuda = ["12.8", "13.0"]
"""

from __future__ import annotations

import platform
import re
import sys
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import ManifestError
from kernelmill.package.headers import TVM_FFI
from kernelmill.package.includes import closure_of
from kernelmill.package.manifest import (
    MANIFEST,
    Manifest,
    Torch,
    TorchNoarch,
    parse_manifest,
    read_toml,
)
from kernelmill.package.release import Release
from kernelmill.package.system import here
from kernelmill.package.variant import Backend, Framework, Variant, decide

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Entry", "Project", "entries", "machine_entries", "read_project"]

_TORCH: Final = ("2.12", "2.13")
_CUDA: Final = ("12.8", "13.0")
_BUILT: Final = ("cpu", "cuda")
# What the other backends are called in Hugging Face's releases, and why they are not built here.
_OTHERS: Final = {
    "rocm": (("rocm71", "rocm72"), "it needs hipcc of ROCm, which no wheel brings"),
    "xpu": (("xpu20253", "xpu20260"), "it needs Intel's icpx of oneAPI"),
    "metal": (("metal",), "it needs Xcode on macOS"),
    "neuron": (("neuron",), "it needs AWS Neuron's compiler"),
    "tpu": (("tpu",), "it needs torch_tpu"),
    "cann": (("cann83",), "it needs Huawei's CANN"),
}
_BY_NVRTC: Final = 12
_TORCH_HEADER: Final = re.compile(r"(?:torch|ATen|c10|tvm)/")
_SEMANTIC: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:[-+.][0-9A-Za-z.+-]+)?", re.ASCII)
_KEYS: Final = ("version", "manifests", "torch", "cuda")


@dataclass(frozen=True, slots=True)
class Project:
    """A directory with manifests: `(file name, manifest)`, the first is `build.toml`.

    `version` is the semantic one, None where `pyproject.toml` names none; `torch` and `cuda` are
    the versions that variants are made for.
    """

    root: Path
    manifests: tuple[tuple[str, Manifest], ...]
    version: str | None = None
    torch: tuple[str, ...] = _TORCH
    cuda: tuple[str, ...] = _CUDA

    @property
    def manifest(self) -> Manifest:
        """What `build.toml` says."""
        return self.manifests[0][1]

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.manifest.general.name


@dataclass(frozen=True, slots=True)
class Entry:
    """A variant of a project; `refusal` says why it cannot be built, None where it can."""

    variant: Variant
    manifest: Manifest
    file: str
    refusal: str | None = None


def read_project(directory: Path) -> Project:
    """Read the manifests of a project and the settings of its `pyproject.toml`.

    Raises
    ------
    ManifestError
        A file is absent or says what it cannot say; a further manifest has another name or version
        than `build.toml`.
    """
    root = directory.resolve()
    settings = _settings(root)
    files = tuple(settings.get("manifests", (MANIFEST,)))
    manifests = tuple((file, _manifest(root, file)) for file in files)
    first = manifests[0][1].general
    for file, manifest in manifests[1:]:
        general = manifest.general
        if (general.name, general.version) != (first.name, first.version):
            raise ManifestError(
                f"{file} is about {general.name} {general.version}; "
                f"{files[0]} is about {first.name} {first.version}"
            )
    version = settings.get("version")
    if version is not None:
        _check_version(version, first.version)
    return Project(
        root,
        manifests,
        version,
        tuple(settings.get("torch", _TORCH)),
        tuple(settings.get("cuda", _CUDA)),
    )


def _manifest(root: Path, file: str) -> Manifest:
    path = root / file
    if path.resolve().parent != root:
        raise ManifestError(f"the manifest {file!r} does not lie in the project's directory")
    return parse_manifest(read_toml(path))


def _settings(root: Path) -> dict[str, Any]:  # Any: each key's own type, checked below
    path = root / "pyproject.toml"
    if not path.exists():
        return {}
    try:
        table = tomllib.loads(read_toml(path))
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(f"pyproject.toml is no TOML: {error}") from None
    found = table.get("tool", {}).get("kernelmill", {})
    for key in _KEYS[1:]:
        if key in found and not _texts(found[key]):
            raise ManifestError(
                f"pyproject.toml: `tool.kernelmill.{key}` must be a list of texts, not empty"
            )
    for key in ("torch", "cuda"):
        for text in found.get(key, ()):
            if not re.fullmatch(r"\d+\.\d+", text):
                raise ManifestError(
                    f"pyproject.toml: `tool.kernelmill.{key}` holds {text!r}; "
                    "versions are written like 2.13"
                )
    return {key: found[key] for key in _KEYS if key in found}


def _texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


def _check_version(version: object, major: int) -> None:
    match = _SEMANTIC.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise ManifestError(
            f"pyproject.toml: `tool.kernelmill.version` is {version!r}; written like 1.2.0"
        )
    if int(match[1]) != major:
        raise ManifestError(
            f"pyproject.toml: version {version} has the major number {match[1]}; "
            f"build.toml has version {major}",
            hint="others see only the whole number: raise both together",
        )


# ----------------------------------------------------------------------------- variants


def entries(project: Project) -> tuple[Entry, ...]:
    """Return all variants of a project for this processor, those that cannot be built too.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from kernelmill.package.matrix import entries, read_project
    >>> text = '''
    ... [general]
    ... name = "relu"
    ... version = 1
    ... edition = 5
    ... license = "Apache-2.0"
    ... backends = ["cpu", "rocm"]
    ... [torch]
    ... stable-abi = "2.10"
    ... '''
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = (pathlib.Path(place) / "build.toml").write_text(text)
    ...     for entry in entries(read_project(pathlib.Path(place))):
    ...         print(str(entry.variant).split("-x86")[0], entry.refusal)
    torch-stable-abi210-cpu None
    torch-stable-abi210-rocm71 it needs hipcc of ROCm, which no wheel brings
    torch-stable-abi210-rocm72 it needs hipcc of ROCm, which no wheel brings
    """
    found: dict[Variant, Entry] = {}
    for file, manifest in project.manifests:
        for backend in manifest.general.backends:
            for entry in _of_backend(project, file, manifest, backend):
                found.setdefault(entry.variant, entry)
    return tuple(found.values())


def _of_backend(project: Project, file: str, manifest: Manifest, backend: str) -> Iterator[Entry]:
    framework = manifest.framework
    if isinstance(framework, TorchNoarch):
        name = "npu" if backend == "cann" else backend
        yield Entry(Variant(Framework("torch"), Backend(name)), manifest, file)
        return
    tags = project.cuda if backend == "cuda" else ("",)
    backends = [Backend(backend, Release.parse(tag) if tag else None) for tag in tags]
    refusal = None
    if backend not in _BUILT:
        names, refusal = _OTHERS[backend]
        backends = [Backend.parse(name) for name in names]
    for made in backends:
        reason = refusal or _cuda_range(manifest, made) or _cuda_12(project, manifest, made)
        for loader in _frameworks(project, manifest, backend):
            yield Entry(Variant(loader, made, _cpu(), _system()), manifest, file, reason)


def _cuda_range(manifest: Manifest, backend: Backend) -> str | None:
    own = manifest.general.cuda if backend.name == "cuda" else None
    version = backend.version
    if own is None or version is None:
        return None
    if own.minver is not None and version < own.minver:
        return f"the manifest asks for CUDA {own.minver} or newer"
    if own.maxver is not None and version > own.maxver:
        return f"the manifest asks for CUDA {own.maxver} or older"
    return None


def _cuda_12(project: Project, manifest: Manifest, backend: Backend) -> str | None:
    """Say why device code cannot go through NVRTC, where no nvcc of CUDA 12 is there."""
    if backend.version is None or backend.name != "cuda" or backend.version.major != _BY_NVRTC:
        return None
    for name, include in _device_sources(manifest):
        path = project.root / name
        folders = [project.root / folder for folder in ("csrc", *include)]
        outside = sorted(closure_of(path, folders).outside) if path.is_file() else []
        found = next(filter(_TORCH_HEADER.match, outside), None)
        if found and not _has_nvcc(backend.version):
            return (
                f"{name} includes {found}, which NVRTC does not take; "
                f"an nvcc {backend.version} on PATH would"
            )
    return None


def _device_sources(manifest: Manifest) -> list[tuple[str, tuple[str, ...]]]:
    """Return the sources of device code, sorted, each with its directories of headers."""
    framework = manifest.framework
    rows = [(kernel.src, kernel.include or ()) for kernel in manifest.kernels_of("cuda")]
    if not isinstance(framework, TorchNoarch):
        rows.append((framework.src, framework.include or ()))
    found = {name: include for src, include in rows for name in src if name.endswith(".cu")}
    return sorted(found.items())


def _has_nvcc(version: Release) -> bool:
    from kernelmill.package.nvcc import nvcc_on_path  # noqa: PLC0415 - asks a program

    found = nvcc_on_path()
    return found is not None and found.release.startswith(f"{version}.")


def _frameworks(project: Project, manifest: Manifest, backend: str) -> Iterator[Framework]:
    framework = manifest.framework
    if not isinstance(framework, Torch):
        major, minor = TVM_FFI.split(".")[:2]
        yield Framework("tvm-ffi", Release.of(int(major), int(minor)))
        return
    stable = framework.stable_abi_of(backend)
    if stable is not None:
        yield Framework("torch-stable-abi", stable)
        return
    tag = "cxx11" if _system() == "linux" else ""
    for version in _torch_versions(project, framework):
        yield Framework("torch", version, tag)


def _torch_versions(project: Project, framework: Torch) -> list[Release]:
    """Return the project's versions in the manifest's range; where there is none, its border."""
    low, high = framework.minver, framework.maxver
    every = [Release.parse(text) for text in project.torch]
    found = [v for v in every if (low is None or v >= low) and (high is None or v <= high)]
    border = low or high
    return found if found or border is None else [Release.of(border.major, border.minor)]


def _cpu() -> str:
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())


def _system() -> str:
    return {"win32": "windows"}.get(sys.platform, sys.platform)


def machine_entries(project: Project) -> tuple[Entry, ...]:
    """Return the variants that this machine would load; without a framework, the CPU's."""
    everything = [entry for entry in entries(project) if entry.refusal is None]
    accepted = {d.variant for d in decide([e.variant for e in everything], here()) if d.accepted}
    loaded = tuple(entry for entry in everything if entry.variant in accepted)
    return loaded or tuple(e for e in everything if e.variant.backend.name == "cpu")
