"""Libraries made from text, one and several at once, and every failure in words."""

from __future__ import annotations

import ctypes
import math
import os
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from kernelmill.config import override
from kernelmill.errors import CompileError, ToolchainError
from kernelmill.toolchain import (
    CompileRequest,
    HostCompiler,
    compile_many,
    compile_shared,
    missing_features,
)
from toolchain_stand_ins import (
    EXPORT,
    LANES,
    TWO,
    interrupted_when,
    is_running,
    numbers,
    stand_in,
    wait_for,
)

pytest_plugins = ["toolchain_fixtures"]
pytestmark = pytest.mark.usefixtures("own_settings")

# --------------------------------------------------------------------------------- compile


def lane_sum(x):
    """The tree of `sums`, in NumPy."""
    lanes = np.zeros(64, x.dtype)
    for row in x.reshape(-1, 64):
        lanes = lanes + row
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes[0]


def rounded(x: Fraction, bits: int, least: int) -> float:
    """Round to `bits` binary digits, ties to even, with 2**least the smallest step."""
    if not x:
        return 0.0
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    if abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    step = max(exponent - bits + 1, least)
    return math.ldexp(round(x / Fraction(2) ** step), step)


def fma_cases(dtype, count=400):
    """Products with a sum that cancels, hits a tie or falls among the subnormals."""
    info = np.finfo(dtype)
    rng = np.random.default_rng(3)
    a = rng.normal(size=count).astype(dtype)
    b = rng.normal(size=count).astype(dtype)
    c = rng.normal(size=count).astype(dtype)
    c[::4] = -(a * b)[::4]
    c[1::4] *= info.eps
    a[2::8] *= info.tiny
    c[2::8] *= info.tiny
    a[3::8] = 1 + info.eps * rng.integers(0, 64, len(a[3::8])).astype(dtype)
    b[3::8] = 1 + info.eps * rng.integers(0, 64, len(a[3::8])).astype(dtype)
    c[3::8] = info.eps * info.eps * rng.integers(-4, 5, len(a[3::8])).astype(dtype)
    return a, b, c


def call(function, *arrays):
    function.restype = None
    function(*(ctypes.c_void_p(x.ctypes.data) for x in arrays), ctypes.c_longlong(len(arrays[0])))


@pytest.mark.parametrize("march", ["native", "x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_every_family_and_level_makes_the_same_right_values(host_compiler, march, tmp_path):
    if os.uname().machine != "x86_64" and march != "native":
        pytest.skip("the levels are of x86-64")
    made = compile_shared(LANES, tmp_path / "lanes.so", compiler=host_compiler, march=march)
    assert made.path.read_bytes()[:4] == b"\x7fELF"
    if lacking := missing_features(march):
        pytest.skip(f"compiled, not run: this processor lacks {', '.join(lacking)}")
    library = ctypes.CDLL(str(made.path))
    x = np.random.default_rng(1).normal(size=6400).astype(np.float32)
    total = np.empty(1, np.float32)
    library.sums.restype = None
    library.sums(
        ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(total.ctypes.data), ctypes.c_longlong(6400)
    )
    assert total[0] == lane_sum(x)
    # v2 has no instruction for it: the library's function stands in, and rounds once as well.
    for name, dtype, bits, least in (("fmas", "f8", 53, -1074), ("fmafs", "f4", 24, -149)):
        a, b, c = fma_cases(np.dtype(dtype))
        out = np.empty_like(a)
        call(getattr(library, name), a, b, c, out)
        exact = [
            rounded(Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r)), bits, least)
            for p, q, r in zip(a, b, c, strict=True)
        ]
        np.testing.assert_array_equal(out, np.array(exact, dtype))
    # and where it is not written it must not happen
    a, b, c = fma_cases(np.dtype("f4"))
    out = np.empty_like(a)
    call(library.axpy, a, b, c, out)
    np.testing.assert_array_equal(out, a * b + c)


def test_the_result_says_what_was_done(host_compiler, tmp_path):
    place = tmp_path / "deep place"
    place.mkdir()
    made = compile_shared(TWO, place / "two.so", compiler=host_compiler, march="native")
    assert sorted(p.name for p in place.iterdir()) == ["two.cpp", "two.so"]
    assert (made.path, made.source) == (place / "two.so", place / "two.cpp")
    assert made.source.read_text() == TWO
    assert made.log == ""
    assert 0 < made.seconds < 100
    assert made.command[: len(host_compiler.command)] == host_compiler.command
    assert "./two.cpp" in made.command


def test_the_bytes_do_not_depend_on_the_place(host_compiler, tmp_path):
    made = []
    for name in ("one", "two/three"):
        place = tmp_path / name
        place.mkdir(parents=True)
        (place / "part.hpp").write_text(f"{EXPORT} const char* file() {{ return __FILE__; }}\n")
        made.append(
            compile_shared(
                '#include "part.hpp"\n'
                + LANES
                + f"{EXPORT} const char* me() {{ return __FILE__; }}",
                place / "lanes.so",
                compiler=host_compiler,
                march="native",
            ).path.read_bytes()
        )
    assert made[0] == made[1]
    assert str(tmp_path).encode() not in made[0]


def test_include_directories_and_extra_arguments_are_used(host_compiler, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("inc").mkdir()
    Path("inc/part.hpp").write_text("#define PART 40\n")
    text = f'#include "part.hpp"\n{EXPORT} int sum() {{ return PART + REST; }}'
    made = compile_shared(
        text,
        Path("sum.so"),
        compiler=host_compiler,
        march="native",
        include_dirs=[Path("inc")],
        extra=["-DREST=2"],
    )
    assert ctypes.CDLL(str(made.path.absolute())).sum() == 42


def test_c_sources_are_compiled_as_c(host_compiler, tmp_path):
    text = (
        "#include <pthread.h>\n"
        "static void *work(void *p) { *(int *)p = _Generic(1, int: 5, default: 6); return 0; }\n"
        '__attribute__((visibility("default"))) int run(void) {\n'
        "  int class = 0; pthread_t t;\n"
        "  if (pthread_create(&t, 0, work, &class)) return -1;\n"
        "  pthread_join(t, 0); return class;\n}\n"
    )
    made = compile_shared(
        text,
        tmp_path / "pool.so",
        compiler=host_compiler,
        march="native",
        language="c",
        extra=["-pthread"],
    )
    assert made.source.name == "pool.c"
    assert ctypes.CDLL(str(made.path)).run() == 5


def test_a_function_of_the_compilers_runtime_is_linked_in(host_compiler, tmp_path):
    """For zig this is the second attempt: the first leaves its runtime library out."""
    text = f"{EXPORT} long f(long a, long b, long c) {{ return (long)((__int128)a * b / c); }}"
    made = compile_shared(text, tmp_path / "f.so", compiler=host_compiler, march="native")
    function = ctypes.CDLL(str(made.path)).f
    function.argtypes = [ctypes.c_long] * 3
    function.restype = ctypes.c_long
    assert function(1 << 62, 6, 8) == 3 << 60
    assert made.log == ""


def test_an_error_in_the_source_shows_the_compilers_own_words(host_compiler, tmp_path):
    text = "int f(int x) {\n    return y;\n}\n"
    with pytest.raises(CompileError) as caught:
        compile_shared(text, tmp_path / "bad.so", compiler=host_compiler, march="native")
    error = caught.value
    assert error.message.startswith(
        f"{host_compiler.label} failed on bad.cpp with status 1: bad.cpp "
    )
    assert "bad.cpp line 2, column 12: " in error.message
    assert "error: " in error.log
    assert "return y;" in error.log
    assert error.log in str(error)
    assert error.hint == f"the source is kept in {tmp_path}/bad.cpp"
    # The source stays to be looked at; nothing else does.
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "cache") == ["bad.cpp"]


def test_a_function_that_is_nowhere_is_an_error_of_the_link(host_compiler, tmp_path):
    text = f'extern "C" int nowhere(int);\n{EXPORT} int g(int x) {{ return nowhere(x); }}'
    with pytest.raises(CompileError, match="nowhere"):
        compile_shared(text, tmp_path / "g.so", compiler=host_compiler, march="native")
    assert not (tmp_path / "g.so").exists()


def test_a_march_that_the_compiler_does_not_know(host_compiler, tmp_path):
    with pytest.raises(CompileError) as caught:
        compile_shared(TWO, tmp_path / "two.so", compiler=host_compiler, march="bogus")
    assert caught.value.hint == (
        "KERNELMILL_MARCH names an instruction set that the compiler does not know; try native"
    )


def test_many_errors_are_cut(gcc, tmp_path):
    text = "".join(f"int f{i}() {{ return y; }}\n" for i in range(500))
    with pytest.raises(CompileError) as caught:
        compile_shared(text, tmp_path / "bad.so", compiler=gcc, march="native")
    lines = caught.value.log.splitlines()
    assert len(lines) == 101
    assert lines[-1].endswith("not shown]")


def fails(tmp_path, body, *, timeout=None):
    out = tmp_path / "k.so"
    with pytest.raises(CompileError) as caught:
        compile_shared(TWO, out, compiler=stand_in(tmp_path, body), march="native", timeout=timeout)
    assert not out.exists()
    left = sorted(p.name for p in tmp_path.iterdir() if p.name != "cache")
    assert left == ["fake++", "k.cpp"]
    return caught.value


def test_a_compiler_that_hangs(tmp_path):
    pid = tmp_path / "cache"  # not looked at by `fails`
    start = time.monotonic()
    for limit in (0.5, 5, 50):  # a busy machine may not have begun after half a second
        pid.write_text("")
        error = fails(tmp_path, f"echo begun; sleep 300 & echo $! > {pid}; wait", timeout=limit)
        if numbers(pid):
            break
    assert time.monotonic() - start < 200  # the compiler would have slept for 300 s
    assert str(error) == (
        f"fake++ 99.1.0 did not finish k.cpp within the limit of {limit} s\n\n"
        "hint: a larger limit, in seconds, can be set in KERNELMILL_CXX_TIMEOUT\n\nbegun"
    )
    wait_for(lambda: not is_running(*numbers(pid)))


def test_the_limit_is_a_setting(tmp_path):
    with override(cxx_timeout=0.25):
        assert "within the limit of 0.25 s" in fails(tmp_path, "exec sleep 300").message


def test_a_compiler_that_fails_with_garbage(tmp_path):
    error = fails(tmp_path, r"printf '\033[2J\377\000\n'; exit 3")
    assert str(error) == (
        "fake++ 99.1.0 failed on k.cpp with status 3\n\n"
        f"hint: the source is kept in {tmp_path}/k.cpp\n\n\ufffd[2J\ufffd\ufffd"
    )


def test_a_compiler_that_makes_no_file(tmp_path):
    error = fails(tmp_path, "echo fine")
    assert str(error) == (
        "fake++ 99.1.0 reported success on k.cpp but made no file\n\n"
        "hint: another compiler can be named in KERNELMILL_CXX\n\nfine"
    )


def test_a_compiler_that_makes_no_library(tmp_path):
    body = 'while [ "$1" != -o ]; do shift; done; echo "#!/bin/sh" > "$2"'
    error = fails(tmp_path, body)
    assert error.message == (
        "fake++ 99.1.0 reported success on k.cpp but what it made is not a shared library: "
        r"it begins with b'#!/b', not with b'\x7fELF'"
    )


def test_a_compiler_that_makes_a_directory(tmp_path):
    error = fails(tmp_path, 'while [ "$1" != -o ]; do shift; done; mkdir "$2"')
    assert "reported success on k.cpp but made no file" in error.message


def test_a_compiler_that_is_killed(tmp_path):
    error = fails(tmp_path, "echo at work; kill -SEGV $$")
    assert str(error) == (
        "fake++ 99.1.0 was killed by signal 11 (SIGSEGV) while it compiled k.cpp\n\n"
        "hint: memory may have run out; another compiler can be named in KERNELMILL_CXX\n\nat work"
    )


def test_a_compiler_that_prints_a_gigabyte(tmp_path):
    error = fails(tmp_path, "head -c 1000000000 /dev/zero | tr '\\0' 'x' >&2")
    assert error.message == "fake++ 99.1.0 was stopped: it had printed 16 MiB of messages on k.cpp"
    assert len(error.log) < 1000


@pytest.mark.parametrize(
    ("mode", "content", "reason"),
    [
        (0o644, b"#!/bin/sh\n", "Permission denied"),
        (0o755, b"\x00\x01garbage", "Exec format error"),
        (0o755, b"#!/no/such/shell\n", "No such file or directory"),
        (None, b"", "No such file or directory"),
    ],
)
def test_a_compiler_that_cannot_be_started(mode, content, reason, tmp_path):
    path = tmp_path / "fake++"
    if mode is not None:
        path.write_bytes(content)
        path.chmod(mode)
    compiler = HostCompiler("gcc", (str(path),), "99.1.0", "t", "i")
    with pytest.raises(ToolchainError) as caught:
        compile_shared(TWO, tmp_path / "k.so", compiler=compiler, march="native")
    assert str(caught.value) == (
        f"cannot run the compiler {path}: {reason}\n\n"
        "hint: another compiler can be named in KERNELMILL_CXX"
    )


def test_a_place_that_cannot_be_written(gcc, tmp_path):
    with pytest.raises(CompileError) as caught:
        compile_shared(TWO, tmp_path / "none" / "k.so", compiler=gcc, march="native")
    assert caught.value.message == (
        f"cannot write {tmp_path}/none/k.cpp to compile it: No such file or directory"
    )


def test_a_failure_leaves_the_library_that_was_there(gcc, tmp_path):
    made = compile_shared(TWO, tmp_path / "k.so", compiler=gcc, march="native")
    before = made.path.read_bytes()
    with pytest.raises(CompileError):
        compile_shared("nonsense", tmp_path / "k.so", compiler=gcc, march="native")
    assert made.path.read_bytes() == before


def test_variables_of_the_caller_do_not_reach_the_compiler(gcc, tmp_path, monkeypatch):
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "part.hpp").write_text("#define PART 1\n")
    monkeypatch.setenv("CPATH", str(trap))
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", str(trap))
    with pytest.raises(CompileError, match=r"part\.hpp"):
        compile_shared('#include "part.hpp"', tmp_path / "k.so", compiler=gcc, march="native")


def test_temporary_files_stay_beside_the_library(tmp_path):
    body = 'echo "$TMPDIR"; exit 1'
    error = fails(tmp_path, body)
    assert error.log.startswith(f"{tmp_path}/.build-")


# ------------------------------------------------------------------------- several at once


def sources(tmp_path, count):
    return [
        CompileRequest(f"{EXPORT} int f() {{ return {i}; }}", tmp_path / f"f{i}.so")
        for i in range(count)
    ]


def test_several_come_back_in_order(host_compiler, tmp_path):
    made = compile_many(sources(tmp_path, 4), compiler=host_compiler, march="native", jobs=2)
    assert [ctypes.CDLL(str(m.path)).f() for m in made] == [0, 1, 2, 3]
    assert [m.path.name for m in made] == ["f0.so", "f1.so", "f2.so", "f3.so"]


def test_several_run_at_the_same_time(tmp_path):
    """Each waits for the other one's sign, so one after the other would never end."""
    body = (
        'while [ "$1" != -o ]; do shift; done; touch "seen-$(basename $2)"\n'
        "while [ ! -e seen-f0.so ] || [ ! -e seen-f1.so ]; do sleep 0.02; done\n"
        "printf '\\177ELF' > \"$2\""
    )
    compiler = stand_in(tmp_path, body)
    made = compile_many(
        sources(tmp_path, 2), compiler=compiler, march="native", jobs=2, timeout=600
    )
    assert len(made) == 2


def test_the_first_failure_stops_the_others(tmp_path):
    pid = tmp_path / "pid"
    body = (
        'while [ "$1" != -o ]; do shift; done\n'
        f'case "$2" in *f0.so) echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 300;; esac\n'
        f"while [ ! -e {pid} ]; do sleep 0.02; done; echo broken; exit 1"
    )
    start = time.monotonic()
    with pytest.raises(CompileError, match=r"failed on f1\.cpp with status 1"):
        compile_many(
            sources(tmp_path, 3), compiler=stand_in(tmp_path, body), march="native", jobs=2
        )
    assert time.monotonic() - start < 200  # the other one would have slept for 300 s
    assert not is_running(int(pid.read_text()))
    assert sorted(p.suffix for p in tmp_path.iterdir() if p.suffix == ".so") == []


def test_keyboard_interrupt_stops_all(tmp_path):
    body = 'while [ "$1" != -o ]; do shift; done; echo $$ > "pid-$(basename $2)"; exec sleep 300'
    compiler = stand_in(tmp_path, body)
    pids = [tmp_path / "pid-f0.so", tmp_path / "pid-f1.so"]
    started = interrupted_when(lambda: numbers(*pids), inside="compile_many")
    with pytest.raises(KeyboardInterrupt), started:
        compile_many(sources(tmp_path, 2), compiler=compiler, march="native", jobs=2)
    assert not any(is_running(p) for p in numbers(*pids))
