"""Float32 values in ascending order."""

import kernelmill as km


def custom_kernel(data):
    """Return the values in order, in the room that came with them."""
    x, out = data
    return km.sort(x, out=out)
