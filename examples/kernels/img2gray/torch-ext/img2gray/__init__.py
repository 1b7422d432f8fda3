"""img2gray: colours to grey, on the device of the tensor."""

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["img2gray"]


@torch.library.register_fake(add_op_namespace_prefix("img2gray"))
def _(image: torch.Tensor, grey: torch.Tensor) -> None:
    torch._check(
        image.dim() == 3 and image.size(2) == 3, lambda: "the image must be (height, width, 3)"
    )


def img2gray(image: torch.Tensor) -> torch.Tensor:
    """Return an image in grey: (height, width, 3) uint8 in, (height, width) uint8 out.

    Each pixel is (77 r + 150 g + 29 b + 128) // 256.
    """
    if image.dim() != 3 or image.size(2) != 3 or image.dtype != torch.uint8:
        raise ValueError(
            "img2gray takes a (height, width, 3) tensor of uint8, "
            f"not {tuple(image.shape)} of {image.dtype}"
        )
    grey = torch.empty(image.shape[:2], dtype=torch.uint8, device=image.device)
    ops.img2gray(image.contiguous(), grey)
    return grey
