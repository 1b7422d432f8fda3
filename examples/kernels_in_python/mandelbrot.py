"""mandelbrot: how many steps z = z * z + c stays within 2, at most `most`, for each point."""

import kernelmill as km


@km.kernel
def mandelbrot(steps, left, top, pixel, most):
    for i, j in km.grid_range(*steps.shape):
        cx = km.float32(left) + j * km.float32(pixel)
        cy = km.float32(top) + i * km.float32(pixel)
        x, y = km.float32(0), km.float32(0)
        xx, yy = x, y
        count = km.int32(0)
        while count < most and xx + yy <= 4:
            y = 2 * x * y + cy
            x = xx - yy + cx
            xx, yy = x * x, y * y
            count += 1
        steps[i, j] = count


def run(steps, left, top, pixel, most, stream=None):
    mandelbrot.launch(steps.shape, steps, left, top, pixel, most, stream=stream)
