"""Registries that fail, lie and break off, disks that fill, processes that die: nothing wrong gets in."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from hub_clients import clean, forget_kernels, publish, served  # noqa: F401 - fixtures
from kernel_packages import write_project
from kernelmill import hub
from kernelmill.config import get_config, override
from kernelmill.errors import (
    CacheWarning,
    IntegrityError,
    NotPublishedError,
    PackageError,
    RegistryError,
)
from kernelmill.package import registry_hub
from kernelmill.package.cache import HubCache, Source
from kernelmill.package.registry import File
from kernelmill.package.registry_hub import HubRegistry

BIG = bytes(range(251)) * 40


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(registry_hub, "_PAUSE", 0.001)
    import huggingface_hub.file_download as download

    monkeypatch.setattr(download.time, "sleep", lambda _: None)


@pytest.fixture
def there(served, tmp_path):  # noqa: F811
    return publish(served, write_project(tmp_path / "p", files={"big.bin": BIG}))


def blobs(tmp_path):
    home = tmp_path / "hf-cache/kernels--org--twice/blobs"
    return sorted(p.name for p in home.iterdir()) if home.is_dir() else []


def get():
    return hub.get_kernel("org/twice", version=1)


def nothing_wrong_is_kept(tmp_path):
    """Every content in the cache is what its name says."""
    home = tmp_path / "hf-cache/kernels--org--twice/blobs"
    from kernelmill.package.digest import file_hash, git_blob_id

    for path in home.iterdir() if home.is_dir() else []:
        if not path.name.endswith(".kernelmill"):
            assert path.name in {git_blob_id(path), file_hash(path).hex()}
    assert not hub.loaded()


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_a_moment_of_weakness_is_waited_for(served, there, status):  # noqa: F811
    failures = iter([status, status])

    def weak(_, answer):
        code = next(failures, None)
        if code is None:
            return answer
        from http import HTTPStatus

        from kernelmill.package.serve_answers import Problem

        return Problem(HTTPStatus(code), "weak").answer()

    served.faults["/refs"] = weak
    assert get().twice(1) == 2


@pytest.mark.parametrize("part", ["/overview", "/refs", "/tree/", "/resolve/"])
def test_a_registry_that_stays_broken_is_named(served, there, tmp_path, part):  # noqa: F811
    served.refusals[part] = 500
    with pytest.raises(RegistryError) as caught:
        get()
    assert "the registry answered 500" in str(caught.value)
    assert served.endpoint in str(caught.value)
    nothing_wrong_is_kept(tmp_path)
    served.refusals.clear()
    assert get().twice(1) == 2


def lying(body):
    """Send other bytes under the right headers."""

    def fault(_, answer):
        answer.body, answer.length = body, len(body)
        return answer

    return fault


def other_bytes(_, answer):
    body = b"".join(answer.chunks())
    answer.body = bytes(255 - b for b in body)
    return answer


def shorter(_, answer):
    body = b"".join(answer.chunks())[:-1]
    answer.body, answer.length = body, len(body)
    return answer


def longer(_, answer):
    body = b"".join(answer.chunks()) + b"x" * 10_000_000
    answer.body, answer.length = body, len(body)
    return answer


def wrong_etag(_, answer):
    answer.headers["ETag"] = '"' + "0" * 40 + '"'
    return answer


def html(_, answer):
    answer.body = b"<html>a proxy says: log in</html>"
    answer.length = len(answer.body)
    return answer


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (other_bytes, "its commit promises"),
        (shorter, "cannot be reached or broke off: OSError: Consistency check failed"),
        (longer, "sends more for build/torch-universal/big.bin than the 10,040 bytes"),
        (html, "Consistency check failed"),
    ],
)
def test_other_bytes_never_enter_the_cache(served, there, tmp_path, fault, text):  # noqa: F811
    served.faults["GET /kernels/org/twice/resolve/" + there + "/build/torch-universal/big.bin"] = (
        fault
    )
    with pytest.raises(PackageError) as caught:
        get()
    assert text in str(caught.value)
    nothing_wrong_is_kept(tmp_path)
    served.faults.clear()
    assert get().twice(1) == 2


def test_a_wrong_etag_decides_nothing(served, there, tmp_path):  # noqa: F811
    served.faults["/resolve/"] = wrong_etag
    with pytest.raises(IntegrityError, match="the registry says 0000"):
        HubRegistry(served.endpoint).read("org/twice", there, "build/torch-universal/_ops.py")
    served.faults.clear()
    served.faults["GET /kernels/org/twice/resolve/" + there] = wrong_etag
    assert get().twice(1) == 2  # contents are compared with the commit


@pytest.mark.parametrize("cut", [0, 1, 1000, 4096, 8192, 10_039])
def test_a_download_that_breaks_off_is_gone_on_from(served, there, monkeypatch, cut):  # noqa: F811
    """The connection is cut after so many bytes; the next request asks for the rest."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    asked = []

    def cutting(handler, answer):
        asked.append(handler.headers.get("Range"))
        if len(asked) > 3:
            return answer
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(answer.length))
        handler.end_headers()
        body = b"".join(answer.chunks())
        handler.wfile.write(body[: min(cut, len(body) - 1)])
        handler.wfile.flush()
        handler.connection.shutdown(2)
        handler.close_connection = True
        return None

    served.faults[f"/resolve/{there}/build/torch-universal/big.bin"] = cutting
    assert get().twice(1) == 2
    assert len(asked) == 4
    at = [int(r.removeprefix("bytes=").rstrip("-")) if r else 0 for r in asked]
    assert at == [min(turn * (cut // 1000 * 1000), 10_000) for turn in range(4)]


@pytest.mark.parametrize("have", [0, 1, 4095, 4096, 10_039, 10_040])
def test_what_a_killed_process_left_is_gone_on_from(served, there, tmp_path, have):  # noqa: F811
    cache = HubCache(tmp_path / "hf-cache")
    registry = HubRegistry(served.endpoint, token=False)
    big = next(f for f in cache.files("org/twice", there, registry) if f.path.endswith("big.bin"))
    place = cache.home("org/twice") / "blobs" / f"{big.key}.kernelmill"
    place.parent.mkdir(parents=True)
    place.write_bytes(BIG[:have])
    served.log.requests.clear()
    path = cache.fetch_file("org/twice", there, big, [registry])
    assert path.read_bytes() == BIG
    assert blobs(tmp_path) == [big.key]
    place.write_bytes(b"wrong" * 100)  # of something else: taken once more, from the beginning
    (cache.home("org/twice") / "blobs" / big.key).unlink()
    assert cache.fetch_file("org/twice", there, big, [registry]).read_bytes() == BIG


def test_an_answer_that_does_not_come_is_given_up(served, there, tmp_path, monkeypatch):  # noqa: F811
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1.0)
    stop = threading.Event()
    served.faults[f"/resolve/{there}/build/torch-universal/big.bin"] = lambda _, a: (
        stop.wait(600) and a
    )
    try:
        with pytest.raises(RegistryError, match="cannot be reached or broke off: ReadTimeout"):
            get()
    finally:
        stop.set()
    nothing_wrong_is_kept(tmp_path)


def test_a_mirror_helps_out_and_cannot_lie(served, there, tmp_path):  # noqa: F811
    """Listings come from the registry; what mirrors send is compared with them."""
    cache = HubCache(tmp_path / "hf-cache")
    good = HubRegistry(served.endpoint, token=False)
    file = next(f for f in good.files("org/twice", there) if f.path.endswith("data.bin"))

    class Liar:
        url = "http://liar"

        def fetch(self, repo_id, commit, file, target):
            target.write_bytes(b"\0" * file.size)

    class Absent:
        url = "http://absent"

        def fetch(self, *_):
            raise NotPublishedError("http://absent has nothing")

    path = cache.fetch_file("org/twice", there, file, [Absent(), Liar(), good])
    assert path.read_bytes() == b"\0\1\2"
    path.resolve().unlink()
    with pytest.raises(IntegrityError) as caught:
        cache.fetch_file("org/twice", there, file, [Absent(), Liar()])
    assert "could not be had from 2 registries:\n  http://absent has nothing\n  http://liar sent" in str(caught.value)  # fmt: skip
    assert blobs(tmp_path) == []


def test_a_full_disk_is_said_and_leaves_the_cache_whole(served, there, tmp_path, monkeypatch):  # noqa: F811
    import huggingface_hub.file_download as download

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path))

    with monkeypatch.context() as patched:
        patched.setattr(download, "http_get", full)
        with pytest.raises(OSError, match="No space left on device"):
            get()
    nothing_wrong_is_kept(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left on device"):
            get()
    nothing_wrong_is_kept(tmp_path)
    assert get().twice(1) == 2


PROCESS = """
import sys
from kernelmill.config import override
from kernelmill.package.cache import HubCache
from kernelmill.package.registry_hub import HubRegistry
endpoint, commit, root = sys.argv[1:]
cache, registry = HubCache(root), HubRegistry(endpoint, token=False)
sys.stdout.write("ready\\n"); sys.stdout.flush()
for file in cache.files("org/twice", commit, registry):
    cache.fetch_file("org/twice", commit, file, [registry])
sys.stdout.write("done\\n")
"""


def start(served, commit, tmp_path):  # noqa: F811
    command = [sys.executable, "-c", PROCESS, served.endpoint, commit, str(tmp_path / "hf-cache")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_where_files_cannot_be_locked_that_is_said_once(served, there, tmp_path, monkeypatch):  # noqa: F811
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.warns(CacheWarning) as said:
        assert hub.get_kernel("org/twice", version=1).twice(1) == 2
    place = get_config().hub_cache / ".locks" / "kernels--org--twice"
    text = "two processes that download at once may have to do it again (no locks available)"
    assert [str(one.message) for one in said] == [f"files in {place} cannot be locked: {text}"]


def test_two_processes_fill_one_cache_and_ask_for_nothing_twice(served, there, tmp_path):  # noqa: F811
    served.faults["/resolve/"] = lambda _, answer: time.sleep(0.02) or answer
    processes = [start(served, there, tmp_path) for _ in range(2)]
    for process in processes:
        out, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
        assert out.endswith("done\n")
    asked = [r for r in served.log.requests if "/resolve/" in r]
    assert len(asked) == len(set(asked)) == 6
    nothing_wrong_is_kept(tmp_path)


def test_a_process_killed_while_it_downloads_harms_nobody(served, there, tmp_path):  # noqa: F811
    begun, over = threading.Event(), threading.Event()

    def slow(handler, answer):
        body = b"".join(answer.chunks())
        handler.send_response(answer.status)
        handler.send_header("Content-Length", str(answer.length))
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(body[: len(body) // 2])
            handler.wfile.flush()
            begun.set()
            over.wait(600)
            handler.wfile.write(body[len(body) // 2 :])
        handler.close_connection = True

    served.faults[f"/resolve/{there}/build/torch-universal/big.bin"] = slow
    process = start(served, there, tmp_path)
    assert begun.wait(600)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    over.set()
    served.faults.clear()
    assert get().twice(1) == 2
    forget_kernels()
    nothing_wrong_is_kept(tmp_path)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("../../../../etc/evil", "is refused: it has the part '..'"),
        ("/etc/evil", "is refused: it is absolute"),
        ("build/torch-universal/a\\b", "has a backslash"),
        ("build/torch-universal/\u202eevil.py", "cannot be printed"),
    ],
)
def test_a_listing_that_would_write_elsewhere_is_refused(served, there, tmp_path, path, text):  # noqa: F811
    import json

    def hostile(_, answer):
        rows = json.loads(answer.body)
        rows.append({"type": "file", "oid": "0" * 40, "size": 1, "path": path})
        answer.body = json.dumps(rows).encode()
        answer.length = len(answer.body)
        return answer

    served.faults["/tree/"] = hostile
    with pytest.raises(IntegrityError, match=text):
        get()
    assert not (tmp_path / "hf-cache/kernels--org--twice/snapshots").exists()


def test_a_listing_made_to_fill_a_disk_is_refused(served, there, tmp_path):  # noqa: F811
    import json

    def bomb(_, answer):
        rows = json.loads(answer.body)
        for row in rows:
            if row["path"].endswith("big.bin"):
                row["size"] = row["lfs"]["size"] = 1 << 50
        answer.body = json.dumps(rows).encode()
        answer.length = len(answer.body)
        return answer

    served.faults["/tree/"] = bomb
    with pytest.raises(IntegrityError, match="its listing was made to fill a disk"):
        get()
    assert blobs(tmp_path) == []


def test_a_compressed_answer_that_unfolds_without_end_is_stopped(served, there, tmp_path):  # noqa: F811
    import gzip

    packed = gzip.compress(b"\0" * 200_000_000, 9)

    def bomb(handler, answer):
        answer.headers["Content-Encoding"] = "gzip"
        answer.body, answer.length = packed, len(packed)
        return answer

    served.faults[f"/resolve/{there}/build/torch-universal/big.bin"] = bomb
    with pytest.raises(IntegrityError, match="than the 10,040 bytes"):
        get()
    left = [p.stat().st_size for p in (tmp_path / "hf-cache/kernels--org--twice/blobs").iterdir()]
    assert max(left, default=0) <= 20_000_000


def test_small_files_are_read_up_to_their_limit(served, there):  # noqa: F811
    import gzip

    packed = gzip.compress(b"\0" * 100_000_000, 9)

    def bomb(_, answer):
        answer.headers["Content-Encoding"] = "gzip"
        answer.body, answer.length = packed, len(packed)
        return answer

    registry = HubRegistry(served.endpoint, token=False)
    served.faults["metadata.json"] = bomb
    with pytest.raises(RegistryError, match="has more than the 1,000,000 bytes accepted"):
        registry.read("org/twice", there, "build/torch-universal/metadata.json", limit=1_000_000)
    served.faults["metadata.json"] = other_bytes
    with pytest.raises(IntegrityError, match="the registry says"):
        registry.read("org/twice", there, "build/torch-universal/metadata.json")
    served.faults["big.bin"] = other_bytes
    with pytest.raises(IntegrityError, match="the registry says"):
        registry.read("org/twice", there, "build/torch-universal/big.bin")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"format_version": 1, "files": []}', b"\0\xff",
                                  b'{"format_version": 2, "files": {}}', b'{"format_version": 1, "files": {"a": {}}}'])  # fmt: skip
def test_a_listing_in_the_cache_that_is_torn_is_asked_for_again(served, there, tmp_path, body):  # noqa: F811
    get()
    forget_kernels()
    trees = tmp_path / "hf-cache/kernels--org--twice/trees"
    assert [path.name for path in trees.iterdir()] == [f"{there}.kernelmill.json"]
    for name in (f"{there}.json", f"{there}.kernelmill.json"):
        (trees / name).write_bytes(body)
    assert get().twice(1) == 2


@pytest.mark.parametrize("name", ["{}.json", "{}.kernelmill.json"])
def test_a_hostile_listing_in_the_cache_is_refused(served, there, tmp_path, name):  # noqa: F811
    place = tmp_path / "hf-cache/kernels--org--twice/trees" / name.format(there)
    place.parent.mkdir(parents=True)
    place.write_text('{"format_version": 1, "files": {"../x": {"size": 1, "blob_id": "%s"}}}' % ("0" * 40))  # fmt: skip
    with pytest.raises(IntegrityError, match=r"'../x' is refused"):
        get()


def test_references_and_records_that_are_torn_count_as_absent(tmp_path):
    cache = HubCache(tmp_path)
    cache.set_ref("org/x", "v1", "a" * 40)
    assert cache.refs("org/x") == {"v1": "a" * 40}
    for body in (b"", b"main", b"\xff", b"a" * 39, b"../../x"):
        (cache.home("org/x") / "refs/v1").write_bytes(body)
        assert cache.ref("org/x", "v1") is None
    cache.set_source("org/x", "a" * 40, Source("http://one", trusted=True))
    cache.set_source("org/x", "b" * 40, Source("http://two", trusted=None))
    assert cache.source("org/x", "a" * 40) == Source("http://one", trusted=True)
    assert cache.source("org/x", "c" * 40) is None
    for name in ("../v1", "/v1", "a//b"):
        with pytest.raises(IntegrityError):
            cache.set_ref("org/x", name, "a" * 40)
    with pytest.raises(PackageError, match="is no commit id"):
        cache.snapshot("org/x", "../..")
    with pytest.raises(PackageError):
        cache.home("../x")


def test_many_threads_note_many_sources(tmp_path):
    cache = HubCache(tmp_path)
    commits = [f"{n:040x}" for n in range(24)]
    threads = [
        threading.Thread(target=cache.set_source, args=("org/x", c, Source("u", trusted=True)))
        for c in commits
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(cache.source("org/x", c) for c in commits)


@pytest.mark.parametrize("offline", [False, True])
def test_a_read_only_cache_serves_what_it_has(served, there, tmp_path, monkeypatch, offline):  # noqa: F811
    get()
    forget_kernels()
    home = tmp_path / "hf-cache" / "kernels--org--twice"
    shutil.rmtree(home / "refs")  # as where a lock was fetched, and no branch asked for

    def refuse(path, _):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr("kernelmill.package.cache._write", refuse)
    with override(hub_offline=offline):
        assert get().twice(1) == 2
    assert not (home / "refs").exists()


def test_a_cache_that_may_only_be_read_and_lacks_something_is_said(tmp_path, monkeypatch):
    def refuse(blob, place):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(place))

    monkeypatch.setattr("kernelmill.package.cache._link", refuse)
    blob = tmp_path / "kernels--org--x" / "blobs" / ("0" * 40)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"1")
    place = tmp_path / "kernels--org--x" / "snapshots" / ("a" * 40) / "build" / "a"
    with pytest.raises(PackageError) as caught:
        HubCache(tmp_path).fetch_file("org/x", "a" * 40, File("build/a", 1, "0" * 40), [])
    assert str(caught.value) == (
        f"build/a of org/x is not in the cache {tmp_path}, which can only be read: permission "
        f"denied ({place})\n\nhint: KERNELS_CACHE or HF_HUB_CACHE names another directory"
    )


def test_no_registry_may_be_asked(tmp_path):
    file = File("build/a", 1, "0" * 40)
    with pytest.raises(RegistryError, match="is not in the cache, and no registry may be asked"):
        HubCache(tmp_path).fetch_file("org/x", "a" * 40, file, [])
    blob = tmp_path / "kernels--org--x" / "blobs" / file.key
    blob.write_bytes(b"1234")
    with pytest.raises(RegistryError, match=r"damaged in the cache \(4 bytes, not 1 as its commit"):
        HubCache(tmp_path).fetch_file("org/x", "a" * 40, file, [])


def test_a_branch_that_moved_back_gives_what_it_points_at_now(served, there, tmp_path):  # noqa: F811
    """Nothing is taken from memory while online; the old commit stays loadable by its id."""
    publish(served, write_project(tmp_path / "q", semantic="1.1.0", files={"big.bin": BIG}))
    assert get().VERSION == "1.1.0"
    served.service.registry.move("org/twice", "v1", there)
    assert get().VERSION == "1.0.0"
    assert HubCache(tmp_path / "hf-cache").ref("org/twice", "v1") == there
