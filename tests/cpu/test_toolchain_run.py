"""One command run in bounds; processor, flags and the words of compilers."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from kernelmill.errors import ConfigError
from kernelmill.toolchain import (
    Cpu,
    Diagnostic,
    compile_flags,
    link_flags,
    missing_features,
    parse_log,
)
from kernelmill.toolchain.cpu import read_cpu
from kernelmill.toolchain.diagnostics import bound_log, hint_for, missing_runtime, summarise
from kernelmill.toolchain.run import clean_environment, run
from toolchain_stand_ins import interrupted_when, is_running, numbers, wait_for

pytest_plugins = ["toolchain_fixtures"]
pytestmark = pytest.mark.usefixtures("own_settings")

# ------------------------------------------------------------------------------------- run


def test_run_reports_status_output_and_command():
    result = run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=600)
    assert (result.outcome, result.returncode, result.ok) == ("exited", 3, False)
    assert sorted(result.output.split()) == ["err", "out"]
    assert result.command[0] == "sh"
    assert result.dropped == 0
    assert run(["true"], timeout=600).ok


def test_no_shell_reads_the_arguments(tmp_path):
    assert run(["echo", "$(touch x); *"], timeout=600, cwd=tmp_path).output == "$(touch x); *\n"
    assert list(tmp_path.iterdir()) == []


def test_the_environment_is_short_and_in_the_c_locale(monkeypatch):
    for name in ("CPATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX", "LC_MESSAGES", "LANGUAGE", "CXXFLAGS"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("CCACHE_DIR", "/c")
    monkeypatch.setenv("LC_ALL", "fr_FR.UTF-8")
    seen = dict(line.split("=", 1) for line in run(["env"], timeout=600).output.splitlines())
    for name in ("CPATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX", "LC_MESSAGES", "LANGUAGE", "CXXFLAGS"):
        assert name not in seen
    assert (seen["LC_ALL"], seen["CCACHE_DIR"]) == ("C", "/c")
    assert clean_environment(TMPDIR="/t")["TMPDIR"] == "/t"


def test_a_timeout_kills_the_process_and_its_children(tmp_path):
    pids = tmp_path / "pids"
    body = f"echo half; sleep 300 & echo $! > {pids}; wait"
    start = time.monotonic()
    for limit in (0.5, 5, 50):  # a busy machine may not have begun after half a second
        pids.write_text("")
        result = run(["sh", "-c", body], timeout=limit)
        assert result.outcome == "timeout"
        if numbers(pids):
            break
    assert time.monotonic() - start < 200  # the children would have slept for 300 s
    assert result.output == "half\n"
    wait_for(lambda: not is_running(*numbers(pids)))


def test_a_child_that_lives_on_does_not_keep_the_caller_waiting(tmp_path):
    pids = tmp_path / "pids"
    start = time.monotonic()
    result = run(["sh", "-c", f"sleep 300 & echo $! > {pids}; echo done"], timeout=600)
    assert time.monotonic() - start < 200
    assert (result.outcome, result.returncode, result.output) == ("exited", 0, "done\n")
    wait_for(lambda: not is_running(int(pids.read_text())))


def test_a_process_that_closes_its_output_is_still_waited_for():
    result = run(["sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 4"], timeout=600)
    assert (result.outcome, result.returncode) == ("exited", 4)
    assert run(["sh", "-c", "exec >&- 2>&-; sleep 30"], timeout=0.3).outcome == "timeout"


def test_endless_output_is_stopped_and_only_its_head_is_kept():
    result = run(["yes"], timeout=600)
    assert result.outcome == "flooded"
    assert len(result.output) == 256 << 10
    assert 16 << 20 < len(result.output) + result.dropped < 17 << 20


def test_much_output_that_ends_is_no_fault():
    result = run(["sh", "-c", "head -c 4000000 /dev/zero; exit 2"], timeout=600)
    assert (result.outcome, result.returncode) == ("exited", 2)
    assert len(result.output) + result.dropped == 4_000_000


def test_keyboard_interrupt_kills_the_process(tmp_path):
    pid = tmp_path / "pid"
    with pytest.raises(KeyboardInterrupt), interrupted_when(lambda: numbers(pid), inside="_follow"):
        run(["sh", "-c", f"echo $$ > {pid}; exec sleep 300"], timeout=600)
    assert not is_running(*numbers(pid))


def test_another_thread_can_cancel_a_run():
    cancel = threading.Event()
    timer = threading.Timer(0.2, cancel.set)
    timer.start()
    result = run(["sleep", "300"], timeout=600, cancel=cancel)
    timer.join()
    assert result.outcome == "cancelled"
    assert result.seconds < 200


def test_a_program_that_ignores_the_end_of_its_children():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        result = run(["sh", "-c", "echo done; exec >&- 2>&-; sleep 0.1"], timeout=600)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (result.outcome, result.output) == ("exited", "done\n")
    assert result.seconds < 300


def test_what_cannot_be_started_is_an_oserror(tmp_path):
    (tmp_path / "text").write_text("no program")
    with pytest.raises(PermissionError):
        run([str(tmp_path / "text")], timeout=1)
    with pytest.raises(FileNotFoundError):
        run([str(tmp_path / "absent")], timeout=1)


# ------------------------------------------------------------------------------------- cpu

BLOCK = """processor\t: {n}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 207
model name\t: Some Xeon
stepping\t: 2
cpu MHz\t\t: {mhz}
flags\t\t: {flags}

"""


def cpu_of(tmp_path, text):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    return read_cpu(path)


def test_the_processor_is_its_model_and_features_not_its_clock(tmp_path):
    one = cpu_of(tmp_path, BLOCK.format(n=0, mhz=2000, flags="fma avx2"))
    assert one.model == "Some Xeon"
    assert one.features == {"fma", "avx2"}
    same = cpu_of(tmp_path, BLOCK.format(n=7, mhz=3512.5, flags="avx2 fma"))
    assert same.digest == one.digest
    more = cpu_of(tmp_path, BLOCK.format(n=0, mhz=2000, flags="fma avx2 avx512f"))
    assert more.digest != one.digest
    model = BLOCK.replace(": 207", ": 143").format(n=0, mhz=2000, flags="fma avx2")
    assert cpu_of(tmp_path, model).digest != one.digest


def test_reading_stops_after_the_first_block(tmp_path):
    first = BLOCK.format(n=0, mhz=1, flags="fma")
    two = cpu_of(tmp_path, first + BLOCK.format(n=1, mhz=1, flags="other"))
    assert two == cpu_of(tmp_path, first)
    # A pipe whose writer never closes: a reader that wants more than the first block hangs.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(read_cpu(pipe)), daemon=True)
    reader.start()
    with pipe.open("w") as writer:
        writer.write(first)
        writer.flush()
        reader.join(600)
        assert not reader.is_alive()
    assert found == [two]


def test_arm_words_and_an_absent_file(tmp_path):
    arm = cpu_of(tmp_path, "processor : 0\nFeatures : fp asimd\nCPU implementer : 0x41\n\n")
    assert arm.features == {"fp", "asimd"}
    nothing = read_cpu(tmp_path / "none")
    assert (nothing.features, len(nothing.digest)) == (frozenset(), 64)
    assert nothing.digest != arm.digest


def test_missing_features_name_what_a_level_needs(tmp_path):
    v2 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
    cpu = cpu_of(tmp_path, BLOCK.format(n=0, mhz=1, flags=v2))
    assert missing_features("x86-64-v2", cpu) == ()
    v3 = missing_features("x86-64-v3", cpu)
    assert v3 == ("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
    assert set(missing_features("x86-64-v4", cpu)) - set(v3) == {
        "avx512bw",
        "avx512cd",
        "avx512dq",
        "avx512f",
        "avx512vl",
    }
    assert missing_features("native", cpu) == missing_features("haswell", cpu) == ()


# ----------------------------------------------------------------------------------- flags

WIDE_CPU = Cpu("x86_64", "m", frozenset({"avx512f"}), "d")
NARROW_CPU = Cpu("x86_64", "m", frozenset({"avx2"}), "d")
FIXED = {
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-shared",
    "-fPIC",
}


@pytest.mark.parametrize(
    ("kind", "march", "cpu", "more"),
    [
        ("gcc", "native", WIDE_CPU, {"-march=native", "-mprefer-vector-width=512", "-pipe"}),
        ("gcc", "native", NARROW_CPU, {"-march=native", "-pipe"}),
        ("gcc", "x86-64-v3", WIDE_CPU, {"-march=x86-64-v3", "-pipe"}),
        ("clang", "x86-64-v4", NARROW_CPU, {"-march=x86-64-v4", "-mprefer-vector-width=512"}),
        (
            "zig",
            "x86-64-v2",
            WIDE_CPU,
            {
                "-march=x86_64_v2",
                "-fno-sanitize=undefined",
                "-Wno-unused-command-line-argument",
            },
        ),
        ("gcc", "native", Cpu("aarch64", "m", frozenset(), "d"), {"-mcpu=native", "-pipe"}),
    ],
)
def test_flags_are_the_fixed_ones_and_those_of_the_family(kind, march, cpu, more):
    flags = compile_flags(kind, march, cpu=cpu)
    assert set(flags) == FIXED | more
    assert len(flags) == len(set(flags))


def test_c_has_its_own_standard_and_no_flags_of_cxx():
    flags = compile_flags("gcc", "native", language="c")
    assert "-std=c11" in flags
    assert not {"-std=c++17", "-fno-rtti", "-fno-exceptions"} & set(flags)


def test_link_flags_of_zig_leave_out_its_runtime_first():
    assert "-rtlib=none" in link_flags("zig")
    assert "-rtlib=none" not in link_flags("zig", lean=False)
    assert link_flags("gcc") == link_flags("gcc", lean=False)


def test_a_march_that_is_no_name_is_refused():
    with pytest.raises(ConfigError) as caught:
        compile_flags("gcc", "native -fplugin=x")
    assert str(caught.value) == (
        "march='native -fplugin=x' cannot be used; accepted: letters, digits and any of _.+-\n\n"
        "hint: set KERNELMILL_MARCH to a name such as native or x86-64-v3"
    )


# ----------------------------------------------------------------------------- diagnostics

LOG = """./k.cpp: In function 'int f(int)':
./k.cpp:1:22: warning: unused
./k.cpp:3:14: error: 'y' was not declared in this scope
    3 | int f(int x){ return y; }
/usr/include/a.h:7:1: fatal error: no such thing
"""


def test_messages_are_read_as_data():
    assert parse_log(LOG) == (
        Diagnostic("k.cpp", 1, 22, "warning", "unused"),
        Diagnostic("k.cpp", 3, 14, "error", "'y' was not declared in this scope"),
        Diagnostic("/usr/include/a.h", 7, 1, "fatal error", "no such thing"),
    )
    assert summarise(LOG) == "k.cpp line 3, column 14: 'y' was not declared in this scope"


@pytest.mark.parametrize(
    ("log", "summary"),
    [
        ("g++: fatal error: no input files", "no input files"),
        (
            "/usr/bin/ld: cannot find -lm: No such file",
            "/usr/bin/ld: cannot find -lm: No such file",
        ),
        ("k.cpp:(.text+0x1): undefined reference to `zz'", None),
        ("ld.lld: error: undefined symbol: zz", "undefined symbol: zz"),
        ("all is well", ""),
    ],
)
def test_errors_without_a_place_are_found_too(log, summary):
    assert summarise(log) == (log if summary is None else summary)


@pytest.mark.parametrize(
    ("log", "word"),
    [
        ("cc1plus: fatal error: error writing to k.s: No space left on device", "disk is full"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "memory ran out"),
        ("cc1plus: error: bad value ('bogus') for '-march=' switch", "KERNELMILL_MARCH"),
        ("error: unknown target CPU 'bogus'", "KERNELMILL_MARCH"),
        ("ld.lld: error: cannot open crti.o: No such file", "apt install g++"),
        ("/usr/bin/ld: cannot find -lm: No such file", "apt install g++"),
        ("g++: fatal error: cannot execute 'cc1plus': execvp: No such file", "apt install g++"),
        ("k.cpp:1:1: internal compiler error: Segmentation fault", "KERNELMILL_CXX"),
    ],
)
def test_known_failures_have_a_hint(log, word):
    assert word in hint_for(log)
    assert hint_for(LOG) == ""


def test_only_names_of_the_runtime_call_for_it():
    assert missing_runtime("ld.lld: error: undefined symbol: __divti3")
    assert missing_runtime("k.cpp:(.text+0x1): undefined reference to `__divti3'")
    assert not missing_runtime("ld.lld: error: undefined symbol: zz")
    assert not missing_runtime("ld.lld: error: undefined symbol: _Z2zzi")
    assert not missing_runtime("k.cpp:1:1: error: __divti3 was not declared")


def test_a_log_is_cut_to_what_can_be_shown():
    shown = bound_log("\n".join(str(i) for i in range(250)), dropped=7).splitlines()
    assert shown[:100] == [str(i) for i in range(100)]
    assert shown[100:] == ["[150 more lines and 7 more bytes not shown]"]
    assert bound_log("x" * 1000) == "x" * 400 + "[600 more characters]"
    assert bound_log("a\tb\x1b[31m\x00") == "a b\ufffd[31m\ufffd"
    assert bound_log("") == ""
    listing = [f" cpu{i}" for i in range(150)] + ["error: unknown CPU"] + ["info"] * 100
    shown = bound_log("\n".join(listing)).splitlines()
    assert shown[:20] == listing[:20]
    assert shown[20:23] == ["[130 lines not shown]", "error: unknown CPU", "info"]
    assert shown[-1] == "[21 more lines not shown]"
    assert len(shown) == 102
