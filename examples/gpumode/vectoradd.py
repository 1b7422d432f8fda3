"""The sum of two float16 matrices."""

import kernelmill as km


def custom_kernel(data):
    """Return `a + b`, in the room that came with them."""
    a, b, out = data
    return km.transform((a, b), km.add, out=out)
