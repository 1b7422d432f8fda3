"""edit-distance: insertions, deletions and replacements between byte strings."""

from collections.abc import Sequence

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["edit_distances", "pack"]


@torch.library.register_fake(add_op_namespace_prefix("edit_distances"))
def _(out, a, a_lengths, b, b_lengths):
    return None


def pack(strings: Sequence[bytes]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return byte strings as (batch, longest) uint8, filled up with zeros, and their lengths."""
    longest = max(map(len, strings), default=0)
    filled = b"".join(string.ljust(longest, b"\0") for string in strings)
    bytes_ = (
        torch.frombuffer(bytearray(filled), dtype=torch.uint8)
        if filled
        else torch.empty(0, dtype=torch.uint8)
    )
    return bytes_.reshape(len(strings), longest), torch.tensor(
        [len(s) for s in strings], dtype=torch.int64
    )


def edit_distances(a: Sequence[bytes], b: Sequence[bytes]) -> torch.Tensor:
    """Return the distance of each pair, (batch) int32."""
    if len(a) != len(b):
        raise ValueError(f"edit_distances takes pairs: {len(a)} strings and {len(b)}")
    out = torch.empty(len(a), dtype=torch.int32)
    ops.edit_distances(out, *pack(a), *pack(b))
    return out
