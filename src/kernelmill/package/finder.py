"""Imports of verified kernels: only files whose digests were checked. What checks them is not here.

A kernel becomes a package under a name of its own. The finder here answers for that name and all
below it: only a file of the verified list can be imported, a source is compiled from the very bytes
that have the digest, and compiled Python code (`*.pyc`) beside it is never read.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
import tempfile
import zlib
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import MAGIC_NUMBER, spec_from_file_location
from typing import TYPE_CHECKING, Final

from kernelmill.config import get_config
from kernelmill.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import CodeType, ModuleType

__all__ = ["Tree", "forget", "install"]

# Code that was compiled from a source is kept by the digest of that source.
CODE: Final = "kernel-code-2"
_SUFFIXES: Final = (*EXTENSION_SUFFIXES,)


@dataclass(frozen=True, slots=True)
class Tree:
    """The verified files of one kernel.

    Parameters
    ----------
    directory
        The package's directory: the one with `__init__.py`.
    prefix
        "" or the relative path of `directory` in the variant, with a slash.
    algorithm
        Of the digests.
    files
        Relative path in the variant → hexadecimal digest.
    """

    directory: Path
    prefix: str
    algorithm: str
    files: Mapping[str, str]

    def locate(self, module: str) -> tuple[str, str] | None:
        """Return the file of a dotted module name below the package and its digest, or None."""
        stem = module.replace(".", "/")
        package = f"{stem}/__init__.py" if stem else "__init__.py"
        names = (package, f"{stem}.py", *(stem + suffix for suffix in _SUFFIXES))
        for name in names if stem else names[:1]:
            digest = self.files.get(self.prefix + name)
            if digest is not None:
                return os.path.join(self.directory, name), digest  # noqa: PTH118 - once an import
        return None

    def holds(self, module: str) -> bool:
        """Return whether files lie below a dotted name: a package without `__init__.py`."""
        below = f"{self.prefix}{module.replace('.', '/')}/"
        return any(path.startswith(below) for path in self.files)


class _Source(SourceFileLoader):
    """Compiles a source from the bytes that have the promised digest."""

    def __init__(self, name: str, path: str, algorithm: str, digest: str) -> None:
        super().__init__(name, path)
        self._algorithm = algorithm
        self._digest = digest

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module; the file is read and hashed once more."""
        path = self.get_filename(fullname)
        source = self.get_data(path)
        found = hashlib.new(self._algorithm, source).hexdigest()
        if found != self._digest:
            raise IntegrityError(
                f"{path} was changed after it was verified: expected {self._digest}, found {found}",
                hint="download the kernel again",
            )
        return _code(source, path, found)


def _code(source: bytes, path: str, digest: str) -> CodeType:
    """Return the compiled source, kept by its digest, its path and the interpreter's version."""
    key = hashlib.sha256(MAGIC_NUMBER + os.fsencode(path) + b"\0" + digest.encode()).hexdigest()
    place = get_config().cache_dir / CODE / key
    kept = _read_own(place)
    if kept is not None:
        made: CodeType = marshal.loads(kept)  # noqa: S302 - only this user can write the file
        return made
    code = compile(source, path, "exec", dont_inherit=True)
    _keep(place, marshal.dumps(code))
    return code


def _read_own(place: Path) -> bytes | None:
    """Read a file of ours, if neither it nor its directory can be written by anybody else."""
    try:
        folder = os.stat(place.parent)  # noqa: PTH116 - quick
        with open(place, "rb") as stream:  # noqa: PTH123
            found = os.fstat(stream.fileno())
            mine = found.st_uid == folder.st_uid == os.getuid()
            if not mine or (found.st_mode | folder.st_mode) & 0o022:
                return None
            sealed = stream.read()
    except OSError:
        return None
    # Nobody else can write here, so the sum is only for what a crash has left.
    body = sealed[4:]
    return body if zlib.crc32(body).to_bytes(4, "big") == sealed[:4] else None


def _keep(place: Path, body: bytes) -> None:
    """Keep compiled code; a disk that is full or read-only only costs the next compilation."""
    temporary = ""
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(zlib.crc32(body).to_bytes(4, "big") + body)
        os.replace(temporary, place)  # noqa: PTH105
    except OSError:
        if temporary and os.path.exists(temporary):  # noqa: PTH110
            os.unlink(temporary)  # noqa: PTH108


class _Finder(MetaPathFinder):
    """Answers for the names of installed trees."""

    def __init__(self) -> None:
        self.trees: dict[str, Tree] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - Python's own signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the spec of a verified file; None for names that are not ours."""
        root, _, rest = fullname.partition(".")
        tree = self.trees.get(root)
        if tree is None:
            return None
        located = tree.locate(rest)
        if located is None:
            if rest and tree.holds(rest):
                return _namespace(fullname, tree, rest)
            # Not None: the finders of Python would look into the directory for unverified files.
            raise ModuleNotFoundError(
                f"No module named {fullname!r} among the verified files of {tree.directory}",
                name=fullname,
            )
        place, digest = located
        if place.endswith(".py"):
            loader = _Source(fullname, place, tree.algorithm, digest)
            folder = [os.path.dirname(place)] if place.endswith("__init__.py") else None  # noqa: PTH120
            return spec_from_file_location(
                fullname, place, loader=loader, submodule_search_locations=folder
            )
        return spec_from_file_location(fullname, place, loader=ExtensionFileLoader(fullname, place))


def _namespace(fullname: str, tree: Tree, rest: str) -> ModuleSpec:
    spec = ModuleSpec(fullname, None, is_package=True)
    folder = os.path.join(tree.directory, *rest.split("."))  # noqa: PTH118
    spec.submodule_search_locations = [folder]
    return spec


_finder: Final = _Finder()


def install(name: str, tree: Tree) -> None:
    """Let `import name` and all below it come from a tree."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.trees[name] = tree


def forget(name: str) -> None:
    """Take a tree and all its modules away, so that nothing half-loaded stays."""
    _finder.trees.pop(name, None)
    below = f"{name}."
    for module in [m for m in sys.modules if m == name or m.startswith(below)]:
        del sys.modules[module]
