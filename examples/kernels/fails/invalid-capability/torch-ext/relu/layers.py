"""Layers that `kernelize` puts in the place of torch's."""

import torch

from ._ops import ops


class ReLU(torch.nn.Module):
    """In the place of `torch.nn.ReLU`."""

    can_torch_compile = True
    has_backward = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        ops.relu(out, x)
        return out
