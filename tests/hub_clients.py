"""The real clients, `huggingface_hub` and `kernels`, pointed at a server of ours; fixtures to import."""

from __future__ import annotations

import importlib
import sys
from http import HTTPStatus

import pytest

from kernelmill.config import override
from kernelmill.package import finder, load
from kernelmill.package.registry import Add
from kernelmill.package.registry_files import FilesRegistry
from kernelmill.package.serve import Access, Handler, Server, User
from kernelmill.package.serve_answers import Problem
from kernelmill.package.shelf import open_shelf


class Faulty(Handler):
    """A registry that misbehaves: `server.owner.faults` maps part of a path to what is done there.

    `refusals` maps part of a path to a status, which is answered before anything is done.
    A fault is called with the handler and the answer; it returns the answer to send, or None when
    it has sent something itself. One that is done is taken off by the test.
    """

    def _respond(self):
        for part, status in getattr(self.server.owner, "refusals", {}).items():
            if part in f"{self.command} {self.path}":
                raise Problem(HTTPStatus(status), "made to fail")
        return super()._respond()

    def answer(self, answer):
        for part, fault in list(getattr(self.server.owner, "faults", {}).items()):
            if part in f"{self.command} {self.path}":
                answer = fault(self, answer)
        if answer is not None:
            super().answer(answer)


WRITER = User("writer", "hf_write", True)
READER = User("reader", "hf_read", False)


def point_clients_at(monkeypatch, endpoint, cache):
    """Set what the environment would have set before these libraries were imported."""
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "no-token"))
    monkeypatch.setenv("HF_TOKEN", WRITER.token)
    monkeypatch.setenv("KERNELS_CACHE", str(cache))
    kernels = pytest.importorskip("kernels")
    for name in ("kernels.hf_hub", "kernels.resolver", "kernels.install", "kernels.locking"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "CACHE_DIR"):
            monkeypatch.setattr(module, "CACHE_DIR", str(cache))
    return kernels


def forget_kernels():
    for name in list(load._state.kernels):
        finder.forget(name)
    load._state.kernels.clear()
    load._state.claims.clear()


@pytest.fixture
def clean(tmp_path):
    """Nothing loaded, and a cache of its own."""
    changes = {
        "cache_dir": tmp_path / "mill-cache",
        "hub_cache": tmp_path / "hf-cache",
        "hub_config": tmp_path / "hub.toml",
        "hub_offline": False,
        "local_kernels": "",
    }
    with override(**changes):
        yield
    forget_kernels()
    importer = sys.modules.get("kernels.importer")
    if importer is not None:
        importer._loaded_kernels.clear()


@pytest.fixture
def served(tmp_path, monkeypatch, clean):
    """A server over a directory; writes need `WRITER`, and the organization `org` is trusted."""
    registry = FilesRegistry(open_shelf(str(tmp_path / "registry")), large=4096)
    access = Access(users=(WRITER, READER), trusted=frozenset({"org"}))
    with Server(registry, access, handler=Faulty) as server:
        server.faults, server.refusals = {}, {}
        point_clients_at(monkeypatch, server.endpoint, tmp_path / "hf-cache")
        with override(hub_endpoint=server.endpoint):
            yield server
    assert not server.log.refused, "a client went beyond the protocol"


def publish(server, root, repo_id="org/twice", branch="v1", extra=()):
    """Put a project's `build/` on a branch, on the server's side; return the commit."""
    registry = server.service.registry
    registry.create(repo_id)
    paths = sorted(p for p in root.rglob("*") if p.is_file())
    adds = [Add(str(p.relative_to(root)), p) for p in paths]
    return registry.publish(repo_id, branch, [*adds, *extra], message="published").id
