"""Arrays that operators capture: which objects are some, their element type and how they lie.

Nothing is read from their memory here, and nothing is said about where it is.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.dtypes import DType, StructType, dtype_of
from kernelmill.errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ArrayType", "array_type", "extent", "stride"]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayType:
    """What an operator is compiled for: one object for each choice, compared by identity.

    `contiguous` says that the elements lie in C order without gaps.
    """

    dtype: DType | StructType
    ndim: int
    contiguous: bool

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(':' * self.ndim)}]"


@functools.cache
def _made(dtype: DType | StructType, ndim: int, contiguous: bool) -> ArrayType:  # noqa: FBT001 - a key
    return ArrayType(dtype, ndim, contiguous)


@functools.lru_cache(maxsize=256)
def _numpy_type(dtype: object, ndim: int, contiguous: bool) -> ArrayType | None:  # noqa: FBT001 - a key
    try:
        return _made(dtype_of(dtype), ndim, contiguous)
    except DTypeError:
        return None


def array_type(value: Any) -> ArrayType | None:  # Any: an object of the user's scope
    """Return the type with which an array is captured; None for what is no array that is served.

    Arrays are those of NumPy, tensors of torch, and objects with `__cuda_array_interface__`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compiler.arrays import array_type
    >>> print(array_type(np.zeros((2, 3), np.float32)), array_type([1, 2]))
    float32[:, :] None
    """
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            return None
        return _numpy_type(value.dtype, value.ndim, value.flags.c_contiguous)
    found = _described(value)
    if found is None:
        return None
    dtype, shape, strides = found
    size = getattr(dtype, "itemsize", 0)
    return _made(dtype, len(shape), strides is None or _is_contiguous(shape, strides, size))


def extent(value: Any, dim: int) -> int | None:  # Any: as above
    """Return how many elements an array has in a dimension; None for what is none."""
    shape = getattr(value, "shape", None)
    if shape is None:
        found = _described(value)
        shape = () if found is None else found[1]
    return int(shape[dim]) if dim < len(shape) else None


def stride(value: Any, dim: int) -> int | None:  # Any: as above
    """Return how many bytes lie between neighbours in a dimension; None for what is no array."""
    if isinstance(value, np.ndarray):
        return int(value.strides[dim]) if dim < value.ndim else None
    found = _described(value)
    if found is None or dim >= len(found[1]):
        return None
    dtype, shape, strides = found
    if strides is not None:
        return int(strides[dim])
    step = dtype.itemsize
    for n in shape[dim + 1 :]:
        step *= n
    return step


_Described = tuple["DType | StructType", "Sequence[int]", "Sequence[int] | None"]
_TORCH: Final = "torch"


def _described(value: Any) -> _Described | None:
    """Return element type, shape and strides in bytes of an array that is not NumPy's."""
    torch = sys.modules.get(_TORCH)
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            dtype = dtype_of(value.dtype)
            return dtype, tuple(value.shape), tuple(s * dtype.itemsize for s in value.stride())
        if isinstance(value, type):  # the interface is a property of its objects
            return None
        interface = getattr(value, "__cuda_array_interface__", None)
        if not isinstance(interface, dict):
            return None
        descr = interface.get("descr")
        spelled = descr if interface["typestr"].startswith("|V") and descr else interface["typestr"]
        # Unlike np.dtype, this takes fields without a name for what they are: padding.
        dtype = dtype_of(np.lib.format.descr_to_dtype(spelled))
        return dtype, tuple(interface["shape"]), interface.get("strides")
    except (DTypeError, TypeError):
        return None


def _is_contiguous(shape: Sequence[int], strides: Sequence[int], size: int) -> bool:
    if 0 in shape:
        return True
    for n, step in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and step != size:
            return False
        size *= n
    return True
