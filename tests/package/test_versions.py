"""Which versions a repository has: from its index, its branches, its tags; what this machine loads."""

from __future__ import annotations

import json

import pytest

from kernelmill.errors import NotPublishedError, PackageError, RegistryError
from kernelmill.package.metadata import Metadata
from kernelmill.package.registry import Add
from kernelmill.package.system import System
from kernelmill.package.versions import describe, needs_of, newest, published, survey
from kernelmill.package.wanted import Wanted
from published_kernels import Counted, new_registry, release

CPU = System.parse("cpu-x86_64-linux", torch="2.13")
REPO = "org/gray"


@pytest.fixture
def registry(tmp_path):
    return Counted(new_registry(tmp_path / "registry"))


def shown(found):
    return [(str(one), one.branch, one.tag) for one in found]


def test_the_index_answers_in_one_request_older_versions_too(registry):
    commits = {v: release(registry, REPO, v) for v in ("1.0.0", "1.1.0", "2.0.0")}
    registry.asked.clear()
    found = survey(registry, REPO, system=CPU)
    assert registry.asked == {"read": 1}
    assert shown(s.published for s in found) == [
        ("2.0.0", "v2", ""), ("1.1.0", "v1", ""), ("1.0.0", "", ""),
    ]  # fmt: skip
    assert {str(s.published): s.published.commit for s in found} == commits
    assert [str(s.choice.best) for s in found] == ["torch-universal"] * 3


def test_without_an_index_references_take_one_request_and_each_version_one(registry):
    for version in ("1.0.0", "1.1.0", "2.3.0", "3.0.0"):
        release(registry, REPO, version, index=False, semantic=False)
    registry.registry.move(REPO, "notes", registry.refs(REPO).branches[0].commit)
    registry.asked.clear()
    registry.wait = 0.05
    found = survey(registry, REPO, index=False, system=CPU)
    assert registry.asked == {"refs": 1, "files": 3}
    assert registry.most == 3  # at the same time
    assert shown(s.published for s in found) == [("3", "v3", ""), ("2", "v2", ""), ("1", "v1", "")]
    registry.asked.clear()
    survey(registry, REPO, system=CPU)
    assert registry.asked == {"read": 1, "refs": 1, "files": 3}  # the index was looked for


def test_tags_name_versions_that_branches_have_left(registry):
    release(registry, REPO, "1.0.0", index=False, tag="v1.0.0")
    release(registry, REPO, "1.1.0", index=False, tag="1.1.0")
    release(registry, REPO, "1.2.0", index=False, tag="nightly")
    found = published(registry, REPO)
    assert shown(found) == [("1", "v1", ""), ("1.1.0", "", "1.1.0"), ("1.0.0", "", "v1.0.0")]
    assert str(describe(registry, REPO, found[0])) == "1.2.0"


def test_two_branches_at_one_commit_are_two_versions(registry):
    commit = release(registry, REPO, "1.0.0", index=False, semantic=False)
    registry.registry.move(REPO, "v2", commit)
    assert shown(published(registry, REPO)) == [("2", "v2", ""), ("1", "v1", "")]


def test_a_branch_ahead_of_the_index_is_seen_when_references_are_asked(registry):
    old = release(registry, REPO, "1.0.0")
    new = release(registry, REPO, "1.1.0", index=False)
    assert [one.commit for one in published(registry, REPO)] == [old]
    found = published(registry, REPO, refs=True)
    assert [(one.commit, one.branch) for one in found] == [(new, "v1"), (old, "")]
    chosen = newest(registry, REPO, Wanted.parse(">=1,<2"), system=CPU)
    assert (str(chosen.published), chosen.published.commit) == ("1.1.0", new)
    assert newest(registry, REPO, Wanted.parse(1), system=CPU).published.commit == new


def test_the_newest_version_in_a_range_that_this_machine_loads(registry):
    release(registry, REPO, "1.0.0")
    loads = release(registry, REPO, "1.1.0", variants=("torch-cpu", "torch-cuda"))
    release(registry, REPO, "1.2.0", variants=("torch-cuda",))
    release(registry, REPO, "2.0.0rc1")
    # A branch keeps variants of earlier versions unless they are deleted; the index says which count.
    chosen = newest(registry, REPO, Wanted.parse(">=1.1,<2"), system=CPU)
    assert (chosen.variant, chosen.published.commit) == ("torch-cpu", loads)
    assert newest(registry, REPO, Wanted.parse("==1.0.*"), system=CPU).published.version.minor == 0
    assert newest(registry, REPO, Wanted(revision=loads[:9]), system=CPU).published.commit == loads
    with pytest.raises(PackageError) as caught:
        newest(registry, REPO, Wanted.parse(">1.1,<2"), system=CPU)
    assert str(caught.value) == (
        "org/gray (<2,>1.1) has no variant for this machine:\n"
        "  1.2.0: torch-cuda: it is for cuda; this system has cpu\n\n"
        "hint: `kernelmill versions org/gray` shows all versions"
    )
    with pytest.raises(NotPublishedError) as caught:
        newest(registry, REPO, Wanted.parse(">=2"), system=CPU)
    assert str(caught.value) == (
        "org/gray has no version in the range >=2; published: 2.0.0rc1, 1.2.0, 1.1.0, 1.0.0"
    )
    with pytest.raises(NotPublishedError, match=r"org/gray has no version 7; published: 2.0.0rc1"):
        newest(registry, REPO, Wanted.parse(7), system=CPU)


def test_a_short_commit_means_exactly_one(registry):
    inner = registry.registry
    inner.create(REPO)
    commits = [
        inner.publish(REPO, "v1", [Add("a", str(n).encode())], message=str(n)).id for n in range(40)
    ]
    whole = commits[3]
    unique = next(n for n in range(7, 40) if sum(c.startswith(whole[:n]) for c in commits) == 1)
    assert inner.commit(REPO, whole[:unique]) == whole
    with pytest.raises(NotPublishedError, match="has no revision"):
        inner.commit(REPO, whole[:6])  # too short to mean a commit


def test_what_is_wrong_is_said(registry):
    with pytest.raises(NotPublishedError, match="has no repository org/none"):
        published(registry, "org/none")
    release(registry, REPO, "1.0.0", index=False)
    registry.publish(REPO, "main", [Add("kernelmill-index.json", b"{}")], message="x")
    with pytest.raises(PackageError, match=r"org/gray: kernelmill-index.json: format is None"):
        published(registry, REPO)
    assert len(published(registry, REPO, index=False)) == 1
    release(registry, "org/wrong", "1.4.0", index=False, branch="v2")
    with pytest.raises(PackageError) as caught:
        describe(registry, "org/wrong", published(registry, "org/wrong")[0])
    assert str(caught.value) == (
        "org/wrong: the branch v2 holds version 1.4.0; accepted there: 2.*\n\n"
        "hint: its publisher pushed to the wrong branch"
    )


def test_a_registry_that_fails_is_not_taken_for_one_without_an_index(registry):
    release(registry, REPO, "1.0.0")

    def read(*args, **options):
        raise RegistryError("500")

    registry.registry.read = read
    with pytest.raises(RegistryError, match="500"):
        published(registry, REPO)


def test_half_pushed_variants_count_as_the_version_that_all_have(registry):
    release(registry, REPO, "1.1.0", index=False, variants=("torch-cpu", "torch-cuda"))
    release(registry, REPO, "1.2.0", index=False, variants=("torch-cpu",))
    assert str(describe(registry, REPO, published(registry, REPO)[0])) == "1.1.0"


@pytest.mark.parametrize("extra", [3, {}, "einops", ["!"]])
def test_python_needs_that_are_no_list_are_named(extra):
    facts = {
        "name": "gray",
        "id": "_gray",
        "version": 1,
        "license": "MIT",
        "python-depends": [],
        "backend": {"type": "cpu"},
        "kernelmill": {"python-depends": extra},
    }
    with pytest.raises(PackageError, match=r"^org/gray: kernelmill\.python-depends"):
        needs_of([Metadata.parse(json.dumps(facts))], place=REPO)


@pytest.mark.parametrize(
    "text", ["", "kind = 3", "[", "a = " + "[" * 5000, "kind = 'redirect'", "kind = 'other'"]
)
def test_a_repository_without_versions(registry, text):
    registry.create(REPO)
    registry.publish(REPO, "main", [Add("kernel-status.toml", text.encode())], message="x")
    assert published(registry, REPO) == ()
    with pytest.raises(NotPublishedError, match="has no version 1; published: none"):
        newest(registry, REPO, Wanted.parse(1), system=CPU)


def test_a_kernel_that_moved_is_said_and_not_followed(registry):
    """`kernels` has code for this, and never calls it."""
    release(registry, "evil/gray", "1.0.0")
    registry.create(REPO)
    status = b'kind = "redirect"\ndestination = "evil/gray"\nrevision = "v1"\n'
    registry.publish(REPO, "main", [Add("kernel-status.toml", status)], message="moved")
    for ask in (published, survey, lambda r, n: newest(r, n, Wanted.parse(1), system=CPU)):
        with pytest.raises(NotPublishedError) as caught:
            ask(registry, REPO)
        assert str(caught.value) == (
            "org/gray has no versions; its kernel-status.toml says that the kernel moved to "
            "'evil/gray'\n\nhint: name that repository, if you trust its publisher"
        )
