"""The vector math of the host headers, built several ways: equal bits, loops, nothing undefined."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from intrinsic_library import COUNTS, NEAR, ROWS, TYPES, apply, build, intrinsic
from intrinsic_samples import SEED, arguments, patterns
from kernelmill.toolchain import (
    HostCompiler,
    host_cpu,
    missing_features,
    survey_host_compilers,
)

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vmath")


@pytest.fixture(scope="module")
def library(folder: Path) -> ctypes.CDLL:
    return build(folder, arrays=True)


# --------------------------------------------------------------------------------- equal bits


def assert_same_bits(got: np.ndarray, want: np.ndarray, what: object) -> None:
    word = f"uint{8 * want.dtype.itemsize}"
    same = got.view(word) == want.view(word)
    if want.dtype.kind == "f":
        same |= np.isnan(got) & np.isnan(want)
    assert same.all(), (what, SEED, np.flatnonzero(~same)[:5])


def other_builds() -> list[tuple[str, str]]:
    return [("gcc", "x86-64-v3"), ("gcc", "x86-64-v2"), ("clang", "native"), ("gcc", "-O1")]


@pytest.mark.parametrize(("kind", "march"), other_builds())
def test_every_build_gives_the_same_bits(
    library: ctypes.CDLL, folder: Path, kind: str, march: str
) -> None:
    compare_build(library, folder, kind, march)


@pytest.mark.slow
@pytest.mark.parametrize("march", ["native", "x86-64-v2"])
def test_zig_gives_the_same_bits(library: ctypes.CDLL, folder: Path, march: str) -> None:
    compare_build(library, folder, "zig", march)


def compare_build(library: ctypes.CDLL, folder: Path, kind: str, march: str) -> None:
    compilers = {c.kind: c for c in survey_host_compilers() if isinstance(c, HostCompiler)}
    if kind not in compilers:
        pytest.skip(f"no {kind} here")
    if march.startswith("x86-64") and (host_cpu().machine != "x86_64" or missing_features(march)):
        pytest.skip(f"this processor cannot run {march}")
    extra, march = ((march,), "native") if march.startswith("-O") else ((), march)
    other = build(folder, arrays=True, compiler=compilers[kind], march=march, extra=extra)
    rng = np.random.default_rng(SEED)
    for row in ROWS.values():
        given = arguments(row, rng)
        assert_same_bits(apply(other, row.name, *given), apply(library, row.name, *given), row)


def test_position_in_the_array_does_not_matter(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(SEED)
    for row in ROWS.values():
        given = [a[:301] for a in arguments(row, rng)]
        whole = apply(library, row.name, *given)
        single = [
            apply(library, row.name, *(a[i : i + 1] for a in given)) for i in range(0, 301, 7)
        ]
        assert_same_bits(np.concatenate(single), whole[::7], row)


@pytest.mark.parametrize(("kind", "limit"), [("f32", 2.0**17), ("f64", 2.0**30)])
def test_near_variants_equal_the_full_ones(library: ctypes.CDLL, kind: str, limit: float) -> None:
    rng = np.random.default_rng(SEED)
    x = patterns(kind, 200_000, rng)
    x = np.concatenate([x[np.abs(x) < limit], rng.uniform(-limit, limit, 50_000).astype(x.dtype)])
    x = x[np.abs(x) < limit]
    for name in NEAR.keys() - {"exp_near"}:
        assert_same_bits(apply(library, name, x), apply(library, name[:3], x), name)


@pytest.mark.parametrize(("kind", "low", "high"), [("f32", -105, 70.3), ("f64", -747, 665)])
def test_exp_of_near_arguments_equals_the_full_one(
    library: ctypes.CDLL, kind: str, low: float, high: float
) -> None:
    rng = np.random.default_rng(SEED)
    x = patterns(kind, 200_000, rng)
    tiny = np.finfo(x.dtype).tiny
    subnormal = rng.uniform(low, np.log(tiny), 50_000).astype(x.dtype)  # or as good as 0
    x = np.concatenate([x[x < high], rng.uniform(low, high, 50_000).astype(x.dtype), subnormal])
    full = apply(library, "exp", x)
    assert 0 < full[-50_000:].max() < 1.001 * tiny
    assert_same_bits(apply(library, "exp_near", x), full, "exp")


def test_scalar_entry_points_equal_the_loops(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(SEED)
    for row in ROWS.values():
        given = [a[:40] for a in arguments(row, rng)]
        single = np.array([intrinsic(row.name, *values) for values in zip(*given, strict=True)])
        assert single.dtype == TYPES[row.result]
        assert_same_bits(single, apply(library, row.name, *given), row)


def test_scalar_entry_points_refuse_other_types() -> None:
    with pytest.raises(AssertionError, match="pow"):
        intrinsic("pow", np.float32(1), np.float64(1))
    with pytest.raises(AssertionError, match="exp"):
        intrinsic("exp", np.float32(1), np.float32(1))


# ------------------------------------------------------------------------------ how it is built


def test_loops_vectorise(folder: Path) -> None:
    compilers = {c.kind: c for c in survey_host_compilers() if isinstance(c, HostCompiler)}
    if "gcc" not in compilers or host_cpu().machine != "x86_64" or missing_features("x86-64-v3"):
        pytest.skip("the report of g++ for AVX2 is what this test reads")
    report = folder / "report.txt"
    build(folder, arrays=True, compiler=compilers["gcc"], march="x86-64-v3",
          extra=(f"-fopt-info-vec-optimized={report}",))  # fmt: skip
    lines = {
        int(n) for n in re.findall(r"vmath-[^:]*\.cpp:(\d+):.*loop vectorized", report.read_text())
    }
    looped = {"tgamma", "lgamma", *COUNTS}  # counting bits is one scalar instruction before AVX-512
    loops = {n: row for n, row in enumerate(ROWS.values(), 3) if row.name not in looped}
    scalar = {row.symbol for n, row in loops.items() if n not in lines}
    assert scalar == {"km_fmod_f64"}


def test_nothing_is_undefined(folder: Path) -> None:
    """Every function, on every special value, in a build that traps on undefined behaviour."""
    compilers = {c.kind: c for c in survey_host_compilers() if isinstance(c, HostCompiler)}
    if "gcc" not in compilers:
        pytest.skip("the sanitizer of g++ needs no library when it traps")
    flags = (
        "-O1",
        "-fsanitize=undefined,float-cast-overflow",
        "-fsanitize-undefined-trap-on-error",
    )
    other = build(folder, arrays=True, compiler=compilers["gcc"], extra=flags)
    program = (
        f"import sys; sys.path[:0] = {[str(ROOT / 'tests')]!r}\n"
        "import ctypes, numpy as np, intrinsic_library as il, intrinsic_samples as s\n"
        f"library, rng = ctypes.CDLL({other._name!r}), np.random.default_rng({SEED})\n"
        "for row in il.ROWS.values():\n"
        "    print(row.symbol, flush=True)\n"
        "    il.apply(library, row.name, *s.arguments(row, rng))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, (done.stdout[-200:], done.stderr[-2000:], SEED)


def test_the_headers_are_what_the_generator_writes() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "gen_vmath.py"), "--check"],
                          capture_output=True, text=True, timeout=600, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
