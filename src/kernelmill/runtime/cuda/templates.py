"""The texts that device code includes: `device/*.cuh`, and the host's files that serve both sides.

`base.hpp` is device/base.cuh there: the one name behind which host and device differ.
"""

from __future__ import annotations

from functools import cache as once
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["device_headers"]

_PACKAGE: Final = Path(__file__).resolve().parent.parent.parent
# What a device never has: tables of calls, thread pools, vector registers.
_SHARED: Final = (
    "scalar",
    "complex",
    "complex_abs",
    "elements",
    "places",
    "remainder",
    "vmath*",
    "scan_keys",
)


@once
def device_headers() -> Mapping[str, str]:
    """Return the texts by the names they are included by.

    Examples
    --------
    >>> from kernelmill.runtime.cuda.templates import device_headers
    >>> "prims.cuh" in device_headers(), "pool.h" in device_headers()
    (True, False)
    """
    files = [*(_PACKAGE / "device").glob("*.cuh")]
    files += [path for stem in _SHARED for path in (_PACKAGE / "host").glob(f"{stem}.hpp")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(files)}
    texts["base.hpp"] = texts.pop("base.cuh")
    return MappingProxyType(texts)
