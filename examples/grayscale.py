"""Grayscale of a photograph: an operator over an RGB struct, compared with NumPy.

Needs pillow: `pip install 'kernelmill[demo]'`.
"""

from importlib import resources

import numpy as np
from PIL import Image

import kernelmill as km


@km.struct
class RGB:
    """One pixel."""

    r: km.uint8
    g: km.uint8
    b: km.uint8


def grayscale(p):
    """Weigh the channels as ITU-R BT.601 does."""
    weighted = 0.299 * np.float32(p.r) + 0.587 * np.float32(p.g) + 0.114 * np.float32(p.b)
    return np.uint8(weighted + 0.5)


with resources.as_file(resources.files("kernelmill") / "data" / "chelsea.png") as path:
    pixels = np.asarray(Image.open(path).convert("RGB"))  # (height, width, 3), uint8
picture = pixels.view(RGB.dtype)[..., 0]  # (height, width), the same memory

gray = km.transform(picture, grayscale)
total, darkest, brightest = km.reduce(gray, (km.add, km.minimum, km.maximum))
print(f"{gray.shape[1]} x {gray.shape[0]} pixels, first row {gray[0, :5]}")
print(f"mean {total / gray.size:.2f}, darkest {darkest}, brightest {brightest}")

expected = pixels @ np.float32([0.299, 0.587, 0.114]) + np.float32(0.5)
assert abs(gray.astype(int) - expected.astype(np.uint8)).max() <= 1
assert (total, darkest, brightest) == (gray.sum(), gray.min(), gray.max())
