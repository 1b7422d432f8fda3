"""`kernelmill build`: every framework, loaded and called in the real `kernels`; what is built again."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys

import pytest

import kernel_projects as kp
from kernelmill.cache.lock import hold
from kernelmill.package.check_library import POLICIES, manylinux_of
from kernelmill.package.digest import check_variant, hash_variant
from kernelmill.package.elf import read_library
from kernelmill.package.fatbin import images_of
from kernelmill.package.metadata import read_metadata

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="builds for Linux only")

STABLE, CLASSIC, TVM = "torch-stable-abi210", "torch213-cxx11", "tvm-ffi01"
ARCHS = ("--arch", "8.0", "--arch", "9.0")
CHIPS = {("cubin", "sm_80"), ("cubin", "sm_90")}
PAIRS = [(f, b) for f in (STABLE, TVM) for b in ("cpu", "cu128", "cu130")] + [(CLASSIC, "cpu")]
ALL = [f"{framework}-{backend}-{kp.MACHINE}" for framework, backend in PAIRS]


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A project with all its variants, made once for all workers by one command."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    place = shared / "three bindings, (all)'s"  # a shell would divide that
    with hold(shared / "three-bindings.lock", 600):
        if not (place / "done.json").exists():
            shutil.rmtree(place, ignore_errors=True)
            root = kp.three_bindings(place / "img2gray")
            done = kp.kernelmill("build", "--all", *ARCHS, "--json", cwd=root)
            (place / "done.json").write_text(done.stdout)
    return place


@pytest.fixture(scope="session")
def root(built):
    return built / "img2gray"


def variant(root, name):
    return root / "build" / f"{name}-{kp.MACHINE}"


def test_one_command_builds_all_variants(built):
    rows = json.loads((built / "done.json").read_text())
    assert sorted(row["variant"] for row in rows) == sorted(ALL)
    for row in rows:
        assert not row["unchanged"]
        assert row["compiled"] + row["reused"] == (3 if "-cu" in row["variant"] else 2)
        assert row["compiled"] >= 1  # its binding
        assert row["warnings"] == ""
    # What knows no framework is compiled once: the processor's code, and a .cu for each CUDA.
    assert sum(row["compiled"] for row in rows) == len(rows) + 3


@pytest.mark.parametrize("name", ALL)
def test_what_is_in_a_variant(root, name):
    place = root / "build" / name
    metadata = read_metadata(place)
    library = f"{metadata.id}{'.so' if name.startswith('tvm') else '.abi3.so'}"
    assert set(kp.tree(place)) - {"__init__.py"} == {
        "_ops.py", "metadata.json", "sbom.cdx.json", library,
    }  # fmt: skip
    check_variant(place, metadata.digest)
    for path in place.rglob("*"):
        state = path.stat()
        assert state.st_mtime_ns == 0
        assert path.is_dir() or stat.S_IMODE(state.st_mode) == 0o644
    assert metadata.kernelmill["version"] == "1.0.0"
    assert metadata.archs == (("8.0", "9.0") if "-cu" in name else None)
    assert metadata.kernelmill.get("cuda-route") == (
        {"cu128": "nvrtc", "cu130": "nvcc"}.get(name.split("-")[-3])
    )
    bill = json.loads((place / "sbom.cdx.json").read_text())
    names = {component["name"] for component in bill["components"]}
    assert {"gcc", "csrc/img2gray_cpu.cpp"} <= names or {"clang"} <= names
    assert str(root) not in (place / "sbom.cdx.json").read_text()


@pytest.mark.parametrize("name", ALL)
def test_what_a_library_needs_and_shows(root, name):
    (path,) = (root / "build" / name).glob("*.so")
    library = read_library(path)
    assert list(POLICIES).index(manylinux_of(library)) <= list(POLICIES).index("2_28")
    exported = {symbol.name for symbol in library.exports()}
    assert all(s.startswith(("PyInit_", "__tvm_ffi_")) for s in exported)
    assert exported
    data = path.read_bytes()
    for leak in (str(root), "/.cache/", "site-packages"):
        assert leak.encode() not in data
    if "-cu" in name:
        assert {(image.kind, image.arch) for image in images_of(path)} == CHIPS


LOAD = """
import json, shutil, sys, tempfile
from pathlib import Path
import numpy as np
from kernels import get_local_kernel
place, kind = Path(sys.argv[1]), sys.argv[2]
alone = Path(tempfile.mkdtemp())
shutil.copytree(place, alone / "build" / place.name)
kernel = get_local_kernel(alone, backend="cpu")
image = np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8)
wide = image.astype(np.uint32)
grey = ((77 * wide[..., 0] + 150 * wide[..., 1] + 29 * wide[..., 2] + 128) >> 8).astype(np.uint8)
if kind == "tvm-ffi":
    found = np.empty_like(grey)
    kernel.img2gray(image, found)
    assert (found == grey).all()
    try:
        kernel.img2gray(image[..., :2].copy(), found)
    except (ValueError, TypeError, RuntimeError) as error:
        print("refused", type(error).__name__)
else:
    import torch
    tensor = torch.from_numpy(image)
    assert (kernel.img2gray(tensor).numpy() == grey).all()
    compiled = torch.compile(kernel.img2gray, fullgraph=True, backend="aot_eager")
    assert (compiled(tensor).numpy() == grey).all()
    space = json.loads((place / "metadata.json").read_text())["id"]
    operator = getattr(torch.ops, space).img2gray.default
    out = torch.empty(37, 53, dtype=torch.uint8)
    verdict = torch.library.opcheck(operator, (tensor, out))
    assert set(verdict.values()) == {"SUCCESS"}, verdict
    try:
        operator(tensor[..., :2], out)
    except RuntimeError as error:
        print("refused", type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("name", "kind"), [(STABLE, "torch"), (CLASSIC, "torch"), (TVM, "tvm-ffi")]
)
def test_kernels_loads_it_and_it_computes(root, name, kind):
    said = kp.python(LOAD, variant(root, f"{name}-cpu"), kind)
    assert "refused" in said
    assert str(root) not in said


def test_python_alone_loads_in_kernels_and_from_a_wheel(tmp_path):
    root = kp.scaffolded(tmp_path / "p", "noarch", ("cpu",))
    kp.kernelmill("build", cwd=root)
    kp.kernelmill("wheel", cwd=root)
    (wheel,) = (root / "dist").iterdir()
    assert wheel.name == f"{kp.NAME}-1.0.0+torch.cpu-py3-none-any.whl"
    code = """
import sys
from pathlib import Path
from kernels import get_local_kernel
import torch
kernel = get_local_kernel(Path(sys.argv[1]), backend="cpu")
image = torch.full((2, 2, 3), 100, dtype=torch.uint8)
assert kernel.img2gray(image).tolist() == [[100, 100], [100, 100]]
sys.path.insert(0, sys.argv[2])
import img2gray
assert img2gray.__file__.startswith(sys.argv[2])
assert img2gray.img2gray(image).tolist() == [[100, 100], [100, 100]]
"""
    kp.python(code, root, wheel)
    metadata = read_metadata(root / "build" / "torch-cpu")
    assert metadata.backend == "cpu"
    assert not list((root / "build" / "torch-cpu").glob("*.so"))


# ----------------------------------------------------------------------------- built again


@pytest.fixture
def small(tmp_path, root):
    """A copy of the project whose objects are in the cache; only the stable one for the CPU."""
    skipped = shutil.ignore_patterns("build")
    copy = shutil.copytree(root, tmp_path / "img2gray", ignore=skipped)
    return copy


def again(root, *words, **environment):
    done = kp.kernelmill(
        "build",
        "--variant",
        f"{STABLE}-cpu-{kp.MACHINE}",
        "--json",
        *words,
        cwd=root,
        **environment,
    )
    (row,) = json.loads(done.stdout)
    return row


def test_objects_are_shared_between_projects_and_nothing_is_done_twice(small):
    row = again(small)
    # The same files have the same names outside of a repository, so not one source is compiled.
    assert (row["compiled"], row["reused"], row["unchanged"]) == (0, 2, False)
    before = kp.tree(variant(small, f"{STABLE}-cpu"))
    row = again(small)
    assert (row["compiled"], row["unchanged"]) == (0, True)
    assert kp.tree(variant(small, f"{STABLE}-cpu")) == before


def test_what_an_edit_compiles(small):
    git(small, "init", "-q")
    git(small, "add", ".")
    git(small, "commit", "-qm", "x")
    source = small / "csrc/img2gray_cpu.cpp"
    source.write_text(source.read_text().replace("128u", "127u"))
    assert again(small)["compiled"] == 2  # the names end in _dirty now
    source.write_text(source.read_text().replace("127u", "126u"))
    row = again(small)
    assert (row["compiled"], row["reused"]) == (1, 1)
    assert row["id"].endswith("_dirty")
    source.write_text(source.read_text() + "\n// a comment\n")
    row = again(small)
    assert (row["compiled"], row["reused"]) == (0, 2)
    header = small / "csrc/img2gray.h"
    header.write_text(header.read_text() + "\nconstexpr int img2gray_bits = 8;\n")
    assert again(small)["compiled"] == 2
    header.write_text(header.read_text().replace("\nconstexpr int img2gray_bits = 8;\n", ""))
    assert again(small)["compiled"] == 0  # back to what was compiled before


def test_a_changed_variant_is_built_anew(small):
    again(small)
    place = variant(small, f"{STABLE}-cpu")
    before = hash_variant(place).root()
    (place / "__init__.py").write_text("")
    row = again(small)
    assert (row["unchanged"], row["compiled"]) == (False, 0)
    assert hash_variant(place).root() == before


def git(root, *words):
    import subprocess

    names = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *names, *words], cwd=root, check=True, capture_output=True)


def test_the_state_of_the_repository_stands_in_the_metadata(small):
    git(small, "init", "-q")
    git(small, "add", ".")
    git(small, "commit", "-qm", "x")
    row = again(small)
    metadata = read_metadata(variant(small, f"{STABLE}-cpu"))
    assert metadata.provenance.kernel.dirty is False
    assert len(metadata.provenance.kernel.commit) == 40
    assert row["id"] == metadata.id
    # What a build writes does not make the next one dirty.
    assert again(small)["unchanged"]


def test_a_build_elsewhere_is_byte_identical(tmp_path, root):
    """The same in another directory, home, time zone and mask, by another number of compilers."""
    copy = tmp_path / "another/place/img2gray"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("build", "toolchain.lock"))
    code = "import os, runpy, sys; os.umask(int(sys.argv[1], 8)); sys.argv[1:] = sys.argv[2:]; os.chdir(sys.argv.pop(1)); runpy.run_module('kernelmill', run_name='__main__')"
    kp.python(
        code, "077", copy, "build", "--no-cache", "--jobs", 1, *ARCHS,
        "--variant", f"{STABLE}-*0-{kp.MACHINE}", "--variant", f"{TVM}-cpu-{kp.MACHINE}",
        "--variant", f"{STABLE}-cpu-{kp.MACHINE}",
        HOME=str(tmp_path), USER="another", TZ="Asia/Tokyo", LANG="C.UTF-8",
    )  # fmt: skip
    names = sorted(path.name for path in (copy / "build").iterdir() if path.name != ".kernelmill")
    assert len(names) == 3
    for name in names:
        assert kp.tree(copy / "build" / name) == kp.tree(root / "build" / name), name
    mine, all_ = (json.loads((p / "toolchain.lock").read_text()) for p in (copy, root))
    assert set(mine["cuda"]) == {"13.0"}
    assert mine["cuda"]["13.0"] == all_["cuda"]["13.0"]
    assert mine["host-compiler"] == all_["host-compiler"]
    assert all(all_["headers"][name] == row for name, row in mine["headers"].items())
