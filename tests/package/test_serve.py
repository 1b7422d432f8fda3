"""The server, driven by the real clients alone; what they do not say it refuses."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import textwrap

import pytest

from hub_clients import READER, WRITER, clean, served  # noqa: F401 - fixtures
from kernel_packages import write_project
from kernelmill.errors import PackageError
from kernelmill.package.serve import Access, Server, read_tokens

pytestmark = pytest.mark.filterwarnings(
    "ignore:Use .content=:DeprecationWarning"
)  # the client's own
hub = pytest.importorskip("huggingface_hub")
kernels = pytest.importorskip("kernels")


def upload(server, root, repo_id="org/twice", branch="v1", token=WRITER.token):
    api = hub.HfApi(endpoint=server.endpoint, token=token)
    api.create_repo(repo_id, repo_type="kernel", exist_ok=True)
    api.create_branch(repo_id, branch=branch, repo_type="kernel", exist_ok=True)
    made = api.upload_folder(repo_id=repo_id, repo_type="kernel", folder_path=root, revision=branch)
    return api, made.oid


def test_what_the_hub_client_uploads_kernels_loads(served, tmp_path):  # noqa: F811
    big = os.urandom(10_000)
    root = write_project(tmp_path / "p", files={"big.bin": big}, variants=["torch-universal", "torch-cuda"])  # fmt: skip
    (root / "README.md").write_text("---\nlicense: mit\n---\n")
    api, commit = upload(served, root)
    kernel = kernels.get_kernel("org/twice", version=1)
    assert kernel.twice(21) == 42
    assert commit in kernel.__file__
    files = {f.path: f for f in api.list_repo_tree("org/twice", repo_type="kernel", recursive=True, revision="v1") if hasattr(f, "size")}  # fmt: skip
    assert files["build/torch-cuda/big.bin"].lfs.size == 10_000
    assert (
        api.list_repo_commits("org/twice", repo_type="kernel", revision="v1")[0].commit_id == commit
    )
    decisions = kernels.get_kernel_variants("org/twice", version=1)
    assert sorted(d.variant.variant_str for d in decisions) == ["torch-cuda", "torch-universal"]


def test_a_second_upload_sends_nothing_twice(served, tmp_path):  # noqa: F811
    root = write_project(tmp_path / "p", files={"big.bin": os.urandom(10_000)})
    _, first = upload(served, root)
    puts = [r for r in served.log.requests if r.startswith("PUT")]
    _, second = upload(served, root)
    assert first == second
    assert [r for r in served.log.requests if r.startswith("PUT")] == puts
    (root / "build/torch-universal/data.bin").write_bytes(b"other")
    _, third = upload(served, root)
    assert third != first
    assert [r for r in served.log.requests if r.startswith("PUT")] == puts


def test_kernels_locks_downloads_and_lists_versions(served, tmp_path):  # noqa: F811
    _, commit = upload(served, write_project(tmp_path / "p"))
    upload(served, write_project(tmp_path / "q", version=2, semantic="2.0.0"), branch="v2")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"org/twice" = 1\n')
    from kernels.cli.lock import lock_kernels

    lock_kernels(type("Args", (), {"project_dir": project})())
    assert commit in (project / "kernels.lock").read_text()
    kernel = kernels.get_locked_kernel("org/twice", lockfile=project / "kernels.lock")
    assert kernel.VERSION == "1.0.0"
    assert kernels.get_kernel("org/twice", version=2).VERSION == "2.0.0"


def test_the_environment_alone_points_the_clients_here(served, tmp_path):  # noqa: F811
    upload(served, write_project(tmp_path / "p"))
    text = """
    import kernels, sys
    print(kernels.get_kernel("org/twice", version=1).twice(4))
    assert kernels.has_kernel("org/twice", version=1)
    try:
        kernels.get_kernel("other/twice", version=1)
    except ValueError as error:
        assert "not from a trusted publisher" in str(error)
    """
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("HF_", "KERNELS_"))
    } | {"HF_ENDPOINT": served.endpoint, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": WRITER.token}  # fmt: skip
    run = [sys.executable, "-c", textwrap.dedent(text)]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "8"


def test_private_repositories_are_shown_to_tokens_only(served, tmp_path):  # noqa: F811
    api = hub.HfApi(endpoint=served.endpoint, token=WRITER.token)
    api.create_repo("org/secret", repo_type="kernel", private=True)
    assert api.kernel_info("org/secret").private
    assert hub.HfApi(endpoint=served.endpoint, token=READER.token).kernel_info("org/secret").id
    with pytest.raises(hub.errors.RepositoryNotFoundError):
        hub.HfApi(endpoint=served.endpoint, token=False).kernel_info("org/secret")


def test_writing_needs_a_token_that_may_write(served, tmp_path):  # noqa: F811
    for token, status in ((False, 401), ("hf_wrong", 401), (READER.token, 403)):
        api = hub.HfApi(endpoint=served.endpoint, token=token)
        with pytest.raises(hub.errors.HfHubHTTPError) as caught:
            api.create_repo("org/x", repo_type="kernel")
        assert caught.value.response.status_code == status
    with pytest.raises(hub.errors.HfHubHTTPError):
        hub.HfApi(endpoint=served.endpoint, token="hf_wrong").whoami()
    assert hub.HfApi(endpoint=served.endpoint, token=READER.token).whoami()["name"] == "reader"


def test_deletions_and_parents_are_honoured(served, tmp_path):  # noqa: F811
    api, commit = upload(served, write_project(tmp_path / "p"))
    folder = hub.CommitOperationDelete("build/torch-universal/", is_folder=True)
    made = api.create_commit(
        "org/twice", [folder, hub.CommitOperationAdd("build/x.txt", b"x")],
        repo_type="kernel", revision="v1", commit_message="less", parent_commit=commit,
    )  # fmt: skip
    assert api.list_repo_files("org/twice", repo_type="kernel", revision="v1") == ["build/x.txt"]
    add = hub.CommitOperationAdd("build/y.txt", b"y")
    with pytest.raises(hub.errors.HfHubHTTPError) as caught:
        api.create_commit("org/twice", [add], repo_type="kernel", revision="v1", commit_message="late", parent_commit=commit)  # fmt: skip
    assert caught.value.response.status_code == 412
    assert "somebody else has pushed" in str(caught.value)
    with pytest.raises(hub.errors.HfHubHTTPError, match="doesn't exist"):
        api.delete_file("build/nothing.txt", "org/twice", repo_type="kernel", revision="v1")
    tree = api.list_repo_tree("org/twice", repo_type="kernel", revision=commit, recursive=True)
    assert any(f.path == "build/torch-universal/__init__.py" for f in tree), "old commits stay"
    assert made.oid != commit


def test_long_listings_come_in_pages(served):  # noqa: F811
    from kernelmill.package.registry import Add

    registry = served.service.registry
    registry.create("org/many")
    adds = [Add(f"build/torch-cpu/{i:04}.txt", b"%d" % i) for i in range(1500)]
    registry.publish("org/many", "v1", adds, message="many")
    api = hub.HfApi(endpoint=served.endpoint, token=False)
    found = list(api.list_repo_tree("org/many", repo_type="kernel", revision="v1", recursive=True))
    assert len(found) == 1502
    assert len({f.path for f in found}) == 1502


def raw(server, method, path, body=b"", headers=None):
    place = server.endpoint.removeprefix("http://")
    with contextlib.closing(http.client.HTTPConnection(place, timeout=600)) as connection:
        connection.request(method, path, body, headers or {})
        with connection.getresponse() as answer:
            return answer.status, answer.read().decode()


def test_a_file_that_is_shorter_than_its_commit_says_breaks_off(served, tmp_path):  # noqa: F811
    upload(served, write_project(tmp_path / "p"))
    (blob,) = (
        b
        for b in (tmp_path / "registry/org/twice/blobs").iterdir()
        if b"def twice" in b.read_bytes()
    )
    blob.chmod(0o644)
    blob.write_bytes(b"short")
    with pytest.raises(http.client.IncompleteRead) as caught:
        raw(served, "GET", "/kernels/org/twice/resolve/v1/build/torch-universal/__init__.py")
    assert caught.value.partial == b"short"


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/", 404, "no such request"),
        ("GET", "/api/models/org/x", 404, "no such request"),
        ("GET", "/api/kernels/org/x/refs?evil=1", 404, "unknown in the query: evil"),
        ("DELETE", "/api/repos/delete", 501, ""),
        ("GET", "/kernels/org/x/resolve/v1/..%2F..%2Fetc%2Fpasswd", 404, "not found"),
        ("GET", "/kernels/../etc/resolve/v1/passwd", 404, ""),
        ("GET", "/api/kernels/org/x/tree/..%2F..", 404, ""),
        ("GET", "/api/kernels/org/x/tree/main?cursor=two", 400, "the cursor 'two' is no number"),
        (
            "GET",
            "/api/kernels/org/x/tree/main?cursor=" + "9" * 5000,
            400,
            "is no number; accepted: 1 to 18 digits",
        ),
        ("POST", "/api/repos/create", 401, "needs a token that may write"),
        ("PUT", "/lfs/org/x/" + "0" * 64 + "/3/" + "0" * 64, 403, "no upload of this object"),
    ],
)
def test_requests_outside_the_protocol_are_refused(served, method, path, status, text):  # noqa: F811
    if "cursor" in path:
        served.service.registry.create("org/x")
    found = raw(served, method, path, b"abc" if method == "PUT" else b"")
    served.log.refused.clear()
    assert (found[0], text.lower() in found[1].lower()) == (status, True), found


@pytest.mark.parametrize(
    "path", ["../evil", "/etc/passwd", "a/../../b", "build\\x", "a//b", "x\0y", "C:/x"]
)
def test_a_commit_cannot_write_outside_its_repository(served, path):  # noqa: F811
    import base64
    import json

    served.service.registry.create("org/x")
    line = {"path": path, "content": base64.b64encode(b"x").decode(), "encoding": "base64"}
    body = json.dumps({"key": "header", "value": {"summary": "x"}}) + "\n"
    body += json.dumps({"key": "file", "value": line}) + "\n"
    head = {"Authorization": f"Bearer {WRITER.token}"}
    status, text = raw(served, "POST", "/api/kernels/org/x/commit/main", body.encode(), head)
    assert status == 400
    assert "is refused" in text
    assert not served.service.registry.files("org/x", served.service.registry.commit("org/x", "main"))  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/kernels/org/x/preupload/main", b'{"files": [{"path": "a"}]}'),
        ("/api/kernels/org/x/preupload/main", b'{"files": 3}'),
        ("/api/kernels/org/x/preupload/main", b'{"files": [{"path": "a", "size": Infinity}]}'),
        ("/kernels/org/x.git/info/lfs/objects/batch", b'{"objects": [{"oid": 1, "size": "x"}]}'),
        ("/kernels/org/x.git/info/lfs/objects/batch", b'{"objects": [[]]}'),
    ],
)
def test_lists_that_are_none_are_refused(served, path, body):  # noqa: F811
    served.service.registry.create("org/x")
    head = {"Authorization": f"Bearer {WRITER.token}"}
    status, text = raw(served, "POST", path, body, head)
    assert (status, "cannot be used; accepted: a list of objects with" in text) == (400, True)


def test_large_objects_are_taken_only_as_promised(served):  # noqa: F811
    import hashlib
    import json

    served.service.registry.create("org/x")
    body = b"good" * 2000
    oid = hashlib.sha256(body).hexdigest()
    asked = json.dumps({"objects": [{"oid": oid, "size": len(body)}]}).encode()
    head = {"Authorization": f"Bearer {WRITER.token}"}
    _, text = raw(served, "POST", "/kernels/org/x.git/info/lfs/objects/batch", asked, head)
    path = json.loads(text)["objects"][0]["actions"]["upload"]["href"].removeprefix(served.endpoint)
    assert raw(served, "PUT", path, b"evil" * 2000)[0] == 400
    assert raw(served, "PUT", path, b"short")[0] == 400
    assert raw(served, "PUT", path.replace("/8000/", "/9000/"), b"x" * 9000)[0] == 403
    assert raw(served, "PUT", path, body)[0] == 200
    assert "actions" not in raw(served, "POST", "/kernels/org/x.git/info/lfs/objects/batch", asked, head)[1]  # fmt: skip


def test_open_writes_are_for_a_loopback_address(tmp_path, served):  # noqa: F811
    with Server(served.service.registry, Access(open_writes=True)) as server:
        upload(server, write_project(tmp_path / "p"), "me/x", token=False)
        assert server.service.registry.refs("me/x").branch("v1") is not None


def test_clients_are_sent_to_the_address_that_they_used(served):  # noqa: F811
    """A server behind another one, or on all addresses of a machine, cannot know its own."""
    import json

    served.service.registry.create("org/x")
    asked = json.dumps({"objects": [{"oid": "0" * 64, "size": 5}]}).encode()
    path = "/kernels/org/x.git/info/lfs/objects/batch"
    for head, expected in (
        ({"Host": "kernels.example:8350"}, "http://kernels.example:8350/lfs/"),
        ({"Host": "kernels.example", "X-Forwarded-Proto": "https"}, "https://kernels.example/lfs/"),
        ({"Host": "evil/path", "X-Forwarded-Proto": "ftp"}, f"{served.endpoint}/lfs/"),
    ):
        head = {**head, "Authorization": f"Bearer {WRITER.token}"}
        _, text = raw(served, "POST", path, asked, head)
        href = json.loads(text)["objects"][0]["actions"]["upload"]["href"]
        assert href.startswith(expected)


def test_files_of_tokens_are_read_strictly(tmp_path):
    place = tmp_path / "tokens"
    place.write_text("# who\nann write secret1\nbob read secret2 # laptop\n")
    place.chmod(0o600)
    assert [(u.name, u.token, u.writes) for u in read_tokens(place)] == [
        ("ann", "secret1", True), ("bob", "secret2", False),
    ]  # fmt: skip
    place.write_text("ann admin secret1\n")
    with pytest.raises(PackageError, match="line 1: accepted: NAME read|write TOKEN"):
        read_tokens(place)
    place.chmod(0o644)
    with pytest.raises(PackageError, match="can be read by others"):
        read_tokens(place)
