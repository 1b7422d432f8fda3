"""img2gray: a picture of shape (height, width, 3) becomes gray, weighed as ITU-R BT.601 does.

A thread takes pixels of a row a whole grid apart, four of them under way at a time.
"""

import kernelmill as km


@km.kernel
def img2gray(rgb, gray):
    for i, j in km.grid_range(*gray.shape, unroll=4):
        red, green, blue = rgb[i, j, 0], rgb[i, j, 1], rgb[i, j, 2]
        gray[i, j] = (
            0.299 * km.float32(red) + 0.587 * km.float32(green) + 0.114 * km.float32(blue) + 0.5
        )


def run(rgb, gray, stream=None):
    height, width = gray.shape
    grid = -(-width // (4 * 32)), -(-height // 8)
    img2gray[grid, (32, 8), stream](rgb, gray)
