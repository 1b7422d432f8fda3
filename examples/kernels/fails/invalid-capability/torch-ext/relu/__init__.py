"""relu: max(x, 0) in float32."""

import torch

from . import layers
from ._ops import add_op_namespace_prefix, ops

__all__ = ["layers", "relu"]


@torch.library.register_fake(add_op_namespace_prefix("relu"))
def _(out: torch.Tensor, x: torch.Tensor) -> None:
    torch._check(out.numel() == x.numel(), lambda: "the result has another size than the argument")


def relu(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return max(x, 0) for float32 of any shape; NaN stays NaN."""
    if x.dtype != torch.float32:
        raise TypeError(f"relu takes float32, not {x.dtype}")
    x = x.contiguous()
    out = torch.empty_like(x) if out is None else out
    ops.relu(out, x)
    return out
