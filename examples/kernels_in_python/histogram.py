"""histogram: adds to 256 bins how many elements, from 0 to 1, fall into each.

Blocks count in shared memory first. 1 belongs to the last bin, what is outside to none.
"""

import kernelmill as km

BINS = 256


@km.kernel
def histogram(x, counts):
    own = km.shared(BINS, counts.dtype)
    for b in km.block_range(BINS):
        own[b] = 0
    km.barrier()
    for i in km.grid_range(x.size, unroll=8):
        value = x[i]
        if 0 <= value <= 1:
            km.atomic.add(own, min(km.int32(value * BINS), BINS - 1), 1)
    km.barrier()
    for b in km.block_range(BINS):
        if own[b]:
            km.atomic.add(counts, b, own[b])


def run(x, counts, stream=None):
    blocks = min(-(-x.shape[0] // (8 * 256)), 2112)
    histogram[blocks, BINS, stream](x, counts)
