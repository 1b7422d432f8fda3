"""Selections, partitions and runs of equal keys on a GPU, into buffers, with the count left there.

torch and CuPy return arrays of exact length, for which they wait: they are timed on a stream, with
the host, the others by graphs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cuda_timing as timing
import kernelmill as km
from cuda_peers import (
    FAILURES,
    Pairs,
    Work,
    built_beside,
    case_of,
    cupy_view,
    on_cupy,
    pairs,
    peer,
    prepared,
)
from harness import FASTEST, OURS, Contender, Goal, Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harness import Budget, Case

__all__ = ["cases"]

_AT_EVERY_SIZE: Final = Goal(FASTEST, seconds=0.5e-6, share=0.02)
_SELECT, _PARTITION, _THREE = "x[x > half]", "x[p], x[~p]", "three parts"
_KEYS, _RUNS = "unique by key", "run lengths"
_DTYPES: Final = ("float32", "int64", "float16", "uint8")
_STRUCT: Final = "struct of 2 x int32"
_HALF, _HIGH, _LOW = 0.5, 0.7, 0.3
# More than any value.
_MORE: Final = 2.0
# Elements of calls that are made so that they are compiled.
_FEW: Final = 64
# Elements of a run of equal keys.
_RUN: Final = 4
_WAITS: Final = {"torch": "torch, with the host", "CuPy": "CuPy, with the host"}


def cases(budget: Budget) -> Iterator[Later]:
    """Yield the cases of the family."""
    built_beside(
        [
            *(partial(_peers_select, dtype) for dtype in _DTYPES),
            _peers_three,
            _peers_keys,
            _peers_structs,
        ]
    )
    for elements in timing.sizes(budget):
        for dtype in _DTYPES:
            yield Later(_SELECT, dtype, elements, partial(_select, dtype, elements))
        yield Later(_SELECT, _STRUCT, elements, partial(_structs, elements))
        yield Later(_PARTITION, "float32", elements, partial(_partition, elements))
        yield Later(_THREE, "float32", elements, partial(_three, elements))
        yield Later(_KEYS, "int32", elements, partial(_by_key, elements))
        yield Later(_RUNS, "int32", elements, partial(_runs, elements))


def _goals(elements: int, ratio: float) -> tuple[Goal, ...]:
    large = (Goal("cuda.compute", ratio),) if elements >= timing.LARGEST and ratio else ()
    return (_AT_EVERY_SIZE, *large)


def _values(dtype: str, elements: int) -> Any:
    torch = timing.torch()
    if dtype.startswith("float"):
        return timing.filled(elements, dtype, 0.0, 1.0)
    return torch.randint(0, 2, (elements,), dtype=getattr(torch, dtype), device="cuda")


def _count(size: int = 1) -> Any:
    return timing.filled(size, "int64")


def _with_the_host(case: Case, elements: int, calls: dict[str, Callable[[], Any]]) -> Case:
    """Return the case with contenders that wait for the device in every call."""
    found, skipped = list(case.contenders), dict(case.skipped)
    launches = max(3, min(20, (1 << 27) // elements))
    for name, call in calls.items():
        module = peer(name) if name == "CuPy" else timing.torch()
        if isinstance(module, str):
            skipped[_WAITS[name]] = module
            continue
        try:
            measure = timing.stream_timer(call, launches)
        except FAILURES as error:
            skipped[_WAITS[name]] = str(error)[:200]
            continue
        found.append(Contender(_WAITS[name], call, measure, single=True, compared=False))
    return replace(case, contenders=tuple(found), skipped=skipped)


# ----------------------------------------------------------------------------- selections


def _limit(dtype: str) -> float:
    return _HALF if dtype.startswith("float") else 0


def _their_select(x: Any, limit: float, count: Any, arrays: timing.Arrays) -> Any:
    (out,) = arrays.outputs
    given = {"d_in": x, "d_out": out, "d_num_selected_out": count, "cond": lambda v: v > limit}
    return prepared("make_select", given, num_items=x.numel())


def _peers_select(dtype: str) -> Any:
    x = _values(dtype, _FEW)
    return _their_select(x, _limit(dtype), _count(), timing.Arrays((), (x.clone(),)))


def _select(dtype: str, elements: int) -> Case:
    x = _values(dtype, elements)
    limit = _limit(dtype)
    wanted, count = x[x > limit], _count()

    def ours(arrays: timing.Arrays) -> Any:
        (out,) = arrays.outputs
        plan = km.select.plan(x, lambda v: v > limit, out=(out, count))  # type: ignore[attr-defined]
        return lambda: plan(x, out=(out, count))

    theirs = partial(_their_select, x, limit, count)
    work = _work(_SELECT, dtype, elements, wanted, {OURS: ours, "cuda.compute": theirs}, 1.8)
    work = replace(work, bytes=(elements + wanted.numel()) * x.element_size())
    calls: dict[str, Callable[[], Any]] = {"torch": lambda: x[x > limit]}
    if not isinstance(peer("CuPy"), str):
        view = cupy_view(x)
        calls["CuPy"] = on_cupy(lambda: view[view > limit])
    return _with_the_host(case_of(work), elements, calls)


def _has_even_key(pair: Any) -> Any:
    return pair.key % 2 == 0


def _their_structs(x: Any, count: Any, arrays: timing.Arrays) -> Any:
    given = {
        "d_in": Pairs(x),
        "d_out": Pairs(arrays.outputs[0]),
        "d_num_selected_out": count,
        "cond": _has_even_key,
    }
    return prepared("make_select", given, num_items=x.numel() // 2)


def _peers_structs() -> Any:
    x = pairs(_FEW)
    return _their_structs(x, _count(), timing.Arrays((), (x.clone(),)))


def _structs(elements: int) -> Case:
    """Pairs whose key is even: half of them."""
    x, count = pairs(elements), _count()
    wanted = x.view(-1, 2)[x[::2] % 2 == 0].view(-1)

    def ours(arrays: timing.Arrays) -> Any:
        given, out = Pairs(x), (Pairs(arrays.outputs[0]), count)
        plan = km.select.plan(given, _has_even_key, out=out)  # type: ignore[attr-defined]
        return lambda: plan(given, out=out)

    makers = {OURS: ours, "cuda.compute": partial(_their_structs, x, count)}
    work = _work(_SELECT, _STRUCT, elements, wanted, makers, 1.8)
    return case_of(replace(work, bytes=8 * elements + 4 * wanted.numel()))


def _work(  # noqa: PLR0917 - in the order of `Work`
    name: str,
    dtype: str,
    elements: int,
    wanted: Any,
    makers: Mapping[str, Callable[[timing.Arrays], Any]],
    ratio: float = 0.0,
) -> Work:
    """Return the work whose output is this: a buffer has room for what is found, and no more."""
    return Work(
        name=name,
        dtype=dtype,
        elements=elements,
        arrays=lambda: timing.Arrays((), (wanted.clone(),)),
        wanted=lambda _, piece: wanted[piece],
        makers=dict(makers),
        tolerance=0.0,
        bytes=0,
        goals=_goals(elements, ratio),
    )


def _partition(elements: int) -> Case:
    x = _values("float32", elements)
    flags = x > _HALF
    wanted, rest, count = x[flags], x[~flags], _count()

    def ours(arrays: timing.Arrays) -> Any:
        out = (*arrays.outputs, rest, count)
        plan = km.partition.plan(x, lambda v: v > _HALF, out=out)  # type: ignore[attr-defined]
        return lambda: plan(x, out=out)

    def theirs(arrays: timing.Arrays) -> Any:
        """By three parts, of which one is of none: it has no other partition."""
        return _their_three(x, (*arrays.outputs, rest[:1].clone(), rest), _count(2), _HALF, _MORE)

    makers = {OURS: ours, "cuda.compute": theirs}
    work = _work(_PARTITION, "float32", elements, wanted, makers, 1.6)
    case = case_of(replace(work, bytes=8 * elements))
    return _with_the_host(case, elements, {"torch": lambda: (x[x > _HALF], x[x <= _HALF])})


def _their_three(x: Any, parts: tuple[Any, Any, Any], counts: Any, high: float, low: float) -> Any:
    given = {
        "d_in": x,
        "d_first_part_out": parts[0],
        "d_second_part_out": parts[1],
        "d_unselected_out": parts[2],
        "d_num_selected_out": counts,
        "select_first_part_op": lambda v: v > high,
        "select_second_part_op": lambda v: v > low,
    }
    return prepared("make_three_way_partition", given, num_items=x.numel())


def _peers_three() -> None:
    x = _values("float32", _FEW)
    for high, low in ((_HIGH, _LOW), (_HALF, _MORE)):
        _their_three(x, (x.clone(), x.clone(), x.clone()), _count(2), high, low)


def _three(elements: int) -> Case:
    x = _values("float32", elements)
    first, second = x > _HIGH, (x <= _HIGH) & (x > _LOW)
    wanted, middle, rest, counts = x[first], x[second], x[x <= _LOW], _count(2)

    def ours(arrays: timing.Arrays) -> Any:
        out = (*arrays.outputs, middle, rest, counts)
        plan = km.three_way_partition.plan(x, lambda v: v > _HIGH, lambda v: v > _LOW, out=out)  # type: ignore[attr-defined]
        return lambda: plan(x, out=out)

    def theirs(arrays: timing.Arrays) -> Any:
        return _their_three(x, (*arrays.outputs, middle, rest), counts, _HIGH, _LOW)

    makers = {OURS: ours, "cuda.compute": theirs}
    work = _work(_THREE, "float32", elements, wanted, makers, 1.6)
    return case_of(replace(work, bytes=8 * elements))


# ----------------------------------------------------------------------------- runs


def _runs_of(elements: int) -> Any:
    torch = timing.torch()
    return torch.div(torch.arange(elements, device="cuda"), _RUN, rounding_mode="floor").int()


def _their_keys(keys: Any, items: Any, found: Any, count: Any, arrays: timing.Arrays) -> Any:
    module = peer("cuda.compute")
    if isinstance(module, str):
        return module
    given = {
        "d_in_keys": keys,
        "d_in_items": items,
        "d_out_keys": found,
        "d_out_items": arrays.outputs[0],
        "d_out_num_selected": count,
        "op": module.OpKind.EQUAL_TO,
    }
    return prepared("make_unique_by_key", given, num_items=keys.numel())


def _peers_keys() -> Any:
    keys = _runs_of(_FEW)
    arrays = timing.Arrays((), (keys.clone(),))
    return _their_keys(keys, keys.clone(), keys.clone(), _count(), arrays)


def _by_key(elements: int) -> Case:
    keys = _runs_of(elements)
    items = timing.filled(elements, "int32")
    wanted, found, count = items[::_RUN].clone(), keys[::_RUN].clone(), _count()

    def ours(arrays: timing.Arrays) -> Any:
        out = (found, *arrays.outputs, count)
        plan = km.unique_by_key.plan(keys, items, out=out)  # type: ignore[attr-defined]
        return lambda: plan(keys, items, out=out)

    theirs = partial(_their_keys, keys, items, found, count)
    makers = {OURS: ours, "cuda.compute": theirs}
    work = _work(_KEYS, "int32", elements, wanted, makers, 2.5)
    return case_of(replace(work, bytes=8 * elements + 8 * wanted.numel()))


def _runs(elements: int) -> Case:
    keys = _runs_of(elements)
    wanted, count = keys[::_RUN].clone(), _count()
    lengths = timing.filled(wanted.numel(), "int64")

    def ours(arrays: timing.Arrays) -> Any:
        out = (*arrays.outputs, lengths, count)
        plan = km.run_length_encode.plan(keys, out=out)  # type: ignore[attr-defined]
        return lambda: plan(keys, out=out)

    torch = timing.torch()
    work = _work(_RUNS, "int32", elements, wanted, {OURS: ours})
    case = case_of(replace(work, bytes=4 * elements + 12 * wanted.numel()))
    return _with_the_host(
        case, elements, {"torch": lambda: torch.unique_consecutive(keys, return_counts=True)}
    )
