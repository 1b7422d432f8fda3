"""What a call costs the host: plans, free functions and launches, into a queue that is not full.

Arrays of 4,096 elements, outputs given; the device is faster than the host at them. Between
batches, which are not longer than the queue, the host waits for the device, untimed.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import cuda_timing as timing
import kernelmill as km
from cuda_peers import FAILURES, CurrentStream, cupy_view, peer
from harness import FLOOR, OURS, Case, Contender, Goal, timed_statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

ELEMENTS: Final = 1 << 12
_PLAN: Final = (Goal(seconds=5e-6), Goal("torch", 1.0))
_FREE: Final = (Goal(seconds=8e-6),)
_PREPARED: Final = (Goal(FLOOR, seconds=1e-6),)
# Launches that may wait in the driver's queue before a launch waits for the device.
_QUEUE: Final = 256
_LOOP: Final = Path(__file__).resolve().parent / "launch_loop.c"
_EMPTY: Final = """
extern "C" __global__ void six(const float* a, float* b, long n, float* c, long m, float s) {}
extern "C" __global__ void three(const float* a, float* b, int n) {}
"""


class _Call(NamedTuple):
    """A statement of ours, and the statements that do the same elsewhere, by contender."""

    name: str
    ours: str
    goals: tuple[Goal, ...]
    others: dict[str, str]


_SCALED: Final = {"torch": "torch.mul(x, 2, out=y)", "CuPy": "cupy.multiply(cx, 2, out=cy)"}
_ADDED: Final = {"torch": "torch.add(x, x2, out=y)", "CuPy": "cupy.add(cx, cx2, out=cy)"}
_SUMMED: Final = {"torch": "torch.sum(x, 0, out=s)", "CuPy": "cupy.sum(cx, out=cs)"}
_CALLS: Final = (
    _Call("plan(x, out=y)", "plan(x, out=y)", _PLAN, _SCALED),
    _Call(
        "plan(x, x2, out=y)",
        "plan_add(x, x2, out=y)",
        _PLAN,
        {
            **_ADDED,
            "cuda.compute": "add(d_in1=x, d_in2=x2, d_out=y, op=plus, num_items=n, stream=stream)",
        },
    ),
    _Call("plan of a captured scalar", "plan_scale(x, out=y)", _PLAN, _SCALED),
    _Call("plan(x, out=y), CuPy", "plan_cupy(cx, out=cy)", (Goal(seconds=5e-6),), _SCALED),
    _Call("plan(x)", "plan(x)", (), {"torch": "torch.mul(x, 2)", "CuPy": "cupy.multiply(cx, 2)"}),
    _Call(
        "transform, out=",
        "km.transform((x, x2), operator, out=y)",
        _FREE,
        {
            **_ADDED,
            "cuda.compute": "compute.binary_transform(d_in1=x, d_in2=x2, d_out=y, op=plus, "
            "num_items=n, stream=stream)",
        },
    ),
    _Call("transform, lambda in the call, out=", "km.transform(x, lambda a: 2 * a + 1, out=y)",
          _FREE, _SCALED),
    _Call(
        "plan of a sum",
        "plan_sum(x, out=s)",
        _PLAN,
        {
            **_SUMMED,
            "cuda.compute": "total(temp_storage=space, d_in=x, d_out=s1, num_items=n, op=plus, "
            "h_init=zero, stream=stream)",
        },
    ),
    _Call(
        "sum, out=",
        "km.reduce(x, km.add, out=s)",
        _FREE,
        {
            **_SUMMED,
            "cuda.compute": "compute.reduce_into(d_in=x, d_out=s1, num_items=n, op=plus, "
            "h_init=zero, stream=stream)",
        },
    ),
    _Call(
        "prepared launch, 6 arguments",
        "prepared(handle)",
        _PREPARED,
        {
            "cuda.core": "core.launch(core_stream, core_config, core_six, p, p, n, p, n, f)",
            "CuPy": "raw_six((1,), (32,), (cx, cy, n, cy, n, f))",
        },
    ),
    _Call(
        "launch, 6 arguments",
        "cuda.launch(core_stream, config, six, p, p, n, p, n, 1.0)",
        (),
        {
            "cuda.core": "core.launch(core_stream, core_config, core_six, p, p, n, p, n, f)",
            "CuPy": "raw_six((1,), (32,), (cx, cy, n, cy, n, f))",
        },
    ),
    _Call(
        "launch, tensors on another stream",
        "cuda.launch(core_stream, config, three, x, y, 8)",
        (),
        {},
    ),
    _Call(
        "launch, two tensors and an int",
        "cuda.launch(None, config, three, x, y, 8)",
        (),
        {"CuPy": "raw_three((1,), (32,), (cx, cy, i))"},
    ),
    _Call("prepared launch of a @km.kernel", "prepared_saxpy(handle)", (), {}),
    _Call(
        "launch of a @km.kernel",
        "saxpy.launch(n, 2.0, x, y)",
        (),
        {"Triton": "triton_saxpy(2.0, x, y)", "CuPy": "raw_three((1,), (32,), (cx, cy, i))"},
    ),
    _Call("kernel[grid, block]", "placed_saxpy(2.0, x, y)", (), {}),
)  # fmt: skip


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    del budget
    names, missing = _names()
    scopes: list[dict[str, Any]] = []
    try:
        for call in _CALLS:
            case = _case(call, names, missing, scopes)
            if case is not None:
                yield case
    finally:
        for scope in scopes:  # plans keep functions, and a lambda of a statement its whole scope
            scope.clear()


def _case(
    call: _Call, names: dict[str, Any], missing: dict[str, str], scopes: list[dict[str, Any]]
) -> Case | None:
    """Return a case, or None where kernelmill does not take the call here."""
    skipped: dict[str, str] = {}
    found: list[Contender] = []
    for name, statement in {OURS: call.ours, **call.others}.items():
        timer = _timer(statement, names, scopes)
        if isinstance(timer, str):
            skipped[name] = missing.get(name, timer)
        else:
            found.append(Contender(name, lambda: None, timer, compared=False))
    if OURS in skipped:  # no family of algorithms is faster than one that does not exist
        print(f"{call.name}: {skipped[OURS]}", file=sys.stderr)
        return None
    if "launch" in call.name or "kernel" in call.name:
        found.append(Contender(FLOOR, lambda: None, names["c_loop"], compared=False))
    return Case(call.name, "float32", ELEMENTS, tuple(found), call.goals, skipped=skipped)


def _timer(
    statement: str, names: dict[str, Any], scopes: list[dict[str, Any]]
) -> Callable[[int], float] | str:
    """Return a timer that lets the device catch up before its queue is full, or why there is none.

    What kernelmill refuses, and what a peer does not do, is seen when the statement is tried.
    """
    timer: Any = timed_statement(statement, **names)
    scopes.append(timer.__globals__)
    wait = timing.torch().cuda.synchronize
    try:
        timer(1)
    except (*FAILURES, NameError, km.KernelmillError) as error:
        return str(error).strip().partition("\n")[0][:200] or type(error).__name__
    wait()

    def measure(number: int) -> float:
        seconds = 0.0
        while number:
            part = min(number, _QUEUE)
            seconds += timer(part)
            wait()
            number -= part
        return seconds

    return measure


# ----------------------------------------------------------------------------- names of statements


def _names() -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the statements name, and why a contender is absent."""
    torch = timing.torch()
    x, x2, y = (timing.filled(ELEMENTS, "float32") for _ in range(3))
    s = torch.zeros((), device="cuda")
    factor = 2.5
    names: dict[str, Any] = {
        "km": km, "torch": torch, "x": x, "x2": x2, "y": y, "s": s, "s1": s.reshape(1),
        "n": ELEMENTS, "stream": CurrentStream(),
        "operator": lambda a, b: a + b,
        "plan": km.transform.plan(x, lambda a: 2 * a + 1, out=y),
        "plan_add": km.transform.plan((x, x2), km.add, out=y),
        "plan_scale": km.transform.plan(x, lambda a: factor * a, out=y),
        **_sum(x, s), **_launches(x, y), **_kernels(x, y),
    }  # fmt: skip
    missing = {}
    for name, add in (("cuda.compute", _compute), ("CuPy", _cupy), ("Triton", _triton)):
        module = peer(name)
        if isinstance(module, str):
            missing[name] = module
        else:
            names |= add(module, names)
    return names, missing


def _sum(x: Any, s: Any) -> dict[str, Any]:
    """Return the plan of a sum, or nothing where this back end has none."""
    try:
        return {"plan_sum": km.reduce.plan(x, km.add, out=s)}
    except km.KernelmillError as error:
        print(f"plan of a sum: {error.message}", file=sys.stderr)
        return {}


def _cupy(cupy: Any, names: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    cx, cy = cupy_view(names["x"]), cupy_view(names["y"])
    return {
        "cupy": cupy, "cx": cx, "cx2": cupy_view(names["x2"]), "cy": cy,
        "cs": cupy_view(names["s"]),
        "plan_cupy": km.transform.plan(cx, lambda a: 2 * a + 1, out=cy),
        "raw_six": cupy.RawKernel(_EMPTY, "six"), "raw_three": cupy.RawKernel(_EMPTY, "three"),
        "i": np.int32(8),
    }  # fmt: skip


def _compute(compute: Any, names: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    x, y, s = names["x"], names["y"], names["s1"]
    plus, zero = compute.OpKind.PLUS, np.zeros(1, np.float32)
    total = compute.make_reduce_into(d_in=x, d_out=s, op=plus, h_init=zero)
    needed = total(temp_storage=None, d_in=x, d_out=s, num_items=ELEMENTS, op=plus, h_init=zero)
    space = timing.torch().empty(max(int(needed), 1), dtype=timing.torch().uint8, device="cuda")
    add = compute.make_binary_transform(d_in1=x, d_in2=names["x2"], d_out=y, op=plus)
    return {"compute": compute, "plus": plus, "zero": zero, "total": total, "space": space,
            "add": add}  # fmt: skip


def _launches(x: Any, y: Any) -> dict[str, Any]:
    import numpy as np

    from cuda import core
    from kernelmill.runtime import cuda

    code = cuda.Program(_EMPTY, name="empty.cu").compile("cubin")
    six, three = code.get_kernel("six"), code.get_kernel("three")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    handle, config = int(stream.handle), cuda.LaunchConfig(1, 32)
    arguments = (x, y, ELEMENTS, y, ELEMENTS, 1.0)
    return {
        "cuda": cuda, "core": core, "six": six, "three": three, "config": config,
        "prepared": cuda.prepare(config, six, *arguments), "handle": handle,
        "core_stream": stream, "core_config": core.LaunchConfig(grid=1, block=32),
        "core_six": six.core, "p": x.data_ptr(), "f": np.float32(1),
        "c_loop": _c_loop(six, handle, x.data_ptr()),
    }  # fmt: skip


@km.kernel
def saxpy(a: Any, x: Any, y: Any) -> None:
    """Add a multiple of one array to another."""
    for i in km.grid_range(len(x)):
        y[i] += a * x[i]


def _kernels(x: Any, y: Any) -> dict[str, Any]:
    from kernelmill.runtime import cuda

    blocks = ELEMENTS // 256
    prepared = saxpy.prepare(cuda.LaunchConfig(blocks, 256), (2.0, x, y))
    return {"saxpy": saxpy, "prepared_saxpy": prepared, "placed_saxpy": saxpy[blocks, 256]}


def _triton(triton: Any, names: dict[str, Any]) -> dict[str, Any]:
    del names
    return {"triton_saxpy": triton.saxpy(ELEMENTS)}


def _c_loop(kernel: Any, stream: int, address: int) -> Callable[[int], float]:
    """Return a timer of the driver's own launch in a loop of C."""
    from kernelmill.config import get_config
    from kernelmill.toolchain import compile_shared, find_host_compiler

    with tempfile.TemporaryDirectory() as directory:
        made = compile_shared(
            _LOOP.read_text(), Path(directory) / "launch_loop.so", language="c",
            compiler=find_host_compiler(), march=get_config().march,
        )  # fmt: skip
        loop = ctypes.CDLL(str(made.path)).launch_loop
    loop.restype = ctypes.c_double
    values = [ctypes.c_void_p(address), ctypes.c_void_p(address), ctypes.c_long(ELEMENTS),
              ctypes.c_void_p(address), ctypes.c_long(ELEMENTS), ctypes.c_float(1)]  # fmt: skip
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    launch = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx, ctypes.c_void_p)
    wait = timing.torch().cuda.synchronize
    kept = values

    def measure(number: int) -> float:
        seconds = 0.0
        while number:
            part = min(number, _QUEUE)
            took = loop(launch, ctypes.c_void_p(int(kernel.handle)), ctypes.c_void_p(stream),
                        pointers, ctypes.c_long(part))  # fmt: skip
            assert took > 0, f"the driver refuses the launch of {len(kept)} arguments"
            seconds += took
            wait()
            number -= part
        return seconds

    return measure
