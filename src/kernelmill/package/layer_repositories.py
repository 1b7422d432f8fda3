"""Where layers for `kernelize` come from: registries, directories, locks. Loaded when first needed.

Arguments are those of the classes of the same names in `kernels`; versions may be ranges, too.
"""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import PackageError
from kernelmill.package.layers import function_layer, use_kernel_forward_from_hub
from kernelmill.package.lock_find import caller, find_lock
from kernelmill.package.lock_load import load_found

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from kernelmill.package.lock_find import FoundLock

__all__ = [
    "FuncRepository",
    "LayerRepository",
    "LocalFuncRepository",
    "LocalLayerRepository",
    "LockedFuncRepository",
    "LockedLayerRepository",
    "use_kernel_func_from_hub",
]

_logger: Final = logging.getLogger("kernelmill")


def _layer(kernel: ModuleType, name: str, place: str) -> type[Any]:  # Any: a class of torch
    layers = getattr(kernel, "layers", None)
    if layers is None:
        raise PackageError(f"{place}: the kernel defines no layers")
    found = getattr(layers, name, None)
    if found is None:
        there = ", ".join(n for n in vars(layers) if not n.startswith("_"))
        raise PackageError(f"{place}: the kernel has no layer {name!r}; it has: {there or 'none'}")
    layer: type[Any] = found
    return layer


def _function(kernel: ModuleType, name: str, place: str) -> type[Any]:  # Any: a class of torch
    found = getattr(kernel, name, None)
    if found is None:
        raise PackageError(f"{place}: the kernel has no function {name!r}")
    return function_layer(found)


def _loaders() -> Any:  # Any: a module, imported late because it re-exports this one
    return importlib.import_module("kernelmill.package.kernels_shim")


@dataclass(frozen=True, slots=True)
class _Source:
    """What identifies a kernel and a name in it; two repositories are equal when these are."""

    kind: str
    where: str
    name: str
    version: int | str | None = None
    revision: str | None = None
    trust: bool | tuple[str, ...] = False
    lock: str = ""


class _Repository:
    """What all have in common: equality by what is named, and a lock or address in words."""

    _source: _Source

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Repository) and self._source == other._source

    def __hash__(self) -> int:
        return hash(self._source)

    def __str__(self) -> str:
        source = self._source
        version = source.revision or (f"version {source.version}" if source.version else "")
        inner = ", ".join(part for part in (version, f"{source.kind} {source.name}") if part)
        return f"{source.where} ({inner})"

    def _take(self, kernel: ModuleType) -> type[Any]:  # Any: a class of torch
        take = _layer if self._source.kind == "layer" else _function
        return take(kernel, self._source.name, str(self))


def _trust(value: bool | list[str]) -> bool | tuple[str, ...]:  # noqa: FBT001 - as in `kernels`
    return tuple(value) if isinstance(value, list) else value


class _Published(_Repository):
    """In a registry, by version or revision; resolved when it is loaded, not before."""

    def __init__(
        self,
        source: _Source,
        user_agent: str | dict[str, str] | None = None,
    ) -> None:
        if (source.version is None) == (source.revision is None):
            found = "both" if source.version is not None else "neither"
            raise PackageError(
                f"{source.where}: {found} of version and revision are given; accepted: one of them"
            )
        self._source = source
        self._user_agent = user_agent

    def load(self) -> type[Any]:  # Any: a class of torch
        """Download the kernel where need be, and return the layer's class."""
        source = self._source
        trust = list(source.trust) if isinstance(source.trust, tuple) else source.trust
        kernel = _loaders().get_kernel(
            source.where,
            version=source.version,
            revision=source.revision,
            trust_remote_code=trust,
            user_agent=self._user_agent,
        )
        return self._take(kernel)


class LayerRepository(_Published):
    """A layer of a published kernel.

    Parameters
    ----------
    repo_id
        `organization/name`.
    layer_name
        The layer's name in the kernel's `layers`.
    revision, version
        One of them: a branch, tag or commit; an integer or a range.
    trust_remote_code
        Whether an unknown publisher is trusted, or which repositories are.
    user_agent
        Sent along with requests.

    Examples
    --------
    >>> from kernelmill.package.layer_repositories import LayerRepository
    >>> str(LayerRepository("org/activation", layer_name="SiluAndMul", version=1))
    'org/activation (version 1, layer SiluAndMul)'
    """

    def __init__(
        self,
        repo_id: str,
        *,
        layer_name: str,
        revision: str | None = None,
        version: int | str | None = None,
        trust_remote_code: bool | list[str] = False,
        user_agent: str | dict[str, str] | None = None,
    ) -> None:
        self.layer_name = layer_name
        trust = _trust(trust_remote_code)
        source = _Source("layer", repo_id, layer_name, version, revision, trust)
        super().__init__(source, user_agent)


class LocalLayerRepository(_Repository):
    """A layer of a kernel in a directory.

    Parameters
    ----------
    repo_path
        The kernel's directory.
    layer_name
        The layer's name in the kernel's `layers`.
    """

    def __init__(self, repo_path: Path, *, layer_name: str) -> None:
        self.layer_name = layer_name
        self._source = _Source("layer", str(repo_path), layer_name)

    def load(self) -> type[Any]:  # Any: a class of torch
        """Return the layer's class."""
        return self._take(_loaders().get_local_kernel(Path(self._source.where)))


class _Locked(_Repository):
    """In a registry, at the commit that a lock names; the lock is read at once."""

    def __init__(self, source: _Source, found: FoundLock) -> None:
        found.lock.find(source.where)
        self._found = found
        self._source = source

    def load(self) -> type[Any]:  # Any: a class of torch
        """Download the kernel where need be, and return the layer's class."""
        source = self._source
        trust = list(source.trust) if isinstance(source.trust, tuple) else source.trust
        kernel = load_found(self._found, source.where, trust=trust)
        return self._take(kernel)


class LockedLayerRepository(_Locked):
    """A layer of a kernel that the project has locked.

    Parameters
    ----------
    repo_id
        `organization/name`.
    lockfile
        A lock; None for that of the calling code.
    layer_name
        The layer's name in the kernel's `layers`.
    trust_remote_code
        As for `LayerRepository`.

    Raises
    ------
    LockError
        There is no lock, or it has no such kernel.
    """

    def __init__(
        self,
        repo_id: str,
        *,
        lockfile: Path | None = None,
        layer_name: str,
        trust_remote_code: bool | list[str] = False,
    ) -> None:
        self.layer_name = layer_name
        found = find_lock(caller(), lockfile)
        trust = _trust(trust_remote_code)
        text = found.lock.text() if not getattr(found.lock, "old", False) else found.place
        source = _Source("layer", repo_id, layer_name, trust=trust, lock=text)
        super().__init__(source, found)


# ----------------------------------------------------------------------------- functions


def _deprecated(name: str, instead: str) -> None:
    _logger.warning("%s is deprecated in `kernels`; use %s", name, instead)


class FuncRepository(_Published):
    """A function of a published kernel; deprecated in `kernels`, and kept for its users.

    Parameters
    ----------
    repo_id, revision, version, trust_remote_code
        As for `LayerRepository`.
    func_name
        The function's name in the kernel.
    """

    def __init__(
        self,
        repo_id: str,
        *,
        func_name: str,
        revision: str | None = None,
        version: int | str | None = None,
        trust_remote_code: bool | list[str] = False,
    ) -> None:
        _deprecated("FuncRepository", "LayerRepository")
        self.func_name = func_name
        trust = _trust(trust_remote_code)
        super().__init__(_Source("function", repo_id, func_name, version, revision, trust))


class LocalFuncRepository(_Repository):
    """A function of a kernel in a directory; deprecated in `kernels`, and kept for its users.

    Parameters
    ----------
    repo_path
        The kernel's directory.
    func_name
        The function's name in the kernel.
    """

    def __init__(self, repo_path: Path, *, func_name: str) -> None:
        _deprecated("LocalFuncRepository", "LocalLayerRepository")
        self.func_name = func_name
        self._source = _Source("function", str(repo_path), func_name)

    def load(self) -> type[Any]:  # Any: a class of torch
        """Return a class of modules that call the function."""
        return self._take(_loaders().get_local_kernel(Path(self._source.where)))


class LockedFuncRepository(_Locked):
    """A function of a locked kernel; deprecated in `kernels`, and kept for its users.

    Parameters
    ----------
    repo_id, lockfile, trust_remote_code
        As for `LockedLayerRepository`.
    func_name
        The function's name in the kernel.
    """

    def __init__(
        self,
        repo_id: str,
        *,
        lockfile: Path | None = None,
        func_name: str,
        trust_remote_code: bool | list[str] = False,
    ) -> None:
        _deprecated("LockedFuncRepository", "LockedLayerRepository")
        self.func_name = func_name
        found = find_lock(caller(), lockfile)
        text = found.lock.text() if not getattr(found.lock, "old", False) else found.place
        trust = _trust(trust_remote_code)
        super().__init__(_Source("function", repo_id, func_name, trust=trust, lock=text), found)


def use_kernel_func_from_hub(func_name: str) -> Callable[[Any], Any]:
    """Return a decorator that makes a named module of a function; deprecated in `kernels`.

    Parameters
    ----------
    func_name
        The name in mappings.
    """
    _deprecated("use_kernel_func_from_hub", "use_kernel_forward_from_hub")
    return use_kernel_forward_from_hub(func_name)
