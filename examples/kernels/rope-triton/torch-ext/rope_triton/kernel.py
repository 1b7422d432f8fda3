"""The kernel in Triton; imported at the first call on a GPU."""

import torch
import triton
import triton.language as tl


@triton.jit
def rope_kernel(x, cos, sin, out, heads, half, BLOCK: tl.constexpr):
    """One program a head of a position."""
    row = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    inside = lane < half
    start = row * 2 * half
    angles = (row // heads) * half + lane
    left = tl.load(x + start + lane, mask=inside).to(tl.float32)
    right = tl.load(x + start + half + lane, mask=inside).to(tl.float32)
    c = tl.load(cos + angles, mask=inside).to(tl.float32)
    s = tl.load(sin + angles, mask=inside).to(tl.float32)
    tl.store(out + start + lane, left * c - right * s, mask=inside)
    tl.store(out + start + half + lane, right * c + left * s, mask=inside)


def rope_on_cuda(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Launch the kernel; cos and sin are (positions, 1, d)."""
    positions, heads, width = x.shape
    x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
    out = torch.empty_like(x)
    if out.numel():
        block = triton.next_power_of_2(width // 2)
        rope_kernel[(positions * heads,)](x, cos, sin, out, heads, width // 2, BLOCK=block)
    return out
