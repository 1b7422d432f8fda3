"""rms-norm: x / sqrt(mean(x ** 2) + epsilon) * weight along the last axis, with its gradient."""

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["rms_norm"]


@torch.library.custom_op(add_op_namespace_prefix("rms_norm"), mutates_args=())
def _rms_norm(
    x: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = x.reshape(-1, x.size(-1)).contiguous()
    out, scale = torch.empty_like(rows), rows.new_empty(rows.size(0))
    ops.forward(out, scale, rows, weight.contiguous(), epsilon)
    return out.reshape(x.shape), scale


@_rms_norm.register_fake
def _(x, weight, epsilon):
    return torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty(
        x.numel() // x.size(-1)
    )


@torch.library.custom_op(add_op_namespace_prefix("rms_norm_backward"), mutates_args=())
def _backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = x.reshape(-1, x.size(-1)).contiguous()
    dx, dweight = torch.empty_like(rows), torch.empty_like(weight)
    ops.backward(dx, dweight, dy.reshape(rows.shape).contiguous(), rows, weight.contiguous(), scale)
    return dx.reshape(x.shape), dweight


@_backward.register_fake
def _(dy, x, weight, scale):
    return torch.empty_like(x, memory_format=torch.contiguous_format), torch.empty_like(weight)


def _keep(ctx, inputs, output):
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])


def _gradient(ctx, dy, _):
    return (*_backward(dy, *ctx.saved_tensors), None)


_rms_norm.register_autograd(_gradient, setup_context=_keep)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float = 1e-6) -> torch.Tensor:
    """Return x / sqrt(mean(x ** 2) + epsilon) * weight; x (..., width), weight (width), float32."""
    if x.dtype != torch.float32 or x.dim() == 0 or weight.shape != x.shape[-1:]:
        raise ValueError(
            f"rms_norm takes float32 and one weight a column, not {tuple(x.shape)} of {x.dtype} "
            f"with weights {tuple(weight.shape)}"
        )
    return _rms_norm(x, weight, epsilon)[0]
