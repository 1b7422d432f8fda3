"""The device language on the emulator: small kernels in several schedules, against NumPy."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import kernelmill as km
from emulator_kernels import BY_NAME, CASES, CORPUS
from kernelmill.runtime.emulator import Schedule, compile_emulated, scheduled

SCHEDULES = (
    Schedule(),
    Schedule("reversed"),
    Schedule("reversed", blocks=3),
    Schedule("random", seed=1),
    Schedule("random", seed=2, blocks=4),
)


@cache
def code():
    expressions = [name for case in CASES for name in case.extra]
    text = (CORPUS / "right.cu").read_text()
    return compile_emulated(text, name="right.cu", expressions=expressions)


def launch(case, args):
    config = km.LaunchConfig(
        case.grid, case.block, shmem_size=case.shared, is_cooperative=case.cooperative
    )
    km.launch(None, config, code().get_kernel(case.name), *args)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_kernel_computes_what_numpy_does(name):
    case = BY_NAME[name]
    for schedule in SCHEDULES:
        args = case.args()
        with scheduled(schedule):
            launch(case, args)
        found, wanted = case.check(*args)
        found = np.asarray(found, dtype=object if isinstance(found, list) else None)
        wanted = np.asarray(wanted)
        if case.tolerance:
            np.testing.assert_allclose(found, wanted, case.tolerance, case.tolerance)
        else:
            assert found.shape == wanted.shape
            assert (found == wanted).all(), (schedule, found, wanted)
