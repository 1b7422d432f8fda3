"""Where builds keep what they fetch and compile, and a private place where that cannot be written.

What is kept there is known to `wheels`, `headers`, `objects` and others.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Final

from kernelmill import events
from kernelmill.config import get_config
from kernelmill.errors import CacheWarning

__all__ = ["build_cache"]

_PRIVATE: Final = "kernelmill-private-build-"
_deciding: Final = threading.Lock()


def build_cache() -> Path:
    """Return the directory where builds keep headers, wheels and objects; it is there.

    Where it cannot be made or written, it is a temporary one that goes when the process ends, and a
    `CacheWarning` says so once.

    Raises
    ------
    OSError
        There is no temporary directory either.
    """
    with _deciding:
        return _decided(get_config().cache_dir)


@functools.lru_cache(maxsize=64)
def _decided(cache: Path) -> Path:
    place = cache / "build"
    try:
        place.mkdir(parents=True, exist_ok=True)
        if os.access(place, os.W_OK | os.X_OK):
            return place
        reason = f"{place} cannot be written to"
    except OSError as error:
        reason = f"{(error.strerror or str(error)).lower()} ({error.filename})"
    private = Path(tempfile.mkdtemp(prefix=_PRIVATE))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    file, line = events.caller()
    warnings.warn_explicit(
        f"what builds fetch and compile cannot be kept in {place}: {reason}; this process keeps it "
        f"in {private} until it ends; set KERNELMILL_CACHE_DIR to a directory of yours",
        CacheWarning,
        file or __file__,
        line or 1,
    )
    return private
