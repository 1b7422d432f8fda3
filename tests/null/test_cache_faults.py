"""The cache when processes race or die, and when an entry is not what was written."""

import errno
import fcntl
import os
import shutil
import threading
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cache_driver
from cache_driver import CAP, bundle, key, whole
from kernelmill.cache import Cache
from kernelmill.cache.disk import STORE
from kernelmill.cache.lock import Workspace, hold, sweep
from kernelmill.errors import CacheWarning


def not_again(_):
    pytest.fail("built again")


# ----------------------------------------------------------------------------------- races


def test_sixteen_processes_that_ask_at_once_build_once(tmp_path):
    assert cache_driver.run("race", tmp_path / "r", 16, "flock") == {
        "failed": 0,
        "built": 1,
        "right": 16,
        "wrong": 0,
        "leftovers": [],
    }


def test_without_locks_a_race_is_harmless(tmp_path):
    answer = cache_driver.run("race", tmp_path / "r", 16, "none")
    assert answer.pop("built") >= 1
    assert answer == {"failed": 0, "right": 16, "wrong": 0, "leftovers": []}


def test_processes_that_evict_each_others_entries_do_no_harm(tmp_path):
    answer = cache_driver.run("crowd", tmp_path / "c", 6, 60)
    assert answer["bytes"] <= 10 * 60_000
    assert (answer["failed"], answer["leftovers"]) == (0, [])


def test_threads_that_ask_at_once_build_once(tmp_path):
    cache = Cache(tmp_path, CAP)
    barrier = threading.Barrier(8)
    built, right = [], []

    def build(_):
        built.append(1)
        time.sleep(0.05)
        return bundle(1)

    def ask():
        barrier.wait()
        right.append(whole(cache.get_or_build(key(1), build), 1))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(built), right) == (1, [True] * 8)


def test_a_builder_that_hangs_is_waited_for_only_so_long(tmp_path):
    cache = Cache(tmp_path, CAP, lock_timeout=0.1)
    cache.get_or_build(key(0), lambda _: bundle(0))
    start = time.monotonic()
    with hold(tmp_path / STORE / "locks" / f"{key(1)}.lock", 1.0) as held:
        assert held
        assert whole(cache.get_or_build(key(1), lambda _: bundle(1)), 1)
        assert time.monotonic() - start >= 0.1  # and the other one holds on
    assert whole(cache.get(key(1)), 1)


def test_the_loser_of_a_race_takes_the_winners(tmp_path):
    """Without the lock, another process may rename its entry into place first."""
    cache, other = Cache(tmp_path, CAP), Cache(tmp_path, CAP, lock_timeout=0.0)

    def build(_):
        other.get_or_build(key(1), lambda _: bundle(1))
        return bundle(2)  # as if the compiler were not deterministic

    assert whole(cache.get_or_build(key(1), build), 1)
    assert whole(cache.get(key(1)), 1)
    assert cache_driver.leftovers(tmp_path) == []


# ---------------------------------------------------------------------------- sudden death


def test_death_at_any_system_call_of_a_write_leaves_all_or_nothing(tmp_path):
    answer = cache_driver.run("kill_points", tmp_path / "k")
    assert answer["points"] >= 20
    assert answer["killed"] == answer["points"] == answer["mended"]
    assert (answer["half"], answer["leftovers"]) == (0, [])
    assert answer["whole"] > 5
    assert answer["absent"] > 5


def test_death_at_random_times_leaves_all_or_nothing(tmp_path):
    answer = cache_driver.run("kill_times", tmp_path / "k", 20, 20)
    assert (answer["killed"], answer["half"], answer["leftovers"]) == (20, 0, [])
    assert answer["whole"] >= answer["finished"] > 5


def test_a_lock_ends_with_its_holder_even_if_a_child_has_its_descriptor(tmp_path):
    answer = cache_driver.run("inherited", tmp_path / "i")
    assert answer["held"] == [True, True]
    assert answer["seconds"] > 0.19  # it waited for the holder, who held on for 0.2 s


def test_sweep_spares_the_living(tmp_path):
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "file").write_text("x")
    (tmp_path / "dead.lock").touch()
    (tmp_path / "bare.lock").touch()
    (tmp_path / "young").mkdir()
    (tmp_path / "old").mkdir()
    day = time.time() - 90_000
    os.utime(tmp_path / "old", (day, day))
    with Workspace(tmp_path) as living:
        assert sweep(tmp_path) == 3
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            [living.path.name, f"{living.path.name}.lock", "young"]
        )
    assert [path.name for path in tmp_path.iterdir()] == ["young"]
    assert sweep(tmp_path / "absent") == 0


def test_a_lock_file_that_was_replaced_does_not_count(tmp_path):
    """Who waited for a lock whose file the holder then removed must not hold a nameless one."""
    path = tmp_path / "a.lock"
    got = []

    def wait():
        with hold(path, 600.0) as held:
            got.append(held and path.exists())

    with hold(path, 1.0):
        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.05)
    waiter.join()
    assert got == [True]
    assert not path.exists()


def test_where_files_cannot_be_locked_no_lock_file_stays(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with hold(tmp_path / "a.lock", 5.0) as held:
        assert not held
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------- changed entries


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_a_changed_entry_is_a_miss_with_a_warning_and_is_built_again(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("cache")
    cache = Cache(root, CAP)
    cache.get_or_build(key(1), lambda _: bundle(1))
    entry = root / STORE / "entries" / key(1)
    path = data.draw(st.sampled_from(sorted(entry.iterdir())))
    good = path.read_bytes()
    if data.draw(st.booleans()):
        bad = bytearray(good)
        bad[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    path.write_bytes(bad)
    with pytest.warns(CacheWarning) as caught:
        assert cache.get(key(1)) is None
    with pytest.warns(CacheWarning) as caught_again:
        assert whole(cache.get_or_build(key(1), lambda _: bundle(1)), 1)
    for warning in (*caught, *caught_again):
        assert str(warning.message).startswith(f"the cache entry {entry} was not loaded: ")
        assert warning.filename == __file__
    assert (len(caught), len(caught_again)) == (1, 1)
    assert whole(Cache(root, CAP).get(key(1)), 1)
    assert cache_driver.leftovers(root) == []
    shutil.rmtree(root)


def swapped_entry(entry):
    shutil.rmtree(entry)
    shutil.copytree(entry.with_name(key(2)), entry)


def swapped_image(entry):
    shutil.copy(entry.with_name(key(2)) / "image-0.so", entry)


def swapped_manifest(entry):
    shutil.copy(entry.with_name(key(2)) / "manifest", entry)


def file_for_entry(entry):
    shutil.rmtree(entry)
    entry.write_bytes(b"no directory")


def link_for_entry(entry):
    shutil.rmtree(entry)
    entry.symlink_to(entry.with_name(key(2)))


def missing_image(entry):
    (entry / "image-0.so").unlink()


CHANGES = {
    swapped_entry: f"the bundle was made for key {key(2)}, not for {key(1)}",
    swapped_image: "image-0.so does not have the sha256 in the manifest",
    swapped_manifest: f"the bundle was made for key {key(2)}, not for {key(1)}",
    file_for_entry: "not a directory ({entry})",
    link_for_entry: "not a directory ({entry})",
    missing_image: "image-0.so cannot be opened: No such file or directory",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_foreign_entry_is_a_miss_with_a_warning_and_is_built_again(tmp_path, change):
    cache = Cache(tmp_path, CAP)
    for number in (1, 2):
        cache.get_or_build(key(number), lambda _, n=number: bundle(n))
    entry = tmp_path / STORE / "entries" / key(1)
    change(entry)
    reason = CHANGES[change].format(entry=entry)
    with pytest.warns(CacheWarning) as caught:
        assert cache.get(key(1)) is None
    assert [str(w.message) for w in caught] == [f"the cache entry {entry} was not loaded: {reason}"]
    with pytest.warns(CacheWarning) as caught:
        assert whole(cache.get_or_build(key(1), lambda _: bundle(1)), 1)
    assert [str(w.message) for w in caught] == [f"the cache entry {entry} was not loaded: {reason}"]
    assert whole(cache.get(key(1)), 1)
    assert whole(cache.get(key(2)), 2), "the other one is untouched"
    assert cache_driver.leftovers(tmp_path) == []


def test_an_entry_that_is_gone_is_no_reason_to_warn(tmp_path):
    cache = Cache(tmp_path, CAP)
    cache.get_or_build(key(1), lambda _: bundle(1))
    shutil.rmtree(tmp_path / STORE)
    assert cache.get(key(1)) is None
    assert whole(cache.get_or_build(key(1), lambda _: bundle(1)), 1)


def test_an_entry_evicted_while_it_is_read_is_absent(tmp_path, monkeypatch):
    cache = Cache(tmp_path, CAP)
    path = cache.get_or_build(key(1), lambda _: bundle(1)).images[0].path
    real = os.open

    def evicting(name, *arguments, **options):
        if name == "image-0.so":
            shutil.rmtree(path.parent, ignore_errors=True)
        return real(name, *arguments, **options)

    monkeypatch.setattr(os, "open", evicting)
    assert cache.get(key(1)) is None  # a warning would be an error


def test_a_process_short_of_descriptors_does_not_condemn_the_entry(tmp_path, monkeypatch):
    cache = Cache(tmp_path, CAP)
    cache.get_or_build(key(1), lambda _: bundle(1))

    def short(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", short)
        with pytest.raises(OSError, match="Too many open files"):
            cache.get_or_build(key(1), not_again)
    assert whole(cache.get_or_build(key(1), not_again), 1)


def test_a_warning_made_an_exception_finds_the_entry_mended(tmp_path):
    cache = Cache(tmp_path, CAP)
    cache.get_or_build(key(1), lambda _: bundle(1)).images[0].path.write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CacheWarning):
            cache.get_or_build(key(1), lambda _: bundle(1))
    assert whole(cache.get(key(1)), 1)
    assert cache_driver.leftovers(tmp_path) == []
