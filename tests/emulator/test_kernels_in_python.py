"""Every kernel of examples/kernels_in_python, in both forms, on the emulator, against NumPy."""

from __future__ import annotations

import pytest

import kernelmill as km
from kernel_examples import FORMS, cases, run
from kernelmill.runtime.emulator import Schedule, sanitized, scheduled

SCHEDULES = (Schedule(), Schedule("reversed", blocks=3), Schedule("random", seed=9, blocks=4))


def wrong(name: str, form: str, size: tuple[int, ...] | None = None) -> float:
    """Run it; return the share of elements that are wrong, less what is tolerated."""
    case = cases.CASES[name]
    values, start = cases.values_of(case, size), cases.values_of(case, size)
    make = run.cuda_form if form == "cuda" else run.python_form
    with km.Device("emulator"):
        make(case, values)(None)
    return cases.difference(case, values[case.output], start) - case.tolerance.share


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_kernel_computes_what_numpy_does(name, form):
    for schedule in SCHEDULES:
        with scheduled(schedule):
            assert wrong(name, form) <= 0, schedule


SMALL = {"matmul": (20, 9, 30), "flash_attention": (1, 20), "nbody": (40,), "reduction": (3000,)}


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_the_sanitizer_has_nothing_to_say(name, form):
    with scheduled(Schedule("random", seed=3, blocks=3)), sanitized():
        assert wrong(name, form, SMALL.get(name)) <= 0
