"""cutlass-gemm: a @ b in float16 with sums in float32."""

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["gemm"]


@torch.library.register_fake(add_op_namespace_prefix("gemm"))
def _(c, a, b):
    torch._check(a.size(1) == b.size(0), lambda: "the sides do not fit each other")


def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a (m, k) times b (k, n), float16."""
    if a.dim() != 2 or b.dim() != 2 or a.dtype != torch.float16 or b.dtype != torch.float16:
        raise ValueError(f"gemm takes two matrices of float16, not {a.dtype} and {b.dtype}")
    c = torch.empty((a.size(0), b.size(1)), dtype=a.dtype, device=a.device)
    ops.gemm(c, a.contiguous(), b.contiguous())
    return c
