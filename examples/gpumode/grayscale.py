"""A picture of three float32 channels as shades of grey."""

import numpy as np

import kernelmill as km


def gray(r, g, b):
    """Weigh the channels as ITU-R BT.601 does."""
    return np.float32(0.2989) * r + np.float32(0.5870) * g + np.float32(0.1140) * b


def custom_kernel(data):
    """Return the grey picture; the channels lie beside one another in memory."""
    picture, out = data
    return km.transform(tuple(picture[..., c] for c in range(3)), gray, out=out)
