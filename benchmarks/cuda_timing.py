"""Device time of a call: a CUDA graph of many launches, replayed between two events.

The time of the host is measured in `cuda_host.py`, first calls in `cuda_first_call.py`. torch makes
the arrays, the graphs and the events; what the contenders are is in `cuda_peers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import results
from harness import COPY, FASTEST, Budget, Contender, Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "DTYPES",
    "FULL",
    "LARGEST",
    "QUICK",
    "Arrays",
    "absent",
    "best_of",
    "copy_of",
    "device_contender",
    "difference",
    "filled",
    "goals_at",
    "graph_timer",
    "launches_of",
    "machine",
    "poison",
    "roofline",
    "sets_for",
    "sizes",
    "stamp",
    "stream_timer",
    "torch",
]

# One round replays a graph of each contender once.
FULL: Final = Budget(quick=False, sizes=(), rounds=(5, 25), case_seconds=0.2, batch_seconds=2e-3)
QUICK: Final = Budget(quick=True, sizes=(), rounds=(2, 5), case_seconds=0.1, batch_seconds=5e-4)
DTYPES: Final = ("float32", "float64", "int32", "int64", "float16")
LARGEST: Final = 1 << 28
_SIZES: Final = (1 << 12, 1 << 16, 1 << 20, 1 << 24, LARGEST)
_QUICK_SIZES: Final = (1 << 12, 1 << 20)
# What is asked at every size, and of arrays of `LARGEST` elements.
_AT_EVERY_SIZE: Final = (Goal(FASTEST, seconds=0.5e-6, share=0.02),)
_AT_LARGEST: Final = Goal(COPY, 0.97)
# Launches in a graph: many, as far as they fit in some milliseconds.
_LAUNCHES: Final = 100
_GRAPH_BYTES: Final = 40 << 30
_FEWEST: Final = 10
# What takes longer has fewer launches in its graph, and what is long enough for a clock one.
_GRAPH_SECONDS: Final = 1e-2
# Several sets of arrays are larger than the L2 cache by this, so that none is found there.
_TIMES_L2: Final = 4
_WARM_SECONDS: Final = 5e-3
_ROOF_BYTES: Final = 2 << 30
_PACKAGES: Final = ("numpy", "torch", "triton", "cupy-cuda13x", "cuda-cccl", "numba-cuda-mlir",
                    "cuda-core", "cuda-bindings")  # fmt: skip


# ----------------------------------------------------------------------------- the machine


def absent() -> str:
    """Return why nothing can be measured here; "" where there is a GPU, and torch to drive it."""
    try:
        import torch as found
    except ImportError as error:
        return f"the benchmarks on a GPU need torch: {error}"
    return "" if found.cuda.is_available() else "torch sees no CUDA device"


def torch() -> Any:  # Any: a module that may be absent
    """Return torch, which `absent` found."""
    import torch as found

    return found


def machine() -> results.Data:
    """Describe the GPU."""
    found = torch().cuda.get_device_properties(0)
    return {
        "gpu": found.name,
        "capability": f"{found.major}.{found.minor}",
        "multiprocessors": found.multi_processor_count,
        "l2_bytes": found.L2_cache_size,
        "memory_bytes": found.total_memory,
    }


def stamp(roof: dict[str, Any], *, quick: bool, commit: str = "") -> results.Data:
    """Describe this run."""
    from kernelmill.runtime.cuda import driver
    from kernelmill.toolchain.nvrtc import nvrtc_version

    version = driver.require().version
    return {
        **results.common_stamp(_PACKAGES, quick=quick, commit=commit),
        "compiler": "NVRTC " + ".".join(map(str, nvrtc_version())),
        "driver": f"{_driver_release()} (CUDA {version[0]}.{version[1]})",
        "roofline": roof,
    }


def _driver_release() -> str:
    """Return the release of the driver, such as 580.159.04, from its own library."""
    try:
        from cuda.bindings import nvml
    except ImportError:
        return "of an unknown release"
    nvml.init_v2()
    release = str(nvml.system_get_driver_version())
    nvml.shutdown()
    return release


_READ: Final = """
extern "C" __global__ void __launch_bounds__(512) read_all(const uint4* x, long n, unsigned* out) {
  uint4 a = {0, 0, 0, 0};
  long step = (long)gridDim.x * blockDim.x, i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step) {
    uint4 p = x[i], q = x[i + step], r = x[i + 2 * step], s = x[i + 3 * step];
    a.x ^= p.x ^ q.x ^ r.x ^ s.x; a.y ^= p.y ^ q.y ^ r.y ^ s.y;
    a.z ^= p.z ^ q.z ^ r.z ^ s.z; a.w ^= p.w ^ q.w ^ r.w ^ s.w;
  }
  for (; i < n; i += step) { uint4 p = x[i]; a.x ^= p.x; a.y ^= p.y; a.z ^= p.z; a.w ^= p.w; }
  if ((a.x ^ a.y ^ a.z ^ a.w) == 0x9e3779b9u) out[0] = a.x;  // so that nothing is left out
}
"""


def roofline() -> dict[str, Any]:
    """Measure the bandwidth of the memory: a copy by the driver, a fill, a kernel that reads."""
    from kernelmill.runtime import cuda

    t = torch()
    count = _ROOF_BYTES // 4
    x, y = t.randint(0, 1 << 30, (count,), dtype=t.int32, device="cuda"), filled(count, "int32")
    kernel = cuda.Program(_READ, name="read_all.cu").compile("cubin").get_kernel("read_all")
    blocks = 4 * t.cuda.get_device_properties(0).multi_processor_count
    prepared = cuda.prepare(cuda.LaunchConfig(blocks, 512), kernel, x, count // 4, y)

    def read() -> None:
        prepared(t.cuda.current_stream().cuda_stream)

    rates = {
        name: moved * _ROOF_BYTES / min(timer(1) for _ in range(9))
        for name, moved, timer in (
            ("copy", 2, stream_timer(lambda: y.copy_(x), _FEWEST)),
            ("write", 1, stream_timer(lambda: y.fill_(7), _FEWEST)),
            ("read", 1, stream_timer(read, _FEWEST)),
        )
    }
    found: dict[str, Any] = {f"{name}_bytes_per_second": rate for name, rate in rates.items()}
    return {**found, "array_bytes": _TIMES_L2 * machine()["l2_bytes"]}


def best_of(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the higher bandwidths of two measurements."""
    return {key: max(value, other[key]) for key, value in one.items()}


# ----------------------------------------------------------------------------- sizes and goals


def sizes(budget: Budget) -> tuple[int, ...]:
    """Return the numbers of elements to measure."""
    return _QUICK_SIZES if budget.quick else _SIZES


def goals_at(elements: int) -> tuple[Goal, ...]:
    """Return what is asked at a size."""
    return (*_AT_EVERY_SIZE, _AT_LARGEST) if elements >= LARGEST else _AT_EVERY_SIZE


def launches_of(nbytes: int) -> int:
    """Return how many launches that move so many bytes each a graph has.

    Examples
    --------
    >>> launches_of(1 << 20), launches_of(2 << 30), launches_of(6 << 30)
    (100, 20, 10)
    """
    return max(_FEWEST, min(_LAUNCHES, _GRAPH_BYTES // max(nbytes, 1)))


def sets_for(nbytes: int, l2_bytes: int) -> int:
    """Return how many sets of arrays of so many bytes exceed the L2 cache well; 0 if too many do.

    Examples
    --------
    >>> sets_for(12 << 20, 60 << 20), sets_for(1 << 30, 60 << 20), sets_for(4096, 60 << 20)
    (20, 1, 0)
    """
    needed = -(-_TIMES_L2 * l2_bytes // nbytes)
    if needed > _LAUNCHES:
        return 0
    return 1 if nbytes > _TIMES_L2 * l2_bytes else needed


# ----------------------------------------------------------------------------- arrays


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays of one call: fresh random inputs, and outputs full of what no result is."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


def filled(elements: int, dtype: str, low: float = -4.0, high: float = 4.0) -> Any:
    """Return random values in the memory of the GPU: any integers, floats between two bounds."""
    t = torch()
    kind = getattr(t, dtype)
    made = t.empty(elements, dtype=kind, device="cuda")
    if kind.is_floating_point:
        return made.uniform_(low, high)
    return made.random_(-(1 << 20), 1 << 20)


def poison(outputs: Sequence[Any]) -> None:
    """Write what no result is to every element, so that one that is not written shows."""
    for out in outputs:
        if out.dtype.is_floating_point:
            out.fill_(float("nan"))
        else:
            out.fill_(torch().iinfo(out.dtype).min + 1)


_PIECE: Final = 1 << 24


def difference(found: Any, wanted: Callable[[slice], Any]) -> float:
    """Return the largest difference from what is wanted, relative to its largest value.

    `wanted` gives pieces, so that large arrays need little memory beside them.
    """
    t = torch()
    worst = largest = 0.0
    for at in range(0, found.numel(), _PIECE):
        piece = slice(at, min(at + _PIECE, found.numel()))
        right = wanted(piece)
        if not right.dtype.is_floating_point:
            if not t.equal(found[piece].to(right.dtype), right):
                return float("inf")
            continue
        right = right.double()
        wrong = (found[piece].double() - right).abs().max()
        if not t.isfinite(wrong):
            return float("nan")
        worst, largest = max(worst, float(wrong)), max(largest, float(right.abs().max()))
    return worst / (largest or 1.0)


# ----------------------------------------------------------------------------- timers


def recorded(calls: Sequence[Callable[[], Any]], launches: int) -> Any:
    """Return a graph of so many calls, one function after the other in turns."""
    t = torch()
    stream = t.cuda.Stream()
    stream.wait_stream(t.cuda.current_stream())
    with t.cuda.stream(stream):  # what a library allocates, compiles or loads, it does here
        for call in calls:
            call()
    t.cuda.synchronize()
    graph = t.cuda.CUDAGraph()
    with t.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
        for turn in range(launches):
            calls[turn % len(calls)]()
    return graph


def graph_timer(calls: Sequence[Callable[[], Any]], launches: int) -> Callable[[int], float]:
    """Return a timer of one call: it replays a graph, and divides by the launches in it."""
    t = torch()
    graph = recorded(calls, launches)
    start, stop = (t.cuda.Event(enable_timing=True) for _ in range(2))

    def measure(_: int) -> float:
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e-3 / launches

    spent = 0.0  # the clocks rise with the load
    while spent < _WARM_SECONDS:
        spent += measure(1) * launches
    return measure


def stream_timer(call: Callable[[], Any], launches: int) -> Callable[[int], float]:
    """Return a timer of one long call: many in a row between two events, without a graph.

    A copy inside a graph is done by a copy engine, which is slower than the kernel that the driver
    launches for one on a stream (H200, driver 580).
    """
    t = torch()
    start, stop = (t.cuda.Event(enable_timing=True) for _ in range(2))

    def measure(_: int) -> float:
        call()  # what follows is in the queue before it begins
        start.record()
        for _ in range(launches):
            call()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e-3 / launches

    return measure


def shortened(call: Callable[[], Any], launches: int) -> int:
    """Return how many launches of a call a graph has, at most so many."""
    measure = stream_timer(call, 1)
    measure(1)  # what a library compiles or allocates, it does here
    return max(1, min(launches, int(_GRAPH_SECONDS / max(measure(1), 1e-9))))


def device_contender(
    name: str, calls: Sequence[Callable[[], Any]], launches: int, *, compared: bool = True
) -> Contender:
    """Return a contender that is timed by a graph; `calls` has a function for each set of arrays.

    Raises RuntimeError where the call cannot be part of a graph.
    """
    launches = max(len(calls), shortened(calls[0], launches))
    return Contender(name, calls[0], graph_timer(calls, launches), single=True, compared=compared)


def copy_of(nbytes: int, launches: int) -> Contender:
    """Return a copy by the driver that reads and writes so many bytes together."""
    t = torch()
    half = max(nbytes // 2, 16)
    x, y = (t.randint(0, 255, (half,), dtype=t.uint8, device="cuda") for _ in range(2))
    timer = stream_timer(lambda: y.copy_(x), launches)
    return Contender(COPY, lambda: y.copy_(x), timer, single=True, compared=False)
