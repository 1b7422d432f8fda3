"""The host compiler: found, identified, remembered, and the wheel where there is no other."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelmill.config import get_config, override
from kernelmill.errors import ToolchainError
from kernelmill.toolchain import (
    Cpu,
    HostCompiler,
    compile_flags,
    compile_shared,
    find_host_compiler,
    host,
    host_cpu,
    link_flags,
    survey_host_compilers,
    toolchain_identity,
)
from toolchain_stand_ins import EXPORT, LANES, TWO, ZIG, forbid_processes, memo_of, only, script

pytest_plugins = ["toolchain_fixtures"]
pytestmark = pytest.mark.usefixtures("own_settings")

# ----------------------------------------------------------------------- find and identify


def test_the_first_on_path_is_taken_and_described(gcc, tmp_path, monkeypatch):
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "g++").symlink_to(gcc.command[0])
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    with override(cxx="g++"):
        found = find_host_compiler()
    assert found.command == (str(binaries / "g++"),)
    assert (found.kind, found.label) == ("gcc", f"g++ {found.version}")
    assert str(found) == f"g++ {found.version} (gcc, {found.target}): {binaries}/g++"
    said = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=True)
    assert found.version == said.stdout.strip()
    said = subprocess.run(["g++", "-dumpmachine"], capture_output=True, text=True, check=True)
    assert found.target == said.stdout.strip()
    # A link to the same program is the same compiler: what they make is shared.
    assert found.identity == gcc.identity


def test_each_family_is_recognised(host_compiler):
    name = Path(host_compiler.command[0]).name
    assert host_compiler.kind == {"g++": "gcc", "clang++": "clang", "zig": "zig"}[name]
    assert host_compiler.version[0].isdigit()
    assert host_compiler.target.startswith(os.uname().machine)
    assert os.uname().release.partition("-")[0] not in host_compiler.target
    assert len(host_compiler.identity) == 64


def test_the_search_goes_past_what_does_not_work(gcc, tmp_path, monkeypatch):
    real = gcc.command[0]
    path = os.environ["PATH"]
    binaries = tmp_path / "bin"
    binaries.mkdir()
    script(binaries / "c++", "echo 'k.cpp:1:1: error: I am broken'; exit 1")
    script(binaries / "g++", "echo hello", answers=False)
    script(binaries / "clang++", f"PATH='{path}' exec {real} \"$@\"", answers=False)
    only(monkeypatch, binaries)
    found = find_host_compiler()
    assert found.command == (str(binaries / "clang++"),)
    assert found.kind == "gcc"  # by what it says of itself, not by its name
    # The refusals are remembered too: the next search starts nothing.
    forbid_processes(monkeypatch)
    assert find_host_compiler() == found


def test_nothing_found_lists_every_candidate_and_the_reason(tmp_path, monkeypatch):
    binaries = tmp_path / "bin"
    binaries.mkdir()
    script(binaries / "c++", "echo 'k.cpp:1:1: error: I am broken'; exit 1")
    script(binaries / "g++", "echo hello", answers=False)
    only(monkeypatch, binaries)
    for _ in range(2):  # from the compilers, then from what was remembered
        with pytest.raises(ToolchainError) as caught:
            find_host_compiler()
        assert str(caught.value) == (
            "no usable C++ compiler was found; tried:\n"
            f"  c++: {binaries}/c++ cannot make a shared library: "
            "k.cpp line 1, column 1: I am broken\n"
            f"  g++: {binaries}/g++ -v names neither gcc nor clang: 'hello'\n"
            "  clang++: it is not on PATH\n"
            "  ziglang_that_is_not_there: the wheel is not installed\n\n"
            "hint: install a C++ compiler: `apt install g++` (Debian, Ubuntu), "
            "`dnf install gcc-c++` (Fedora), or, with no rights on the machine, "
            "`pip install kernelmill[zig]`"
        )


def test_a_compiler_that_is_mended_is_found_at_once(gcc, tmp_path, monkeypatch):
    """What it lacked is installed: its own file does not change, so the refusal is in a memo."""
    binaries, sign = tmp_path / "bin", tmp_path / "mended"
    binaries.mkdir()
    path, real = os.environ["PATH"], gcc.command[0]
    body = f"[ -e {sign} ] || {{ echo broken; exit 1; }}\nPATH='{path}' exec {real} \"$@\""
    script(binaries / "c++", body)
    only(monkeypatch, binaries)
    with pytest.raises(ToolchainError, match="cannot make a shared library"):
        find_host_compiler()
    sign.touch()
    assert find_host_compiler().version == "99.1.0"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("no-such-compiler", "it is not on PATH"),
        ("/no/such/c++", "there is no such file"),
        ("/no/such/c++ -m32", "there is no file /no/such/c++"),
        ("no-such-compiler g++", "no-such-compiler is not on PATH"),
        ("/etc/passwd", "it is not executable"),
        ("/usr", "it is a directory"),
        ("g++ '", "it is not a command: No closing quotation"),
    ],
)
def test_a_named_compiler_that_is_not_there(asked, reason):
    with override(cxx=asked), pytest.raises(ToolchainError) as caught:
        find_host_compiler()
    assert str(caught.value) == (
        f"KERNELMILL_CXX={asked!r} cannot be used: {reason}\n\n"
        "hint: name a working g++, clang++ or zig, or unset KERNELMILL_CXX to look for one"
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("exit 0", "{0} -v names neither gcc nor clang: it printed nothing"),
        (
            r"printf '\001\377\033[2J'",
            "{0} -v names neither gcc nor clang: '\ufffd\ufffd\ufffd[2J'",
        ),
        ("echo no; exit 7", "{0} -v ended with status 7: 'no'"),
        ("kill -SEGV $$", "{0} -v ended with a signal: it printed nothing"),
        ("exec yes", "{0} -v does not stop printing"),
        ("exec sleep 300", "{0} -v did not answer within 0.5 s"),
    ],
)
def test_a_named_compiler_that_gives_no_answer(body, reason, tmp_path, monkeypatch):
    from kernelmill.toolchain import identify

    monkeypatch.setattr(identify, "_ANSWER_SECONDS", 0.5)
    fake = script(tmp_path / "fake++", body, answers=False)
    with override(cxx=str(fake)), pytest.raises(ToolchainError) as caught:
        find_host_compiler()
    assert caught.value.message == (
        f"KERNELMILL_CXX={str(fake)!r} cannot be used: {reason.format(fake)}"
    )


def test_a_program_of_an_unknown_format_is_named(tmp_path):
    fake = tmp_path / "fake++"
    fake.write_bytes(b"\x00\x01garbage")
    fake.chmod(0o755)
    with override(cxx=str(fake)), pytest.raises(ToolchainError, match="Exec format error"):
        find_host_compiler()


def test_a_compiler_for_another_machine_is_refused(tmp_path):
    # An ELF header of 32-bit little-endian ARM.
    header = r"\177ELF\001\001\001" + r"\000" * 9 + r"\003\000\050\000"
    body = f'while [ "$1" != -o ]; do shift; done; printf \'{header}\' > "$2"'
    fake = script(tmp_path / "fake++", body)
    with override(cxx=str(fake)), pytest.raises(ToolchainError) as caught:
        find_host_compiler()
    assert f"{fake} makes code for another machine (x86_64-linux-gnu)" in caught.value.message


def test_a_path_with_blanks_is_one_program(gcc, tmp_path):
    place = tmp_path / "my tools"
    place.mkdir()
    (place / "g++").symlink_to(gcc.command[0])
    with override(cxx=str(place / "g++")):
        assert find_host_compiler().command == (str(place / "g++"),)


def test_arguments_of_a_named_compiler_stay_with_it(gcc, tmp_path):
    with override(cxx="g++ -DNUMBER=7"):
        found = find_host_compiler()
    assert found.command == (gcc.command[0], "-DNUMBER=7")
    assert found.identity != gcc.identity
    text = f"{EXPORT} int number() {{ return NUMBER; }}"
    made = compile_shared(text, tmp_path / "n.so", compiler=found, march="native")
    assert ctypes.CDLL(str(made.path)).number() == 7


def test_the_compiler_behind_a_wrapper_is_part_of_the_identity(gcc, tmp_path, monkeypatch):
    """ccache and shell scripts stay the same file when the compiler behind them is replaced."""
    inner = tmp_path / "cc1plus"
    inner.write_text("one")
    wrapper = tmp_path / "wrap++"
    asked = f'case "$*" in -print-prog-name=*) echo {inner}; exit 0;; esac'
    script(wrapper, f'{asked}\nexec {gcc.command[0]} "$@"', answers=False)
    with override(cxx=str(wrapper)):
        first = find_host_compiler()
        assert first.version == gcc.version
        with monkeypatch.context() as patch:
            forbid_processes(patch)
            assert find_host_compiler() == first
        inner.write_text("another")
        assert find_host_compiler().identity != first.identity


def test_ccache_in_front_names_two_programs(gcc, tmp_path):
    cache = script(tmp_path / "ccache", 'exec "$@"', answers=False)
    with override(cxx=f"{cache} g++"):
        found = find_host_compiler()
    assert found.command == (str(cache), "g++")
    assert found.label == f"ccache g++ {gcc.version}"
    made = compile_shared(TWO, tmp_path / "two.so", compiler=found, march="native")
    assert ctypes.CDLL(str(made.path)).two() == 2


def test_a_replaced_compiler_is_asked_again(gcc, tmp_path):
    fake = script(tmp_path / "fake++", f'exec {gcc.command[0]} "$@"')
    with override(cxx=str(fake)):
        first = find_host_compiler()
        text = fake.read_text().replace("99.1.0", "99.2.0")
        fake.write_text(text)
        stat = fake.stat()
        os.utime(fake, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))  # the size is the same
        second = find_host_compiler()
    assert (first.version, second.version) == ("99.1.0", "99.2.0")
    assert first.identity != second.identity


def test_a_survey_shows_each_compiler_once_and_each_refusal(gcc, tmp_path, monkeypatch):
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("c++", "g++"):
        (binaries / name).symlink_to(gcc.command[0])
    script(binaries / "clang++", "exit 7", answers=False)
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    monkeypatch.setattr(host, "_WHEEL", "ziglang_that_is_not_there")
    first, *refused = survey_host_compilers()
    assert (first.command, first.identity) == ((str(binaries / "c++"),), gcc.identity)
    assert [str(refusal) for refusal in refused] == [
        f"clang++: {binaries}/clang++ -v ended with status 7: it printed nothing",
        "ziglang_that_is_not_there: the wheel is not installed",
    ]


# -------------------------------------------------------------------------------- identity


def test_the_identity_changes_with_all_that_makes_a_binary(gcc, monkeypatch):
    base = toolchain_identity(gcc, "native")
    assert base == toolchain_identity(gcc, "native")
    others = {
        toolchain_identity(gcc, "x86-64-v3"),
        toolchain_identity(gcc, "native", language="c"),
        toolchain_identity(
            HostCompiler("gcc", gcc.command, gcc.version, gcc.target, "x"), "native"
        ),
        toolchain_identity(
            HostCompiler("gcc", gcc.command, "1", gcc.target, gcc.identity), "native"
        ),
    }
    v3 = toolchain_identity(gcc, "x86-64-v3")
    stranger = Cpu(host_cpu().machine, "other", host_cpu().features, "other")
    monkeypatch.setattr(host, "host_cpu", lambda: stranger)
    others.add(toolchain_identity(gcc, "native"))
    assert len(others | {base}) == 6
    # A named instruction set means the same on every processor.
    assert toolchain_identity(gcc, "x86-64-v3") == v3


# ---------------------------------------------------------------------- no system compiler

FALLBACK = f"""
import ctypes, sys, time
from pathlib import Path
from kernelmill.toolchain import compile_shared, find_host_compiler, survey_host_compilers
start = time.monotonic()
compiler = find_host_compiler()
assert compiler.kind == "zig", compiler
assert "ziglang" not in sys.modules
text = '''{LANES}'''
made = compile_shared(text, Path(sys.argv[1]) / "k.so", compiler=compiler, march="native")
library = ctypes.CDLL(str(made.path))
x = (ctypes.c_float * 128)(*range(128)); out = ctypes.c_float()
library.sums(x, ctypes.byref(out), ctypes.c_longlong(128))
assert out.value == 127 * 64, out.value
print([str(s) for s in survey_host_compilers()][:3])
print(time.monotonic() - start)
"""


@pytest.mark.skipif(ZIG is None, reason="ziglang is not installed")
def test_with_no_system_compiler_the_wheel_serves(tmp_path):
    """An empty PATH and empty caches: nothing but the wheel is left to compile with."""
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {
        "PATH": str(empty),
        "HOME": str(tmp_path),
        "KERNELMILL_CACHE_DIR": str(tmp_path / "fresh"),
        "PYTHONPATH": ":".join(p for p in ["src", *sys.path] if p),
    }
    done = subprocess.run(
        [sys.executable, "-c", FALLBACK, str(tmp_path)],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    refusals, seconds = done.stdout.splitlines()
    assert refusals == str([f"{n}: it is not on PATH" for n in ("c++", "g++", "clang++")])
    assert float(seconds) < 60  # 0.3 s on a quiet machine: zig's runtime library is not built
    assert (tmp_path / "fresh" / "zig").is_dir()
    assert not (tmp_path / ".cache").exists()


@pytest.mark.skipif(ZIG is None, reason="ziglang is not installed")
@pytest.mark.parametrize("asked", ["zig", "zig c++", "zig cc"])
def test_zig_can_be_asked_for_by_name(asked):
    with override(cxx=asked):
        found = find_host_compiler()
    assert (found.kind, found.command[1:]) == ("zig", ("cc",))
    # The `cc` on PATH is another program, and no part of this one.
    (row,) = json.loads(memo_of(get_config().cache_dir).read_bytes())["facts"]["parts"]
    assert row[0] == os.path.realpath(found.command[0])
    assert found.label.startswith("zig 0.")


@pytest.mark.skipif(ZIG is None, reason="ziglang is not installed")
def test_zig_works_where_the_cache_cannot_serve(tmp_path):
    blocked, shared = tmp_path / "file", tmp_path / "shared"
    blocked.write_text("")
    shared.mkdir()
    shared.chmod(0o777)
    for place in (blocked / "cache", shared):
        with override(cxx="zig", cache_dir=place):
            made = compile_shared(
                TWO, tmp_path / "two.so", compiler=find_host_compiler(), march="native"
            )
        assert ctypes.CDLL(str(made.path)).two() == 2
    assert list(shared.iterdir()) == []


def test_a_program_that_only_calls_itself_zig(tmp_path):
    fake = script(tmp_path / "zig", "echo 1.0-beta of something", answers=False)
    with override(cxx=str(fake)), pytest.raises(ToolchainError) as caught:
        find_host_compiler()
    assert f"{fake} is not zig: '1.0-beta of something'" in caught.value.message


def test_a_small_compile_takes_hardly_more_than_the_compiler(gcc, tmp_path):
    flags = compile_flags(gcc.kind, "native"), link_flags(gcc.kind)
    took, alone = [], []
    for i in range(5):
        text = f"{LANES}// {i}\n"
        start = time.perf_counter()
        compile_shared(text, tmp_path / "k.so", compiler=gcc, march="native")
        took.append(time.perf_counter() - start)
        (tmp_path / "alone.cpp").write_text(text)
        command = [*gcc.command, *flags[0], "alone.cpp", *flags[1], "-o", "alone.so"]
        start = time.perf_counter()
        subprocess.run(command, cwd=tmp_path, check=True)
        alone.append(time.perf_counter() - start)
    assert min(took) <= 2 * min(alone)  # 1.1 on a quiet machine
