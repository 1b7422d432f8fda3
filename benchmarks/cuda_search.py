"""Places of random values in a sorted array of four million, on a GPU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cuda_timing as timing
import kernelmill as km
from cuda_peers import Work, cupy_view, on_cupy, peer
from harness import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

_LENGTH: Final = 1 << 22
_MOST: Final = 1 << 26


def cases(budget: Budget) -> Iterator[Work]:
    """Yield the cases of the family."""
    for elements in (n for n in timing.sizes(budget) if n <= _MOST):
        for dtype in ("float32", "int64"):
            yield _work(dtype, elements)


def _work(dtype: str, elements: int) -> Work:
    torch = timing.torch()
    item = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    return Work(
        name="lower_bound",
        dtype=dtype,
        elements=elements,
        arrays=partial(_arrays, dtype, elements),
        wanted=_wanted,
        makers={OURS: _ours, "torch": _torch, "CuPy": _cupy},
        tolerance=0,
        bytes=elements * (item + 8),
        goals=timing.goals_at(elements)[:1],
    )


def _arrays(dtype: str, elements: int) -> timing.Arrays:
    torch = timing.torch()
    kind = getattr(torch, dtype)
    data = (torch.rand(_LENGTH, device="cuda") * (1 << 30)).to(kind).sort().values
    x = (torch.rand(elements, device="cuda") * (1 << 30)).to(kind)
    return timing.Arrays((data, x), (torch.empty(elements, dtype=torch.int64, device="cuda"),))


def _wanted(arrays: timing.Arrays, piece: slice) -> Any:
    data, x = arrays.inputs
    return timing.torch().searchsorted(data, x[piece])


# ----------------------------------------------------------------------------- one a contender


def _ours(arrays: timing.Arrays) -> Callable[[], Any]:
    (data, x), (out,) = arrays.inputs, arrays.outputs
    plan = km.lower_bound.plan(data, x, out=out)  # type: ignore[attr-defined]
    return lambda: plan(data, x, out=out)


def _torch(arrays: timing.Arrays) -> Callable[[], Any]:
    torch, (data, x), (out,) = timing.torch(), arrays.inputs, arrays.outputs
    return lambda: torch.searchsorted(data, x, out=out)


def _cupy(arrays: timing.Arrays) -> Any:
    module = peer("CuPy")
    if isinstance(module, str):
        return module
    data, x = map(cupy_view, arrays.inputs)
    out = cupy_view(arrays.outputs[0])

    def call() -> None:
        out[:] = module.searchsorted(data, x)

    return on_cupy(call)
