"""Runs of benchmarks that end early: what is kept, what is older, how a family's time is divided.

Families here are made up, and so are the clocks; nothing is measured in earnest.
"""

from __future__ import annotations

import functools
import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.append(str(BENCHMARKS))

import allowance
import gpu
import harness
import recording
import report
import results
import run
from allowance import Allowance, in_order
from harness import OURS, QUICK, Case, Contender, Later, Row

MACHINE = {
    "cpu": "Some CPU",
    "architecture": "x86_64",
    "cores": 2,
    "caches": [],
    "memory_bytes": 8 << 30,
}
STAMP = {
    "commit": "new" + "0" * 37,
    "date": "2026-02-02T03:04:05+00:00",
    "quick": False,
    "python": "3.12.1",
    "packages": {},
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
OLDER = {**STAMP, "commit": "old" + "0" * 37, "date": "2026-01-01T03:04:05+00:00"}
FAMILY = "search"  # a made-up family stands in its place


def a_row(name, dtype="float32", elements=8, seconds=1e-6):
    return Row(name, dtype, elements, 0, 0, 1, {OURS: seconds}, {OURS: seconds})


def a_case(name, dtype="float32", elements=8, seconds=1e-6):
    return Case(name, dtype, elements, (Contender(OURS, list, lambda _: seconds, single=True),))


def later(name, dtype="float32", elements=8, before=lambda: None, **more):
    def case():
        before()
        return a_case(name, dtype, elements, **more)

    return Later(name, dtype, elements, case)


def rows_in(path):
    """Return the rows of each run in a file, the newest first."""
    family = results.read(path)["families"].get(FAMILY)
    if family is None:
        return []
    return [
        (group["stamp"]["commit"][:3], [(r["case"], r["dtype"], r["elements"]) for r in group["rows"]])
        for group in results.groups(family)
    ]  # fmt: skip


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """A function that runs a made-up family into a file; what it does is said on stderr."""
    target = tmp_path / "results.json"
    monkeypatch.setattr(run, "measure_roofline", lambda: SimpleNamespace(best_with=lambda o: o))
    monkeypatch.setattr(run, "_plain", lambda _: STAMP["roofline"])
    monkeypatch.setattr(results, "machine", lambda: MACHINE)
    monkeypatch.setattr(results, "stamp", lambda _, **__: STAMP)
    monkeypatch.setattr(harness, "_SETTLE", 0)

    def go(*cases, arguments=()):
        family = SimpleNamespace(cases=lambda _: iter(cases), __doc__="A family.")
        monkeypatch.setitem(sys.modules, FAMILY, family)
        return run.main(["--family", FAMILY, "--quick", "--output", str(target), *arguments])

    go.target = target
    return go


def keep_older(target, *rows):
    family = results.joined(None, rows, OLDER)
    results.write(target, results.merge(None, MACHINE, {FAMILY: family}))


# ----------------------------------------------------------------------------- rows as they come


def test_a_row_is_in_the_file_before_the_next_one_begins(measured):
    seen = []
    look = lambda: seen.append(rows_in(measured.target))
    keep_older(measured.target, a_row("a"), a_row("b"), a_row("gone"))
    assert measured(later("a"), later("b", before=look), later("c", before=look)) == 0
    assert seen == [
        [("new", [("a", "float32", 8)]), ("old", [("b", "float32", 8), ("gone", "float32", 8)])],
        [("new", [("a", "float32", 8), ("b", "float32", 8)]), ("old", [("gone", "float32", 8)])],
    ]
    # The run is whole: what the family has no more is not kept.
    assert rows_in(measured.target) == [("new", [(n, "float32", 8) for n in "abc"])]
    assert "partial" not in results.read(measured.target)["families"][FAMILY]


def test_a_run_of_some_rows_leaves_the_others_and_says_which(measured, capsys):
    keep_older(measured.target, a_row("a"), a_row("b"), a_row("b", "int32"))
    cases = later("a"), later("b"), later("b", "int32")
    assert measured(*cases, arguments=["--case", "b", "--dtype", "int32"]) == 0
    assert rows_in(measured.target) == [
        ("new", [("b", "int32", 8)]),
        ("old", [("a", "float32", 8), ("b", "float32", 8)]),
    ]
    said = capsys.readouterr()
    assert (
        f"{FAMILY}: 2 rows are of 2026-01-01, commit old000000000: a float32 8; b float32 8"
        in said.err
    )
    tables = said.out.split("#### search")[1]
    newest, older = tables.split("Older rows, which that run did not measure. ")
    assert "| b | int32 |" in newest
    assert "| a | float32 |" not in newest
    assert "commit new000000000" in newest
    assert "| a | float32 |" in older
    assert "commit old000000000" in older


def test_a_wrong_result_is_forgotten_and_what_fails_otherwise_stays_older(measured):
    def wrong():
        raise AssertionError("not right")

    def fails():
        raise RuntimeError("no memory")

    keep_older(measured.target, *map(a_row, "abcd"), a_row("b, more"), a_row("b", elements=9))
    cases = later("a"), later("b", before=wrong), later("c", before=fails), later("d")
    assert measured(*cases) == 1
    assert rows_in(measured.target) == [
        ("new", [("a", "float32", 8), ("d", "float32", 8)]),
        ("old", [("c", "float32", 8), ("b", "float32", 9)]),
    ]


def test_a_family_that_makes_many_rows_keeps_each(measured, monkeypatch):
    def rows_of(made, budget):
        yield a_row(f"{made.name}, 1")
        assert rows_in(measured.target)[0] == ("new", [("x, 1", "float32", 8)])
        raise RuntimeError("the second size fails")

    monkeypatch.setattr(run, "_rows_of", rows_of)
    assert measured(later("x")) == 1
    assert rows_in(measured.target) == [("new", [("x, 1", "float32", 8)])]


def test_a_file_of_another_machine_is_refused_before_anything_is_measured(measured, monkeypatch):
    keep_older(measured.target, a_row("a"))
    monkeypatch.setattr(results, "machine", lambda: {**MACHINE, "cores": 4})
    with pytest.raises(ValueError, match="^the file is of another machine: cores differ$"):
        measured(later("a", before=lambda: pytest.fail("measured")))


ENDLESS = """
import sys, time
from types import SimpleNamespace
sys.path.insert(0, {benchmarks!r})
import results, run
from harness import OURS, Case, Contender, Later
def make(name):
    if name == "b":
        print("ready", flush=True)
        try:
            time.sleep(600)
        except Exception:  # a peer that takes any error for its own
            pass
    return Case(name, "float32", 8, (Contender(OURS, list, lambda _: 1e-6, single=True),))
rows = [Later(name, "float32", 8, lambda name=name: make(name)) for name in "abc"]
sys.modules["search"] = SimpleNamespace(cases=lambda _: iter(rows))
run.measure_roofline = lambda: SimpleNamespace(best_with=lambda other: other)
results.machine, results.stamp = (lambda: {machine}), (lambda *_, **__: {stamp})
sys.exit(run.main(["--family", "search", "--quick", "--output", sys.argv[1]]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_run_that_is_told_to_end_keeps_what_it_measured(tmp_path, number):
    target = tmp_path / "results.json"
    keep_older(target, *map(a_row, "abc"))
    text = ENDLESS.format(benchmarks=str(BENCHMARKS), machine=MACHINE, stamp=STAMP)
    with subprocess.Popen(
        [sys.executable, "-c", text, str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        out, err = child.communicate(timeout=600)
    name = "the keyboard" if number == signal.SIGINT else number.name
    assert child.returncode == 128 + number, err
    assert f"stopped by {name}" in err
    assert f"{FAMILY}: 2 rows are of 2026-01-01" in err
    assert "| a | float32 |" in out
    assert rows_in(target) == [
        ("new", [("a", "float32", 8)]),
        ("old", [("b", "float32", 8), ("c", "float32", 8)]),
    ]


def test_handlers_of_signals_are_given_back():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(recording.Stopped, match="^SIGTERM$") as found:
        with recording.stopped_by_signals():
            signal.raise_signal(signal.SIGTERM)
    assert found.value.status == 143
    assert signal.getsignal(signal.SIGTERM) is before


# ----------------------------------------------------------------------------- the order


def test_what_is_asked_of_most_comes_first_for_every_type():
    sizes = [1 << n for n in (12, 16, 20, 24, 28)]
    made = [Later("sum", dtype, n, int) for dtype in ("f4", "i8") for n in (*sizes, 1 << 26)]
    found = [(row.dtype, row.elements.bit_length() - 1) for row, _ in in_order(made)]
    assert found == [(dtype, n) for n in (28, 20, 12, 24, 16, 26) for dtype in ("f4", "i8")]
    small = list(in_order(made, lambda row: row.elements < 1 << 20))
    assert [later for _, later in small][:2] == [[1 << 12, 1 << 16, 1 << 16], [1 << 16] * 2]


def test_families_of_whole_cases_keep_their_order_and_are_made_one_by_one():
    made = []

    def cases():
        for name in "abc":
            made.append(name)
            yield a_case(name)

    found = in_order(cases(), lambda case: case.name != "b")
    assert [next(found)[0].name, *made] == ["a", "a"]
    assert [(case.name, sizes) for case, sizes in found] == [("c", None)]
    assert list(in_order(())) == []


def test_sizes_of_every_family_on_a_gpu_are_known_or_zero():
    """What has no `elements` cannot be put in order."""
    for name in run.CUDA_FAMILIES:
        text = (BENCHMARKS / f"{name}.py").read_text()
        for call in re.findall(r"\bLater\(([^()]*)", text):
            assert call.count(",") >= 3, f"{name}: Later({call}"


# ----------------------------------------------------------------------------- the time


class Clock:
    """A clock that goes on when it is told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_time_is_divided_over_rows_and_large_ones_get_more():
    clock = Clock()
    budget = replace(QUICK, case_seconds=10.0)
    allowed = Allowance(12.0, clock)
    # Weights: 5 of 2^28 elements, about 1 each of three small ones.
    first = allowed.of_next(1 << 28, [4096] * 3, budget)
    assert first.case_seconds == pytest.approx(12 * 5 / 8, rel=1e-3)
    assert first.share == pytest.approx(first.case_seconds / 10)
    clock.now += first.case_seconds + 1  # a second to make it ready
    allowed.spent(first)
    second = allowed.of_next(4096, [4096] * 2, budget)
    assert second.case_seconds == 10 * allowance._LEAST  # a third of what is left is less
    clock.now += 3
    allowed.spent(second)
    assert allowed.left() == pytest.approx(0.5, abs=0.01)
    assert allowed.of_next(4096, [4096], budget) is not None
    clock.now += 1
    assert allowed.of_next(4096, [], budget) is None


def test_nothing_is_cut_where_there_is_time():
    clock = Clock()
    allowed = Allowance(1000.0, clock)
    for left in (3, 2, 1, 0):
        given = allowed.of_next(1 << 28, [1 << 28] * left, QUICK)
        assert given == QUICK
        clock.now += 50
        allowed.spent(given)
    assert Allowance(None, clock).left() == float("inf")


def test_a_family_whose_time_is_up_keeps_older_rows(measured, monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr(run, "Allowance", functools.partial(Allowance, clock=clock))

    def takes():
        clock.now += 40

    keep_older(measured.target, a_row("a"), a_row("c"), a_row("d"))
    cases = [later(name, before=takes) for name in "abcd"]
    assert measured(*cases, arguments=["--budget", "60"]) == 0
    assert rows_in(measured.target) == [
        ("new", [("a", "float32", 8), ("b", "float32", 8)]),
        ("old", [("c", "float32", 8), ("d", "float32", 8)]),
    ]
    assert f"{FAMILY}: no time is left of 60 s" in capsys.readouterr().err
    # Whole cases, whose number is not known, end with the time too.
    assert measured(a_case("a"), a_case("b"), arguments=["--budget", "0"]) == 0
    assert rows_in(measured.target)[0][1][0] == ("a", "float32", 8)


# ----------------------------------------------------------------------------- results of two places


def test_of_a_family_measured_in_part_elsewhere_the_newest_rows_are_taken(tmp_path):
    kept, carried = tmp_path / "kept", tmp_path / "carried.json"
    newest = {**STAMP, "commit": "top", "date": "2026-03-03T00:00:00+00:00"}
    keep_older(carried, a_row("a", seconds=3e-6), a_row("b", seconds=3e-6))
    family = results.joined(
        results.read(carried)["families"][FAMILY], [a_row("a", seconds=1e-6)], newest, partial=True
    )
    results.write(carried, results.merge(None, MACHINE, {FAMILY: family}))
    here = results.place(kept, results.machine_name(MACHINE))
    own = results.joined(None, [a_row(n, seconds=2e-6) for n in "abc"], STAMP)
    results.write(here, results.merge(None, MACHINE, {FAMILY: own}))
    report.take(carried, kept)
    assert rows_in(here) == [
        ("top", [("a", "float32", 8)]),
        ("new", [("b", "float32", 8), ("c", "float32", 8)]),
    ]
    before = here.read_text()
    report.take(carried, kept)  # twice is once
    assert here.read_text() == before


def test_a_whole_family_from_elsewhere_replaces_what_is_older_only(tmp_path):
    kept, carried = tmp_path / "kept", tmp_path / "carried.json"
    here = results.place(kept, results.machine_name(MACHINE))
    own = results.joined(None, [a_row("a"), a_row("b")], STAMP)
    results.write(here, results.merge(None, MACHINE, {FAMILY: own}))
    keep_older(carried, a_row("a"))
    report.take(carried, kept)
    assert rows_in(here) == [("new", [("a", "float32", 8), ("b", "float32", 8)])]
    family = results.joined(None, [a_row("z")], {**STAMP, "date": "2026-04-04T00:00:00+00:00"})
    results.write(carried, results.merge(None, MACHINE, {FAMILY: family}))
    report.take(carried, kept)
    assert rows_in(here) == [("new", [("z", "float32", 8)])]


def test_two_rows_of_one_case_are_not_a_results_file():
    family = {"stamp": STAMP, "rows": [a_row("a").as_json()]}
    data = results.merge(None, MACHINE, {FAMILY: {**family, "older": [family]}})
    with pytest.raises(ValueError, match=f"^family {FAMILY} has two rows a float32 8$"):
        results.validate(data)


def test_a_run_that_measured_nothing_changes_nothing():
    old = results.joined(None, [a_row("a")], OLDER)
    assert results.joined(old, [], STAMP, partial=True) == old
    assert results.joined(None, [], STAMP, partial=True) is None


# ----------------------------------------------------------------------------- families of `make gpu`


@pytest.fixture
def gpu_runs(monkeypatch):
    """What `make gpu` runs, with the seconds it may take; a clock goes on by its running."""
    clock, ran = Clock(), []
    monkeypatch.setattr(gpu.cuda_timing, "absent", lambda: "")
    monkeypatch.setattr(gpu, "_machine_name", lambda: "none-here")
    monkeypatch.setattr(gpu.time, "monotonic", clock)
    before = signal.getsignal(signal.SIGTERM)

    def family(name, asked, seconds):
        ran.append((name, seconds))
        clock.now += 30
        return name != "sort"

    monkeypatch.setattr(gpu, "_run", family)
    yield ran
    signal.signal(signal.SIGTERM, before)


def test_a_list_of_families_shares_the_whole_time(gpu_runs, tmp_path, capsys):
    arguments = ["scan,sort", "reduce", "scan", "--out", str(tmp_path), "--total", "70"]
    assert gpu.main(arguments) == 1
    assert gpu_runs == [("scan", 70 / 3), ("sort", 20), ("reduce", 10)]
    said = capsys.readouterr()
    assert said.out.endswith("failed: sort\n")
    assert "sort: FAILED after 30 s" in said.err
    gpu_runs.clear()
    assert gpu.main(["scan", "sort", "reduce", "--out", str(tmp_path), "--total", "40"]) == 1
    assert [name for name, _ in gpu_runs] == ["scan", "sort"]
    assert "reduce: no time is left of 40 s" in capsys.readouterr().err


def test_all_families_are_one_word(gpu_runs, tmp_path):
    gpu.main(["all", "--out", str(tmp_path)])
    assert gpu_runs == [(name, 480) for name in gpu.FAMILIES]


def test_without_a_gpu_one_line_says_so(gpu_runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu.cuda_timing, "absent", lambda: "torch sees no CUDA device")
    with pytest.raises(SystemExit, match="2"):
        gpu.main(["scan", "--out", str(tmp_path / "report")])
    assert capsys.readouterr().err == (
        "nothing was run, since it needs an NVIDIA GPU: torch sees no CUDA device\n"
    )
    assert gpu_runs == []
    assert not (tmp_path / "report").exists()


# Marked for a GPU, or run on every device by a fixture of tests/conftest.py.
MARKED = re.compile(r'mark\.cuda\b(?!")|usefixtures\("device"\)')
PLACED = re.compile(r"def test_\w+\([^)]*\bplace\b")
OWN_PLACES = re.compile(r'def place\(|"place"|"place, ')


def test_every_test_for_a_gpu_belongs_to_a_family():
    tests = Path(__file__).resolve().parents[1]
    run = {path for name in gpu.FAMILIES for path in gpu.files_of(name, tests)}
    found = set()
    for path in (*tests.glob("cpu/test_*.py"), *tests.glob("cuda/test_*.py")):
        text = path.read_text()
        if MARKED.search(text) or (PLACED.search(text) and not OWN_PLACES.search(text)):
            found.add(path)
    assert len(found) > 40
    assert sorted(path.name for path in found - run) == []


def test_tests_have_the_time_of_a_family_without_benchmarks(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(gpu, "_tests", lambda *given: ran.append(given[1:]) or True)
    asked = SimpleNamespace(skip=None, commit="", out=tmp_path)
    monkeypatch.setattr(gpu, "_workers", list)
    assert gpu._run("iterators", asked, 100)
    assert ran == [(tmp_path / "tests-iterators.xml", [], 90)]


def test_benchmarks_are_told_how_long_they_may_take(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(gpu, "_python", lambda command, seconds, *_: ran.append((command, seconds)))
    clock = Clock()
    monkeypatch.setattr(gpu.time, "monotonic", clock)
    asked = SimpleNamespace(skip="tests", commit="")
    gpu._run("runtime", asked, 100)
    assert [(c[1:], s) for c, s in ran] == [
        (["--family", "cuda_host", "--budget", "45"], 50),
        (["--family", "cuda_first_call", "--budget", "90"], 100),
    ]


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, file=open(sys.argv[1], "w"), flush=True)
time.sleep(600)
"""


def test_what_does_not_end_is_killed_with_its_processes(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "_GRACE", 0.1)
    place = tmp_path / "pid"
    seconds = 1
    while not place.exists() or not place.read_text():  # a slow machine had not begun by then
        assert gpu._python(["-c", STUBBORN, str(place)], seconds) == 124
        seconds *= 2
    end = time.monotonic() + 600
    while is_alive(int(place.read_text())):
        assert time.monotonic() < end, "the child's child lives"
        time.sleep(0.05)


def is_alive(process):
    """Return whether a process runs; where nobody waits for it, a dead one is still listed."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


POLITE = """
import signal, sys, time
def end(*_):
    print("kept", file=open(sys.argv[1], "w"), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("", file=open(sys.argv[1] + ".ready", "w"), flush=True)
time.sleep(600)
"""


def test_what_is_stopped_has_time_to_write_what_it_has(tmp_path):
    place = tmp_path / "kept"
    ready = tmp_path / "kept.ready"
    seconds = 1
    while not ready.exists():  # as above
        assert gpu._python(["-c", POLITE, str(place)], seconds) == 124
        seconds *= 2
    assert place.read_text() == "kept\n"


def test_files_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    keep_older(path, a_row("a"))
    before = path.read_text()
    monkeypatch.setattr(json, "dumps", lambda *_, **__: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        keep_older(path, a_row("b"))
    assert path.read_text() == before
