"""`partition` and `three_way_partition`: elements sorted into two or three by predicates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelmill.algorithms.select import chosen
from kernelmill.algorithms.select_call import Request, names_of, plan_of, run
from kernelmill.compiler.op import as_op
from kernelmill.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.plan import Plan
    from kernelmill.compiler.op import Op

__all__ = ["partition", "three_way_partition"]


def partition(
    x: Any, pred: Op | Callable[..., Any] | None = None, *, flags: Any = None, out: Any = None
) -> Any:
    """Return the elements for which a predicate holds, and the others, each in their order.

    CUB's `DevicePartition` writes both to one array, the others from its end in reverse order; here
    they are two arrays, and both keep the order of the elements.

    Parameters
    ----------
    x, pred, flags
        As `km.select`.
    out
        A tuple: a buffer for each array of `x` for the selected elements, then one for each for the
        others, then an array of one integer for the number of the selected ones.

    Returns
    -------
    tuple
        Selected and other elements, each an array or a tuple of arrays as `x`; `out`, where that is
        given.

    Raises
    ------
    ArgumentError, ShapeError, OperatorError, DTypeError, DeviceError, CompileError
        As `km.select`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.partition(np.array([4, 7, 1, 9, 2]), lambda v: v > 3)
    (array([4, 7, 9]), array([1, 2]))
    """
    return run(*chosen("partition", x, pred, flags, parts=2), out)


def _planner(
    x: Any, pred: Op | Callable[..., Any] | None = None, *, flags: Any = None, out: Any = None
) -> Plan:
    """Prepare a partition of arrays like these; called with the arrays of `x`, then `flags`."""
    return plan_of(*chosen("partition", x, pred, flags, parts=2), out)


def three_way_partition(
    x: Any, pred1: Op | Callable[..., Any], pred2: Op | Callable[..., Any], *, out: Any = None
) -> Any:
    """Return the elements for which the first predicate holds, the second one does, and neither.

    Parameters
    ----------
    x
        As `km.select`.
    pred1, pred2
        Predicates as of `km.select`. An element for which both hold is of the first part.
    out
        A tuple: a buffer for each array of `x` for the first part, then for the second, then for
        the rest, then an array of two integers for the numbers of the first two parts.

    Returns
    -------
    tuple
        Three arrays, or tuples of arrays as `x`, each in the order of the elements; `out`, where
        that is given.

    Raises
    ------
    ArgumentError, ShapeError, OperatorError, DTypeError, DeviceError, CompileError
        As `km.select`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.array([4, 7, 1, 9, 2])
    >>> km.three_way_partition(x, lambda v: v > 6, lambda v: v > 3)
    (array([7, 9]), array([4]), array([1, 2]))
    """
    return run(*_three(x, pred1, pred2), out)


def _three_planner(
    x: Any, pred1: Op | Callable[..., Any], pred2: Op | Callable[..., Any], *, out: Any = None
) -> Plan:
    """Prepare a partition into three of arrays like these."""
    return plan_of(*_three(x, pred1, pred2), out)


partition.plan = _planner  # type: ignore[attr-defined]  # `km.partition.plan` is the public name
three_way_partition.plan = _three_planner  # type: ignore[attr-defined]  # likewise


def _three(x: Any, pred1: Any, pred2: Any) -> tuple[Request, tuple[Any, ...]]:
    arrays = x if type(x) is tuple else (x,)
    if not arrays:
        raise ArgumentError("`x` is empty; at least one array is needed")
    carried = tuple(range(len(arrays)))
    request = Request(
        "three_way_partition",
        names_of("x", arrays),
        0,
        len(arrays),
        carried,
        carried if type(x) is tuple else 0,
        (as_op(pred1, name="pred1"), as_op(pred2, name="pred2")),
        ("pred1", "pred2"),
        parts=3,
    )
    return request, arrays
