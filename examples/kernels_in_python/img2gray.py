"""img2gray: a picture of shape (height, width, 3) becomes gray, weighed as ITU-R BT.601 does."""

import kernelmill as km


@km.kernel
def img2gray(rgb, gray):
    for i, j in km.grid_range(*gray.shape):
        red, green, blue = rgb[i, j, 0], rgb[i, j, 1], rgb[i, j, 2]
        gray[i, j] = (
            0.299 * km.float32(red) + 0.587 * km.float32(green) + 0.114 * km.float32(blue) + 0.5
        )


def run(rgb, gray, stream=None):
    img2gray.launch(gray.shape, rgb, gray, stream=stream)
