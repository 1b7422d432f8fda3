"""`sort`, `argsort` and `sort_by_key`: elements in ascending or descending order, stable.

What they do with a call is in `sort_call.py`; what the processor does, in `sort_host.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from kernelmill import events
from kernelmill.algorithms.plan import Plan, execute
from kernelmill.algorithms.series import SeriesPlan, again, prepared_once
from kernelmill.algorithms.sort_call import (
    Algorithm,
    SortRequest,
    prepare_sort,
    several_values,
)
from kernelmill.algorithms.sort_host import radix_kernel, radix_of_row
from kernelmill.algorithms.sort_numbers import (
    PARTITIONED,
    by_vectors,
    ready_vectors,
    restore_equal,
)
from kernelmill.algorithms.transform import transform
from kernelmill.compiler.op import as_op
from kernelmill.dtypes import dtype_of
from kernelmill.errors import ArgumentError, DTypeError
from kernelmill.runtime.devices import current_backend

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.compiler.op import Op

__all__ = ["argsort", "sort", "sort_by_key"]

# comparator, descending, stable, bits, algorithm, axis
_Options: TypeAlias = "tuple[Any, bool, bool, Any, Algorithm, int]"


def sort(
    x: Any,
    *,
    key: Op | Callable[..., Any] | None = None,
    comparator: Op | Callable[..., Any] | None = None,
    descending: bool = False,
    stable: bool = True,
    bits: tuple[int, int] | None = None,
    algorithm: Algorithm = "auto",
    axis: int = -1,
    out: Any = None,
) -> Any:
    """Return the elements in order.

    NaN is larger than every number: the last in ascending order, the first in descending order. -0
    and 0 are equal; complex numbers go by their real parts, then by their imaginary ones.

    Parameters
    ----------
    x
        An array of at least one dimension, of any type and layout.
    key
        What the order of an element goes by: a function to a number, for structs too.
    comparator
        Whether its first argument comes before its second: an operator, a strict weak order. One
        that is none gives the elements in some order.
    descending
        Whether the largest comes first; equal ones stay in their order.
    stable
        Whether elements that are equal keep their order. They do at present in any case.
    bits
        The first bit that counts, and the one behind the last, of an unsigned integer of the size
        of an element that has its order; by default all.
    algorithm
        "radix" and "merge" insist on one; what "auto" takes, `km.sort.plan(x).explain()` tells.
    axis
        Along which axis each row is sorted.
    out
        Array for the result; it may be `x` itself.

    Returns
    -------
    array
        Of the shape, type and library of `x`; `out`, where that is given.

    Raises
    ------
    DTypeError
        Structs without key and comparator; a comparator that returns no bool, a key of several.
    ShapeError
        `x` has no dimension, or not that axis; `out` has another shape.
    ArgumentError
        Options that contradict each other; bits beyond those of an element.
    NotImplementedHere
        Elements of more than 256 bytes are compared, for arrays of a GPU.
    OperatorError, DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.array([3.0, -1.0, np.nan, 2.0])
    >>> km.sort(x)
    array([-1.,  2.,  3., nan])
    >>> km.sort(x[:2], key=lambda v: v * v, descending=True)
    array([ 3., -1.])
    >>> km.sort(np.array([5, 8, 6, 7]), comparator=lambda a, b: a % 2 < b % 2)
    array([8, 6, 5, 7])
    """
    options = (comparator, bool(descending), bool(stable), bits, algorithm, axis)
    if out is None and key is None and bits is None and type(x) is np.ndarray and options in _PLAIN:
        done = _quick_sort(x, descending=descending)
        if done is not None:
            return done
    if key is None:
        return _run("sort", options, (x,), out)
    found = _keys_of(x, key, comparator)
    room = None if out is None else (found, out)
    return _run("sort_by_key", options, (found, x), room)[1]


def argsort(
    x: Any,
    *,
    key: Op | Callable[..., Any] | None = None,
    comparator: Op | Callable[..., Any] | None = None,
    descending: bool = False,
    stable: bool = True,
    bits: tuple[int, int] | None = None,
    algorithm: Algorithm = "auto",
    axis: int = -1,
    out: Any = None,
) -> Any:
    """Return the places of the elements in the order in which `km.sort` would return them.

    Parameters
    ----------
    x, key, comparator, descending, bits, algorithm, axis
        As `km.sort`.
    stable
        Whether the places of equal elements ascend. They do, but for small arrays of NumPy.
    out
        Array of int64 for the places.

    Returns
    -------
    array
        int64, of the shape and library of `x`; `out`, where that is given.

    Raises
    ------
    DTypeError, ShapeError, ArgumentError, NotImplementedHere
        As `km.sort`.
    OperatorError, DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.argsort(np.array([3.0, 1.0, 2.0]))
    array([1, 2, 0])
    >>> km.argsort(np.array([3, 1, 3]), descending=True)
    array([0, 2, 1])
    """
    options = (comparator, bool(descending), bool(stable), bits, algorithm, axis)
    if out is None and key is None and bits is None and type(x) is np.ndarray and options in _PLAIN:
        done = _quick_argsort(x, descending=descending, stable=stable)
        if done is not None:
            return done
    if key is not None:
        x = _keys_of(x, key, comparator)
    return _run("argsort", options, (x,), out)


def sort_by_key(
    keys: Any,
    values: Any,
    *,
    key: Op | Callable[..., Any] | None = None,
    comparator: Op | Callable[..., Any] | None = None,
    descending: bool = False,
    stable: bool = True,
    bits: tuple[int, int] | None = None,
    algorithm: Algorithm = "auto",
    axis: int = -1,
    out: Any = None,
) -> Any:
    """Return the keys in order, and the values in the order of their keys.

    Parameters
    ----------
    keys
        As the elements of `km.sort`.
    values
        An array of the shape of the keys, or a tuple of such; elements of any type.
    key, comparator, descending, stable, bits, algorithm, axis
        As `km.sort`, of keys.
    out
        A tuple: an array for the keys, then one for each of the values.

    Returns
    -------
    tuple
        Keys and values, those an array or a tuple of arrays as given; `out`, where that is given.

    Raises
    ------
    DTypeError, ShapeError, ArgumentError, NotImplementedHere
        As `km.sort`; values of another shape, or none at all.
    OperatorError, DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.sort_by_key(np.array([2, 1, 2]), np.array([10.0, 20.0, 30.0]))
    (array([1, 2, 2]), array([20., 10., 30.]))
    """
    options = (comparator, bool(descending), bool(stable), bits, algorithm, axis)
    if out is None and key is None and bits is None and options in _PLAIN:
        done = _quick_by_key(keys, values, descending=descending)
        if done is not None:
            return done
    several = several_values(values)
    if out is not None and (type(out) is not tuple or len(out) != 1 + len(several)):
        raise ArgumentError(
            f"`out` takes the keys and {len(several)} arrays of values: a tuple of "
            f"{1 + len(several)}"
        )
    if key is None:
        made = _run("sort_by_key", options, (keys, *several), out)
    else:
        found = _keys_of(keys, key, comparator)
        room = None if out is None else (found, *out)
        made = _run("sort_by_key", options, (found, keys, *several), room)[1:]
    if out is not None:
        return out
    return made[0], made[1:] if type(values) is tuple else made[1]


# ----------------------------------------------------------------------------- ways


def _keys_of(x: Any, key: Any, comparator: Any) -> Any:
    """Return what the order of elements goes by, as an array."""
    if comparator is not None:
        raise ArgumentError(
            "`key` and `comparator` were both given; one says what the order is",
            hint="call the key in the comparator: lambda a, b: key(a) < key(b)",
        )
    found = transform(x, as_op(key, name="key"))
    if type(found) is tuple or getattr(getattr(found, "dtype", None), "names", None):
        raise DTypeError(
            "`key` returns several numbers; an order goes by one",
            hint="pass a comparator, which compares elements",
        )
    return found


def _run(
    name: Literal["sort", "argsort", "sort_by_key"],
    options: _Options,
    inputs: tuple[Any, ...],
    out: Any,
) -> Any:
    """Sort as in a call like this before, if there was one; else prepare it."""
    comparator, _, _, bits, algorithm, axis = options
    # What a comparator captured is read at each call; what is of another kind may have no hash.
    kinds = type(bits), type(algorithm), type(axis)
    if comparator is not None or kinds not in _HASHED:
        return execute(prepare_sort(SortRequest(name, *options), inputs, out))
    key, done = again((_run, name, *options), inputs, out)
    if done is not None:
        return done
    return prepared_once(key, partial(prepare_sort, SortRequest(name, *options)), inputs, out)


_HASHED: Final = ((type(None), str, int), (tuple, str, int))
# Options of which small arrays of NumPy take a short way.
_PLAIN: Final = tuple(
    (None, descending, stable, None, "auto", -1)
    for descending in (False, True)
    for stable in (True, False)
)
_SMALL: Final = 1 << 16
# From here on vectors are quicker than NumPy, whose calls are.
_VECTORS_FROM: Final = 1 << 11
# Elements of so many bytes from which on a radix sort is quicker than NumPy's sort of places.
_RADIX_FROM: Final = {4: 1 << 10, 8: 1 << 13}
_FEW: Final = 1 << 9
_CARRIED: Final = (4, 8)
_TYPES: Final = frozenset(
    np.dtype(t)
    for t in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")
)


def _is_small(x: np.ndarray[Any, Any], limit: int) -> bool:
    return (
        x.ndim == 1
        and x.size < limit
        and x.dtype in _TYPES
        and not events.active
        and current_backend().name == "cpu"
    )


def _quick_sort(x: np.ndarray[Any, Any], *, descending: bool) -> Any:
    """Return a small array sorted by NumPy; None where it is not one."""
    if not _is_small(x, _SMALL):
        return None
    kind: Literal["stable"] | None = "stable" if x.dtype.kind == "c" else None
    if x.size >= _VECTORS_FROM and x.dtype.name in PARTITIONED and x.flags.c_contiguous:
        return None if not x.flags.aligned else _by_vectors(x, descending=descending)
    made = x.copy()
    if descending and kind:
        made[:] = np.sort(x[::-1], kind=kind)[::-1]
        return made
    made.sort(kind=kind)
    if descending or made.dtype.kind == "f":
        restore_equal(x, made, descending=descending)
    return made


def _by_vectors(x: np.ndarray[Any, Any], *, descending: bool) -> Any:
    """Return an array sorted by vectors; None where there are none."""
    kernel = ready_vectors(x.dtype)
    if kernel is None:
        return None
    made = np.empty_like(x)
    by_vectors(kernel, x, made)
    restore_equal(x, made, descending=descending)
    return made


def _quick_argsort(x: np.ndarray[Any, Any], *, descending: bool, stable: bool) -> Any:
    """Return the places of a small array; None where it is not one."""
    if not _is_small(x, _SMALL):
        return None
    if x.size < _RADIX_FROM.get(x.itemsize, _FEW):
        if descending:
            return x.size - 1 - np.argsort(x[::-1], kind="stable")[::-1]
        return x.argsort(kind="stable" if stable else None)
    if not (x.flags.c_contiguous and x.flags.aligned):
        return None
    kernel = radix_kernel("argsort", dtype_of(x.dtype), 4, current_backend(), carried=False)
    made = np.empty(x.size, np.int64)
    radix_of_row(kernel, (x, made), 4, keys=False, descending=descending)
    return made


def _quick_by_key(keys: Any, values: Any, *, descending: bool) -> Any:
    """Return small keys and values sorted; None where they are not small arrays of NumPy."""
    if type(keys) is not np.ndarray or not _is_small(keys, _SMALL):
        return None
    if (
        type(values) is not np.ndarray
        or values.shape != keys.shape
        or values.itemsize not in _CARRIED
    ):
        return None
    if values.dtype not in _TYPES:
        return None
    if keys.size < _RADIX_FROM.get(keys.itemsize, _FEW):
        places = _quick_argsort(keys, descending=descending, stable=True)
        return keys[places], values[places]
    given = (keys, values)
    if not all(a.flags.c_contiguous and a.flags.aligned for a in given):
        return None
    size = values.itemsize
    type_ = dtype_of(keys.dtype)
    kernel = radix_kernel("sort_by_key", type_, size, current_backend(), carried=True)
    made = np.empty_like(keys), np.empty_like(values)
    radix_of_row(kernel, (*given, *made), size, keys=True, descending=descending)
    return made


# ----------------------------------------------------------------------------- plans


def _plan(request: SortRequest, inputs: tuple[Any, ...], out: Any) -> Plan:
    """Make the plan of a call."""
    prepare = partial(prepare_sort, request)
    bound = prepare(inputs, out)
    if request.comparator is not None:
        return Plan(bound, prepare, fixed=None)
    return SeriesPlan(bound, prepare, inputs)


def _planner(name: Literal["sort", "argsort"]) -> Callable[..., Plan]:
    def plan(
        x: Any,
        *,
        comparator: Op | Callable[..., Any] | None = None,
        descending: bool = False,
        stable: bool = True,
        bits: tuple[int, int] | None = None,
        algorithm: Algorithm = "auto",
        axis: int = -1,
        out: Any = None,
    ) -> Plan:
        """Prepare a sort for arrays like this one; what it goes by is computed before.

        Examples
        --------
        >>> import numpy as np, kernelmill as km
        >>> km.sort.plan(np.zeros(3))(np.array([3.0, 1.0, 2.0]))
        array([1., 2., 3.])
        """
        request = SortRequest(name, comparator, bool(descending), stable, bits, algorithm, axis)
        return _plan(request, (x,), out)

    return plan


def _by_key_planner(
    keys: Any,
    values: Any,
    *,
    comparator: Op | Callable[..., Any] | None = None,
    descending: bool = False,
    stable: bool = True,
    bits: tuple[int, int] | None = None,
    algorithm: Algorithm = "auto",
    axis: int = -1,
    out: Any = None,
) -> Plan:
    """Prepare a sort_by_key for arrays like these; called with the keys, then the values."""
    request = SortRequest(
        "sort_by_key", comparator, bool(descending), stable, bits, algorithm, axis
    )
    return _plan(request, (keys, *several_values(values)), out)


sort.plan = _planner("sort")  # type: ignore[attr-defined]  # `km.sort.plan` is the public name
argsort.plan = _planner("argsort")  # type: ignore[attr-defined]  # likewise
sort_by_key.plan = _by_key_planner  # type: ignore[attr-defined]  # likewise
