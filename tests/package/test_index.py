"""The index of versions: what is written is read, what is wrong is named by its place."""

from __future__ import annotations

import json

import pytest

from kernelmill.errors import PackageError
from kernelmill.package.index import MOST_BYTES, Entry, Index, KernelNeed
from kernelmill.package.wanted import PythonNeed, Wanted, parse_version

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def entry(version, **changes):
    made = {
        "version": parse_version(version),
        "commit": COMMIT,
        "variants": ("torch-cpu", "torch-cuda"),
        "kernels": (KernelNeed("org/b", Wanted.parse(">=1,<2")), KernelNeed("org/c", Wanted(2))),
        "python": (PythonNeed.parse("einops>=0.7"),),
    }
    return Entry(**{**made, **changes})


def test_it_is_read_as_written_and_the_newest_comes_first():
    index = Index()
    for version in ("1.9", "2.0.0", "1.10.0", "2.0.0rc1"):
        index = index.with_entry(entry(version))
    assert [str(e.version) for e in index.entries] == ["2.0.0", "2.0.0rc1", "1.10.0", "1.9"]
    assert Index.from_json(index.to_json()) == index
    replaced = index.with_entry(entry("1.9", commit="f" * 40))
    assert [e.commit[0] for e in replaced.entries] == ["0", "0", "0", "f"]


def test_the_same_versions_give_the_same_text():
    one = Index().with_entry(entry("1.0")).with_entry(entry("2.0"))
    other = Index().with_entry(entry("2.0")).with_entry(entry("1.0"))
    assert one.to_json() == other.to_json()


def test_keys_of_later_versions_are_passed_over():
    body = json.loads(Index().with_entry(entry("1.0")).to_json())
    body["signed-by"] = "x"
    body["versions"][0]["yanked"] = False
    assert Index.from_json(json.dumps(body)).entries == (entry("1.0"),)


def damaged(path, value):
    body = json.loads(Index().with_entry(entry("1.0")).with_entry(entry("2.0")).to_json())
    place = body
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(body)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "org/x: i.json is no JSON: Expecting property name"),
        ("[]", "org/x: i.json is '[]'; accepted: an object"),
        ("[" * 100_000, "org/x: i.json is no JSON:"),
        (damaged(["format"], 2), "org/x: i.json: format is 2; this version reads 1"),
        (damaged(["versions"], {}), "org/x: i.json: versions is '{}'; accepted: a list"),
        (damaged(["versions", 1, "commit"], "abc"),
         "org/x: i.json: versions[1].commit is 'abc'; accepted: 40 or 64 lower-case"),
        (damaged(["versions", 1, "version"], "x"), "org/x: i.json: versions[1].version is 'x'"),
        (damaged(["versions", 0, "version"], 3), "org/x: i.json: versions[0].version is '3'"),
        (damaged(["versions", 1, "version"], "2.0"), "org/x: i.json: versions[1] repeats 2.0"),
        (damaged(["versions", 0, "variants", 1], None),
         "org/x: i.json: versions[0].variants[1] is 'None'; accepted: a text"),
        (damaged(["versions", 0, "kernel-depends", 0, "repo-id"], "b"),
         "org/x: i.json: versions[0].kernel-depends[0].repo-id is 'b'"),
        (damaged(["versions", 0, "kernel-depends", 0, "version"], "~1"),
         "org/x: i.json: versions[0].kernel-depends[0].version is '~1'"),
        (damaged(["versions", 0, "python-depends", 0], "!"),
         "org/x: i.json: versions[0].python-depends[0] is '!'"),
        (" " * (MOST_BYTES + 1), "org/x: i.json has 33,554,433 bytes; the limit is 33,554,432"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(PackageError) as caught:
        Index.from_json(text, place="org/x: i.json")
    assert str(caught.value).startswith(message)
