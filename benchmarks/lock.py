"""Locking a hundred kernels against a local server, beside `kernels lock` on the same one.

Theirs takes down commits, ours every file as well. Both begin without a cache.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.util
import json
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness import OURS, Case, Contender, Goal
from kernelmill.package.dependencies import Dependencies
from kernelmill.package.index import INDEX, Entry, Index, KernelNeed
from kernelmill.package.lock_make import make_lock
from kernelmill.package.registry import Add
from kernelmill.package.registry_files import FilesRegistry
from kernelmill.package.registry_hub import HubRegistry
from kernelmill.package.serve import Access, Server
from kernelmill.package.shelf import open_shelf
from kernelmill.package.wanted import Wanted, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Budget

__all__ = ["cases"]

PEER: Final = "kernels"
SECONDS: Final = 5.0
_VARIANT: Final = "torch-universal"


@dataclass(frozen=True, slots=True)
class _World:
    """A server with kernels, and what a project asks of them."""

    endpoint: str
    needs: tuple[KernelNeed, ...]


def _publish(registry: FilesRegistry, repo_id: str, *, indexed: bool) -> None:
    name = repo_id.partition("/")[2]
    facts = {
        "name": name, "id": f"_{name}_1", "version": 1, "license": "MIT", "python-depends": [],
        "backend": {"type": "cpu"}, "kernelmill": {"version": "1.0.0"},
    }  # fmt: skip
    files = {"__init__.py": f"NAME = {name!r}\n", "metadata.json": json.dumps(facts)}
    adds = [Add(f"build/{_VARIANT}/{path}", text.encode()) for path, text in files.items()]
    registry.create(repo_id)
    made = registry.publish(repo_id, "v1", adds, message="1.0.0")
    if indexed:
        index = Index().with_entry(Entry(parse_version("1.0.0"), made.id, (_VARIANT,)))
        add = Add(INDEX, index.to_json().encode())
        registry.publish(repo_id, "main", [add], message="index")


@functools.cache
def _world(count: int, *, indexed: bool) -> _World:
    registry = FilesRegistry(open_shelf(f"memory://bench-lock-{count}-{indexed}"))
    names = [f"bench/kernel{number:03}" for number in range(count)]
    for name in names:
        _publish(registry, name, indexed=indexed)
    stack = ExitStack()
    server = stack.enter_context(Server(registry, Access(trusted=frozenset({"bench"}))))
    atexit.register(stack.close)
    return _World(server.endpoint, tuple(KernelNeed(name, Wanted(1)) for name in names))


def _ours(world: _World) -> int:
    project = Dependencies(Path(), world.needs)
    return len(make_lock(HubRegistry(world.endpoint, token=False), project).lock.kernels)


def _theirs(world: _World) -> int:
    """Do what `kernels lock` does once it has read pyproject.toml."""
    constants = importlib.import_module("huggingface_hub.constants")
    locking = importlib.import_module("kernels.locking")
    rust = importlib.import_module("kernels._rust")
    template = world.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    cache = tempfile.mkdtemp(prefix="kernelmill-bench-")
    before: dict[str, Any] = {}
    settings = {"ENDPOINT": world.endpoint, "HUGGINGFACE_CO_URL_TEMPLATE": template}
    for name, value in settings.items():
        before[name] = getattr(constants, name)
        setattr(constants, name, value)
    locking.CACHE_DIR = cache
    try:
        api = importlib.import_module("kernels.hf_hub")._get_hf_api()  # noqa: SLF001 - as they do
        version = rust.KernelVersion.Version(1)
        needs = [rust.KernelDependency(need.repo_id, version) for need in world.needs]
        return len(locking.extract_dependency_locks(needs, api=api))
    finally:
        for name, value in before.items():
            setattr(constants, name, value)
        shutil.rmtree(cache, ignore_errors=True)


def cases(budget: Budget) -> Iterator[Case]:
    """Yield one case with an index on `main`, and one without."""
    count = 20 if budget.quick else 100
    for indexed in (True, False):
        yield _case(_world(count, indexed=indexed), "with" if indexed else "without")


def _case(world: _World, word: str) -> Case:
    skipped = {}
    contenders = [Contender(OURS, lambda: _ours(world), single=True)]
    if importlib.util.find_spec("kernels") is None:
        skipped[PEER] = "not installed"
    else:
        contenders.append(Contender(PEER, lambda: _theirs(world), single=True))
    return Case(
        name=f"lock {len(world.needs)} kernels, {word} an index",
        dtype="",
        elements=len(world.needs),
        contenders=tuple(contenders),
        goals=(Goal(seconds=SECONDS),),
        skipped=skipped,
    )
