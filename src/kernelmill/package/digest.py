"""Digests of files and of whole variants, as Hugging Face computes them. Signatures are not here.

Three identities of a file occur: the sha256 (or sha512) of its bytes, in base64 in `metadata.json`
and in hexadecimal for LFS, and git's blob id. A variant's identity is one digest over all its
files, each path and each digest preceded by its length, so that no two sets of files share one.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from kernelmill.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "ALGORITHMS",
    "UNDIGESTED",
    "Digest",
    "Violation",
    "check_path",
    "check_variant",
    "file_hash",
    "git_blob_id",
    "hash_variant",
    "require_same",
    "safe_path",
    "variant_files",
]

ALGORITHMS: Final = ("sha256", "sha512")
# The digest stands in the first of these, and the second signs the first.
UNDIGESTED: Final = frozenset({"metadata.json", "metadata.json.sigstore"})
_SHOWN: Final = 12
_CHUNK: Final = 1 << 17  # what a processor keeps near
_SMALL: Final = 1 << 16
_THREADED_BYTES: Final = 8 << 20
_MAX_PATH: Final = 1024


@dataclass(frozen=True, slots=True)
class Violation:
    """One file that is not as promised: `reason` is "missing", "unknown" or "differs"."""

    path: str
    reason: str
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        if self.reason == "differs":
            return f"{self.path}: expected {self.expected}, found {self.found}"
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Digest:
    """The digests of a variant's files.

    Parameters
    ----------
    algorithm
        "sha256" or "sha512".
    files
        Relative POSIX path → base64 digest of the bytes, as in `metadata.json`; sorted by path.

    Examples
    --------
    >>> from kernelmill.package.digest import Digest
    >>> d = Digest("sha256", {"__init__.py": "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="})
    >>> d.root()[:16]
    'bb7ce21479f027ca'
    """

    algorithm: str
    files: Mapping[str, str] = field(default_factory=dict)

    def root(self) -> str:
        """Return one hexadecimal sha256 over all paths and digests, each preceded by its length."""
        whole = hashlib.sha256()
        for part in self._parts():
            whole.update(len(part).to_bytes(8, "little"))
            whole.update(part)
        return whole.hexdigest()

    def _parts(self) -> Iterator[bytes]:
        yield self.algorithm.encode()
        for path in sorted(self.files, key=os.fsencode):
            yield os.fsencode(path)
            yield self.files[path].encode()

    def hexadecimal(self) -> dict[str, str]:
        """Return path → hexadecimal digest."""
        return {path: binascii.a2b_base64(text).hex() for path, text in self.files.items()}

    def to_json(self) -> dict[str, object]:
        """Return what stands under `digest` in metadata.json."""
        return {"algorithm": self.algorithm, "files": dict(self.files)}

    @classmethod
    def from_json(cls, value: object, *, place: str = "digest") -> Digest:
        """Read what stands under `digest` in metadata.json.

        Raises
        ------
        IntegrityError
            It is no digest; the text names the key and what was found.
        """
        if not isinstance(value, dict) or set(value) != {"algorithm", "files"}:
            raise IntegrityError(f"{place} must have exactly the keys algorithm and files")
        algorithm, files = value["algorithm"], value["files"]
        if algorithm not in ALGORITHMS:
            raise IntegrityError(
                f"{place}.algorithm is {algorithm!r}; accepted: {', '.join(ALGORITHMS)}"
            )
        if not isinstance(files, dict):
            raise IntegrityError(f"{place}.files is {type(files).__name__}; accepted: an object")
        size = hashlib.new(algorithm).digest_size
        for path, text in files.items():
            _check_entry(place, path, text, size)
        return cls(algorithm, dict(sorted(files.items())))

    def compare(self, found: Digest) -> tuple[Violation, ...]:
        """Return how `found` deviates from this digest, sorted by path; empty when it does not.

        Raises
        ------
        IntegrityError
            The two were made with different algorithms.
        """
        if self.algorithm != found.algorithm:
            raise IntegrityError(
                f"a {found.algorithm} digest cannot be compared with a {self.algorithm} one"
            )
        if self.files == found.files:
            return ()
        paths = sorted({*self.files, *found.files})
        made = (_violation(path, self.files.get(path), found.files.get(path)) for path in paths)
        return tuple(violation for violation in made if violation is not None)


def _check_entry(place: str, path: str, text: object, size: int) -> None:
    check_path(path)
    try:
        found = len(binascii.a2b_base64(str(text), strict_mode=True))
    except ValueError:  # binascii.Error, and what is not ASCII
        found = -1
    if found != size:
        raise IntegrityError(
            f"{place}.files[{path!r}] is {str(text)[:80]!r}; accepted: {size} bytes in base64"
        )


def _violation(path: str, expected: str | None, found: str | None) -> Violation | None:
    if expected == found:
        return None
    if found is None:
        return Violation(path, "missing", expected=expected or "")
    if expected is None:
        return Violation(path, "unknown", found=found)
    return Violation(path, "differs", expected, found)


# ----------------------------------------------------------------------------- paths


def safe_path(text: str) -> PurePosixPath:
    r"""Return a path from a registry or a manifest as a relative one that cannot leave its folder.

    Raises
    ------
    IntegrityError
        It is absolute, has `..`, `.` or empty parts, a backslash, a colon, a control character, or
        more than 1,024 characters.

    Examples
    --------
    >>> from kernelmill.package.digest import safe_path
    >>> safe_path("build/torch-cpu/__init__.py").name
    '__init__.py'
    >>> safe_path("../x")
    Traceback (most recent call last):
        ...
    kernelmill.errors.IntegrityError: the path '../x' is refused: it has the part '..'
    """
    check_path(text)
    return PurePosixPath(text)


def check_path(text: str) -> None:
    """Refuse what `safe_path` refuses."""
    if len(text) <= _MAX_PATH and _ORDINARY.fullmatch(text):
        return
    reason = _refusal(text)
    if reason:
        raise IntegrityError(f"the path {text[:200]!r} is refused: {reason}")


# Most paths are of such parts, none of which is refused.
_ORDINARY: Final = re.compile(r"[\w-][\w.-]*(?:/[\w-][\w.-]*)*", re.ASCII)


def _refusal(text: str) -> str:
    if not text or len(text) > _MAX_PATH:
        return f"it has {len(text)} characters; accepted: 1 to {_MAX_PATH:,}"
    if not text.isprintable() or "\\" in text or ":" in text:
        return "it has a backslash, a colon or a character that cannot be printed"
    bad = [part for part in text.split("/") if part in {"", ".", ".."}]
    if text.startswith("/"):
        return "it is absolute"
    return f"it has the part {bad[0]!r}" if bad else ""


def variant_files(directory: Path) -> list[str]:
    """Return the files of a variant that count, as sorted relative POSIX paths.

    Left out are `metadata.json`, its sigstore bundle, `__pycache__` and `*.pyc`. A link to a file
    counts as the file (the Hub's cache consists of links).

    Raises
    ------
    IntegrityError
        A link leads to a directory or out of the repository's folder, or something is neither file
        nor directory.
    OSError
        A directory cannot be read.
    """
    return [path for path, _ in _places(directory)]


def _places(directory: Path | str) -> list[tuple[str, str]]:
    """Return the files of a variant, sorted: each path, and where its bytes lie.

    That is the file behind a link, so that whoever reads it need not follow the link once more.
    """
    real = _real(directory)
    found = list(_walk(os.fspath(directory), real, "", _border(real)))
    found.sort(key=_by_path)
    return found


def _real(directory: Path | str) -> str:
    """Return where a directory really is, asked of the system at once where it tells."""
    try:
        handle = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return os.path.realpath(directory)
    try:
        return os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115 - quick
    except OSError:
        return os.path.realpath(directory)
    finally:
        os.close(handle)


def _by_path(row: tuple[str, str]) -> bytes:
    return os.fsencode(row[0])


def _border(real: str) -> str:
    """Return the folder that links may not leave: the repository's in the Hub's cache."""
    before = real.rpartition("/snapshots/")[0]
    return before or real


def _walk(directory: str, real: str, prefix: str, border: str) -> Iterator[tuple[str, str]]:
    inside = f"{'../' * real.count(os.sep, len(border))}blobs/"  # as the cache writes its links
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            path = prefix + name
            if not path.isprintable() and path != os.fsencode(path).decode(errors="replace"):
                raise IntegrityError(f"the name {path!r} in {directory} is not UTF-8")
            if name == "__pycache__" or name.endswith(".pyc") or path in UNDIGESTED:
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{real}{os.sep}{name}", f"{path}/", border)
            else:
                yield path, _checked(entry, path, border, inside)


def _checked(entry: os.DirEntry[str], path: str, border: str, inside: str) -> str:
    """Return where the bytes of an entry lie, after it is clear that they may lie there."""
    if not entry.is_symlink():
        if not entry.is_file(follow_symlinks=False):
            raise IntegrityError(f"{path} is neither a file nor a directory")
        return entry.path
    link = os.readlink(entry.path)  # noqa: PTH115 - quick
    name = link[len(inside) :]
    if link.startswith(inside) and "/" not in name:
        target = f"{border}/blobs/{name}"
        if _is_regular(target):  # straight to a file in `blobs`
            return target
    target = os.path.realpath(entry.path)
    if os.path.commonpath([border, target]) != border:
        raise IntegrityError(f"{path} is a link out of its repository, to {target}")
    if not os.path.isfile(target):  # noqa: PTH113 - a string, and one call
        raise IntegrityError(f"{path} is a link to {target}, which is not a file")
    return target


def _is_regular(place: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(place).st_mode)
    except OSError:
        return False


# ----------------------------------------------------------------------------- hashing


def file_hash(path: Path | str, algorithm: str = "sha256") -> bytes:
    """Return the digest of a file's bytes."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        first = os.read(handle, _SMALL)
        made = hashlib.new(algorithm, first)
        if len(first) == _SMALL:  # else that was all: a larger buffer costs more than most files
            view = memoryview(bytearray(_CHUNK))
            while size := os.readv(handle, [view]):
                made.update(view[:size])
    finally:
        os.close(handle)
    return made.digest()


def git_blob_id(path: Path | str) -> str:
    """Return git's id of a file's content (the sha1 of `blob <size>`, NUL and the bytes).

    Examples
    --------
    >>> import tempfile; from kernelmill.package.digest import git_blob_id
    >>> with tempfile.NamedTemporaryFile() as empty:
    ...     git_blob_id(empty.name)
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    with open(path, "rb") as stream:  # noqa: PTH123
        size = os.fstat(stream.fileno()).st_size
        made = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        while chunk := stream.read(_CHUNK):
            made.update(chunk)
    return made.hexdigest()


def hash_variant(directory: Path | str, algorithm: str = "sha256") -> Digest:
    """Return the digest over the files of a variant; large ones are hashed on several threads.

    Parameters
    ----------
    directory
        The variant's directory.
    algorithm
        "sha256" or "sha512".

    Raises
    ------
    IntegrityError
        As `variant_files`.
    OSError
        A file cannot be read.
    """
    found = _places(directory)
    made = _hash_all([place for _, place in found], algorithm)
    texts = (binascii.b2a_base64(digest, newline=False).decode() for digest in made)
    return Digest(algorithm, dict(zip([path for path, _ in found], texts, strict=True)))


def _hash_all(places: Sequence[str], algorithm: str) -> list[bytes]:
    made = [_small_hash(place, algorithm) for place in places]
    large = [index for index, digest in enumerate(made) if not digest]
    sizes = map(os.path.getsize, [places[index] for index in large])
    if len(large) > 1 and sum(sizes) > _THREADED_BYTES:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            rest = list(pool.map(lambda index: file_hash(places[index], algorithm), large))
    else:
        rest = [file_hash(places[index], algorithm) for index in large]
    for index, digest in zip(large, rest, strict=True):
        made[index] = digest
    return made


def _small_hash(place: str, algorithm: str) -> bytes:
    """Return the digest of a file that one read takes; nothing for a larger one."""
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = os.read(handle, _SMALL)
    finally:
        os.close(handle)
    if len(head) == _SMALL:
        return b""
    made = hashlib.sha256(head) if algorithm == "sha256" else hashlib.new(algorithm, head)
    return made.digest()


def check_variant(directory: Path | str, expected: Digest) -> Digest:
    """Hash a variant and compare; return what was found, equal to `expected`.

    Raises
    ------
    IntegrityError
        A file is missing, unknown or another one; the text names each with its path.
    """
    found = hash_variant(directory, expected.algorithm)
    require_same(directory, expected, found)
    return found


def require_same(directory: Path | str, expected: Digest, found: Digest) -> None:
    """Compare what was found in a directory with what was promised.

    Raises
    ------
    IntegrityError
        As `check_variant`.
    """
    violations = expected.compare(found)
    if violations:
        lines = [f"  {violation}" for violation in violations[:_SHOWN]]
        rest = len(violations) - _SHOWN
        more = [f"  ... and {rest} more"] if rest > 0 else []
        raise IntegrityError(
            "\n".join([f"{directory} is not what its digest promises:", *lines, *more]),
            hint="nothing of it was imported; download or build it again",
        )
