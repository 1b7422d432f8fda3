"""The sanitizer: planted faults are found at their line, right kernels give no report."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import emulator_faults
import emulator_kernels
import kernelmill as km
from emulator_faults import FAULTS, TEXT
from emulator_kernels import CASES, CORPUS
from kernelmill.runtime.emulator import (
    SanitizerError,
    Schedule,
    compile_emulated,
    sanitized,
    scheduled,
)

SCHEDULES = (
    Schedule(),
    Schedule("reversed", blocks=4),
    Schedule("random", seed=7, blocks=4),
)


@cache
def code(name: str):
    if name == "faults.cu":
        return compile_emulated(TEXT, name=name)
    expressions = [expression for case in CASES for expression in case.extra]
    return compile_emulated((CORPUS / name).read_text(), name=name, expressions=expressions)


def launch(file, case, args):
    config = km.LaunchConfig(
        case.grid, case.block, shmem_size=case.shared, is_cooperative=case.cooperative
    )
    with sanitized():
        km.launch(None, config, code(file).get_kernel(case.name), *args)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.order)
@pytest.mark.parametrize("name", emulator_faults.BY_NAME)
def test_a_planted_fault_is_found(name, schedule):
    fault = emulator_faults.BY_NAME[name]
    with scheduled(schedule), pytest.raises(SanitizerError) as raised:
        launch("faults.cu", fault, fault.args())
    reports = raised.value.reports
    found = [r for r in reports if r.kind == fault.kind and r.place.line in fault.lines]
    assert found, (fault, str(raised.value))
    assert all(r.place.file == "faults.cu" for r in found)
    if fault.array is not None:
        assert {r.array for r in found} == {fault.array}
    if fault.index is not None:
        assert fault.index in {r.index for r in found}


@pytest.mark.parametrize("name", emulator_kernels.BY_NAME)
def test_right_kernels_give_no_report_and_the_same_values(name):
    case = emulator_kernels.BY_NAME[name]
    for schedule in SCHEDULES[1:]:
        args = case.args()
        with scheduled(schedule):
            launch("right.cu", case, args)
        found, wanted = map(np.asarray, case.check(*args))
        np.testing.assert_allclose(
            found.astype(float), wanted.astype(float), case.tolerance, case.tolerance
        )


def test_every_kind_of_fault_is_planted_three_times():
    kinds = [fault.kind for fault in FAULTS]
    for kind in ("out of bounds", "uninitialised read", "misaligned access", "race"):
        assert kinds.count(kind) >= 3
