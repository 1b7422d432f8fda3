"""Imports of verified kernels: only files whose digests were checked. What checks them is not here.

A kernel becomes a package under a name of its own. The finder here answers for that name and all
below it: only a file of the verified list can be imported, a source is compiled from the very bytes
that have the digest, and compiled Python code (`*.pyc`) beside it is never read.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import sys
import tempfile
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import MAGIC_NUMBER, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.config import get_config
from kernelmill.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import CodeType, ModuleType

__all__ = ["Tree", "forget", "install", "packed"]

# Code that was compiled from sources is kept by the digests of these.
CODE: Final = "kernel-code-4"
# Bytes in front of it that hold how many there are.
_LENGTH: Final = 8
# What makes a file of a module's name, in the order in which it is looked for.
_ENDINGS: Final = ("/__init__.py", ".py", *EXTENSION_SUFFIXES)


@dataclass(frozen=True, slots=True)
class Tree:
    """The verified files of one kernel.

    Parameters
    ----------
    name
        The module's.
    directory
        The package's directory: the one with `__init__.py`.
    prefix
        "" or the relative path of `directory` in the variant, with a slash.
    algorithm
        Of the digests.
    files
        Relative path in the variant → hexadecimal digest.
    """

    name: str
    directory: str
    prefix: str
    algorithm: str
    files: Mapping[str, str]

    def locate(self, module: str) -> tuple[str, str] | None:
        """Return the file of a dotted module name below the package and its digest, or None."""
        stem = module.replace(".", "/")
        for ending in _ENDINGS if stem else ("__init__.py",):
            digest = self.files.get(f"{self.prefix}{stem}{ending}")
            if digest is not None:
                return f"{self.directory}{os.sep}{stem}{ending}", digest
        return None

    def holds(self, module: str) -> bool:
        """Return whether files lie below a dotted name: a package without `__init__.py`."""
        below = f"{self.prefix}{module.replace('.', '/')}/"
        return any(path.startswith(below) for path in self.files)


class _Source(SourceFileLoader):
    """Compiles a source from the bytes that have the promised digest."""

    def __init__(self, name: str, path: str, tree: Tree, digest: str) -> None:
        super().__init__(name, path)
        self._tree = tree
        self._digest = digest

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module: what was compiled from such bytes before, or anew.

        The file is read again only to compile it, and hashed once more then.
        """
        path = self.get_filename(fullname)
        pack = _finder.packs.get(self._tree.name)
        kept = pack.codes.get((path, self._digest)) if pack is not None else None
        if kept is not None:
            return kept
        source = self.get_data(path)
        found = hashlib.new(self._tree.algorithm, source).hexdigest()
        if found != self._digest:
            raise IntegrityError(
                f"{path} was changed after it was verified: expected {self._digest}, found {found}",
                hint="download the kernel again",
            )
        if pack is None:
            return _code(source, path, found)
        pack.grown = True
        code = pack.codes[path, found] = _compiled(source, path)
        return code


def _compiled(source: bytes, path: str) -> CodeType:
    return compile(source, path, "exec", dont_inherit=True)


def _code(source: bytes, path: str, digest: str) -> CodeType:
    """Return the compiled source, kept by its digest, its path and the interpreter."""
    place = _place(path, digest)
    kept = _read_own(place)
    if kept is not None:
        made: CodeType = marshal.loads(kept)  # noqa: S302 - only this user can write the file
        return made
    code = _compiled(source, path)
    _keep(place, marshal.dumps(code))
    return code


def _place(path: str, digest: str) -> str:
    """Return where code is kept that was compiled here from a source, or from a whole kernel's."""
    # Of one version of Python, but without assertions under -O, and without docstrings under -OO.
    made_by = MAGIC_NUMBER + bytes([sys.flags.optimize])
    key = hashlib.sha256(made_by + os.fsencode(path) + b"\0" + digest.encode()).hexdigest()
    return f"{get_config().cache_dir}{os.sep}{CODE}{os.sep}{key}"


@dataclass(slots=True)
class _Pack:
    """The code of the modules that a kernel imports while it is loaded, kept in one file.

    `codes` goes by path and by the digest of the source, so that no other source's is taken.
    """

    codes: dict[tuple[str, str], CodeType]
    grown: bool = False


@contextlib.contextmanager
def packed(tree: Tree, root: str) -> Iterator[None]:
    """Take the code of a kernel's modules from one file while it is imported, and keep it so.

    Parameters
    ----------
    tree
        Its verified files, installed.
    root
        The digest over them.
    """
    place = _place(f"{tree.directory}{os.sep}", root)
    kept = _read_own(place)
    codes = marshal.loads(kept) if kept is not None else {}  # noqa: S302 - as above
    pack = _finder.packs[tree.name] = _Pack(codes)
    try:
        yield
    finally:
        # Gone already where the kernel, while it is imported, loads itself.
        _finder.packs.pop(tree.name, None)
    if pack.grown:
        _keep(place, marshal.dumps(pack.codes))


def _read_own(place: str) -> memoryview | None:
    """Read a file of ours, if neither it nor its directory can be written by anybody else."""
    try:
        folder = os.stat(os.path.dirname(place))  # noqa: PTH116, PTH120 - quick
        handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(handle)
            mine = found.st_uid == folder.st_uid == os.getuid()
            if not mine or (found.st_mode | folder.st_mode) & 0o022:
                return None
            sealed = os.read(handle, found.st_size)
        finally:
            os.close(handle)
    except OSError:
        return None
    # Nobody else can write here, and what has this name was on the disk before it got it: the
    # length is only for what lost its end since.
    body = memoryview(sealed)[_LENGTH:]
    return body if sealed[:_LENGTH] == len(body).to_bytes(_LENGTH, "big") else None


def _keep(place: str, body: bytes) -> None:
    """Keep compiled code; a disk that is full or read-only only costs the next compilation."""
    temporary = ""
    try:
        folder = Path(place).parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as stream:
            stream.write(len(body).to_bytes(_LENGTH, "big") + body)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, place)  # noqa: PTH105
    except OSError:
        if temporary and os.path.exists(temporary):  # noqa: PTH110
            os.unlink(temporary)  # noqa: PTH108


class _Finder(MetaPathFinder):
    """Answers for the names of installed trees."""

    def __init__(self) -> None:
        self.trees: dict[str, Tree] = {}
        self.packs: dict[str, _Pack] = {}

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
            loader = _Source(fullname, place, tree, digest)
            return _spec(fullname, place, loader)
        return spec_from_file_location(fullname, place, loader=ExtensionFileLoader(fullname, place))


def _spec(fullname: str, place: str, loader: _Source) -> ModuleSpec:
    folder, _, file = place.rpartition(os.sep)
    spec = ModuleSpec(fullname, loader, origin=place)
    spec.has_location = True
    if file == "__init__.py":
        spec.submodule_search_locations = [folder]
    if not sys.pycache_prefix:  # what Python would work out slowly
        spec.cached = f"{folder}/__pycache__/{file[:-3]}.{sys.implementation.cache_tag}.pyc"
    return spec


def _namespace(fullname: str, tree: Tree, rest: str) -> ModuleSpec:
    spec = ModuleSpec(fullname, None, is_package=True)
    folder = os.path.join(tree.directory, *rest.split("."))  # noqa: PTH118
    spec.submodule_search_locations = [folder]
    return spec


_finder: Final = _Finder()


def install(tree: Tree) -> None:
    """Let the import of a tree's name and of all below it come from the tree."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.trees[tree.name] = tree


def forget(name: str) -> None:
    """Take a tree and all its modules away, so that nothing half-loaded stays."""
    _finder.trees.pop(name, None)
    below = f"{name}."
    for module in [m for m in sys.modules if m == name or m.startswith(below)]:
        del sys.modules[module]
