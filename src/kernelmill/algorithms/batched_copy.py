"""`batched_copy`: many pieces of memory copied in one call, whatever their lengths.

The loops are in `host/batched_copy.hpp` and `device/batched_copy.cuh`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.algorithms.arguments import Argument, argument, arguments_of, backend_of
from kernelmill.algorithms.costs import Cost
from kernelmill.algorithms.plan import Bound, Scope, build, execute
from kernelmill.algorithms.policy import copy_policy
from kernelmill.algorithms.scan import inclusive_scan
from kernelmill.algorithms.sort_host import flat_strides
from kernelmill.algorithms.source import assemble, text_of
from kernelmill.algorithms.transform import transform
from kernelmill.dtypes import DType, int64
from kernelmill.errors import ArgumentError, DTypeError, ShapeError
from kernelmill.runtime.backend import Grid, KernelSource, reads_host
from kernelmill.runtime.memory import as_view, is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.runtime.backend import Backend
    from kernelmill.runtime.memory import View

__all__ = ["batched_copy"]

_HOST_PART: Final = 65536  # bytes of a part, as host/batched_copy.hpp has them
_MOST_BYTES: Final = 1 << 62


def batched_copy(
    sources: Any,
    destinations: Any,
    sizes: Any = None,
    *,
    source_offsets: Any = None,
    destination_offsets: Any = None,
) -> Any:
    """Copy many pieces of memory in one call, each from a source to a destination.

    Pieces must not overlap what others write; which one is copied first is not said.

    Parameters
    ----------
    sources, destinations
        Sequences of as many arrays, each without gaps, of the type and shape of its counterpart;
        or two arrays of one dimension and type, of which pieces are copied, where there are
        offsets; or two arrays of uint64 that hold addresses, where there are sizes alone.
    sizes
        Integers: how many elements each piece has, in bytes for addresses.
    source_offsets, destination_offsets
        Integers: the element at which each piece begins. On a GPU nobody waits to look at them: a
        piece that is not inside is left out there, and an error on the processor.

    Returns
    -------
    sequence or array
        `destinations`.

    Raises
    ------
    ArgumentError
        Sequences of other lengths; offsets for one side only; pieces that are not inside.
    ShapeError, DTypeError
        Counterparts of another shape or type; arrays with gaps; offsets that are no integers.
    DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> a, b = np.arange(3), np.arange(5.0)
    >>> to = np.zeros_like(a), np.zeros_like(b)
    >>> km.batched_copy((a, b), to)[1]
    array([0., 1., 2., 3., 4.])
    >>> out = np.zeros(6)
    >>> km.batched_copy(b, out, np.array([2, 3]), source_offsets=np.array([3, 0]),
    ...                 destination_offsets=np.array([0, 3]))
    array([3., 4., 0., 0., 1., 2.])
    """
    if isinstance(sources, (list, tuple)) or isinstance(destinations, (list, tuple)):
        if not (sizes is None and source_offsets is None and destination_offsets is None):
            raise ArgumentError("sequences of arrays are copied whole: without sizes and offsets")
        _copy_arrays(sources, destinations)
        return destinations
    if sizes is None or (source_offsets is None) != (destination_offsets is None):
        raise ArgumentError(
            "pieces of arrays have `sizes`, and offsets for both sides or for none",
            hint="pass tuples of arrays to copy them whole",
        )
    if source_offsets is None:
        pieces = _by_addresses(sources, destinations, sizes)
    else:
        pieces = _by_offsets(sources, destinations, (source_offsets, destination_offsets, sizes))
    if pieces.count:
        execute(pieces.bind())
    return destinations


# ----------------------------------------------------------------------------- what is copied


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Where pieces begin on both sides, and their elements: arrays of int64 of one library.

    `arrays` are what they count from, None for addresses; an element has `unit` bytes.
    """

    arrays: tuple[View, View] | None
    numbers: tuple[Any, Any, Any]
    unit: int
    count: int
    backend: Backend

    def bind(self) -> Bound:
        """Bind the launch that copies them."""
        if self.backend.target == "host":
            return self._on_host()
        each, unit, lengths, most = copy_policy().part, self.unit, (-1, -1), _MOST_BYTES
        if self.arrays is not None:
            lengths = self.arrays[0].size, self.arrays[1].size
            most = min(lengths)
        # Of a piece that cannot be inside there are no parts.
        counts = transform(
            self.numbers[2], lambda n: (n * unit + (each - 1)) // each if 0 <= n <= most else 0
        )
        ends = inclusive_scan(counts)
        views = tuple(a.view for a in arguments_of((*self.numbers, ends), "sizes"))
        nothing = replace(views[0], ptr=0, shape=(0,))
        views = (*(self.arrays or (nothing, nothing)), *views)
        policy = copy_policy()
        blocks = self.backend.multiprocessors * policy.resident
        grid = Grid(blocks, policy.threads, (self.count, unit, *lengths))
        return self._bound(views, 0, grid)

    def _on_host(self) -> Bound:
        first, second, sizes = (np.asarray(n) for n in self.numbers)
        base = (0, 0) if self.arrays is None else (self.arrays[0].ptr, self.arrays[1].ptr)
        if self.arrays is None and bool((sizes < 0).any()):
            at = int(np.argmax(sizes < 0))
            raise ArgumentError(f"`sizes[{at}]` is {sizes[at]}; a piece has 0 bytes or more")
        if self.arrays is not None:
            _check_inside("source_offsets", first, sizes, self.arrays[0].size)
            _check_inside("destination_offsets", second, sizes, self.arrays[1].size)
        nbytes = sizes * self.unit
        ends = np.cumsum(-(-nbytes // _HOST_PART))
        numbers = (first * self.unit + base[0], second * self.unit + base[1], nbytes, ends)
        views = tuple(as_view(np.ascontiguousarray(n, np.int64), "sizes") for n in numbers)
        return self._bound(views, int(ends[-1]) << 1, None)

    def _bound(self, views: tuple[View, ...], flags: int, grid: Grid | None) -> Bound:
        return Bound(
            built=build(
                ("batched copy",),
                "batched_copy",
                Scope(()),
                Cost(2 * self.unit, 0),
                _host_source if grid is None else _device_source,
                backend=self.backend,
            ),
            functions=(),
            shape=(self.count,),
            views=views,
            strides=flat_strides(views, 1),
            elements=self.count,
            workspace=0,
            result=None,
            flags=flags,
            grid=grid,
        )


def _host_source() -> KernelSource:
    run = "km::batched_copy::run(call);"
    return assemble("batched copy", ["batched_copy.hpp"], [], run)


def _device_source() -> KernelSource:
    policy = copy_policy()
    rest = (
        f"typedef km::batched_copy<{policy.part}> Run;\n"
        f"KM_EXPORT void __launch_bounds__({policy.threads})\n"
        "km_kernel(const __grid_constant__ km::BatchedCopyCall call) {\n"
        "  km::take_turn();\n  Run::run(call);\n}\n"
    )
    return KernelSource("batched copy", text_of("batched copy", ["batched_copy.cuh"], [], rest), 1)


# ----------------------------------------------------------------------------- checks


def _copy_arrays(sources: Any, destinations: Any) -> None:
    """Copy arrays whole: their addresses are known here, whatever the device."""
    if not isinstance(sources, (list, tuple)) or not isinstance(destinations, (list, tuple)):
        raise ArgumentError("`sources` and `destinations` are sequences of arrays, or arrays, both")
    if len(sources) != len(destinations):
        raise ArgumentError(
            f"`sources` has {len(sources)} arrays, `destinations` has {len(destinations)}"
        )
    if not sources:
        return
    given = _whole("sources", sources, writable=False)
    to = _whole("destinations", destinations, writable=True)
    for a, b in zip(given, to, strict=True):
        if (a.view.shape, a.view.dtype) != (b.view.shape, b.view.dtype):
            raise ShapeError(
                f"`{a.name}` has shape {a.view.shape} and elements of {a.view.dtype}, `{b.name}` "
                f"has {b.view.shape} and {b.view.dtype}; each is copied to one like it"
            )
    backend = backend_of([*given, *to], "batched_copy")
    kept = [i for i, a in enumerate(given) if a.view.nbytes]
    if not kept:
        return
    made = np.array(
        [[given[i].view.ptr for i in kept], [to[i].view.ptr for i in kept],
         [given[i].view.nbytes for i in kept]],
        np.int64,
    )  # fmt: skip
    first, second, sizes = (_there(row, backend) for row in made)
    pieces = _Pieces(None, (first, second, sizes), 1, len(kept), backend)
    execute(pieces.bind())


def _there(numbers: np.ndarray[Any, Any], backend: Backend) -> Any:  # Any: an array of the device
    """Return numbers where a device reads them."""
    if reads_host(backend):
        return numbers
    from kernelmill.runtime.cuda.copies import to_device  # noqa: PLC0415 - only there

    return to_device(numbers, device=int(backend.name.partition(":")[2]))


def _whole(name: str, arrays: Sequence[Any], *, writable: bool) -> list[Argument]:
    on_cuda = is_on_cuda(arrays[0])
    found = [
        argument(x, f"{name}[{i}]", writable=writable, on_cuda=on_cuda)
        for i, x in enumerate(arrays)
    ]
    for a in found:
        if not a.view.is_c_contiguous:
            raise ShapeError(
                f"`{a.name}` has gaps or another order; arrays that are copied whole have none",
                hint="copy it with `km.transform`, which reads any layout",
            )
    return found


def _integers(name: str, array: Any, count: int | None) -> Any:
    """Return integers as an array of int64 without gaps."""
    (given,) = arguments_of((array,), name)
    type_ = given.view.dtype
    if not isinstance(type_, DType) or not type_.is_integer:
        raise DTypeError(f"`{name}` has elements of {type_}; expected: integers")
    if len(given.view.shape) != 1 or (count is not None and given.view.size != count):
        wanted = "one dimension" if count is None else f"({count},), one for each size"
        raise ShapeError(f"`{name}` has shape {given.view.shape}; expected: {wanted}")
    if type_ == int64 and given.view.is_c_contiguous:
        return array
    return transform(array, _as_int64)


def _as_int64(value: Any) -> Any:
    return np.int64(value)


def _by_addresses(sources: Any, destinations: Any, sizes: Any) -> _Pieces:
    names = ("sources", "destinations", "sizes")
    given = arguments_of((sources, destinations, sizes), names)
    for a in given[:2]:
        if a.view.dtype.name not in ("uint64", "int64"):
            raise DTypeError(f"`{a.name}` has elements of {a.view.dtype}; addresses are uint64")
    count = given[2].view.size
    numbers = (
        _integers("sources", sources, count),
        _integers("destinations", destinations, count),
        _integers("sizes", sizes, None),
    )
    return _Pieces(None, numbers, 1, count, backend_of(given, "batched_copy"))


def _by_offsets(sources: Any, destinations: Any, numbers: tuple[Any, Any, Any]) -> _Pieces:
    on_cuda = is_on_cuda(sources)
    source = argument(sources, "sources", on_cuda=on_cuda)
    to = argument(destinations, "destinations", writable=True, on_cuda=on_cuda)
    for a in (source, to):
        if len(a.view.shape) != 1 or not a.view.is_c_contiguous:
            raise ShapeError(
                f"`{a.name}` has shape {a.view.shape}; expected: one dimension, without gaps"
            )
    if source.view.dtype != to.view.dtype:
        raise DTypeError(
            f"`sources` has elements of {source.view.dtype}, `destinations` of {to.view.dtype}"
        )
    (given,) = arguments_of((numbers[2],), "sizes")
    count = given.view.size
    names = ("source_offsets", "destination_offsets", "sizes")
    read = tuple(_integers(n, a, count) for n, a in zip(names, numbers, strict=True))
    unit = source.view.dtype.itemsize
    backend = backend_of([source, to, given], "batched_copy")
    return _Pieces((source.view, to.view), read, unit, count, backend)


def _check_inside(name: str, offsets: Any, sizes: Any, length: int) -> None:
    outside = (offsets < 0) | (sizes < 0) | (sizes > length) | (offsets > length - sizes)
    if bool(outside.any()):
        at = int(np.argmax(outside))
        raise ArgumentError(
            f"piece {at} begins at {offsets[at]} of `{name}` and has {sizes[at]} elements; the "
            f"array has {length}"
        )
