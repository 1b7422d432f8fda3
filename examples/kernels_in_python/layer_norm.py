"""layer_norm: each row becomes (x - mean) / sqrt(variance + epsilon) * gain + bias.

A block takes a row; the mean is known before squares are added, so nothing cancels.
"""

import kernelmill as km


@km.kernel
def layer_norm(x, gain, bias, out, epsilon):
    rows, columns = x.shape
    for row in km.tile_range(rows):
        total = x.dtype(0)
        for c in km.block_range(columns, unroll=4):
            total += x[row, c]
        mean = km.block.reduce(total) / columns
        squares = x.dtype(0)
        for c in km.block_range(columns, unroll=4):
            squares += (x[row, c] - mean) ** 2
        scale = km.rsqrt(km.block.reduce(squares) / columns + epsilon)
        for c in km.block_range(columns, unroll=4):
            out[row, c] = (x[row, c] - mean) * scale * gain[c] + bias[c]


def run(x, gain, bias, out, epsilon, stream=None):
    layer_norm[x.shape[0], 256, stream](x, gain, bias, out, epsilon)
