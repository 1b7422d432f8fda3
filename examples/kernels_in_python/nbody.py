"""nbody: the acceleration of each of n bodies (x, y, z, mass) by all others, softened.

A block takes 256 bodies, and all bodies in tiles of as many, which its threads fetch together.
"""

import kernelmill as km

TILE = 256


@km.kernel
def nbody(bodies, acceleration, softening):
    near = km.shared((TILE, 4), bodies.dtype)
    n = bodies.shape[0]
    zero = bodies.dtype(0)
    for group in km.tile_range(-(-n // TILE)):
        for k in km.block_range(TILE):
            i = group * TILE + k
            x, y, z = zero, zero, zero
            if i < n:
                x, y, z = bodies[i, 0], bodies[i, 1], bodies[i, 2]
            ax, ay, az = zero, zero, zero
            for at in range(0, n, TILE):
                for c in km.static_range(4):
                    near[k, c] = bodies[at + k, c] if at + k < n else zero  # no mass, no pull
                km.barrier()
                for j in km.static_range(TILE, unroll=8):
                    dx, dy, dz = near[j, 0] - x, near[j, 1] - y, near[j, 2] - z
                    inverse = km.rsqrt(dx * dx + dy * dy + dz * dz + softening)
                    pull = near[j, 3] * inverse * inverse * inverse
                    ax += dx * pull
                    ay += dy * pull
                    az += dz * pull
                km.barrier()
            if i < n:
                acceleration[i, 0] = ax
                acceleration[i, 1] = ay
                acceleration[i, 2] = az
                acceleration[i, 3] = 0


def run(bodies, acceleration, softening, stream=None):
    nbody[-(-bodies.shape[0] // TILE), TILE, stream](bodies, acceleration, softening)
