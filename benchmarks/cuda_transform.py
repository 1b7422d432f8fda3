"""Element-wise expressions on a GPU: two and three streams of memory, found in the L2 cache or not.

"cold L2" means sets of arrays in turns that are together four times as large as that cache.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cuda_timing as timing
import kernelmill as km
from cuda_peers import CurrentStream, Work, cupy_view, on_cupy, peer
from harness import BUILT_IN, OURS, Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

ADD, SCALE = "x + y", "2*x + 1"
_INPUTS: Final = {ADD: 2, SCALE: 1}
_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    ADD: lambda a, b: a + b,
    SCALE: lambda a: 2 * a + 1,
}
# Of the largest value; halves may be rounded after each step.
_TOLERANCE: Final = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14, "int32": 0, "int64": 0}
_COLD: Final = (1 << 20, 1 << 24)
# A Python function costs what km's own operator costs.
_LIKE_BUILT_IN: Final = Goal(BUILT_IN, seconds=0.1e-6, share=0.02)
_C_TYPES: Final = {"float16": "__half", "float32": "float", "float64": "double", "int32": "int",
                   "int64": "long long"}  # fmt: skip


def cases(budget: Budget) -> Iterator[Work]:
    """Yield the cases of the family."""
    l2_bytes = timing.machine()["l2_bytes"]
    for expression in _OPERATORS:
        for dtype in timing.DTYPES:
            for elements in timing.sizes(budget):
                yield _work(expression, dtype, elements)
            for elements in _COLD if not budget.quick else ():
                work = _work(expression, dtype, elements)
                sets = timing.sets_for(work.bytes, l2_bytes)
                if sets:
                    yield _work(expression, dtype, elements, sets=sets)


def _work(expression: str, dtype: str, elements: int, *, sets: int = 0) -> Work:
    torch = timing.torch()
    count = _INPUTS[expression]
    item = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    goals = timing.goals_at(elements)
    makers: dict[str, Callable[[timing.Arrays], Any]] = {OURS: partial(_ours, expression)}
    if expression == ADD:
        makers[BUILT_IN] = _built_in
        goals = (*goals, _LIKE_BUILT_IN)
    makers |= {
        "cuda.compute": partial(_cuda_compute, expression, dtype),
        "torch": partial(_torch, expression),
        "CuPy": partial(_cupy, expression),
        "Triton": partial(_triton, expression),
    }
    return Work(
        name=f"{expression}, cold L2" if sets else expression,
        dtype=dtype,
        elements=elements,
        arrays=lambda: timing.Arrays(
            tuple(timing.filled(elements, dtype) for _ in range(count)),
            (timing.filled(elements, dtype),),
        ),
        wanted=lambda arrays, piece: _wanted(expression, arrays, piece),
        makers=makers,
        tolerance=_TOLERANCE[dtype],
        bytes=(count + 1) * elements * item,
        written=elements * item,
        goals=goals,
        sets=max(sets, 1),
    )


def _wanted(expression: str, arrays: timing.Arrays, piece: slice) -> Any:
    parts = [x[piece] for x in arrays.inputs]
    if parts[0].dtype.is_floating_point:
        parts = [x.double() for x in parts]
    return _OPERATORS[expression](*parts)


# ----------------------------------------------------------------------------- one a contender


def _ours(expression: str, arrays: timing.Arrays) -> Callable[[], Any]:
    return _planned(_OPERATORS[expression], arrays)


def _built_in(arrays: timing.Arrays) -> Callable[[], Any]:
    return _planned(km.add, arrays)


def _planned(operator: Any, arrays: timing.Arrays) -> Callable[[], Any]:
    (out,) = arrays.outputs
    plan = km.transform.plan(arrays.inputs, operator, out=out)
    return lambda: plan(*arrays.inputs, out=out)


def _torch(expression: str, arrays: timing.Arrays) -> Callable[[], Any]:
    torch, (out,) = timing.torch(), arrays.outputs
    if expression == ADD:
        x, y = arrays.inputs
        return lambda: torch.add(x, y, out=out)
    (x,) = arrays.inputs
    return lambda: torch.mul(x, 2, out=out).add_(1)


def _cupy(expression: str, arrays: timing.Arrays) -> Any:
    module = peer("CuPy")
    if isinstance(module, str):
        return module
    inputs, (out,) = [cupy_view(x) for x in arrays.inputs], [cupy_view(x) for x in arrays.outputs]
    if expression == ADD:
        return on_cupy(lambda: module.add(*inputs, out=out))
    scale = module.ElementwiseKernel("T x", "T z", "z = x * T(2) + T(1)", "scale")
    return on_cupy(lambda: scale(inputs[0], out))


def _triton(expression: str, arrays: timing.Arrays) -> Any:
    module = peer("Triton")
    if isinstance(module, str):
        return module
    call = module.elementwise(expression)
    return lambda: call(*arrays.inputs, *arrays.outputs)


def _cuda_compute(expression: str, dtype: str, arrays: timing.Arrays) -> Any:
    """The object form, which allocates nothing; an operator is LTO-IR, its quickest form."""
    module = peer("cuda.compute")
    if isinstance(module, str):
        return module
    (out,), stream, items = arrays.outputs, CurrentStream(), arrays.inputs[0].numel()
    if expression == ADD:
        x, y = arrays.inputs
        plus = module.OpKind.PLUS
        add = module.make_binary_transform(d_in1=x, d_in2=y, d_out=out, op=plus)
        return lambda: add(d_in1=x, d_in2=y, d_out=out, op=plus, num_items=items, stream=stream)
    (x,) = arrays.inputs
    op = _raw_scale(dtype)
    scale = module.make_unary_transform(d_in=x, d_out=out, op=op)
    return lambda: scale(d_in=x, d_out=out, op=op, num_items=items, stream=stream)


_RAW: Final[dict[str, Any]] = {}


def _raw_scale(dtype: str) -> Any:
    from cuda.compute.op import RawOp

    from kernelmill.runtime.cuda import Program

    if dtype not in _RAW:
        kind = _C_TYPES[dtype]
        include = "#include <cuda_fp16.h>\n" if dtype == "float16" else ""
        text = (
            f"{include}typedef {kind} T;\n"
            'extern "C" __device__ void scale(void* x, void* z) {\n'
            "  *(T*)z = T(2) * *(T*)x + T(1);\n}\n"
        )
        _RAW[dtype] = RawOp(ltoir=Program(text, name="scale.cu").compile("ltoir").code,
                            name="scale")  # fmt: skip
    return _RAW[dtype]
