"""kernelmill.lock as a file: what is written is read, and every change by hand is found and named."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.errors import LockError
from kernelmill.package.digest import hash_variant
from kernelmill.package.index import KernelNeed
from kernelmill.package.lock import (
    Lock,
    LockedFile,
    LockedKernel,
    LockedVariant,
    digest_of,
    read_lock,
)
from kernelmill.package.wanted import Wanted

SHA = hashlib.sha256(b"x").hexdigest()


def variant(name, *paths):
    return LockedVariant(name, {path: LockedFile(SHA, 1) for path in paths})


def a_lock():
    base = LockedKernel("org/base", "2.0.0", "v2", "cd" * 20, {"torch-cpu": variant("torch-cpu")})
    top = LockedKernel(
        "org/top",
        "1.2.0",
        "v1",
        "ab" * 20,
        {"torch-cuda": variant("torch-cuda", "a.py"), "torch-cpu": variant("torch-cpu", "b", "a")},
        {"org/base": KernelNeed("org/base", Wanted.parse(">=2"))},
        ("einops>=0.7",),
    )
    needs = (KernelNeed("org/top", Wanted(1)), KernelNeed("org/base", Wanted.parse("<3,>=1")))
    return Lock(needs, {"org/top": top, "org/base": base})


def test_it_is_read_as_written_in_one_order():
    lock = a_lock()
    again = Lock.parse(lock.text())
    assert again.kernels == lock.kernels
    assert sorted(map(str, again.requires)) == sorted(map(str, lock.requires))
    assert again.text() == lock.text()
    other = Lock(lock.requires[::-1], dict(reversed(list(lock.kernels.items()))))
    assert other.text() == lock.text()


JSON = st.recursive(
    st.one_of(st.none(), st.integers(-5, 5), st.text("ab01", max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(JSON, JSON)
def test_digests_tell_values_apart(one, other):
    assert (digest_of(one) == digest_of(other)) == (json.dumps(one, sort_keys=True)
                                                    == json.dumps(other, sort_keys=True))  # fmt: skip


PATHS = [
    (["kernels", 1, "variants", "torch-cpu", "files", "a", 0], "f" * 64,
     "kernels[1] (org/top).variants['torch-cpu'] was changed after it was written: its digest is"),
    (["kernels", 1, "variants", "torch-cpu", "files", "a", 1], 2,
     "kernels[1] (org/top).variants['torch-cpu'] was changed after"),
    (["kernels", 1, "variants", "torch-cpu", "digest"], "f" * 64,
     "kernels[1] (org/top).variants['torch-cpu'] was changed after"),
    (["kernels", 1, "variants", "torch-cpu", "files", "a", 0], "xyz",
     "kernels[1] (org/top).variants['torch-cpu'].files['a'] is [\"xyz\", 1]; accepted: 64"),
    (["kernels", 1, "variants", "torch-cpu", "files", "../a"], [SHA, 1],
     "kernels[1] (org/top).variants['torch-cpu'].files: the path '../a' is refused"),
    (["kernels", 1, "commit"], "f" * 40, "kernels[1] (org/top) was changed after it was written"),
    (["kernels", 1, "commit"], "abc", "kernels[1] (org/top).commit is 'abc'; accepted: 40 or 64"),
    (["kernels", 0, "version"], "2.1.0", "kernels[0] (org/base) was changed after"),
    (["kernels", 0, "slot"], "org/evil", "kernels[0] (org/evil) was changed after"),
    (["kernels", 1, "kernel-depends", 0, "slot"], "org/x", "kernels[1] (org/top) was changed"),
    (["kernels", 1, "kernel-depends", 0, "version"], [1],
     "kernels[1] (org/top).kernel-depends[0].version is [1]; accepted"),
    (["kernels", 1, "new"], 1, "kernels[1] has the unknown key 'new'"),
    (["kernels", 1], 7, "kernels[1] is 7; accepted: an object"),
    (["kernels"], {}, "kernels is {}; accepted: a list"),
    (["requires", 0, "version"], 7, "kernelmill.lock was changed after it was written"),
    (["digest"], "0" * 64, "kernelmill.lock was changed after it was written: its digest is"),
    (["format"], 9, "kernelmill.lock: format is 9; this version of kernelmill reads 1"),
    (["format"], 1.0, "kernelmill.lock: format is 1.0; this version of kernelmill reads 1"),
    (["requires"], [], "kernelmill.lock was changed after it was written"),
    (["digest"], 1.5, "kernelmill.lock was changed after it was written: its digest is 1.5"),
    (["kernels", 1, "variants", "torch-cpu", "files", "a", 1], True,
     "kernels[1] (org/top).variants['torch-cpu'].files['a'] is ["),
    (["kernels", 1, "variants", "torch-cpu", "files", "a", 1], 1.5,
     "kernels[1] (org/top).variants['torch-cpu'].files['a'] is ["),
    (["kernels", 1, "kernel-depends", 0, "version"], 1.5,
     "kernels[1] (org/top).kernel-depends[0].version is 1.5; accepted"),
    (["extra"], 9, "kernelmill.lock has the unknown key 'extra'"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), PATHS)
def test_an_edit_by_hand_is_refused_with_its_path(path, value, message):
    body = json.loads(a_lock().text())
    place = body
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(LockError) as caught:
        Lock.parse(json.dumps(body))
    expected = message if message.startswith("kernelmill.lock") else f"kernelmill.lock: {message}"
    assert str(caught.value).startswith(expected)


def leaves(value, path=()):
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path, value


@pytest.mark.parametrize("path", [path for path, _ in leaves(json.loads(a_lock().text()))])
def test_no_value_can_be_changed_or_removed(path):
    for change in ("other", "gone"):
        body = json.loads(a_lock().text())
        place = body
        for step in path[:-1]:
            place = place[step]
        if change == "gone":
            del place[path[-1]]
        else:
            old = place[path[-1]]
            place[path[-1]] = old + 1 if isinstance(old, int) else old[:-1] + chr(ord(old[-1]) ^ 1)
        with pytest.raises(LockError):
            Lock.parse(json.dumps(body))


@pytest.mark.parametrize("cut", [0, 1, 200, 700])
def test_half_a_file_is_no_lock(cut):
    with pytest.raises(LockError, match="kernelmill.lock is no JSON"):
        Lock.parse(a_lock().text()[:cut])


def test_a_key_twice_is_refused():
    text = a_lock().text().replace('"format": 1', '"format": 1, "format": 1')
    with pytest.raises(LockError, match="the key 'format' stands there twice"):
        Lock.parse(text)


def test_links_lead_to_what_is_locked():
    lock = a_lock()
    alone = Lock(lock.requires, {"org/top": lock.kernels["org/top"]})
    with pytest.raises(LockError, match="org/top leads to org/base, which is not locked"):
        Lock.parse(alone.text())


def test_what_lies_on_disk_is_compared_file_by_file(tmp_path):
    (tmp_path / "__init__.py").write_bytes(b"x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "y.py").write_bytes(b"x")
    (tmp_path / "metadata.json").write_bytes(b"x")
    locked = variant("torch-cpu", "__init__.py", "sub/y.py", "metadata.json")
    kernel = LockedKernel("org/x", "1.0.0", "v1", "ab" * 20, {"torch-cpu": locked})
    kernel.verify("torch-cpu", hash_variant(tmp_path), b"x")
    with pytest.raises(LockError, match="org/x torch-cuda is not in the lock; it has: torch-cpu"):
        kernel.verify("torch-cuda", hash_variant(tmp_path), b"x")
    (tmp_path / "__init__.py").write_bytes(b"y")
    (tmp_path / "sub" / "y.py").rename(tmp_path / "sub" / "z.py")
    with pytest.raises(LockError) as caught:
        kernel.verify("torch-cpu", hash_variant(tmp_path), b"other")
    y, other = (hashlib.sha256(b).hexdigest() for b in (b"y", b"other"))
    assert str(caught.value) == (
        "org/x torch-cpu is not what the lock names:\n"
        f"  __init__.py: locked {SHA}, found {y}\n"
        f"  metadata.json: locked {SHA}, found {other}\n"
        "  sub/y.py: missing\n"
        "  sub/z.py: unknown\n\n"
        "hint: nothing of it was imported; `kernelmill sync` downloads what was locked"
    )


def test_finding(tmp_path):
    lock = a_lock()
    assert lock.find("org/top").commit == "ab" * 20
    assert (lock.find("org/top").integer, lock.find("org/base").integer) == (1, 2)
    with pytest.raises(LockError, match="org/none is not locked; locked: org/top, org/base"):
        lock.find("org/none")
    both = {f"org/x@{n}": LockedKernel(f"org/x@{n}", f"{n}", "", "ab" * 20, {}) for n in (1, 2)}
    with pytest.raises(LockError, match="several versions of org/x are locked: org/x@1, org/x@2"):
        Lock((), both).find("org/x")
    assert Lock((), both).find("org/x@2").version == "2"
    with pytest.raises(LockError, match=r"there is no .*kernelmill.lock"):
        read_lock(tmp_path / "kernelmill.lock")
    (tmp_path / "kernelmill.lock").write_text(lock.text())
    assert read_lock(tmp_path / "kernelmill.lock").text() == lock.text()


@given(st.integers(0, 10_000), st.sampled_from(list('0123456789abcdefxZ"{}[],: \n\\/.-')))
def test_any_change_of_a_character_is_refused_or_means_the_same(position, character):
    text = a_lock().text()
    position %= len(text)
    for changed in (
        text[:position] + character + text[position + 1 :],
        text[:position] + text[position + 1 :],
        text[:position] + character + text[position:],
    ):
        try:
            found = Lock.parse(changed)
        except LockError:
            continue
        assert found.text() == text


NAMES = st.sampled_from(["org/a", "org/b", "acme/x.y", "o-1/k_2"])
FILES = st.dictionaries(
    st.sampled_from(["__init__.py", "a/b.py", "ä.py", "metadata.json", "x.so"]),
    st.builds(LockedFile, st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0)),
    max_size=4,
)
VARIANTS = st.dictionaries(st.sampled_from(["torch-cpu", "torch-cuda", "tvm-ffi01-cpu"]), FILES)


@st.composite
def locks(draw):
    slots = draw(st.lists(NAMES, unique=True, max_size=4))
    kernels = {}
    for slot in slots:
        needs = {
            to: KernelNeed(to, draw(st.sampled_from([Wanted(1), Wanted(), Wanted.parse(">=1,<2")])))
            for to in draw(st.lists(st.sampled_from(slots), unique=True))
        }
        variants = {n: LockedVariant(n, files) for n, files in draw(VARIANTS).items()}
        commit = draw(st.sampled_from(["ab" * 20, "cd" * 32]))
        version = draw(st.sampled_from(["1", "1.2.0", "2.0.0rc1"]))
        kernels[slot] = LockedKernel(slot, version, draw(st.sampled_from(["", "v1", "tag ü"])),
                                     commit, variants, needs, ("einops>=0.7",))  # fmt: skip
    return Lock(tuple(KernelNeed(slot, Wanted(1)) for slot in slots), kernels)


@given(locks(), locks())
def test_locks_survive_their_text(one, other):
    again = Lock.parse(one.text())
    assert again.kernels == one.kernels
    assert again.text() == one.text()
    assert (one.text() == other.text()) == (
        one.kernels == other.kernels and set(one.requires) == set(other.requires)
    )
