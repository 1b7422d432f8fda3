"""Iterators: sequences that are computed where they are read, or written through a function.

Each function here makes a frozen description of `sequences.py`; nothing is read, compiled or
launched. What a kernel makes of it is decided in `feeds.py`.

>>> import numpy as np, kernelmill as km
>>> it = km.iterators
>>> squares = it.transform(it.counting(1), lambda i: i * i)
>>> km.transform((squares, np.array([10, 20, 30])), km.add)
array([11, 24, 39])
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np

from kernelmill.algorithms.sequences import (
    CacheModified,
    Constant,
    Counting,
    Discard,
    Modifier,
    Permutation,
    Sequenced,
    Shuffle,
    Transform,
    TransformOutput,
    Walk,
    Zip,
    is_iterator,
    length_of,
    shape_of,
)
from kernelmill.compiler.literals import integer_text
from kernelmill.compiler.op import Op, as_op
from kernelmill.dtypes import DType, StructType, dtype_of, int64
from kernelmill.errors import ArgumentError, ScalarOverflowError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "cache_modified",
    "constant",
    "counting",
    "discard",
    "permutation",
    "reverse",
    "shuffle",
    "strided",
    "tabulate",
    "transform",
    "transform_output",
    "zip",
]

_MODIFIERS: Final = get_args(Modifier)


# ----------------------------------------------------------------------------- made by users


def counting(start: Any = 0, step: Any = 1, *, dtype: object = None) -> Sequenced:
    """Count: `start`, `start + step`, …, without end.

    Parameters
    ----------
    start, step
        Numbers; `step` may be negative.
    dtype
        Type of the elements: int64 for Python integers, float64 for floats, else that of `start`.
        Integers wrap; element i of a float is `start + step * i`, computed in that type.

    Raises
    ------
    DTypeError
        `dtype` is no integer or float.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.transform((km.iterators.counting(5), np.zeros(3, np.int64)), km.add)
    array([5, 6, 7])
    """
    found = dtype_of(dtype) if dtype is not None else _type_of(start, step)
    if not isinstance(found, DType) or found.kind not in ("int", "uint", "float"):
        raise ArgumentError(f"`dtype` is {found}; expected: an integer or float type")
    if not (_is_number(start) and _is_number(step)):
        raise ArgumentError(f"`start` and `step` are {start!r}, {step!r}; expected: numbers")
    for name, value in (("start", start), ("step", step)):
        if found.kind == "float" or isinstance(value, (float, np.floating)):
            _held(name, value, found)
    return Counting((), start, step, found)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, complex)


def _integer(name: str, value: Any) -> int:
    try:
        return index(value)
    except TypeError:
        raise ArgumentError(f"`{name}` is {value!r}; expected: an integer") from None


def _held(name: str, value: Any, type_: DType) -> Any:  # Any: a NumPy scalar
    """Return a number in a type; raises where it is none, or no number of that type."""
    try:
        return type_.to_numpy().type(value)
    except OverflowError:
        shown = integer_text(value) if isinstance(value, int) else repr(value)
        raise ScalarOverflowError(f"`{name}` is {shown}, out of bounds for {type_}") from None
    except (TypeError, ValueError):
        raise ArgumentError(f"`{name}` is {value!r}; expected: a number") from None


def _type_of(*values: Any) -> DType | StructType:
    strong = [v for v in values if isinstance(v, np.generic)]
    if strong:
        return dtype_of(np.result_type(*values))
    return dtype_of(np.float64) if any(isinstance(v, float) for v in values) else int64


def constant(value: Any, *, dtype: object = None) -> Sequenced:
    """Repeat one value without end.

    Parameters
    ----------
    value
        A number, a NumPy scalar, or an instance of a struct class.
    dtype
        Type of the elements; by default that of `value`, as NumPy has it.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.transform((np.arange(3), km.iterators.constant(2)), km.multiply)
    array([0, 2, 4])
    """
    known = getattr(type(value), "__kernelmill_struct__", None)
    if dtype is not None:
        found = dtype_of(dtype)
    elif known is not None:
        found = known
    else:
        found = dtype_of(np.asarray(value).dtype)
    if np.ndim(value) and known is None:
        raise ArgumentError(f"`value` has shape {np.shape(value)}; expected: one value")
    if isinstance(found, DType):
        value = _held("value", value, found)
    return Constant((), value, found)


def transform(inputs: Any, op: Op | Callable[..., Any]) -> Sequenced:
    """Apply an operator to each element when it is read.

    Parameters
    ----------
    inputs
        An array or an iterator, or a tuple of them: the operator has one parameter for each.
    op
        A function of the operator language that returns one value.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.reduce(km.iterators.transform(np.array([1, 2, 3]), lambda x: x * x))
    np.int64(14)
    """
    parts = inputs if type(inputs) is tuple else (inputs,)
    return Transform(_parts("inputs", parts), as_op(op))


def transform_output(out: Any, op: Op | Callable[..., Any]) -> Sequenced:
    """Apply an operator to each value before it is written to `out`, an array or an iterator.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> made = np.zeros(3, np.int64)
    >>> halved = km.iterators.transform_output(made, lambda v: v // 2)
    >>> _ = km.transform(np.array([2, 4, 7]), lambda v: v + 1, out=halved)
    >>> made
    array([1, 2, 4])
    """
    return TransformOutput(_parts("out", (out,)), as_op(op))


def zip(*parts: Any) -> Sequenced:  # noqa: A001 - the name that the field has for it
    """Take one element of each part together, as a struct with the fields f0, f1, ….

    An operator reads `pair[0]` or `pair.f0`, or unpacks: `key, value = pair`. As an output it takes
    structs, or tuples, of as many values.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> pairs = km.iterators.zip(np.array([3, 1, 2]), km.iterators.counting())
    >>> km.reduce(pairs, lambda a, b: a if a[0] < b[0] else b)
    np.void((1, 1), dtype=[('f0', '<i8'), ('f1', '<i8')])
    """
    if not parts:
        raise ArgumentError("zip() takes at least one array or iterator")
    return Zip(_parts("parts", parts))


def permutation(values: Any, indices: Any) -> Sequenced:
    """Read, or write, `values[indices[i]]`.

    Parameters
    ----------
    values
        An array or an iterator.
    indices
        An array, or an iterator, of integers from 0 on. An index that is too small or too large
        reads the first or last element, and writes nothing. What is written to one place twice
        leaves one of the values there.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> turned = km.iterators.permutation(np.array([10, 20, 30]), np.array([2, 0]))
    >>> km.transform(turned, lambda v: v + 1)
    array([31, 11])
    """
    return Permutation(_parts("values", (values,)) + _parts("indices", (indices,)))


def reverse(part: Any) -> Sequenced:
    """Go over an array or an iterator that has an end from its end to its beginning.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.transform(km.iterators.reverse(np.array([1, 2, 3])), lambda v: v)
    array([3, 2, 1])
    """
    (part,) = _parts("part", (part,))
    count = length_of(part)
    if count is None:
        raise ArgumentError("reverse() of an iterator without end; it has no last element")
    return Walk((part,), count - 1, -1, count)


def strided(part: Any, step: int, *, start: int = 0, count: int | None = None) -> Sequenced:
    """Take elements `start`, `start + step`, … of an array or an iterator.

    Parameters
    ----------
    part
        An array or an iterator.
    step
        Not 0; negative to go backwards.
    start
        The first element.
    count
        How many; by default as many as there are.

    Raises
    ------
    ArgumentError
        There are not that many.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.transform(km.iterators.strided(np.arange(7), 3), lambda v: v)
    array([0, 3, 6])
    """
    (part,) = _parts("part", (part,))
    first, by, whole = _integer("start", start), _integer("step", step), length_of(part)
    if by == 0 or first < 0:
        raise ArgumentError(f"`step` is {by}, `start` is {first}; expected: not 0, and from 0 on")
    most = None if by > 0 else first // -by + 1
    if whole is not None:
        most = len(range(first, whole, by)) if by > 0 else (most if first < whole else 0)
    if count is None:
        return Walk((part,), first, by, most)
    asked = _integer("count", count)
    if asked < 0 or (most is not None and asked > most):
        raise ArgumentError(f"`count` is {asked}; from {first} by {by} there are {most} elements")
    return Walk((part,), first, by, asked)


def tabulate(op: Op | Callable[..., Any]) -> Sequenced:
    """Apply an operator to 0, 1, 2, …, without end.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.transform(km.iterators.tabulate(lambda i: i % 3), lambda v: v, out=np.zeros(5, np.int64))
    array([0, 1, 2, 0, 1])
    """
    return transform(counting(), op)


def shuffle(count: int, *, seed: int = 0) -> Sequenced:
    """Count below `count` in an order that looks random: each number once, the same for a seed.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.reduce(km.iterators.shuffle(100, seed=7))
    np.int64(4950)
    """
    asked, key = _integer("count", count), _integer("seed", seed)
    if asked < 0:
        raise ArgumentError(f"`count` is {asked}; expected: 0 or more")
    return Shuffle((), asked, key & ((1 << 64) - 1))


def discard() -> Sequenced:
    """Take values as an output, and forget them.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> kept = np.zeros(3, np.int64)
    >>> it = km.iterators
    >>> _ = km.transform(np.arange(3), lambda v: (v, -v), out=(it.discard(), kept))
    >>> kept
    array([ 0, -1, -2])
    """
    return Discard(())


def cache_modified(array: Any, modifier: Modifier = "stream") -> Sequenced:
    """Read an array past a cache of the GPU; on other devices, as it is.

    Parameters
    ----------
    array
        Of one dimension.
    modifier
        "stream": it is read once and leaves the caches soon; "global": past the first-level cache;
        "volatile": each read goes to memory.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.reduce(km.iterators.cache_modified(np.arange(5)))
    np.int64(10)
    """
    if modifier not in _MODIFIERS:
        raise ArgumentError(
            f"`modifier` is {modifier!r}; accepted: {', '.join(map(repr, _MODIFIERS))}"
        )
    (part,) = _parts("array", (array,))
    if is_iterator(part):
        raise ArgumentError("cache_modified() takes an array, not an iterator")
    return CacheModified((part,), modifier)


# ----------------------------------------------------------------------------- parts


def _parts(name: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arrays and iterators as given; a tuple of them is a zip."""
    return tuple(zip(*part) if type(part) is tuple else _checked(name, part) for part in given)


def _checked(name: str, part: Any) -> Any:
    if is_iterator(part):
        return part
    if isinstance(part, (int, float, complex, np.generic)) or getattr(part, "shape", None) == ():
        raise ArgumentError(
            f"`{name}` is {part!r}; expected: an array or an iterator",
            hint="one value again and again is `km.iterators.constant(value)`",
        )
    shape = shape_of(part)
    if len(shape) != 1:
        raise ShapeError(
            f"`{name}` has shape {shape}; iterators are of one dimension",
            hint="pass `x.reshape(-1)`",
        )
    return part
