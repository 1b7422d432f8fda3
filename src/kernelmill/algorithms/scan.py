"""`inclusive_scan` and `exclusive_scan`: running combinations along one axis, in one pass.

The order in which elements combine is fixed: `docs/reference/reduction-tree.md`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kernelmill import events
from kernelmill.algorithms.plan import Bound, Plan, execute, key_of, lately, remember
from kernelmill.algorithms.scans import ScanOptions, ScanRequest, prepare_scan, scan_request
from kernelmill.compiler.op import WELL_KNOWN, Op, root_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.determinism import Determinism

__all__ = ["exclusive_scan", "inclusive_scan"]

_ADD: Final = WELL_KNOWN["add"]
_PLAIN_AXES: Final = (type(None), int)


def inclusive_scan(
    x: Any,
    op: Op | Callable[..., Any] = _ADD,
    *,
    init: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Any:
    """Combine each element with all before it: `out[i] = x[0] op x[1] op … op x[i]`.

    Parameters
    ----------
    x
        An array of any layout; one dimension, unless `axis` says which.
    op
        `km.add` and the like, or a Python function of two elements. It must be associative; it
        need not be commutative: elements keep their order.
    init
        A value that stands before the first element: a number, a record, or an array of no
        dimensions in the memory of the host or of the device.
    axis
        The axis along which to scan.
    dtype
        Type in which to accumulate and return. By default the operator's own; `km.add` and
        `km.multiply` of narrow integers take 64 bits, as `np.cumsum` does, and those of float16
        accumulate in float32.
    out
        Array of the shape of `x` for the result, or an iterator that takes as many values; `x`
        itself scans in place.
    determinism
        All are kept: one tree gives the same bits on every run, device and number of threads.
        "device_to_device" refuses operators that are not the same on every device.

    Returns
    -------
    array
        Of the shape of `x`, in its library.

    Raises
    ------
    ShapeError
        There are several dimensions and no `axis`, or `out` has another shape.
    ArgumentError, OperatorError, DTypeError, DeviceError, CompileError
        As `km.reduce`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.inclusive_scan(np.array([1, 2, 3, 4]))
    array([ 1,  3,  6, 10])
    >>> km.inclusive_scan(np.array([[3, 1], [2, 5]]), km.maximum, axis=1)
    array([[3, 3],
           [2, 5]])
    """
    options = ScanOptions(init, axis, dtype, determinism)
    return _scan(x, op, options, out, exclusive=False)


def exclusive_scan(
    x: Any,
    op: Op | Callable[..., Any] = _ADD,
    *,
    init: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Any:
    """Combine all before each element: `out[i] = init op x[0] op … op x[i - 1]`.

    Parameters
    ----------
    x, op, axis, dtype, out, determinism
        As `km.inclusive_scan`.
    init
        The first result. By default the identity of the operator, 0 for `km.add`.

    Raises
    ------
    ArgumentError
        The operator has no identity, and there is no `init`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.exclusive_scan(np.array([1, 2, 3, 4]))
    array([0, 1, 3, 6])
    """
    options = ScanOptions(init, axis, dtype, determinism)
    return _scan(x, op, options, out, exclusive=True)


def _scan(
    x: Any, op: Op | Callable[..., Any], options: ScanOptions, out: Any, *, exclusive: bool
) -> Any:
    key = _quick_key(x, op, options, out, exclusive=exclusive)
    if key is not None and not events.active:
        for found in lately(key):
            done = found.try_launch((op,), (x,), out)
            if done is not None:
                return done
    request = scan_request(op, options, exclusive=exclusive)
    bound = prepare_scan(request, (x,), out)
    if key is not None and bound.is_plain:
        remember(key, _plan(request, bound))
    return execute(bound)


def _planner(
    x: Any,
    op: Op | Callable[..., Any] = _ADD,
    *,
    init: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Plan:
    """Prepare a scan of arrays like `x`; see `inclusive_scan` for the parameters.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.arange(5)
    >>> running = km.inclusive_scan.plan(x)
    >>> running(x)
    array([ 0,  1,  3,  6, 10])
    """
    request = scan_request(op, ScanOptions(init, axis, dtype, determinism), exclusive=False)
    return _plan(request, prepare_scan(request, (x,), out))


def _exclusive_planner(
    x: Any,
    op: Op | Callable[..., Any] = _ADD,
    *,
    init: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Plan:
    """Prepare an exclusive scan; see `exclusive_scan` for the parameters."""
    request = scan_request(op, ScanOptions(init, axis, dtype, determinism), exclusive=True)
    return _plan(request, prepare_scan(request, (x,), out))


inclusive_scan.plan = _planner  # type: ignore[attr-defined]  # `km.inclusive_scan.plan` is public
exclusive_scan.plan = _exclusive_planner  # type: ignore[attr-defined]  # likewise


# ----------------------------------------------------------------------------- plan and launch


def _quick_key(
    x: Any, op: object, options: ScanOptions, out: Any, *, exclusive: bool
) -> tuple[object, ...] | None:
    """Return what tells this call apart from others, if its arrays are of a common kind."""
    init, axis, dtype, determinism = options
    if init is not None or dtype is not None or type(axis) not in _PLAIN_AXES:
        return None
    parts: list[object] = [_scan, exclusive, axis, determinism, root_of(op)]
    return key_of(parts, (x,) if out is None else (x, out))


def _plan(request: ScanRequest, bound: Bound) -> Plan:
    """Make the plan of a bound call; arrays of that shape get the short way."""
    return Plan(bound, partial(prepare_scan, request), fixed=True)
