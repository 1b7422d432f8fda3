"""rope-triton: rotary position embedding."""

import torch

from ._ops import add_op_namespace_prefix

__all__ = ["rope"]


@torch.library.custom_op(add_op_namespace_prefix("rope"), mutates_args=())
def _rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


@_rope.register_fake
def _(x, cos, sin):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_rope.register_kernel("cuda")
def _(x, cos, sin):
    from .kernel import rope_on_cuda

    return rope_on_cuda(x, cos, sin)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return x (positions, heads, 2 * d) rotated by angles given as cos and sin (positions, d)."""
    if (
        x.dim() != 3
        or x.size(-1) % 2
        or cos.shape != sin.shape
        or cos.shape != (x.size(0), x.size(-1) // 2)
    ):
        raise ValueError(
            f"rope takes (positions, heads, 2 * d) with (positions, d), not {tuple(x.shape)} "
            f"with {tuple(cos.shape)} and {tuple(sin.shape)}"
        )
    return _rope(x, cos[:, None], sin[:, None])
