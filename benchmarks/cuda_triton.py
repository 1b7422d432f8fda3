"""The kernels of a peer: element-wise expressions, a launch, a sum in Triton, as it tunes them.

Imported only where Triton is. `large` is there for the tuning: another choice for large arrays.
"""
# ruff: noqa: ANN001, ANN202, N803, ARG001, PLR0917 - a kernel is written in Triton's language

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["elementwise", "saxpy", "total"]

_CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((512, 4), (1024, 4), (2048, 8), (4096, 8))
]
_SUM_CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (4096, 8), (8192, 8))
]
_LARGE = 1 << 22


@triton.autotune(_CONFIGS, key=["large"])
@triton.jit
def _add(x, y, out, n, large, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.autotune(_CONFIGS, key=["large"])
@triton.jit
def _scale(x, out, n, large, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) * 2 + 1, mask=inside)


@triton.autotune(_SUM_CONFIGS, key=["large"])
@triton.jit
def _sums(x, out, n, large, wide: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    parts = tl.zeros((BLOCK,), wide)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for at in range(tl.program_id(0).to(tl.int64) * BLOCK, n, step):
        i = at + tl.arange(0, BLOCK)
        parts += tl.load(x + i, mask=i < n, other=0).to(wide)
    tl.store(out + tl.program_id(0), tl.sum(parts))


@triton.jit
def _saxpy(a, x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(y + i, mask=i < n) + a * tl.load(x + i, mask=i < n), mask=i < n)


def saxpy(n: int) -> Callable[..., Any]:
    """Return a function of `a`, `x` and `y` of n elements, launched as Triton launches it."""
    grid = (triton.cdiv(n, 256),)

    def call(a: float, x: Any, y: Any) -> None:
        _saxpy[grid](a, x, y, n, BLOCK=256)

    return call


def elementwise(expression: str) -> Callable[..., Any]:
    """Return a function of the inputs and the output: "x + y", or "2*x + 1"."""
    kernel = {"x + y": _add, "2*x + 1": _scale}[expression]

    def call(*arrays: Any) -> Any:
        n = arrays[0].numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](*arrays, n, int(n >= _LARGE))
        return arrays[-1]

    return call


_WIDE = {
    torch.float16: tl.float32,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.int32: tl.int64,
    torch.int64: tl.int64,
}


def total(x: Any, out: Any) -> Callable[[], Any]:
    """Return a function that sums an array in two launches: many blocks, then one."""
    wide, n = _WIDE[x.dtype], x.numel()
    many = 4 * torch.cuda.get_device_properties(0).multi_processor_count
    programs = max(1, min(many, n // 1024))
    stored = {tl.float32: torch.float32, tl.float64: torch.float64, tl.int64: torch.int64}[wide]
    parts = torch.empty(programs, dtype=stored, device="cuda")

    def call() -> Any:
        _sums[(programs,)](x, parts, n, int(n >= _LARGE), wide)
        _sums[(1,)](parts, out, programs, 0, wide)
        return out

    return call
