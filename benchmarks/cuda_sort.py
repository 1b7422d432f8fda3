"""Sorts on a GPU: keys, values beside them, places, segments, the first ones; easy keys too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cuda_timing as timing
import kernelmill as km
from cuda_peers import FAILURES, CurrentStream, Work, case_of, cupy_view, on_cupy, peer
from harness import COPY, OURS, Goal, Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case

__all__ = ["cases"]

_KEYS, _PAIRS, _PLACES = "sort", "sort by key", "argsort"
_FEW, _SORTED = "sort, 7 values", "sort, sorted already"
_FIRST, _MIXED = "topk, 100", "segmented sort, mixed lengths"
_DTYPES: Final = ("int32", "float32", "int64", "float16")
# What is asked of the largest arrays: against whom, and how much faster.
_RATIOS: Final = {
    (_KEYS, "int32"): ("cuda.compute", 1.4),
    (_KEYS, "float32"): ("cuda.compute", 1.4),
    (_KEYS, "int64"): ("cuda.compute", 1.15),
    (_PAIRS, "int32"): ("cuda.compute", 1.22),
    (_PLACES, "float32"): ("torch", 1.5),
    (_MIXED, "int32"): ("cuda.compute", 2.0),
    # A copy of so many bytes takes as long as reading all elements.
    (_FIRST, "float32"): (COPY, 1 / 1.3),
}
_BITS: Final = 8
_VALUES: Final = 7
# Of long sorts few are enough: their graphs take some ten milliseconds each.
_LONG: Final = 1 << 24
_LONG_LAUNCHES: Final = 3
_COMPILERS: Final = 16
_K: Final = 100
# Lengths of segments: each of them as many elements in all, in an order drawn at random.
_LENGTHS: Final = (1, 2, 3, 8, 64, 1024, 1_000_000)


def cases(budget: Budget) -> Iterator[Later]:
    """Yield the cases of the family."""
    _compile_all(timing.sizes(budget))
    for elements in timing.sizes(budget):
        for dtype in _DTYPES:
            yield Later(_KEYS, dtype, elements, partial(_case, _KEYS, dtype, elements))
        yield Later(_PAIRS, "int32", elements, partial(_case, _PAIRS, "int32", elements))
        yield Later(_PLACES, "float32", elements, partial(_case, _PLACES, "float32", elements))
        if elements >= _LONG:
            yield Later(_FIRST, "float32", elements, partial(_case, _FIRST, "float32", elements))
            yield Later(_MIXED, "int32", elements, partial(_case, _MIXED, "int32", elements))
        if elements >= timing.LARGEST:
            yield Later(_FEW, "int32", elements, partial(_case, _FEW, "int32", elements))
            yield Later(_SORTED, "int32", elements, partial(_case, _SORTED, "int32", elements))


def _compile_all(sizes: tuple[int, ...]) -> None:
    """Let all contenders compile side by side what they will run: alone it takes a minute."""
    sorts = [*((_KEYS, dtype) for dtype in _DTYPES), (_PAIRS, "int32"), (_PLACES, "float32"),
             (_MIXED, "int32")]  # fmt: skip
    shortest = min(sizes)

    def compiled(name: str, dtype: str, elements: int) -> None:
        arrays = _arrays(name, dtype, elements)
        _ours(name, arrays)()
        if elements == shortest:
            with suppress(*FAILURES):  # its own case tells what it does not serve
                _compute(name, arrays)

    with ThreadPoolExecutor(_COMPILERS) as pool:
        # Those of others take longest, and so begin first.
        waiting = [
            pool.submit(compiled, *sort, n) for n in sorted(sizes) if n <= _LONG for sort in sorts
        ]
    for done in waiting:
        done.result()


def _case(name: str, dtype: str, elements: int) -> Case:
    torch = timing.torch()
    item = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    beside = {_PAIRS: 4, _PLACES: 4}.get(name, 0)
    sorts = name != _FIRST
    ratio = _RATIOS.get((name, dtype)) if elements >= timing.LARGEST else None
    goals = (*timing.goals_at(elements)[:1], *((Goal(*ratio),) if ratio else ()))
    wanted: dict[str, Callable[[timing.Arrays, slice], Any]] = {
        _FIRST: _first,
        _MIXED: _OfSegments(),
    }
    work = Work(
        name=name,
        dtype=dtype,
        elements=elements,
        arrays=partial(_arrays, name, dtype, elements),
        wanted=wanted.get(name, Wanted(by_place=beside > 0)),
        makers={OURS: partial(_ours, name), "cuda.compute": partial(_compute, name),
                "torch": partial(_torch, name), "CuPy": partial(_cupy, name)},
        tolerance=0,
        # Digits are counted once; each pass reads and writes everything.
        bytes=elements * (item + (2 * (item + beside) * (item * 8 // _BITS) if sorts else 0)),
        goals=goals,
        waits=name == _MIXED,
        launches=_LONG_LAUNCHES if elements > _LONG else 0,
    )  # fmt: skip
    return case_of(work)


@dataclass(slots=True)
class Wanted:
    """What results should be: the sorted keys, or the places that they came from."""

    by_place: bool
    found: dict[int, Any] = field(default_factory=dict)

    def __call__(self, arrays: timing.Arrays, piece: slice) -> Any:
        keys = arrays.inputs[0]
        if id(arrays) not in self.found:
            made = timing.torch().sort(keys, stable=True)
            self.found[id(arrays)] = made.indices if self.by_place else made.values
        return self.found[id(arrays)][piece]


def _first(arrays: timing.Arrays, piece: slice) -> Any:
    return timing.torch().topk(arrays.inputs[0], _K).values[piece]


@dataclass(slots=True)
class _OfSegments:
    """What sorted segments should be: all keys in order, then stably by their segments."""

    found: dict[int, Any] = field(default_factory=dict)

    def __call__(self, arrays: timing.Arrays, piece: slice) -> Any:
        if id(arrays) not in self.found:
            torch, (keys, offsets) = timing.torch(), arrays.inputs
            number = torch.repeat_interleave(offsets.diff()).int()
            by_key = keys.sort(stable=True)
            places = number[by_key.indices].sort(stable=True).indices
            self.found[id(arrays)] = by_key.values[places]
        return self.found[id(arrays)][piece]


def _offsets(elements: int) -> Any:
    """Return where segments of mixed lengths begin, and the end."""
    torch = timing.torch()
    share = elements // len(_LENGTHS)
    lengths = torch.cat(
        [torch.full((share // n,), n, device="cuda") for n in _LENGTHS if n <= share]
    )
    lengths = lengths[torch.randperm(lengths.numel(), device="cuda")]
    ends = lengths.cumsum(0).clamp_(max=elements)
    ends[-1] = elements
    return torch.cat([ends.new_zeros(1), ends])


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
    if name == _FIRST:
        places = torch.empty(_K, dtype=torch.int64, device="cuda")
        return timing.Arrays((x, places), (torch.empty(_K, dtype=kind, device="cuda"),))
    if name == _MIXED:
        return timing.Arrays((x, _offsets(elements)), (torch.empty_like(x),))
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
    if name == _FIRST:
        return lambda: km.topk(x, _K, out=(out, beside[0]))
    if name == _MIXED:
        return lambda: km.segmented_sort(x, beside[0], out=out)
    return lambda: km.sort(x, out=out)


def _compute(name: str, arrays: timing.Arrays) -> Any:
    module, torch = peer("cuda.compute"), timing.torch()
    if isinstance(module, str):
        return module
    if name in {_PLACES, _FIRST}:
        return f"it has no {'argsort' if name == _PLACES else 'topk'}"
    if name == _MIXED:
        return _compute_segments(arrays)
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


def _compute_segments(arrays: timing.Arrays) -> Any:
    (x, offsets), (out,) = arrays.inputs, arrays.outputs
    given = {
        "d_in_keys": x,
        "d_out_keys": out,
        "d_in_values": None,
        "d_out_values": None,
        "start_offsets_in": offsets[:-1],
        "end_offsets_in": offsets[1:],
    }
    module = peer("cuda.compute")
    made = module.make_segmented_sort(**given, order=module.SortOrder.ASCENDING)
    counts = {"num_items": x.numel(), "num_segments": offsets.numel() - 1}
    call = partial(made, **given, **counts, stream=CurrentStream())
    size = max(int(call(temp_storage=None)), 1)
    space = timing.torch().empty(size, dtype=timing.torch().uint8, device="cuda")
    return lambda: call(temp_storage=space)


def _torch(name: str, arrays: timing.Arrays) -> Any:
    torch, (x, *beside), (out,) = timing.torch(), arrays.inputs, arrays.outputs
    if name == _PAIRS:
        values, _ = beside
        return lambda: torch.take(values, x.sort(stable=True).indices, out=out)
    if name == _PLACES:
        return lambda: torch.argsort(x, stable=True, out=out)
    if name == _FIRST:
        return lambda: torch.topk(x, _K, out=(out, beside[0]))
    if name == _MIXED:
        return "it has no sort of segments"
    places = torch.empty(x.numel(), dtype=torch.int64, device="cuda")
    return lambda: torch.sort(x, out=(out, places))


def _cupy(name: str, arrays: timing.Arrays) -> Any:
    module = peer("CuPy")
    if isinstance(module, str):
        return module
    if name in {_PAIRS, _FIRST, _MIXED}:
        return f"it has no {name.partition(',')[0]}"
    x, out = cupy_view(arrays.inputs[0]), cupy_view(arrays.outputs[0])

    def call() -> None:
        out[:] = module.argsort(x) if name == _PLACES else module.sort(x)

    return on_cupy(call)
