"""Kernels as publishers put them into a registry: variants, branches, tags, an index. For tests."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections import Counter
from types import SimpleNamespace

from kernelmill.errors import NotPublishedError
from kernelmill.package.index import INDEX, Entry, Index
from kernelmill.package.metadata import Metadata
from kernelmill.package.registry import Add
from kernelmill.package.registry_files import FilesRegistry
from kernelmill.package.shelf import open_shelf
from kernelmill.package.versions import needs_of
from kernelmill.package.wanted import branch_of, parse_version

CODE = "def answer():\n    return {answer!r}\n"
UNIVERSAL = "torch-universal"


def new_registry(place):
    return FilesRegistry(open_shelf(str(place)))


def variant_files(
    name,
    version,
    *,
    needs=(),
    ranged=(),
    python=(),
    files=None,
    digest=True,
    semantic=True,
    salt="",
):
    """Path → bytes of one variant of a kernel that runs everywhere."""
    semver = parse_version(version)
    body = {"__init__.py": CODE.format(answer=f"{name} {version}{salt}"), **(files or {})}
    body = {path: text.encode() if isinstance(text, str) else text for path, text in body.items()}
    sums = {p: base64.b64encode(hashlib.sha256(b).digest()).decode() for p, b in body.items()}
    ours = {"version": version} if semantic else {}
    if ranged:
        ours["kernel-depends"] = [{"repo-id": r, "version": w} for r, w in ranged]
    if python:
        ours["python-depends"] = list(python)
    ident = hashlib.sha1(f"{name}{version}{salt}".encode()).hexdigest()[:7]
    facts = {
        "name": name, "id": f"_{name.replace('-', '_')}_{ident}", "version": semver.major,
        "license": "MIT", "python-depends": [], "backend": {"type": "cpu"},
        "kernel-depends": [
            {"repo-id": r, ("version" if isinstance(w, int) else "revision"): w} for r, w in needs
        ],
        **({"digest": {"algorithm": "sha256", "files": sums}} if digest else {}),
        **({"kernelmill": ours} if ours else {}),
    }  # fmt: skip
    return {**body, "metadata.json": json.dumps(facts, indent=1).encode()}


def release(
    registry, repo_id, version, *, variants=(UNIVERSAL,), index=True, tag="", branch="", **facts
):
    """Publish one version at the head of its branch, and say so in the index and by a tag."""
    name = "kernel-" + repo_id.partition("/")[2]
    registry.create(repo_id)
    made = {v: variant_files(name, version, **facts) for v in variants}
    adds = [
        Add(f"build/{v}/{path}", body) for v, files in made.items() for path, body in files.items()
    ]
    branch = branch or branch_of(parse_version(version))
    commit = registry.publish(repo_id, branch, adds, message=version).id
    if index:
        found = [Metadata.parse(files["metadata.json"]) for files in made.values()]
        needs = needs_of(found, place=repo_id)
        entry = Entry(parse_version(version), commit, tuple(variants), needs.kernels, needs.python)
        add_to_index(registry, repo_id, entry)
    if tag:
        registry.move(repo_id, tag, commit, tag=True)
    return commit


def add_to_index(registry, repo_id, entry):
    try:
        before = Index.from_json(registry.read(repo_id, "main", INDEX))
    except NotPublishedError:
        before = Index()
    body = before.with_entry(entry).to_json().encode()
    registry.publish(repo_id, "main", [Add(INDEX, body)], message="index")


class Counted:
    """A registry that counts what is asked of it, and how much of it at the same time."""

    def __init__(self, registry, *, wait=0.0):
        self.registry, self.asked, self.url, self.wait = registry, Counter(), registry.url, wait
        self.now = self.most = 0
        self.guard = threading.Lock()

    def __getattr__(self, name):
        method = getattr(self.registry, name)

        def counted(*args, **options):
            with self.guard:
                self.asked[name] += 1
                self.now += 1
                self.most = max(self.most, self.now)
            try:
                threading.Event().wait(self.wait)
                return method(*args, **options)
            finally:
                with self.guard:
                    self.now -= 1

        return counted


def refs_of(branches=(), tags=()):
    rows = [[SimpleNamespace(name=n, commit=c) for n, c in kind] for kind in (branches, tags)]
    return SimpleNamespace(branches=tuple(rows[0]), tags=tuple(rows[1]))
