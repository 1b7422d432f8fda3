"""What a `build.toml` says: editions 5 and 4, read strictly into frozen data. Looks at no sources.

Edition 4 is a file without `general.edition`; older forms are brought here by `migrate.py`, and
whether the files it names can be built is asked in `project.py`.
"""

from __future__ import annotations

import re
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import ManifestError
from kernelmill.package.manifest_readers import (
    Key,
    each,
    kind_of,
    member,
    read_git_address,
    read_name,
    read_release,
    read_table,
    read_text,
    read_whole,
    table_of,
    texts,
    unknown_key,
    wrong,
)
from kernelmill.package.metadata import BACKENDS, KernelDependency

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from kernelmill.package.release import Release

__all__ = [
    "KERNEL_BACKENDS",
    "LARGEST",
    "MANIFEST",
    "BackendGeneral",
    "Framework",
    "General",
    "Hub",
    "Kernel",
    "Manifest",
    "Torch",
    "TorchNoarch",
    "TvmFfi",
    "manifest_of",
    "parse_manifest",
    "parse_toml",
    "read_manifest",
    "read_toml",
]

MANIFEST: Final = "build.toml"
LARGEST: Final = 1 << 20
_MOST_DOTS: Final = 1000
KERNEL_BACKENDS: Final = ("cpu", "cuda", "metal", "rocm", "xpu")
LIBRARIES: Final = (
    "cutlass_2_10", "cutlass_3_5", "cutlass_3_6", "cutlass_3_8", "cutlass_3_9", "cutlass_4_0",
    "cutlass_4_4", "cutlass_4_5", "sycl_tla", "metal-cpp", "torch",
)  # fmt: skip
EDITION: Final = 5
_LEGACY: Final = 4


# ----------------------------------------------------------------------------- what it holds


@dataclass(frozen=True, slots=True)
class BackendGeneral:
    """`[general.cuda]`, `.neuron`, `.tpu`, `.xpu`; versions are of CUDA's toolkit."""

    minver: Release | None = None
    maxver: Release | None = None
    kernel_depends: tuple[KernelDependency, ...] = ()
    python_depends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hub:
    """Where the kernel is published."""

    repo_id: str | None = None
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class General:
    """`[general]`: who the kernel is, and for which backends."""

    name: str
    version: int
    license: str
    backends: tuple[str, ...]
    edition: int = EDITION
    upstream: str | None = None
    source: str | None = None
    hub: Hub | None = None
    kernel_depends: tuple[KernelDependency, ...] = ()
    python_depends: tuple[str, ...] = ()
    cuda: BackendGeneral | None = None
    neuron: BackendGeneral | None = None
    tpu: BackendGeneral | None = None
    xpu: BackendGeneral | None = None

    @property
    def python_name(self) -> str:
        """The name as Python can import it."""
        return self.name.replace("-", "_")


@dataclass(frozen=True, slots=True)
class Torch:
    """`[torch]`: a binding for torch.

    `stable_abi` holds pairs of a backend, "*" for every one, and the version it is built for.
    """

    src: tuple[str, ...] = ()
    include: tuple[str, ...] | None = None
    minver: Release | None = None
    maxver: Release | None = None
    pyext: tuple[str, ...] | None = None
    cxx_flags: tuple[str, ...] = ()
    stable_abi: tuple[tuple[str, Release], ...] = ()

    def stable_abi_of(self, backend: str) -> Release | None:
        """Return the version of the stable ABI that a backend is built for, None for classic."""
        versions = dict(self.stable_abi)
        return versions.get(backend, versions.get("*"))


@dataclass(frozen=True, slots=True)
class TorchNoarch:
    """`[torch-noarch]`: Python alone, such as Triton; architectures go to the metadata."""

    pyext: tuple[str, ...] | None = None
    cuda_capabilities: tuple[str, ...] | None = None
    rocm_archs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TvmFfi:
    """`[tvm-ffi]`: a binding for every framework that speaks DLPack."""

    src: tuple[str, ...]
    include: tuple[str, ...] | None = None
    pyext: tuple[str, ...] | None = None
    cxx_flags: tuple[str, ...] = ()


Framework = Torch | TorchNoarch | TvmFfi


@dataclass(frozen=True, slots=True)
class Kernel:
    """`[kernel.NAME]`: sources of one backend. None: as the builder chooses."""

    name: str
    backend: str
    depends: tuple[str, ...]
    src: tuple[str, ...]
    include: tuple[str, ...] | None = None
    cxx_flags: tuple[str, ...] = ()
    cuda_capabilities: tuple[str, ...] | None = None
    cuda_flags: tuple[str, ...] = ()
    cuda_minver: Release | None = None
    rocm_archs: tuple[str, ...] | None = None
    hip_flags: tuple[str, ...] = ()
    sycl_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole `build.toml`; kernels stand in the order of the file.

    Examples
    --------
    >>> from kernelmill.package.manifest import parse_manifest
    >>> found = parse_manifest('''
    ... [general]
    ... name = "relu"
    ... version = 1
    ... edition = 5
    ... license = "Apache-2.0"
    ... backends = ["cpu"]
    ... [torch]
    ... src = ["torch-ext/torch_binding.cpp"]
    ... stable-abi = "2.10"
    ... ''')
    >>> found.general.name, str(found.framework.stable_abi_of("cpu"))
    ('relu', '2.10')
    """

    general: General
    framework: Framework
    kernels: tuple[Kernel, ...] = ()

    @property
    def framework_name(self) -> str:
        """The section that says how the kernel is loaded."""
        return next(name for name, make in _FRAMEWORKS.items() if isinstance(self.framework, make))

    def kernels_of(self, backend: str) -> tuple[Kernel, ...]:
        """Return the sections that a backend compiles."""
        return tuple(kernel for kernel in self.kernels if kernel.backend == backend)

    def kernel_depends(self, backend: str) -> tuple[KernelDependency, ...]:
        """Return the kernels that this one needs on a backend: general ones first."""
        own = self._own(backend)
        return self.general.kernel_depends + (own.kernel_depends if own else ())

    def python_depends(self, backend: str) -> tuple[str, ...]:
        """Return the Python packages that it needs on a backend: general ones first."""
        own = self._own(backend)
        return self.general.python_depends + (own.python_depends if own else ())

    def _own(self, backend: str) -> BackendGeneral | None:
        found = getattr(self.general, backend, None)
        return found if isinstance(found, BackendGeneral) else None


_FRAMEWORKS: Final = {"torch": Torch, "torch-noarch": TorchNoarch, "tvm-ffi": TvmFfi}


# ----------------------------------------------------------------------------- what keys there are


def _read_dependency(value: object, path: str) -> KernelDependency:
    keys = (
        Key("repo-id", read_text, required=True),
        Key("version", read_whole),
        Key("revision", read_text),
    )
    found: dict[str, Any] = read_table(value, path, keys)  # Any: the fields of the dataclass
    if ("version" in found) == ("revision" in found):
        both = "version" in found
        raise ManifestError(
            f"build.toml: `{path}` {'has both' if both else 'needs'} `version` "
            f"{'and' if both else 'or'} `revision`{'; one of them is enough' if both else ''}",
            path=path,
        )
    return KernelDependency(**found)


def _read_stable_abi(value: object, path: str) -> tuple[tuple[str, Release], ...]:
    if isinstance(value, dict):
        found = read_table(value, path, [Key(name, read_release) for name in BACKENDS])
        return tuple((name, found[name]) for name in BACKENDS if name in found)  # type: ignore[misc]
    return (("*", read_release(value, path)),)


def _read_stable_abi_4(value: object, path: str) -> tuple[tuple[str, Release], ...]:
    return (("*", read_release(value, path)),)


def _read_edition(value: object, path: str) -> int:
    if value != EDITION or type(value) is not int:
        raise wrong(path, f"{EDITION}, the newest that is known", value)
    return EDITION


_DEPENDS: Final = Key("kernel-depends", each(_read_dependency))
_PYTHON: Final = Key("python-depends", texts)
_CUDA_RANGE: Final = (Key("minver", read_release), Key("maxver", read_release))
_HUB: Final = table_of((Key("repo-id", read_text), Key("branch", read_text)), Hub)


def _own_table(*keys: Key) -> Any:  # Any: a Reader
    return table_of(keys, BackendGeneral)


_GENERAL_4: Final = (
    Key("name", read_name, required=True),
    Key("version", read_whole, required=True),
    Key("license", read_text, required=True),
    Key("upstream", read_git_address),
    Key("source", read_git_address),
    Key("backends", each(member(*BACKENDS)), required=True),
    Key("cuda", _own_table(*_CUDA_RANGE, _PYTHON)),
    Key("hub", _HUB),
    Key("neuron", _own_table(_PYTHON)),
    _PYTHON,
    Key("xpu", _own_table(_PYTHON)),
)
_GENERAL_5: Final = (
    *(key for key in _GENERAL_4 if key.name not in ("cuda", "neuron", "xpu")),
    Key("edition", _read_edition, required=True),
    _DEPENDS,
    Key("cuda", _own_table(*_CUDA_RANGE, _DEPENDS, _PYTHON)),
    Key("neuron", _own_table(_DEPENDS, _PYTHON)),
    Key("tpu", _own_table(_PYTHON)),
    Key("xpu", _own_table(_DEPENDS, _PYTHON)),
)
_BINDING: Final = (Key("include", texts), Key("pyext", texts), Key("cxx-flags", texts))
_TORCH: Final = (
    Key("src", texts),
    *_BINDING,
    Key("minver", read_release),
    Key("maxver", read_release),
)
_TORCH_5: Final = (*_TORCH, Key("stable-abi", _read_stable_abi))
_TORCH_4: Final = (*_TORCH, Key("stable-abi", _read_stable_abi_4))
_NOARCH: Final = (Key("pyext", texts), Key("cuda_capabilities", texts), Key("rocm_archs", texts))
_TVM_FFI: Final = (Key("src", texts, required=True), *_BINDING)
_SECTIONS: Final[Mapping[int, Mapping[str, Sequence[Key]]]] = {
    5: {"torch": _TORCH_5, "torch-noarch": _NOARCH, "tvm-ffi": _TVM_FFI},
    4: {"torch": _TORCH_4, "torch-noarch": _NOARCH, "tvm-ffi": _TVM_FFI},
}
_GENERAL: Final = {5: _GENERAL_5, 4: _GENERAL_4}
_KERNEL: Final = (
    Key("backend", member(*KERNEL_BACKENDS), required=True),
    Key("depends", each(member(*LIBRARIES)), required=True),
    Key("src", texts, required=True),
    Key("include", texts),
    Key("cxx-flags", texts),
)
_KERNEL_KEYS: Final[Mapping[str, Sequence[Key]]] = {
    "cpu": _KERNEL,
    "metal": _KERNEL,
    "cuda": (
        *_KERNEL,
        Key("cuda-capabilities", texts),
        Key("cuda-flags", texts),
        Key("cuda-minver", read_release),
    ),
    "rocm": (*_KERNEL, Key("rocm-archs", texts), Key("hip-flags", texts)),
    "xpu": (*_KERNEL, Key("sycl-flags", texts)),
}


# ----------------------------------------------------------------------------- reading


def read_manifest(directory: str | os.PathLike[str]) -> Manifest:
    """Read the `build.toml` of a project.

    Raises
    ------
    ManifestError
        It is absent, too large, no TOML, or says what no manifest can say.
    """
    return parse_manifest(read_toml(Path(directory) / MANIFEST))


def read_toml(path: Path) -> str:
    """Read a file of at most 1 MiB of UTF-8; a pipe or a device is refused unread."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise ManifestError(f"{path} is no regular file")
        if state.st_size > LARGEST:
            raise ManifestError(
                f"{path} has {state.st_size:,} bytes; at most {LARGEST:,} are read",
                hint="a manifest names its sources; large data belongs in files of its own",
            )
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ManifestError(
            f"there is no {path.name} in {path.parent}",
            hint="`kernelmill new NAME` makes a project; --project names another directory",
        ) from None
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path} is not UTF-8: byte {error.start} cannot be read") from None
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror}") from error


def parse_manifest(text: str) -> Manifest:
    """Read the text of a manifest of edition 5 or 4.

    Raises
    ------
    ManifestError
        It is no TOML, or says what no manifest can say; names the key.
    """
    return manifest_of(parse_toml(text))


def manifest_of(table: Mapping[str, Any]) -> Manifest:  # Any: what TOML can hold
    """Read a manifest that is a table already.

    Raises
    ------
    ManifestError
        It says what no manifest can say; names the key.
    """
    edition = _edition_of(table)
    try:
        return _read_sections(table, edition)
    except ManifestError as error:
        if edition != _LEGACY:
            raise
        older = "`kernelmill migrate` brings an older form of manifest to edition 5"
        hint = f"{error.hint}; {older}" if error.hint else older
        raise ManifestError(error.message, path=error.path, hint=hint) from None


def _read_sections(table: Mapping[str, object], edition: int) -> Manifest:
    sections = _SECTIONS[edition]
    for name in table:
        if name not in ("general", "kernel", *sections):
            raise unknown_key("", name, ("general", "kernel", *sections))
    general = _read_general(table, edition)
    framework = _read_framework(table, sections)
    return Manifest(general, framework, _read_kernels(table.get("kernel", {})))


def parse_toml(text: str) -> dict[str, Any]:  # Any: what TOML can hold
    """Read TOML, and refuse what would take a parser for ever.

    Raises
    ------
    ManifestError
        It is no TOML, or lies too deep; names line and column.
    """
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise ManifestError(f"build.toml: a line holds more than {_MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(f"build.toml is no TOML: {_first_lower(str(error))}") from None
    except RecursionError:
        raise ManifestError("build.toml: lists or tables lie too deep in each other") from None
    except (
        ValueError
    ) as error:  # a number of more digits than Python converts, a date such as 2026-02-30
        raise ManifestError(f"build.toml is no TOML: {_first_lower(str(error))}") from None


def _first_lower(text: str) -> str:
    return re.sub(r"^[A-Z](?=[a-z])", lambda match: match[0].lower(), text)


def _edition_of(table: Mapping[str, object]) -> int:
    general = table.get("general", {})
    if not isinstance(general, dict):
        raise wrong("general", "a table", general)
    if "edition" not in general:
        return _LEGACY
    return _read_edition(general["edition"], "general.edition")


def _read_general(table: Mapping[str, object], edition: int) -> General:
    if "general" not in table:
        raise ManifestError("build.toml: the section [general] is missing", path="general")
    found: dict[str, Any] = read_table(table["general"], "general", _GENERAL[edition])
    return General(**{"edition": edition} | found)


def _read_framework(
    table: Mapping[str, object], sections: Mapping[str, Sequence[Key]]
) -> Framework:
    present = [name for name in sections if name in table]
    if len(present) != 1:
        found = " and ".join(f"[{name}]" for name in present) or "none"
        raise ManifestError(
            f"build.toml: one of {', '.join(f'[{name}]' for name in sections)} says how the kernel "
            f"is loaded; found {found}"
        )
    (name,) = present
    keys: dict[str, Any] = read_table(table[name], name, sections[name])
    made: Framework = _FRAMEWORKS[name](**keys)
    return made


def _read_kernels(value: object) -> tuple[Kernel, ...]:
    if not isinstance(value, dict):
        raise wrong("kernel", "a table of tables", value)
    return tuple(_read_kernel(name, keys) for name, keys in value.items())


def _read_kernel(name: str, value: object) -> Kernel:
    path = f"kernel.{name}"
    if not isinstance(value, dict):
        raise ManifestError(
            f"build.toml: `{path}` must be a table; found {kind_of(value)}", path=path
        )
    if "backend" not in value:
        raise ManifestError(f"build.toml: `{path}.backend` is missing", path=f"{path}.backend")
    backend = member(*KERNEL_BACKENDS)(value["backend"], f"{path}.backend")
    found: dict[str, Any] = read_table(value, path, _KERNEL_KEYS[backend])
    return Kernel(name=name, **found)
