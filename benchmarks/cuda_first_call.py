"""What the first call of an operator costs on a GPU, in fresh processes: compiled, or from disk.

Before the clock starts, the packages are imported, the compiler's library is loaded and the context
of the device is made. As a script with one argument, JSON, this file is such a process.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case, Contender

__all__ = ["cases"]

_COLD, _FROM_DISK = "compiled", "from the disk"
_LIMITS: Final = {_COLD: 0.35, _FROM_DISK: 0.020}
_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "2*x + 1": lambda km, x: km.transform(x, lambda a: 2 * a + 1),
    "exp(-a*a) * sin(b) + sqrt(c)": lambda km, x: km.transform(
        (x, x, x), lambda a, b, c: np.exp(-a * a) * np.sin(b) + np.sqrt(c)
    ),
    "2*x + 1, transposed": lambda km, x: km.transform(_Square(x, 4, 256), lambda a: 2 * a + 1),
    "sum": lambda km, x: km.reduce(x),
    "a if a > b else b, in order": lambda km, x: km.reduce(x, lambda a, b: max(b, a)),
    "sum over axis 0": lambda km, x: km.reduce(_Square(x, 256, 4), axis=0),
}
_QUICK: Final = ("2*x + 1",)
_ROUNDS: Final = 2


# ----------------------------------------------------------------------------- the child process


class _Square:
    """An array of 4,096 elements as 64 times 64, with strides."""

    def __init__(self, x: Any, *strides: int) -> None:
        self._kept = x
        self.__cuda_array_interface__ = {
            **x.__cuda_array_interface__, "shape": (64, 64), "strides": strides,
        }  # fmt: skip


def _array() -> Any:
    """Return an array on the device, and make its context doing so."""
    import kernelmill as km

    x = km.to_device(np.linspace(0.0, 2.0, 1 << 12, dtype=np.float32))
    x.numpy()
    return x


def _child(asked: dict[str, Any]) -> dict[str, Any]:
    import kernelmill as km
    from kernelmill.runtime import cuda
    from kernelmill.toolchain.nvrtc import nvrtc_version

    for found in pkgutil.walk_packages(km.__path__, "kernelmill."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    nvrtc_version()  # loads the library
    km.Device("cuda")
    x, call = _array(), _OPERATORS[asked["operator"]]
    start = time.perf_counter()
    try:
        call(km, x)
    except km.KernelmillError as error:
        return {"missing": error.message}
    cuda.synchronize()
    return {"seconds": time.perf_counter() - start}


def _compute_child() -> dict[str, Any]:
    """cuda.compute's first call: a sum by an operator of its own, so that it needs nothing else."""
    from cuda import compute
    from kernelmill.runtime import cuda

    x, out, zero = _array(), _array(), np.zeros(1, np.float32)
    start = time.perf_counter()
    compute.reduce_into(d_in=x, d_out=out, num_items=1 << 12, op=compute.OpKind.PLUS, h_init=zero)
    cuda.synchronize()
    return {"seconds": time.perf_counter() - start}


# ----------------------------------------------------------------------------- the parent


def _process(asked: dict[str, Any], cache: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(asked)],
        env={**os.environ, "KERNELMILL_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{asked}: {done.stderr.strip()[-600:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    with tempfile.TemporaryDirectory() as directory:
        place = _Caches(Path(directory))
        for operator in _QUICK if budget.quick else _OPERATORS:
            missing = place.call(operator, place.of(operator)).get("missing")
            if missing:
                print(f"{operator}: {missing}", file=sys.stderr)
                continue
            for state in _LIMITS:
                yield _case(place, operator, state)


class _Caches:
    """Cache directories: one that is filled for each operator, and new ones."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._count = 0

    def of(self, operator: str) -> Path:
        """Return the directory that is filled by the first call of an operator."""
        return self._root / f"filled-{list(_OPERATORS).index(operator)}"

    def fresh(self) -> Path:
        """Return a new empty one."""
        self._count += 1
        return self._root / f"empty-{self._count}"

    def call(self, operator: str, cache: Path, library: str = "kernelmill") -> dict[str, Any]:
        """Return what a new process says of its first call."""
        cache.mkdir(exist_ok=True)
        return _process({"operator": operator, "library": library}, cache)


def _case(place: _Caches, operator: str, state: str) -> Case:
    from harness import OURS, Case, Contender, Goal

    def measure(_: int) -> float:
        cache = place.of(operator) if state == _FROM_DISK else place.fresh()
        return float(place.call(operator, cache)["seconds"])

    found = [Contender(OURS, lambda: None, _shortest(measure), single=True)]
    if state == _COLD and operator == "sum":
        found += _compute(place, operator)
    return Case(
        name=f"{state}: {operator}",
        dtype="float32",
        elements=1 << 12,
        contenders=tuple(found),
        goals=(Goal(seconds=_LIMITS[state]),),
    )


def _shortest(measure: Callable[[int], float]) -> Callable[[int], float]:
    """Return a timer that is asked a few times at most: a process takes seconds to begin."""
    seconds: list[float] = []

    def timed(number: int) -> float:
        if len(seconds) < _ROUNDS:  # of which the harness takes the best
            seconds.append(measure(number))
        return min(seconds)

    return timed


def _compute(place: _Caches, operator: str) -> list[Contender]:
    from cuda_peers import peer
    from harness import Contender

    if isinstance(peer("cuda.compute"), str):
        return []

    def measure(_: int) -> float:
        return float(place.call(operator, place.fresh(), "cuda.compute")["seconds"])

    return [Contender("cuda.compute", lambda: None, _shortest(measure), single=True)]


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    found = _child(wanted) if wanted["library"] == "kernelmill" else _compute_child()
    json.dump(found, sys.stdout)
