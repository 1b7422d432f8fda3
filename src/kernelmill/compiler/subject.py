"""What there is to look at in a kernel before it is compiled: its IR, its text, how it is compiled.

An object that can be inspected has `__kernelmill_inspect__(*types, arch=None)`, which returns one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelmill.toolchain.nvrtc import CudaOptions

__all__ = ["Subject"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel as text; `file` is what its lines are called, unless `#line` says otherwise.

    A first `#line` must stand before the head of a function: what is inlined into one is counted
    for the file of its head.

    `options` are None for text of the host, which is shown and not compiled.
    """

    name: str
    file: str
    cpp: str = field(repr=False)
    options: CudaOptions | None
    ir: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
