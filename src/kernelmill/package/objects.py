"""Object files by what made them: two keys, one store for all projects. Chooses no flags.

The direct key is made of the command, the source and, as noted at an earlier run, every header
that it read; nothing is run to make it. Where that finds nothing but the same source was compiled
before, the preprocessed text is the key: an edited comment compiles nothing. Directories are named
by their content in both, so that projects and machines with other paths share what they can.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from kernelmill.cache.key import digest
from kernelmill.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kernelmill.package.archs import Arch
    from kernelmill.package.nvcc import Cuda

__all__ = ["Compiled", "Objects", "Unit"]

_SCHEMA: Final = 2
_ALTERNATIVES: Final = 8
_HEAD: Final = re.compile(r"(?:\\.|[^:\\])+:", re.DOTALL)
_WORD: Final = re.compile(r"(?:\\.|\$\$|[^\s\\])+")


@dataclass(frozen=True, slots=True)
class Unit:
    """One source and how it is compiled.

    `command` holds all words but `-c SOURCE -o OBJECT`; `source` is relative to the project. Device
    code has `archs` and `cuda`; `device_flags` are the manifest's own for it. `toolkit` tells the
    toolkits apart whose headers it may read.
    """

    source: str
    command: tuple[str, ...]
    archs: tuple[Arch, ...] = ()
    cuda: Cuda | None = None
    device_flags: tuple[str, ...] = ()
    toolkit: str = ""

    @property
    def by_nvrtc(self) -> bool:
        """Whether its device code goes through NVRTC."""
        return self.cuda is not None and self.cuda.route == "nvrtc"


@dataclass(frozen=True, slots=True)
class Compiled:
    """An object: `sha256` is its content's and its place in the store; `how` it was had.

    `how` is "compiled", "direct" or "preprocessed"; `log` is what the compiler said when it ran.
    """

    unit: Unit
    sha256: str
    how: str
    seconds: float
    log: str = ""


@dataclass(slots=True)
class Objects:
    """The store at `root`, as seen from a project.

    Parameters
    ----------
    root
        A directory of the cache.
    project
        Where relative sources and headers lie.
    names
        Absolute directories and what they are called in keys. Files below a directory that is
        called `/...` are not looked at: its name stands for its content.
    identity
        What tells the compilers apart.
    compile_unit, preprocess
        Run the compiler: the first writes an object and a list of the headers that it read to two
        paths and returns its log, the second returns the preprocessed text.
    """

    root: Path
    project: Path
    names: Mapping[str, str]
    identity: str
    compile_unit: Callable[[Unit, Path, Path], str]
    preprocess: Callable[[Unit], bytes]
    stored: int = 0
    _hashes: dict[str, str | None] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def path(self, sha256: str) -> Path:
        """Return where the object of that content lies."""
        return self.root / sha256[:2] / f"{sha256}.o"

    def slot(self, unit: Unit) -> str:
        """Return the digest of how a unit is compiled, whatever its source holds."""
        return digest(
            schema=_SCHEMA,
            identity=self.identity,
            toolkit=unit.toolkit,
            words=self._normal(unit),
            source=unit.source,
        )

    def get(self, unit: Unit, work: Path) -> Compiled:
        """Return the object of a unit, from the store or from the compiler.

        Raises
        ------
        CompileError
            The compiler refuses the source; `log` is its own output.
        OSError
            The source cannot be read, or the store not be written.
        """
        start = time.monotonic()
        slot = self.slot(unit)
        source = self._hash(unit.source)
        if source is None:
            raise CompileError(f"the source {unit.source} cannot be read")
        direct = self._entry("direct", digest(slot=slot, source=source))
        found = self._direct(direct)
        if found is not None:
            return Compiled(unit, found["object"], "direct", time.monotonic() - start, found["log"])
        return self._make(unit, work, slot, direct, start)

    # ------------------------------------------------------------------------- the two keys

    def _normal(self, unit: Unit) -> list[str]:
        words = [*unit.command, "--", *unit.device_flags, *map(str, unit.archs)]
        for path, name in self.names.items():
            words = [word.replace(path, name) for word in words]
        return words

    def _entry(self, kind: str, key: str) -> Path:
        return self.root / kind / key[:2] / f"{key}.json"

    def _direct(self, entry: Path) -> dict[str, str] | None:
        for row in _read_rows(entry):
            same = all(self._hash(name) == known for name, known in row["headers"])
            if same and self._present(row["object"]):
                return {"object": row["object"], "log": row["log"]}
        return None

    def _present(self, sha256: str) -> bool:
        try:
            os.utime(self.path(sha256))  # what was used lately stays
        except OSError:
            return False
        return True

    def _make(self, unit: Unit, work: Path, slot: str, direct: Path, start: float) -> Compiled:
        seen = self._entry("seen", slot)
        text_entry = None
        if seen.exists() and not unit.by_nvrtc:
            text = self.preprocess(unit)
            text = text.replace(os.fsencode(self.project), b".")
            key = digest(slot=slot, text=hashlib.sha256(text).hexdigest())
            text_entry = self._entry("text", key)
            row = next(iter(_read_rows(text_entry)), None)
            if row is not None and self._present(row["object"]):
                return Compiled(
                    unit, row["object"], "preprocessed", time.monotonic() - start, row["log"]
                )
        stem = hashlib.sha256(f"{unit.source}\0{slot}".encode()).hexdigest()[:16]
        out, headers = work / f"{stem}.o", work / f"{stem}.d"
        log = self.compile_unit(unit, out, headers)
        sha256 = self._store(out)
        row = {"object": sha256, "log": log, "headers": self._read(headers, unit.source)}
        _write_rows(direct, [row, *_read_rows(direct)][:_ALTERNATIVES])
        _write_rows(seen, [])
        if text_entry is not None:
            _write_rows(text_entry, [{"object": sha256, "log": log, "headers": []}])
        return Compiled(unit, sha256, "compiled", time.monotonic() - start, log)

    def _store(self, out: Path) -> str:
        data = out.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.path(sha256)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, data)
            with self._lock:
                self.stored += len(data)
        return sha256

    # ------------------------------------------------------------------------- what was read

    def _read(self, listing: Path, source: str) -> list[tuple[str, str]]:
        """Return the headers of a dependency file that are not named by their content."""
        names = sorted(set(_depends(listing.read_text("utf-8", "surrogateescape"))) - {source})
        outside = [name for name in names if not name.startswith(self._fixed())]
        pairs = [(name, self._hash(name)) for name in outside]
        return [(name, known) for name, known in pairs if known is not None]

    def _fixed(self) -> tuple[str, ...]:
        return tuple(f"{path}/" for path, name in self.names.items() if name.startswith("/"))

    def _hash(self, name: str) -> str | None:
        """Return the digest of a file's content, read once; None if it is absent."""
        if name not in self._hashes:
            try:
                data = (self.project / name).read_bytes()
            except OSError:
                self._hashes[name] = None
            else:
                self._hashes[name] = hashlib.sha256(data).hexdigest()
        return self._hashes[name]

    # ------------------------------------------------------------------------- size

    def trim(self, limit: int) -> int:
        """Remove the objects that were not used for longest until `limit` bytes are left."""
        rows = []
        for folder in self.root.glob("[0-9a-f][0-9a-f]"):
            for path in folder.glob("*.o"):
                try:
                    state = path.stat()
                except FileNotFoundError:
                    continue  # somebody else trims as well
                rows.append((state.st_mtime_ns, state.st_size, path))
        size, removed = sum(row[1] for row in rows), 0
        for _, bytes_, path in sorted(rows, key=lambda row: row[0]):
            if size <= limit:
                break
            path.unlink(missing_ok=True)
            size -= bytes_
            removed += 1
        return removed


def _depends(text: str) -> list[str]:
    """Return the files that a dependency file of a compiler names after its target."""
    head = _HEAD.match(text)
    body = text[head.end() :] if head else text
    words = _WORD.findall(body.replace("\\\n", " "))
    return [re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words]


def _read_rows(entry: Path) -> list[Any]:  # Any: what JSON holds
    try:
        rows = json.loads(entry.read_bytes())
    except (OSError, ValueError):
        return []
    return rows if isinstance(rows, list) else []


def _write_rows(entry: Path, rows: Sequence[Mapping[str, object]]) -> None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    _replace(entry, json.dumps(rows).encode())


def _replace(path: Path, data: bytes) -> None:
    """Write a file aside and rename it: a reader sees all of it or the one before."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        aside.write_bytes(data)
        os.replace(aside, path)  # noqa: PTH105 - the system call
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def copy_object(source: Path, target: Path) -> None:
    """Put an object where a command will read it, by a link where the file system allows one."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
