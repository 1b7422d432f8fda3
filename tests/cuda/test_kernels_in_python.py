"""Every kernel of examples/kernels_in_python in both forms on a GPU, against NumPy."""

from __future__ import annotations

import pytest

from kernel_examples import FORMS, cases, run

pytestmark = pytest.mark.cuda

# Beside the small sizes: one element, exact tiles, a little more than one.
SIZES = {
    "saxpy": [(1,), (4096,), (1 << 20,)],
    "img2gray": [(1, 1), (8, 32), (513, 1025)],
    "transpose": [(1, 1), (32, 32), (33, 1025)],
    "matmul": [(1, 1, 1), (64, 16, 64), (129, 257, 65)],
    "softmax": [(1, 1), (2, 256), (3, 5001)],
    "layer_norm": [(2, 256), (3, 5001)],
    "nbody": [(1,), (256,), (1025,)],
    "stencil": [(1, 1), (2, 5), (129, 1025)],
    "histogram": [(1,), (4096,), (1 << 20,)],
    "reduction": [(1,), (4096,), (1 << 20,)],
    "mandelbrot": [(8, 32, 1), (200, 300, 500)],
    "flash_attention": [(1, 1), (1, 64), (3, 321)],
}


def test_sizes_are_given_for_every_kernel():
    assert list(SIZES) == list(cases.CASES)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_kernel_computes_what_numpy_does(name, form):
    case = cases.CASES[name]
    for size in (case.small, *SIZES[name]):
        wrong = run.check(case, form, "cuda:0", size)
        assert wrong <= case.tolerance.share, size
