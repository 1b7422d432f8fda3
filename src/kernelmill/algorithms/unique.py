"""`unique` and its kin: the first of each run of equal elements, their number, the lengths of runs.

Only neighbours are compared, as in CUB, Thrust and C++; what is to be unique in the whole array is
sorted first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelmill.algorithms.select_call import Request, names_of, plan_of, run
from kernelmill.compiler.op import as_op
from kernelmill.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.plan import Plan
    from kernelmill.algorithms.select_results import Nest
    from kernelmill.compiler.op import Op

__all__ = ["run_length_encode", "unique", "unique_by_key", "unique_count"]


def unique(x: Any, *, equal: Op | Callable[..., Any] | None = None, out: Any = None) -> Any:
    """Return the first element of each run of equal ones.

    Unlike `np.unique`, which sorts, this drops only what equals the element just before it, as
    CUB's `DeviceSelect::Unique` does; the order stays. NaN equals nothing, so every NaN stays.

    Parameters
    ----------
    x
        An array of one dimension, or a tuple of arrays that are compared together.
    equal
        When an element, `b`, equals the one before, `a`: a function `equal(a, b)`, of structs too.
        With several arrays it gets the values before first: `equal(a0, a1, b0, b1)`. By default all
        fields of all values are equal.
    out
        A tuple: a buffer for each array of `x`, then an array of one integer for the count; see
        `km.select`.

    Returns
    -------
    array or tuple of arrays
        The first elements of the runs, in arrays of exactly their number; `out`, where given.

    Raises
    ------
    ArgumentError, ShapeError, OperatorError, DTypeError, DeviceError, CompileError
        As `km.select`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.array([3, 3, 5, 5, 5, 3])
    >>> km.unique(x)
    array([3, 5, 3])
    >>> km.unique(np.sort(x))
    array([3, 5])
    >>> km.unique(np.array([1.0, 1.2, 2.5, 2.6]), equal=lambda a, b: b - a < 0.5)
    array([1. , 2.5])
    """
    return run(*_runs("unique", x, (), equal), out)


def unique_by_key(
    keys: Any, values: Any, *, equal: Op | Callable[..., Any] | None = None, out: Any = None
) -> Any:
    """Return the first key of each run of equal ones, and the value that stands with it.

    Parameters
    ----------
    keys, values
        Arrays of one length, or tuples of such.
    equal
        When two neighbouring keys are equal; see `km.unique`.
    out
        A tuple: a buffer for each array of keys, one for each of values, then an array of one
        integer for the count; see `km.select`.

    Returns
    -------
    tuple
        Keys and values, each an array or a tuple of arrays as given; `out`, where that is given.

    Raises
    ------
    ArgumentError, ShapeError, OperatorError, DTypeError, DeviceError, CompileError
        As `km.select`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.unique_by_key(np.array([3, 3, 5, 3]), np.array([10.0, 20.0, 30.0, 40.0]))
    (array([3, 5, 3]), array([10., 30., 40.]))
    """
    return run(*_runs("unique_by_key", keys, (values,), equal), out)


def unique_count(x: Any, *, equal: Op | Callable[..., Any] | None = None, out: Any = None) -> Any:
    """Return the number of runs of equal elements: how many `km.unique` returns.

    Parameters
    ----------
    x, equal
        As `km.unique`.
    out
        An array of one integer for the count; then a GPU is not waited for.

    Returns
    -------
    int
        The number; `out`, where that is given.

    Raises
    ------
    ArgumentError, ShapeError, OperatorError, DTypeError, DeviceError, CompileError
        As `km.select`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.unique_count(np.array([3, 3, 5, 3]))
    3
    """
    request, arrays = _runs("unique_count", x, (), equal)
    if out is None:
        return run(request, arrays, None)
    run(request, arrays, (out,))
    return out


def run_length_encode(
    x: Any, *, equal: Op | Callable[..., Any] | None = None, out: Any = None
) -> Any:
    """Return the first element of each run of equal ones, and the lengths of the runs.

    `np.repeat(values, lengths)` gives the array back.

    Parameters
    ----------
    x, equal
        As `km.unique`.
    out
        A tuple: a buffer for each array of `x`, one of integers for the lengths, then an array of
        one integer for the count; see `km.select`.

    Returns
    -------
    tuple
        Values, an array or a tuple of arrays as `x`, and lengths in int64; `out`, where given.

    Raises
    ------
    ArgumentError, ShapeError, OperatorError, DTypeError, DeviceError, CompileError
        As `km.select`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.run_length_encode(np.array([3, 3, 5, 3]))
    (array([3, 5, 3]), array([2, 1, 1]))
    """
    return run(*_runs("run_length_encode", x, (), equal), out)


# ----------------------------------------------------------------------------- plans


def _unique_plan(x: Any, *, equal: Any = None, out: Any = None) -> Plan:
    """Prepare `unique` for arrays like these; called with the arrays of `x`."""
    return plan_of(*_runs("unique", x, (), equal), out)


def _by_key_plan(keys: Any, values: Any, *, equal: Any = None, out: Any = None) -> Plan:
    """Prepare `unique_by_key` for arrays like these; called with the keys, then the values."""
    return plan_of(*_runs("unique_by_key", keys, (values,), equal), out)


def _count_plan(x: Any, *, equal: Any = None, out: Any = None) -> Plan:
    """Prepare `unique_count` for arrays like these; `out` is a tuple of one array here."""
    return plan_of(*_runs("unique_count", x, (), equal), out)


def _encode_plan(x: Any, *, equal: Any = None, out: Any = None) -> Plan:
    """Prepare `run_length_encode` for arrays like these; called with the arrays of `x`."""
    return plan_of(*_runs("run_length_encode", x, (), equal), out)


unique.plan = _unique_plan  # type: ignore[attr-defined]  # `km.unique.plan` is the public name
unique_by_key.plan = _by_key_plan  # type: ignore[attr-defined]  # likewise
unique_count.plan = _count_plan  # type: ignore[attr-defined]  # likewise
run_length_encode.plan = _encode_plan  # type: ignore[attr-defined]  # likewise


# ----------------------------------------------------------------------------- requests


def _runs(
    family: str, x: Any, values: tuple[Any, ...], equal: Any
) -> tuple[Request, tuple[Any, ...]]:
    """Return what is asked for, and the arrays: those that are compared, then the others."""
    keys = x if type(x) is tuple else (x,)
    others = values[0] if values and type(values[0]) is tuple else values
    if not keys or (values and not others):
        empty = ("`values`" if keys else "`keys`") if values else "`x`"
        raise ArgumentError(f"{empty} is empty; at least one array is needed")
    names = names_of("keys" if values else "x", keys)
    layout: Nest = tuple(range(len(keys))) if type(x) is tuple else 0
    if values:
        rest = tuple(range(len(keys), len(keys) + len(others)))
        layout = layout, rest if type(values[0]) is tuple else len(keys)
        names += names_of("values", others)
    counted = family == "unique_count"
    request = Request(
        family,
        names,
        0,
        len(keys),
        () if counted else tuple(range(len(names))),
        () if counted else layout,
        () if equal is None else (as_op(equal, name="equal"),),
        () if equal is None else ("equal",),
        heads=True,
        lengths=family == "run_length_encode",
    )
    return request, (*keys, *others)
