"""Random kernels give on the emulator what plain Python gives, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernel_programs import Generator, arguments, define, plain

# Without contraction float32 rounds as NumPy rounds it.
SHAPES = ((1, 32), (3, (8, 2)), ((2, 2), 64))


def check(seed):
    text = Generator(seed).text()
    expected, found = arguments(seed), arguments(seed)
    plain(text, expected)
    kernel = km.kernel(contract=False, debug=seed % 3 == 0)(define(text, km, f"<kernel {seed}>"))
    with km.Device("emulator"):
        kernel[SHAPES[seed % len(SHAPES)]](*found)
    for wanted, given in zip(expected[2:4], found[2:4], strict=True):
        np.testing.assert_array_equal(given, wanted, err_msg=text)


@pytest.mark.parametrize("seed", range(16))
def test_a_random_kernel_gives_what_plain_python_gives(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16, 300))
def test_more_random_kernels(seed):
    check(seed)
