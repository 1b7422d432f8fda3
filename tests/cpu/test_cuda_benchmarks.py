"""The benchmarks on a GPU, without one: goals, results files, what makes a case, `make gpu`, wheels.

Arrays are on the processor here, and a timer that returns a constant stands for graphs.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tools")]

torch = pytest.importorskip("torch", reason="the benchmarks on a GPU need torch")

import cuda_peers
import cuda_reduce
import cuda_timing
import cuda_transform
import gpu
import harness
import kernelmill as km
import report
import results
import wheels
from harness import BUILT_IN, COPY, CUDA_CPP, FASTEST, FLOOR, OURS, Contender, Goal, Row

# A module for tests has the same name.
SPEC = importlib.util.spec_from_file_location(
    "benchmarks_cuda_kernels", ROOT / "benchmarks" / "cuda_kernels.py"
)
cuda_kernels = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cuda_kernels)

MACHINE = {
    "gpu": "NVIDIA H200",
    "capability": "9.0",
    "multiprocessors": 132,
    "l2_bytes": 60 << 20,
    "memory_bytes": 140 << 30,
}
STAMP = {
    "commit": "0123456789abcdef",
    "date": "2026-01-02T03:04:05+00:00",
    "quick": False,
    "python": "3.12.1",
    "packages": {"torch": "2.11.0", "triton": None},
    "compiler": "NVRTC 13.0",
    "driver": "580.1 (CUDA 13.0)",
    "roofline": {
        "copy_bytes_per_second": 4.0e12,
        "read_bytes_per_second": 4.5e12,
        "write_bytes_per_second": 3.5e12,
        "array_bytes": 240 << 20,
    },
}
ROW = Row(
    case="x + y",
    dtype="float32",
    elements=1 << 28,
    bytes=3 << 30,
    written=1 << 30,
    rounds=9,
    best={OURS: 820e-6, COPY: 806e-6, BUILT_IN: 815e-6, "torch": 830e-6, "CuPy": 803e-6},
    median={OURS: 821e-6, COPY: 807e-6, BUILT_IN: 816e-6, "torch": 831e-6, "CuPy": 804e-6},
    goals=(*cuda_timing.goals_at(1 << 28), Goal(BUILT_IN, seconds=0.1e-6, share=0.005)),
    skipped={"Triton": "No module named 'triton'"},
)
LAUNCH = Row(
    "prepared launch", "float32", 4096, 0, 0, 5,
    {OURS: 4.5e-6, FLOOR: 3.1e-6, "cuda.core": 5e-6}, {OURS: 4.6e-6},
    (Goal(FLOOR, seconds=1e-6), Goal("torch", 1.0)),
)  # fmt: skip


# ----------------------------------------------------------------------------- goals


def test_a_goal_near_a_peer_allows_a_share_or_some_time_whichever_is_more():
    near = Goal("torch", share=0.02, seconds=0.5e-6)
    for ours, theirs, met in (
        (102e-6, 100e-6, True),  # 2 % of it
        (102.1e-6, 100e-6, False),
        (2.49e-6, 2e-6, True),  # half a microsecond
        (2.51e-6, 2e-6, False),
    ):
        row = replace(ROW, best={OURS: ours, "torch": theirs})
        assert harness.verdict(row, near) == (pytest.approx(theirs / ours), met)
    assert harness.verdict(replace(ROW, best={OURS: 1e-6}), near) == (None, False)


def test_the_goals_of_a_gpu():
    assert [harness.verdict(ROW, goal) for goal in ROW.goals] == [
        (pytest.approx(803 / 820), False),  # 2.1 % behind CuPy
        (pytest.approx(806 / 820), True),  # 98.3 % of a copy
        (pytest.approx(815 / 820), False),
    ]
    assert [harness.verdict(LAUNCH, goal) for goal in LAUNCH.goals] == [
        (pytest.approx(3.1 / 4.5), False),
        (None, False),
    ]
    assert cuda_timing.goals_at(1 << 12) == (Goal(FASTEST, seconds=0.5e-6, share=0.02),)


# ----------------------------------------------------------------------------- results and tables


def a_file(**families):
    data = None
    for name, rows in families.items():
        data = results.merge(data, MACHINE, {name: results.joined(None, rows, STAMP)})
    return data


def test_the_results_of_a_gpu_are_a_file_of_their_own(tmp_path):
    data = a_file(cuda_transform=[ROW], cuda_host=[LAUNCH])
    path = results.place(tmp_path, results.machine_name(MACHINE))
    assert path.name == "nvidia-h200.json"
    results.write(path, data)
    assert results.read(path) == data
    assert [Row.from_json(r) for r in data["families"]["cuda_transform"]["rows"]] == [ROW]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d["machine"].update(cores=4), "machine: missing [], unknown ['cores']"),
        (
            lambda d: d["families"]["cuda_transform"]["stamp"].pop("driver"),
            "the stamp of cuda_transform: missing ['driver'], unknown []",
        ),
    ],
)
def test_what_is_not_a_results_file_of_a_gpu_is_refused(change, text):
    data = a_file(cuda_transform=[ROW])
    data["machine"] = dict(data["machine"])
    data["families"]["cuda_transform"]["stamp"] = dict(STAMP)
    change(data)
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        results.validate(data)


def test_results_from_another_machine_are_taken_over_family_by_family(tmp_path):
    kept = tmp_path / "kept"
    both = a_file(cuda_transform=[ROW, replace(ROW, elements=8)], cuda_host=[LAUNCH])
    results.write(kept / "nvidia-h200.json", both)
    carried = tmp_path / "carried.json"
    results.write(carried, a_file(cuda_transform=[ROW]))
    assert report.take(carried, kept) == kept / "nvidia-h200.json"
    families = results.read(kept / "nvidia-h200.json")["families"]
    assert len(families["cuda_transform"]["rows"]) == 1
    assert len(families["cuda_host"]["rows"]) == 1


def test_the_tables_of_a_gpu():
    lines = report.render(a_file(cuda_transform=[ROW], cuda_host=[LAUNCH])).splitlines()
    assert "### NVIDIA H200" in lines
    assert "Compute capability 9.0; 132 multiprocessors, L2 60 MiB; 140 GiB of memory." in lines
    assert (
        "Driver 580.1 (CUDA 13.0); Python 3.12.1, torch 2.11.0, NVRTC 13.0; 2026-01-02, "
        "commit 0123456789ab. Rooflines in GB/s: read 4500.0, write 3500.0, copy 4000.0." in lines
    )
    assert (
        "| case | type | elements | time | GB/s | of roofline | x copy | x built-in | x torch "
        "| x CuPy | goals |" in lines
    )
    assert (
        "| x + y | float32 | 2^28 | 820 µs | 3928.3 | 98% | 0.98 | 0.99 | 1.01 | 0.98 | "
        "**missed**: ≤ fastest peer + 2% or 500 ns (CuPy): 0.98; met: ≥ 0.97 x copy: 0.98; "
        "**missed**: ≤ built-in + 0% or 100 ns: 0.99 |" in lines
    )
    assert "Triton did not run: No module named 'triton'" in lines
    assert (
        "| prepared launch | float32 | 2^12 | 4.5 µs | 0.69 | 1.11 | "
        "**missed**: ≤ C loop + 1 µs: 0.69; **missed**: ≥ 1 x torch: torch did not run |" in lines
    )


def test_families_of_both_kinds_are_not_measured_in_one_run():
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "run.py"),
         "--family", "transform", "--family", "cuda_transform"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "families of the processor and of a GPU are measured in runs of their own" in done.stderr


# ----------------------------------------------------------------------------- cases


@pytest.fixture
def no_gpu(monkeypatch):
    """Arrays on the processor; contenders that are not timed, and peers that are all absent."""
    made = []

    def contender(name, calls, launches, *, compared=True):
        made.append((name, len(calls), launches))
        calls[0]()
        return Contender(name, calls[0], lambda _: 1e-6, single=True, compared=compared)

    def filled(elements, dtype, low=-4.0, high=4.0):
        kind = getattr(torch, dtype)
        x = torch.empty(elements, dtype=kind)
        return x.uniform_(low, high) if kind.is_floating_point else x.random_(-1000, 1000)

    monkeypatch.setattr(cuda_timing, "device_contender", contender)
    monkeypatch.setattr(cuda_timing, "filled", filled)
    monkeypatch.setattr(
        cuda_timing,
        "copy_of",
        lambda nbytes, launches: contender(COPY, [int], launches, compared=False),
    )
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(cuda_peers, "_MODULES", dict.fromkeys(cuda_peers._MODULES, "not.there"))
    cuda_peers.peer.cache_clear()
    yield made
    cuda_peers.peer.cache_clear()


@pytest.mark.parametrize("dtype", cuda_timing.DTYPES)
@pytest.mark.parametrize("expression", [cuda_transform.ADD, cuda_transform.SCALE])
def test_element_wise_cases(no_gpu, expression, dtype):
    case = cuda_transform._work(expression, dtype, 5000).case()
    row = harness.measure(case, cuda_timing.QUICK)
    assert {OURS, "torch"} <= set(row.best)
    assert (BUILT_IN in row.best) is (expression == cuda_transform.ADD)
    assert row.skipped == dict.fromkeys(("cuda.compute", "CuPy", "Triton"), "No module named 'not'")
    assert row.bytes == (3 if expression == cuda_transform.ADD else 2) * row.written
    assert {launches for *_, launches in no_gpu} == {100}


@pytest.mark.parametrize("dtype", cuda_timing.DTYPES)
def test_cases_of_sums(no_gpu, dtype):
    row = harness.measure(cuda_reduce._work(cuda_reduce.SUM, dtype, 70_000).case(),
                          cuda_timing.QUICK)  # fmt: skip
    assert {OURS, "torch"} <= set(row.best)
    assert row.written == 0


def test_a_python_operator_is_asked_to_cost_what_the_built_in_one_costs(no_gpu):
    row = harness.measure(cuda_reduce._work(cuda_reduce.PYTHON, "float32", 5000).case(),
                          cuda_timing.QUICK)  # fmt: skip
    assert set(row.best) == {OURS, BUILT_IN}
    assert [goal.peer for goal in row.goals] == [BUILT_IN]


def test_cold_cases_have_sets_of_arrays(no_gpu):
    cuda_transform._work(cuda_transform.ADD, "float32", 5000, sets=3).case()
    assert {sets for _, sets, _ in no_gpu} == {3}


@pytest.fixture
def on_emulator(no_gpu, monkeypatch):
    monkeypatch.setattr(cuda_kernels, "DEVICE", "emulator")
    monkeypatch.setattr(cuda_kernels, "_stream", lambda: None)
    monkeypatch.setattr(cuda_kernels, "_TORCH", {})
    monkeypatch.setattr(cuda_timing, "stream_timer", lambda call, launches: lambda _: 1e-3)
    with km.Device("emulator"):
        yield


def test_both_forms_of_a_kernel_agree_before_they_are_timed(on_emulator, monkeypatch):
    found = {pair.name: pair for pair in cuda_kernels.cases(cuda_timing.QUICK)}
    assert len(found) == 12
    row = harness.measure(found["stencil"].case(), cuda_timing.QUICK)
    assert {OURS, CUDA_CPP} <= set(row.best)
    assert [goal.peer for goal in row.goals] == [CUDA_CPP]
    pair = found["saxpy"]
    monkeypatch.setitem(pair._makers, OURS, lambda example, there: lambda stream: None)
    with pytest.raises(AssertionError, match="kernelmill: saxpy float32"):
        harness.measure(pair.case(), cuda_timing.QUICK)


def work_with(**makers):
    base = cuda_transform._work(cuda_transform.SCALE, "float32", 1000)
    return replace(base, makers={OURS: base.makers[OURS], **makers})


def test_a_peer_that_fails_or_is_wrong_is_left_out_with_the_reason(no_gpu):
    def fails(arrays):
        raise TypeError("no such type\nmore")

    def wrong(arrays):
        return lambda: arrays.outputs[0].fill_(1)

    def leaves_one_out(arrays):
        (x,), (z,) = arrays.inputs, arrays.outputs
        return lambda: torch.mul(x[:-1], 2, out=z[:-1]).add_(1)

    case = work_with(CuPy=fails, torch=wrong, Triton=leaves_one_out).case()
    row = harness.measure(case, cuda_timing.QUICK)
    assert set(row.best) == {OURS}
    assert row.skipped["CuPy"] == "no such type"
    assert re.match(r"2\*x \+ 1 float32 1000: its result differs from the right one by [\d.]+ of "
                    r"the scale, the limit is 1e-06$", row.skipped["torch"])  # fmt: skip
    assert "by nan of the scale" in row.skipped["Triton"]


def test_what_fails_in_kernelmill_is_not_left_out(no_gpu):
    def refuses(arrays):
        raise km.ArgumentError("not so")

    def breaks(arrays):
        raise ValueError("broken")

    def wrong(arrays):
        return lambda: None

    base = work_with()
    for maker, error in ((refuses, km.ArgumentError), (breaks, ValueError)):
        with pytest.raises(error):
            replace(base, makers={OURS: maker}).case()
    case = replace(base, makers={OURS: wrong}).case()
    with pytest.raises(AssertionError, match=r"^kernelmill: .* by nan of the scale"):
        harness.measure(case, cuda_timing.QUICK)


def test_a_row_that_fails_is_left_out_and_the_run_fails(no_gpu, monkeypatch, tmp_path, capsys):
    import run

    def wrong(arrays):
        return lambda: None

    good = work_with()
    bad = replace(good, name="bad", makers={OURS: wrong})
    other = replace(good, name="another")
    monkeypatch.setattr(cuda_transform, "cases", lambda budget: iter((good, bad, other)))
    monkeypatch.setattr(cuda_timing, "absent", lambda: "")
    monkeypatch.setattr(cuda_timing, "machine", lambda: MACHINE)
    monkeypatch.setattr(cuda_timing, "roofline", lambda: STAMP["roofline"])
    monkeypatch.setattr(cuda_timing, "stamp", lambda roof, **_: {**STAMP, "roofline": roof})
    target = tmp_path / "results.json"
    assert run.main(["--family", "cuda_transform", "--quick", "--output", str(target)]) == 1
    rows = results.read(target)["families"]["cuda_transform"]["rows"]
    assert [row["case"] for row in rows] == [good.name, "another"]
    assert "FAILED: cuda_transform: bad float32: kernelmill: " in capsys.readouterr().err
    monkeypatch.setattr(cuda_transform, "cases", lambda budget: iter((good,)))
    assert run.main(["--family", "cuda_transform", "--quick", "--output", str(target)]) == 0


def test_copies_are_shown_where_no_cache_holds_the_arrays(no_gpu):
    base = work_with()
    assert COPY not in {c.name for c in base.case().contenders}
    large = replace(base, elements=1 << 24, goals=cuda_timing.goals_at(1 << 28))
    assert COPY in {c.name for c in large.case().contenders}


def test_differences():
    x = torch.arange(1.0, 101.0)
    assert cuda_timing.difference(x, lambda piece: x[piece]) == 0
    off = x.clone()
    off[70] += 1
    assert cuda_timing.difference(off, lambda piece: x[piece]) == pytest.approx(0.01)
    off[3] = float("nan")
    assert str(cuda_timing.difference(off, lambda piece: x[piece])) == "nan"
    n = torch.arange(100)
    assert cuda_timing.difference(n, lambda piece: n[piece]) == 0
    assert cuda_timing.difference(n + (n == 5), lambda piece: n[piece]) == float("inf")


def test_poison_is_no_result():
    outputs = torch.ones(3), torch.ones(3, dtype=torch.int32), torch.ones(3, dtype=torch.float16)
    cuda_timing.poison(outputs)
    assert outputs[0].isnan().all()
    assert (outputs[1] == -(2**31) + 1).all()
    assert outputs[2].isnan().all()


# ----------------------------------------------------------------------------- make gpu, make wheels


def test_every_family_has_tests_and_benchmarks_that_exist():
    from run import CUDA_FAMILIES

    named = {name for family in gpu.FAMILIES.values() for name in family.benchmarks}
    assert named == set(CUDA_FAMILIES)
    for name in ("runtime", "transform"):
        assert gpu.files_of(name, ROOT / "tests")


def test_every_test_file_for_a_gpu_belongs_to_a_family():
    placed = {path for name in gpu.FAMILIES for path in gpu.files_of(name, ROOT / "tests")}
    assert {p.name for p in (ROOT / "tests" / "cuda").glob("test_*.py")} <= {p.name for p in placed}


def test_make_gpu_without_a_gpu_or_for_an_unknown_family(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        gpu.main(["nothing", "--out", str(tmp_path)])
    assert "there is no family 'nothing'; families: runtime, transform" in capsys.readouterr().err
    monkeypatch.setattr(cuda_timing, "absent", lambda: "torch sees no CUDA device")
    with pytest.raises(SystemExit):
        gpu.main(["transform", "--out", str(tmp_path)])
    assert "torch sees no CUDA device" in capsys.readouterr().err


def test_make_gpu_runs_tests_then_benchmarks_and_leaves_the_results(tmp_path, monkeypatch):
    ran, results_of = [], {"pytest": 0, "cuda_transform": 0}
    monkeypatch.setattr(cuda_timing, "absent", lambda: "")
    monkeypatch.setattr(cuda_timing, "machine", lambda: MACHINE)
    monkeypatch.setattr(gpu, "_machine_name", lambda: "nvidia-h200")
    monkeypatch.setattr(gpu.signal, "signal", lambda *_: None)
    monkeypatch.setattr(results, "DIRECTORY", tmp_path / "results")
    monkeypatch.setattr(results, "place", lambda name: tmp_path / "results" / f"{name}.json")
    results.write(tmp_path / "results" / "nvidia-h200.json", a_file(cuda_transform=[ROW]))

    def python(command, seconds, *_):
        ran.append((command, seconds))
        return results_of[command[1] if command[0] == "-m" else command[2]]

    monkeypatch.setattr(gpu, "_python", python)
    out = tmp_path / "out"
    assert gpu.main(["transform", "--out", str(out), "--seconds", "100", "--commit", "abc"]) == 0
    (tests, half), (benchmark, rest) = ran
    assert tests[:4] == ["-m", "pytest", "-m", "cuda and not slow"]
    assert str(ROOT / "tests" / "cuda" / "test_transform.py") in tests
    assert half == 50
    assert benchmark[1:3] == ["--family", "cuda_transform"]
    assert benchmark[3:] == ["--budget", f"{0.9 * rest:.0f}", "--commit", "abc"]
    assert rest <= 100
    assert results.read(out / "nvidia-h200.json")["families"].keys() == {"cuda_transform"}
    ran.clear()
    assert gpu.main(["runtime", "--out", str(out), "--skip", "benchmarks"]) == 0
    (together, _), (alone, _) = ran
    timed = str(ROOT / "tests" / "cuda" / "test_host_time.py")
    assert timed in alone
    assert timed not in together
    assert "-n" in together
    assert "-n" not in alone
    results_of["pytest"] = 1
    assert gpu.main(["transform", "--out", str(out)]) == 1
    assert gpu.main(["transform", "--out", str(out), "--skip", "tests"]) == 0


def test_a_command_that_takes_too_long_is_stopped(capfd):
    assert gpu._python(["-c", "import time; time.sleep(60)"], 1) == 124
    assert "stopped after 1 s: -c import time" in capfd.readouterr().err
    assert gpu._python(["-c", "import kernelmill"], 60) == 0


def test_peers_are_packed_as_their_wheels_hold_them(tmp_path):
    wheel = tmp_path / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("some/__init__.py", "VALUE = 1\n")
        made.writestr("cuda/compute/cu12/large.so", b"0" * 1000)
        made.writestr("cuda/compute/cu13/large.so", b"1" * 1000)
    wheels.pack([wheel], tmp_path / "one.tar.xz")
    with tarfile.open(tmp_path / "one.tar.xz", "r:xz") as archive:
        assert archive.getnames() == ["some/__init__.py", "cuda/compute/cu13/large.so"] or sorted(
            archive.getnames()
        ) == ["cuda/compute/cu13/large.so", "some/__init__.py"]
        assert archive.extractfile("some/__init__.py").read() == b"VALUE = 1\n"
    wheels.pack([wheel], tmp_path / "two.tar.xz")
    assert (tmp_path / "one.tar.xz").read_bytes() == (tmp_path / "two.tar.xz").read_bytes()


def test_wheels_are_fetched_for_the_machine_that_lacks_them(tmp_path, monkeypatch, capsys):
    asked = []

    def run(command, **_):
        asked.append(command)
        target = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(target / "some-1.0-py3-none-any.whl", "w") as made:
            made.writestr("some.py", "")

    monkeypatch.setattr(wheels.subprocess, "run", run)
    assert wheels.main([str(tmp_path / "w"), "--python", "3.13", "--machine", "aarch64"]) == 0
    assert [set(c) & {"--no-deps", "--python-version=3.13"} for c in asked] == [
        {"--no-deps", "--python-version=3.13"}
    ] * 2
    assert "--platform=manylinux_2_28_aarch64" in asked[0]
    assert sorted(p.name for p in (tmp_path / "w").iterdir()) == [
        "peers.tar.xz",
        "some-1.0-py3-none-any.whl",
    ]
    assert "together; the limit is 60 MB" in capsys.readouterr().out
    assert wheels.main([str(tmp_path / "w"), "--limit", "-1"]) == 1
