"""transpose: out[j, i] = x[i, j] by tiles in shared memory: reads and writes run along rows.

One column more than the tile has keeps the threads of a warp in banks of their own.
"""

import kernelmill as km

TILE = 32


@km.kernel
def transpose(x, out):
    part = km.shared((TILE, TILE + 1), x.dtype)
    height, width = x.shape
    for top, left in km.tile_range(-(-height // TILE), -(-width // TILE)):
        for r, c in km.block_range(TILE, TILE):
            i, j = top * TILE + r, left * TILE + c
            if i < height and j < width:
                part[r, c] = x[i, j]
        km.barrier()
        for r, c in km.block_range(TILE, TILE):
            j, i = left * TILE + r, top * TILE + c
            if i < height and j < width:
                out[j, i] = part[c, r]
        km.barrier()


def run(x, out, stream=None):
    height, width = x.shape
    tiles = -(-height // TILE) * -(-width // TILE)
    transpose[tiles, (32, 4), stream](x, out)
