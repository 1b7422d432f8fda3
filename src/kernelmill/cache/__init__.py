"""Compiled bundles by the digest of everything that made them; no compiler is run here.

`Bundle` is also the form of saved plans and exported packages: one writer, one reader. The modules
below are imported when a name of theirs is first asked for: those who want a key need no bundles.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from kernelmill.config import get_config

if TYPE_CHECKING:
    from pathlib import Path

    from kernelmill.cache.bundle import (
        Attribute,
        Bundle,
        EntryPoint,
        Image,
        read_bundle,
        write_bundle,
    )
    from kernelmill.cache.disk import Cache, CacheInfo
    from kernelmill.cache.key import digest
    from kernelmill.cache.store import Removed

__all__ = [
    "Attribute",
    "Bundle",
    "Cache",
    "CacheInfo",
    "EntryPoint",
    "Image",
    "Removed",
    "clear",
    "default_cache",
    "digest",
    "info",
    "read_bundle",
    "write_bundle",
]

_LOCK_SPARE = 60.0  # seconds that a build may take beside its compiler
_LATE: Final = {
    "Attribute": "bundle",
    "Bundle": "bundle",
    "Cache": "disk",
    "CacheInfo": "disk",
    "EntryPoint": "bundle",
    "Image": "bundle",
    "Removed": "store",
    "digest": "key",
    "read_bundle": "bundle",
    "write_bundle": "bundle",
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    globals()[name] = value
    return value


def default_cache() -> Cache:
    """Return the cache that the settings name, the same object as long as they stay the same.

    Raises
    ------
    ConfigError
        A setting cannot be used.

    Examples
    --------
    >>> from kernelmill.cache import default_cache
    >>> from kernelmill.config import get_config
    >>> default_cache().root == get_config().cache_dir
    True
    """
    config = get_config()
    return _cache(config.cache_dir, config.cache_size, config.cxx_timeout + _LOCK_SPARE)


@lru_cache(maxsize=16)
def _cache(root: Path, max_bytes: int, lock_timeout: float) -> Cache:
    from kernelmill.cache.disk import Cache  # noqa: PLC0415 - as above

    return Cache(root, max_bytes, lock_timeout=lock_timeout)


def info() -> CacheInfo:
    """Return what the cache of the settings holds; see `Cache.info`."""
    return default_cache().info()


def clear() -> Removed:
    """Empty the cache of the settings; see `Cache.clear`."""
    return default_cache().clear()
