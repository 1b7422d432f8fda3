"""Publishing: only what changed, a version once, an index on `main`; what we push the real clients load."""

from __future__ import annotations

import json

import pytest

from hub_clients import WRITER, clean, forget_kernels, served  # noqa: F401 - fixtures
from kernel_packages import write_metadata, write_project
from kernelmill import hub
from kernelmill.errors import IntegrityError, PackageError, RegistryError
from kernelmill.package.index import INDEX, Index
from kernelmill.package.push import plan_push, push
from kernelmill.package.registry import Add
from kernelmill.package.registry_files import FilesRegistry
from kernelmill.package.registry_hub import HubRegistry
from kernelmill.package.shelf import open_shelf
from kernelmill.package.versions import published
from kernelmill.package.wanted import Wanted, parse_version

pytestmark = pytest.mark.filterwarnings("ignore:Use .content=:DeprecationWarning")


@pytest.fixture(params=["hub", "directory"])
def registry(request, served, tmp_path):  # noqa: F811
    if request.param == "hub":
        return HubRegistry(served.endpoint, token=WRITER.token)
    return FilesRegistry(open_shelf(str(tmp_path / "files")), large=4096)


def paths(plan, kind):
    return [c.path for c in plan.changes if isinstance(c, Add) == (kind == "+")]


def index_of(registry):
    commit = registry.commit("org/twice", "main")
    return Index.from_json(registry.read("org/twice", commit, INDEX))


def test_a_push_sends_what_changed(registry, tmp_path):
    big = bytes(range(256)) * 100
    root = write_project(tmp_path / "p", files={"big.bin": big}, variants=["torch-cpu", "torch-universal"])  # fmt: skip
    (root / "README.md").write_text("# twice\n")
    plan = plan_push(root, "org/twice", registry)
    assert len(paths(plan, "+")) == 12
    assert (plan.branch, str(plan.version), plan.parent) == ("v1", "1.0.0", "")
    first = push(plan, registry)
    assert first.moved
    assert registry.commit("org/twice", "v1") == first.commit
    again = plan_push(root, "org/twice", registry)
    assert (again.changes, again.unchanged) == ((), 12)
    assert push(again, registry).moved is False
    write_project(tmp_path / "p", files={"big.bin": big, "data.bin": None}, variants=["torch-cpu"], semantic="1.1.0")  # fmt: skip
    (root / "build/torch-cpu/data.bin").unlink()
    write_metadata(root / "build/torch-cpu", {k: v for k, v in json.loads((root / "build/torch-cpu/metadata.json").read_text()).items() if k != "digest"})  # fmt: skip
    plan = plan_push(root, "org/twice", registry, variants=["torch-cpu"])
    assert paths(plan, "-") == ["build/torch-cpu/data.bin"]
    assert sorted(paths(plan, "+")) == [
        "build/torch-cpu/__init__.py",
        "build/torch-cpu/metadata.json",
    ]
    assert plan.size < 2000
    second = push(plan, registry)
    found = index_of(registry)
    assert [(str(e.version), e.commit) for e in found.entries] == [
        ("1.1.0", second.commit), ("1.0.0", first.commit),
    ]  # fmt: skip
    assert [str(p.version) for p in published(registry, "org/twice")] == ["1.1.0", "1.0.0"]
    assert (
        registry.read("org/twice", registry.commit("org/twice", "main"), "README.md")
        == b"# twice\n"
    )


def test_what_we_push_everybody_loads(registry, tmp_path, served):  # noqa: F811
    root = write_project(tmp_path / "p", files={"big.bin": bytes(20_000)})
    pushed = push(plan_push(root, "org/twice", registry), registry)
    if not isinstance(registry, HubRegistry):
        return
    import kernels

    assert kernels.get_kernel("org/twice", version=1).twice(2) == 4
    assert hub.get_kernel("org/twice", version="~=1.0").twice(2) == 4
    assert pushed.commit in hub.loaded()[0].module.__file__


def test_a_dry_run_changes_nothing(registry, tmp_path, served):  # noqa: F811
    root = write_project(tmp_path / "p")
    plan = plan_push(root, "org/twice", registry)
    lines = list(plan.lines())
    assert lines[0] == "org/twice: version 1.0.0 to the branch v1, which is made"
    assert lines[-1].startswith("5 files to send (")
    assert "  + build/torch-universal/__init__.py" in lines
    assert not [r for r in served.log.requests if not r.startswith("GET")]
    with pytest.raises(RegistryError):
        registry.refs("org/twice")


def test_older_versions_stay_loadable(registry, tmp_path, served):  # noqa: F811
    for text in ("1.0.0", "1.1.0"):
        push(
            plan_push(write_project(tmp_path / text, semantic=text), "org/twice", registry),
            registry,
        )
    from kernelmill.package.versions import newest

    old = newest(registry, "org/twice", Wanted.parse("==1.0.0")).published
    assert old.commit in {e.commit for e in index_of(registry).entries}
    if isinstance(registry, HubRegistry):
        assert hub.get_kernel("org/twice", version="<1.1").VERSION == "1.0.0"
        assert hub.get_kernel("org/twice", version=1).VERSION == "1.1.0"


def test_a_published_version_keeps_its_contents(registry, tmp_path):
    push(plan_push(write_project(tmp_path / "p"), "org/twice", registry), registry)
    other = write_project(tmp_path / "q", files={"data.bin": b"other"})
    with pytest.raises(PackageError, match="org/twice 1.0.0 is published, and what was built here differs"):  # fmt: skip
        plan_push(other, "org/twice", registry)
    assert plan_push(other, "org/twice", registry, force=True).changes
    more = write_project(tmp_path / "r", variants=["torch-cpu"])
    push(plan_push(more, "org/twice", registry), registry)
    assert index_of(registry).entries[0].variants == ("torch-cpu", "torch-universal")
    push(
        plan_push(write_project(tmp_path / "s", semantic="1.2.0"), "org/twice", registry), registry
    )
    with pytest.raises(PackageError, match="the branch v1 has version 1.2.0, which is newer than 1.1.0"):  # fmt: skip
        plan_push(write_project(tmp_path / "t", semantic="1.1.0"), "org/twice", registry)


def test_variants_that_are_gone_are_deleted_when_asked(registry, tmp_path):
    root = write_project(tmp_path / "p", variants=["torch-cpu", "torch-universal"])
    push(plan_push(root, "org/twice", registry), registry)
    one = write_project(tmp_path / "q", variants=["torch-cpu"], semantic="1.1.0")
    assert not paths(plan_push(one, "org/twice", registry), "-")
    plan = plan_push(one, "org/twice", registry, prune=True)
    assert len(paths(plan, "-")) == 5 + 0
    push(plan, registry)
    assert index_of(registry).entries[0].variants == ("torch-cpu",)


def test_somebody_elses_push_is_not_overwritten(registry, tmp_path):
    push(plan_push(write_project(tmp_path / "p"), "org/twice", registry), registry)
    mine = plan_push(write_project(tmp_path / "q", semantic="1.1.0"), "org/twice", registry)
    push(
        plan_push(write_project(tmp_path / "r", semantic="1.2.0"), "org/twice", registry), registry
    )
    with pytest.raises(RegistryError, match="somebody else has pushed"):
        push(mine, registry)


def test_a_push_that_broke_off_is_made_again(served, tmp_path):  # noqa: F811
    """The contents that arrived are not sent twice; the branch moved once, at the end."""
    registry = HubRegistry(served.endpoint, token=WRITER.token)
    root = write_project(tmp_path / "p", files={"big.bin": bytes(9000), "more.bin": bytes(8000)})
    served.refusals["POST /api/kernels/org/twice/commit"] = 500
    with pytest.raises(RegistryError, match="the registry answered 500"):
        push(plan_push(root, "org/twice", registry), registry)
    assert "build/torch-universal/big.bin" not in [f.path for f in registry.files("org/twice", registry.commit("org/twice", "v1"))]  # fmt: skip
    served.refusals.clear()
    puts = [r for r in served.log.requests if r.startswith("PUT")]
    assert len(puts) == 2
    push(plan_push(root, "org/twice", registry), registry)
    assert [r for r in served.log.requests if r.startswith("PUT")] == puts
    assert hub.get_kernel("org/twice", version=1).twice(1) == 2


def test_a_push_whose_answer_was_lost_is_made_again(served, tmp_path):  # noqa: F811
    registry = HubRegistry(served.endpoint, token=WRITER.token)
    root = write_project(tmp_path / "p")
    served.faults["POST /api/kernels/org/twice/commit/v1"] = lambda handler, _: handler.connection.shutdown(2)  # fmt: skip
    with pytest.raises(RegistryError, match="cannot be reached or broke off"):
        push(plan_push(root, "org/twice", registry), registry)
    served.faults.clear()
    again = plan_push(root, "org/twice", registry)
    assert not again.changes
    push(again, registry)
    assert index_of(registry).entries[0].commit == registry.commit("org/twice", "v1")


def test_more_than_a_thousand_files_take_several_commits(tmp_path):
    registry = FilesRegistry(open_shelf("memory://push"), large=4096)
    files = {f"many/{i:04}.txt": b"%d" % i for i in range(1200)}
    pushed = push(
        plan_push(write_project(tmp_path / "p", files=files), "org/twice", registry), registry
    )
    assert len(registry.history("org/twice", pushed.commit)) == 2
    assert len(registry.files("org/twice", pushed.commit)) == 1205


@pytest.mark.parametrize(
    ("prepare", "text", "kind"),
    [
        (lambda d: None, "holds no variants", PackageError),
        (lambda d: (write_project(d, variants=["torch-cpu"]), write_project(d, variants=["torch-cuda"], semantic="1.1.0", backend="cuda")), "of different versions:\n  torch-cpu: 1.0.0\n  torch-cuda: 1.1.0", PackageError),
        (lambda d: write_project(d, version=2), "must be the same", PackageError),
        (lambda d: (write_project(d) / "build/torch-universal/data.bin").write_bytes(b"x"), "not what its digest promises", IntegrityError),
        (lambda d: write_project(d, variants=["nonsense"]), "names no build variant", PackageError),
        (lambda d: (write_project(d) / "build/torch-universal/x").symlink_to("/etc/passwd"), "is a link out", IntegrityError),
        (lambda d: write_project(d, semantic="one"), "accepted: MAJOR", PackageError),
    ],
)  # fmt: skip
def test_what_cannot_be_pushed_is_said(registry, tmp_path, prepare, text, kind):
    prepare(tmp_path / "p")
    with pytest.raises(kind) as caught:
        plan_push(tmp_path / "p", "org/twice", registry)
    assert text in str(caught.value)


def test_variants_of_different_sources_are_noted(registry, tmp_path):
    root = write_project(tmp_path / "p", variants=["torch-cpu"])
    write_project(root, variants=["torch-cuda"], backend="cuda")
    same = list(plan_push(root, "org/twice", registry).lines())
    assert not any(line.startswith("note: ") for line in same)
    place = root / "build" / "torch-cuda" / "metadata.json"
    known = json.loads(place.read_text())
    place.write_text(json.dumps({**known, "id": "_twice_cuda_7654321"}))
    (note,) = [
        line for line in plan_push(root, "org/twice", registry).lines() if line.startswith("note: ")
    ]
    assert note.endswith("torch-cuda (7654321); `kernelmill build --all` builds all of this one")


def test_without_a_semantic_version_the_integer_counts(registry, tmp_path):
    root = write_project(tmp_path / "p", semantic=None)
    push(plan_push(root, "org/twice", registry), registry)
    assert [p.branch for p in published(registry, "org/twice")] == ["v1"]
    other = write_project(tmp_path / "q", semantic=None, files={"data.bin": b"other"})
    assert push(plan_push(other, "org/twice", registry), registry).moved


def test_bytecode_is_never_pushed(registry, tmp_path):
    root = write_project(tmp_path / "p")
    for path in ("__pycache__/x.cpython-311.pyc", "stray.pyc"):
        place = root / "build/torch-universal" / path
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"bytecode")
    plan = plan_push(root, "org/twice", registry)
    assert not [p for p in paths(plan, "+") if p.endswith(".pyc")]
    assert plan.version == parse_version("1.0.0")
