"""Hugging Face's lock files: verdicts and texts are those of the real `kernels`."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.errors import LockError
from kernelmill.package.index import KernelNeed
from kernelmill.package.lock_hf import HfLock, read_hf_lock, variant_hash
from kernelmill.package.registry import File
from kernelmill.package.wanted import Wanted

rust = pytest.importorskip("kernels._rust")

COMMITS = st.text("0123456789abcdef", min_size=40, max_size=40)
REPOS = st.sampled_from(["org/a", "org/b", "Org/a", "zz/x-1", "org/a.b"])
WANTED = st.one_of(
    st.builds(Wanted, st.integers(0, 30)),
    st.builds(lambda r: Wanted(revision=r), st.sampled_from(["main", "v1", "a" * 40, "Ω-1"])),
)
NEEDS = st.builds(KernelNeed, REPOS, WANTED)


def theirs(need):
    kind = rust.KernelVersion
    version = (
        kind.Revision(need.wanted.revision)
        if need.wanted.revision
        else kind.Version(need.wanted.integer)
    )
    return rust.KernelDependency(need.repo_id, version)


@given(st.dictionaries(NEEDS, COMMITS, max_size=8))
def test_the_text_is_theirs_byte_for_byte(commits):
    expected = rust.KernelLocks({theirs(n): rust.KernelLock(c) for n, c in commits.items()})
    ours = HfLock(commits)
    assert ours.text() == expected.to_json()
    assert HfLock.parse(ours.text()) == ours
    assert {theirs(n): c for n, c in commits.items()} == {
        d: lock.commit for d, lock in rust.KernelLocks.from_json(ours.text()).items()
    }


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.just(1.0), st.just(1 << 64),
    st.text("ab", max_size=2), COMMITS, COMMITS.map(str.upper), st.just([]),
)  # fmt: skip
DEPENDENCY = st.dictionaries(
    st.sampled_from(["repo-id", "version", "revision", "repo_id"]), VALUES, max_size=4
)
LOCK = st.dictionaries(st.sampled_from(["commit", "commit", "hash"]), VALUES, max_size=2)
ROWS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"dependency": DEPENDENCY, "lock": LOCK}),
        st.fixed_dictionaries(
            {
                "dependency": st.fixed_dictionaries({"repo-id": REPOS, "version": VALUES}),
                "lock": st.fixed_dictionaries({"commit": VALUES}),
            }
        ),
        st.dictionaries(st.sampled_from(["dependency", "lock", "x"]), VALUES, max_size=3),
        VALUES,
    ),
    max_size=3,
)


@settings(max_examples=400)
@given(ROWS)
def test_verdicts_are_theirs(rows):
    text = json.dumps(rows)
    try:
        expected = {
            (d.repo_id, repr(d.version)): lock.commit
            for d, lock in rust.KernelLocks.from_json(text).items()
        }
    except ValueError:
        expected = None
    try:
        found = HfLock.parse(text)
    except LockError:
        assert expected is None, text
        return
    assert expected is not None, text
    made = {(n.repo_id, repr(theirs(n).version)): c for n, c in found.commits.items()}
    assert made == expected


OLD = [
    {
        "repo_id": "org/a",
        "sha": "ab" * 20,
        "variants": {
            "torch-cpu": {"hash": "sha256-" + "cd" * 32, "hash_type": "git_lfs_concat"},
        },
    }
]


def test_the_older_form_is_read():
    lock = HfLock.parse(json.dumps(OLD))
    assert lock.old
    assert lock.find("org/a") == (KernelNeed("org/a", Wanted()), "ab" * 20)
    assert lock.commit(KernelNeed("org/a", Wanted(3))) == "ab" * 20
    with pytest.raises(ValueError, match="unknown field"):
        rust.KernelLocks.from_json(json.dumps(OLD))  # theirs cannot


def test_the_hash_of_the_older_form():
    files = {
        "b.py": File("build/torch-cpu/b.py", 1, "11" * 20),
        "a.so": File("build/torch-cpu/a.so", 1, "22" * 20, "33" * 32),
    }
    whole = hashlib.sha256(b"a.so" + b"\x33" * 32 + b"b.py" + b"\x11" * 20).hexdigest()
    assert variant_hash(files) == f"sha256-{whole}"
    rows = json.loads(json.dumps(OLD))
    rows[0]["variants"]["torch-cpu"]["hash"] = variant_hash(files)
    lock = HfLock.parse(json.dumps(rows))
    lock.verify("org/a", "torch-cpu", files)
    lock.verify("org/other", "torch-cpu", files)
    with pytest.raises(LockError, match=r"org/a torch-cpu: locked sha256-\w+, found sha256-"):
        lock.verify("org/a", "torch-cpu", {"b.py": files["b.py"]})
    with pytest.raises(LockError, match="org/a torch-cuda is not in the lock; it has: torch-cpu"):
        lock.verify("org/a", "torch-cuda", files)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "kernels.lock is no list of locked kernels"),
        ("[", "kernels.lock is no JSON: "),
        ('[{"dependency": {"repo-id": "a/b", "version": 1}, "lock": {"commit": "ab"}}]',
         "kernels.lock[0].lock.commit is 'ab'; accepted: 40 or 64 hexadecimal digits"),
        ('[{"dependency": {"repo-id": "a/b", "version": "1"}, "lock": {}}]',
         ("kernels.lock[0].dependency has version '1' and revision None; accepted: one of an "
         "integer and a text")),
        ('[{"repo_id": "a/b", "sha": "x", "variants": {}}]',
         "kernels.lock[0].sha is 'x'; accepted: 40 or 64 hexadecimal digits"),
        (json.dumps([{**OLD[0], "variants": {"v": {"hash": "x", "hash_type": "git_lfs_concat"}}}]),
         "kernels.lock[0].variants['v'] is "),
        (json.dumps([{**OLD[0], "variants": 3}]), "kernels.lock[0].variants is 3; accepted: an "),
        (json.dumps([OLD[0], OLD[0]]), "kernels.lock[1] repeats org/a"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(LockError) as caught:
        HfLock.parse(text)
    assert str(caught.value).startswith(message)


def test_what_is_not_locked_is_said(tmp_path):
    lock = HfLock({KernelNeed("org/a", Wanted(1)): "ab" * 20})
    with pytest.raises(LockError, match="org/b is not locked; locked: org/a"):
        lock.find("org/b")
    with pytest.raises(LockError, match=r"org/a \(version 2\) is not locked, and a locked kernel"):
        lock.commit(KernelNeed("org/a", Wanted(2)))
    with pytest.raises(LockError, match="cannot stand in kernels.lock"):
        HfLock({KernelNeed("org/a", Wanted.parse(">=1")): "ab" * 20}).text()
    with pytest.raises(LockError, match=r"there is no .*kernels.lock"):
        read_hf_lock(tmp_path / "kernels.lock")
