"""Scans and reductions by key: of each run of equal neighbours among the keys by itself."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kernelmill.algorithms.plan import Plan, execute
from kernelmill.algorithms.scans_by_key import (
    KeyOptions,
    ReductionPlan,
    key_request,
    prepare_reduction_by_key,
    prepare_scan_by_key,
)
from kernelmill.algorithms.sequences import is_iterator
from kernelmill.compiler.op import WELL_KNOWN, Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.determinism import Determinism

__all__ = ["exclusive_scan_by_key", "inclusive_scan_by_key", "reduce_by_key"]

_ADD: Final = WELL_KNOWN["add"]


def inclusive_scan_by_key(
    keys: Any,
    values: Any,
    op: Op | Callable[..., Any] = _ADD,
    *,
    equal: Op | Callable[..., Any] | None = None,
    init: Any = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Any:
    """Scan the values of each run of equal neighbours among the keys by itself.

    Parameters
    ----------
    keys, values
        Arrays of one dimension and one length, or iterators. Keys that come again later begin anew.
    op
        An associative operator on two values; it need not be commutative.
    equal
        When a key, `b`, is the same as the one before, `a`: a function `equal(a, b)`. By default
        all their fields are equal; NaN equals nothing.
    init
        A value that stands before the first one of each segment.
    dtype, out
        As `km.inclusive_scan`.
    determinism
        By default the same bits on each run, with any number of threads; "device_to_device" gives
        the CPU those of a GPU, and refuses operators that are not the same on every device.

    Returns
    -------
    array
        Of the length of `values`.

    Raises
    ------
    ShapeError
        Keys and values have different lengths, or several dimensions.
    ArgumentError, OperatorError, DTypeError, DeviceError, CompileError
        As `km.reduce`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> keys = np.array([0, 0, 1, 1, 1, 0])
    >>> km.inclusive_scan_by_key(keys, np.array([1, 2, 3, 4, 5, 6]))
    array([ 1,  3,  3,  7, 12,  6])
    """
    options = KeyOptions(init, equal, dtype, determinism)
    request = key_request("inclusive_scan_by_key", op, options)
    return execute(prepare_scan_by_key(request, (keys, values), out))


def exclusive_scan_by_key(
    keys: Any,
    values: Any,
    op: Op | Callable[..., Any] = _ADD,
    *,
    equal: Op | Callable[..., Any] | None = None,
    init: Any = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Any:
    """Combine what is before each value in its run of equal neighbours among the keys.

    Parameters
    ----------
    keys, values, op, equal, dtype, out, determinism
        As `km.inclusive_scan_by_key`.
    init
        The first result of each segment; by default the identity of the operator.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> keys = np.array([0, 0, 1, 1, 1, 0])
    >>> km.exclusive_scan_by_key(keys, np.array([1, 2, 3, 4, 5, 6]))
    array([0, 1, 0, 3, 7, 0])
    """
    options = KeyOptions(init, equal, dtype, determinism)
    request = key_request("exclusive_scan_by_key", op, options)
    return execute(prepare_scan_by_key(request, (keys, values), out))


def reduce_by_key(
    keys: Any,
    values: Any,
    op: Op | Callable[..., Any] = _ADD,
    *,
    equal: Op | Callable[..., Any] | None = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Any:
    """Combine the values of each run of equal neighbours among the keys into one.

    Parameters
    ----------
    keys, values, op, equal, dtype, determinism
        As `km.inclusive_scan_by_key`. Sort by key first where equal keys are to meet.
    out
        A tuple: a buffer for the first key of each run, one for the totals, arrays or iterators,
        and an array of one integer for their number. Nothing is waited for then, and nothing is
        written beyond the end of the shorter buffer; the count says how many there would be. For
        arrays of the host, a buffer that was too small is an error then.

    Returns
    -------
    tuple of arrays
        The first key of each run and its total, in arrays of exactly their number, for which a GPU
        is waited for; `out`, where given.

    Raises
    ------
    ShapeError
        As `km.inclusive_scan_by_key`; or a buffer of the host was too small.
    ArgumentError, OperatorError, DTypeError, DeviceError, CompileError
        As `km.inclusive_scan_by_key`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> keys = np.array([0, 0, 1, 1, 1, 0])
    >>> km.reduce_by_key(keys, np.array([1, 2, 3, 4, 5, 6]))
    (array([0, 1, 0]), array([ 3, 12,  6]))
    """
    request = key_request("reduce_by_key", op, KeyOptions(None, equal, dtype, determinism))
    return execute(prepare_reduction_by_key(request, (keys, values), out)[0])


def _scan_planner(
    name: str,
    keys: Any,
    values: Any,
    op: Op | Callable[..., Any] = _ADD,
    *,
    equal: Op | Callable[..., Any] | None = None,
    init: Any = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Plan:
    """Prepare a scan by key of arrays like these."""
    request = key_request(name, op, KeyOptions(init, equal, dtype, determinism))
    bound = prepare_scan_by_key(request, (keys, values), out)
    computed = any(is_iterator(x) or type(x) is tuple for x in (keys, values, out))
    fixed = None if computed else True
    return Plan(bound, partial(prepare_scan_by_key, request), fixed=fixed)


def _reduction_planner(
    keys: Any,
    values: Any,
    op: Op | Callable[..., Any] = _ADD,
    *,
    equal: Op | Callable[..., Any] | None = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Plan:
    """Prepare a reduction by key of arrays like these.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> keys, values = np.array([0, 0, 1]), np.array([1, 2, 3])
    >>> km.reduce_by_key.plan(keys, values)(keys, values)
    (array([0, 1]), array([3, 3]))
    """
    request = key_request("reduce_by_key", op, KeyOptions(None, equal, dtype, determinism))
    bound, results = prepare_reduction_by_key(request, (keys, values), out)
    return ReductionPlan(bound, request, results)


inclusive_scan_by_key.plan = partial(_scan_planner, "inclusive_scan_by_key")  # type: ignore[attr-defined]  # public
exclusive_scan_by_key.plan = partial(_scan_planner, "exclusive_scan_by_key")  # type: ignore[attr-defined]  # likewise
reduce_by_key.plan = _reduction_planner  # type: ignore[attr-defined]  # likewise
