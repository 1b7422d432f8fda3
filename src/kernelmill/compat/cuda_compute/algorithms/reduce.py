"""`reduce_into` and `segmented_reduce`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from kernelmill.algorithms.reduce import reduce
from kernelmill.algorithms.segmented import segmented_reduce as km_segmented_reduce
from kernelmill.algorithms.transform import transform
from kernelmill.compat.cuda_compute import elements
from kernelmill.compat.cuda_compute.algorithm import (
    WORKSPACE,
    Algorithm,
    check_stream,
    kept,
    ordered_on,
)
from kernelmill.compat.cuda_compute.determinism import Determinism
from kernelmill.compat.cuda_compute.iterator_base import IteratorBase
from kernelmill.compat.cuda_compute.op import operator_for
from kernelmill.dtypes import DType, StructType
from kernelmill.runtime.memory import is_on_cuda

if TYPE_CHECKING:
    from kernelmill.algorithms.determinism import Determinism as Level

__all__ = ["make_reduce_into", "make_segmented_reduce", "reduce_into", "segmented_reduce"]

_LEVELS: Final[dict[Determinism, Level]] = {
    Determinism.NOT_GUARANTEED: "not_guaranteed",
    Determinism.RUN_TO_RUN: "run_to_run",
    Determinism.GPU_TO_GPU: "device_to_device",
}


@dataclass(frozen=True, slots=True)
class ReduceInto(Algorithm):
    """`d_out[0] = h_init op d_in[0] op d_in[1] op …`."""

    determinism: int = Determinism.RUN_TO_RUN
    tag: ClassVar[str] = "reduce_into"

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        num_items: int,
        op: Any,
        h_init: Any,
        stream: Any = None,
    ) -> int:
        """Run it, or return the size of the workspace in bytes where `temp_storage` is None."""
        check_stream(stream)
        if temp_storage is not None:
            with ordered_on(stream, d_in, d_out):
                self._run(d_in, d_out, num_items, op, h_init)
        return WORKSPACE

    def _run(self, d_in: Any, d_out: Any, count: int, op: Any, h_init: Any) -> None:
        value = elements.type_of(d_in if h_init is None else h_init)
        _check_structs(d_in, value)
        found = reduce(
            elements.reading(d_in, count, value),
            operator_for(op, (value, value), value, reduces=True),
            init=None if h_init is None else elements.value_of(h_init),
            determinism=_LEVELS[Determinism(self.determinism)],
        )
        one = found.reshape(1) if is_on_cuda(found) else np.asarray([found], value.to_numpy())
        transform(one, lambda v: v, out=elements.writing(d_out, 1, value))


def _check_structs(d_in: Any, value: DType | StructType) -> None:
    """Refuse an array of structs whose fields have other types than those of the result."""
    given = elements.type_of(d_in)
    if isinstance(given, StructType) and not isinstance(d_in, IteratorBase):
        fields = value.fields if isinstance(value, StructType) else ()
        mine, theirs = ([f.type.to_numpy() for f in parts] for parts in (given.fields, fields))
        if mine != theirs:
            raise TypeError(
                f"reduce_into dtype mismatch: input dtype {given.to_numpy()}, "
                f"h_init has {value.to_numpy()}"
            )


@dataclass(frozen=True, slots=True)
class SegmentedReduce(Algorithm):
    """`d_out[s] = h_init op d_in[start_offsets_in[s]] op …` up to `end_offsets_in[s]`."""

    tag: ClassVar[str] = "segmented_reduce"

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        num_segments: int,
        start_offsets_in: Any,
        end_offsets_in: Any,
        op: Any,
        h_init: Any,
        max_segment_size: int | None = None,
        stream: Any = None,
    ) -> int:
        """Run it, or return the size of the workspace; `max_segment_size` is not needed."""
        del max_segment_size
        check_stream(stream)
        if temp_storage is not None and num_segments:
            value = elements.type_of(h_init)
            bounds = tuple(
                elements.array_of(o, num_segments) for o in (start_offsets_in, end_offsets_in)
            )
            with ordered_on(stream, d_in, d_out):
                found = km_segmented_reduce(
                    elements.whole(d_in, "reading"),
                    bounds,
                    operator_for(op, (value, value), value, reduces=True),
                    init=elements.value_of(h_init),
                    dtype=None,
                )
                transform(found, lambda v: v, out=elements.writing(d_out, num_segments, value))
        return WORKSPACE


def make_reduce_into(
    *,
    d_in: Any,
    d_out: Any,
    op: Any,
    h_init: Any = None,
    determinism: Determinism = Determinism.RUN_TO_RUN,
    compute_capability: Any = None,
) -> Any:
    """Return `reduce_into` for arguments like these.

    Raises
    ------
    ValueError
        `h_init` is an array on a device.
    """
    del compute_capability  # kernels are compiled for the device that runs them
    _check_init(h_init)
    return kept(_REDUCTIONS[Determinism(determinism)], d_in, d_out, op, h_init)


def _check_init(h_init: Any) -> None:
    if h_init is not None and is_on_cuda(h_init):
        raise ValueError("h_init is an array on a device; a reduction takes a value of the host")


_REDUCTIONS: Final = {level: (lambda level=level: ReduceInto(int(level))) for level in Determinism}


def make_segmented_reduce(
    *,
    d_in: Any,
    d_out: Any,
    start_offsets_in: Any,
    end_offsets_in: Any,
    op: Any,
    h_init: Any,
    compute_capability: Any = None,
) -> Any:
    """Return `segmented_reduce` for arguments like these."""
    del compute_capability
    return kept(SegmentedReduce, d_in, d_out, start_offsets_in, end_offsets_in, op, h_init)


def reduce_into(
    *,
    d_in: Any,
    d_out: Any,
    num_items: int,
    op: Any,
    h_init: Any = None,
    stream: Any = None,
    determinism: Determinism = Determinism.RUN_TO_RUN,
) -> None:
    """Combine `num_items` elements of `d_in` with `op`, and write the result to `d_out[0]`.

    Elements are converted to the type of `h_init`, which starts the result; without one, they keep
    theirs.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> x, total = np.arange(5), np.zeros(1, np.int64)
    >>> cc.reduce_into(d_in=x, d_out=total, num_items=5, op=cc.OpKind.PLUS, h_init=np.int64(10))
    >>> total
    array([20])
    """
    made = make_reduce_into(d_in=d_in, d_out=d_out, op=op, h_init=h_init, determinism=determinism)
    made(
        temp_storage=b"",
        d_in=d_in,
        d_out=d_out,
        num_items=num_items,
        op=op,
        h_init=h_init,
        stream=stream,
    )


def segmented_reduce(
    *,
    d_in: Any,
    d_out: Any,
    num_segments: int,
    start_offsets_in: Any,
    end_offsets_in: Any,
    op: Any,
    h_init: Any,
    max_segment_size: int | None = None,
    stream: Any = None,
) -> None:
    """Combine the elements of each segment with `op`, and write the results to `d_out`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> x, ends, sums = np.arange(5), np.array([2, 5]), np.zeros(2, np.int64)
    >>> cc.segmented_reduce(d_in=x, d_out=sums, num_segments=2, start_offsets_in=np.array([0, 2]),
    ...                     end_offsets_in=ends, op=cc.OpKind.PLUS, h_init=np.int64(0))
    >>> sums
    array([1, 9])
    """
    made = make_segmented_reduce(
        d_in=d_in,
        d_out=d_out,
        start_offsets_in=start_offsets_in,
        end_offsets_in=end_offsets_in,
        op=op,
        h_init=h_init,
    )
    made(
        temp_storage=b"",
        d_in=d_in,
        d_out=d_out,
        num_segments=num_segments,
        start_offsets_in=start_offsets_in,
        end_offsets_in=end_offsets_in,
        op=op,
        h_init=h_init,
        max_segment_size=max_segment_size,
        stream=stream,
    )
