"""The iterators of `cuda.compute`: descriptions of sequences without end, with an offset each.

What a kernel makes of them is decided in `kernelmill.algorithms.iterators`, to which `reading` and
`writing` translate.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args, get_type_hints

import numpy as np

from kernelmill.algorithms import iterators as native
from kernelmill.algorithms.sequences import Modifier
from kernelmill.compat.cuda_compute import elements, types
from kernelmill.compat.cuda_compute.iterator_base import IteratorBase
from kernelmill.compat.cuda_compute.op import OpKind, RawOp, operator_for
from kernelmill.compiler.op import specialize
from kernelmill.dtypes import DType, StructType, TupleType, dtype_of, storage

if TYPE_CHECKING:
    from collections.abc import Hashable

    Element = DType | StructType

__all__ = [
    "CacheModifiedInputIterator",
    "ConstantIterator",
    "CountingIterator",
    "DiscardIterator",
    "IteratorBase",
    "PermutationIterator",
    "ReverseIterator",
    "ShuffleIterator",
    "TransformIterator",
    "TransformOutputIterator",
    "ZipIterator",
]


# What the properties mean is said once, in `IteratorBase`.
# ruff: noqa: D102


def _least(iterator: IteratorBase, *parts: Any) -> int | None:
    """Return how many elements there are of all parts from the offset on; None without end."""
    lengths = [n for n in map(elements.extent, parts) if n is not None]
    return min(lengths) - iterator.offset if lengths else None


class CountingIterator(IteratorBase):
    """Counts: `start`, `start + 1`, and so on.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> total = np.zeros(1, np.int32)
    >>> cc.reduce_into(d_in=cc.CountingIterator(np.int32(1)), d_out=total, num_items=4,
    ...                op=cc.OpKind.PLUS, h_init=np.zeros(1, np.int32))
    >>> total
    array([10], dtype=int32)
    """

    __slots__ = ("start",)

    def __init__(self, start: Any) -> None:
        super().__init__()
        self.start = start

    @property
    def element(self) -> Element:
        return dtype_of(np.asarray(self.start).dtype)

    @property
    def kind(self) -> Hashable:
        return "counting", self.element

    def _reading(self, first: int, count: int) -> Any:
        kind = self.element.to_numpy().type
        with np.errstate(over="ignore"):
            start = kind(self.start) + kind(first) if first else self.start
        return native.strided(native.counting(start, dtype=self.element), 1, count=count)


class ConstantIterator(IteratorBase):
    """One value, again and again."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    @property
    def element(self) -> Element:
        return elements.type_of(self.value)

    @property
    def kind(self) -> Hashable:
        return "constant", self.element

    def _reading(self, first: int, count: int) -> Any:
        del first  # all are alike
        value = self.value if not isinstance(self.value, np.ndarray) else self.value.reshape(-1)[0]
        return native.strided(native.constant(value, dtype=self.element), 1, count=count)


class DiscardIterator(IteratorBase):
    """Takes values and forgets them; `reference_iterator` names their type."""

    __slots__ = ("reference",)
    writable = True
    takes_any = True

    def __init__(self, reference_iterator: Any = None) -> None:
        super().__init__()
        known = reference_iterator is None or elements.is_sequence(reference_iterator)
        if not known:
            kind = type(reference_iterator).__name__
            raise TypeError(f"reference_iterator is a {kind}; it is an array or an iterator")
        self.reference = reference_iterator

    @property
    def element(self) -> Element:
        if self.reference is None:
            return dtype_of(np.uint8)
        return elements.type_of(self.reference)

    @property
    def kind(self) -> Hashable:
        return ("discard", self.element)

    def _reading(self, first: int, count: int) -> Any:
        zero = np.zeros(1, self.element.to_numpy())
        return ConstantIterator(zero).reading(count, first)

    def _writing(self, first: int, count: int) -> Any:
        del first, count  # it takes any number
        return native.discard()


class CacheModifiedInputIterator(IteratorBase):
    """An array, read past a cache of the GPU: modifier "stream", "global" or "volatile"."""

    __slots__ = ("array", "modifier")

    def __init__(self, array: Any, modifier: Modifier = "stream") -> None:
        super().__init__()
        allowed = get_args(Modifier)
        if modifier not in allowed:
            raise ValueError(f"modifier is {modifier!r}; it is one of {', '.join(allowed)}")
        found = elements.type_of(array)
        if found.itemsize not in _LOADED:
            sizes = ", ".join(map(str, _LOADED))
            raise ValueError(
                f"elements of {found.itemsize} bytes; loads past a cache take {sizes} bytes"
            )
        self.array, self.modifier = array, modifier

    @property
    def element(self) -> Element:
        return elements.type_of(self.array)

    @property
    def kind(self) -> Hashable:
        return "cache modified", self.modifier, self.element

    @property
    def length(self) -> int | None:
        return _least(self, self.array)

    def _reading(self, first: int, count: int) -> Any:
        return native.cache_modified(elements.part(self.array, first, count), self.modifier)


_LOADED: Final = (1, 2, 4, 8, 16)


class PermutationIterator(IteratorBase):
    """Elements of `values` in the places that `indices` names; read and written."""

    __slots__ = ("indices", "values")
    writable = True

    def __init__(self, values: Any, indices: Any) -> None:
        super().__init__()
        self.values, self.indices = elements.sequence(values), elements.sequence(indices)

    @property
    def element(self) -> Element:
        return elements.type_of(self.values)

    @property
    def kind(self) -> Hashable:
        return "permutation", elements.kind_of(self.values), elements.kind_of(self.indices)

    @property
    def length(self) -> int | None:
        return _least(self, self.indices)

    def _reading(self, first: int, count: int) -> Any:
        where = elements.reading(self.indices, count, first=first)
        return native.permutation(elements.whole(self.values, "reading"), where)

    def _writing(self, first: int, count: int) -> Any:
        where = elements.reading(self.indices, count, first=first)
        return native.permutation(elements.whole(self.values, "writing"), where)


class ReverseIterator(IteratorBase):
    """From an element backwards: the last one of an array, the first one of an iterator."""

    __slots__ = ("underlying",)
    writable = True

    def __init__(self, underlying: Any) -> None:
        super().__init__()
        self.underlying = elements.sequence(underlying)

    @property
    def element(self) -> Element:
        return elements.type_of(self.underlying)

    @property
    def kind(self) -> Hashable:
        return "reverse", elements.kind_of(self.underlying)

    def _reading(self, first: int, count: int) -> Any:
        return native.reverse(
            elements.reading(self.underlying, count, first=self._low(first, count))
        )

    def _writing(self, first: int, count: int) -> Any:
        return native.reverse(
            elements.writing(self.underlying, count, first=self._low(first, count))
        )

    def _low(self, first: int, count: int) -> int:
        """Return where the elements begin that are read backwards."""
        is_iterator = isinstance(self.underlying, IteratorBase)
        last = 0 if is_iterator else elements.length(self.underlying) - 1
        return last - first - count + 1


class ShuffleIterator(IteratorBase):
    """The numbers below `num_items`, each once, in an order that `seed` decides."""

    __slots__ = ("count", "seed")

    def __init__(self, num_items: int, seed: int = 0) -> None:
        super().__init__()
        if num_items <= 0:
            raise ValueError(f"num_items is {num_items}; num_items must be > 0")
        self.count, self.seed = int(num_items), int(seed)

    @property
    def element(self) -> Element:
        return dtype_of(np.int64)

    @property
    def kind(self) -> Hashable:
        return "shuffle"

    @property
    def length(self) -> int | None:
        return self.count - self.offset

    def _reading(self, first: int, count: int) -> Any:
        whole = native.shuffle(self.count, seed=self.seed)
        return native.strided(whole, 1, start=first, count=count)


class ZipIterator(IteratorBase):
    """One element of each part, as a struct."""

    __slots__ = ("parts",)
    writable = True

    def __init__(self, *args: Any) -> None:
        super().__init__()
        given = tuple(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        if not given:
            raise ValueError("ZipIterator takes at least one array or iterator")
        self.parts = tuple(map(elements.sequence, given))

    @property
    def element(self) -> Element:
        fields = [(f"f{i}", elements.type_of(p).to_numpy()) for i, p in enumerate(self.parts)]
        return dtype_of(np.dtype(fields, align=True))

    @property
    def kind(self) -> Hashable:
        return "zip", *map(elements.kind_of, self.parts)

    @property
    def length(self) -> int | None:
        return _least(self, *self.parts)

    def _reading(self, first: int, count: int) -> Any:
        return native.zip(*(elements.reading(p, count, first=first) for p in self.parts))

    def _writing(self, first: int, count: int) -> Any:
        return native.zip(*(elements.writing(p, count, first=first) for p in self.parts))


class TransformIterator(IteratorBase):
    """An operator applied to each element when it is read; with `is_input=False`, when written."""

    __slots__ = ("_is_input", "_type", "op", "underlying")

    def __init__(
        self,
        underlying: Any,
        transform_op: Any,
        value_type: types.TypeDescriptor | None = None,
        is_input: bool = True,  # noqa: FBT001, FBT002 - the signature is NVIDIA's
    ) -> None:
        super().__init__()
        if isinstance(transform_op, RawOp) and value_type is None:
            _refuse_untyped(transform_op, is_input=is_input)
        self.underlying, self.op = elements.sequence(underlying), transform_op
        self._is_input, self._type = is_input, value_type

    @property
    def readable(self) -> bool:  # type: ignore[override]  # one of the two
        return self._is_input

    @property
    def writable(self) -> bool:  # type: ignore[override]  # as above
        return not self._is_input

    @property
    def element(self) -> Element:
        if self._type is not None:
            return self._type.kind
        below = elements.type_of(self.underlying)
        if not self._is_input:
            return _first_annotation(self.op) or below
        found = storage(specialize(operator_for(self.op, (below,)), (below,)).result)
        if isinstance(found, TupleType):
            layout = [(f"f{i}", t.to_numpy()) for i, t in enumerate(found.items)]  # type: ignore[union-attr]
            return dtype_of(np.dtype(layout, align=True))
        assert isinstance(found, (DType, StructType))
        return found

    @property
    def kind(self) -> Hashable:
        return "transform", self._is_input, elements.kind_of(self.underlying), _code_of(self.op)

    @property
    def length(self) -> int | None:
        return _least(self, self.underlying)

    def _reading(self, first: int, count: int) -> Any:
        made = None if self._type is None else self._type.kind
        operator = operator_for(self.op, (elements.type_of(self.underlying),), made)
        return native.transform(elements.reading(self.underlying, count, first=first), operator)

    def _writing(self, first: int, count: int) -> Any:
        out = elements.writing(self.underlying, count, first=first)
        wanted = elements.type_of(self.underlying)
        operator = operator_for(self.op, (self.element,), wanted)
        made = storage(specialize(operator, (self.element,)).result)
        if isinstance(made, (DType, StructType)) and made != wanted:
            out = elements.converted_output(out, made, wanted)
        return native.transform_output(out, operator)


class TransformOutputIterator(TransformIterator):
    """Takes values, and writes what an operator makes of them.

    The operator's parameter may be annotated with the type that is taken; else it is that of what
    is written to.
    """

    __slots__ = ()

    def __init__(self, underlying: Any, transform_op: Any, output_value_type: Any = None) -> None:
        super().__init__(underlying, transform_op, output_value_type, is_input=False)


def _refuse_untyped(operator: RawOp, *, is_input: bool) -> NoReturn:
    name = "value_type" if is_input else "output_value_type"
    text = f"RawOp {operator.name!r} does not say its types; pass {name}="
    raise NotImplementedError(text) if is_input else ValueError(text)


def _first_annotation(function: Any) -> Element | None:
    if isinstance(function, OpKind) or not inspect.isfunction(function):
        return None
    hints = get_type_hints(function)
    for name in inspect.signature(function).parameters:
        if name in hints:
            hint = hints[name]
            return hint.kind if isinstance(hint, types.TypeDescriptor) else dtype_of(hint)
    return None


def _code_of(function: Any) -> Hashable:
    return elements.code_of(function)
