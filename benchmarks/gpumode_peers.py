"""How kernelmill, torch and cuda.compute solve GPU MODE's problems: functions of the data.

kernelmill's are the files in `examples/gpumode/`; those of cuda.compute keep what it prepares for a
size, with its workspace, as a submission would.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

import cuda_timing as timing
from cuda_peers import CurrentStream, peer
from harness import OURS

if TYPE_CHECKING:
    from collections.abc import Callable

Solution: TypeAlias = "Callable[[tuple[Any, ...]], Any]"

__all__ = ["contenders", "submission"]

_EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples" / "gpumode"


def submission(name: str) -> Solution:
    """Return the `custom_kernel` of an example."""
    spec = importlib.util.spec_from_file_location(f"gpumode_{name}", _EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Solution = module.custom_kernel
    return found


def contenders(name: str) -> tuple[dict[str, Solution], dict[str, str]]:
    """Return who solves a problem, and why others do not."""
    found = {OURS: submission(name), "torch": _TORCH[name]}
    module = peer("cuda.compute")
    if isinstance(module, str):
        return found, {"cuda.compute": module}
    return {**found, "cuda.compute": _CUDA_COMPUTE[name]}, {}


# ----------------------------------------------------------------------------- torch


def _torch_gray(data: tuple[Any, ...]) -> Any:
    picture, out = data
    weights = timing.torch().tensor([0.2989, 0.5870, 0.1140], device=picture.device)
    return timing.torch().matmul(picture, weights, out=out)


_TORCH: Final[dict[str, Solution]] = {
    "vectoradd": lambda d: timing.torch().add(d[0], d[1], out=d[2]),
    "vectorsum": lambda d: d[0].sum().reshape(1),
    "prefixsum": lambda d: timing.torch().cumsum(d[0], 0, out=d[1]),
    "sort": lambda d: d[0].sort().values,
    "histogram": lambda d: d[0].bincount(minlength=256),
    "grayscale": _torch_gray,
}


# ----------------------------------------------------------------------------- cuda.compute


class _Pixels:
    """A picture as an array of structs, by the interface of CUDA."""

    def __init__(self, picture: Any) -> None:
        interface = dict(picture.__cuda_array_interface__)
        interface["shape"] = (picture.numel() // 3,)
        interface["typestr"], interface["strides"] = "|V12", None
        interface["descr"] = [("r", "<f4"), ("g", "<f4"), ("b", "<f4")]
        self.__cuda_array_interface__ = interface


_GRAY: Final = """
struct Pixel { float r, g, b; };
extern "C" __device__ void gray(void* x, void* z) {
  const Pixel p = *(Pixel*)x;
  *(float*)z = 0.2989f * p.r + 0.5870f * p.g + 0.1140f * p.b;
}
"""


@once
def _gray_operator() -> Any:
    from cuda.compute.op import RawOp

    from kernelmill.runtime.cuda import Program

    return RawOp(ltoir=Program(_GRAY, name="gray.cu").compile("ltoir").code, name="gray")


@dataclass(frozen=True, slots=True)
class _Way:
    """An algorithm of cuda.compute: its maker, the arguments of both, and those of the maker only.

    Arguments are made of cuda.compute itself and the data of a problem.
    """

    maker: str
    arguments: Callable[[Any, tuple[Any, ...]], dict[str, Any]]
    made_with: Callable[[Any, tuple[Any, ...]], dict[str, Any]] = lambda *_: {}
    count: str = "num_items"
    stores: bool = True

    def prepared(self, data: tuple[Any, ...]) -> Solution:
        """Make the object and its workspace; return what runs it on data of that size."""
        module, stream = peer("cuda.compute"), CurrentStream()
        sized = {self.count: _count_of(data), "stream": stream}
        shared = self.arguments(module, data)
        made = getattr(module, self.maker)(**shared, **self.made_with(module, data))
        if self.stores:
            needed = int(made(temp_storage=None, **shared, **sized))
            t = timing.torch()
            room = t.empty(max(needed, 1), dtype=t.uint8, device="cuda")
            sized["temp_storage"] = room

        def run(given: tuple[Any, ...]) -> Any:
            made(**self.arguments(module, given), **sized)
            return given[-1]

        return run


def _count_of(data: tuple[Any, ...]) -> int:
    """Return the number of elements, or of pixels."""
    first = data[0]
    return int(first.numel()) // (3 if first.ndim == 3 else 1)


def _kept(way: _Way) -> Solution:
    """Return a solution that prepares an algorithm for each size once."""
    made: dict[int, Solution] = {}

    def run(data: tuple[Any, ...]) -> Any:
        count = _count_of(data)
        if count not in made:
            made[count] = way.prepared(data)
        return made[count](data)

    return run


def _counted(data: tuple[Any, ...]) -> Any:
    """Count in 32 bits, as cuda.compute does."""
    x, out = data
    counts = timing.torch().empty(256, dtype=timing.torch().int32, device="cuda")
    _HISTOGRAM((x, counts))
    return out.copy_(counts)


_HISTOGRAM: Final = _kept(
    _Way(
        "make_histogram_even",
        lambda _, d: {
            "d_samples": d[0],
            "d_histogram": d[1],
            "h_num_output_levels": np.array([257], np.int32),
            "h_lower_level": np.array([0], np.int32),
            "h_upper_level": np.array([256], np.int32),
        },
        made_with=lambda _, d: {"num_samples": d[0].numel()},
        count="num_samples",
    )
)
_CUDA_COMPUTE: Final[dict[str, Solution]] = {
    "vectoradd": _kept(
        _Way(
            "make_binary_transform",
            lambda m, d: {
                "d_in1": d[0].view(-1),
                "d_in2": d[1].view(-1),
                "d_out": d[2].view(-1),
                "op": m.OpKind.PLUS,
            },
            stores=False,
        )
    ),
    "vectorsum": _kept(
        _Way(
            "make_reduce_into",
            lambda m, d: {
                "d_in": d[0], "d_out": d[1], "op": m.OpKind.PLUS,
                "h_init": np.zeros(1, np.float32),
            },
        )
    ),
    "prefixsum": _kept(
        _Way(
            "make_inclusive_scan",
            lambda m, d: {
                "d_in": d[0], "d_out": d[1], "op": m.OpKind.PLUS,
                "init_value": np.zeros(1, np.float32),
            },
        )
    ),
    "sort": _kept(
        _Way(
            "make_radix_sort",
            lambda _, d: {
                "d_in_keys": d[0], "d_out_keys": d[1], "d_in_values": None, "d_out_values": None,
            },
            made_with=lambda m, _: {"order": m.SortOrder.ASCENDING},
        )
    ),
    "histogram": _counted,
    "grayscale": _kept(
        _Way(
            "make_unary_transform",
            lambda _, d: {
                "d_in": _Pixels(d[0]), "d_out": d[1].view(-1), "op": _gray_operator(),
            },
            stores=False,
        )
    ),
}  # fmt: skip
