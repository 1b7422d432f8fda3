"""The one loader: a variant's directory becomes a module, after its bytes were verified.

What must hold is said by the caller (`verify=`, made by `policy`); `hub` chooses the variant,
downloads it and resolves what it depends on. Each kernel gets a module name of its own, so versions
live side by side; where two would claim one namespace of `torch.ops`, the second is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import logging
import os
import sys
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.errors import IntegrityError, KernelImportError, PackageError
from kernelmill.package import finder, kernels_import
from kernelmill.package.digest import Digest, hash_variant, require_same
from kernelmill.package.metadata import FILE, Metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

__all__ = [
    "Candidate",
    "Loaded",
    "Origin",
    "get_kernel_dep",
    "load",
    "loaded",
    "loading_with",
    "read_candidate",
    "verify_digest",
]

SLOW_SECONDS: Final = 30.0
_IDLE_LOOKS: Final = 5
_MOST_METADATA: Final = 16 << 20
_logger: Final = logging.getLogger("kernelmill")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a kernel came from: the registry's URL, the repository and the whole commit id."""

    registry: str
    repo_id: str
    commit: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant as it lies on disk, hashed and not yet believed.

    Parameters
    ----------
    directory
        Where its files are.
    raw
        The bytes of `metadata.json`; a signature is over these.
    metadata
        What they say.
    digest
        Over all other files, as found.
    origin
        None for a local one.
    """

    directory: Path
    raw: bytes
    metadata: Metadata
    digest: Digest
    origin: Origin | None = None

    @property
    def name(self) -> str:
        """The variant's name, which is that of its directory."""
        return self.directory.name


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel that this process has loaded."""

    variant: Candidate
    module: ModuleType


@dataclass(slots=True)
class _State:
    """What was loaded, by module name, and who claims which namespace."""

    kernels: dict[str, Loaded] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    locks: dict[str, threading.RLock] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)


_state: Final = _State()
_dependencies: Final[ContextVar[Mapping[str, ModuleType] | None]] = ContextVar(
    "kernel dependencies", default=None
)


def read_candidate(
    directory: Path | str,
    *,
    origin: Origin | None = None,
    before_parsing: Callable[[bytes], None] | None = None,
) -> Candidate:
    """Read and hash a variant's directory.

    Parameters
    ----------
    directory
        With `metadata.json` and the files it is about.
    origin
        Where it came from.
    before_parsing
        Called with the bytes of `metadata.json`, so that a signature is checked before they are
        parsed; raises where they are refused.

    Raises
    ------
    PackageError
        There is no `metadata.json`, or it cannot be used.
    IntegrityError
        A link leaves the repository, or something is no file.
    """
    place = directory if isinstance(directory, Path) else Path(directory)
    raw = _read_metadata(place)
    if before_parsing is not None:
        before_parsing(raw)
    metadata = Metadata.parse(raw, place=f"{place}/{FILE}")
    if not metadata.id.isidentifier():
        raise IntegrityError(f"{place}/{FILE}: id is {metadata.id[:80]!r}; accepted: an identifier")
    algorithm = metadata.digest.algorithm if metadata.digest else "sha256"
    return Candidate(place, raw, metadata, hash_variant(place, algorithm), origin)


def _read_metadata(place: Path) -> bytes:
    path = f"{place}/{FILE}"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # quicker than a stream
        try:
            raw = os.read(handle, min(os.fstat(handle).st_size, _MOST_METADATA) + 1)
        finally:
            os.close(handle)
    except (FileNotFoundError, NotADirectoryError):
        raise PackageError(
            f"{place} has no {FILE}",
            hint="kernels published before metadata existed cannot be loaded any more",
        ) from None
    if len(raw) > _MOST_METADATA:
        raise PackageError(f"{path} is larger than {_MOST_METADATA >> 20} MiB")
    return raw


def verify_digest(variant: Candidate, *, required: bool = False) -> None:
    """Compare a variant's files with the digest in its metadata.

    Parameters
    ----------
    variant
        From `read_candidate`.
    required
        Whether a digest must be there.

    Raises
    ------
    IntegrityError
        A file is missing, unknown or another one; or there is no digest and it is required.
    """
    promised = variant.metadata.digest
    if promised is None:
        if required:
            raise IntegrityError(f"{variant.directory / FILE} holds no digest of the files")
        return
    require_same(variant.directory, promised, variant.digest)


# ----------------------------------------------------------------------------- loading


def load(
    variant: Candidate,
    *,
    verify: Callable[[Candidate], None] = verify_digest,
    dependencies: Mapping[str, ModuleType] | None = None,
) -> ModuleType:
    """Import a variant as a module of its own, once for the same bytes.

    Parameters
    ----------
    variant
        From `read_candidate`.
    verify
        Raises where the variant must not be imported. It runs before anything of it does.
    dependencies
        Repository → module, what `get_kernel_dep` gives while the kernel is imported.

    Returns
    -------
    module
        Named after the kernel's id and what it consists of; `module.__name__` differs between
        versions, and loading the same bytes again gives the same module.

    Raises
    ------
    PackageError
        What `verify` raises; or its namespace of `torch.ops` belongs to another kernel.
    KernelImportError
        The import raised, exited, or found a file missing. Nothing of it stays in `sys.modules`.
    """
    verify(variant)
    needs = dict(dependencies or {})
    root = variant.digest.root()
    name = _module_name(variant, root, needs)
    with _state.guard:
        lock = _state.locks.setdefault(name, threading.RLock())
    with lock:
        kept = _state.kernels.get(name)
        if kept is not None:
            return kept.module
        with _claim(variant, name):
            module = _import(variant, root, name, needs)
            _state.kernels[name] = Loaded(variant, module)
        return module


def loaded() -> tuple[Loaded, ...]:
    """Return the kernels that this process has loaded, in the order of loading."""
    return tuple(_state.kernels.values())


def _module_name(variant: Candidate, root: str, needs: Mapping[str, ModuleType]) -> str:
    whole = hashlib.sha256(root.encode())
    for repo_id, module in sorted(needs.items()):
        whole.update(f"\0{repo_id}\0{module.__name__}".encode())
    return f"{variant.metadata.id}__{whole.hexdigest()[:16]}"


@contextlib.contextmanager
def _claim(variant: Candidate, name: str) -> Iterator[None]:
    """Hold the namespace of operators while the kernel is imported, and after it succeeded."""
    space = variant.metadata.id
    with _state.guard:
        owner = _state.claims.get(space)
        if owner is not None or space in sys.modules:
            _refuse_clash(variant, name, owner)
        _state.claims[space] = name
    try:
        yield
    except BaseException:
        with _state.guard:
            if owner is None:
                _state.claims.pop(space, None)
            else:
                _state.claims[space] = owner
        raise


def _refuse_clash(variant: Candidate, name: str, owner: str | None) -> None:
    """Refuse a second kernel of the same id where both would register operators under it."""
    space = variant.metadata.id
    native = any(path.endswith((".so", ".pyd", ".dylib")) for path in variant.digest.files)
    if not native and not _has_operators(space):
        return
    first = _state.kernels.get(owner) if owner else None
    if owner is None:
        module = sys.modules.get(space)
        place: object = Path(getattr(module, "__file__", None) or ".").parent
        if _same_place(place, variant.directory):
            return
    else:
        place = first.variant.directory if first else owner
    raise PackageError(
        f"the kernel {variant.metadata.name} in {variant.directory} registers its operators as "
        f"torch.ops.{space}, which the kernel loaded from {place} has taken ({name})",
        hint="build one of them again: kernels from different sources get different ids",
    )


def _same_place(one: object, other: Path) -> bool:
    return isinstance(one, Path) and one.resolve() == other.resolve()


def _has_operators(space: str) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    names: list[str] = torch._C._dispatch_get_all_op_names()  # noqa: SLF001 - there is no other way to ask
    return any(name.startswith(f"{space}::") for name in names)


def _import(
    variant: Candidate, root: str, name: str, needs: Mapping[str, ModuleType]
) -> ModuleType:
    tree = _tree(variant, name)
    finder.install(tree)
    said = f"the kernel {variant.metadata.name} ({variant.directory})"
    try:
        with loading_with(needs), _watch.over(said), finder.packed(tree, root):
            return importlib.import_module(name)
    except SystemExit as error:
        finder.forget(name)
        raise KernelImportError(
            f"{said} called sys.exit({error.code!r}) while it was imported; nothing of it stays"
        ) from error
    except Exception as error:
        finder.forget(name)
        raise KernelImportError(
            f"{said} raised {type(error).__name__} while it was imported: {error}",
            hint="its own traceback is above; nothing of it stays loaded",
        ) from error
    except BaseException:
        finder.forget(name)
        raise


def _tree(variant: Candidate, name: str) -> finder.Tree:
    files = variant.digest.hexadecimal()
    legacy = f"{variant.metadata.python_name}/"
    prefix = "" if "__init__.py" in files else legacy
    if f"{prefix}__init__.py" not in files:
        raise KernelImportError(
            f"{variant.directory} has neither __init__.py nor {legacy}__init__.py"
        )
    directory = str(variant.directory / prefix)
    return finder.Tree(name, directory, prefix, variant.digest.algorithm, files)


class _Watch:
    """A thread that says in the log which imports do not end; none can be stopped from outside.

    It looks now and then while there is something to look at, and is not woken for each import.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._running: dict[object, tuple[float, str]] = {}
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def over(self, said: str) -> Iterator[None]:
        """Watch over an import."""
        key = object()
        with self._guard:
            self._running[key] = (time.monotonic(), said)
            if self._thread is None or not self._thread.is_alive():  # also after a fork
                self._thread = threading.Thread(target=self._look, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._guard:
                self._running.pop(key, None)

    def _look(self) -> None:
        told: set[object] = set()
        idle = 0
        while idle < _IDLE_LOOKS:
            time.sleep(min(1.0, SLOW_SECONDS))
            with self._guard:
                now = time.monotonic()
                late = {k: v for k, v in self._running.items() if now - v[0] >= SLOW_SECONDS}
                idle = 0 if self._running else idle + 1
            for key in set(late) - told:
                begun, said = late[key]
                text = "importing %s has taken %.0f s; Ctrl-C stops it"
                _logger.warning(text, said, now - begun)
            told = set(late)


_watch: Final = _Watch()


# ----------------------------------------------------------------------------- dependencies


@contextlib.contextmanager
def loading_with(needs: Mapping[str, ModuleType]) -> Iterator[None]:
    """Let `get_kernel_dep` answer from `needs`, also that of the distribution `kernels`."""
    kernels_import.offer(_is_kernel)
    token = _dependencies.set(needs)
    try:
        with _bridge(needs):
            yield
    finally:
        _dependencies.reset(token)


def _is_kernel(name: str) -> bool:
    """Whether a top-level module is a kernel that is loaded, or was begun to be."""
    return name in _state.locks


def _bridge(needs: Mapping[str, ModuleType]) -> contextlib.AbstractContextManager[object]:
    """Tell Hugging Face's own `get_kernel_dep`, where it is there and the kernel may ask it."""
    if not needs or importlib.util.find_spec("kernels") is None:
        return contextlib.nullcontext()
    importlib.import_module("kernels")
    use = getattr(sys.modules.get("kernels.deps"), "use_kernel_deps", None)
    if use is None:
        return contextlib.nullcontext()
    made: contextlib.AbstractContextManager[object] = use(dict(needs))
    return made


def get_kernel_dep(repo_id: str) -> ModuleType:
    """Return a kernel that the one being imported depends on.

    Raises
    ------
    PackageError
        No kernel is being imported, or it does not declare that dependency.
    """
    needs = _dependencies.get()
    if needs is None:
        raise PackageError("get_kernel_dep works only while a kernel is imported")
    module = needs.get(repo_id)
    if module is None:
        declared = ", ".join(sorted(needs)) or "none"
        raise PackageError(
            f"the kernel that is imported does not depend on {repo_id!r}; it declares: {declared}",
            hint="add it to `kernel-depends` in build.toml",
        )
    return module
