"""Sorts on a GPU: of keys, with values beside them, of places; random keys and easy ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cuda_timing as timing
import kernelmill as km
from cuda_peers import CurrentStream, Work, case_of, cupy_view, on_cupy, peer
from harness import OURS, Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case

__all__ = ["cases"]

_KEYS, _PAIRS, _PLACES = "sort", "sort by key", "argsort"
_FEW, _SORTED = "sort, 7 values", "sort, sorted already"
_DTYPES: Final = ("int32", "float32", "int64", "float16")
# What is asked of the largest arrays: against whom, and how much faster.
_RATIOS: Final = {
    (_KEYS, "int32"): ("cuda.compute", 1.4),
    (_KEYS, "float32"): ("cuda.compute", 1.4),
    (_KEYS, "int64"): ("cuda.compute", 1.15),
    (_PAIRS, "int32"): ("cuda.compute", 1.22),
    (_PLACES, "float32"): ("torch", 1.5),
}
_BITS: Final = 8
_VALUES: Final = 7


@dataclass(frozen=True, slots=True)
class Later:
    """A case whose arrays are made when it is its turn."""

    name: str
    dtype: str
    case: Callable[[], Case]


def cases(budget: Budget) -> Iterator[Later]:
    """Yield the cases of the family."""
    for elements in timing.sizes(budget):
        for dtype in _DTYPES:
            yield Later(_KEYS, dtype, partial(_case, _KEYS, dtype, elements))
        yield Later(_PAIRS, "int32", partial(_case, _PAIRS, "int32", elements))
        yield Later(_PLACES, "float32", partial(_case, _PLACES, "float32", elements))
        if elements >= timing.LARGEST:
            yield Later(_FEW, "int32", partial(_case, _FEW, "int32", elements))
            yield Later(_SORTED, "int32", partial(_case, _SORTED, "int32", elements))


def _case(name: str, dtype: str, elements: int) -> Case:
    torch = timing.torch()
    item = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    beside = {_PAIRS: 4, _PLACES: 4}.get(name, 0)
    ratio = _RATIOS.get((name, dtype)) if elements >= timing.LARGEST else None
    goals = (*timing.goals_at(elements)[:1], *((Goal(*ratio),) if ratio else ()))
    work = Work(
        name=name,
        dtype=dtype,
        elements=elements,
        arrays=partial(_arrays, name, dtype, elements),
        wanted=_Wanted(by_place=beside > 0),
        makers={OURS: partial(_ours, name), "cuda.compute": partial(_compute, name),
                "torch": partial(_torch, name), "CuPy": partial(_cupy, name)},
        tolerance=0,
        # Digits are counted once; each pass reads and writes everything.
        bytes=elements * (item + 2 * (item + beside) * (item * 8 // _BITS)),
        goals=goals,
    )  # fmt: skip
    return case_of(work)


@dataclass(slots=True)
class _Wanted:
    """What results should be: the sorted keys, or the places that they came from."""

    by_place: bool
    found: dict[int, Any] = field(default_factory=dict)

    def __call__(self, arrays: timing.Arrays, piece: slice) -> Any:
        keys = arrays.inputs[0]
        if id(arrays) not in self.found:
            made = timing.torch().sort(keys, stable=True)
            self.found[id(arrays)] = made.indices if self.by_place else made.values
        return self.found[id(arrays)][piece]


def _arrays(name: str, dtype: str, elements: int) -> timing.Arrays:
    torch = timing.torch()
    kind = getattr(torch, dtype)
    if kind.is_floating_point:
        x = timing.filled(elements, dtype)
    else:
        limits = torch.iinfo(kind)
        x = torch.empty(elements, dtype=kind, device="cuda").random_(limits.min, limits.max)
    if name == _FEW:
        x.remainder_(_VALUES)
    if name == _SORTED:
        x = x.sort().values
    if name == _PAIRS:
        values = torch.arange(elements, dtype=torch.int32, device="cuda")
        return timing.Arrays((x, values, torch.empty_like(x)), (torch.empty_like(values),))
    kind = torch.int64 if name == _PLACES else kind
    return timing.Arrays((x,), (torch.empty(elements, dtype=kind, device="cuda"),))


# ----------------------------------------------------------------------------- one a contender


def _ours(name: str, arrays: timing.Arrays) -> Callable[[], Any]:
    (x, *beside), (out,) = arrays.inputs, arrays.outputs
    if name == _PAIRS:
        values, keys = beside
        return lambda: km.sort_by_key(x, values, out=(keys, out))
    if name == _PLACES:
        return lambda: km.argsort(x, out=out)
    return lambda: km.sort(x, out=out)


def _compute(name: str, arrays: timing.Arrays) -> Any:
    module, torch = peer("cuda.compute"), timing.torch()
    if isinstance(module, str):
        return module
    if name == _PLACES:
        return "it has no argsort"
    (x, *beside), (out,) = arrays.inputs, arrays.outputs
    values, keys = beside or (None, out)
    given = {
        "d_in_keys": x,
        "d_out_keys": keys,
        "d_in_values": values,
        "d_out_values": out if beside else None,
    }
    made = module.make_radix_sort(**given, order=module.SortOrder.ASCENDING)
    call = partial(made, **given, num_items=x.numel(), stream=CurrentStream())
    space = torch.empty(max(int(call(temp_storage=None)), 1), dtype=torch.uint8, device="cuda")
    return lambda: call(temp_storage=space)


def _torch(name: str, arrays: timing.Arrays) -> Any:
    torch, (x, *beside), (out,) = timing.torch(), arrays.inputs, arrays.outputs
    if name == _PAIRS:
        values, _ = beside
        return lambda: torch.take(values, x.sort(stable=True).indices, out=out)
    if name == _PLACES:
        return lambda: torch.argsort(x, stable=True, out=out)
    places = torch.empty(x.numel(), dtype=torch.int64, device="cuda")
    return lambda: torch.sort(x, out=(out, places))


def _cupy(name: str, arrays: timing.Arrays) -> Any:
    module = peer("CuPy")
    if isinstance(module, str):
        return module
    if name == _PAIRS:
        return "it has no sort by key"
    x, out = cupy_view(arrays.inputs[0]), cupy_view(arrays.outputs[0])

    def call() -> None:
        out[:] = module.argsort(x) if name == _PLACES else module.sort(x)

    return on_cupy(call)
