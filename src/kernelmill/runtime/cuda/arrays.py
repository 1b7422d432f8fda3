"""Arrays in device memory: in as a `DeviceView`, out in the library that came in.

Host arrays are in `runtime/memory.py`, copies between host and device in `copies.py`.
"""

from __future__ import annotations

import math
import struct
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

import numpy as np

from kernelmill.dtypes import DType, StructType, dtype_of, uint8
from kernelmill.errors import ArgumentError, DeviceError, DTypeError
from kernelmill.runtime.cuda.device import cuda_device
from kernelmill.runtime.cuda.driver import api, check, core, require
from kernelmill.runtime.cuda.libraries import code_of, tell
from kernelmill.runtime.cuda.stream import StreamHandle, as_stream, core_stream, is_capturing
from kernelmill.runtime.memory import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "CudaArray",
    "DeviceView",
    "Maker",
    "as_device_view",
    "empty",
    "torch_dtype",
    "view_of",
]

Maker: TypeAlias = Literal["torch", "cupy", "cuda"]

_ACCEPTED: Final = (
    "a CUDA tensor of torch, an array of CuPy, a buffer of cuda.core, or an object with "
    "__cuda_array_interface__ or __dlpack__ in the memory of a CUDA device"
)


@dataclass(frozen=True, slots=True)
class DeviceView(View):
    """An array that somebody else owns, in the memory of a CUDA device.

    The fields of `View`, and: `device` is its number, `maker` says which library makes results,
    `producer` is the handle of the stream that its owner works on, where the owner names one.
    """

    device: int
    maker: Maker
    producer: int | None = None

    @property
    def place(self) -> str:
        """The device whose memory it is in: "cuda:0"."""
        return f"cuda:{self.device}"


class CudaArray:
    """A C-contiguous array in a buffer of cuda.core, for callers that brought no library.

    torch, CuPy and numba take it by `__cuda_array_interface__`.

    Parameters
    ----------
    buffer
        Of cuda.core; at least as large as the array.
    shape, dtype
        What is in it.
    stream
        The stream on which it is written; who reads on another one waits for it.

    Attributes
    ----------
    is_copy
        Whether it stands for an array on the host: then it does not decide what results are.
    """

    __slots__ = ("_record", "buffer", "device", "dtype", "is_copy", "shape", "stream")

    def __init__(
        self,
        buffer: Any,  # Any: cuda.core.Buffer
        shape: tuple[int, ...],
        dtype: DType | StructType,
        device: int,
        stream: StreamHandle,
    ) -> None:
        self.buffer, self.shape, self.dtype = buffer, shape, dtype
        self.device, self.stream = device, stream
        self.is_copy = False
        # All that the native path asks of an array; see _native_cuda_arrays.c.
        self._record = struct.pack(
            f"=QQiiii{len(shape)}q",
            int(buffer.handle),
            stream.handle,
            device,
            *code_of(dtype),
            len(shape),
            *shape,
        )

    def __repr__(self) -> str:
        return f"CudaArray(shape={self.shape}, dtype={self.dtype}, device='cuda:{self.device}')"

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """Return version 3 of the interface; handle 0 is spelled 1 there."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.to_numpy().str,
            "descr": self.dtype.to_numpy().descr,
            "data": (int(self.buffer.handle), False),
            "strides": None,
            "version": 3,
            "stream": self.stream.handle or 1,
        }

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return a copy on the host."""
        from kernelmill.runtime.cuda.copies import to_host  # noqa: PLC0415 - it imports this module

        return to_host(as_device_view(self, "array"), stream=self.stream)


# --------------------------------------------------------------------------------------- in


def as_device_view(
    obj: object, name: str, *, writable: bool = False, stream: StreamHandle | None = None
) -> DeviceView:
    """Return an array of any accepted library as device memory.

    Parameters
    ----------
    obj
        A CUDA tensor of torch, an array of CuPy, a buffer of cuda.core, or any object with
        `__cuda_array_interface__` or `__dlpack__`; of any shape and strides.
    name
        The name of the argument, for error texts.
    writable
        Whether it is an output.
    stream
        The stream on which it will be used: it waits for the one that the owner names.

    Raises
    ------
    ArgumentError
        It is no array, or a masked or read-only one where that cannot be.
    DTypeError
        Its dtype is not served.
    DeviceError
        It is in the memory of the host.
    """
    where = f"argument {name!r}"
    view = view_of(obj, where)
    if stream is not None and view.producer not in (None, stream.handle):
        cuda_device(view.device).set_current()
        wait_for_producers((view,), stream)
    if writable and view.readonly:
        raise ArgumentError(
            f"{where} is read-only; an output is written",
            hint="pass an array that owns its memory, for example a copy",
        )
    return view


def view_of(obj: Any, where: str) -> DeviceView:  # Any: an array of any library
    """Return what `as_device_view` does, waiting for nothing; `where` begins the error texts."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        return _of_tensor(obj, where)
    if type(obj) is CudaArray:
        return _of_own(obj)
    if isinstance(obj, (np.ndarray, np.generic)):
        _refuse_host(where, "a NumPy array")
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(obj, interface, where)
    if type(obj).__module__.startswith("cuda.core") and hasattr(obj, "handle"):
        return _of_buffer(obj, where)
    if hasattr(obj, "__dlpack__"):
        return _of_dlpack(obj, where)
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")
    raise ArgumentError(f"{where} is a {kind}; accepted: {_ACCEPTED}")


def _refuse_host(where: str, found: str) -> None:
    raise DeviceError(
        f"{where} is {found} in the memory of the host; this runs on a CUDA device",
        hint="copy it first: torch's x.cuda(), cupy.asarray(x)",
    )


# What makes a torch tensor more than memory: test, what it is, what to call.
_TENSOR_RULES: Final[tuple[tuple[Callable[[Any], bool], str, str], ...]] = (
    (lambda t: t.requires_grad, "requires grad", "detach()"),
    (lambda t: t.is_conj(), "is a lazy conjugate", "resolve_conj()"),
    (lambda t: t.is_neg(), "is a lazy negative", "resolve_neg()"),
    (lambda t: t.layout is not sys.modules["torch"].strided, "is not strided", "to_dense()"),
)


def _of_tensor(tensor: Any, where: str) -> DeviceView:  # Any: torch is never imported here
    if not tensor.is_cuda:
        _refuse_host(where, f"a torch tensor on {tensor.device}")
    tell("torch")
    torch: Any = sys.modules["torch"]
    plain = tensor.layout is torch.strided and not (tensor.requires_grad or tensor.is_neg())
    if not plain or tensor.is_conj():
        _refuse_tensor(tensor, where)
    dtype = _element_type(tensor.dtype, where)
    item = dtype.itemsize
    return DeviceView(
        tensor.data_ptr(),
        tuple(tensor.shape),
        tuple([step * item for step in tensor.stride()]),
        dtype,
        readonly=False,
        owner=tensor,
        library="torch",
        device=int(tensor.get_device()),
        maker="torch",
    )


def _refuse_tensor(tensor: Any, where: str) -> NoReturn:
    found, remedy = next((f, r) for applies, f, r in _TENSOR_RULES if applies(tensor))
    raise ArgumentError(
        f"{where} is a torch tensor that {found}; accepted: plain CUDA tensors",
        hint=f"pass `x.{remedy}`",
    )


def _of_interface(obj: Any, interface: Mapping[str, Any], where: str) -> DeviceView:
    if interface.get("mask") is not None:
        raise ArgumentError(
            f"{where} has a mask; accepted: arrays without one", hint="fill it first"
        )
    is_cupy = type(obj).__module__.partition(".")[0] == "cupy"
    if is_cupy:
        tell("cupy")
    ptr, readonly = interface["data"]
    shape = tuple(int(n) for n in interface["shape"])
    fields = interface.get("descr") if interface["typestr"].startswith("|V") else None
    # Unlike np.dtype, this takes fields without a name for what they are: padding.
    described = np.lib.format.descr_to_dtype(fields or interface["typestr"])
    dtype = _element_type(described, where)
    strides = interface.get("strides")
    producer = interface.get("stream")
    return DeviceView(
        int(ptr or 0),
        shape,
        _contiguous(shape, dtype.itemsize) if strides is None else tuple(map(int, strides)),
        dtype,
        readonly=bool(readonly),
        owner=obj,
        library="dlpack",
        device=_device_of(int(ptr or 0) if math.prod(shape) else 0, obj, where),
        maker="cupy" if is_cupy else "cuda",
        producer=None if producer is None else _handle(int(producer)),
    )


def _of_own(array: CudaArray) -> DeviceView:
    return DeviceView(
        int(array.buffer.handle),
        array.shape,
        _contiguous(array.shape, array.dtype.itemsize),
        array.dtype,
        readonly=False,
        owner=array,
        library="dlpack",
        device=array.device,
        maker="cuda",
        producer=array.stream.handle,
    )


def _of_buffer(buffer: Any, where: str) -> DeviceView:
    if getattr(buffer, "is_closed", False):
        raise ArgumentError(f"{where} is a buffer that was closed")
    size = int(buffer.size)
    return DeviceView(
        int(buffer.handle),
        (size,),
        (1,),
        uint8,
        readonly=False,
        owner=buffer,
        library="dlpack",
        device=_device_of_buffer(buffer),
        maker="cuda",
    )


def _device_of_buffer(buffer: Any) -> int:
    try:
        return max(int(buffer.device_id), 0)
    except RuntimeError:  # page-locked memory is of no device, and every device reaches it
        return 0


def _of_dlpack(obj: Any, where: str) -> DeviceView:
    kind, number = obj.__dlpack_device__()
    if int(kind) not in (2, 13):  # kDLCUDA, kDLCUDAManaged
        _refuse_host(where, f"a {type(obj).__qualname__} on DLPack device {int(kind)}")
    current = as_stream(None, int(number)).handle
    found = core().utils.StridedMemoryView.from_dlpack(obj, stream_ptr=current or 1)
    if found.dtype is None:
        raise DTypeError(f"{where}: its DLPack dtype is not served")
    dtype = _element_type(found.dtype, where)
    shape = tuple(found.shape)
    strides = found.strides
    return DeviceView(
        int(found.ptr),
        shape,
        _contiguous(shape, dtype.itemsize)
        if strides is None
        else tuple(step * dtype.itemsize for step in strides),
        dtype,
        readonly=bool(found.readonly),
        owner=(obj, found),
        library="dlpack",
        device=int(found.device_id),
        maker="cuda",
        producer=current,
    )


@lru_cache(maxsize=256)
def _type_of(spelling: object) -> DType | StructType:
    return dtype_of(spelling)


def _element_type(spelling: object, where: str) -> DType | StructType:
    try:
        return _type_of(spelling)
    except DTypeError as error:
        raise DTypeError(f"{where}: {error.message}", hint=error.hint) from None


def _contiguous(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    steps = []
    for extent in reversed(shape):
        steps.append(item)
        item *= extent
    return tuple(reversed(steps))


def _device_of(ptr: int, obj: Any, where: str) -> int:
    """Return the device of a pointer: the array says it, or the driver knows it."""
    owner = getattr(obj, "device", None)
    number = owner if isinstance(owner, int) else getattr(owner, "id", None)
    if isinstance(number, int):
        return number
    if not ptr:
        return 0
    require()
    cuda = api()
    kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, found = cuda.cuPointerGetAttribute(kind, ptr)
    if int(status):
        raise ArgumentError(
            f"{where} holds the address {ptr:#x}, which is no memory of a CUDA device",
            hint="the array may have been freed",
        )
    return max(int(found), 0)


def _handle(stream: int) -> int:
    """Return the handle of a stream as the interface spells it: the default stream is 1 there."""
    return 0 if stream == 1 else stream


def wait_for_producers(views: Iterable[DeviceView], stream: StreamHandle) -> None:
    """Let a stream of the current device wait for the streams that the arrays were made on.

    A graph waits for nothing outside it: what it reads must be there before it is launched.
    """
    producers = {v.producer for v in views} - {None, stream.handle}
    if not producers or is_capturing(stream):
        return
    cuda = api()
    for producer in producers:
        flag = cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING
        event = check(cuda.cuEventCreate(int(flag)), "make an event")
        try:
            check(cuda.cuEventRecord(event, producer), "record an event on an array's stream")
            check(cuda.cuStreamWaitEvent(stream.handle, event, 0), "wait for an array's stream")
        finally:
            cuda.cuEventDestroy(event)  # the driver keeps it until it has happened


# -------------------------------------------------------------------------------------- out


def empty(
    shape: tuple[int, ...],
    dtype: DType | StructType,
    maker: Maker,
    *,
    device: int = 0,
    stream: StreamHandle | None = None,
) -> Any:  # Any: an array of whatever library it is
    """Return a new uninitialised C-contiguous array on a device, of the library that is named.

    Raises
    ------
    DTypeError
        The library has no such dtype.
    DeviceError
        There is not that much memory.
    """
    if maker == "torch":
        torch = sys.modules["torch"]  # a tensor came in, so it is there
        spelling = torch_dtype(torch, dtype)
        return torch.empty(shape, dtype=spelling, device=f"cuda:{device}")
    if maker == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(device):
            return cupy.empty(shape, dtype.to_numpy())
    on = stream or as_stream(None, device)
    nbytes = math.prod(shape) * dtype.itemsize
    buffer = cuda_device(device).allocate(max(nbytes, 1), core_stream(on))
    return CudaArray(buffer, shape, dtype, device, on)


def torch_dtype(torch: Any, dtype: DType | StructType) -> Any:  # Any: a module; its dtype
    """Return what torch calls a type; raises DTypeError where it has none."""
    spelling = getattr(torch, dtype.name.rstrip("_"), None) if isinstance(dtype, DType) else None
    if spelling is None:
        raise DTypeError(f"torch has no tensors of dtype {dtype}", hint="use CuPy arrays")
    return spelling
