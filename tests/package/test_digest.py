"""Digests of variants: against Hugging Face's own, and against what must not pass."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.errors import IntegrityError
from kernelmill.package.digest import (
    Digest,
    check_variant,
    git_blob_id,
    hash_variant,
    safe_path,
)

rust = pytest.importorskip("kernels._rust")

NAMES = st.text(st.sampled_from("abzXé._-"), min_size=1, max_size=6).filter(
    lambda n: n not in {".", ".."}
)
TREES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=40), max_size=6
)
EXTRA = ["metadata.json", "a/metadata.json", "metadata.json.sigstore", "__pycache__/a.py",
         "a/__pycache__/b.pyc", "a/b.pyc", "z.PYC", ".hidden/x", "a/metadata.json.sigstore"]  # fmt: skip


def write(root, files):
    for path, content in files.items():
        place = root / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            pass  # one drawn path lies below another


def oracle(root, algorithm="SHA256"):
    return rust.Digest.hash_variant(getattr(rust.DigestAlgorithm, algorithm), root)


@settings(max_examples=60, deadline=None)
@given(TREES, st.sets(st.sampled_from(EXTRA)), st.sampled_from(["sha256", "sha512"]))
def test_the_digest_is_hugging_faces(tmp_path_factory, files, extra, algorithm):
    root = tmp_path_factory.mktemp("variant")
    write(root, {**files, **{path: path.encode() for path in extra}})
    found = hash_variant(root, algorithm)
    expected = oracle(root, algorithm.upper())
    assert dict(found.files) == expected.files
    assert Digest.from_json(found.to_json()) == found
    assert check_variant(root, found) == found


def test_links_to_files_count_as_files_as_in_the_cache_of_the_hub(tmp_path):
    variant = tmp_path / "kernels--a--b/snapshots/abc/build/torch-cpu"
    variant.mkdir(parents=True)
    blob = tmp_path / "kernels--a--b/blobs/1"
    blob.parent.mkdir()
    blob.write_text("x")
    (variant / "__init__.py").symlink_to("../../../../blobs/1")
    assert dict(hash_variant(variant).files) == oracle(variant).files


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda d: (d / "x").symlink_to("/etc/passwd"), "x is a link out of its repository, to /etc/passwd"),
        (lambda d: (d / "x").symlink_to("../x"), "x is a link out of its repository"),
        (lambda d: (d / "x").symlink_to("sub"), "which is not a file"),
        (lambda d: (d / "x").symlink_to("nowhere"), "which is not a file"),
        (lambda d: os.mkfifo(d / "x"), "x is neither a file nor a directory"),
        (lambda d: os.mknod(os.fsencode(d) + b"/\xff"), "is not UTF-8"),
    ],
)  # fmt: skip
def test_links_out_and_odd_files_are_refused(tmp_path, make, text):
    (tmp_path / "v/sub").mkdir(parents=True)
    make(tmp_path / "v")
    with pytest.raises(IntegrityError, match=text):
        hash_variant(tmp_path / "v")


def test_each_deviation_is_named_with_its_path(tmp_path):
    write(tmp_path, {"a.py": b"1", "sub/b.py": b"2"})
    expected = hash_variant(tmp_path)
    write(tmp_path, {"a.py": b"3", "new.py": b"4"})
    (tmp_path / "sub/b.py").unlink()
    with pytest.raises(IntegrityError) as caught:
        check_variant(tmp_path, expected)
    lines = str(caught.value).splitlines()
    one, three = (base64.b64encode(hashlib.sha256(b).digest()).decode() for b in (b"1", b"3"))
    assert lines[1:4] == [
        f"  a.py: expected {one}, found {three}",
        "  new.py: unknown",
        "  sub/b.py: missing",
    ]
    with pytest.raises(rust.DigestValidationError):
        rust_expected = oracle(tmp_path)
        write(tmp_path, {"a.py": b"5"})
        rust_expected.validate(oracle(tmp_path))


@settings(max_examples=80, deadline=None)
@given(
    st.dictionaries(NAMES, st.sampled_from("abc")), st.dictionaries(NAMES, st.sampled_from("abc"))
)
def test_two_sets_of_files_have_two_roots(one, two):
    """Lengths go first: {"ab": "c"} and {"a": "bc"} differ."""
    assert (Digest("sha256", one).root() == Digest("sha256", two).root()) == (one == two)


def test_paths_and_digests_cannot_be_moved_into_each_other():
    assert Digest("sha256", {"ab": "c"}).root() != Digest("sha256", {"a": "bc"}).root()
    assert Digest("sha256", {"a": "b"}).root() != Digest("sha512", {"a": "b"}).root()


@pytest.mark.parametrize("size", [0, 1, 5000, 3 << 20])
def test_blob_ids_are_gits(tmp_path, size):
    place = tmp_path / "f"
    place.write_bytes(os.urandom(size))
    made = subprocess.run(["git", "hash-object", place], capture_output=True, text=True, check=True)
    assert git_blob_id(place) == made.stdout.strip()


HOSTILE = ["/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/.", "a\\b", "C:x", "a\0b", "a\nb", "",
           "a" * 1025, "a/", "\udcff"]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_paths_are_refused(path):
    with pytest.raises(IntegrityError, match="is refused: it"):
        safe_path(path)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "must have exactly the keys algorithm and files"),
        ({"algorithm": "md5", "files": {}}, "digest.algorithm is 'md5'; accepted: sha256, sha512"),
        ({"algorithm": "sha256", "files": []}, "digest.files is list"),
        ({"algorithm": "sha256", "files": {"a": "AA=="}}, r"digest.files\['a'\] is 'AA=='; accepted: 32 bytes"),
        ({"algorithm": "sha256", "files": {"../a": "AA=="}}, "'../a' is refused"),
        ({"algorithm": "sha256", "files": {"a": None}}, "accepted: 32 bytes in base64"),
    ],
)  # fmt: skip
def test_what_is_no_digest_is_named(value, text):
    with pytest.raises(IntegrityError, match=text):
        Digest.from_json(value)
