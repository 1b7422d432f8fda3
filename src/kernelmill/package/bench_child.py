"""The process in which `kernelmill bench` runs one file of benchmarks; prints one line of JSON.

A file holds classes that are called `Benchmark` at their end, as Hugging Face's tools have them:
`setup`, `benchmark_NAME` with `setup_NAME` and `verify_NAME` where wanted, `seed`. What a
benchmark leaves in `self.out` is compared with what its `verify_NAME` returns.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any, Final  # Any: the user's classes, and torch, which may be absent

from kernelmill.package.pytest_kernel import import_as_itself

__all__: list[str] = []

_PREFIX: Final = "benchmark_"
# Relative to the largest value; what float16 and another order of summing may differ by.
_TOLERANCE: Final = 1e-2


def torch_if_loaded() -> Any:
    """Return torch where the kernel or the benchmark uses it."""
    return sys.modules.get("torch")


def seed_all(seed: int) -> None:
    """Make random numbers the same in every run."""
    import random  # noqa: PLC0415 - after the kernel is loaded

    import numpy as np  # noqa: PLC0415

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the user's code may draw from it
    torch = torch_if_loaded()
    if torch is not None:
        torch.manual_seed(seed)


def wait_for_device() -> None:
    """Wait until a GPU has done what it was given."""
    torch = torch_if_loaded()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


def largest_difference(found: Any, wanted: Any) -> float:
    """Return the largest difference, as a share of the largest value that is wanted."""
    import numpy as np  # noqa: PLC0415

    def plain(value: Any) -> Any:
        value = value.detach().cpu() if hasattr(value, "detach") else value
        value = value.float() if str(getattr(value, "dtype", "")) == "torch.bfloat16" else value
        return np.asarray(value).astype(np.complex128 if np.iscomplexobj(value) else np.float64)

    a, b = plain(found), plain(wanted)
    if a.shape != b.shape:
        return float("inf")
    if not b.size:
        return 0.0
    return float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-30))


def times_of(call: Any, *, warmup: int, iterations: int) -> list[float]:
    """Return the seconds of each call, with the device's work in them."""
    for _ in range(warmup):
        call()
    wait_for_device()
    found = []
    for _ in range(iterations):
        start = time.perf_counter()
        call()
        wait_for_device()
        found.append(time.perf_counter() - start)
    return found


def run_class(owner: type, *, warmup: int, iterations: int) -> list[dict[str, Any]]:
    """Run every benchmark of a class, each on an instance of its own."""
    rows = []
    for method in [name for name in dir(owner) if name.startswith(_PREFIX)]:
        name = method.removeprefix(_PREFIX)
        instance: Any = owner()
        seed_all(getattr(instance, "seed", 0) or 0)
        for setup in (f"setup_{name}", "setup"):
            if hasattr(instance, setup):
                getattr(instance, setup)()
                break
        call = getattr(instance, method)
        call()
        verified = None
        if hasattr(instance, f"verify_{name}"):
            wanted = getattr(instance, f"verify_{name}")()
            verified = largest_difference(instance.out, wanted)
        seconds = sorted(times_of(call, warmup=warmup, iterations=iterations))
        rows.append(
            {
                "benchmark": f"{owner.__name__}.{name}",
                "iterations": iterations,
                "median": seconds[len(seconds) // 2],
                "least": seconds[0],
                "mean": sum(seconds) / len(seconds),
                "difference": verified,
                "passed": verified is None or verified <= _TOLERANCE,
            }
        )
    return rows


def main(asked: dict[str, Any]) -> None:
    """Load the kernel, import the file, run what it holds, print the results."""
    import_as_itself(Path(asked["variant"]))
    path = Path(asked["file"])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    owners = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type) and name.endswith("Benchmark") and value.__module__ == path.stem
    ]
    rows = [
        row
        for owner in owners
        for row in run_class(owner, warmup=asked["warmup"], iterations=asked["iterations"])
    ]
    torch = torch_if_loaded()
    gpu = torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else ""
    sys.stdout.write("\x1e" + json.dumps({"rows": rows, "gpu": gpu}) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
