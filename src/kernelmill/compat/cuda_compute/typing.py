"""What the algorithms take, as types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from kernelmill.compat.cuda_compute.iterator_base import IteratorBase
from kernelmill.compat.cuda_compute.op import OpKind, RawOp

__all__ = ["DeviceArrayLike", "GpuStruct", "IteratorT", "Operator", "StreamLike"]


class DeviceArrayLike(Protocol):
    """An array in the memory of a GPU."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Address, shape and type."""
        ...


class StreamLike(Protocol):
    """A stream of any library."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the version of the protocol, and the handle."""
        ...


GpuStruct: TypeAlias = Any
IteratorT: TypeAlias = IteratorBase
Operator: TypeAlias = OpKind | RawOp | Callable[..., Any]
