"""Ranges that a project declares: from pyproject.toml through a build into a lock, or refused."""

from __future__ import annotations

import json

import pytest

import kernel_projects as kp
from kernelmill.errors import ManifestError
from kernelmill.package.declared_needs import declared_needs
from kernelmill.package.manifest import parse_manifest
from kernelmill.package.metadata import read_metadata
from kernelmill.package.versions import needs_of

MANIFEST = """
[general]
name = "top-one"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]
kernel-depends = [{ repo-id = "org/relu", version = 1 }, { repo-id = "org/base", revision = "v2" }]
[general.cuda]
kernel-depends = [{ repo-id = "org/gpu", version = 3 }]
[torch-noarch]
"""


def needs(tmp_path, text, backend="cpu"):
    (tmp_path / "pyproject.toml").write_text(text)
    return declared_needs(tmp_path, parse_manifest(MANIFEST), backend)


def test_ranges_of_kernels_and_packages(tmp_path):
    text = (
        '[tool.kernelmill]\npython-depends = ["NumPy >= 1.26", "einops"]\n'
        '[tool.kernelmill.kernel-depends]\n"org/relu" = ">=1.1,<2"\n"org/gpu" = ">=3.2"\n'
    )
    relu = {"repo-id": "org/relu", "version": "<2,>=1.1"}
    python = ["einops", "numpy>=1.26"]
    assert needs(tmp_path, text) == {"kernel-depends": [relu], "python-depends": python}
    gpu = {"repo-id": "org/gpu", "version": ">=3.2"}
    assert needs(tmp_path, text, "cuda")["kernel-depends"] == [gpu, relu]
    assert needs(tmp_path, "") == needs(tmp_path, "[tool.kernelmill]\nversion = '1.0.0'") == {}
    (tmp_path / "pyproject.toml").unlink()
    assert declared_needs(tmp_path, parse_manifest(MANIFEST), "cpu") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kernel-depends = {"org/new" = 1}', "names org/new, which build.toml does not list"),
        ('kernel-depends = {"org/relu" = ">=2"}', "is >=2, which excludes version 1 of build.toml"),
        ('kernel-depends = {"org/relu" = "^1"}', ".org/relu is '^1'; accepted: an integer"),
        ('kernel-depends = ["org/relu"]', "`tool.kernelmill.kernel-depends` is no table"),
        ('python-depends = "numpy"', "`tool.kernelmill.python-depends` is no list"),
        ('python-depends = ["!"]', "[0] is '!'; accepted: a distribution and its versions"),
    ],
)
def test_what_is_refused(tmp_path, text, message):
    with pytest.raises(ManifestError) as caught:
        needs(tmp_path, f"[tool.kernelmill]\n{text}\n")
    assert message in str(caught.value)


def test_a_build_writes_them_and_kernels_reads_the_rest(tmp_path):
    root = kp.scaffolded(tmp_path / "p", "noarch", ("cpu",))
    manifest = root / "build.toml"
    text = manifest.read_text()
    line = 'kernel-depends = [{ repo-id = "org/relu", version = 1 }]\n'
    manifest.write_text(text.replace("[general]\n", f"[general]\n{line}", 1))
    with (root / "pyproject.toml").open("a") as stream:
        stream.write('\n[tool.kernelmill.kernel-depends]\n"org/relu" = ">=1.1"\n')
    kp.kernelmill("build", cwd=root)
    place = root / "build" / "torch-cpu"
    metadata = read_metadata(place)
    assert [str(n) for n in needs_of([metadata], place="x").kernels] == ["org/relu (>=1.1)"]
    theirs = pytest.importorskip("kernels").Metadata.read_from_file(place / "metadata.json")
    assert [(d.repo_id, d.version.version) for d in theirs.kernel_depends] == [("org/relu", 1)]
    assert json.loads((place / "metadata.json").read_text())["kernelmill"]["kernel-depends"]
