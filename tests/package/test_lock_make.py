"""Locks of projects: what they hold, that they stay, when they do not hold any more."""

from __future__ import annotations

import hashlib
import json

import pytest

from kernelmill.errors import LockError, PackageError, RegistryError, ResolutionError
from kernelmill.package.dependencies import read_dependencies
from kernelmill.package.lock import read_lock
from kernelmill.package.lock_hf import read_hf_lock
from kernelmill.package.lock_make import check_lock, make_lock, write_lock
from kernelmill.package.registry import Add, File
from kernelmill.package.registry_files import FilesRegistry
from kernelmill.package.shelf import open_shelf
from kernelmill.package.versions import newest
from kernelmill.package.wanted import Wanted
from published_kernels import UNIVERSAL, Counted, new_registry, release, variant_files


@pytest.fixture
def registry(tmp_path):
    return new_registry(tmp_path / "registry")


@pytest.fixture
def project(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    return place


def ask(project, text):
    (project / "pyproject.toml").write_text(text)


def lock(registry, project, **options):
    made = make_lock(registry, read_dependencies(project), **options)
    write_lock(project, made)
    return made


OURS = '[tool.kernelmill.dependencies]\n"org/top" = ">=1,<2"\n'
THEIRS = '[tool.kernels.dependencies]\n"org/top" = 1\n'


def test_every_file_of_every_variant_is_taken_down(registry, project):
    for name in ("torch-cpu", UNIVERSAL):
        release(registry, "org/top", "1.2.0", variants=(name,), files={f"sub/{name}.py": name})
    ask(project, OURS)
    kernel = lock(registry, project).lock.kernels["org/top"]
    assert (kernel.version, kernel.revision, kernel.integer) == ("1.2.0", "v1", 1)
    assert kernel.commit == registry.commit("org/top", "v1")
    listed = {f.path for f in registry.files("org/top", kernel.commit)}
    for name, variant in kernel.variants.items():
        for path, file in variant.files.items():
            body = registry.read("org/top", kernel.commit, f"build/{name}/{path}")
            assert (file.sha256, file.size) == (hashlib.sha256(body).hexdigest(), len(body))
            listed.discard(f"build/{name}/{path}")
    assert not listed


def test_large_files_and_those_without_a_digest(tmp_path, project):
    small = FilesRegistry(open_shelf(str(tmp_path / "registry")), large=64)
    body = b"x" * 200
    release(small, "org/top", "1.0.0", files={"big.so": body})
    release(small, "org/bare", "1.0.0", files={"big.so": body}, digest=False)
    ask(project, OURS + '"org/bare" = 1\n')
    kernels = lock(small, project).lock.kernels
    for slot in ("org/top", "org/bare"):
        files = kernels[slot].variants[UNIVERSAL].files
        assert files["big.so"].sha256 == hashlib.sha256(body).hexdigest()
        assert set(files) == {"__init__.py", "big.so", "metadata.json"}
        code = small.read("org/" + slot[4:], kernels[slot].commit, f"build/{UNIVERSAL}/__init__.py")
        assert files["__init__.py"].sha256 == hashlib.sha256(code).hexdigest()


def test_metadata_that_contradicts_the_repository_is_not_locked(tmp_path, project):
    small = FilesRegistry(open_shelf(str(tmp_path / "registry")), large=64)
    good = variant_files("kernel-top", "1.0.0", files={"big.so": b"x" * 200})
    ask(project, OURS)

    def push(files):
        small.create("org/top")
        adds = [Add(f"build/torch-cpu/{p}", b) for p, b in files.items()]
        small.publish("org/top", "v1", adds, message="x")
        with pytest.raises(LockError) as caught:
            lock(small, project)
        return str(caught.value).partition("\n")[0]

    assert push({**good, "big.so": b"y" * 200}).startswith(
        "org/top@v1: build/torch-cpu: big.so is "
    )
    assert push({**good, "new.py": b""}) == (
        "org/top@v1: build/torch-cpu: new.py is there, but not in the digest of its metadata"
    )
    facts = json.loads(good["metadata.json"])
    facts["digest"]["files"]["gone.py"] = facts["digest"]["files"]["__init__.py"]
    assert push({**good, "metadata.json": json.dumps(facts).encode(), "new.py": b""}) == (
        "org/top@v1: build/torch-cpu: gone.py is missing, but in the digest of its metadata"
    )


def test_locking_again_changes_nothing_until_it_is_asked_for(registry, project):
    release(registry, "org/base", "1.0.0")
    release(registry, "org/top", "1.0.0", ranged=[("org/base", ">=1")])
    ask(project, OURS)
    first = lock(registry, project).lock
    text = (project / "kernelmill.lock").read_text()
    release(registry, "org/base", "1.1.0")
    release(registry, "org/top", "1.1.0", ranged=[("org/base", ">=1")])
    again = lock(registry, project, previous=first)
    assert (project / "kernelmill.lock").read_text() == text
    some = lock(registry, project, previous=again.lock, upgrade=["org/base"]).lock
    assert {s: k.version for s, k in some.kernels.items()} == {
        "org/base": "1.1.0", "org/top": "1.0.0",
    }  # fmt: skip
    everything = lock(registry, project, previous=some, upgrade=True).lock
    assert {s: k.version for s, k in everything.kernels.items()} == {
        "org/base": "1.1.0", "org/top": "1.1.0",
    }  # fmt: skip
    assert read_lock(project / "kernelmill.lock").kernels == everything.kernels


def test_the_lock_of_others_names_integers_and_what_kernels_depend_on(registry, project):
    base = release(registry, "org/base", "2.1.0")
    mid = release(registry, "org/mid", "1.0.0", needs=[("org/base", "v2")])
    top = release(
        registry, "org/top", "1.0.0", needs=[("org/mid", 1)], ranged=[("org/base", ">=2")]
    )
    ask(project, OURS)
    lock(registry, project)
    found = read_hf_lock(project / "kernels.lock").commits
    assert {str(need): commit for need, commit in found.items()} == {
        "org/top (version 1)": top, "org/mid (version 1)": mid, "org/base (revision v2)": base,
    }  # fmt: skip


def test_short_commits_are_stored_long(registry, project):
    old = release(registry, "org/top", "1.0.0", index=False)
    release(registry, "org/top", "1.1.0", index=False)
    ask(project, f'[tool.kernelmill.dependencies]\n"org/top" = {{ revision = "{old[:8]}" }}\n')
    made = lock(registry, project)
    assert made.lock.kernels["org/top"].commit == old
    assert list(made.hf.commits.values()) == [old]


def test_several_major_versions(registry, project):
    release(registry, "org/base", "1.0.0")
    release(registry, "org/base", "2.0.0")
    release(registry, "org/mid", "1.0.0", needs=[("org/base", 2)])
    ask(project, '[tool.kernels.dependencies]\n"org/base" = 1\n"org/mid" = 1\n')
    assert set(lock(registry, project).lock.kernels) == {"org/base@1", "org/base@2", "org/mid@1"}
    ask(project, '[tool.kernelmill]\n[tool.kernels.dependencies]\n"org/base" = 1\n"org/mid" = 1\n')
    with pytest.raises(ResolutionError, match='side-by-side = \\["org/base"\\]'):
        lock(registry, project)
    ask(
        project,
        '[tool.kernelmill]\nside-by-side = ["org/base"]\n'
        '[tool.kernels.dependencies]\n"org/base" = 1\n"org/mid" = 1\n',
    )
    made = lock(registry, project)
    assert set(made.lock.kernels) == {"org/base@1", "org/base@2", "org/mid"}
    assert len(made.hf.commits) == 3
    check_lock(project, registry)


# ----------------------------------------------------------------------------- does it still hold


@pytest.fixture
def locked(registry, project):
    release(registry, "org/top", "1.0.0", index=False, semantic=False)
    ask(project, THEIRS)
    lock(registry, project)
    return project


def refusal(project, registry):
    with pytest.raises(LockError) as caught:
        check_lock(project, registry)
    return str(caught.value).replace(str(project), "P").partition("\n\nhint")[0]


def test_a_lock_that_holds(locked, registry):
    assert set(check_lock(locked, registry).kernels) == {"org/top@1"}
    assert set(check_lock(locked, None).kernels) == {"org/top@1"}


def test_a_branch_that_has_moved_is_refused(locked, registry):
    old = registry.commit("org/top", "v1")
    new = release(registry, "org/top", "1.0.0", index=False, semantic=False, salt="!")
    check_lock(locked, None)
    assert refusal(locked, registry) == (
        "P/kernelmill.lock does not hold any more:\n"
        f"  org/top@1: v1 stood at {old} (1) when it was locked; the registry now has {new} (1)"
    )


@pytest.mark.parametrize("asked", ["1", '">=1,<2"'])
def test_a_branch_that_went_back_is_refused(registry, project, asked):
    first = release(registry, "org/top", "1.0.0")
    second = release(registry, "org/top", "1.1.0")
    ask(project, f'[tool.kernelmill.dependencies]\n"org/top" = {asked}\n')
    lock(registry, project)
    registry.move("org/top", "v1", first)
    assert refusal(project, registry) == (
        "P/kernelmill.lock does not hold any more:\n"
        f"  org/top: v1 stood at {second} (1.1.0) when it was locked; "
        f"the registry now has {first} (1.0.0)"
    )
    registry.move("org/top", "v1", second)
    release(registry, "org/top", "1.2.0")
    assert check_lock(project, registry).kernels["org/top"].commit == second


def test_an_integer_means_the_head_even_where_it_went_back(registry, project):
    first = release(registry, "org/top", "1.0.0")
    release(registry, "org/top", "1.1.0")
    registry.move("org/top", "v1", first)
    ask(project, THEIRS)
    assert list(lock(registry, project).hf.commits.values()) == [first]
    assert newest(registry, "org/top", Wanted.parse(1)).published.commit == first
    assert str(newest(registry, "org/top", Wanted.parse("<2")).published) == "1.1.0"


def test_a_tag_that_has_moved_is_refused(registry, project):
    old = release(registry, "org/top", "1.0.0", index=False, tag="v1.0.0")
    ask(project, '[tool.kernelmill.dependencies]\n"org/top" = { revision = "v1.0.0" }\n')
    lock(registry, project)
    new = release(registry, "org/top", "1.0.0", index=False, tag="v1.0.0", salt="!")
    assert refusal(project, registry) == (
        "P/kernelmill.lock does not hold any more:\n"
        f"  org/top: v1.0.0 stood at {old} (1.0.0) when it was locked; "
        f"the registry now has {new} (1.0.0)"
    )


def test_a_tag_against_the_index_is_refused(registry, project):
    release(registry, "org/top", "1.0.0", tag="v1.0.0")
    release(registry, "org/top", "1.0.0", index=False, tag="v1.0.0", salt="!")
    ask(project, OURS)
    with pytest.raises(
        PackageError, match="org/top: the tag v1.0.0 stands at .* the index on main"
    ):
        lock(registry, project)


def test_a_new_version_does_not_break_a_lock(registry, project):
    release(registry, "org/top", "1.0.0")
    ask(project, OURS)
    lock(registry, project)
    release(registry, "org/top", "1.1.0")
    assert check_lock(project, registry).kernels["org/top"].version == "1.0.0"


def test_a_project_that_asks_for_something_else(locked, registry):
    ask(locked, THEIRS + '"org/new" = 2\n')
    assert refusal(locked, None) == (
        "P/kernelmill.lock does not hold any more:\n"
        "  pyproject.toml asks for org/new (version 2), which is not what was locked"
    )
    ask(locked, '[tool.kernels.dependencies]\n"org/top" = 2\n')
    assert refusal(locked, registry).splitlines()[1:] == [
        "  pyproject.toml asks for org/top (version 2), which is not what was locked",
        "  it was made for org/top (version 1), which pyproject.toml does not ask for",
    ]


def test_locks_that_contradict_each_other(locked, registry):
    body = json.loads((locked / "kernels.lock").read_text())
    was = body[0]["lock"]["commit"]
    body[0]["lock"]["commit"] = "f" * 40
    (locked / "kernels.lock").write_text(json.dumps(body))
    assert refusal(locked, registry).splitlines()[1:] == [
        f"  kernels.lock has org/top (version 1) at {'f' * 40}, kernelmill.lock has not",
        f"  kernelmill.lock has org/top@1 at {was}, kernels.lock has not",
    ]


def test_what_a_project_may_ask_for(project):
    def refused(text):
        ask(project, text)
        with pytest.raises(PackageError) as caught:
            read_dependencies(project)
        return str(caught.value).replace(str(project), "P").partition("\n")[0]

    assert refused("[tool.kernels.dependencies]\n'org/a' = '>=1'\n") == (
        "P/pyproject.toml: tool.kernels.dependencies.\"org/a\" is '>=1'; "
        "accepted there: an integer, since `kernels` reads it too"
    )
    assert refused("[tool.kernelmill.dependencies]\n'a' = 1\n").startswith(
        "a key of P/pyproject.toml: tool.kernelmill.dependencies is 'a'; accepted: organization"
    )
    assert refused("[tool.kernelmill]\ndependencies = 3\n") == (
        "P/pyproject.toml: tool.kernelmill.dependencies is '3'; accepted: a table"
    )
    assert refused("[tool.kernelmill]\nside-by-side = 3\ndependencies = {'o/a' = 1}\n") == (
        "P/pyproject.toml: tool.kernelmill.side-by-side is 3; "
        "accepted: true, false or a list of kernels"
    )
    assert refused("x = ").startswith("P/pyproject.toml is no TOML: ")
    assert refused("") == "P/pyproject.toml names no kernels"
    (project / "pyproject.toml").unlink()
    assert refused.__closure__ is not None
    with pytest.raises(PackageError, match=r"there is no .*pyproject.toml"):
        read_dependencies(project)


def test_a_hundred_dependencies_take_few_requests(project):
    registry = Counted(new_registry("memory://a-hundred-dependencies"))
    rows = []
    for n in range(100):
        release(registry.registry, f"org/k{n:02}", "1.0.0")
        rows.append(f'"org/k{n:02}" = ">=1"')
    ask(project, "[tool.kernelmill.dependencies]\n" + "\n".join(rows))
    made = make_lock(registry, read_dependencies(project))
    assert len(made.lock.kernels) == 100
    assert registry.asked == {"read": 200, "refs": 100, "files": 100}


# ----------------------------------------------------------------------------- what fails on the way


def test_a_registry_that_fails_leaves_the_lock_as_it_was(locked, registry):
    before = (locked / "kernelmill.lock").read_bytes(), (locked / "kernels.lock").read_bytes()
    release(registry, "org/top", "1.0.0", index=False, semantic=False, salt="!")
    for method in ("refs", "files", "read"):

        class Failing:
            def __getattr__(self, name, method=method):
                if name != method:
                    return getattr(registry, name)

                def fail(*args, **options):
                    raise RegistryError("503")

                return fail

        with pytest.raises(RegistryError, match="503"):
            lock(Failing(), locked)
    after = (locked / "kernelmill.lock").read_bytes(), (locked / "kernels.lock").read_bytes()
    assert after == before


def test_a_full_disk_leaves_the_lock_as_it_was(locked, registry, monkeypatch):
    before = (locked / "kernelmill.lock").read_bytes()
    release(registry, "org/top", "1.0.0", index=False, semantic=False, salt="!")
    made = make_lock(registry, read_dependencies(locked))

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_lock(locked, made)
    monkeypatch.undo()
    assert (locked / "kernelmill.lock").read_bytes() == before
    assert sorted(p.name for p in locked.iterdir()) == [
        "kernelmill.lock", "kernels.lock", "pyproject.toml",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("build/torch-cpu/../../evil", "the path"),
        ("build/torch-cpu/metadata.json", "no JSON|is not JSON"),
    ],
)
def test_hostile_repositories(registry, project, path, text):
    release(registry, "org/top", "1.0.0", index=False, variants=("torch-cpu",))
    ask(project, THEIRS)

    class Hostile:
        def __getattr__(self, name):
            return getattr(registry, name)

        def read(self, repo_id, commit, name, **options):
            return b"{" if name == path else registry.read(repo_id, commit, name, **options)

        def files(self, repo_id, commit):
            return (*registry.files(repo_id, commit), File(path, 1, "0" * 40))

    with pytest.raises(PackageError, match=text):
        lock(Hostile(), project)
