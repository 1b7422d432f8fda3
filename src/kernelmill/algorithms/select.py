"""`select`: the elements of an array that a predicate picks, or an array of flags, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelmill.algorithms.select_call import Request, names_of, plan_of, run
from kernelmill.compiler.op import as_op
from kernelmill.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.plan import Plan
    from kernelmill.compiler.op import Op

__all__ = ["chosen", "select"]


def select(
    x: Any, pred: Op | Callable[..., Any] | None = None, *, flags: Any = None, out: Any = None
) -> Any:
    """Return the elements for which a predicate holds, or that are flagged, in their order.

    Parameters
    ----------
    x
        An array of one dimension and any stride, or a tuple of arrays of one length that are taken
        together, as if they were one array of tuples.
    pred
        A function of the operator language of one element, with one parameter for each array; what
        it returns is taken for true as in Python. It may be evaluated more than once an element.
    flags
        Instead of `pred`: an array as long as `x`, of bools or numbers; what is not 0 is selected.
    out
        A tuple: a buffer for each array of `x`, of its dtype and any stride, or an iterator, then
        an array of one integer for the count. Then a GPU is not waited for, and the call can be
        part of a CUDA graph. Elements beyond the end of a buffer are not written; what lies behind
        the selected ones stays as it is.

    Returns
    -------
    array or tuple of arrays
        The selected elements, in arrays of exactly their number; without `out` a GPU is waited for,
        since their number is not known before. `out`, where that is given.

    Raises
    ------
    ArgumentError
        Both or none of `pred` and `flags` are given, or `out` has another number of arrays.
    ShapeError
        An array has another length, or more than one dimension; a buffer on the CPU is too small.
    OperatorError, DTypeError, DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.array([4, 7, 1, 9], dtype=np.int32)
    >>> km.select(x, lambda v: v > 3)
    array([4, 7, 9], dtype=int32)
    >>> km.select((x, np.arange(4)), lambda v, i: v > 3)
    (array([4, 7, 9], dtype=int32), array([0, 1, 3]))
    >>> km.select(x, flags=np.array([True, False, False, True]))
    array([4, 9], dtype=int32)
    """
    return run(*chosen("select", x, pred, flags), out)


def _planner(
    x: Any, pred: Op | Callable[..., Any] | None = None, *, flags: Any = None, out: Any = None
) -> Plan:
    """Prepare a selection of arrays like these; called with the arrays of `x`, then `flags`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.arange(5.0)
    >>> large = km.select.plan(x, lambda v: v > 2)
    >>> large(x)
    array([3., 4.])
    """
    return plan_of(*chosen("select", x, pred, flags), out)


select.plan = _planner  # type: ignore[attr-defined]  # `km.select.plan` is the public name


def chosen(
    family: str, x: Any, pred: Op | Callable[..., Any] | None, flags: Any, *, parts: int = 1
) -> tuple[Request, tuple[Any, ...]]:
    """Return what is asked for by a predicate or by flags, and the arrays in the kernel's order."""
    arrays = x if type(x) is tuple else (x,)
    if (pred is None) == (flags is None):
        given = "neither `pred` nor `flags`" if pred is None else "both `pred` and `flags`"
        raise ArgumentError(f"{family} got {given}; it takes one of them")
    if not arrays:
        raise ArgumentError("`x` is empty; at least one array is needed")
    carried = tuple(range(len(arrays)))
    layout = carried if type(x) is tuple else 0
    names = names_of("x", arrays)
    if flags is not None:
        request = Request(family, (*names, "flags"), len(arrays), 1, carried, layout, parts=parts)
        return request, (*arrays, flags)
    ops = (as_op(pred, name="pred"),)
    return Request(family, names, 0, len(arrays), carried, layout, ops, ("pred",), parts), arrays
