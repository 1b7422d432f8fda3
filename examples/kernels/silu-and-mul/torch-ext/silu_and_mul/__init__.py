"""silu-and-mul: silu(left half) * right half, along the last axis."""

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["silu_and_mul"]


@torch.library.register_fake(add_op_namespace_prefix("silu_and_mul"))
def _(out: torch.Tensor, x: torch.Tensor) -> None:
    torch._check(
        2 * out.numel() == x.numel(), lambda: "the result must be half as wide as the argument"
    )


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """Return silu(x[..., :d]) * x[..., d:] for float32 whose last axis has 2 * d elements."""
    if x.dtype != torch.float32 or x.dim() == 0 or x.size(-1) % 2:
        raise ValueError(
            f"silu_and_mul takes float32 with an even last axis, not {tuple(x.shape)} of {x.dtype}"
        )
    out = torch.empty((*x.shape[:-1], x.size(-1) // 2), dtype=x.dtype, device=x.device)
    ops.silu_and_mul(out, x.contiguous())
    return out
