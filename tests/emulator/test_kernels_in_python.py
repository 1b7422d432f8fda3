"""Every CUDA C++ kernel of examples/kernels_in_python on the emulator, against NumPy."""

from __future__ import annotations

import pytest

import kernelmill as km
from kernel_examples import cases, run
from kernelmill.runtime.emulator import Schedule, scheduled

SCHEDULES = (Schedule(), Schedule("reversed", blocks=3), Schedule("random", seed=9, blocks=4))


@pytest.mark.parametrize("name", cases.CASES)
def test_a_kernel_computes_what_numpy_does(name):
    case = cases.CASES[name]
    for schedule in SCHEDULES:
        values, start = cases.values_of(case), cases.values_of(case)
        with km.Device("emulator"), scheduled(schedule):
            run.cuda_form(case, values)(None)
        wrong = cases.difference(case, values[case.output], start)
        assert wrong <= case.tolerance.share, schedule
