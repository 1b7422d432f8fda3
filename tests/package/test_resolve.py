"""Which versions go together: against brute force, and what is said where none do."""

from __future__ import annotations

import itertools
import random

import pytest

from kernelmill.errors import NotPublishedError, ResolutionError
from kernelmill.package.index import KernelNeed
from kernelmill.package.resolve import MOST_WAYS, Step, chains_to, resolve
from kernelmill.package.wanted import Wanted, parse_version
from published_kernels import Counted, new_registry, release


@pytest.fixture
def registry(tmp_path):
    return new_registry(tmp_path / "registry")


def need(repo_id, wanted):
    return KernelNeed(repo_id, Wanted.parse(wanted))


def chosen(found):
    return {pin.slot: str(pin.published) for pin in found.pins}


def test_the_newest_versions_that_go_together(registry):
    for version in ("1.0.0", "1.5.0", "2.0.0"):
        release(registry, "org/c", version)
    release(registry, "org/a", "1.0.0", ranged=[("org/c", ">=1,<2")], python=["einops>=0.7"])
    release(registry, "org/b", "1.0.0", ranged=[("org/c", ">=1.2")], python=["einops<1"])
    found = resolve(registry, [need("org/a", ">=1"), need("org/b", 1)])
    assert chosen(found) == {"org/a": "1.0.0", "org/b": "1.0.0", "org/c": "1.5.0"}
    assert [str(p) for p in found.python] == ["einops<1,>=0.7"]
    assert found.roots == ("org/a", "org/b")
    assert {pin.slot: [str(n) for n in pin.leads_to.values()] for pin in found.pins} == {
        "org/a": ["org/c (<2,>=1)"],
        "org/b": ["org/c (>=1.2)"],
        "org/c": [],
    }  # fmt: skip


def test_an_older_version_is_taken_where_the_newest_cannot_be(registry):
    release(registry, "org/c", "1.0.0")
    release(registry, "org/a", "1.0.0", ranged=[("org/c", "<2")])
    release(registry, "org/a", "1.1.0", ranged=[("org/c", ">=2")])
    assert chosen(resolve(registry, [need("org/a", "")])) == {"org/a": "1.0.0", "org/c": "1.0.0"}
    release(registry, "org/d", "1.0.0", python=["einops>=2"])
    release(registry, "org/d", "0.9.0", python=["einops>=1"])
    release(registry, "org/e", "1.0.0", python=["einops<2"])
    found = resolve(registry, [need("org/d", ""), need("org/e", "")])
    assert chosen(found) == {"org/d": "0.9.0", "org/e": "1.0.0"}


def test_what_was_locked_stays_as_long_as_it_may(registry):
    old = release(registry, "org/a", "1.0.0")
    release(registry, "org/a", "1.1.0")
    assert chosen(resolve(registry, [need("org/a", 1)], preferred={"org/a": old})) == {
        "org/a": "1.0.0"
    }
    found = resolve(registry, [need("org/a", ">=1.1")], preferred={"org/a": old})
    assert chosen(found) == {"org/a": "1.1.0"}


def test_revisions(registry):
    first = release(registry, "org/a", "1.0.0", index=False, tag="v1.0.0")
    release(registry, "org/a", "1.1.0", index=False)
    for revision in (first, first[:10], "v1.0.0"):
        found = resolve(registry, [KernelNeed("org/a", Wanted(revision=revision))])
        assert [(pin.published.commit, str(pin.published)) for pin in found.pins] == [
            (first, "1.0.0")
        ]
    both = [KernelNeed("org/a", Wanted(revision=first)), need("org/a", ">=1.1")]
    with pytest.raises(ResolutionError, match=r"the project -> org/a \(>=1.1\)"):
        resolve(registry, both)


def test_the_chain_to_what_cannot_be_is_printed(registry):
    for version in ("1.0.0", "1.4.0", "2.0.0"):
        release(registry, "org/c", version)
    release(registry, "org/b", "3.1.0", ranged=[("org/c", ">=2")])
    release(registry, "org/a", "1.0.0", ranged=[("org/b", ">=3"), ("org/c", ">=1.2,<2")])
    with pytest.raises(ResolutionError) as caught:
        resolve(registry, [need("org/a", ">=1")])
    assert str(caught.value) == (
        "no versions meet all requirements:\n"
        "  org/c: no published version meets all of these requirements "
        "(published: 2.0.0, 1.4.0, 1.0.0)\n"
        "    the project -> org/a 1.0.0 -> org/b 3.1.0 -> org/c (>=2)\n"
        "    the project -> org/a 1.0.0 -> org/c (<2,>=1.2)\n\n"
        'hint: relax one of them, or allow several major versions: side-by-side = ["org/c"]'
    )
    found = resolve(registry, [need("org/a", ">=1")], side_by_side=["org/c"])
    assert chosen(found) == {
        "org/a": "1.0.0", "org/b": "3.1.0", "org/c@1": "1.4.0", "org/c@2": "2.0.0",
    }  # fmt: skip


def test_python_ranges_that_exclude_each_other(registry):
    release(registry, "org/a", "1.0.0", python=["einops>=0.8"])
    release(registry, "org/b", "1.0.0", python=["einops<0.8"])
    with pytest.raises(ResolutionError) as caught:
        resolve(registry, [need("org/a", 1), need("org/b", 1)])
    assert str(caught.value) == (
        "no versions meet all requirements:\n"
        "  einops: no version of this Python package is in all ranges\n"
        "    the project -> org/a 1.0.0 -> einops>=0.8\n"
        "    the project -> org/b 1.0.0 -> einops<0.8\n\n"
        "hint: relax one of the ranges"
    )


def test_a_version_that_does_not_exist(registry):
    release(registry, "org/a", "1.0.0")
    with pytest.raises(ResolutionError) as caught:
        resolve(registry, [need("org/a", ">=1.2")])
    assert str(caught.value).splitlines()[1] == (
        "  org/a: no published version meets this requirement (published: 1.0.0)"
    )
    release(registry, "org/b", "1.0.0", needs=[("org/none", 1)])
    with pytest.raises(NotPublishedError, match="no repository org/none"):
        resolve(registry, [need("org/b", 1)])


def test_circles_are_refused(registry):
    release(registry, "org/a", "1.0.0", needs=[("org/b", 1)])
    release(registry, "org/b", "1.0.0", needs=[("org/c", 1)])
    release(registry, "org/c", "1.0.0", needs=[("org/b", 1)])
    with pytest.raises(ResolutionError, match="circle: org/b -> org/c -> org/b"):
        resolve(registry, [need("org/a", 1)])


def test_dependencies_are_those_of_all_variants(registry):
    release(registry, "org/c", "1.0.0")
    release(registry, "org/a", "1.0.0", index=False, variants=("torch-cpu",))
    release(registry, "org/a", "1.0.0", index=False, variants=("torch-cuda",), needs=[("org/c", 1)])
    assert set(chosen(resolve(registry, [need("org/a", 1)]))) == {"org/a", "org/c"}


def test_each_thing_is_asked_once_and_in_parallel():
    registry = Counted(new_registry("memory://asked-once"), wait=0.05)
    for n in range(20):
        release(registry.registry, f"org/k{n}", "1.0.0", ranged=[("org/base", ">=1")])
    release(registry.registry, "org/base", "1.0.0")
    resolve(registry, [need(f"org/k{n}", ">=1,<2") for n in range(20)])
    assert registry.asked == {"read": 21, "refs": 21}
    assert registry.most > 8


def brute_force(worlds, needs):
    """The best assignment: lexicographically the newest versions that meet all that is asked."""
    repos = sorted(worlds)
    fits = []
    for picks in itertools.product(*[[None, *worlds[repo]] for repo in repos]):
        pick = dict(zip(repos, picks, strict=True))
        asked = list(needs)
        for repo, version in pick.items():
            asked += worlds[repo][version] if version else []
        if all(pick[r] and Wanted.parse(w).admits(parse_version(pick[r])) for r, w in asked):
            fits.append(pick)
    return fits


@pytest.mark.parametrize("seed", range(25))
def test_random_worlds_against_brute_force(seed):
    draw = random.Random(seed)
    registry = new_registry(f"memory://random-worlds-{seed}")
    names = ["org/a1", "org/b1", "org/c1", "org/d1"]
    worlds = {}
    for position, name in enumerate(names):
        versions = draw.sample(["1.0.0", "1.1.0", "2.0.0", "2.1.0"], draw.randint(1, 3))
        worlds[name] = {}
        for version in sorted(versions):
            later = names[position + 1 :]
            rows = [
                (other, draw.choice([">=1.1", "<2", ">=2", ">=1", "!=1.1", "==2.*"]))
                for other in draw.sample(later, draw.randint(0, len(later)))
            ]
            worlds[name][version] = rows
            release(registry, name, version, ranged=rows)
    needs = [(name, draw.choice([">=1", "<2", ">=2"])) for name in names[:2]]
    fits = brute_force(worlds, needs)
    try:
        found = chosen(resolve(registry, [need(*row) for row in needs]))
    except ResolutionError:
        assert not fits
        return
    assert any(all(pick[repo] == version for repo, version in found.items()) for pick in fits)


def test_deep_chains_and_nets_of_diamonds():
    registry = new_registry("memory://deep-chains")
    for n in range(120):
        release(registry, f"org/d{n}", "1.0.0", ranged=[(f"org/d{n + 1}", ">=1")])
    release(registry, "org/d120", "1.0.0")
    assert len(resolve(registry, [need("org/d0", 1)]).pins) == 121
    roots, edges = {"n0a": Step("", need("org/n0a", 1))}, {}
    for level in range(40):
        for side in "ab":
            edges[f"n{level}{side}"] = {
                f"n{level + 1}{to}": Step("", need(f"org/n{level + 1}{to}", 1)) for to in "ab"
            }
    assert len(chains_to("n4b", roots, edges)) == 8
    assert len(chains_to("n9b", roots, edges)) == MOST_WAYS
    assert chains_to("n40a", roots, edges) == ()  # too far to be shown, and no hang


def test_a_search_without_end_ends(registry, monkeypatch):
    monkeypatch.setattr("kernelmill.package.resolve.MOST_ROUNDS", 1)
    release(registry, "org/c", "1.0.0")
    release(registry, "org/a", "1.0.0", ranged=[("org/c", ">=1")])
    with pytest.raises(ResolutionError) as caught:
        resolve(registry, [need("org/a", 1)])
    assert str(caught.value) == (
        "no set of versions was found in 1 rounds\n\nhint: narrow the ranges in pyproject.toml"
    )


def test_a_branch_without_an_index_is_looked_at_once(tmp_path):
    registry = Counted(new_registry(tmp_path / "registry"))
    for major in (1, 2, 3):
        release(registry, "org/a", f"{major}.0.0", index=False, tag=f"v{major}.0.0")
        release(registry, "org/a", f"{major}.1.0", index=False)
    registry.asked.clear()
    assert chosen(resolve(registry, [need("org/a", ">=1,<3")])) == {"org/a": "2.1.0"}
    assert registry.asked == {"read": 4, "refs": 1, "files": 3}
