"""Calls of several launches on a GPU: bound once, and launched again by the native path.

The launches of a call, and memory between them, are those of its first time; arrays are the user's.
What a single launch does is in `plan.py`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill import events
from kernelmill.algorithms.plan import Bound, Plan, execute, key_of, lately, remember
from kernelmill.dtypes import uint8
from kernelmill.runtime.backend import Direct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.plan import Prepare
    from kernelmill.dtypes import DType, StructType
    from kernelmill.runtime.backend import Launcher
    from kernelmill.runtime.cuda.arrays import DeviceView
    from kernelmill.runtime.memory import View

__all__ = ["SeriesPlan", "again", "bound_steps", "prepared_once", "run_series"]

# Dimensions of arrays that are told apart by their shapes.
_MOST_RANK: Final = 8


def bound_steps(steps: Sequence[Bound]) -> Bound:
    """Return the first launch of several, which the others follow.

    Steps may be calls of several launches themselves.
    """
    first, *others = (b for step in steps for b in _steps_of(step) or (step,))
    return replace(first, finish=partial(_launched, tuple(others)))


def _launched(steps: tuple[Bound, ...], result: Any) -> Any:
    """Launch what follows the first kernel, on the same stream."""
    for bound in steps:
        execute(bound)
    return result


def _steps_of(bound: Bound) -> tuple[Bound, ...] | None:
    """Return the launches of a call; None where something else happens between them."""
    finish = bound.finish
    if not isinstance(finish, partial) or finish.func is not _launched:
        return None
    return (replace(bound, finish=None), *finish.args[0])


# ----------------------------------------------------------------------------- the short way


@dataclass(frozen=True, slots=True)
class _Series:
    """Launchers, each with the numbers of its arrays: inputs, outputs, then memory between."""

    launchers: tuple[tuple[Launcher, tuple[int, ...]], ...]
    outputs: tuple[Callable[[], Any], ...]
    between: tuple[Callable[[], Any], ...]
    sizes: tuple[int, ...]

    def apart(self, arrays: tuple[Any, ...]) -> bool:
        """Return whether no result lies where something else does."""
        inputs = len(arrays) - len(self.outputs)
        starts = [_start(a) for a in arrays]
        for k in range(inputs, len(arrays)):
            start, end = starts[k], starts[k] + self.sizes[k]
            for other in range(k):
                if starts[other] < end and start < starts[other] + self.sizes[other]:
                    return False
        return True

    def run(self, arrays: tuple[Any, ...]) -> bool:
        """Launch all on these arrays; False where the general way must look at them."""
        pool = (*arrays, *[make() for make in self.between])
        return all(launcher(*[pool[n] for n in numbers]) for launcher, numbers in self.launchers)


def _series_of(
    steps: Sequence[Bound], arrays: Sequence[DeviceView], outputs: int
) -> _Series | None:
    """Return the short way of some launches for arrays that lie like these; None without one."""
    distinct = {view.ptr for view in arrays if view.ptr}
    lie_simply = all(v.is_c_contiguous and len(v.shape) <= _MOST_RANK for v in arrays)
    if len(distinct) != len(arrays) or not lie_simply:
        return None
    if any(b.finish is not None or not b.elements or b.built.scope.size for b in steps):
        return None
    number = {view.ptr: k for k, view in enumerate(arrays)}
    pool: list[View] = list(arrays)
    for view in (v for step in steps for v in step.views if v.ptr):
        k = number.setdefault(view.ptr, len(pool))
        if k == len(pool):
            pool.append(view)
        elif k >= len(arrays) and view.nbytes > pool[k].nbytes:
            pool[k] = view
    if not all(_lies_within(v, arrays, number) for step in steps for v in step.views):
        return None
    pool[len(arrays) :] = [_raw(view) for view in pool[len(arrays) :]]
    made = []
    for step in steps:
        # What a launch does not look at may be any array.
        numbers = tuple(number[v.ptr] if v.ptr else 0 for v in step.views)
        launcher = _launcher(step, [pool[n] for n in numbers])
        if launcher is None:
            return None
        made.append((launcher, numbers))
    first = arrays[0]
    results = arrays[len(arrays) - outputs :]
    return _Series(
        tuple(made),
        tuple(_maker(first, v.shape, v.dtype) for v in results),
        tuple(_maker(first, v.shape, v.dtype) for v in pool[len(arrays) :]),
        tuple(v.nbytes for v in arrays),
    )


def _lies_within(view: View, arrays: Sequence[View], number: dict[int, int]) -> bool:
    """Return whether what is read or written is a whole array, from its first element on."""
    k = number.get(view.ptr, 0)
    return not view.ptr or k >= len(arrays) or view.nbytes <= arrays[k].nbytes


def _raw(view: View) -> View:
    return replace(view, shape=(view.nbytes,), strides=(1,), dtype=uint8)


def _launcher(step: Bound, views: list[View]) -> Launcher | None:
    """Return the native launcher of one launch, for arrays that lie like `views`."""
    direct = Direct(
        views=tuple(views),
        outputs=0,
        shape=step.shape,
        strides=step.strides,
        captures=0,
        fixed=True,
        serial_below=step.built.cost.serial_below,
        flags=step.flags,
        grid=step.grid,
    )
    return step.built.backend.launcher(step.built.kernel, direct)


def _maker(
    like: DeviceView, shape: tuple[int, ...], dtype: DType | StructType
) -> Callable[[], Any]:
    """Return what makes arrays in the library of another one."""
    from kernelmill.runtime.cuda.arrays import empty, torch_dtype  # noqa: PLC0415 - for such arrays

    if like.maker != "torch":
        return partial(empty, shape, dtype, like.maker, device=like.device)
    torch: Any = sys.modules["torch"]
    spelling = torch_dtype(torch, dtype)
    place = torch.device("cuda", like.device)
    steps = [1]
    for extent in reversed(shape[1:]):
        steps.append(steps[-1] * extent)
    strides = tuple(reversed(steps))
    return partial(torch.empty_strided, shape, strides, dtype=spelling, device=place)


def _start(array: Any) -> int:
    """Return where the memory of a contiguous array begins."""
    try:
        return int(array.data_ptr())  # of torch
    except AttributeError:
        from kernelmill.runtime.cuda.arrays import view_of  # noqa: PLC0415 - only where it is used

        return view_of(array, "an array").ptr


class SeriesPlan(Plan):
    """A prepared call of several launches."""

    __slots__ = ("_kernels", "_series")

    def __init__(self, bound: Bound, prepare: Prepare, inputs: tuple[Any, ...]) -> None:
        """Prepare calls of arrays like these, which `bound` was made for."""
        super().__init__(bound, prepare, fixed=None)
        self._series: _Series | None = None
        steps = _steps_of(bound)
        self._kernels = [b.built for b in steps or (bound,)]
        results = bound.result if type(bound.result) is tuple else (bound.result,)
        on_device = bound.views[0].place is not None
        if steps is not None and on_device and np.ndarray not in map(type, (*inputs, *results)):
            from kernelmill.runtime.cuda.arrays import view_of  # noqa: PLC0415 - only there

            views = [view_of(a, "an array") for a in (*inputs, *results)]
            self._series = _series_of(steps, views, len(results))

    @property
    def is_general(self) -> bool:
        """Whether every call takes the general way, since there is no short one."""
        return self._series is None

    def _serves(self, bound: Bound) -> bool:
        """Return whether a call needs the kernels that were prepared, or some of them.

        Arrays that lie otherwise are copied by launches of their own.
        """
        needed = [b.built for b in _steps_of(bound) or (bound,)]
        few, many = sorted((self._kernels, needed), key=len)
        return all(any(m.serves(f) for m in many) for f in few)

    def try_launch(self, operators: tuple[object, ...], inputs: tuple[Any, ...], out: Any) -> Any:
        """Launch on the native path; None when the arrays need the general one."""
        del operators  # nothing is captured
        series = self._series
        if series is None or events.active:
            return None
        if out is None:
            made = tuple([make() for make in series.outputs])
        else:
            made = out if type(out) is tuple else (out,)
            if len(made) != len(series.outputs) or not series.apart((*inputs, *made)):
                return None
        if not series.run((*inputs, *made)):
            return None
        return out if out is not None else made if len(made) > 1 else made[0]


def again(
    parts: tuple[object, ...], inputs: tuple[Any, ...], out: Any
) -> tuple[tuple[object, ...] | None, Any]:
    """Carry out a call as one before it, if there was one; returns its key and the result.

    `parts` tell the call apart from others of such arrays, and are hashable. Without a key later
    calls are not told apart; without a result this one is to be prepared.
    """
    arrays = inputs if out is None else (*inputs, *(out if type(out) is tuple else (out,)))
    if events.active or np.ndarray in map(type, arrays):
        return None, None
    key = key_of([*parts], arrays)
    if key is not None:
        for found in lately(key):
            done = found.try_launch((), inputs, out)
            if done is not None:
                return key, done
    return key, None


def prepared_once(
    key: tuple[object, ...] | None, prepare: Prepare, inputs: tuple[Any, ...], out: Any
) -> Any:
    """Prepare a call and carry it out; later ones with its key take the short way."""
    bound = prepare(inputs, out)
    if key is not None:
        remember(key, SeriesPlan(bound, prepare, inputs))
    return execute(bound)


def run_series(
    parts: tuple[object, ...], prepare: Prepare, inputs: tuple[Any, ...], out: Any
) -> Any:
    """Carry out a call as one before it, or prepare it."""
    key, done = again(parts, inputs, out)
    return prepared_once(key, prepare, inputs, out) if done is None else done
