"""Kernel packages made in a moment, for the tests of everything that stores, fetches and loads them."""

from __future__ import annotations

import json
from pathlib import Path

from kernelmill.package.digest import hash_variant

SOURCE = '''\
"""A kernel."""
from ._ops import add_op_namespace_prefix
from .parts import half
VERSION = {version!r}
def twice(x):
    return 2 * x
'''
OPS = """\
ID = {id!r}
def add_op_namespace_prefix(name):
    return f"{{ID}}::{{name}}"
"""


def facts(
    name="twice",
    *,
    id=None,  # noqa: A002
    version=1,
    semantic=None,
    backend="cpu",
    **more,
):
    made = {
        "name": name,
        "id": id or f"_{name}_{backend}_{version:07x}",
        "version": version,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": backend},
        **more,
    }
    if semantic:
        made["kernelmill"] = {"version": semantic}
    return made


def write_metadata(variant, made, *, digest=True):
    variant = Path(variant)
    if digest:
        made = {**made, "digest": hash_variant(variant).to_json()}
    (variant / "metadata.json").write_text(json.dumps(made, indent=1, sort_keys=True))


def write_variant(variant, name="twice", *, files=None, digest=True, semantic="1.0.0", **more):
    """Write a variant of Python sources that loads; `files` are added or replace others (None removes)."""
    variant = Path(variant)
    made = facts(name, semantic=semantic, **more)
    content = {
        "__init__.py": SOURCE.format(version=semantic),
        "_ops.py": OPS.format(id=made["id"]),
        "parts/__init__.py": "def half(x):\n    return x / 2\n",
        "data.bin": b"\0\1\2",
        **(files or {}),
    }
    for path, body in content.items():
        if body is None:
            continue
        place = variant / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body if isinstance(body, bytes) else body.encode())
    write_metadata(variant, made, digest=digest)
    return variant


def write_project(root, name="twice", *, variants=("torch-universal",), **more):
    """Write a repository: `build/<variant>` for each; return its directory."""
    for variant in variants:
        write_variant(Path(root) / "build" / variant, name, **more)
    return Path(root)
