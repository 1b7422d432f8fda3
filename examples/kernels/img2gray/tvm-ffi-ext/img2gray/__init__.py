"""img2gray: colours to grey, for arrays of every framework that speaks DLPack."""

from ._ops import ops

__all__ = ["img2gray"]

_DEVICES = {1: "cpu", 2: "cuda"}  # as DLPack numbers them


def img2gray(image, grey):
    """Write an image in grey: `image` (height, width, 3) uint8, `grey` (height, width) uint8.

    Each pixel is (77 r + 150 g + 29 b + 128) // 256. Returns `grey`. The arrays go on as they are:
    what torch's say of the current stream would be lost in a view of them.
    """
    device = _DEVICES[image.__dlpack_device__()[0]]
    getattr(ops, f"img2gray_{device}")(image, grey)
    return grey
