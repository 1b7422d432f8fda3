"""img2gray: colours to grey, for arrays of every framework that speaks DLPack."""

import tvm_ffi

from ._ops import ops

__all__ = ["img2gray"]


def img2gray(image, grey):
    """Write an image in grey: `image` (height, width, 3) uint8, `grey` (height, width) uint8.

    Each pixel is (77 r + 150 g + 29 b + 128) // 256. Returns `grey`.
    """
    source, target = tvm_ffi.from_dlpack(image), tvm_ffi.from_dlpack(grey)
    getattr(ops, f"img2gray_{source.device.type}")(source, target)
    return grey
