"""Rows of the tuning table: every one fits the chips it is for, and `tune` finds better ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import kernelmill as km
from kernelmill.algorithms import policy, tuning
from kernelmill.algorithms.policy import RingPolicy, ring_rows, trying
from kernelmill.cli import main
from kernelmill.runtime.cuda.images import image_of
from kernelmill.toolchain.cubin import resources_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")

# Shared memory of a block, registers of a multiprocessor and of a thread, on chips from sm_90 on.
SHARED, REGISTERS, MOST = 227 << 10, 65536, 255
CI = ("sm_90",)
FULL = ("sm_90", "sm_100", "sm_103", "sm_120")
TYPES = {2: "f2", 4: "f4", 8: "f8", 16: "c16"}
WIDE = np.dtype([(f"v{i}", "f8") for i in range(8)])
BULK = [row for row in policy._RINGS if row.chip == "bulk" and row.largest <= 64]


def first_of(a: Any, b: Any) -> Any:
    return a if a.v0 < b.v0 else b


def positive(v: Any) -> Any:
    return v > 0


def planned(row: RingPolicy) -> None:
    """Plan a call that the row runs."""
    dtype = TYPES.get(row.largest, WIDE)
    x = np.zeros(max(row.least, 1 << 20), dtype)
    if row.family == "scan":
        km.inclusive_scan.plan(x, first_of if dtype == WIDE else km.maximum, out=x.copy())
    else:
        km.select.plan(x, positive, out=(x.copy(), np.zeros(1, np.int64)))


def check(looking: Any, row: RingPolicy, arch: str) -> None:
    planned(row)
    source, grid = looking.texts[-1], looking.grids[-1]
    image = image_of(source, arch)
    assert image.log == ""
    (needs,) = [n for n in resources_of(image.data) if n.name == "km_kernel"]
    assert needs.stack == 0, "registers are spilled"
    assert needs.registers <= MOST
    assert needs.registers * grid.threads <= REGISTERS
    assert grid.shared, "the row runs the call"
    assert needs.shared + grid.shared <= SHARED


def named(row: RingPolicy) -> str:
    return f"{row.family}-{row.largest}"


ROWS = [row for row in BULK if row.family == "scan" or row.largest in TYPES]


@pytest.mark.parametrize("arch", CI)
@pytest.mark.parametrize("row", ROWS, ids=named)
def test_rows_fit(row: RingPolicy, arch: str, looking: Any) -> None:
    check(looking, row, arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", FULL)
@pytest.mark.parametrize("row", ROWS, ids=named)
def test_rows_fit_every_chip(row: RingPolicy, arch: str, looking: Any) -> None:
    check(looking, row, arch)


# ----------------------------------------------------------------------------- tune


def timed(best: tuple[int, int]) -> Callable[[str, RingPolicy, int], float]:
    """A measure by which one variant wins, and one does not compile."""

    def measure(family: str, row: RingPolicy, elements: int) -> float:
        assert ring_rows()[0] == row
        assert (family, elements) == (row.family, 1000)
        if (row.reducers, row.stages) == (8, 16):
            raise km.CompileError("ptxas ran out of registers\nand more")
        return 1e-3 if (row.reducers, row.stages) == best else 2e-3

    return measure


def test_better_rows_are_found_and_failed_variants_survived() -> None:
    trials = list(tuning.tune("scan", elements=1000, measure=timed((2, 6))))
    assert {t.error for t in trials} == {"", "ptxas ran out of registers"}
    better = tuning.better_of(trials)
    assert {(row.reducers, row.stages) for row in better} == {(2, 6)}
    assert [row.largest for row in better] == [2, 4, 8]
    assert not tuning.better_of(list(tuning.tune("scan", elements=1000, measure=timed((9, 9)))))


def test_a_row_is_tried_inside_the_block_alone() -> None:
    row = RingPolicy("scan", "bulk", 4, "any", reducers=2, stages=5, least=1)
    with trying(row):
        assert policy.ring_policy("scan", "bulk", 4, 1024, 5000) == row
    assert policy.ring_policy("scan", "bulk", 4, 1024, 5000) != row


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tuning.json"
    monkeypatch.setattr(policy, "own_rows_file", lambda: path)
    monkeypatch.setattr(tuning, "own_rows_file", lambda: path)
    policy._own_rows.cache_clear()
    return path


def test_stored_rows_come_before_those_of_the_table(own: Path) -> None:
    row = RingPolicy("scan", "bulk", 4, "any", reducers=2, stages=5, least=1)
    assert tuning.store([row]) == own
    assert ring_rows()[0] == row
    assert json.loads(own.read_text())[0]["stages"] == 5


def test_a_file_that_holds_no_rows_is_told_and_ignored(own: Path) -> None:
    own.write_text("[{}]")
    with pytest.warns(UserWarning, match="holds no rows of the tuning table; it is ignored"):
        assert ring_rows() == policy._RINGS


def test_the_verb(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "seconds_of", timed((2, 6)))
    monkeypatch.setattr(tuning, "cuda_device", lambda: None)
    made = CliRunner().invoke(main, ["tune", "scan", "--elements", "1000", "--store"])
    assert made.exit_code == 0, made.output
    lines = [line.split() for line in made.stdout.splitlines()]
    assert lines[0] == ["bytes", "reducers", "stages", "microseconds"]
    assert ["4", "2", "6", "1000.0", "better"] in lines
    assert ["4", "8", "16", "-", "ptxas", "ran", "out", "of", "registers"] in lines
    assert made.stderr == f"stored 3 rows in {own}\n"
    own.unlink()
    policy._own_rows.cache_clear()
    found = json.loads(
        CliRunner().invoke(main, ["tune", "scan", "--elements", "1000", "--json"]).stdout
    )
    assert [r["row"]["largest"] for r in found if r["better"]] == [2, 4, 8]


def test_without_a_gpu_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise km.DeviceError("no GPU here")

    monkeypatch.setattr(tuning, "cuda_device", absent)
    with pytest.raises(km.DeviceError, match="no GPU here"):
        list(tuning.tune("scan"))
    with pytest.raises(km.ArgumentError, match="`family` is 'sort'; accepted: scan, select"):
        list(tuning.tune("sort"))
