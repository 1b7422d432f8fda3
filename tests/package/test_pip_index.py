"""Wheels and parts of them from a server: what is read, what is refused, what is never read."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kernelmill.errors import IntegrityError, ToolchainError
from kernelmill.package import headers as headers_module
from kernelmill.package import pip_index, ranged_zip
from kernelmill.package.headers import headers_of
from kernelmill.package.pip_index import PipIndex, download
from kernelmill.package.ranged_zip import NoRangesError, RangedZip
from kernelmill.package.wheels import Pin, WheelFile, kept_tree, unpacked

NAME = "torch-9.9.0-cp311-cp311-manylinux_2_28_x86_64.whl"
FILES = {
    "torch/include/a.h": b"int a;\n" * 1000,
    "torch/include/deep/b.h": b"",
    "torch/lib/large.so": os.urandom(700_000),
    "torch/version.py": b"__version__ = '9.9.0'\n",
}


def wheel_bytes(files=FILES):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for index, (name, data) in enumerate(files.items()):
            method = zipfile.ZIP_DEFLATED if index % 2 == 0 else zipfile.ZIP_STORED
            archive.writestr(name, data, method)
    return out.getvalue()


class Server:
    """An index with one project of one wheel; `ranges`, `as_json` and `body` tell how it serves."""

    def __init__(self, data):
        self.data, self.ranges, self.as_json = data, True, True
        self.name, self.files = NAME, "../../files"
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.requests: list[tuple[str, str | None, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://user:secret@127.0.0.1:{self.http.server_port}"

    def answer(self, handler):
        range_ = handler.headers.get("Range")
        self.requests.append((handler.path, range_, handler.headers.get("Authorization")))
        if handler.path.startswith("/simple/torch/"):
            kind, body = self.page()
            self.send(handler, 200, body, {"Content-Type": kind})
        elif not handler.path.startswith("/files/"):
            self.send(handler, 404, b"", {})
        elif range_ and self.ranges:
            total = len(self.data)
            first, _, last = range_.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, total - int(last))
            end = int(last) if first else total - 1
            part = self.data[start : end + 1]
            self.send(handler, 206, part, {"Content-Range": f"bytes {start}-{end}/{total}"})
        else:
            self.send(handler, 200, self.data, {})

    def page(self):
        link = f"{self.files}/{self.name}"
        if self.as_json:
            row = {"filename": self.name, "url": link, "hashes": {"sha256": self.sha256}}
            return "application/vnd.pypi.simple.v1+json", json.dumps({"files": [row]}).encode()
        return "text/html", f'<a href="{link}#sha256={self.sha256}">{self.name}</a>'.encode()

    @staticmethod
    def send(handler, status, body, extra):
        handler.send_response(status)
        for name, value in {**extra, "Content-Length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        try:
            handler.wfile.write(body)
        except ConnectionError:
            pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    made = Server(wheel_bytes())
    monkeypatch.setenv("PIP_INDEX_URL", f"{made.url}/simple")
    monkeypatch.setattr("kernelmill.package.wheels.build_cache", lambda: tmp_path / "cache")
    pip_index.default_index.cache_clear()
    pip_index._page.cache_clear()
    yield made
    pip_index.default_index.cache_clear()
    pip_index._page.cache_clear()
    made.http.shutdown()
    made.http.server_close()


def read(found):
    return {
        p.relative_to(found.path).as_posix(): p.read_bytes()
        for p in found.path.rglob("*")
        if p.is_file()
    }


WANTED = {name: data for name, data in FILES.items() if "lib" not in name}


@pytest.mark.parametrize("as_json", [True, False])
def test_headers_are_read_by_ranges_with_the_users_login(server, as_json):
    server.as_json = as_json
    found = headers_of("torch", "9.9.0")
    assert read(found) == WANTED
    assert (found.read, found.wheel, found.wheel_sha256) == ("ranges", NAME, server.sha256)
    parts = [range_ for path, range_, _ in server.requests if path.startswith("/files")]
    assert all(parts)
    sizes = [int(b) - int(a) for a, b in (r[6:].split("-") for r in parts if r[6] != "-")]
    assert sum(sizes) < 100_000  # the library was not read
    login = "Basic " + base64.b64encode(b"user:secret").decode()
    assert {login for _, _, login in server.requests} == {login}
    count = len(server.requests)
    assert headers_of("torch", "9.9.0") == found
    assert len(server.requests) == count  # what is kept is not fetched again


def test_a_server_without_ranges_sends_the_whole(server):
    server.ranges = False
    found = headers_of("torch", "9.9.0")
    assert (read(found), found.read) == (WANTED, "wheel")


def test_the_whole_file_is_not_read_where_a_part_was_asked(server):
    server.ranges = False
    with pytest.raises(NoRangesError, match="status 200"):
        RangedZip(f"{server.url}/files/{NAME}").members()


def test_headers_that_are_not_the_known_ones_are_refused(server, monkeypatch):
    monkeypatch.setitem(headers_module._TREES, ("torch", "9.9.0"), "0" * 64)
    with pytest.raises(IntegrityError, match="the headers of torch 9.9.0 have the digest"):
        headers_of("torch", "9.9.0")


def test_a_damaged_member_is_refused(server, tmp_path):
    at = server.data.index(b"torch/include/a.h") + len("torch/include/a.h") + 5
    server.data = server.data[:at] + bytes([server.data[at] ^ 255]) + server.data[at + 1 :]
    with pytest.raises(IntegrityError, match=r"torch/include/a\.h"):
        headers_of("torch", "9.9.0")
    assert not list((tmp_path / "cache/headers").glob("torch*/tree"))


@pytest.mark.parametrize("name", ["../evil.h", "torch/include/../../x", "/abs.h"])
def test_a_member_cannot_leave_its_directory(server, tmp_path, name):
    server.data = wheel_bytes({f"torch/include/{name}" if name[0] == "." else name: b"x"})
    zip_ = RangedZip(f"{server.url}/files/{NAME}")
    with pytest.raises(IntegrityError, match="the path"):
        zip_.extract(zip_.members(), tmp_path / "out")


def test_what_is_no_zip(server):
    server.data = b"x" * 200_000
    with pytest.raises(IntegrityError, match="is no zip file") as caught:
        RangedZip(f"{server.url}/files/{NAME}").members()
    assert "secret" not in str(caught.value)


def test_a_member_that_unpacks_to_more_than_it_says(server, tmp_path):
    server.data = wheel_bytes({"torch/include/a.h": bytes(1 << 20)})
    zip_ = RangedZip(f"{server.url}/files/{NAME}")
    (member,) = zip_.members()
    assert member.packed < 2000
    few = replace(member, size=10)
    with pytest.raises(IntegrityError, match="is not what the directory of its wheel promises"):
        zip_.extract([few], tmp_path / "out")
    with pytest.raises(IntegrityError, match=r"what is wanted has 1,\d+,\d+,\d+ bytes; the limit"):
        zip_.extract([replace(member, size=1 << 30), member], tmp_path / "out")


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d[: d.rindex(b"PK\5\6") + 12],  # cut in the record at the end
        lambda d: d.replace(b"torch/include/a.h", b"torch/include/\xff.h"),
        lambda d: d[: d.rindex(b"PK\5\6") + 12] + b"\xfe\xff\xff\xff" * 2 + b"\0\0",
    ],
)
def test_a_damaged_directory_is_refused(server, damage):
    server.data = damage(wheel_bytes())
    with pytest.raises(IntegrityError, match="directory"):
        headers_of("torch", "9.9.0")


@pytest.mark.parametrize("page", [b"[]", b"{}", b'{"files": [1]}', b'{"files": [{"url": "a"}]}'])
def test_a_page_of_json_that_is_none_is_refused(server, page):
    server.page = lambda: ("application/vnd.pypi.simple.v1+json", page)
    with pytest.raises(ToolchainError, match="its page is none of a project"):
        PipIndex((f"{server.url}/simple",)).files("torch")


def test_the_name_of_a_wheel_is_no_path(server):
    server.name = NAME.replace("-cp311-cp311", "-cp311%2F..%2F..%2Fcp311")
    (found,) = PipIndex((f"{server.url}/simple",)).files("torch")
    assert found.name == "cp311-manylinux_2_28_x86_64.whl"


def test_members_of_large_files_have_wide_fields():
    extra = b"\x01\x00\x18\x00" + b"".join(v.to_bytes(8, "little") for v in (5, 6, 7 << 32))
    assert ranged_zip._large(extra, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF) == (5, 6, 7 << 32)
    assert ranged_zip._large(b"", 1, 2, 3) == (1, 2, 3)


def test_another_file_than_promised(server, tmp_path):
    index = PipIndex((f"{server.url}/simple",))
    file = index.find("torch", r"torch-9.*")
    with pytest.raises(IntegrityError, match=f"the index promised {'0' * 64}"):
        download(WheelFile(file.name, file.url, "0" * 64), tmp_path / "x.whl", index)


def test_a_wheel_that_the_index_does_not_have(server):
    with pytest.raises(
        ToolchainError, match=r"no index has wheels of numpy:\n.*status 404"
    ) as caught:
        PipIndex((f"{server.url}/simple",)).files("numpy")
    assert "secret" not in str(caught.value)
    with pytest.raises(ToolchainError, match="no wheel of torch that matches"):
        PipIndex((f"{server.url}/simple",)).find("torch", r"torch-1.*")


def test_a_pinned_wheel_with_another_hash_is_refused(server):
    server.name = "torch-9.9.0-py3-none-manylinux_2_28_x86_64.whl"
    with pytest.raises(ToolchainError, match="with sha256 00000"):
        unpacked([Pin("torch", "9.9.0", "0" * 64)], "x")
    tree = unpacked([Pin("torch", "9.9.0", server.sha256)], "x")
    assert (tree.path / "torch/version.py").read_bytes() == FILES["torch/version.py"]


def test_the_login_goes_to_the_index_alone(server):
    server.files = "http://localhost:9/files"
    (file,) = PipIndex((f"{server.url}/simple",)).files("torch")
    assert file.url == f"http://localhost:9/files/{NAME}"


def test_a_kept_tree_appears_whole_or_not_at_all(server, tmp_path):
    def fails(place):
        (place / "half").write_text("x")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        kept_tree("kind", "name", fails)
    assert list((tmp_path / "cache/kind").iterdir()) == []
    made = []

    def make(place):
        made.append(place)
        (place / "whole").write_text("x")
        return {"a": 1}

    for _ in range(2):
        path, facts = kept_tree("kind", "name", make)
        assert (path / "whole").read_text() == "x"
        assert facts == {"a": 1}
    assert len(made) == 1
