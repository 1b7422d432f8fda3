"""`metadata.json` of a variant: read, checked, written. Digests are `digest.py`'s, no loading here.

Hugging Face's keys are written as its own tools write them. Whatever only we know stands under the
one key `kernelmill`, since unknown keys are ignored by others: the semantic version, the framework,
how the CUDA code was compiled, what the toolchain was.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from kernelmill.errors import PackageError
from kernelmill.package.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = [
    "BACKENDS",
    "FILE",
    "GitState",
    "KernelDependency",
    "Metadata",
    "Provenance",
    "read_metadata",
]

_T = TypeVar("_T")

FILE: Final = "metadata.json"
BACKENDS: Final = ("cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu")
OURS: Final = "kernelmill"

_NAME: Final = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]", re.ASCII)
_COMMIT: Final = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", re.ASCII)
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
_GIT_URL: Final = re.compile(r"\S+://\S+|\S+@\S+:\S+|[/.]\S*", re.ASCII)
_LARGEST: Final = (1 << 64) - 1
_SIZE_LIMIT: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class GitState:
    """The commit that something was made from, and whether files differed from it."""

    commit: str
    dirty: bool


@dataclass(frozen=True, slots=True)
class Provenance:
    """What made the variant (`builder` is a version) and from which state of its sources."""

    builder: str
    builder_git: GitState | None = None
    kernel: GitState | None = None


@dataclass(frozen=True, slots=True)
class KernelDependency:
    """A kernel that this one loads: a repository, and a version or a revision of it."""

    repo_id: str
    version: int | None = None
    revision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a variant says of itself.

    Parameters
    ----------
    name
        The kernel's name, lower case with hyphens.
    id
        Module, shared library and namespace of operators are called by it.
    version
        The major version, a whole number.
    license, upstream, source
        A licence's identifier; addresses of git repositories.
    backend, archs
        One of `BACKENDS`, and what its code was compiled for (`("8.0", "9.0")`).
    python_depends, kernel_depends
        Packages and kernels that it needs.
    kernels_minver
        The oldest `kernels` that loads it, three numbers.
    digest, provenance
        The digests of its files; what made it.
    kernelmill
        What only we write: `version`, the semantic one, and more.

    Examples
    --------
    >>> from kernelmill.package.metadata import Metadata
    >>> m = Metadata(name="relu", id="_relu_cpu_1", version=1, license="MIT", backend="cpu")
    >>> Metadata.parse(m.text()) == m
    True
    """

    name: str
    id: str
    version: int
    license: str
    backend: str
    archs: tuple[str, ...] | None = None
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDependency, ...] = ()
    upstream: str | None = None
    source: str | None = None
    kernels_minver: str | None = None
    digest: Digest | None = None
    provenance: Provenance | None = None
    kernelmill: Mapping[str, Any] = field(default_factory=dict)  # Any: what JSON can hold

    @property
    def python_name(self) -> str:
        """The name as a Python identifier."""
        return self.name.replace("-", "_")

    @property
    def semantic_version(self) -> str | None:
        """The version with three numbers, where a build of ours wrote one."""
        version = self.kernelmill.get("version")
        return version if isinstance(version, str) else None

    def to_json(self) -> dict[str, Any]:  # Any: as above
        """Return the object that stands in the file; keys without a value are left out."""
        backend: dict[str, Any] = {"type": self.backend}
        if self.archs is not None:
            backend["archs"] = list(self.archs)
        made: dict[str, Any] = {
            "name": self.name,
            "id": self.id,
            "version": self.version,
            "license": self.license,
            "upstream": self.upstream,
            "source": self.source,
            "python-depends": list(self.python_depends),
            "kernel-depends": [_dependency_json(one) for one in self.kernel_depends],
            "kernels-minver": self.kernels_minver,
            "backend": backend,
            "digest": self.digest.to_json() if self.digest else None,
            "provenance": _provenance_json(self.provenance) if self.provenance else None,
            OURS: dict(self.kernelmill) or None,
        }
        return {key: value for key, value in made.items() if value is not None}

    def text(self) -> str:
        """Return the file's text: sorted keys, so that the same facts give the same bytes."""
        return json.dumps(self.to_json(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def parse(cls, text: str | bytes, *, place: str = FILE) -> Metadata:
        """Read the text of a `metadata.json`; unknown keys are ignored.

        Raises
        ------
        PackageError
            It is no JSON, or a key is missing or has a value that cannot be used; the text names
            `place` and the key.
        """
        record = _Record(_decode(text, place), place)
        backend = record.inner("backend")
        archs = backend.optional("archs", _texts)
        return cls(
            name=record.required("name", _matching(_NAME, "lower case, digits, hyphens")),
            id=record.required("id", _text),
            version=record.required("version", _whole),
            license=record.required("license", _text),
            backend=backend.required("type", _one_of(BACKENDS)),
            archs=archs,
            python_depends=record.required("python-depends", _texts),
            kernel_depends=_dependencies(record),
            upstream=record.optional("upstream", _matching(_GIT_URL, "a git address")),
            source=record.optional("source", _matching(_GIT_URL, "a git address")),
            kernels_minver=record.optional("kernels-minver", _matching(_VERSION, "like 0.17.0")),
            digest=_digest(record),
            provenance=_provenance(record),
            kernelmill=record.optional(OURS, _object) or {},
        )


def read_metadata(variant: Path) -> Metadata:
    """Read `metadata.json` of a variant's directory.

    Raises
    ------
    PackageError
        There is none, it is larger than 16 MiB, or `Metadata.parse` refuses it.
    """
    path = variant / FILE
    try:
        with path.open("rb") as stream:
            text = stream.read(_SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise PackageError(
            f"{variant} has no {FILE}",
            hint="kernels published before metadata existed cannot be loaded any more",
        ) from None
    if len(text) > _SIZE_LIMIT:
        raise PackageError(f"{path} is larger than {_SIZE_LIMIT >> 20} MiB")
    return Metadata.parse(text, place=str(path))


# ------------------------------------------------------------------------------- writing


def _dependency_json(one: KernelDependency) -> dict[str, Any]:
    if one.version is not None:
        return {"repo-id": one.repo_id, "version": one.version}
    return {"repo-id": one.repo_id, "revision": one.revision}


def _git_json(state: GitState | None) -> dict[str, Any]:
    return {"commit": state.commit, "dirty": state.dirty} if state else {}


def _provenance_json(provenance: Provenance) -> dict[str, Any]:
    made = {"kernel-builder": {"version": provenance.builder, **_git_json(provenance.builder_git)}}
    if provenance.kernel is not None:
        made["kernel"] = _git_json(provenance.kernel)
    return made


# ------------------------------------------------------------------------------- reading
# Each parser returns the value or raises ValueError, whose text says what is accepted.


def _decode(text: str | bytes, place: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PackageError(f"{place} is not JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class _Record:
    """An object of the file, with the place that errors name."""

    value: object
    place: str

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict):
            raise PackageError(f"{self.place} is {_kind(self.value)}; accepted: an object")

    def get(self, key: str) -> Any:  # Any: JSON
        assert isinstance(self.value, dict)
        return self.value.get(key)

    def required(self, key: str, parse: Callable[[object], _T]) -> _T:
        assert isinstance(self.value, dict)
        if key not in self.value:
            raise PackageError(f"{self.place} lacks the key {key}")
        try:
            return parse(self.value[key])
        except ValueError as accepted:
            found = json.dumps(self.value[key])[:80]
            raise PackageError(f"{self.place}: {key} is {found}; accepted: {accepted}") from None

    def optional(self, key: str, parse: Callable[[object], _T]) -> _T | None:
        return None if self.get(key) is None else self.required(key, parse)

    def inner(self, key: str) -> _Record:
        return _Record(self.required(key, _object), f"{self.place}: {key}")


def _kind(value: object) -> str:
    names: tuple[tuple[type, str], ...] = (
        (dict, "an object"), (list, "a list"), (str, "a text"), (bool, "a truth value"),
        (int, "a number"), (float, "a number"),
    )  # fmt: skip
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")  # noqa: TRY004 - one kind of refusal for all parsers
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("a list of texts")
    return tuple(value)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object")  # noqa: TRY004
    return value


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ValueError("a whole number from 0 on")
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004
    return value


def _matching(pattern: re.Pattern[str], accepted: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(accepted)
        return value

    return parse


def _one_of(names: tuple[str, ...]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in names:
            raise ValueError(", ".join(names))
        return str(value)

    return parse


def _dependencies(record: _Record) -> tuple[KernelDependency, ...]:
    assert isinstance(record.value, dict)
    if "kernel-depends" not in record.value:
        return ()
    rows = record.required("kernel-depends", _list)
    return tuple(
        _dependency(_Record(row, f"{record.place}: kernel-depends[{index}]"))
        for index, row in enumerate(rows)
    )


def _list(value: object) -> list[Any]:  # Any: JSON
    if not isinstance(value, list):
        raise ValueError("a list")  # noqa: TRY004
    return value


def _dependency(row: _Record) -> KernelDependency:
    assert isinstance(row.value, dict)
    unknown = sorted(set(row.value) - {"repo-id", "version", "revision"})
    if unknown:
        raise PackageError(f"{row.place} has the unknown key {unknown[0]!r}")
    made = KernelDependency(
        row.required("repo-id", _text),
        row.optional("version", _whole),
        row.optional("revision", _text),
    )
    if (made.version is None) == (made.revision is None):
        raise PackageError(f"{row.place} needs either version or revision, and not both")
    return made


def _digest(record: _Record) -> Digest | None:
    value = record.get("digest")
    return None if value is None else Digest.from_json(value, place=f"{record.place}: digest")


def _provenance(record: _Record) -> Provenance | None:
    if record.get("provenance") is None:
        return None
    provenance = record.inner("provenance")
    builder = provenance.inner("kernel-builder")
    kernel = None if provenance.get("kernel") is None else provenance.inner("kernel")
    return Provenance(
        builder=builder.required("version", _text),
        builder_git=_git(builder, "optional"),
        kernel=_git(kernel, "required") if kernel else None,
    )


def _git(record: _Record, need: Literal["optional", "required"]) -> GitState | None:
    # `sha` is what `commit` was called before.
    key = "sha" if record.get("commit") is None and record.get("sha") is not None else "commit"
    if need == "optional" and record.get(key) is None:
        return None
    commit = record.required(key, _matching(_COMMIT, "40 or 64 hexadecimal digits"))
    return GitState(commit, record.required("dirty", _truth))
