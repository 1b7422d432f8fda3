"""What `kernels` 0.17.2 gets wrong, shown on it and shown not to happen here.

Defects of single modules are tested with these: digests, identifiers and imports in test_load.py,
variants in test_variant.py, manifests in test_manifest.py, offline use in test_kernels_shim.py.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from types import SimpleNamespace

import pytest

import kernelmill.compat.kernels as shim
from hub_clients import clean, served  # noqa: F401 - fixtures
from kernelmill import hub
from kernelmill.config import override
from kernelmill.errors import PackageError
from kernelmill.package import lock_find
from kernelmill.package.choice import choose
from kernelmill.package.dependencies import read_dependencies
from kernelmill.package.lock_find import read_any_lock
from kernelmill.package.lock_load import sync
from kernelmill.package.lock_make import make_lock, write_lock
from kernelmill.package.obtain import Shelves
from kernelmill.package.registry_hub import HubRegistry
from kernelmill.package.system import System
from published_kernels import release, variant_files

theirs = pytest.importorskip("kernels")
pytestmark = pytest.mark.filterwarnings("ignore:Use .content=:DeprecationWarning")


@pytest.fixture
def world(served, tmp_path):  # noqa: F811
    with override(hub_endpoint=served.endpoint, hub_cache=tmp_path / "our-cache"):
        yield SimpleNamespace(inner=served.service.registry, server=served, root=tmp_path)


def project(world, text):
    place = world.root / "project"
    place.mkdir(exist_ok=True)
    (place / "pyproject.toml").write_text(text)
    return place


def lock(world, text):
    place = project(world, text)
    made = make_lock(HubRegistry(world.server.endpoint), read_dependencies(place))
    write_lock(place, made)
    return place


ONE = '[tool.kernels.dependencies]\n"org/top" = 1\n'


def test_a_kernel_that_depends_on_a_branch_is_locked(world):
    """Theirs writes the branch's name where a commit must stand, and fails."""
    from kernels.cli.lock import lock_kernels

    base = release(world.inner, "org/base", "2.0.0")
    release(world.inner, "org/top", "1.0.0", needs=[("org/base", "v2")])
    with pytest.raises(ValueError, match="Invalid git object id"):
        lock_kernels(SimpleNamespace(project_dir=project(world, ONE)))
    place = lock(world, ONE)
    assert base in (place / "kernels.lock").read_text()
    assert theirs.get_locked_kernel("org/top", lockfile=place / "kernels.lock").answer() == (
        "kernel-top 1.0.0"
    )


def test_a_lock_pins_contents_and_not_commits_alone(world):
    """Theirs has no hashes; a snapshot that was changed on disk is imported."""
    release(world.inner, "org/top", "1.0.0")
    place = lock(world, ONE)
    theirs.get_locked_kernel("org/top", lockfile=place / "kernels.lock")
    with override(hub_cache=world.root / "hf-cache"):
        found = sync(Shelves(), read_any_lock(place / "kernelmill.lock").lock)
        blob = (found[0].directory / "torch-universal" / "__init__.py").resolve()
        blob.chmod(0o644)
        blob.write_text(blob.read_text().replace("1.0.0", "6.6.6"))
        importlib.import_module("kernels.importer")._loaded_kernels.clear()
        again = theirs.get_locked_kernel("org/top", lockfile=place / "kernels.lock")
        assert again.answer() == "kernel-top 6.6.6"
        with pytest.raises(PackageError, match="is not what the lock names"):
            hub.get_locked_kernel("org/top", lockfile=place / "kernelmill.lock")
        with pytest.raises(PackageError, match="is not what its commit consists of"):
            hub.get_locked_kernel("org/top", lockfile=place / "kernels.lock")


def test_the_lock_of_an_installed_package_is_found(world, monkeypatch):
    """Theirs takes its own module for the caller, so it never finds one."""
    release(world.inner, "org/top", "1.0.0")
    place = lock(world, ONE)
    site = world.root / "lib" / "site-packages"
    (site / "lock_carrier").mkdir(parents=True)
    (site / "lock_carrier" / "__init__.py").write_text(
        "def get(module): return module.get_locked_kernel('org/top', lockfile=None)\n"
    )
    info = site / "lock_carrier-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lock-carrier\nVersion: 1.0\n")
    (info / "RECORD").write_text("lock_carrier/__init__.py,,\n")
    (info / "kernels.lock").write_text((place / "kernels.lock").read_text())
    monkeypatch.syspath_prepend(str(site))
    lock_find._names.cache_clear()
    try:
        carrier = importlib.import_module("lock_carrier")
        with pytest.raises(ValueError, match="Could not find a `kernels.lock` file in the caller"):
            carrier.get(theirs)
        assert carrier.get(shim).answer() == carrier.get(hub).answer() == "kernel-top 1.0.0"
    finally:
        sys.modules.pop("lock_carrier", None)
        lock_find._names.cache_clear()


def test_a_diamond_gets_one_version(world):
    """Theirs loads both versions of what two kernels share; here one is found that suits both."""
    for version in ("1.0.0", "2.0.0"):
        release(world.inner, "org/base", version)
    release(world.inner, "org/left", "1.0.0", ranged=[("org/base", ">=1")])
    release(world.inner, "org/right", "1.0.0", ranged=[("org/base", "<2")])
    place = lock(world, '[tool.kernelmill.dependencies]\n"org/left" = 1\n"org/right" = 1\n')
    kernels = read_any_lock(place / "kernelmill.lock").lock.kernels
    assert kernels["org/base"].version == "1.0.0"


def test_offline_takes_the_variant_that_was_published_for_this_system(world):
    """Theirs chooses among what happens to be in the cache."""
    release(world.inner, "org/top", "1.0.0", variants=("torch-cpu", "torch-universal"))
    place = lock(world, ONE)
    shelves = Shelves()
    found = read_any_lock(place / "kernelmill.lock").lock
    located = shelves.locate_locked(found.kernels["org/top@1"])
    assert located.variant == "torch-cpu"
    directory = shelves.download(located).parent
    for path in (directory / "torch-cpu").iterdir():
        blob = path.resolve()
        path.unlink()
        blob.unlink()
    (directory / "torch-cpu").rmdir()
    with override(hub_offline=True), pytest.raises(PackageError, match="build/torch-cpu/"):
        hub.load_kernel("org/top", lockfile=place / "kernelmill.lock")


def test_the_choice_does_not_depend_on_the_order():
    """Theirs gives a tvm-ffi build for CUDA x.0 and Python sources for CUDA the same rank."""
    variants = importlib.import_module("kernels.variants")
    backends = importlib.import_module("kernels.backends")
    version = importlib.import_module("packaging.version").Version
    names = ["tvm-ffi01-cu130-x86_64-linux", "torch-cuda", "torch-universal"]
    seen_theirs, seen_ours = set(), set()
    here = System.parse("cu130-x86_64-linux", torch="2.13", tvm_ffi="0.1")
    for order in itertools.permutations(names):
        chosen, _ = variants._resolve_variant_for_system(
            [variants.parse_variant(name) for name in order],
            backends.CUDA(version("13.0")), "x86_64", "linux", version("2.13"), True,
            version("0.1"),
        )  # fmt: skip
        seen_theirs.add(chosen[0].variant_str)
        seen_ours.add(str(choose(order, here).best))
    assert seen_theirs == set(names[:2])
    assert seen_ours == {names[0]}


def test_packages_beyond_the_curated_list(world):
    """Theirs refuses a kernel that depends on NumPy; ours says so where theirs does not look."""
    files = variant_files("kernel-top", "1.0.0", python=["numpy>=1.20"])
    facts = json.loads(files["metadata.json"])
    assert facts["python-depends"] == []
    release(world.inner, "org/top", "1.0.0", python=["numpy>=1.20"])
    assert theirs.get_kernel("org/top", version=1).answer() == "kernel-top 1.0.0"
    assert hub.get_kernel("org/top", version=1).answer() == "kernel-top 1.0.0"
    release(world.inner, "org/more", "1.0.0", python=["no-such-thing>=1"])
    with pytest.raises(PackageError, match="no-such-thing>=1, which is not installed"):
        hub.get_kernel("org/more", version=1)
    with pytest.raises(PackageError, match="numpy<1.0?; .* is installed"):
        release(world.inner, "org/old", "1.0.0", python=["numpy<1.0"])
        hub.get_kernel("org/old", version=1)


def test_locks_of_both_forms_are_read(world):
    """Theirs reads neither form with the other's tool."""
    commit = release(world.inner, "org/top", "1.0.0")
    old = [{"repo_id": "org/top", "sha": commit, "variants": {}}]
    (world.root / "old.lock").write_text(json.dumps(old))
    with pytest.raises(ValueError, match="unknown field"):
        theirs.get_locked_kernel("org/top", lockfile=world.root / "old.lock")
    with pytest.raises(PackageError, match="org/top torch-universal is not in the lock"):
        hub.get_locked_kernel("org/top", lockfile=world.root / "old.lock")
    place = lock(world, ONE)
    assert hub.get_locked_kernel("org/top", lockfile=place / "kernels.lock").answer()


def test_a_project_gets_the_version_that_it_asks_for(world):
    """Theirs takes the lowest major version in the lock, though a dependency alone needs that."""
    release(world.inner, "org/base", "1.0.0")
    release(world.inner, "org/base", "2.0.0")
    release(world.inner, "org/top", "1.0.0", needs=[("org/base", 1)])
    text = '[tool.kernels.dependencies]\n"org/base" = 2\n"org/top" = 1\n'
    place = lock(world, text)
    assert (
        theirs.get_locked_kernel("org/base", lockfile=place / "kernels.lock").answer()
        == "kernel-base 1.0.0"
    )
    kernel = hub.get_locked_kernel("org/base", lockfile=place / "kernelmill.lock")
    assert kernel.answer() == "kernel-base 2.0.0"
    other = hub.get_locked_kernel("org/base@1", lockfile=place / "kernelmill.lock")
    assert other.answer() == "kernel-base 1.0.0"
