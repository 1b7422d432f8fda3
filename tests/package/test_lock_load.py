"""Kernels as they are locked: fetched ahead, loaded without a request, refused where they differ."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hub_clients import clean, served  # noqa: F401 - fixtures
from kernelmill.config import override
from kernelmill.errors import (
    IntegrityError,
    LockError,
    PackageError,
    RegistryError,
    TrustError,
)
from kernelmill.package.cache import HubCache
from kernelmill.package.dependencies import read_dependencies
from kernelmill.package.index import KernelNeed
from kernelmill.package.lock_find import read_any_lock
from kernelmill.package.lock_hf import HfLock, variant_hash
from kernelmill.package.lock_load import load_locked, sync
from kernelmill.package.lock_make import make_lock, write_lock
from kernelmill.package.obtain import Shelves
from kernelmill.package.policy import Policy, RegistrySettings
from kernelmill.package.versions import variant_files
from kernelmill.package.wanted import Wanted
from published_kernels import new_registry, release
from published_kernels import variant_files as variant_files_of

BASE = "from kernels import get_kernel_dep\nbase = get_kernel_dep('org/base')\n"
CODE = "from kernelmill.hub import get_kernel_dep\nbase = get_kernel_dep('org/base')\n"
ANSWER = "def answer():\n    return base.answer()\n"


class World:
    """A registry of files, a project that has locked two kernels of it, an empty cache."""

    def __init__(self, root):
        self.root = root
        self.url = str(root / "registry")
        self.registry = new_registry(self.url)
        self.project = root / "project"
        self.project.mkdir()
        release(self.registry, "org/base", "1.0.0", variants=("torch-universal", "torch-npu"))
        release(self.registry, "org/base", "2.0.0", variants=("torch-universal", "torch-npu"))
        release(
            self.registry, "org/top", "1.0.0", needs=[("org/base", 1)],
            files={"__init__.py": CODE + ANSWER},
        )  # fmt: skip
        text = '[tool.kernelmill.dependencies]\n"org/top" = ">=1"\n'
        (self.project / "pyproject.toml").write_text(text)
        write_lock(self.project, make_lock(self.registry, read_dependencies(self.project)))

    def shelves(self, **options):
        settings = RegistrySettings("here", self.url, trust="all")
        cache = HubCache(self.root / "cache")
        return Shelves(policy=Policy((settings,)), cache=cache, **options)

    def lock(self, name="kernelmill.lock"):
        return read_any_lock(self.project / name).lock


@pytest.fixture
def world(tmp_path, clean):  # noqa: F811
    return World(tmp_path)


@pytest.mark.parametrize("name", ["kernelmill.lock", "kernels.lock"])
def test_what_is_synced_loads_without_a_request(world, name):
    seen = []
    found = sync(world.shelves(), world.lock(name), progress=lambda d, t: seen.append((d, t)))
    assert sorted(one.slot for one in found) == ["org/base", "org/top"]
    assert [one.variants for one in found] == [("torch-universal",)] * 2
    assert seen[-1][0] == seen[-1][1] == sum(one.size for one in found)
    shutil.rmtree(world.url)
    kernel = load_locked(world.shelves(offline=True), world.lock(name), "org/top")
    assert kernel.answer() == "kernel-base 1.0.0"
    again = sync(world.shelves(offline=True), world.lock(name))
    assert [(one.slot, one.size) for one in again] == [(one.slot, one.size) for one in found]


def test_a_lock_of_ours_needs_no_listing_and_a_lost_file_is_fetched(world):
    sync(world.shelves(), world.lock())
    kernel = world.lock().kernels["org/base"]
    cache = world.shelves().cache
    shutil.rmtree(cache.home("org/base") / "trees")
    place = cache.snapshot("org/base", kernel.commit) / "build/torch-universal"
    offline = load_locked(world.shelves(offline=True), world.lock(), "org/base")
    assert offline.answer() == "kernel-base 1.0.0"
    (place / "__init__.py").unlink()
    with pytest.raises(PackageError, match="never listed"):
        load_locked(world.shelves(offline=True), world.lock(), "org/base")
    assert load_locked(world.shelves(), world.lock(), "org/base") is offline
    assert (place / "__init__.py").is_symlink()


@pytest.mark.parametrize("name", ["kernelmill.lock", "kernels.lock"])
def test_all_variants(world, name):
    found = {one.slot: one for one in sync(world.shelves(), world.lock(name), all_variants=True)}
    assert found["org/base"].variants == ("torch-npu", "torch-universal")
    assert {p.name for p in found["org/base"].directory.iterdir()} == set(
        found["org/base"].variants
    )


@pytest.mark.parametrize("name", ["kernelmill.lock", "kernels.lock"])
def test_offline_and_absent(world, name):
    for act in (sync, lambda s, k: load_locked(s, k, "org/top")):
        with pytest.raises(PackageError, match="never listed|not in the cache"):
            act(world.shelves(offline=True), world.lock(name))


def test_what_was_published_later_is_not_loaded(world):
    release(world.registry, "org/base", "1.0.0", salt=" moved", tag="v1.0.0", index=False)
    release(world.registry, "org/base", "1.1.0")
    for name in ("kernelmill.lock", "kernels.lock"):
        kernel = load_locked(world.shelves(), world.lock(name), "org/top")
        assert kernel.answer() == "kernel-base 1.0.0"


def test_a_commit_that_is_gone_is_said_with_where_the_branch_stands(world):
    locked = world.lock().kernels["org/base"].commit
    now = release(world.registry, "org/base", "1.0.0", salt="!")
    (Path(world.url) / "org" / "base" / "commits" / f"{locked}.json").unlink()
    with pytest.raises(LockError) as caught:
        sync(world.shelves(), world.lock())
    assert caught.value.message == (
        f"org/base: the locked commit {locked} is not in file://{world.url} any more; "
        f"v1 stands at {now} now"
    )
    with pytest.raises(LockError, match="is not in file:.* any more"):
        load_locked(world.shelves(), world.lock("kernels.lock"), "org/base")
    # The other kernel was fetched all the same.
    assert world.shelves().cache.commits("org/top") == [world.lock().kernels["org/top"].commit]


def test_a_file_that_was_changed_in_the_cache_is_refused_before_it_is_imported(world):
    sync(world.shelves(), world.lock())
    kernel = world.lock().kernels["org/base"]
    place = world.shelves().cache.snapshot("org/base", kernel.commit) / "build/torch-universal"
    marker = world.root / "imported"
    blob = (place / "__init__.py").resolve()
    body = f"open({str(marker)!r}, 'w')\n".ljust(blob.stat().st_size)[: blob.stat().st_size]
    blob.chmod(0o644)
    blob.write_text(body)
    with pytest.raises(LockError, match=r"org/base torch-universal is not what the lock names:\n  __init__.py: locked \w+, found "):  # fmt: skip
        load_locked(world.shelves(offline=True), world.lock(), "org/top")
    with pytest.raises(LockError, match=r"__init__.py: locked"):
        sync(world.shelves(offline=True), world.lock())
    with pytest.raises(IntegrityError):
        load_locked(world.shelves(offline=True), world.lock("kernels.lock"), "org/top")
    assert not marker.exists()


def test_a_registry_that_gives_other_files_for_the_same_commit(world):
    """Sums in the lock are compared even where the registry's own listing agrees with its bytes."""
    lock = world.lock()
    other = World(world.root / "other" if (world.root / "other").mkdir() is None else None)
    release(other.registry, "org/base", "1.0.0", salt="?")
    commit = lock.kernels["org/base"].commit

    class Liar:
        def __getattr__(self, name):
            return getattr(other.registry, name)

        def files(self, repo_id, _):
            return other.registry.files(repo_id, other.registry.commit(repo_id, "v1"))

        def fetch(self, repo_id, _, file, target):
            real = other.registry.commit(repo_id, "v1")
            return other.registry.fetch(repo_id, real, file, target)

    shelves = world.shelves()
    shelves._opened["here"] = Liar()
    with pytest.raises(LockError, match="org/base torch-universal is not what the lock names"):
        sync(shelves, lock)
    with pytest.raises(LockError, match="org/base torch-universal is not what the lock names"):
        load_locked(shelves, lock, "org/base")
    assert commit


def test_publishers_that_are_not_trusted(world):
    settings = RegistrySettings("here", world.url, trust="listed")
    for name in ("kernelmill.lock", "kernels.lock"):
        for act in (sync, lambda s, k: load_locked(s, k, "org/top")):
            shelves = world.shelves()
            shelves.policy = Policy((settings,))
            with pytest.raises(TrustError, match="is not trusted"):
                act(shelves, world.lock(name))
    assert not world.shelves().cache.commits("org/top")


def test_a_registry_that_fails(world):
    class Broken:
        url = "broken"

        def __getattr__(self, name):
            raise RegistryError("500")

    shelves = world.shelves()
    shelves._opened["here"] = Broken()
    with pytest.raises(RegistryError, match="500"):
        sync(shelves, world.lock())


def test_no_variant_for_this_system(world):
    release(world.registry, "org/npu", "1.0.0", variants=("torch-npu",))
    text = '[tool.kernelmill.dependencies]\n"org/npu" = 1\n"org/base" = 1\n'
    (world.project / "pyproject.toml").write_text(text)
    write_lock(world.project, make_lock(world.registry, read_dependencies(world.project)))
    for name in ("kernelmill.lock", "kernels.lock"):
        with pytest.raises(PackageError, match="torch-npu: it is for npu; this system has"):
            sync(world.shelves(), world.lock(name))
    assert world.shelves().cache.commits("org/base")
    assert len(sync(world.shelves(), world.lock(), all_variants=True)) == 2


def test_the_older_form_of_locks(world):
    commit = world.lock().kernels["org/base"].commit
    files = variant_files(world.registry.files("org/base", commit))
    rows = {
        name: {"hash": variant_hash(found), "hash_type": "git_lfs_concat"}
        for name, found in files.items()
    }
    old = [{"repo_id": "org/base", "sha": commit, "variants": rows}]
    (world.project / "old.lock").write_text(json.dumps(old))
    sync(world.shelves(), world.lock("old.lock"))
    kernel = load_locked(world.shelves(offline=True), world.lock("old.lock"), "org/base")
    assert kernel.answer() == "kernel-base 1.0.0"
    rows["torch-universal"]["hash"] = "sha256-" + "0" * 64
    (world.project / "old.lock").write_text(json.dumps(old))
    for act in (sync, lambda s, k: load_locked(s, k, "org/base")):
        with pytest.raises(LockError, match="org/base torch-universal: locked sha256-0000"):
            act(world.shelves(), world.lock("old.lock"))


def test_what_a_lock_of_others_lacks(world):
    lock = world.lock("kernels.lock")
    only = {need: commit for need, commit in lock.commits.items() if need.repo_id == "org/top"}
    with pytest.raises(LockError, match=r"org/base \(version 1\) is not locked, and a locked"):
        load_locked(world.shelves(), HfLock(only), "org/top")
    with pytest.raises(LockError, match="org/none is not locked; locked: org/base, org/top"):
        load_locked(world.shelves(), lock, "org/none")


def test_circles_in_a_lock_of_others(world):
    one = release(world.registry, "org/one", "1.0.0", needs=[("org/two", 1)])
    two = release(world.registry, "org/two", "1.0.0", needs=[("org/one", 1)])
    lock = HfLock({KernelNeed("org/one", Wanted(1)): one, KernelNeed("org/two", Wanted(1)): two})
    with pytest.raises(PackageError, match="in a circle: org/one -> org/two -> org/one"):
        load_locked(world.shelves(), lock, "org/one")


@pytest.mark.parametrize("name", ["kernelmill.lock", "kernels.lock"])
def test_a_directory_may_stand_for_a_locked_kernel(world, name):
    place = world.root / "mine" / "build" / "torch-universal"
    place.mkdir(parents=True)
    for path, body in variant_files_of("kernel-base", "1.0.0", salt=" mine").items():
        (place / path).write_bytes(body)
    with override(local_kernels=f"org/base={world.root / 'mine'}"):
        kernel = load_locked(world.shelves(), world.lock(name), "org/top")
    assert kernel.answer() == "kernel-base 1.0.0 mine"


def test_two_processes_fill_one_cache(world):
    text = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from pathlib import Path
        from kernelmill.package.cache import HubCache
        from kernelmill.package.lock_find import read_any_lock
        from kernelmill.package.lock_load import sync
        from kernelmill.package.obtain import Shelves
        from kernelmill.package.policy import Policy, RegistrySettings
        policy = Policy((RegistrySettings("here", {world.url!r}, trust="all"),))
        lock = read_any_lock(Path({str(world.project / "kernelmill.lock")!r})).lock
        cache = HubCache({str(world.root / "cache")!r})
        print(len(sync(Shelves(policy=policy, cache=cache), lock)))
    """)
    runs = [
        subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [run.communicate(timeout=600)[0].strip() for run in runs] == ["2"] * 3
    kernel = load_locked(world.shelves(offline=True), world.lock(), "org/top")
    assert kernel.answer() == "kernel-base 1.0.0"


def test_what_they_lock_we_load(served, tmp_path):  # noqa: F811
    """Locked and downloaded by `kernels`, loaded here without a request, and the other way round."""
    from types import SimpleNamespace

    kernels = pytest.importorskip("kernels")
    from kernels.cli.download import download_kernels
    from kernels.cli.lock import lock_kernels

    inner = served.service.registry
    release(inner, "org/base", "1.0.0")
    release(
        inner, "org/top", "1.0.0", needs=[("org/base", 1)], files={"__init__.py": BASE + ANSWER}
    )
    project = tmp_path / "theirs"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"org/top" = 1\n')
    lock_kernels(SimpleNamespace(project_dir=project))
    download_kernels(SimpleNamespace(project_dir=project, all_variants=False))
    cache = HubCache(tmp_path / "hf-cache")
    settings = RegistrySettings("here", served.endpoint)
    served.log.requests.clear()
    shelves = Shelves(policy=Policy((settings,)), cache=cache, offline=True, trust=True)
    lock = read_any_lock(project / "kernels.lock").lock
    assert load_locked(shelves, lock, "org/top").answer() == "kernel-base 1.0.0"
    assert not served.log.requests
    del kernels


def test_a_variant_holds_no_other_file_while_it_is_filled(world, monkeypatch):
    """Another process may be hashing it at that moment."""
    seen = set()
    real = os.replace

    def replace(source, target):
        for place in (world.root / "cache").glob("kernels--*/snapshots/*/build/*"):
            seen.update(path.name for path in place.iterdir())
        return real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    sync(world.shelves(), world.lock())
    sync(world.shelves(), world.lock())
    assert seen <= {"__init__.py", "metadata.json"}
    assert seen
