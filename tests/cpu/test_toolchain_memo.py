"""What is remembered of a compiler: used when it holds, ignored when it could be false."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time

import pytest

from kernelmill.config import get_config, override
from kernelmill.toolchain import (
    find_host_compiler,
    memo,
    toolchain_identity,
)
from toolchain_stand_ins import forbid_processes, memo_of, only, script

pytest_plugins = ["toolchain_fixtures"]
pytestmark = pytest.mark.usefixtures("own_settings")


def test_the_warm_path_starts_no_process_and_hardly_more_than_reads_the_memo(
    host_compiler, monkeypatch
):
    forbid_processes(monkeypatch)
    memos = list((get_config().cache_dir / "toolchain").glob("*.json"))
    took, read = [], []
    with override(cxx=" ".join(host_compiler.command)):
        for _ in range(50):
            start = time.perf_counter()
            found = find_host_compiler()
            toolchain_identity(found, "native")
            took.append(time.perf_counter() - start)
            assert found == host_compiler
            start = time.perf_counter()
            assert [json.loads(path.read_text()) for path in memos]
            read.append(time.perf_counter() - start)
    assert min(took) < 50 * min(read)  # 10 on a quiet machine


def test_a_new_process_reads_the_memo_and_never_imports_subprocess(gcc):
    text = (
        "import sys, time, numpy\n"
        "import kernelmill.toolchain as t\n"
        "begun = time.process_time(); c = t.find_host_compiler()\n"
        "t.toolchain_identity(c, 'native'); took = (time.process_time() - begun) / begun\n"
        "late = [m for m in ('subprocess', 'concurrent.futures', 'tempfile') if m in sys.modules]\n"
        "print(c.identity, late, took)"
    )
    environment = dict(os.environ, KERNELMILL_CACHE_DIR=str(get_config().cache_dir))
    environment |= {"KERNELMILL_CXX": "g++", "PYTHONPATH": "src:" + ":".join(sys.path)}
    took = []
    while len(took) < 5 and min(took, default=1) > 0.05:
        out = subprocess.run(
            [sys.executable, "-c", text],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        identity, late, share = out.split()
        assert (identity, late) == (gcc.identity, "[]")
        took.append(float(share))
    assert min(took) <= 0.05  # of what starting Python and importing NumPy take: a hundredth


@pytest.fixture
def asked(gcc, monkeypatch):
    """Count how often a compiler is examined."""
    from kernelmill.toolchain import identify

    calls = []
    real = identify.examine
    monkeypatch.setattr(identify, "examine", lambda *a: calls.append(a) or real(*a))
    with override(cxx="g++"):
        yield calls


def test_a_damaged_memo_is_ignored_and_made_anew(gcc, asked):
    path = memo_of(get_config().cache_dir)
    good = path.read_bytes()
    rng = random.Random(1)
    broken = [b"", b"{}", b"[]", b"null", b"[" * 60_000, b"\xff\xfe", good[:-1], good * 2]
    for _ in range(12):
        place = rng.randrange(len(good))
        changed = bytearray(good)
        changed[place] ^= 1 << rng.randrange(7)
        broken.append(bytes(changed))
    for count, data in enumerate(broken):
        path.write_bytes(data)
        assert find_host_compiler() == gcc
        assert len(asked) == count + 1, data[:200]
        assert path.read_bytes() == good


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"kind": "gcc", "version": "1", "target": "t", "parts": []},
        {"kind": "msvc", "version": "1", "target": "t", "parts": [["/", 1, 1]]},
        {"kind": "gcc", "version": 1, "target": "t", "parts": [["/", 1, 1]]},
        {"kind": "gcc", "version": "1" * 5000, "target": "t", "parts": [["/", 1, 1]]},
        {"kind": "gcc", "version": "1", "target": "t", "parts": [["/no/such", 1, 1]]},
        {"kind": "gcc", "version": "1", "target": "t", "parts": [["/", "1", 1]]},
        {"kind": "gcc", "version": "1", "target": "t", "parts": "/"},
        {"rejection": 7},
        {"rejection": "it says so in the memo"},
    ],
)
def test_a_sealed_memo_with_wrong_facts_is_ignored(facts, gcc, asked):
    path = memo_of(get_config().cache_dir)
    memo.remember(path.parent, path.stem, facts)
    assert find_host_compiler() == gcc
    assert len(asked) == 1


def test_a_memo_that_others_could_have_written_is_ignored(gcc, asked, tmp_path):
    path = memo_of(get_config().cache_dir)
    good = path.read_bytes()
    facts = json.loads(good)["facts"] | {"version": "0.0"}
    memo.remember(tmp_path / "elsewhere", path.stem, facts)
    planted = tmp_path / "elsewhere" / path.name

    def as_link():
        path.symlink_to(planted)

    def as_pipe():
        os.mkfifo(path)

    def as_directory():
        path.mkdir()

    def writable_by_all():
        path.write_bytes(planted.read_bytes())
        path.chmod(0o666)

    for count, plant in enumerate((as_link, as_pipe, writable_by_all, as_directory)):
        path.unlink()
        plant()
        assert find_host_compiler() == gcc
        assert len(asked) == count + 1


def test_without_a_writable_cache_the_compiler_is_asked_each_time(gcc, asked, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with override(cache_dir=blocked / "cache"):
        assert find_host_compiler() == gcc
        assert find_host_compiler() == gcc
    assert len(asked) == 2


def test_an_old_refusal_is_not_believed(gcc, tmp_path, monkeypatch):
    binaries, log = tmp_path / "bin", tmp_path / "log"
    binaries.mkdir()
    script(binaries / "c++", f"echo x >> {log}; echo broken; exit 1")
    script(binaries / "g++", f"PATH='{os.environ['PATH']}' exec {gcc.command[0]} \"$@\"")
    only(monkeypatch, binaries)
    for _ in range(3):
        find_host_compiler()
    assert log.read_text() == "x\n"
    for path in (get_config().cache_dir / "toolchain").glob("*.json"):
        os.utime(path, (time.time() - 4000,) * 2)
    find_host_compiler()
    assert log.read_text() == "x\nx\n"


def test_a_memo_comes_back_as_it_was_and_only_under_its_key(tmp_path):
    facts = {"text": "ä\n\u2028", "number": 1 << 60, "list": [["/a", 1, 2]]}
    key = memo.memo_key("a", 1)
    memo.remember(tmp_path, key, facts)
    assert memo.recall(tmp_path, key) == facts
    other = memo.memo_key("a", 2)
    shutil.copy(tmp_path / f"{key}.json", tmp_path / f"{other}.json")
    assert memo.recall(tmp_path, other) is None
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_what_is_made_on_disk_is_for_this_user_alone(gcc, tmp_path):
    before = os.umask(0)
    try:
        with override(cxx="g++", cache_dir=tmp_path / "open"):
            find_host_compiler()
    finally:
        os.umask(before)
    made = [tmp_path / "open", *(tmp_path / "open").rglob("*")]
    assert len(made) == 3
    assert [path.stat().st_mode & 0o077 for path in made] == [0, 0, 0]


def test_a_directory_that_others_can_write_in_is_not_used(gcc, asked, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "target").mkdir()
    for place in (shared, tmp_path / "link"):
        with override(cache_dir=place):
            assert find_host_compiler() == gcc
        assert list(place.iterdir()) == []
        with pytest.raises(PermissionError, match="not a directory of this user alone"):
            memo.own_directory(place / "zig")
    assert len(asked) == 2
