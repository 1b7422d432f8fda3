"""Sorts by a comparator on a GPU, of keys and of pairs, and merges of sorted arrays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cuda_timing as timing
import kernelmill as km
from cuda_peers import CurrentStream, Work, case_of, peer
from cuda_sort import Wanted
from harness import COPY, OURS, Goal, Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case

__all__ = ["cases"]

_KEYS, _PAIRS, _MERGE = "sort by a comparator", "sort pairs by a comparator", "merge"
_PEER: Final = "cuda.compute"
# What is asked of the largest arrays: against whom, and how much faster.
_RATIOS: Final = {_KEYS: (_PEER, 1.2), _PAIRS: (_PEER, 1.1), _MERGE: (COPY, 0.7)}
# Of long sorts few are enough: their graphs take some ten milliseconds each.
_LONG: Final = 1 << 24
_LONG_LAUNCHES: Final = 3
_ITEM: Final = 4
_LEVELS: Final = 2  # a pass merges four runs


def _less(a: Any, b: Any) -> Any:
    return a < b


def cases(budget: Budget) -> Iterator[Later]:
    """Yield the cases of the family."""
    for elements in timing.sizes(budget):
        for name in (_KEYS, _PAIRS, _MERGE):
            yield Later(name, "int32", elements, partial(_case, name, elements))


def _case(name: str, elements: int) -> Case:
    ratio = _RATIOS[name] if elements >= timing.LARGEST else None
    work = Work(
        name=name,
        dtype="int32",
        elements=elements,
        arrays=partial(_arrays, name, elements),
        wanted=Wanted(by_place=name == _PAIRS),
        makers={OURS: partial(_ours, name), _PEER: partial(_compute, name),
                "torch": partial(_torch, name)},
        tolerance=0,
        bytes=_bytes(name, elements),
        goals=(*timing.goals_at(elements)[:1], *((Goal(*ratio),) if ratio else ())),
        launches=_LONG_LAUNCHES if elements > _LONG else 0,
    )  # fmt: skip
    return case_of(work)


def _bytes(name: str, elements: int) -> int:
    """Return what is read and written: a pass for each two bits of the number of elements."""
    passes = 1 if name == _MERGE else 1 + max(0, elements.bit_length() - 12) // _LEVELS
    return elements * passes * 2 * _ITEM * (2 if name == _PAIRS else 1)


def _arrays(name: str, elements: int) -> timing.Arrays:
    torch = timing.torch()
    limits = torch.iinfo(torch.int32)
    x = torch.empty(elements, dtype=torch.int32, device="cuda").random_(limits.min, limits.max)
    out = torch.empty_like(x)
    if name == _PAIRS:
        values = torch.arange(elements, dtype=torch.int32, device="cuda")
        return timing.Arrays((x, values, torch.empty_like(x)), (out,))
    if name == _MERGE:
        half = elements // 2
        for part in (x[:half], x[half:]):
            part.copy_(part.sort().values)
    return timing.Arrays((x,), (out,))


# ----------------------------------------------------------------------------- one a contender


def _ours(name: str, arrays: timing.Arrays) -> Callable[[], Any]:
    (x, *beside), (out,) = arrays.inputs, arrays.outputs
    if name == _PAIRS:
        values, keys = beside
        return lambda: km.sort_by_key(x, values, comparator=_less, out=(keys, out))
    if name == _MERGE:
        half = x.numel() // 2
        return lambda: km.merge(x[:half], x[half:], comparator=_less, out=out)
    return lambda: km.sort(x, comparator=_less, out=out)


def _compute(name: str, arrays: timing.Arrays) -> Any:
    module, torch = peer(_PEER), timing.torch()
    if isinstance(module, str):
        return module
    if name == _MERGE:
        return "it has no merge"
    (x, *beside), (out,) = arrays.inputs, arrays.outputs
    values, keys = beside or (None, out)
    given = {
        "d_in_keys": x,
        "d_in_values": values,
        "d_out_keys": keys,
        "d_out_values": out if beside else None,
        "op": _less,
    }
    made = module.make_merge_sort(**given)
    call = partial(made, **given, num_items=x.numel(), stream=CurrentStream())
    space = torch.empty(max(int(call(temp_storage=None)), 1), dtype=torch.uint8, device="cuda")
    return lambda: call(temp_storage=space)


def _torch(name: str, arrays: timing.Arrays) -> Any:
    if name != _MERGE:
        return "it has no comparators"
    torch, (x,), (out,) = timing.torch(), arrays.inputs, arrays.outputs
    places = torch.empty(x.numel(), dtype=torch.int64, device="cuda")
    return lambda: torch.sort(x, out=(out, places))
