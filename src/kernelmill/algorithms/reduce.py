"""`reduce` and `transform_reduce`: all elements, or those along axes, combined into one.

The order in which elements combine is fixed: `docs/reference/reduction-tree.md`.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from kernelmill import events
from kernelmill.algorithms.plan import Bound, Plan, execute, key_of, lately, remember
from kernelmill.algorithms.reductions import Options, Request, prepare, request_of
from kernelmill.algorithms.weave import Roots
from kernelmill.compiler.op import WELL_KNOWN, Op, root_of
from kernelmill.dtypes import DType
from kernelmill.runtime.memory import QUICK_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.determinism import Determinism

__all__ = ["reduce", "transform_reduce"]

Operators: TypeAlias = "Op | Callable[..., Any] | tuple[Op | Callable[..., Any], ...]"
_PLAIN_AXES: Final = (type(None), int, tuple)
_PLAIN_TYPES: Final = (type(None), type, DType, str)
_ADD: Final = WELL_KNOWN["add"]


def reduce(
    x: Any,
    op: Operators = _ADD,
    *,
    init: Any = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Any:
    """Combine elements with an associative operator.

    Parameters
    ----------
    x
        An array of any layout, or an iterator, see `km.iterators`.
    op
        `km.add` and the like, a Python function, or a tuple of them: then there are several
        results from one pass. A Python function counts as non-commutative, and keeps the order of
        the elements, unless `km.op(f, commutative=True)` says otherwise.
    init
        A value that is combined with the result, on its left; a tuple for several operators.
    axis
        One or several axes; all by default.
    keepdims
        Keep the reduced axes with extent 1.
    dtype
        Type in which to accumulate and return. By default the operator's own; `km.add` and
        `km.multiply` of narrow integers take 64 bits, as `np.sum` does, and those of float16
        accumulate in float32.
    out
        Array, or tuple of arrays, for the results.
    determinism
        What floating-point sums on a GPU promise: "run_to_run", the same bits for the same call on
        the same kind of GPU; "device_to_device", those of every device, which can take longer, and
        is for integers and operators that are rounded once (+ - * / sqrt, minimum, maximum);
        "not_guaranteed", nothing. On the CPU they are those of every device always.

    Returns
    -------
    scalar, array or tuple
        In the library of `x`; an array of no dimensions on a GPU. On the CPU the same bits for any
        number of threads and instruction set.

    Raises
    ------
    ArgumentError
        There are no elements, no `init`, and the operator has no identity.
    OperatorError
        As `km.transform`; or "device_to_device" is asked of another operator, which it names.
    ShapeError, DTypeError, DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.array([[1, 5, 3], [4, 2, 6]])
    >>> km.reduce(x, km.maximum, axis=1)
    array([5, 6])
    >>> km.reduce(x, (km.add, km.minimum))
    (np.int64(21), np.int64(1))
    """
    return _reduce((x,), None, op, (init, axis, keepdims, dtype, determinism), out)


def transform_reduce(
    inputs: Any,
    transform: Op | Callable[..., Any],
    op: Operators = _ADD,
    *,
    init: Any = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Any:
    """Apply an operator to each element and reduce the results, in one pass without temporaries.

    Parameters
    ----------
    inputs
        An array or an iterator, or a tuple of them that broadcast: `transform` has one parameter
        for each.
    transform
        What to reduce of each element. With a tuple of operators it may return a tuple, one value
        for each operator.
    op, init, axis, keepdims, dtype, out, determinism
        As `km.reduce`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> a, b = np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.0, 1.0])
    >>> km.transform_reduce((a, b), lambda x, y: (x - y) ** 2)
    np.float64(10.0)
    """
    arrays = inputs if type(inputs) is tuple else (inputs,)
    return _reduce(arrays, transform, op, (init, axis, keepdims, dtype, determinism), out)


def _reduce(
    arrays: tuple[Any, ...],
    transform: Op | Callable[..., Any] | None,
    op: Operators,
    options: tuple[Any, Any, bool, Any, Determinism],
    out: Any,
) -> Any:
    """Reduce; `options` are those of `Options`, which is made where the short way is not taken."""
    ops = op if type(op) is tuple else (op,)
    used = ops if transform is None else (*ops, transform)
    key = _quick_key(arrays, used, options, out)
    if key is not None:
        for found in lately(key):
            launch = found.told_launch if events.active else found.try_launch
            done = launch(used, arrays, out)
            if done is not None:
                return done
    request = request_of(ops, transform, Options(*options))
    bound = prepare(request, arrays, out)
    if key is not None and bound.is_plain:
        remember(key, _plan(request, bound))
    return execute(bound)


def _planner(
    x: Any,
    op: Operators = _ADD,
    *,
    init: Any = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Plan:
    """Prepare a reduction of arrays like `x`; see `reduce` for the parameters.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.arange(5)
    >>> total = km.reduce.plan(x)
    >>> total(x)
    np.int64(10)
    """
    ops = op if type(op) is tuple else (op,)
    request = request_of(ops, None, Options(init, axis, keepdims, dtype, determinism))
    return _plan(request, prepare(request, (x,), out))


def _transform_planner(
    inputs: Any,
    transform: Op | Callable[..., Any],
    op: Operators = _ADD,
    *,
    init: Any = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Plan:
    """Prepare a transform_reduce; see `transform_reduce` for the parameters."""
    ops = op if type(op) is tuple else (op,)
    arrays = inputs if type(inputs) is tuple else (inputs,)
    request = request_of(ops, transform, Options(init, axis, keepdims, dtype, determinism))
    return _plan(request, prepare(request, arrays, out))


reduce.plan = _planner  # type: ignore[attr-defined]  # `km.reduce.plan` is the public name
transform_reduce.plan = _transform_planner  # type: ignore[attr-defined]  # likewise


# ----------------------------------------------------------------------------- plan and launch


def _quick_key(
    arrays: tuple[Any, ...], used: tuple[Any, ...], options: tuple[Any, ...], out: Any
) -> tuple[object, ...] | None:
    """Return what tells this call apart from others, if all its arrays are of a common kind.

    Of outputs the shape is not asked: the launchers compare it.
    """
    init, axis, keepdims, dtype, determinism = options
    if init is not None or type(axis) not in _PLAIN_AXES or type(dtype) not in _PLAIN_TYPES:
        return None
    parts: list[object] = [reduce, axis, dtype, keepdims, determinism, len(used)]
    for op in used:
        if type(op) is FunctionType:  # by the address of its code, which the plan keeps
            parts.append(id(op.__code__))
        else:
            known = type(op) is Op and WELL_KNOWN.get(op.name) is op
            parts.append(op.name if known else root_of(op))
    if out is not None:
        made = out if type(out) is tuple else (out,)
        parts.append(len(made))
        for x in made:
            if type(x) is not np.ndarray and type(x) not in QUICK_TYPES:
                return None
            parts.append(x.dtype if type(x) is np.ndarray else type(x))
    return key_of(parts, arrays)


def _plan(request: Request, bound: Bound) -> Plan:
    """Make the plan of a bound call; contiguous arrays of that shape get the short way."""
    fixed = None if isinstance(bound.functions[-1], Roots) else True
    return Plan(bound, partial(prepare, request), fixed=fixed)
