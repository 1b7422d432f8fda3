"""softmax: each row becomes exp(x - max) / sum. A block takes a row.

One pass finds maximum and sum together (the sum is scaled again when the maximum grows), a second
one, out of the caches, writes.
"""

import numpy as np

import kernelmill as km

LOWEST = float(np.finfo(np.float32).min)


@km.struct
class Partial:
    largest: km.float32
    sum: km.float32


def merged(a, b):
    largest = max(a.largest, b.largest)
    total = a.sum * np.exp(a.largest - largest) + b.sum * np.exp(b.largest - largest)
    return Partial(largest, total)


@km.kernel(fast_math=True)
def softmax(x, out):
    rows, columns = x.shape
    for row in km.tile_range(rows):
        part = Partial(LOWEST, 0)
        for c in km.block_range(columns, unroll=4):
            part = merged(part, Partial(x[row, c], 1))
        part = km.block.reduce(part, merged)
        scale = 1 / part.sum
        for c in km.block_range(columns, unroll=4):
            out[row, c] = np.exp(x[row, c] - part.largest) * scale


def run(x, out, stream=None):
    softmax[x.shape[0], 256, stream](x, out)
