"""The kernels of `examples/kernels_in_python`: `@km.kernel` against the same kernel in CUDA C++.

Both forms are right on small arrays by NumPy, and agree on the large ones that are timed. Where
torch has a function that does the same, its time is shown too; nothing is asked of that.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import cuda_timing as timing
from cuda_peers import FAILURES
from harness import CUDA_CPP, OURS, Case, Contender, Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

EXAMPLES: Final = Path(__file__).resolve().parent.parent / "examples" / "kernels_in_python"
DEVICE: Final = "cuda:0"
_GOALS: Final = (Goal(CUDA_CPP, share=0.03),)
# Launches in a round: as many as fit in some milliseconds.
_LAUNCHES: Final = 50
_ROUND_SECONDS: Final = 20e-3
_PIECE: Final = 1 << 26
# What torch calls the same, on the arguments of a case as tensors.
_TORCH: Final[dict[str, Callable[[Any, dict[str, Any]], Any]]] = {
    "saxpy": lambda torch, v: torch.add(v["y"], v["x"], alpha=v["a"], out=v["y"]),
    "transpose": lambda _, v: v["out"].copy_(v["x"].t()),
    "matmul": lambda torch, v: torch.matmul(v["a"], v["b"], out=v["c"]),
    "softmax": lambda torch, v: torch.softmax(v["x"], 1, out=v["out"]),
    "layer_norm": lambda torch, v: torch.nn.functional.layer_norm(
        v["x"], v["x"].shape[1:], v["gain"], v["bias"], v["epsilon"]
    ),
    "reduction": lambda torch, v: torch.sum(v["x"]),
    "flash_attention": lambda torch, v: torch.nn.functional.scaled_dot_product_attention(
        v["q"][None], v["k"][None], v["v"][None], scale=v["scale"]
    ),
}


def cases(budget: Budget) -> Iterator[_Pair]:
    """Yield the cases of the family: the kernels that have both forms."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    import cases as kernels

    forms = _forms()
    for name, example in kernels.CASES.items():
        if not example.module.exists():
            print(f"cuda_kernels: {name} has no Python form", file=sys.stderr)
            continue
        size = example.small if budget.quick else example.large
        yield _Pair(kernels, forms, example, size)


def _forms() -> Any:
    """Return the examples' own `run.py`; a module of that name stands beside this one too."""
    name = "kernels_in_python_run"
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / "run.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def _stream() -> Any:
    """Return the stream that a kernel is launched on."""
    return timing.torch().cuda.current_stream()


def _timed(name: str, call: Callable[[], Any], *, compared: bool = True) -> Contender:
    """Return a contender that is timed in a row on a stream: these kernels run long enough."""
    call()
    once = timing.stream_timer(call, 1)(1)
    launches = max(2, min(_LAUNCHES, int(_ROUND_SECONDS / once)))
    timer = timing.stream_timer(call, launches)
    return Contender(name, call, timer, single=True, compared=compared)


class _Pair:
    """One example with its two forms on the device."""

    def __init__(self, kernels: Any, forms: Any, example: Any, size: tuple[int, ...]) -> None:
        self._kernels, self._forms, self._example = kernels, forms, example
        self._makers = {OURS: forms.python_form, CUDA_CPP: forms.cuda_form}
        self._size = size
        self._values: dict[str, Any] = {}
        small = kernels.values_of(example)
        arrays = [v for v in small.values() if isinstance(v, np.ndarray)]
        self.name, self.dtype = example.name, arrays[0].dtype.name
        self.elements = 0  # known when the arrays are made

    def case(self) -> Case:
        """Return the case: both forms timed on arrays of their own."""
        seed = int(np.random.default_rng().integers(1 << 30))
        self._values = self._kernels.values_of(self._example, self._size, seed=seed)
        found = [self._contender(name) for name in self._makers]
        skipped = {}
        if self._example.name in _TORCH:
            try:
                found.append(self._torch())
            except FAILURES as error:
                skipped["torch"] = str(error).strip().partition("\n")[0][:200]
        arrays = [v for v in self._values.values() if isinstance(v, np.ndarray)]
        return Case(
            name=self.name,
            dtype=self.dtype,
            elements=max(a.size for a in arrays),
            contenders=tuple(found),
            goals=_GOALS,
            bytes=0 if self._example.flops else sum(a.nbytes for a in arrays),
            written=self._values[self._example.output].nbytes,
            tolerance=self._example.tolerance.share,
            skipped=skipped,
            error=self._error,
        )

    def _contender(self, name: str) -> Contender:
        there = self._forms.put(self._values, DEVICE)
        call = self._makers[name](self._example, there)
        return _timed(name, lambda: call(_stream()))

    def _torch(self) -> Contender:
        torch = timing.torch()
        there = {
            name: torch.from_numpy(value).cuda() if isinstance(value, np.ndarray) else value
            for name, value in self._values.items()
        }
        call = functools.partial(_TORCH[self._example.name], torch, there)
        return _timed("torch", call, compared=False)

    def _error(self, contender: Contender) -> float:
        """Return the share of wrong elements: by NumPy on small arrays, by CUDA C++ on large."""
        small = self._kernels.values_of(self._example)
        there = self._forms.put(small, DEVICE)
        self._makers[contender.name](self._example, there)(None)
        wrong = self._kernels.difference(self._example, self._output(there), small)
        return max(wrong, self._disagreement(contender.name))

    def _disagreement(self, name: str) -> float:
        """Return the share of elements that differ on the large arrays; compared on the device."""
        if name == CUDA_CPP:
            return 0.0
        mine, theirs = (self._large(n) for n in (name, CUDA_CPP))
        limit = self._example.tolerance
        wrong = 0
        for at in range(0, mine.numel(), _PIECE):
            a, b = (x[at : at + _PIECE].double() for x in (mine, theirs))
            allowed = 2 * (limit.absolute + limit.relative * b.abs())
            wrong += int((~((a - b).abs() <= allowed)).sum())  # a NaN is wrong
        return wrong / mine.numel()

    def _large(self, name: str) -> Any:
        there = self._forms.put(self._values, DEVICE)
        self._makers[name](self._example, there)(None)
        return (
            timing.torch().as_tensor(there[self._example.output], device=_torch_device()).view(-1)
        )

    def _output(self, there: dict[str, Any]) -> Any:
        found = there[self._example.output]
        return found if isinstance(found, np.ndarray) else found.numpy()


def _torch_device() -> str:
    return "cpu" if DEVICE == "emulator" else "cuda"
