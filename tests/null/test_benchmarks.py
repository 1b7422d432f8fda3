"""The benchmarks: results files, merging, tables, the documentation's block, and one quick run."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.append(str(BENCHMARKS))

import harness
import report
import results
from harness import FASTEST, OURS, REFERENCE, Case, Contender, Goal, Row

MACHINE = {
    "cpu": "Some CPU 9000 (cpu family 6, model 1)",
    "architecture": "x86_64",
    "cores": 2,
    "caches": [
        {"level": 1, "kind": "data", "bytes": 32768},
        {"level": 1, "kind": "instruction", "bytes": 32768},
        {"level": 2, "kind": "unified", "bytes": 1 << 20},
    ],
    "memory_bytes": 8 << 30,
}
STAMP = {
    "commit": "0123456789abcdef+",
    "date": "2026-01-02T03:04:05+00:00",
    "quick": False,
    "python": "3.12.1",
    "packages": {"numpy": "2.4.0", "numba": None},
    "compiler": "g++ 12.2.0",
    "reference_flags": "-O3",
    "threads": 2,
    "load_before": 0.1,
    "roofline": {
        "copy_bytes_per_second": 40e9,
        "read_bytes_per_second": 50e9,
        "write_bytes_per_second": 30e9,
        "array_bytes": 1 << 24,
        "threads": 2,
    },
}
ROW = Row(
    case="2*x + 1",
    dtype="float32",
    elements=1 << 24,
    bytes=2 << 26,
    written=1 << 26,
    rounds=3,
    best={OURS: 4e-3, REFERENCE: 3.8e-3, "numpy": 12e-3, "torch": 5e-3},
    median={OURS: 5e-3, REFERENCE: 5e-3, "numpy": 15e-3, "torch": 6e-3},
    goals=(Goal(REFERENCE, 0.9), Goal("numpy", 4.0), Goal(FASTEST, 1.0), Goal("numba", 1.0)),
    skipped={"numba": "No module named 'numba'"},
)
CALL = Row(
    "plan(x)", "float32", 1000, 0, 0, 5, {OURS: 0.5e-6}, {OURS: 0.6e-6}, (Goal(seconds=1.5e-6),)
)


def a_file(**families):
    data = None
    for name, rows in families.items():
        data = results.merge(data, MACHINE, {name: results.joined(None, rows, STAMP)})
    return data


# ----------------------------------------------------------------------------- results files


def test_a_results_file_survives_a_round_trip(tmp_path):
    data = a_file(transform=[ROW], overhead=[CALL])
    path = tmp_path / "deep" / "machine.json"
    results.write(path, data)
    assert results.read(path) == data
    assert [Row.from_json(r) for r in data["families"]["transform"]["rows"]] == [ROW]
    assert [p.name for p in path.parent.iterdir()] == ["machine.json"]


def test_a_run_replaces_its_own_families_only():
    old = a_file(transform=[ROW, replace(ROW, elements=8)], overhead=[CALL])
    kept = copy.deepcopy(old)
    later = {**STAMP, "commit": "fedcba"}
    family = results.joined(old["families"]["transform"], [ROW], later)
    new = results.merge(old, MACHINE, {"transform": family})
    assert old == kept
    assert new["families"]["overhead"] == old["families"]["overhead"]
    assert new["families"]["transform"]["stamp"] == later
    assert len(new["families"]["transform"]["rows"]) == 1


def test_results_of_another_machine_are_not_mixed_in():
    other = {**MACHINE, "cores": 4, "cpu": "Another"}
    with pytest.raises(ValueError, match=r"^the file is of another machine: cpu, cores differ$"):
        results.merge(a_file(transform=[ROW]), other, {})


def broken(change):
    data = copy.deepcopy(a_file(transform=[ROW]))
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.update(schema=7), "schema 7, expected 1"),
        (lambda d: d.pop("machine"), "the file: missing ['machine'], unknown []"),
        (lambda d: d["machine"].update(color=1), "machine: missing [], unknown ['color']"),
        (
            lambda d: d["families"]["transform"]["stamp"].pop("commit"),
            "the stamp of transform: missing ['commit'], unknown []",
        ),
        (
            lambda d: d["families"]["transform"]["rows"][0].pop("best"),
            "row 0 of transform: Row.__init__() missing 1 required positional argument: 'best'",
        ),
        (
            lambda d: d["families"]["transform"]["rows"][0].update(best={OURS: 0.0}),
            "row 0 of transform (2*x + 1): no positive seconds",
        ),
    ],
)
def test_what_is_not_a_results_file_is_refused(tmp_path, change, text):
    data = broken(change)
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        results.validate(data)
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=f"^machine.json is not a results file: {re.escape(text)}"):
        results.read(path)


def test_the_kept_results_are_valid_and_not_of_quick_runs():
    for path in results.DIRECTORY.glob("*.json"):
        data = results.read(path)
        assert path.stem == results.machine_name(data["machine"])
        assert not any(family["stamp"]["quick"] for family in data["families"].values())


def test_a_machine_is_named_after_processor_and_cores():
    assert results.machine_name(MACHINE) == "some-cpu-9000-6-1-2-cores"
    found = results.machine()
    assert found["cores"] >= 1
    assert found["memory_bytes"] > 1 << 28


# ----------------------------------------------------------------------------- verdicts and tables


def test_verdicts_compare_with_the_peer_that_is_asked_for():
    assert [harness.verdict(ROW, goal) for goal in ROW.goals] == [
        (pytest.approx(0.95), True),
        (pytest.approx(3.0), False),
        (pytest.approx(1.25), True),
        (None, False),
    ]
    assert harness.verdict(CALL, Goal(seconds=1.5e-6)) == (0.5e-6, True)
    assert harness.verdict(CALL, Goal(seconds=0.4e-6)) == (0.5e-6, False)
    assert ROW.fastest_peer() == "torch"


def test_the_table_shows_times_ratios_and_missed_goals():
    text = report.render(a_file(transform=[ROW], overhead=[CALL]))
    lines = text.splitlines()
    assert "### Some CPU 9000 (cpu family 6, model 1), 2 cores" in lines
    assert "x86_64; L1 32 KiB, L2 1024 KiB; 8 GiB of memory." in lines
    assert (
        "| case | type | elements | time | GB/s | of roofline | x C++ | x numpy | x torch | goals |"
        in lines
    )
    assert (
        "| 2*x + 1 | float32 | 2^24 | 4 ms | 33.6 | 84% | 0.95 | 3.00 | 1.25 | "
        "met: ≥ 0.9 x C++: 0.95; **missed**: ≥ 4 x numpy: 3.00; "
        "met: ≥ 1 x fastest peer (torch): 1.25; **missed**: ≥ 1 x numba: numba did not run |"
        in lines
    )
    assert "| plan(x) | float32 | 1,000 | 500 ns | met: ≤ 1.5 µs |" in lines
    assert "numba did not run: No module named 'numba'" in lines


# ----------------------------------------------------------------------------- measuring


def a_case(**contenders):
    found = tuple(Contender(name, run) for name, run in contenders.items())
    return Case("case", "float32", 3, found, tolerance=1e-6)


TINY = harness.Budget(quick=True, sizes=(8,), rounds=(2, 3), case_seconds=0.01, batch_seconds=1e-5)


def test_a_wrong_result_of_ours_is_not_timed():
    case = a_case(kernelmill=lambda: [1.0, 2.0, 3.5], numpy=lambda: [1.0, 2.0, 3.0])
    text = (
        "kernelmill: case float32 3: its result differs from NumPy's by 0.17 of the scale, "
        "the limit is 1e-06"
    )
    with pytest.raises(AssertionError, match=f"^{re.escape(text)}$"):
        harness.measure(case, TINY)


def test_a_wrong_or_undefined_result_of_a_peer_leaves_it_out():
    case = a_case(
        kernelmill=lambda: [1.0, 2.0], numpy=lambda: [1.0, 2.0], torch=lambda: [1.0, float("nan")]
    )
    row = harness.measure(case, TINY)
    assert set(row.best) == {OURS, "numpy"}
    assert row.skipped["torch"].startswith("case float32 3: its result differs from NumPy's by nan")


def test_a_slow_first_call_does_not_make_batches_short():
    numbers = []

    def measured(number):
        numbers.append(number)
        return 0.3 if len(numbers) == 1 else number * 1e-7

    contender = Contender(OURS, lambda: 0, measured)
    row = harness.measure(Case("case", "float32", 1, (contender,)), TINY)
    assert numbers[:2] == [1, 1]
    assert numbers[-1] >= 100
    assert row.best[OURS] == pytest.approx(1e-7)


def test_all_contenders_take_turns_in_every_round():
    calls = []
    case = Case(
        "case",
        "float32",
        1,
        tuple(
            Contender(name, lambda: 0, lambda _, name=name: calls.append(name) or 1e-3, single=True)
            for name in (OURS, "numpy", "torch")
        ),
    )
    row = harness.measure(case, TINY)
    assert calls[:6] == [OURS, "numpy", "torch", "numpy", "torch", OURS]
    assert row.best == row.median == dict.fromkeys((OURS, "numpy", "torch"), 1e-3)


# ----------------------------------------------------------------------------- documentation


def test_pages_show_the_block_made_from_the_kept_results(tmp_path):
    pages = [p for p in sorted((ROOT / "docs").rglob("*.md")) if report.BEGIN in p.read_text()]
    assert [p.name for p in pages] == ["performance.md"]
    copies = shutil.copytree(ROOT / "docs", tmp_path / "docs")
    assert report.update(copies) == [], "run `python benchmarks/report.py --update`"


def test_the_performance_page_has_figures_in_the_block_only():
    text = (ROOT / "docs/explanation/performance.md").read_text()
    before, rest = text.split(report.BEGIN)
    _, after = rest.split(report.END)
    outside = (before + after).replace("\N{MULTIPLICATION SIGN}", "x")
    found = re.findall(r"\d[\d.,]*\s*(?:x\b|[mnuµ]?s\b|seconds\b|[GM]i?B/s|%)", outside)
    assert found == []


def test_updating_rewrites_the_blocks_and_nothing_else(tmp_path):
    docs, kept = tmp_path / "docs", tmp_path / "results"
    docs.mkdir()
    page, other = docs / "page.md", docs / "other.md"
    page.write_text(f"# Before\n\n{report.BEGIN}\nold\n{report.END}\n\nAfter\n")
    other.write_text("no block\n")
    results.write(kept / "one.json", a_file(transform=[ROW]))
    assert report.update(docs, kept) == [page]
    assert page.read_text() == f"# Before\n\n{report.block(kept)}\n\nAfter\n"
    assert report.render(results.read(kept / "one.json")) in page.read_text()
    assert report.update(docs, kept) == []
    assert other.read_text() == "no block\n"
    begin = report.BEGIN.replace("benchmarks:", "benchmarks of build:", 1)
    other.write_text(f"{begin}\nold\n{report.END}\n")
    assert report.update(docs, kept) == [other]
    assert other.read_text() == f"{report.block(kept, 'build')}\n"
    assert "No results are kept yet" in other.read_text()
    results.write(kept / "two.json", a_file(transform=[ROW], build=[ROW]))
    report.update(docs, kept)
    assert other.read_text().count("#### ") == 1
    assert "#### build\n" in other.read_text()


# ----------------------------------------------------------------------------- a run


def test_a_quick_run_measures_a_family_and_writes_where_it_is_told(tmp_path):
    target = tmp_path / "quick.json"
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--quick", "--json"]
    done = subprocess.run(
        [*command, "--family", "overhead", "--case", "sum", "--output", str(target)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    data = results.validate(json.loads(done.stdout))
    assert data == results.read(target)
    assert list(data["families"]) == ["overhead"]
    assert data["families"]["overhead"]["stamp"]["quick"] is True
    rows = [Row.from_json(row) for row in data["families"]["overhead"]["rows"]]
    assert "plan of a sum" in {row.case for row in rows}
    assert all({OURS, "numpy"} <= set(row.best) for row in rows)
    assert all(0 < row.best[OURS] <= row.median[OURS] < 1e-3 for row in rows)


def test_the_families_are_listed():
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "run.py"), "--list"],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    names = [line.split()[0] for line in done.stdout.splitlines()]
    families = [p.stem for p in BENCHMARKS.glob("*.py") if "\ndef cases(" in p.read_text()]
    assert sorted(names) == sorted(families)
    assert {"overhead", "transform", "cuda_transform", "hub"} <= set(families)
