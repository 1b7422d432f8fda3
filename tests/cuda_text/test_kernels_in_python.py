"""Every CUDA C++ form of examples/kernels_in_python compiles for the chips of CI; cases are sound."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_examples import cases, run
from kernelmill.runtime.cuda.program import Program

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")

CASES = tuple(cases.CASES.values())
PUBLISHED = 12


def test_every_kernel_has_a_case_and_a_file():
    assert len(CASES) == PUBLISHED
    assert {c.source for c in CASES} == set(cases.HERE.glob("*.cu"))
    assert {p.stem for p in cases.HERE.glob("*.py")} <= {"cases", "run", *cases.CASES}
    listed = [line for line in (cases.HERE / "README.md").read_text().splitlines() if "|" in line]
    assert [line.split()[1] for line in listed[2:]] == list(cases.CASES)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_kernel_compiles(case, arch):
    text = case.source.read_text()
    assert "#include" not in text
    made = Program(text, name=case.source.name).compile("cubin", arch=arch)
    assert made.image.log == ""
    assert f".text.{case.name}".encode() in made.code


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_case_tells_right_from_wrong(case):
    values = cases.values_of(case)
    again = cases.values_of(case)
    assert all(np.array_equal(values[key], again[key]) for key in values)
    right = np.asarray(case.numpy(**values)).astype(values[case.output].dtype)
    assert cases.difference(case, right, values) == 0
    assert cases.difference(case, right[::-1] * 0 - 7, values) > max(case.tolerance.share, 0.5)
    assert cases.difference(case, values[case.output], values) > case.tolerance.share


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_launch_covers_the_arrays(case):
    values = cases.values_of(case)
    launch = case.launch(**values)
    arrays = [v for v in values.values() if isinstance(v, np.ndarray)]
    assert all(any(a is b for b in launch.arguments) for a in arrays)
    for extent in (launch.grid, launch.block):
        assert all(n > 0 for n in (extent if isinstance(extent, tuple) else (extent,)))


def test_the_runner_names_unknown_kernels(capsys):
    with pytest.raises(SystemExit):
        run.main(["saxpi"])
    assert "there is no kernel 'saxpi'; kernels: saxpy, img2gray" in capsys.readouterr().err
