"""The cache: keys, hits and misses, the size cap, and where it keeps things."""

import ctypes
import doctest
import importlib
import math
import os
import shutil
import struct
import subprocess
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cache_driver
from cache_driver import CAP, bundle, key, whole
from kernelmill import cache as package
from kernelmill import config, events
from kernelmill.cache import Cache, CacheInfo, Image, Removed, default_cache, digest
from kernelmill.cache.disk import STORE
from kernelmill.errors import ArgumentError

BYTES = 65_536  # what `bundle()` occupies: 50,000 bytes, source, manifest and directory in blocks


def entries(root):
    """Return the names of the entries that are there."""
    return {path.name for path in (root / STORE / "entries").iterdir()}


# --------------------------------------------------------------------------------- digest

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters()),
    st.binary(),
)
parts = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.frozensets(scalars, max_size=4),
        st.dictionaries(st.text(max_size=5), inner, max_size=4),
    ),
    max_leaves=15,
)


def decode(data):
    """Read an encoding back; that it can be read proves that no two values share one."""
    tag, rest = data[:1], data[1:]
    if tag in b"nTF":
        return {b"n": None, b"T": True, b"F": False}[tag], rest
    if tag == b"f":
        return ("float", rest[:8]), rest[8:]
    size = struct.unpack("<Q", rest[:8])[0]
    body, rest = rest[8 : 8 + size], rest[8 + size :]
    assert len(body) == size
    if tag == b"i":
        return int.from_bytes(body, "little", signed=True), rest
    if tag == b"s":
        return body.decode("utf-8", "surrogatepass"), rest
    if tag == b"b":
        return ("bytes", body), rest
    members = []
    while body:
        member, body = decode(body)
        members.append(member)
    if tag == b"m":
        return {"map": dict(zip(members[::2], members[1::2], strict=True))}, rest
    return {b"t": ("tuple", members), b"e": ("set", members)}[tag], rest


def model(value):
    """Return what `decode` must give for `value`."""
    if type(value) is float:
        return ("float", struct.pack("<d", value))
    if type(value) is bytes:
        return ("bytes", value)
    if type(value) is tuple:
        return ("tuple", [model(item) for item in value])
    if type(value) is frozenset:
        return ("set", None)
    if type(value) is dict:
        return {"map": {name: model(item) for name, item in value.items()}}
    return value


def same(found, expected):
    """Compare, types included; of a set only that it is one."""
    if type(expected) is tuple and expected[0] == "set":
        return found[0] == "set"
    if type(expected) is tuple and expected[0] == "tuple":
        return found[0] == "tuple" and all(map(same, found[1], expected[1]))
    if type(expected) is dict:
        left, right = found["map"], expected["map"]
        return left.keys() == right.keys() and all(same(left[n], right[n]) for n in right)
    return type(found) is type(expected) and found == expected


@given(st.dictionaries(st.text(max_size=5), parts, max_size=4))
def test_an_encoding_can_be_read_back(value):
    module = importlib.import_module("kernelmill.cache.key")
    found, rest = decode(module._mapping(value, ""))
    assert rest == b""
    assert same(found, model(value))


@given(st.dictionaries(st.text("abcde", min_size=1, max_size=5), parts, max_size=5), st.randoms())
def test_the_order_of_parts_does_not_matter(value, random):
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert digest(**dict(shuffled)) == digest(**value)
    assert digest(inner=dict(shuffled)) == digest(inner=value)


def test_values_of_different_types_give_different_keys():
    values = [None, False, True, 0, 1, 0.0, -0.0, 1.0, math.nan, "", "1", b"", b"1", (), (0,), {}]
    values += [frozenset(), (1, 2), (2, 1), ((1,), 2), {"a": 1}, {"a": {}}, 256, -256, 2**64]
    keys = [digest(value=value) for value in values]
    assert len(set(keys)) == len(keys)
    assert digest(value=[1, 2]) == digest(value=(1, 2))
    assert digest(value={3, 1, 2}) == digest(value=frozenset([1, 2, 3]))
    assert digest() != digest(value=None)


def test_a_key_stays_the_same_from_release_to_release():
    assert digest(source="int f();", options=("-O3",), version=(12, 2), fast=True, scale=0.5) == (
        "8880d2d8a7729810a424eea0f00ceb68faed7769d9ee49cc09b752c0db83065a"
    )


class Named(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "place", "name"),
    [
        (object(), "x", "object"),
        ({"a": [1, 2 + 3j]}, "x['a'][1]", "complex"),
        (Named("f32"), "x", "Named"),
        ({(1, Named("k")): 1}, "x[(1, 'k')][1]", "Named"),
        ({frozenset([Named("m")])}, "x{}{}", "Named"),
    ],
)
def test_parts_of_other_types_are_refused(value, place, name):
    with pytest.raises(ArgumentError) as caught:
        digest(x=value)
    assert str(caught.value) == (
        f"digest part {place} is of type {name}; accepted: None, bool, int, float, str, bytes, "
        "tuple, list, frozenset, set, dict\n\n"
        "hint: turn it into one of these so that equal things give equal parts"
    )


# --------------------------------------------------------------------- hits, misses, builds


def test_a_build_is_kept_and_found(tmp_path):
    cache = Cache(tmp_path / "cache", CAP)
    assert cache.get(key(1)) is None
    assert not (tmp_path / "cache").exists(), "a look-up makes nothing"
    seen = []

    def build(directory):
        seen.append(directory)
        assert list(directory.iterdir()) == []
        (directory / "kernel.o").write_bytes(b"left behind")
        (directory / "sub").mkdir()
        return bundle(1)

    made = cache.get_or_build(key(1), build)
    assert whole(made, 1)
    assert made.digest
    assert not seen[0].exists()
    for again in (cache, Cache(str(tmp_path / "cache"), CAP)):
        assert whole(again.get(key(1)), 1)
        assert whole(again.get_or_build(key(1), lambda _: pytest.fail("built twice")), 1)
    assert cache_driver.leftovers(tmp_path / "cache") == []
    assert made.images[0].path.parent == tmp_path / "cache" / STORE / "entries" / key(1)


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []

    def record(name, real):
        def call(first, *arguments, **options):
            path = Path(f"/proc/self/fd/{first}").readlink() if type(first) is int else first
            calls.append((name, path.name))
            return real(first, *arguments, **options)

        return call

    for name in ("fsync", "rename"):
        monkeypatch.setattr(os, name, record(name, getattr(os, name)))
    Cache(tmp_path, CAP).get_or_build(key(1), lambda _: bundle(1))
    assert set(calls[:-1]) == {
        ("fsync", "image-0.so"),
        ("fsync", "source.cpp"),
        ("fsync", "manifest"),
        ("fsync", key(1)),
    }
    assert calls[-1] == ("rename", key(1))


def test_the_directories_are_for_the_user_alone(tmp_path):
    before = os.umask(0)
    try:
        cache = Cache(tmp_path / "new" / "cache", CAP)
        cache.get_or_build(key(1), lambda _: bundle(1))
    finally:
        os.umask(before)
    made = [tmp_path / "new" / "cache", *(tmp_path / "new" / "cache").rglob("*")]
    modes = {path: path.stat().st_mode & 0o777 for path in made}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_what_a_build_raises_passes_through_and_nothing_is_kept(tmp_path):
    class CompilerError(Exception):
        pass

    def fail(directory):
        (directory / "half.so").write_bytes(b"half")
        raise CompilerError

    cache = Cache(tmp_path, CAP)
    for _ in range(2):
        with pytest.raises(CompilerError):
            cache.get_or_build(key(1), fail)
    assert cache.get(key(1)) is None
    assert entries(tmp_path) == set()
    assert cache_driver.leftovers(tmp_path) == []
    assert whole(cache.get_or_build(key(1), lambda _: bundle(1)), 1)


def test_a_build_interrupted_by_the_user_leaves_nothing(tmp_path):
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Cache(tmp_path, CAP).get_or_build(key(1), interrupt)
    assert entries(tmp_path) == set()
    assert cache_driver.leftovers(tmp_path) == []


def test_a_bundle_beyond_the_format_is_the_builders_error(tmp_path):
    bad = package.Bundle(images=(Image("cpu", "s/o", b""),))
    with pytest.raises(ArgumentError, match="suffix 's/o'"):
        Cache(tmp_path, CAP).get_or_build(key(1), lambda _: bad)
    assert cache_driver.leftovers(tmp_path) == []


@pytest.mark.parametrize("bad", ["", "..", "a" * 63, "A" * 64, "a" * 64 + "\n", "../" + "a" * 61])
def test_a_key_that_is_none_is_refused(tmp_path, bad):
    cache = Cache(tmp_path, CAP)
    for call in (cache.get, lambda text: cache.get_or_build(text, lambda _: bundle())):
        with pytest.raises(ArgumentError) as caught:
            call(bad)
        assert caught.value.message == (
            f"{bad!r} is not the key of a cache entry; accepted: 64 lower-case hexadecimal digits"
        )
    assert list(tmp_path.iterdir()) == []


def test_builds_of_other_keys_may_nest(tmp_path):
    cache = Cache(tmp_path, CAP)

    def outer(_):
        assert whole(cache.get_or_build(key(2), lambda _: bundle(2)), 2)
        return bundle(1)

    assert whole(cache.get_or_build(key(1), outer), 1)
    assert whole(cache.get(key(2)), 2)


def test_hits_and_misses_are_events(tmp_path):
    cache = Cache(tmp_path, CAP)
    with events.listen() as seen:
        cache.get(key(1))
        cache.get_or_build(key(1), lambda _: bundle(1))
        cache.get(key(1))
    assert [(event.kind, event.name, event.bytes, event.reason) for event in seen] == [
        ("cache_miss", key(1), 0, "absent"),
        ("cache_miss", key(1), 0, "absent"),
        ("cache_hit", key(1), 50_000, ""),
    ]
    assert all(event.file == __file__ and event.seconds > 0 for event in seen)


# ---------------------------------------------------------------------------- the size cap


def test_the_least_recently_used_go_first(tmp_path):
    cache = Cache(tmp_path, 10 * BYTES, grace=0.0)
    for number in range(10):
        cache.get_or_build(key(number), lambda _, n=number: bundle(n))
    assert entries(tmp_path) == {key(number) for number in range(10)}
    assert cache.get(key(0)) is not None  # used: 1 is the oldest now
    cache.get_or_build(key(10), lambda _: bundle(10))
    assert entries(tmp_path) == {key(0), *(key(number) for number in range(3, 11))}
    assert cache.info().bytes == 9 * BYTES
    assert cache_driver.leftovers(tmp_path) == []


def test_the_entry_just_built_stays(tmp_path):
    for cap in (0, 1, BYTES - 1):
        cache = Cache(tmp_path / str(cap), cap, grace=0.0)
        for number in range(3):
            made = cache.get_or_build(key(number), lambda _, n=number: bundle(n))
            assert whole(made, number)
            assert entries(tmp_path / str(cap)) == {key(number)}


def test_what_was_used_a_moment_ago_stays(tmp_path):
    cache = Cache(tmp_path, BYTES, grace=60.0)
    for number in range(4):
        cache.get_or_build(key(number), lambda _, n=number: bundle(n))
    old = time.time_ns() - 61 * 10**9
    for number in (1, 2):
        os.utime(tmp_path / STORE / "entries" / key(number), ns=(old, old))
    fresh = Cache(tmp_path, BYTES, grace=60.0)
    fresh.get_or_build(key(4), lambda _: bundle(4))
    assert entries(tmp_path) == {key(0), key(3), key(4)}


def test_the_sum_of_sizes_is_kept_and_mended(tmp_path):
    usage = tmp_path / STORE / "usage"
    cache = Cache(tmp_path, 100 * BYTES)
    for number in range(3):
        cache.get_or_build(key(number), lambda _, n=number: bundle(n))
        assert int(usage.read_text()) == (number + 1) * BYTES == cache.info().bytes
    for wrong in ("", "x", "-5", "9" * 30):
        usage.write_text(wrong)
        cache.get_or_build(key(wrong), lambda _: bundle(1))
        assert int(usage.read_text().split()[0]) == cache.info().bytes
    usage.write_text(str(1000 * BYTES))  # too much: seen when the cap seems to be reached
    cache.get_or_build(key(50), lambda _: bundle(50))
    assert int(usage.read_text()) == cache.info().bytes == 8 * BYTES


def test_a_library_that_is_loaded_outlives_its_entry(tmp_path):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")

    def build(directory):
        (directory / "a.cpp").write_text('extern "C" int f(int x) { return 3 * x + 1; }\n')
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-o", "a.so", "a.cpp"], cwd=directory, check=True
        )
        return package.Bundle(images=(Image("cpu", "so", (directory / "a.so").read_bytes()),))

    cache = Cache(tmp_path / "cache", 0, grace=0.0)
    path = cache.get_or_build(key(1), build).images[0].path
    library = ctypes.CDLL(str(path))
    assert library.f(5) == 16
    cache.get_or_build(key(2), lambda _: bundle(2))
    assert not path.exists()
    assert library.f(7) == 22
    again = ctypes.CDLL(str(cache.get_or_build(key(1), build).images[0].path))
    assert again.f(1) == library.f(1) == 4


# ----------------------------------------------------------------------------- info, clear


def test_info_of_nothing_makes_nothing(tmp_path):
    root = tmp_path / "cache"
    assert Cache(root, 5).info() == CacheInfo(
        root=root,
        entries=0,
        bytes=0,
        max_bytes=5,
        oldest=None,
        newest=None,
        problem="",
        private=None,
    )
    assert Cache(root, 5).clear() == Removed(0, 0, 0)
    assert not root.exists()


def test_info_and_clear(tmp_path):
    before = time.time()
    cache = Cache(tmp_path, CAP)
    (tmp_path / "calibration.json").write_text("{}")
    for number in range(3):
        cache.get_or_build(key(number), lambda _, n=number: bundle(n))
    info = cache.info()
    assert (info.entries, info.bytes, info.problem) == (3, 3 * BYTES, "")
    # Clocks of files may be behind by some milliseconds.
    assert before - 1 < info.oldest <= info.newest < time.time() + 1
    dead = tmp_path / STORE / "tmp" / "0123"
    dead.mkdir()
    dead.with_name("0123.lock").touch()
    assert cache.clear() == Removed(entries=3, bytes=3 * BYTES, leftovers=1)
    assert entries(tmp_path) == set()
    assert cache_driver.leftovers(tmp_path) == []
    assert (tmp_path / "calibration.json").exists(), "only what is ours"
    assert cache.clear() == Removed(0, 0, 0)
    assert whole(cache.get_or_build(key(1), lambda _: bundle(1)), 1)
    assert (tmp_path / STORE / "usage").read_text().strip() == str(BYTES)


def test_the_default_cache_follows_the_settings(tmp_path):
    with config.override(cache_dir=tmp_path / "a", cache_size="1M", cxx_timeout=7.0):
        first = default_cache()
        assert (first.root, first.max_bytes) == (tmp_path / "a", 1 << 20)
        assert default_cache() is first
        first.get_or_build(key(1), lambda _: bundle(1))
        assert package.info().entries == 1
        assert package.clear().entries == 1
        assert package.info().entries == 0
        with config.override(cache_dir=tmp_path / "b"):
            assert default_cache().root == tmp_path / "b"
        assert default_cache() is first


def test_a_warm_look_up_takes_little_more_than_reading_the_files(tmp_path):
    Cache(tmp_path, CAP).get_or_build(key(1), lambda _: bundle(1))
    cache = Cache(tmp_path, CAP)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    times, reads = [], []
    for _ in range(100):
        start = time.perf_counter()
        found = cache.get(key(1))
        times.append(time.perf_counter() - start)
        assert found is not None
        start = time.perf_counter()
        assert all(path.read_bytes() for path in files)
        reads.append(time.perf_counter() - start)
    assert min(times) < 20 * min(reads)  # 2.5 on a quiet machine


def test_the_first_look_up_of_a_process_takes_a_fraction_of_its_start(tmp_path):
    Cache(tmp_path, CAP).get_or_build(key(1), lambda _: bundle(1))
    shares = []
    while len(shares) < 5 and min(shares, default=1) > 0.05:
        answer = cache_driver.run("first", tmp_path)
        assert answer["found"]
        shares.append(answer["seconds"] / answer["start"])
    assert min(shares) < 0.05  # less than a hundredth on a quiet machine


def test_the_examples_run(tmp_path):
    with config.override(cache_dir=tmp_path), warnings.catch_warnings():
        for name in ("kernelmill.cache", "kernelmill.cache.disk", "kernelmill.cache.key"):
            result = doctest.testmod(importlib.import_module(name))
            assert (result.failed, result.attempted > 0) == (0, True)
        page = Path(__file__).parents[2] / "docs" / "explanation" / "cache.md"
        assert doctest.testfile(str(page), module_relative=False).failed == 0
