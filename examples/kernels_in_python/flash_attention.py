"""flash_attention: out = softmax(q @ k.T * scale) @ v for each head; no row of scores is stored.

A block takes 64 queries of a head and the keys in tiles of 64. Each of its 16 x 16 threads holds
4 x 4 scores, 16 rows and 16 columns apart, and the same part of the result. The running maximum
and sum of a row are held by the 16 threads that share it (Dao et al., 2022; the online softmax of
Milakov and Gimelshein, 2018).
"""

import numpy as np

import kernelmill as km

WIDTH, TILE, THREADS = 64, 64, 16
OWN = TILE // THREADS
PITCH = WIDTH + 1  # threads of a warp read rows in banks of their own
LOWEST = float(np.finfo(np.float32).min)


def over_row(value, op):
    """Combine the values of the 16 threads that share a row."""
    for mask in (8, 4, 2, 1):
        value = op(value, km.warp.shuffle_xor(value, mask))
    return value


def fetch(to, source, first, length, scale):
    for row, column in km.block_range(TILE, WIDTH):
        to[row, column] = scale * source[first + row, column] if first + row < length else 0


@km.kernel(fast_math=True)
def flash_attention(q, k, v, out, scale):
    queries = km.dynamic_shared((TILE, PITCH), q.dtype)
    keys = km.dynamic_shared((TILE, PITCH), q.dtype)
    values = km.dynamic_shared((TILE, PITCH), q.dtype)
    largest, sums = km.local(OWN, q.dtype), km.local(OWN, q.dtype)
    score, result = km.local((OWN, OWN), q.dtype), km.local((OWN, OWN), q.dtype)
    a, b = km.local(OWN, q.dtype), km.local(OWN, q.dtype)
    length = q.shape[1]
    head, first = km.blockIdx.y, km.blockIdx.x * TILE
    tx, ty = km.threadIdx.x, km.threadIdx.y
    for i in km.static_range(OWN):
        largest[i] = LOWEST
        sums[i] = 0
        for j in km.static_range(OWN):
            result[i, j] = 0
    fetch(queries, q[head, :, :], first, length, scale)
    for at in range(0, length, TILE):
        km.barrier()  # the tiles of the turn before are read
        fetch(keys, k[head, :, :], at, length, 1)
        fetch(values, v[head, :, :], at, length, 1)
        km.barrier()
        for i in km.static_range(OWN):
            for j in km.static_range(OWN):
                score[i, j] = 0
        for d in km.static_range(WIDTH, unroll=16):
            for i in km.static_range(OWN):
                a[i] = queries[ty + i * THREADS, d]
                b[i] = keys[tx + i * THREADS, d]
            for i in km.static_range(OWN):
                for j in km.static_range(OWN):
                    score[i, j] += a[i] * b[j]
        for i in km.static_range(OWN):
            top = largest[i]
            for j in km.static_range(OWN):
                if at + tx + j * THREADS >= length:
                    score[i, j] = LOWEST
                top = max(top, score[i, j])
            top = over_row(top, max)
            shrink = np.exp(largest[i] - top)
            part = q.dtype(0)
            for j in km.static_range(OWN):
                score[i, j] = np.exp(score[i, j] - top)
                part += score[i, j]
            largest[i] = top
            sums[i] = sums[i] * shrink + over_row(part, km.add)
            for j in km.static_range(OWN):
                result[i, j] *= shrink
        km.barrier()  # the keys are read: their place takes the weights
        for i in km.static_range(OWN):
            for j in km.static_range(OWN):
                keys[ty + i * THREADS, tx + j * THREADS] = score[i, j]
        km.barrier()
        for d in km.static_range(TILE, unroll=16):
            for i in km.static_range(OWN):
                a[i] = keys[ty + i * THREADS, d]
                b[i] = values[d, tx + i * THREADS]
            for i in km.static_range(OWN):
                for j in km.static_range(OWN):
                    result[i, j] += a[i] * b[j]
    for i in km.static_range(OWN):
        for j in km.static_range(OWN):
            row = first + ty + i * THREADS
            if row < length:
                out[head, row, tx + j * THREADS] = result[i, j] / sums[i]


def run(q, k, v, out, scale, stream=None):
    heads, length, _ = q.shape
    shared = 3 * TILE * PITCH * 4
    grid = (-(-length // TILE), heads)
    flash_attention[grid, (THREADS, THREADS), stream, shared](q, k, v, out, scale)
