"""The short way of a plan on a device: a native launcher for arrays like those it was made for.

What the general way checks and arranges at each call is written into the record once; the native
path compares what it must. Launches of users' kernels are in `launches.py`.
"""

from __future__ import annotations

import struct
import sys
from contextlib import suppress
from functools import cache as once
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.errors import DTypeError
from kernelmill.runtime.cuda.arrays import CudaArray, DeviceView, empty, torch_dtype
from kernelmill.runtime.cuda.driver import api, check, explained, recent_kernels, require
from kernelmill.runtime.cuda.libraries import code_of, tell
from kernelmill.runtime.cuda.records import SLOT, layout_of, write
from kernelmill.runtime.cuda.scratch import scratch
from kernelmill.runtime.cuda.stream import StreamHandle
from kernelmill.runtime.native import native

if TYPE_CHECKING:
    from kernelmill.dtypes import DType, StructType
    from kernelmill.runtime.backend import Allocator, Direct, Grid, Launcher, Value
    from kernelmill.runtime.cuda.device import CudaDevice
    from kernelmill.runtime.memory import View

__all__ = [
    "ALIKE",
    "ANY",
    "ATTRIBUTE",
    "FIXED",
    "allocator_of",
    "array_slot",
    "failure",
    "launcher_of",
    "turn_attribute",
]

# How the native path looks at shapes.
ANY, ALIKE, FIXED = range(3)
_MOST_RANK: Final = 8
_MOST_RECORD: Final = 4096
# Room of a scalar in a record, as device/operands.cuh has it.
_VALUE: Final = 16
_LEAST, _LARGEST = -(1 << 63), (1 << 63) - 2
_VERSION: Final = 12000
# A CUlaunchAttribute: its number, and 64 bytes of value.
ATTRIBUTE: Final = struct.Struct("<i4x3I52x")
_CALLS: Final = ("cuLaunchKernelEx", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuStreamIsCapturing")


@once
def driver_calls() -> tuple[int, ...]:
    """Return the addresses of what the native path calls."""
    cuda = api()
    answers = [cuda.cuGetProcAddress(name.encode(), _VERSION, 0) for name in _CALLS]
    return tuple(
        int(check(answer, f"find {name} in the driver")[0])
        for name, answer in zip(_CALLS, answers, strict=True)
    )


def turn_attribute() -> bytes:
    """Return the attribute of launches that may begin before the one in front of them ends."""
    ids = api().CUlaunchAttributeID
    return ATTRIBUTE.pack(int(ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION), 1, 0, 0)


def context_of(device: CudaDevice) -> int:
    """Return the context of a device, which is current then."""
    device.set_current()
    return int(check(api().cuCtxGetCurrent(), f"find the context of {device.name}"))


def failure(name: str, status: int) -> Exception:
    """Return the error for a launch that the driver refused."""
    require()  # says so where this process was forked
    return explained(api().CUresult(status).name, f"launch {name!r}")


def array_slot(
    at: int,
    dtype: DType | StructType | None,
    *,
    alignment: int = 1,
    rank: int = -1,
    shape_at: int = -1,
    strides_at: int = -1,
    fixed: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> tuple[Any, ...]:
    """Return the slot of an array in a record.

    Parameters
    ----------
    at
        Where its address goes.
    dtype
        What its elements must be; None for any.
    alignment
        What its address must be a multiple of.
    rank, shape_at, strides_at
        Dimensions that it must have, and where its extents and its strides in bytes go; -1 where
        they do not matter.
    fixed
        The one shape, and strides in bytes, that are served.
    """
    if dtype is None:
        return ("a", at, None, None, 0, 0, 0, alignment, shape_at, strides_at, rank, fixed)
    described: object = dtype  # bfloat16 without ml_dtypes: equal to the type of no array of CuPy
    with suppress(DTypeError):
        described = dtype.to_numpy()
    return (
        "a", at, dtype, described, *code_of(dtype), dtype.itemsize, alignment, shape_at,
        strides_at, rank, fixed,
    )  # fmt: skip


def launcher_of(
    name: str,
    direct: Direct,
    device: CudaDevice,
    *,
    function: int,
    record: int,
    grid: Grid,
    tile: int,
    most: int,
    takes_turn: bool = False,
) -> Launcher | None:
    """Return the native launcher for calls like this one; None where there is no short way.

    `record` is the size of the kernel's argument, `tile` and `most` spread calls of any shape over
    blocks; `grid` is that of a call of this very shape. A kernel that `takes_turn` waits for
    launches in front of it by itself.
    """
    slots = _slots(direct)
    if slots is None or record > _MOST_RECORD:
        return None
    tell("own", CudaArray)
    extra = (0, 0, *grid.numbers) if direct.grid is not None else ()
    template, block = bytearray(record), bytes(direct.captures + _VALUE * _values(direct))
    layout = layout_of(len(block), len(direct.views), len(extra))
    pointers = (0,) * len(direct.views)
    write(template, block, pointers, direct.shape, direct.strides, extra=extra)
    made: Launcher = native().CudaLauncher(
        driver_calls(),
        function,
        template,
        (0,),
        slots,
        grid=(grid.blocks, 1, 1),
        block=(grid.threads, 1, 1),
        shared=grid.shared,
        device=device.number,
        context=context_of(device),
        outputs=direct.outputs,
        mode=FIXED if direct.fixed else ALIKE,
        tile=0 if direct.fixed else tile,
        most=most,
        count_at=layout.count_at,
        captures=direct.captures,
        attributes=turn_attribute() if takes_turn else None,
        name=name,
        note=recent_kernels.append,
        failed=partial(failure, name),
        scratch=(layout.extra_at, partial(_scratch, grid, device)) if grid.tickets else None,
    )
    return made


def _values(direct: Direct) -> int:
    return sum(not isinstance(view, DeviceView) for view in direct.views)


def _slots(direct: Direct) -> tuple[tuple[Any, ...], ...] | None:
    """Return the slots of the operands; None where one needs the general way."""
    room = max(direct.captures + _VALUE * _values(direct), SLOT)
    value_at = direct.captures
    made: list[tuple[Any, ...]] = []
    for k, view in enumerate(direct.views):
        if isinstance(view, DeviceView):
            if len(view.shape) > _MOST_RANK:
                return None
            fixed = (view.shape, view.strides) if direct.fixed else None
            alignment = max(direct.alignment, view.dtype.alignment if view.is_aligned else 1)
            made.append(array_slot(room + 8 * k, view.dtype, alignment=alignment, fixed=fixed))
            continue
        value = direct.values[k] if k < len(direct.values) else None
        slot = None if value is None else _value_slot(value, value_at, view.dtype)
        if slot is None:
            return None
        made.append(slot)
        value_at += _VALUE
    return tuple(made)


def _value_slot(value: Value, at: int, dtype: DType | StructType) -> tuple[Any, ...] | None:
    """Return the slot of a scalar in the record; None for kinds that the general way converts."""
    if value.type is float:
        return "f", at, 8
    if value.type is int:  # of 64 bits: the native path takes more than int64 only as an address
        return "i", at, 8, max(value.low, _LEAST), min(value.high, _LARGEST)
    if issubclass(value.type, np.generic) and not issubclass(value.type, np.void):
        return "n", at, dtype.itemsize, value.type
    return None


def _scratch(grid: Grid, device: CudaDevice, stream: int) -> bytes:
    """Return the addresses of scratch memory on a device, which need not be the current one."""
    cuda = api()
    before = check(cuda.cuCtxGetCurrent(), "find the current context")
    device.set_current()
    try:
        return struct.pack("<QQ", *scratch(grid, StreamHandle(stream), device.number))
    finally:
        if int(before):
            cuda.cuCtxSetCurrent(before)


# ----------------------------------------------------------------------------------- outputs


def allocator_of(direct: Direct) -> Allocator | None:
    """Return what makes outputs in the library of the first input; None where it makes none."""
    at = next(k for k, view in enumerate(direct.views) if isinstance(view, DeviceView))
    first, results = direct.views[at], direct.results
    assert isinstance(first, DeviceView)
    if len(results) != 1:
        return None
    (result,) = results
    if first.maker == "torch":
        return _torch_allocator(at, direct.fixed, first, result)
    if not result.is_c_contiguous:
        return None
    maker = _cupy_like if first.maker == "cupy" else _own_like
    shape = result.shape if direct.fixed else None
    return partial(maker, at, shape, result.dtype, first.device)


def _torch_allocator(
    at: int,
    fixed: bool,  # noqa: FBT001
    first: DeviceView,
    result: View,
) -> Allocator | None:
    torch: Any = sys.modules["torch"]
    spelling = torch_dtype(torch, result.dtype)
    tensor = torch.Tensor
    if not fixed:
        same = result.dtype == first.dtype
        like = torch.empty_like if same else partial(torch.empty_like, dtype=spelling)
        return lambda inputs: like(inputs[at]) if type(inputs[at]) is tensor else None
    item = result.dtype.itemsize
    if any(step % item for step in result.strides):
        return None
    steps = tuple(step // item for step in result.strides)
    make = partial(
        torch.empty_strided, result.shape, steps, dtype=spelling, device=f"cuda:{first.device}"
    )
    return lambda inputs: make() if type(inputs[at]) is tensor else None


def _cupy_like(
    at: int,
    shape: tuple[int, ...] | None,
    dtype: DType | StructType,
    device: int,
    inputs: tuple[Any, ...],
) -> Any:  # Any: an array of CuPy
    cupy: Any = sys.modules["cupy"]
    first = inputs[at]
    if type(first) is not cupy.ndarray or cupy.cuda.runtime.getDevice() != device:
        return None
    return cupy.empty(first.shape if shape is None else shape, dtype.to_numpy())


def _own_like(
    at: int,
    shape: tuple[int, ...] | None,
    dtype: DType | StructType,
    device: int,
    inputs: tuple[Any, ...],
) -> Any:  # Any: a CudaArray
    first = inputs[at]
    if type(first) is not CudaArray:
        return None
    return empty(first.shape if shape is None else shape, dtype, "cuda", device=device)
