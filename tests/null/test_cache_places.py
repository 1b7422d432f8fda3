"""Where the cache keeps things when a disk is full or closed, or a directory is not ours alone."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import cache_driver
from cache_driver import CAP, bundle, key, whole
from kernelmill.cache import Cache
from kernelmill.cache.disk import PRIVATE, STORE
from kernelmill.errors import CacheWarning, ConfigError

HINT = "set KERNELMILL_CACHE_DIR to a directory of yours that only you can write to"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Make a directory of the test's own the system's temporary directory."""
    place = tmp_path / "system-tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def not_again(_):
    pytest.fail("built again")


# ------------------------------------------------------------- a disk that is full or closed


def private_notice(root, reason, place):
    return (
        f"compiled kernels cannot be kept in {root}: {reason}; this process keeps its own in "
        f"{place} until it ends; {HINT}"
    )


def namespaces():
    """Return a command prefix that may mount, or skip."""
    prefix = ["unshare", "--mount", "--map-root-user"]
    if not shutil.which("unshare") or not shutil.which("mount"):
        pytest.skip("needs unshare and mount")
    script = 'mount -t tmpfs -o size=200k none "$0"'
    with tempfile.TemporaryDirectory() as place:
        tried = subprocess.run(
            [*prefix, "sh", "-c", script, place], check=False, capture_output=True
        )
    if tried.returncode:
        pytest.skip("this machine does not let the test mount a small disk")
    return prefix


@pytest.mark.parametrize("options", ["size=200k", "nr_inodes=4", "ro"])
def test_a_real_disk_that_is_full_or_read_only(tmp_path, options):
    disk, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    disk.mkdir()
    elsewhere.mkdir()
    script = 'mount -t tmpfs -o "$0" none "$1" && shift && exec "$@"'
    prefix = (*namespaces(), "sh", "-c", script, options, str(disk))
    answer = cache_driver.run("full", disk / "cache", prefix=prefix, TMPDIR=str(elsewhere))
    reason = {
        "size=200k": "no space left on device",
        "nr_inodes=4": f"no space left on device ({disk}/cache/{STORE}/locks)",
        "ro": f"read-only file system ({disk}/cache)",
    }[options]
    place = Path(answer["private"])
    assert place.parent == elsewhere
    assert answer["warnings"] == [private_notice(disk / "cache", reason, place)]
    assert (answer["right"], answer["again"]) == ([True, True], True)
    assert (answer["inside"], answer["left"]) == ([False, False], [])
    assert list(elsewhere.iterdir()) == [], "removed when the process ends"


def fail_below(monkeypatch, root, name, code):
    """Let the system call `os.name` fail with `code` for files below `root`."""
    real = getattr(os, name)

    def call(first, *arguments, **options):
        place = Path(f"/proc/self/fd/{first}").readlink() if type(first) is int else Path(first)
        if place.is_relative_to(root):
            raise OSError(code, os.strerror(code))
        return real(first, *arguments, **options)

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("name", ["write", "fsync", "rename"])
def test_a_write_that_fails_falls_back_and_says_so_once(
    tmp_path, monkeypatch, temporary, name, code
):
    root = tmp_path / "cache"
    cache = Cache(root, CAP)
    cache.get_or_build(key(0), lambda _: bundle(0))
    with monkeypatch.context() as patch:
        fail_below(patch, root / STORE / "tmp", name, code)
        with pytest.warns(CacheWarning) as caught:
            made = cache.get_or_build(key(1), lambda _: bundle(1))
        second = cache.get_or_build(key(2), lambda _: bundle(2))  # a warning would be an error
        for number, found in ((1, made), (2, second)):
            assert whole(found, number)
            assert whole(cache.get_or_build(key(number), not_again), number)
            assert found.images[0].path.is_relative_to(temporary)
    place = cache.info().private
    reason = os.strerror(code).lower()
    assert [str(w.message) for w in caught] == [private_notice(root, reason, place)]
    assert {warning.filename for warning in caught} == {__file__}
    assert whole(cache.get(key(0)), 0), "what is there is still served"
    assert Cache(root, CAP).get(key(1)) is None
    assert cache_driver.leftovers(root) == []


def test_a_build_is_not_done_twice_when_only_the_writing_fails(tmp_path, monkeypatch, temporary):
    root, built = tmp_path / "cache", []

    def build(_):
        built.append(1)
        return bundle(1)

    fail_below(monkeypatch, root / STORE / "tmp", "fsync", errno.ENOSPC)
    with pytest.warns(CacheWarning):
        assert whole(Cache(root, CAP).get_or_build(key(1), build), 1)
    assert built == [1]
    assert len(list(temporary.iterdir())) == 2  # the private directory and its lock


def test_a_full_disk_is_tried_again_after_a_while(tmp_path, monkeypatch, temporary):
    root = tmp_path / "cache"
    cache = Cache(root, CAP)
    with monkeypatch.context() as patch:
        fail_below(patch, root, "fsync", errno.ENOSPC)
        with pytest.warns(CacheWarning):
            cache.get_or_build(key(1), lambda _: bundle(1))
    assert cache.get_or_build(key(2), lambda _: bundle(2)).images[0].path.is_relative_to(temporary)
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert cache.get_or_build(key(3), lambda _: bundle(3)).images[0].path.is_relative_to(root)


def test_a_home_that_cannot_be_written_falls_back_and_says_so_once(tmp_path, temporary):
    (tmp_path / "file").write_text("")
    root = tmp_path / "file" / "cache"
    cache = Cache(root, CAP)
    with pytest.warns(CacheWarning) as caught:
        first = cache.get_or_build(key(1), lambda _: bundle(1))
    assert whole(first, 1)
    assert whole(cache.get_or_build(key(2), lambda _: bundle(2)), 2)  # a warning would be an error
    place = cache.info().private
    reason = f"not a directory ({root})"
    assert [str(w.message) for w in caught] == [private_notice(root, reason, place)]
    assert place.parent == temporary
    assert place.name.startswith(PRIVATE)
    assert place.stat().st_mode & 0o777 == 0o700
    assert whole(cache.get(key(1)), 1)
    assert (cache.info().entries, cache.info().problem) == (0, reason)
    with pytest.raises(ConfigError) as error:
        cache.clear()
    assert str(error.value) == f"the cache in {root} was not cleared: {reason}\n\nhint: {HINT}"
    assert cache.get(key(1)) is None, "the private one is cleared all the same"


def test_nowhere_to_write_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    root = tmp_path / "file" / "cache"
    with pytest.raises(ConfigError) as caught:
        Cache(root, CAP).get_or_build(key(1), lambda _: bundle(1))
    text = str(caught.value)
    assert text.startswith(
        f"compiled kernels can be kept neither in {root}: not a directory ({root}); "
        f"nor in a temporary directory: not a directory ({tmp_path}/file/{PRIVATE}"
    )
    assert text.endswith(f"\n\nhint: {HINT}")


def test_the_private_directory_ends_with_the_process_and_is_not_a_childs(tmp_path):
    (tmp_path / "file").write_text("")
    place = tmp_path / "tmp"
    place.mkdir()
    answer = cache_driver.run("private", tmp_path / "file" / "c", "ends", TMPDIR=str(place))
    assert (answer["child"], answer["right"]) == (0, True)
    assert Path(answer["private"]).parent == place
    assert list(place.iterdir()) == []


def test_the_private_directory_of_a_killed_process_is_swept_by_the_next(tmp_path):
    (tmp_path / "file").write_text("")
    place = tmp_path / "tmp"
    place.mkdir()
    arguments = ("private", tmp_path / "file" / "c")
    killed = cache_driver.run(*arguments, "killed", killed=True, TMPDIR=str(place))
    assert {path.name for path in place.iterdir()} == {
        Path(killed["private"]).name,
        f"{Path(killed['private']).name}.lock",
    }
    cache_driver.run(*arguments, "ends", TMPDIR=str(place))
    assert list(place.iterdir()) == []


# ------------------------------------------------------------------- directories of others


def link(root):
    root.with_name("real").mkdir()
    root.symlink_to(root.with_name("real"))


def file(root):
    root.write_text("")


def writable_by_all(root):
    root.mkdir()
    root.chmod(0o777)


def writable_by_group(root):
    root.mkdir()
    root.chmod(0o775)


def foreign(root):
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    root.mkdir(mode=0o700)
    os.chown(root, 12345, 12345)


REFUSED = {
    link: "is a symbolic link",
    file: "is not a directory",
    writable_by_all: "can be written to by other users (mode 0777)",
    writable_by_group: "can be written to by other users (mode 0775)",
    foreign: f"belongs to user 12345, not to {os.geteuid()}",
}


@pytest.mark.parametrize("below", ["", STORE])
@pytest.mark.parametrize("make", REFUSED)
def test_a_directory_that_others_could_write_to_is_not_used(tmp_path, temporary, make, below):
    root = tmp_path / "cache"
    refused = root / below
    if below:
        root.mkdir(mode=0o700)
    make(refused)
    # What others put there must not be loaded, however right it looks.
    Cache(tmp_path / "theirs", CAP).get_or_build(key(1), lambda _: bundle(1))
    if refused.is_dir():
        source = tmp_path / "theirs" / (STORE if below else "")
        shutil.copytree(source, refused, dirs_exist_ok=True, copy_function=shutil.copy)
        make_again = {writable_by_all: 0o777, writable_by_group: 0o775}.get(make)
        if make_again:
            refused.chmod(make_again)
    reason = f"{refused} {REFUSED[make]}"
    cache = Cache(root, CAP)
    assert cache.get(key(1)) is None
    with pytest.warns(CacheWarning) as caught:
        mine = cache.get_or_build(key(1), lambda _: bundle(2))
    assert mine.images[0].data == bundle(2).images[0].data
    assert mine.images[0].path.is_relative_to(temporary)
    place = cache.info().private
    assert [str(w.message) for w in caught] == [private_notice(root, reason, place)]
    assert (cache.info().problem, cache.info().entries) == (reason, 0)
    with pytest.raises(ConfigError) as error:
        cache.clear()
    assert str(error.value) == f"the cache in {root} was not cleared: {reason}\n\nhint: {HINT}"


def test_a_directory_of_another_user_is_not_used(tmp_path, temporary, monkeypatch):
    root = tmp_path / "cache"
    Cache(root, CAP).get_or_build(key(1), lambda _: bundle(1))
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    cache = Cache(root, CAP)
    assert cache.get(key(1)) is None
    assert cache.info().problem == f"{root} belongs to user {owner}, not to 4242"
    with pytest.warns(CacheWarning, match=f"{root} belongs to user {owner}, not to 4242"):
        cache.get_or_build(key(1), lambda _: bundle(1))


def test_a_link_above_the_cache_is_no_fault(tmp_path):
    (tmp_path / "big-disk").mkdir()
    (tmp_path / "dot-cache").symlink_to(tmp_path / "big-disk")
    cache = Cache(tmp_path / "dot-cache" / "kernelmill", CAP)
    assert whole(cache.get_or_build(key(1), lambda _: bundle(1)), 1)
    assert (tmp_path / "big-disk" / "kernelmill" / STORE).is_dir()


def test_importing_the_cache_makes_nothing(tmp_path):
    path = str(Path(cache_driver.__file__).parents[1] / "src")
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": path}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "x"), "TMPDIR": str(tmp_path)}
    code = "import kernelmill.cache as c; c.default_cache(); c.info(); c.clear()"
    subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, check=True)
    assert list(tmp_path.iterdir()) == []
