"""The texts that device code includes here: those of a GPU, with a twin for prims.cuh."""

from __future__ import annotations

from functools import cache as once
from types import MappingProxyType
from typing import TYPE_CHECKING

from kernelmill.runtime.cuda.templates import device_headers
from kernelmill.runtime.emulator.sources import HERE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["emulator_headers"]


@once
def emulator_headers() -> Mapping[str, str]:
    """Return the texts by the names they are included by.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.templates import emulator_headers
    >>> "km_emu" in emulator_headers()["prims.cuh"]
    True
    """
    texts = dict(device_headers())
    twin = (HERE / "prims.hpp").read_text(encoding="utf-8")
    texts["prims.cuh"] = twin.replace('#include "', '#include "emulator/')
    return MappingProxyType(texts)
