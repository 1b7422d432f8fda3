"""What versions are asked for: integers, ranges, revisions; and which ranges some version meets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from kernelmill.errors import PackageError
from kernelmill.package.wanted import (
    PythonNeed,
    Wanted,
    branch_of,
    check_repo_id,
    integer_of_branch,
    joined,
    parse_version,
    satisfiable,
    version_of_tag,
)

NUMBERS = st.integers(0, 12)
VERSIONS = st.builds(lambda *n: ".".join(map(str, n)), NUMBERS, NUMBERS, NUMBERS)
OPERATORS = st.sampled_from([">=", "<", "<=", ">", "==", "!=", "~="])
RANGES = st.lists(st.builds(lambda o, v: o + v, OPERATORS, VERSIONS), min_size=1, max_size=4).map(
    ",".join
)


@pytest.mark.parametrize(
    ("given_", "admitted", "refused"),
    [
        (1, ["1.0.0", "1.9.9", "1.0.0rc1"], ["0.9", "2.0.0"]),
        ("1", ["1.0.0", "1.9.9"], ["2.0.0"]),
        (0, ["0.3"], ["1.0"]),
        (">=1.1,<2", ["1.1", "1.9.9"], ["1.0.9", "2.0", "1.2.0rc1"]),
        (">=1.2.0rc1", ["1.2.0rc1", "1.2.0", "3"], ["1.1"]),
        ("1.2.0", ["1.2.0", "1.2"], ["1.2.1"]),
        ("~=1.4", ["1.4", "1.9"], ["1.3", "2.0"]),
        ("==1.*", ["1.0", "1.99.1"], ["2.0"]),
        ("", ["0.1", "7"], ["7.0a1"]),
        ("*", ["0.1", "7"], ["7.0a1"]),
    ],
)
def test_what_is_asked_for_admits(given_, admitted, refused):
    wanted = Wanted.parse(given_)
    assert [v for v in admitted + refused if wanted.admits(parse_version(v))] == admitted


@given(RANGES, VERSIONS)
def test_ranges_are_those_of_pep_440(text, version):
    found = Wanted.parse(text)
    assert found.admits(parse_version(version)) == SpecifierSet(text).contains(version)
    assert Wanted.parse(found.range) == found
    again = Wanted.parse(",".join(reversed(text.split(","))))
    assert again == found


@given(RANGES)
def test_what_is_asked_for_survives_json(text):
    for wanted in (Wanted.parse(text), Wanted.parse(3), Wanted.parse({"revision": "main"})):
        assert Wanted.parse(wanted.to_json()) == wanted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "version is True; accepted: an integer from 0, or a range such as >=1.1,<2"),
        (-1, "version is -1; accepted: an integer from 0, or a range such as >=1.1,<2"),
        (1.5, "version is 1.5; accepted: an integer from 0, or a range such as >=1.1,<2"),
        (None, "version is None; accepted: an integer from 0, or a range such as >=1.1,<2"),
        ("new", "version is 'new'; accepted: an integer from 0, or a range such as >=1.1,<2"),
        ("^1.2", ("version is '^1.2'; accepted: an integer from 0, or a range such as >=1.1,<2\n\n"
                 "hint: ~=1.2 admits later versions that are compatible")),
        ({}, "version has the keys (none); accepted: exactly one of version and revision"),
        ({"version": 1, "revision": "x"},
         "version has the keys revision, version; accepted: exactly one of version and revision"),
        ({"revision": ""}, "version.revision is ''; accepted: a text"),
        ({"revision": 7}, "version.revision is 7; accepted: a text"),
        (1 << 64, ("version is 18446744073709551616; accepted: an integer from 0, "
                  "or a range such as >=1.1,<2")),
    ],
)  # fmt: skip
def test_other_values_are_refused(value, text):
    with pytest.raises(PackageError) as caught:
        Wanted.parse(value)
    assert str(caught.value) == text


def test_a_loader_needs_one_of_version_and_revision():
    assert Wanted.of(1, None) == Wanted(integer=1)
    assert Wanted.of(None, "v1") == Wanted(revision="v1")
    assert Wanted.of(None, None, needed=False) == Wanted()
    with pytest.raises(PackageError, match="both a version .1. and a revision"):
        Wanted.of(1, "v1")
    with pytest.raises(PackageError, match="neither a version nor a revision"):
        Wanted.of(None, None)
    with pytest.raises(PackageError, match="^version is ''; accepted: an integer from 0, or a ran"):
        Wanted.of("", None)
    with pytest.raises(PackageError, match="^revision is ''; accepted: a text"):
        Wanted.of(None, "")


@pytest.mark.parametrize(
    "text", ["1.2.3.4", "1!2", "1.0+x", "1.0.dev1", "1.0.post1", "", "one", "1.2.0-", "-1"]
)
def test_versions_that_are_none(text):
    with pytest.raises(PackageError, match="accepted: MAJOR"):
        parse_version(text)


def test_branches_and_tags():
    assert branch_of(parse_version("12.3")) == branch_of(12) == "v12"
    names = ["v1", "v0", "v01", "v-1", "v1.0", "main", "V1", "v", f"v{1 << 64}", "v²"]
    assert [integer_of_branch(name) for name in names] == [1, 0, *[None] * 8]
    tags = ["v1.2.0", "1.2", "v1", "release-1.2", "v1.2.0-rc.1", "1.2.3.4", "v1.x"]
    assert [version_of_tag(tag) for tag in tags] == [
        Version("1.2.0"), Version("1.2"), None, None, Version("1.2.0rc1"), None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "org",
        "org/",
        "/x",
        "a/b/c",
        "org/..",
        "o--g/x",
        "org/x y",
        "../x",
        None,
        "org/x\n",
        "org/x-",
        "org./x",
    ],
)
def test_repositories_that_are_none(text):
    with pytest.raises(PackageError, match="accepted: organization/name"):
        check_repo_id(text)


def test_the_longest_name_of_a_repository():
    assert check_repo_id("o/" + "x" * 94)
    with pytest.raises(PackageError, match="repository has 97 characters; the limit is 96"):
        check_repo_id("o/" + "x" * 95)


def brute_force(ranges):
    """Whether some version of three small numbers, or one in between, lies in all of them."""
    whole = SpecifierSet(",".join(ranges))
    tries = (f"{a}.{b}.{c}{d}" for a in range(4) for b in range(4) for c in range(4)
             for d in ("", ".1", "rc1"))  # fmt: skip
    return any(whole.contains(t, prereleases=True) for t in tries)


SMALL = st.builds(lambda *n: ".".join(map(str, n)), *[st.integers(0, 2)] * 3)
SMALL_RANGE = st.lists(st.builds(lambda o, v: o + v, OPERATORS, SMALL), min_size=1, max_size=5)


@given(SMALL_RANGE)
def test_ranges_that_some_version_meets(ranges):
    assert satisfiable(ranges) >= brute_force(ranges)
    if not brute_force(ranges) and satisfiable(ranges):
        # What enumeration misses lies beyond its last number: one version more tells.
        far = SpecifierSet(",".join(ranges))
        points = (f"{a}.{b}.{c}" for a in (0, 1, 2, 3) for b in (0, 1, 2, 3, 999_999)
                  for c in (0, 1, 2, 3, 999_999))  # fmt: skip
        assert any(far.contains(p, prereleases=True) for p in points)


def test_python_needs():
    needs = [PythonNeed.parse(t) for t in ("Einops >= 0.7", "einops<1", "triton")]
    assert [str(n) for n in joined(needs)] == ["einops<1,>=0.7", "triton"]
    assert needs[0].admits("0.8.0rc1")
    assert not needs[0].admits("0.6")
    for bad in ("einops[x]>=1", "x; python_version<'3'", "x @ https://h/x.whl", ">=1", 3, ""):
        with pytest.raises(PackageError, match="accepted: a distribution and its versions"):
            PythonNeed.parse(bad)
