"""Compiled bundles by the digest of everything that made them; no compiler is run here.

`Bundle` is also the form of saved plans and exported packages: one writer, one reader.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kernelmill.cache.bundle import Attribute, Bundle, EntryPoint, Image, read_bundle, write_bundle
from kernelmill.cache.disk import Cache, CacheInfo
from kernelmill.cache.key import digest
from kernelmill.cache.store import Removed
from kernelmill.config import get_config

if TYPE_CHECKING:
    from pathlib import Path

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
    return Cache(root, max_bytes, lock_timeout=lock_timeout)


def info() -> CacheInfo:
    """Return what the cache of the settings holds; see `Cache.info`."""
    return default_cache().info()


def clear() -> Removed:
    """Empty the cache of the settings; see `Cache.clear`."""
    return default_cache().clear()
