"""Kernels in Python run on the emulator and give what NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernel_cases import CASES


def launch(case, args):
    if case.config is not None:
        case.kernel[case.config](*args)
    else:
        case.kernel.launch(case.n, *args)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_kernel_gives_the_values_of_numpy(case):
    args = [a.copy(order="K") if isinstance(a, np.ndarray) and a.flags.writeable and i in case.expected else a
            for i, a in enumerate(case.args)]  # fmt: skip
    with km.Device("emulator"):
        launch(case, args)
    for position, wanted in case.expected.items():
        found = args[position]
        if found.dtype.fields is not None or found.dtype.kind in "biu":
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, rtol=case.rtol, atol=case.rtol)
