"""`unary_transform` and `binary_transform`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kernelmill.algorithms.transform import transform
from kernelmill.compat.cuda_compute import elements
from kernelmill.compat.cuda_compute.algorithm import Algorithm, kept, ordered_on
from kernelmill.compat.cuda_compute.op import operator_for
from kernelmill.compiler.op import specialize
from kernelmill.dtypes import DType, StructType, TupleType, dtype_of, storage

__all__ = [
    "binary_transform",
    "make_binary_transform",
    "make_unary_transform",
    "unary_transform",
]


def _run(inputs: tuple[Any, ...], d_out: Any, op: Any, count: int) -> None:
    if count == 0:
        return
    given = tuple(map(elements.type_of, inputs))
    operator = operator_for(op, given, elements.type_of(d_out))
    made = storage(specialize(operator, given).result)
    feeds = tuple(elements.reading(x, count) for x in inputs)
    if isinstance(made, TupleType):
        layout = [(f"f{i}", t.to_numpy()) for i, t in enumerate(made.items)]  # type: ignore[union-attr]
        made = dtype_of(dict(layout))
    assert isinstance(made, (DType, StructType))
    transform(feeds, operator, out=elements.writing(d_out, count, made))


@dataclass(frozen=True, slots=True)
class UnaryTransform(Algorithm):
    """`d_out[i] = op(d_in[i])`."""

    tag: ClassVar[str] = "unary_transform"

    def __call__(
        self, *, d_in: Any, d_out: Any, op: Any, num_items: int, stream: Any = None
    ) -> None:
        """Run it; there is no workspace."""
        with ordered_on(stream, d_in, d_out):
            _run((d_in,), d_out, op, num_items)


@dataclass(frozen=True, slots=True)
class BinaryTransform(Algorithm):
    """`d_out[i] = op(d_in1[i], d_in2[i])`."""

    tag: ClassVar[str] = "binary_transform"

    def __call__(
        self,
        *,
        d_in1: Any,
        d_in2: Any,
        d_out: Any,
        op: Any,
        num_items: int,
        stream: Any = None,
    ) -> None:
        """Run it; there is no workspace."""
        with ordered_on(stream, d_in1, d_in2, d_out):
            _run((d_in1, d_in2), d_out, op, num_items)


def make_unary_transform(*, d_in: Any, d_out: Any, op: Any, compute_capability: Any = None) -> Any:
    """Return `unary_transform` for arguments like these."""
    del compute_capability  # kernels are compiled for the device that runs them
    return kept(UnaryTransform, d_in, d_out, op)


def make_binary_transform(
    *, d_in1: Any, d_in2: Any, d_out: Any, op: Any, compute_capability: Any = None
) -> Any:
    """Return `binary_transform` for arguments like these."""
    del compute_capability
    return kept(BinaryTransform, d_in1, d_in2, d_out, op)


def unary_transform(*, d_in: Any, d_out: Any, op: Any, num_items: int, stream: Any = None) -> None:
    """Write `op` of each of `num_items` elements of `d_in` to `d_out`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> x, y = np.arange(4), np.zeros(4, np.int64)
    >>> cc.unary_transform(d_in=x, d_out=y, op=lambda v: v * v, num_items=4)
    >>> y
    array([0, 1, 4, 9])
    """
    made = make_unary_transform(d_in=d_in, d_out=d_out, op=op)
    made(d_in=d_in, d_out=d_out, op=op, num_items=num_items, stream=stream)


def binary_transform(
    *, d_in1: Any, d_in2: Any, d_out: Any, op: Any, num_items: int, stream: Any = None
) -> None:
    """Write `op` of each pair of `num_items` elements to `d_out`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> x, y = np.arange(4), np.zeros(4, np.int64)
    >>> cc.binary_transform(d_in1=x, d_in2=x, d_out=y, op=cc.OpKind.MULTIPLIES, num_items=4)
    >>> y
    array([0, 1, 4, 9])
    """
    made = make_binary_transform(d_in1=d_in1, d_in2=d_in2, d_out=d_out, op=op)
    made(d_in1=d_in1, d_in2=d_in2, d_out=d_out, op=op, num_items=num_items, stream=stream)
