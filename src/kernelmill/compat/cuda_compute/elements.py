"""Arrays and iterators as the families take them: so many elements, of a wanted type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.algorithms import iterators as native
from kernelmill.algorithms import sequences
from kernelmill.algorithms.transform import transform
from kernelmill.compat.cuda_compute.conversions import converter
from kernelmill.compat.cuda_compute.iterator_base import IteratorBase
from kernelmill.compat.cuda_compute.proxies import ProxyArray, ProxyValue
from kernelmill.dtypes import DType, StructType, dtype_of, int64
from kernelmill.runtime.memory import as_view, is_on_cuda
from kernelmill.structs import class_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    Element = DType | StructType

__all__ = [
    "array_of",
    "check_contiguous",
    "code_of",
    "converted_output",
    "extent",
    "initial",
    "is_array_of",
    "is_sequence",
    "kind_of",
    "length",
    "on_host",
    "part",
    "reading",
    "room",
    "sequence",
    "store",
    "store_numbers",
    "type_of",
    "value_of",
    "whole",
    "writing",
]

_INTERFACE: Final = "__cuda_array_interface__"


def _is_array(given: object) -> bool:
    return (
        isinstance(given, (np.ndarray, ProxyArray))
        or hasattr(given, _INTERFACE)
        or hasattr(given, "__dlpack__")
    )


def is_sequence(given: object) -> bool:
    """Return whether it is an array or an iterator."""
    return isinstance(given, IteratorBase) or _is_array(given)


def sequence(given: Any) -> Any:  # Any: an array or an iterator
    """Return an array or an iterator as it is; raises TypeError for anything else."""
    if not is_sequence(given):
        raise TypeError(f"expected an iterator or an array, got a {type(given).__name__}")
    return given


def type_of(given: Any) -> Element:  # Any: an array, an iterator or a value
    """Return the type of the elements, or of the value."""
    known: Element | None = getattr(type(given), "__kernelmill_struct__", None)
    if isinstance(given, IteratorBase):
        known = given.element
    elif isinstance(given, (np.ndarray, np.generic, ProxyArray, ProxyValue)):
        known = dtype_of(given.dtype)
    elif isinstance(getattr(given, _INTERFACE, None), dict):
        interface = getattr(given, _INTERFACE)
        layout = interface.get("descr") if interface["typestr"][1] == "V" else None
        known = dtype_of(
            np.dtype(interface["typestr"]) if layout is None else _layout(given, layout)
        )
    elif known is None and hasattr(given, "__dlpack__"):
        known = _view(given).dtype
    return dtype_of(np.asarray(given).dtype) if known is None else known


def _layout(given: Any, described: Any) -> np.dtype[Any]:  # Any: of the array interface
    found = getattr(given, "dtype", None)
    if isinstance(found, np.dtype):
        return found
    # Unlike np.dtype, this takes fields without a name for what they are: padding.
    return np.lib.format.descr_to_dtype([tuple(field) for field in described])


def _view(given: Any) -> Any:  # Any: a view of host or device memory
    if is_on_cuda(given):
        from kernelmill.runtime.cuda.arrays import as_device_view  # noqa: PLC0415 - where a GPU is

        return as_device_view(given, "array")
    return as_view(given, "array")


def kind_of(given: Any) -> Hashable:  # Any: as in `type_of`
    """Return what tells kernels for it apart."""
    return given.kind if isinstance(given, IteratorBase) else ("array", type_of(given))


def code_of(operator: Any) -> Hashable:  # Any: whatever stands for an operator
    """Return what tells operators apart: their code, and what they capture."""
    code = getattr(operator, "__code__", None)
    if code is None:
        return operator  # type: ignore[no-any-return]
    cells = tuple(id(cell.cell_contents) for cell in operator.__closure__ or ())
    return code, cells, operator.__defaults__


# ----------------------------------------------------------------------------- arrays


class _Part:
    """Some elements of an array that only has the array interface of CUDA."""

    def __init__(self, owner: Any, interface: dict[str, Any]) -> None:
        self._owner = owner
        self.__cuda_array_interface__ = interface


def length(array: Any) -> int:  # Any: an array
    """Return the number of elements of an array."""
    if isinstance(array, np.ndarray):
        return array.size
    interface = getattr(array, _INTERFACE, None)
    return math.prod(interface["shape"] if interface is not None else tuple(array.shape))


def part(array: Any, start: int, count: int | None, *, single: bool = False) -> Any:
    """Return `count` elements of a contiguous array, in one dimension; `single` in none.

    Raises
    ------
    ValueError
        The array is not contiguous.
    """
    stop = length(array) if count is None else start + count
    if isinstance(array, ProxyArray):
        array.refuse()
    check_contiguous(array)
    if hasattr(array, "reshape"):
        if array.ndim != 1:
            ordered = isinstance(array, np.ndarray) or hasattr(array, "flags")
            array = array.reshape(-1, order="A") if ordered else array.reshape(-1)
        taken = array[start:stop]
        return taken.reshape(()) if single else taken
    interface = dict(getattr(array, _INTERFACE))
    itemsize = type_of(array).itemsize
    address, frozen = interface["data"]
    interface["data"] = (address + start * itemsize, frozen)
    interface["shape"] = () if single else (max(0, min(stop, length(array)) - start),)
    interface["strides"] = None
    return _Part(array, interface)


def check_contiguous(given: Any) -> None:  # Any: an array, or whatever else is passed
    """Raise ValueError for an array whose elements do not lie one after another."""
    if isinstance(given, (np.ndarray, np.generic)):
        dense = bool(given.flags.contiguous or given.flags.f_contiguous)
    elif isinstance(getattr(given, _INTERFACE, None), dict):
        dense = _is_contiguous(getattr(given, _INTERFACE), type_of(given).itemsize)
    else:
        dense = not hasattr(given, "is_contiguous") or bool(given.is_contiguous())
    if not dense:
        raise ValueError("Non-contiguous arrays are not supported.")


def _is_contiguous(interface: dict[str, Any], itemsize: int) -> bool:
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    if strides is None or 0 in shape:
        return True
    for orders in (range(len(shape) - 1, -1, -1), range(len(shape))):
        step = itemsize
        for axis in orders:
            if shape[axis] != 1 and strides[axis] != step:
                break
            step *= shape[axis]
        else:
            return True
    return False


# ----------------------------------------------------------------------------- feeds


def reading(given: Any, count: int, wanted: Element | None = None, *, first: int = 0) -> Any:
    """Return what reads so many elements of an array or an iterator, as `wanted`."""
    found = (
        given.reading(count, first)
        if isinstance(given, IteratorBase)
        else part(given, first, count)
    )
    type_ = type_of(given)
    if wanted is None or wanted == type_:
        return found
    return native.transform(found, converter(type_, wanted))


def writing(given: Any, count: int, made: Element | None = None, *, first: int = 0) -> Any:
    """Return what takes so many elements of the type `made` for an array or an iterator."""
    found = (
        given.writing(count, first)
        if isinstance(given, IteratorBase)
        else part(given, first, count)
    )
    wanted = type_of(given)
    takes_any = isinstance(given, IteratorBase) and given.takes_any
    if made is None or made == wanted or takes_any:
        return found
    return converted_output(found, made, wanted)


def array_of(given: Any, count: int) -> Any:
    """Return so many elements as an array, where a family takes no iterator."""
    found = reading(given, count)
    return transform(found, lambda v: v) if sequences.is_iterator(found) else found


def on_host(given: Any, count: int) -> np.ndarray[Any, Any]:
    """Return so many elements as an array of NumPy; those of a GPU are copied and waited for."""
    found = array_of(given, count)
    if not is_on_cuda(found):
        return np.asarray(found)
    from kernelmill.runtime.cuda.copies import to_host  # noqa: PLC0415 - where a GPU is

    return to_host(_view(found))


def is_array_of(given: Any, element: Element) -> bool:
    """Return whether it is an array of just this type."""
    return not isinstance(given, IteratorBase) and type_of(given) == element


def room(out: Any, count: int, made: Element) -> Any:
    """Return what takes at most so many elements of the type `made`: as many as there is room."""
    most = extent(out)
    return writing(out, count if most is None else min(count, most), made)


def store(found: Any, out: Any, count: int, made: Element) -> None:
    """Write so many elements to an array or an iterator."""
    if count:
        transform(found, lambda v: v, out=writing(out, count, made))


def store_numbers(numbers: Sequence[int], out: Any) -> None:
    """Write some integers to the beginning of an array or an iterator."""
    for i, number in enumerate(numbers):
        one = native.strided(native.constant(np.int64(number)), 1, count=1)
        transform(one, lambda v: v, out=writing(out, 1, int64, first=i))


def converted_output(out: Any, made: Element, wanted: Element) -> Any:
    """Return an output that takes elements of the type `made` and writes `wanted`."""
    return native.transform_output(out, converter(made, wanted))


def extent(given: Any) -> int | None:
    """Return how many elements an array or an iterator has; None without end."""
    found: int | None = given.length if isinstance(given, IteratorBase) else length(given)
    return found


def whole(given: Any, use: str) -> Any:
    """Return all elements of an array, or an iterator without an end, to be read or written."""
    if not isinstance(given, IteratorBase):
        return part(given, 0, None)
    count = given.length
    count = _ENDLESS if count is None else count
    return given.reading(count) if use == "reading" else given.writing(count)


_ENDLESS: Final = 1 << 62


def value_of(given: Any) -> Any:  # Any: a value, or an array of one
    """Return a value that starts a result: a NumPy scalar, or an instance of a struct class."""
    if isinstance(given, ProxyValue):
        given.refuse()
    if isinstance(given, (np.ndarray, np.void)):
        first = given.reshape(-1)[0] if isinstance(given, np.ndarray) else given
        found = type_of(given)
        return class_of(found)(*_items(first)) if isinstance(found, StructType) else first
    return given


def _items(record: Any) -> tuple[Any, ...]:
    return tuple(
        class_of(dtype_of(v.dtype))(*_items(v)) if isinstance(v, np.void) else v  # type: ignore[arg-type]
        for v in record
    )


def initial(given: Any) -> Any:
    """Return what a scan starts with: a value, or a 0-d array on the device."""
    if isinstance(given, (np.ndarray, np.generic, np.void)) or not _is_array(given):
        return value_of(given)
    return part(given, 0, 1, single=True)
