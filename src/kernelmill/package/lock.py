"""`kernelmill.lock`: what it holds, reading and writing it. How it is made is `lock_make`'s.

Every file of every variant of every kernel stands there with its sha256, in an order of its own.
Each variant, each kernel and the whole carry a digest in which all parts are preceded by their
lengths, so that an edit by hand is found and named by its path in the file.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import LockError, PackageError
from kernelmill.package.digest import safe_path
from kernelmill.package.index import KernelNeed, check_commit
from kernelmill.package.wanted import Version, check_repo_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from kernelmill.package.digest import Digest

__all__ = [
    "FILE",
    "Lock",
    "LockedFile",
    "LockedKernel",
    "LockedVariant",
    "digest_of",
    "read_file",
    "read_lock",
]

FILE: Final = "kernelmill.lock"
FORMAT: Final = 1
MOST_BYTES: Final = 256 << 20
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_VARIANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_RELOCK: Final = "`kernelmill lock` makes it anew; nobody edits it by hand"
_SHOWN: Final = 12


def digest_of(value: object) -> str:
    """Return the sha256 over a JSON value, in hexadecimal, in which every part has its length.

    Two values that differ in any text, number, key or nesting give different digests.

    Examples
    --------
    >>> from kernelmill.package.lock import digest_of
    >>> digest_of({"a": ["b"]}) == digest_of({"a": "b"})
    False
    """
    whole = hashlib.sha256()
    for part in _parts(value):
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return whole.hexdigest()


def _parts(value: object) -> Iterator[bytes]:
    if isinstance(value, dict):
        yield b"object %d" % len(value)
        for key in sorted(value):
            yield key.encode()
            yield from _parts(value[key])
    elif isinstance(value, list | tuple):
        yield b"list %d" % len(value)
        for item in value:
            yield from _parts(item)
    else:
        yield type(value).__name__.encode()
        yield str(value).encode()


# ----------------------------------------------------------------------------- what it holds


@dataclass(frozen=True, slots=True)
class LockedFile:
    """The sha256 (hexadecimal) and the bytes of a file."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class LockedVariant:
    """One variant: path below its directory → file, `metadata.json` and signatures included."""

    name: str
    files: Mapping[str, LockedFile]

    def to_json(self) -> dict[str, Any]:  # Any: JSON
        """Return the object in the lock."""
        rows = {path: [file.sha256, file.size] for path, file in sorted(self.files.items())}
        return {"digest": digest_of(rows), "files": rows}


@dataclass(frozen=True, slots=True)
class LockedKernel:
    """One kernel at the commit to which it is locked.

    Parameters
    ----------
    slot
        `organization/name`, or with `@N` where several major versions live side by side.
    version
        The semantic version; the integer alone where the publisher names none.
    revision
        The branch or tag where it was found; "" for a commit alone.
    needs
        Slot → what this kernel asks of it.
    python
        Python distributions that it needs.
    """

    slot: str
    version: str
    revision: str
    commit: str
    variants: Mapping[str, LockedVariant]
    needs: Mapping[str, KernelNeed] = field(default_factory=dict)
    python: tuple[str, ...] = ()

    @property
    def repo_id(self) -> str:
        """The repository."""
        return self.slot.partition("@")[0]

    @property
    def integer(self) -> int:
        """Hugging Face's version: the major number."""
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    def to_json(self) -> dict[str, Any]:  # Any: JSON
        """Return the object in the lock."""
        made: dict[str, Any] = {
            "slot": self.slot,
            "version": self.version,
            "revision": self.revision,
            "commit": self.commit,
            "kernel-depends": [
                {"slot": slot, **need.to_json()} for slot, need in sorted(self.needs.items())
            ],
            "python-depends": sorted(self.python),
            "variants": {name: v.to_json() for name, v in sorted(self.variants.items())},
        }
        return {**made, "digest": digest_of(made)}

    def verify(self, variant: str, found: Digest, metadata: bytes) -> None:
        """Compare a variant as it lies on disk with the lock.

        Parameters
        ----------
        variant
            Its name.
        found
            sha256 digest over its files, as `digest.hash_variant` makes it.
        metadata
            The bytes of its `metadata.json`, which that digest leaves out.

        Raises
        ------
        LockError
            A file is missing, unknown or another one; the text names each by its path.
        """
        locked = self.variants.get(variant)
        if locked is None:
            there = ", ".join(self.variants) or "none"
            raise LockError(f"{self.slot} {variant} is not in the lock; it has: {there}")
        assert found.algorithm == "sha256", found.algorithm
        sums = {**found.hexadecimal(), "metadata.json": hashlib.sha256(metadata).hexdigest()}
        expected = {path: file.sha256 for path, file in locked.files.items()}
        expected.pop("metadata.json.sigstore", None)  # it signs metadata.json, and is checked so
        if sums != expected:
            lines = list(_deviations(expected, sums))
            more = [f"  ... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
            raise LockError(
                "\n".join(
                    [f"{self.slot} {variant} is not what the lock names:", *lines[:_SHOWN], *more]
                ),
                hint="nothing of it was imported; `kernelmill sync` downloads what was locked",
            )


def _deviations(expected: Mapping[str, str], found: Mapping[str, str]) -> Iterator[str]:
    for path in sorted({*expected, *found}):
        if path not in found:
            yield f"  {path}: missing"
        elif path not in expected:
            yield f"  {path}: unknown"
        elif expected[path] != found[path]:
            yield f"  {path}: locked {expected[path]}, found {found[path]}"


@dataclass(frozen=True, slots=True)
class Lock:
    """The whole file: what the project asked for, and the kernels that were chosen, by slot.

    Examples
    --------
    >>> from kernelmill.package.lock import Lock, LockedFile, LockedKernel, LockedVariant
    >>> files = {"__init__.py": LockedFile("ab" * 32, 10)}
    >>> variant = LockedVariant("torch-cpu", files)
    >>> kernel = LockedKernel("org/x", "1.2.0", "v1", "cd" * 20, {"torch-cpu": variant})
    >>> lock = Lock((), {"org/x": kernel})
    >>> Lock.parse(lock.text()) == lock
    True
    """

    requires: tuple[KernelNeed, ...]
    kernels: Mapping[str, LockedKernel]

    def text(self) -> str:
        """Return the file's text: the same for the same contents, in whatever order they came."""
        needs = sorted((need.to_json() for need in self.requires), key=digest_of)
        made: dict[str, Any] = {  # Any: JSON
            "format": FORMAT,
            "requires": sorted(needs, key=lambda row: str(row["repo-id"])),
            "kernels": [self.kernels[slot].to_json() for slot in sorted(self.kernels)],
        }
        return json.dumps({**made, "digest": digest_of(made)}, indent=1) + "\n"

    @classmethod
    def parse(cls, text: str | bytes, *, place: str = FILE) -> Lock:
        """Read the file's text.

        Raises
        ------
        LockError
            It is no lock of this form, or what it holds is not what its digests promise; the text
            names the path in the file.
        """
        body = _decode(text, place)
        found = body.get("format")
        if type(found) is not int or found != FORMAT:
            raise LockError(
                f"{place}: format is {found!r}; this version of kernelmill reads {FORMAT}",
                hint="a newer kernelmill may have made it",
            )
        _keys(body, {"format", "requires", "kernels", "digest"}, place)
        kernels: dict[str, LockedKernel] = {}
        for number, row in enumerate(_list(body["kernels"], f"{place}: kernels")):
            kernel = _kernel(row, f"{place}: kernels[{number}]")
            if kernel.slot in kernels:
                raise LockError(f"{place}: kernels[{number}] repeats {kernel.slot}", hint=_RELOCK)
            kernels[kernel.slot] = kernel
        requires = tuple(
            _need(row, f"{place}: requires[{number}]")
            for number, row in enumerate(_list(body["requires"], f"{place}: requires"))
        )
        _check_digest(body, place)
        lock = cls(requires, kernels)
        lock.check_links(place)
        return lock

    def check_links(self, place: str) -> None:
        """Refuse a lock in which a kernel leads to one that is not there.

        Raises
        ------
        LockError
            The text names both.
        """
        for slot, kernel in self.kernels.items():
            for need in kernel.needs:
                if need not in self.kernels:
                    raise LockError(f"{place}: {slot} leads to {need}, which is not locked")

    def find(self, repo_id: str) -> LockedKernel:
        """Return what the project asked for in a repository.

        Raises
        ------
        LockError
            It is not locked, or several major versions of it are.
        """
        asked = [k for k in self.kernels.values() if repo_id in {k.repo_id, k.slot}]
        if len(asked) > 1:  # the project's own, where kernels need other major versions
            own = {self.slot_of(need) for need in self.requires if need.repo_id == repo_id}
            asked = [k for k in asked if k.slot in own] or asked
        if len(asked) == 1:
            return asked[0]
        if asked:
            slots = ", ".join(k.slot for k in asked)
            raise LockError(f"several versions of {repo_id} are locked: {slots}", hint="name one")
        there = ", ".join(self.kernels) or "none"
        raise LockError(
            f"{repo_id} is not locked; locked: {there}",
            hint="name it in pyproject.toml under [tool.kernelmill.dependencies], then "
            "`kernelmill lock`",
        )

    def slot_of(self, need: KernelNeed) -> str:
        """Return the slot that serves what the project asks for."""
        same = [kernel for kernel in self.kernels.values() if kernel.repo_id == need.repo_id]
        fitting = [kernel for kernel in same if _meets(kernel, need)]
        return next((kernel.slot for kernel in (*fitting, *same)), need.repo_id)


def _meets(kernel: LockedKernel, need: KernelNeed) -> bool:
    revision = need.wanted.revision
    if revision:
        return revision in {kernel.revision, kernel.commit[: len(revision)]}
    return need.wanted.admits(Version(kernel.version))


def read_lock(path: Path) -> Lock:
    """Read a `kernelmill.lock`.

    Raises
    ------
    LockError
        It is not there, or `Lock.parse` refuses it.
    """
    return Lock.parse(read_file(path), place=str(path))


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the text of a lock file.

    Raises
    ------
    LockError
        It is not there, or has more bytes than the limit.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(most + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise LockError(
            f"there is no {path.absolute()}", hint="`kernelmill lock` makes it"
        ) from None
    if len(text) > most:
        raise LockError(f"{path} has more than {most >> 20} MiB")
    return text


# ----------------------------------------------------------------------------- reading


def _decode(text: str | bytes, place: str) -> dict[str, Any]:  # Any: JSON
    if len(text) > MOST_BYTES:
        raise LockError(f"{place} has more than {MOST_BYTES >> 20} MiB")
    try:
        body = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise LockError(f"{place} is no JSON: {error}", hint=_RELOCK) from None
    return _object(body, place)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:  # Any: JSON
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands there twice")
    return made


def _object(value: object, place: str) -> dict[str, Any]:  # Any: JSON
    if not isinstance(value, dict):
        raise LockError(f"{place} is {_shown(value)}; accepted: an object", hint=_RELOCK)
    return value


def _list(value: object, place: str) -> list[Any]:  # Any: JSON
    if not isinstance(value, list):
        raise LockError(f"{place} is {_shown(value)}; accepted: a list", hint=_RELOCK)
    return value


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise LockError(f"{place} is {_shown(value)}; accepted: a text", hint=_RELOCK)
    return value


def _shown(value: object) -> str:
    return json.dumps(value)[:80]


def _keys(value: Mapping[str, object], accepted: Iterable[str], place: str) -> None:
    expected = set(accepted)
    for key in sorted(expected ^ set(value)):
        word = "lacks the key" if key in expected else "has the unknown key"
        raise LockError(f"{place} {word} {key!r}", hint=_RELOCK)


def _check_digest(body: Mapping[str, object], place: str) -> None:
    """Compare a digest with what stands beside it; parts were compared before the whole."""
    promised = body["digest"]
    found = digest_of({key: item for key, item in body.items() if key != "digest"})
    if promised != found:
        raise LockError(
            f"{place} was changed after it was written: its digest is {_shown(promised)}, what "
            f"stands there gives {found}",
            hint=_RELOCK,
        )


def _need(row: object, place: str) -> KernelNeed:
    try:
        return KernelNeed.parse(row, place=place)
    except PackageError as error:
        raise LockError(error.message, hint=_RELOCK) from None


def _kernel(row: object, place: str) -> LockedKernel:
    body = _object(row, place)
    _keys(
        body,
        (
            "slot", "version", "revision", "commit", "kernel-depends", "python-depends",
            "variants", "digest",
        ),
        place,
    )  # fmt: skip
    slot = _text(body["slot"], f"{place}.slot")
    place = f"{place} ({slot[:80]})"
    variants = {
        _name(name, f"{place}.variants"): _variant(name, item, f"{place}.variants[{name!r}]")
        for name, item in _object(body["variants"], f"{place}.variants").items()
    }
    needs: dict[str, KernelNeed] = {}
    for number, item in enumerate(_list(body["kernel-depends"], f"{place}.kernel-depends")):
        spot = f"{place}.kernel-depends[{number}]"
        fields = dict(_object(item, spot))
        target = _text(fields.pop("slot", None), f"{spot}.slot")
        needs[target] = _need(fields, spot)
    python = _list(body["python-depends"], f"{place}.python-depends")
    try:
        commit = check_commit(body["commit"], place=f"{place}.commit")
        check_repo_id(slot.partition("@")[0], place=f"{place}.slot")
    except PackageError as error:
        raise LockError(error.message, hint=_RELOCK) from None
    version = _text(body["version"], f"{place}.version")
    if not re.match(r"[0-9]", version):
        raise LockError(f"{place}.version is {_shown(version)}; accepted: a version", hint=_RELOCK)
    _check_digest(body, place)
    return LockedKernel(
        slot=slot,
        version=version,
        revision=_text(body["revision"], f"{place}.revision"),
        commit=commit,
        variants=variants,
        needs=needs,
        python=tuple(_text(t, f"{place}.python-depends[{n}]") for n, t in enumerate(python)),
    )


def _name(name: str, place: str) -> str:
    if not _VARIANT.fullmatch(name):
        raise LockError(f"{place} has the name {_shown(name)}; accepted: a variant's name")
    return name


def _variant(name: str, value: object, place: str) -> LockedVariant:
    body = _object(value, place)
    _keys(body, ("digest", "files"), place)
    files: dict[str, LockedFile] = {}
    for path, row in _object(body["files"], f"{place}.files").items():
        spot = f"{place}.files[{path!r}]"
        try:
            safe_path(path)
        except PackageError as error:
            raise LockError(f"{place}.files: {error.message}") from None
        files[path] = _file(row, spot)
    found = digest_of(body["files"])
    if body["digest"] != found:
        raise LockError(
            f"{place} was changed after it was written: its digest is {_shown(body['digest'])}, "
            f"what stands there gives {found}",
            hint=_RELOCK,
        )
    return LockedVariant(name, files)


def _file(row: object, place: str) -> LockedFile:
    match row:
        case [str(sha256), int(size)] if _SHA256.fullmatch(sha256) and size >= 0:
            if type(size) is int:  # True is an integer, too
                return LockedFile(sha256, size)
    raise LockError(
        f"{place} is {_shown(row)}; accepted: 64 lower-case hexadecimal digits and a size",
        hint=_RELOCK,
    )
