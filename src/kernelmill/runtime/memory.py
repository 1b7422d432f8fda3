"""Arrays of other libraries as memory: in as a `View`, out in the library that came in.

What is accepted, and the error texts of what is not, stand here. Shapes of results, promotion and
broadcasting do not; pointers are read by the native call path.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

import numpy as np

from kernelmill.dtypes import DType, StructType, dtype_of
from kernelmill.errors import ArgumentError, DeviceError, DTypeError
from kernelmill.runtime.native import native

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "POOLED_FROM",
    "QUICK_TYPES",
    "Library",
    "View",
    "array_of",
    "as_view",
    "check_output",
    "copied",
    "empty_like_library",
    "empty_numpy",
    "fill",
    "is_on_cuda",
    "may_overlap",
]

Library: TypeAlias = Literal["numpy", "torch", "buffer", "dlpack"]

POOLED_FROM: Final = 256 << 10  # bytes; below, NumPy's own small-block cache is quicker
# Types of arrays and scalars, beside those of NumPy, whose calls have a short way; libraries are
# added when an array on a device is first seen.
QUICK_TYPES: Final[set[type]] = set()
OVERLAP_WORK: Final = 10_000  # steps of NumPy's exact test; then it answers "perhaps"
_ACCEPTED: Final = "a NumPy array, a buffer, a CPU torch tensor or an object with __dlpack__"
_AS_ARRAY: Final = "pass `np.asarray({name})`"
_CUDA_KINDS: Final = (2, 3, 13)  # kDLCUDA, kDLCUDAHost, kDLCUDAManaged
_DEVICE_KINDS: Final = (2, 13)  # those of them that a kernel reads and only a device holds
_HOST_KINDS: Final = (1, 3)  # kDLCPU, kDLCUDAHost


@dataclass(frozen=True, slots=True)
class View:
    """An array that somebody else owns, as memory on the host.

    Parameters
    ----------
    ptr
        Address of the element at index 0, 0, ...
    shape, strides
        One number a dimension; strides in bytes, of either sign or zero.
    dtype
        Type of an element.
    readonly
        Whether the owner forbids writing.
    owner
        Keeps the memory alive as long as the view lives.
    library
        Where the array came from: the library in which results are returned.
    """

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType | StructType
    readonly: bool
    owner: object = field(repr=False)
    library: Library

    @property
    def place(self) -> str | None:
        """The device whose memory it is in, such as "cuda:0"; None for the host."""
        return None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, each counted as often as it is seen."""
        return self.size * self.dtype.itemsize

    @property
    def is_c_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        step = self.dtype.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != step and self.size:
                return False
            step *= extent
        return True

    @property
    def is_aligned(self) -> bool:
        """Whether every element lies where a C compiler would put it."""
        unit = self.dtype.alignment
        return self.ptr % unit == 0 and all(
            stride % unit == 0
            for extent, stride in zip(self.shape, self.strides, strict=True)
            if extent > 1
        )

    @property
    def bounds(self) -> tuple[int, int]:
        """First address, and the one after the last; equal when there is no element."""
        low = high = self.ptr
        if not self.size:
            return low, low
        for extent, stride in zip(self.shape, self.strides, strict=True):
            reach = (extent - 1) * stride
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high + self.dtype.itemsize

    @property
    def overlaps_itself(self) -> bool:
        """Whether two elements may share bytes: surely when a dimension is broadcast."""
        steps = sorted(
            (abs(stride), extent)
            for extent, stride in zip(self.shape, self.strides, strict=True)
            if extent > 1
        )
        reach = self.dtype.itemsize
        for stride, extent in steps:
            if stride < reach:
                return bool(self.size)
            reach += stride * (extent - 1)
        return False


def as_view(obj: object, name: str, *, writable: bool = False) -> View:
    """Return an array of any accepted library as memory.

    Parameters
    ----------
    obj
        A NumPy array or scalar, an object with the buffer protocol (`bytearray`, `array.array`,
        `memoryview`, `mmap`, ...), a torch tensor on the CPU, or any object with `__dlpack__` on
        the CPU; of any shape and strides. Buffers are pinned: they cannot be resized or closed
        while the view lives.
    name
        The name of the argument, for error texts.
    writable
        Whether it is an output: then it may be neither read-only nor broadcast.

    Raises
    ------
    ArgumentError
        It is no array, or not one that can be read or written here.
    DTypeError
        Its dtype is not served: object, byte-swapped, string, ...
    DeviceError
        It is on another device.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.runtime.memory import as_view
    >>> view = as_view(np.zeros((2, 3), np.float32)[:, ::-1], "x")
    >>> view.shape, view.strides, view.dtype
    ((2, 3), (12, -4), kernelmill.float32)
    """
    view = _view(obj, name)
    if writable:
        check_output(view, name)
    return view


def _view(obj: object, name: str) -> View:
    if isinstance(obj, np.ndarray):
        return _of_ndarray(obj, name, "numpy")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, getattr(torch, "Tensor", ())):
        return _of_tensor(obj, name)
    if isinstance(obj, np.generic):
        return _of_ndarray(np.asarray(obj), name, "numpy", readonly=True)
    if isinstance(obj, (bool, int, float, complex, str, list, tuple, range, set, dict)):
        _refuse(obj, name)
    if hasattr(obj, "__dlpack__"):
        return _of_dlpack(obj, name)
    if hasattr(obj, "__cuda_array_interface__"):
        _refuse_device(name, f"a {_kind(obj)} in the memory of a CUDA device")
    return _of_buffer(obj, name)


def _of_ndarray(
    array: np.ndarray[Any, np.dtype[Any]],
    name: str,
    library: Library,
    *,
    readonly: bool = False,
) -> View:
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise ArgumentError(
            f"argument {name!r} is a masked array; accepted: arrays without a mask",
            hint=f"pass `{name}.filled(...)` or `{name}.data`",
        )
    ptr, _, _, shape, strides, locked = native().address(array)
    dtype = _element_type(array.dtype, name)
    return View(ptr, shape, strides, dtype, locked or readonly, array, library)


def _of_buffer(obj: object, name: str) -> View:
    try:
        pinned = memoryview(obj)  # type: ignore[arg-type]  # the test of whether it is one
    except TypeError:
        _refuse(obj, name)
    except (ValueError, BufferError) as error:
        raise ArgumentError(
            f"argument {name!r} is a {_kind(obj)} that is closed or cannot be read: {error}",
            hint="pass a buffer that is open",
        ) from error
    try:
        array = np.asarray(pinned)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise DTypeError(
            f"argument {name!r} is a {_kind(obj)} of format {pinned.format!r}, "
            "which is no dtype of NumPy",
            hint="cast it, for example `memoryview(x).cast('B')`",
        ) from error
    return _of_ndarray(array, name, "buffer")


def _of_dlpack(obj: Any, name: str) -> View:  # Any: an object with __dlpack__
    kind, number = obj.__dlpack_device__()
    if int(kind) not in _HOST_KINDS:
        place = f"cuda:{number}" if int(kind) in _CUDA_KINDS else f"DLPack device {int(kind)}"
        _refuse_device(name, f"a {_kind(obj)} on {place}")
    try:
        try:
            capsule = obj.__dlpack__(max_version=(1, 0))
        except TypeError:  # it is older than version 1
            capsule = obj.__dlpack__()
        ptr, _, spelling, shape, strides, readonly = native().address(capsule)
    except (BufferError, RuntimeError, ValueError) as error:
        raise ArgumentError(
            f"argument {name!r} is a {_kind(obj)} that does not export its memory: {error}",
            hint=_AS_ARRAY.format(name=name),
        ) from error
    dtype = _element_type(spelling, name)
    return View(ptr, shape, strides, dtype, readonly, (obj, capsule), "dlpack")


# What makes a torch tensor more than memory: test, what it is, what to call.
_TENSOR_RULES: Final[tuple[tuple[Callable[[Any], bool], str, str], ...]] = (
    (lambda t: t.layout is not sys.modules["torch"].strided, "is not strided", "to_dense()"),
    (lambda t: t.requires_grad, "requires grad", "detach()"),
    (lambda t: t.is_conj(), "is a lazy conjugate", "resolve_conj()"),
    (lambda t: t.is_neg(), "is a lazy negative", "resolve_neg()"),
)


def _of_tensor(tensor: Any, name: str) -> View:  # Any: torch is never imported here
    if tensor.device.type != "cpu":
        _refuse_device(name, f"a torch tensor on {tensor.device}")
    for applies, found, remedy in _TENSOR_RULES:
        if applies(tensor):
            raise ArgumentError(
                f"argument {name!r} is a torch tensor that {found}; accepted: plain CPU tensors",
                hint=f"pass `{name}.{remedy}`",
            )
    dtype = _element_type(tensor.dtype, name)
    try:
        ptr = tensor.data_ptr()
    except RuntimeError as error:
        raise ArgumentError(
            f"argument {name!r} is a torch tensor without memory: {error}",
            hint="pass a tensor that holds data",
        ) from error
    shape = tuple(tensor.shape)
    if not ptr and math.prod(shape):
        raise ArgumentError(
            f"argument {name!r} is a torch tensor whose storage was freed",
            hint="pass a tensor that holds data",
        )
    item = dtype.itemsize
    strides = tuple(step * item for step in tensor.stride())
    return View(ptr, shape, strides, dtype, False, tensor, "torch")  # noqa: FBT003


@lru_cache(maxsize=256)
def _type_of(spelling: object) -> DType | StructType:
    return dtype_of(spelling)


def _element_type(spelling: object, name: str) -> DType | StructType:
    """Return our type for a dtype of any library; the error names the argument."""
    try:
        return _type_of(spelling)
    except DTypeError as error:
        raise DTypeError(f"argument {name!r}: {error.message}", hint=error.hint) from None


def _kind(obj: object) -> str:
    cls = type(obj)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def _refuse(obj: object, name: str) -> NoReturn:
    raise ArgumentError(
        f"argument {name!r} is a {_kind(obj)}; accepted: {_ACCEPTED}",
        hint=_AS_ARRAY.format(name=name),
    )


def _refuse_device(name: str, found: str) -> NoReturn:
    raise DeviceError(
        f"argument {name!r} is {found}; this call runs on the CPU",
        hint=f"copy it to the host first, for example `{name}.cpu()`",
    )


def is_on_cuda(obj: Any) -> bool:  # Any: an argument of any kind
    """Return whether an array says that it is in the memory of a CUDA device; asks no driver."""
    if isinstance(obj, (np.ndarray, np.generic, bool, int, float, complex, str, list, tuple)):
        return False
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        return bool(obj.is_cuda)
    if hasattr(obj, "__cuda_array_interface__"):
        return True
    if hasattr(obj, "__dlpack_device__"):
        return int(obj.__dlpack_device__()[0]) in _DEVICE_KINDS
    return type(obj).__module__.startswith("cuda.core") and hasattr(obj, "handle")


def check_output(view: View, name: str) -> None:
    """Refuse an array that cannot be written to: read-only, or several elements in one place."""
    if view.readonly:
        raise ArgumentError(
            f"argument {name!r} is read-only; an output is written",
            hint="pass an array that owns its memory, for example a copy",
        )
    if view.overlaps_itself:
        raise ArgumentError(
            f"argument {name!r} has shape {view.shape} and strides {view.strides}: "
            "several of its elements share memory; an output needs a place for each",
            hint="pass a contiguous array of that shape",
        )


# ------------------------------------------------------------------------------------- output


def empty_like_library(
    shape: tuple[int, ...], dtype: DType | StructType, library: Library
) -> Any:  # Any: an array of whatever library it is
    """Return a new uninitialised C-contiguous array on the host.

    Arrays of 256 KiB and more lie in pooled memory: 64-byte aligned, in huge pages, used again
    when the array is gone.

    Parameters
    ----------
    shape, dtype
        What to make.
    library
        `torch` gives a tensor, all others a NumPy array.

    Raises
    ------
    DTypeError
        The library has no such dtype.

    Examples
    --------
    >>> import kernelmill as km
    >>> from kernelmill.runtime.memory import empty_like_library
    >>> empty_like_library((2, 3), km.float32, "numpy").shape
    (2, 3)
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if library == "torch":
        return _empty_tensor(shape, dtype, nbytes)
    return empty_numpy(shape, dtype.to_numpy())


def empty_numpy(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a new uninitialised C-contiguous NumPy array, as `empty_like_library`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.runtime.memory import empty_numpy
    >>> empty_numpy((2, 3), np.dtype("i4")).shape
    (2, 3)
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < POOLED_FROM:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, buffer=native().HostBuffer(nbytes))


def _empty_tensor(shape: tuple[int, ...], dtype: DType | StructType, nbytes: int) -> Any:
    torch = sys.modules["torch"]  # a tensor came in, so it is there
    spelling = getattr(torch, dtype.name, None) if isinstance(dtype, DType) else None
    if spelling is None:
        raise DTypeError(
            f"torch has no tensors of dtype {dtype}",
            hint="pass NumPy arrays, or convert the result in the operator",
        )
    if nbytes < POOLED_FROM:
        return torch.empty(shape, dtype=spelling)
    return torch.frombuffer(native().HostBuffer(nbytes), dtype=spelling).view(shape)


# ------------------------------------------------------------------------------------ overlap


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A view as NumPy sees it: elements of so many bytes, of no type."""

    __array_interface__: dict[str, object]


def may_overlap(a: View, b: View) -> bool:
    """Return whether two views may share bytes.

    False is certain. True is certain too, but for strided views of several dimensions where the
    exact answer would take too long.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.runtime.memory import as_view, may_overlap
    >>> x = np.zeros(10)
    >>> may_overlap(as_view(x[::2], "a"), as_view(x[1::2], "b"))
    False
    """
    (low, high), (other_low, other_high) = a.bounds, b.bounds
    if high <= other_low or other_high <= low or low == high or other_low == other_high:
        return False
    if a.is_c_contiguous and b.is_c_contiguous:
        return True
    shares: Any = np.may_share_memory  # Any: the stubs allow only two values of max_work
    return bool(shares(_described(a), _described(b), max_work=OVERLAP_WORK))


def copied(view: View) -> View:
    """Return a view of a private C-contiguous copy, of the same shape and library."""
    copy = _described(view).copy()
    ptr, _, _, shape, strides, _ = native().address(copy)
    return View(ptr, shape, strides, view.dtype, True, copy, view.library)  # noqa: FBT003


def array_of(view: View) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a view of host memory as a NumPy array over it; bfloat16 as its bits, in uint16.

    It is valid as long as the memory is, which the array does not hold.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.runtime.memory import array_of, as_view
    >>> memory = bytearray(b"abc")
    >>> array_of(as_view(memory, "x"))
    array([97, 98, 99], dtype=uint8)
    """
    bits = view.dtype.name == "bfloat16"
    described = np.dtype(np.uint16) if bits else view.dtype.to_numpy()
    if not view.size:
        return np.empty(view.shape, described)
    return _described(view, readonly=view.readonly).view(described)


def fill(view: View, value: object) -> None:
    """Set every element of a view to a value of its type."""
    dtype = view.dtype.to_numpy()
    item = np.zeros((), dtype)
    if isinstance(value, np.void) or dtype.fields is None:
        item[()] = value
    else:
        item[()] = tuple(getattr(value, name) for name in dtype.fields)
    target = _described(view, readonly=False)
    target[...] = np.void(item.tobytes())


def _described(view: View, *, readonly: bool = True) -> np.ndarray[Any, np.dtype[Any]]:
    interface = {
        "data": (view.ptr, readonly),
        "shape": view.shape,
        "strides": view.strides,
        "typestr": f"|V{view.dtype.itemsize}",
        "version": 3,
    }
    return np.asarray(_Bytes(interface))
