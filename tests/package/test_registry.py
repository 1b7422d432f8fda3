"""What every registry does: a directory, memory, S3, static HTTP, and the Hub's protocol."""

from __future__ import annotations

import functools
import http.server
import importlib
import json
import os
import threading

import pytest

from hub_clients import WRITER, clean, served  # noqa: F401 - fixtures
from kernelmill.errors import IntegrityError, MissingExtraError, PackageError, RegistryError
from kernelmill.package.registry import Add, Delete, File, Ref, Refs, Registry, pick_commit
from kernelmill.package.registry_files import FilesRegistry
from kernelmill.package.registry_hub import HubRegistry
from kernelmill.package.shelf import open_shelf

pytestmark = pytest.mark.filterwarnings("ignore:Use .content=:DeprecationWarning")
LARGE = 4096


@pytest.fixture(scope="module")
def s3():
    """A bucket of moto's server; the URL and fsspec's options for it."""
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"endpoint_url": f"http://{host}:{port}", "key": "k", "secret": "s"}
    importlib.import_module("s3fs").S3FileSystem(**options, use_listings_cache=False).mkdir(
        "bucket"
    )
    yield "s3://bucket/kernels", options
    server.stop()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def static():
    """Serve directories as static files: `start(path)` gives the URL."""
    running = []

    def start(path):
        handler = functools.partial(Quiet, directory=str(path))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


KINDS = ["directory", "file", "memory", "s3", "hub"]


@pytest.fixture
def registry(request, tmp_path):
    kind = request.param
    if kind == "hub":
        server = request.getfixturevalue("served")
        return HubRegistry(server.endpoint, token=WRITER.token)
    urls = {
        "directory": str(tmp_path / "a directory"),
        "file": (tmp_path / "a directory").as_uri(),
        "memory": f"memory://{tmp_path.name}",
    }
    if kind == "s3":
        url, options = request.getfixturevalue("s3")
        return FilesRegistry(open_shelf(f"{url}/{tmp_path.name}", options), large=LARGE)
    return FilesRegistry(open_shelf(urls[kind]), large=LARGE)


def tell(registry, repo_id="org/x"):
    """Publish twice; return the two commits."""
    registry.create(repo_id)
    big = bytes(range(256)) * 40
    first = registry.publish(
        repo_id, "v1", [Add("build/torch-cpu/a.py", b"a = 1"), Add("build/torch-cpu/big", big)],
        message="first",
    )  # fmt: skip
    second = registry.publish(
        repo_id, "v1", [Delete("build/torch-cpu/a.py"), Add("build/torch-cpu/b.py", b"")],
        message="second", parent=first.id,
    )  # fmt: skip
    return first.id, second.id


@pytest.mark.parametrize("registry", KINDS, indirect=True)
def test_what_is_published_is_there(registry, tmp_path):
    assert isinstance(registry, Registry)
    first, second = tell(registry)
    branch = registry.refs("org/x").branch("v1")
    assert branch == Ref("v1", second)
    files = {f.path: f for f in registry.files("org/x", second)}
    assert sorted(files) == ["build/torch-cpu/b.py", "build/torch-cpu/big"]
    big = files["build/torch-cpu/big"]
    assert (big.size, bool(big.sha256)) == (10240, True)
    assert registry.read("org/x", first, "build/torch-cpu/a.py") == b"a = 1"
    target = tmp_path / "got"
    registry.fetch("org/x", second, big, target)
    assert target.read_bytes() == bytes(range(256)) * 40
    empty = tmp_path / "empty"
    registry.fetch("org/x", second, files["build/torch-cpu/b.py"], empty)
    assert empty.read_bytes() == b""


@pytest.mark.parametrize("registry", KINDS, indirect=True)
def test_paths_of_local_files_are_published_too(registry, tmp_path):
    place = tmp_path / "source"
    place.write_bytes(os.urandom(3 * LARGE))
    registry.create("org/x")
    made = registry.publish("org/x", "v1", [Add("build/f", place)], message="from a file")
    assert registry.read("org/x", made.id, "build/f") == place.read_bytes()


@pytest.mark.parametrize("registry", KINDS, indirect=True)
def test_revisions_resolve_to_one_whole_commit(registry):
    first, second = tell(registry)
    assert registry.commit("org/x", "v1") == second
    assert registry.commit("org/x", first) == first
    assert registry.commit("org/x", first[:10]) == first
    for wrong in ("v9", "zzzzzzzz", "abc", "0000000"):
        with pytest.raises(RegistryError, match="has no revision .* branches and tags: main, v1"):
            registry.commit("org/x", wrong)


@pytest.mark.parametrize("registry", KINDS, indirect=True)
def test_a_branch_that_moved_is_not_overwritten(registry):
    first, _ = tell(registry)
    with pytest.raises(RegistryError, match="somebody else has pushed"):
        registry.publish("org/x", "v1", [Add("build/late", b"x")], message="late", parent=first)
    with pytest.raises(RegistryError):
        registry.read("org/x", registry.commit("org/x", "v1"), "build/late")


@pytest.mark.parametrize("registry", KINDS, indirect=True)
def test_what_is_not_there_is_named(registry):
    tell(registry)
    with pytest.raises(RegistryError, match="org/none"):
        registry.refs("org/none")
    with pytest.raises(RegistryError, match="build/none"):
        registry.read("org/x", registry.commit("org/x", "v1"), "build/none")
    with pytest.raises(RegistryError):
        registry.files("org/x", "0" * 40)
    with pytest.raises(PackageError, match="accepted: organization/name"):
        registry.refs("../etc")


@pytest.mark.parametrize("registry", KINDS, indirect=True)
def test_a_killed_download_is_gone_on_from(registry, tmp_path):
    _, second = tell(registry)
    big = next(f for f in registry.files("org/x", second) if f.sha256)
    target = tmp_path / "got"
    if isinstance(registry, FilesRegistry):
        for cut in (1, 4096, 10239, 10240):
            target.write_bytes((bytes(range(256)) * 40)[:cut])
            registry.fetch("org/x", second, big, target)
            assert target.read_bytes() == bytes(range(256)) * 40
    target.write_bytes(b"x" * 20_000)  # of something else
    registry.fetch("org/x", second, big, target)
    assert target.read_bytes() == bytes(range(256)) * 40


@pytest.mark.parametrize("registry", ["directory"], indirect=True)
def test_many_publish_at_once(registry):
    registry.create("org/x")
    threads = [
        threading.Thread(
            target=registry.publish, args=("org/x", "v1", [Add(f"build/{i}", b"%d" % i)]),
            kwargs={"message": str(i)},
        )
        for i in range(12)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    commit = registry.commit("org/x", "v1")
    assert len(registry.files("org/x", commit)) == 12
    assert len(registry.history("org/x", commit)) == 12


def test_static_http_is_read(tmp_path, static):
    writer = FilesRegistry(open_shelf(str(tmp_path / "r")), large=LARGE)
    first, second = tell(writer)
    registry = FilesRegistry(open_shelf(static(tmp_path / "r")))
    assert registry.refs("org/x").branch("v1").commit == second
    assert registry.commit("org/x", first[:8]) == first
    assert registry.read("org/x", first, "build/torch-cpu/a.py") == b"a = 1"
    big = next(f for f in registry.files("org/x", second) if f.sha256)
    registry.fetch("org/x", second, big, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == bytes(range(256)) * 40
    with pytest.raises(RegistryError, match="has no repository org/none"):
        registry.refs("org/none")
    with pytest.raises(RegistryError):
        registry.publish("org/x", "v1", [Add("build/x", b"x")], message="cannot")


def test_a_record_that_was_changed_is_refused(tmp_path):
    registry = FilesRegistry(open_shelf(str(tmp_path)), large=LARGE)
    _, second = tell(registry)
    place = tmp_path / f"org/x/commits/{second}.json"
    record = json.loads(place.read_text())
    record["files"]["build/torch-cpu/evil.py"] = [1, "0" * 40, ""]
    place.write_text(json.dumps(record))
    with pytest.raises(IntegrityError, match="was changed; its id is"):
        registry.files("org/x", second)


def test_a_content_that_was_changed_is_refused(tmp_path):
    registry = FilesRegistry(open_shelf(str(tmp_path)), large=LARGE)
    first, _ = tell(registry)
    file = next(f for f in registry.files("org/x", first) if f.path.endswith("a.py"))
    place = tmp_path / "org/x/blobs" / file.key
    place.write_bytes(b"b = 1")
    with pytest.raises(IntegrityError, match="its commit promises"):
        registry.read("org/x", first, file.path)
    place.unlink()
    with pytest.raises(RegistryError, match="has lost the content of build/torch-cpu/a.py"):
        registry.read("org/x", first, file.path)


@pytest.mark.parametrize("path", ["/x", "../x", "a/../../x", "a\\b", "a\nb"])
def test_listings_with_hostile_paths_are_refused(path):
    with pytest.raises(IntegrityError, match="is refused"):
        File(path, 1, "0" * 40)
    with pytest.raises(RegistryError, match="accepted: 40 and 64 hexadecimal digits"):
        File("a", 1, "../../x")
    with pytest.raises(RegistryError):
        File("a", -1, "0" * 40)


def test_a_short_commit_must_fit_one():
    commits = ["abcdef1" + "0" * 33, "abcdef1" + "1" * 33]
    with pytest.raises(RegistryError, match="fits 2 commits: abcdef1000000000, abcdef1111111111"):
        pick_commit("abcdef1", Refs(), commits, place="org/x")
    assert pick_commit("abcdef10", Refs(), commits, place="org/x") == commits[0]


def test_objects_are_read_up_to_their_limit(tmp_path, static, s3):
    url, options = s3
    bucket = open_shelf(f"{url}/{tmp_path.name}", options)
    folder = open_shelf(str(tmp_path))
    for shelf in (bucket, folder, open_shelf(f"memory://{tmp_path.name}")):
        shelf.write("x", b"12345")
        shelf.write("empty", b"")
    for shelf in (
        bucket,
        folder,
        open_shelf(static(tmp_path)),
        open_shelf(f"memory://{tmp_path.name}"),
    ):
        assert shelf.read("x", limit=5) == b"12345"
        assert shelf.read("empty", limit=5) == b""
        with pytest.raises(RegistryError, match="has more than the 4 bytes that are accepted"):
            shelf.read("x", limit=4)
        with pytest.raises(FileNotFoundError):
            shelf.read("none", limit=4)


def test_a_scheme_without_its_library_is_named():
    with pytest.raises(MissingExtraError, match="gs:// need the distribution gcsfs") as caught:
        open_shelf("gs://bucket")
    assert caught.value.hint == "pip install 'kernelmill[hub]' gcsfs"


def test_tokens_stay_out_of_errors_and_urls(served):  # noqa: F811
    registry = HubRegistry(served.endpoint, token="hf_very_secret")
    with pytest.raises(RegistryError) as caught:
        registry.create("org/x")
    assert "secret" not in str(caught.value) + repr(caught.value.__cause__)
    assert "401" in str(caught.value)
    assert "set HF_TOKEN" in caught.value.hint
    assert registry.url == served.endpoint


def test_a_registry_vouches_for_publishers_that_it_trusts(served):  # noqa: F811
    registry = HubRegistry(served.endpoint, token=False)
    assert registry.trusts("org") is True
    assert registry.trusts("somebody") is False
    assert len([r for r in served.log.requests if "organizations/org/" in r]) == 1
    registry.trusts("org")
    assert len([r for r in served.log.requests if "organizations/org/" in r]) == 1


def test_a_registry_that_cannot_be_reached_is_named():
    registry = HubRegistry("http://127.0.0.1:9", token=False)
    with pytest.raises(RegistryError, match=r"http://127.0.0.1:9 cannot be reached"):
        registry.refs("org/x")
