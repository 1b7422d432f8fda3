"""Histograms of 256 bins on a GPU: of floats, with 90 % of one value, of integers and bytes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import cuda_timing as timing
import kernelmill as km
from cuda_peers import Work, built_beside, cupy_view, on_cupy, peer, prepared
from harness import OURS, Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

_BINS: Final = 256
_PLAIN, _SKEWED = "histogram of 256 bins", "histogram of 256 bins, 90 % of one value"
_DTYPES: Final = ("float32", "int32", "uint8")
_RATIO: Final = 1.05


def cases(budget: Budget) -> Iterator[Work]:
    """Yield the cases of the family."""
    built_beside([partial(_cuda_compute, _arrays(_PLAIN, dtype, 64)) for dtype in _DTYPES])
    for elements in timing.sizes(budget):
        for name, dtype in (
            (_PLAIN, "float32"),
            (_SKEWED, "float32"),
            (_PLAIN, "int32"),
            (_PLAIN, "uint8"),
        ):
            yield _work(name, dtype, elements)


def _work(name: str, dtype: str, elements: int) -> Work:
    torch = timing.torch()
    item = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    goals = (
        (Goal("cuda.compute", _RATIO),) if elements >= timing.LARGEST else timing.goals_at(elements)
    )
    return Work(
        name=name,
        dtype=dtype,
        elements=elements,
        arrays=partial(_arrays, name, dtype, elements),
        wanted=_wanted,
        makers={OURS: _ours, "cuda.compute": _cuda_compute, "torch": _torch, "CuPy": _cupy},
        tolerance=1e-4,  # peers put values near edges elsewhere
        bytes=elements * item,
        goals=goals,
    )


def _high(x: Any) -> float:
    return 1.0 if x.dtype.is_floating_point else float(_BINS)


def _arrays(name: str, dtype: str, elements: int) -> timing.Arrays:
    torch = timing.torch()
    x = torch.rand(elements, device="cuda")
    if name == _SKEWED:
        x[torch.rand(elements, device="cuda") < 0.9] = 0.3
    if dtype != "float32":
        x = (x * _BINS).to(getattr(torch, dtype))
    return timing.Arrays((x,), (torch.empty(_BINS, dtype=torch.int64, device="cuda"),))


def _wanted(arrays: timing.Arrays, piece: slice) -> Any:
    torch, (x,) = timing.torch(), arrays.inputs
    places = x.double() * (_BINS / _high(x))
    return torch.bincount(places.to(torch.int64), minlength=_BINS)[piece]


# ----------------------------------------------------------------------------- one a contender


def _ours(arrays: timing.Arrays) -> Callable[[], Any]:
    (x,), (out,) = arrays.inputs, arrays.outputs
    plan = km.histogram.plan(x, _BINS, range=(0.0, _high(x)), out=out)  # type: ignore[attr-defined]
    return lambda: plan(x, out=out)


def _cupy(arrays: timing.Arrays) -> Any:
    module = peer("CuPy")
    if isinstance(module, str):
        return module
    x, out = cupy_view(arrays.inputs[0]), cupy_view(arrays.outputs[0])
    high = _high(arrays.inputs[0])

    def call() -> None:
        out[:] = module.histogram(x, _BINS, range=(0.0, high))[0]

    return on_cupy(call)


def _cuda_compute(arrays: timing.Arrays) -> Any:
    """It counts in 32 bits."""
    module = peer("cuda.compute")
    if isinstance(module, str):
        return module
    torch, (x,), (out,) = timing.torch(), arrays.inputs, arrays.outputs
    counts = torch.empty(_BINS, dtype=torch.int32, device="cuda")
    kind = str(x.dtype).removeprefix("torch.")
    levels = np.array([0, _high(x)], kind if kind == "float32" else "int32")
    given = {
        "d_samples": x,
        "d_histogram": counts,
        "h_num_output_levels": np.array([_BINS + 1], np.int32),
        "h_lower_level": levels[:1],
        "h_upper_level": levels[1:],
        "num_samples": x.numel(),
    }
    call = prepared("make_histogram_even", given)
    return call, lambda: (call(), out.copy_(counts))


def _torch(arrays: timing.Arrays) -> Any:
    """It counts in floats: of as many elements as those count exactly."""
    torch, (x,), (out,) = timing.torch(), arrays.inputs, arrays.outputs
    if not x.dtype.is_floating_point:
        return "torch.histc takes floats on a GPU"
    counts = torch.empty(_BINS, device="cuda")

    def call() -> None:
        torch.histc(x, _BINS, 0.0, _high(x), out=counts)

    return call, lambda: (call(), out.copy_(counts))
