"""The data types of the API of `kernels`: metadata, variants, what was loaded. No loader here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kernelmill.package.metadata import Metadata as _Facts
from kernelmill.package.release import Release

if TYPE_CHECKING:
    import os
    from types import ModuleType

    from kernelmill.package.digest import Digest
    from kernelmill.package.metadata import KernelDependency, Provenance

__all__ = [
    "BackendInfo",
    "Benchmark",
    "KernelName",
    "LoadedKernel",
    "Metadata",
    "RepoInfo",
    "VariantAccepted",
    "VariantName",
    "VariantRejected",
]

_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]", re.ASCII)


@dataclass(frozen=True)
class RepoInfo:
    """Where a kernel came from: the repository and the commit."""

    repo_id: str
    revision: str


@dataclass(frozen=True)
class KernelName:
    """A kernel's name, and as Python writes it."""

    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no name of a kernel: lower case, digits, hyphens")

    @property
    def python_name(self) -> str:
        """The name with underscores."""
        return self.name.replace("-", "_")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class BackendInfo:
    """What a variant runs on, and which chips it was compiled for."""

    backend_type: str
    archs: list[str] | None


class Metadata:
    """What `metadata.json` of a variant says; made by `read_from_file` and `from_bytes`."""

    _facts: _Facts

    def __new__(cls, *_: object) -> Self:
        """Refuse to be made directly, as the class of `kernels` does."""
        raise TypeError("metadata is made by Metadata.read_from_file and Metadata.from_bytes")

    @classmethod
    def of(cls, facts: _Facts) -> Metadata:
        """Return the view of metadata that was read already."""
        made = object.__new__(cls)
        made._facts = facts
        return made

    @staticmethod
    def read_from_file(metadata_path: os.PathLike[str] | str) -> Metadata:
        """Read a file.

        Parameters
        ----------
        metadata_path
            A `metadata.json`.

        Raises
        ------
        OSError
            It cannot be read.
        ValueError
            It is no metadata.
        """
        path = Path(metadata_path)
        return Metadata.of(_Facts.parse(path.read_bytes(), place=str(path)))

    @staticmethod
    def from_bytes(bytes: bytes) -> Metadata:  # noqa: A002 - as in `kernels`
        """Read JSON.

        Parameters
        ----------
        bytes
            The text of a `metadata.json`.

        Raises
        ------
        ValueError
            It is no metadata.
        """
        return Metadata.of(_Facts.parse(bytes))

    @property
    def id(self) -> str:
        """What module, library and namespace of operators are called by."""
        return self._facts.id

    @property
    def name(self) -> KernelName:
        """The kernel's name."""
        return KernelName(self._facts.name)

    @property
    def version(self) -> int | None:
        """The major version."""
        return self._facts.version

    @property
    def kernels_minver(self) -> Release | None:
        """The oldest `kernels` that loads it."""
        text = self._facts.kernels_minver
        return None if text is None else Release.parse(text)

    @property
    def license(self) -> str | None:
        """A licence's identifier."""
        return self._facts.license

    @property
    def upstream(self) -> str | None:
        """The project that it was made from."""
        return self._facts.upstream

    @property
    def source(self) -> str | None:
        """Where its sources are."""
        return self._facts.source

    @property
    def python_depends(self) -> list[str]:
        """Python distributions of the curated list."""
        return list(self._facts.python_depends)

    @property
    def kernel_depends(self) -> list[KernelDependency]:
        """Kernels that it loads."""
        return list(self._facts.kernel_depends)

    @property
    def backend(self) -> BackendInfo:
        """What it runs on."""
        archs = self._facts.archs
        return BackendInfo(self._facts.backend, None if archs is None else list(archs))

    @property
    def digest(self) -> Digest | None:
        """The digests of its files."""
        return self._facts.digest

    @property
    def provenance(self) -> Provenance | None:
        """What made it, from which sources."""
        return self._facts.provenance

    def __repr__(self) -> str:
        return f"Metadata({self._facts!r})"


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel that this process has loaded; `repo_info` is None for one of a directory."""

    metadata: Metadata
    module: ModuleType
    repo_info: RepoInfo | None


@dataclass(frozen=True)
class VariantName:
    """A variant, by its name."""

    variant_str: str

    def __str__(self) -> str:
        return self.variant_str


@dataclass(unsafe_hash=True)
class VariantAccepted:
    """A variant that this system loads."""

    variant: VariantName


@dataclass(unsafe_hash=True)
class VariantRejected:
    """A variant that this system does not load, and why."""

    variant: VariantName
    reason: str


class Benchmark:
    """What a kernel's benchmark script derives from.

    A script may define `setup`, `benchmark_<name>`, and `verify_<name>`, which returns what `out`
    must hold. The runner sets `kernel` and `device` before.
    """

    seed: ClassVar[int | None] = None
    device: str = "cpu"

    def __init__(self) -> None:
        self.kernel: Any = None  # Any: a module
        self.out: Any = None  # Any: a tensor

    def setup(self) -> None:
        """Prepare tensors as attributes; does nothing unless it is overridden."""
