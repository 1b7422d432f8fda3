"""matmul: c = a @ b. A block makes 128 x 128 elements from tiles in shared memory.

Each of its 16 x 16 threads holds 8 x 8 of them in registers: four neighbours, and four more half a
tile further on, in both directions, so that shared memory is read four elements at a time.
"""

import kernelmill as km

SIDE, DEPTH, THREADS = 128, 16, 16
OWN, HALF = SIDE // THREADS, SIDE // 2
PITCH = SIDE + 4  # rows begin at multiples of 16 bytes, in other banks


def place(thread, i):
    return thread * 4 + i % 4 + i // 4 * HALF


@km.kernel
def matmul(a, b, c):
    of_a = km.shared((DEPTH, PITCH), a.dtype)
    of_b = km.shared((DEPTH, PITCH), b.dtype)
    sums = km.local((OWN, OWN), c.dtype)
    x, y = km.local(OWN, a.dtype), km.local(OWN, b.dtype)
    m, n = c.shape
    k = a.shape[1]
    for tile_row, tile_column in km.tile_range(-(-m // SIDE), -(-n // SIDE)):
        top, left = tile_row * SIDE, tile_column * SIDE
        for i in km.static_range(OWN):
            for j in km.static_range(OWN):
                sums[i, j] = 0
        for at in range(0, k, DEPTH):
            for row, column in km.block_range(SIDE, DEPTH):
                inside = top + row < m and at + column < k
                of_a[column, row] = a[top + row, at + column] if inside else 0
            for row, column in km.block_range(DEPTH, SIDE):
                inside = at + row < k and left + column < n
                of_b[row, column] = b[at + row, left + column] if inside else 0
            km.barrier()
            for r, s in km.block_range(THREADS, THREADS):  # one turn: a thread's own elements
                for d in km.static_range(DEPTH):
                    for i in km.static_range(OWN):
                        x[i] = of_a[d, place(r, i)]
                        y[i] = of_b[d, place(s, i)]
                    for i in km.static_range(OWN):
                        for j in km.static_range(OWN):
                            sums[i, j] += x[i] * y[j]
            km.barrier()
        for r, s in km.block_range(THREADS, THREADS):
            for i in km.static_range(OWN):
                for j in km.static_range(OWN):
                    row, column = top + place(r, i), left + place(s, j)
                    if row < m and column < n:
                        c[row, column] = sums[i, j]


def run(a, b, c, stream=None):
    m, n = c.shape
    tiles = -(-m // SIDE) * -(-n // SIDE)
    matmul[tiles, (THREADS, THREADS), stream](a, b, c)
