"""`metadata.json`: what we read and refuse is what `kernels` reads and refuses; what we write it reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.errors import PackageError
from kernelmill.package.digest import Digest
from kernelmill.package.metadata import (
    BACKENDS,
    GitState,
    KernelDependency,
    Metadata,
    Provenance,
    read_metadata,
)

theirs = pytest.importorskip("kernels._rust").Metadata

BASE = {
    "name": "img2gray",
    "id": "_img2gray_cpu_abc",
    "version": 1,
    "license": "Apache-2.0",
    "python-depends": [],
    "backend": {"type": "cpu"},
}
COMMIT = "a" * 40

commits = st.sampled_from([COMMIT, "b" * 64, "abc", "", None, 7])
# Good and bad values of each key; a sample of them replaces those of BASE.
VALUES = {
    "name": st.sampled_from(["ab", "a--b", "relu-2", "a", "a_b", "Ab", "-a", "a-", "", 5, None]),
    "id": st.sampled_from(["", "_x", 5, None]),
    "version": st.sampled_from([0, 1, 2**64 - 1, 2**64, -1, 1.0, "1", True, None]),
    "license": st.sampled_from(["", "MIT", None, 3]),
    "python-depends": st.sampled_from([[], ["einops"], [1], None, "einops"]),
    "backend": st.one_of(
        st.sampled_from(
            [*({"type": name} for name in BACKENDS), {"type": "universal"}, {}, None, 3]
        ),
        st.fixed_dictionaries(
            {"type": st.just("cuda")},
            optional={"archs": st.sampled_from([[], ["9.0"], [9], None, "9.0"]), "x": st.just(1)},
        ),
    ),
    "kernel-depends": st.sampled_from(
        [
            [],
            [{"repo-id": "a/b", "version": 1}],
            [{"repo-id": "a/b", "revision": "x"}],
            [{"repo-id": "a/b"}],
            [{"repo-id": "a/b", "version": 1, "revision": "x"}],
            [{"repo-id": "a/b", "version": 1, "q": 1}],
            [{"version": 1}],
            None,
            [3],
        ]
    ),
    "kernels-minver": st.sampled_from(["0.17.0", "0.17", "1.2.3.4", "x", "", None, 3]),
    "upstream": st.sampled_from(
        ["https://a.b/c", "git@github.com:a/b", "ssh://git@a.b/c.git", None]
    ),
    "digest": st.sampled_from(
        [None, {"algorithm": "sha256", "files": {}}, {"algorithm": "md5", "files": {}}, {}]
    ),
    "provenance": st.one_of(
        st.sampled_from([None, {}, {"kernel-builder": {}}, {"kernel-builder": None}]),
        st.fixed_dictionaries(
            {
                "kernel-builder": st.fixed_dictionaries(
                    {"version": st.sampled_from(["0.1.0", "x", 3])},
                    optional={"commit": commits, "dirty": st.sampled_from([True, False])},
                )
            },
            optional={
                "kernel": st.fixed_dictionaries(
                    {}, optional={"commit": commits, "dirty": st.sampled_from([True, 1])}
                ),
                "x": st.just(1),
            },
        ),
    ),
    "kernelmill": st.sampled_from([{"version": "1.2.3"}, {}]),
}


def accepted(read, text):
    try:
        return read(text)
    except ValueError:
        return None


@given(st.fixed_dictionaries({}, optional=VALUES), st.sets(st.sampled_from(sorted(BASE))))
def test_accepts_what_kernels_accepts(changes, dropped):
    record = {key: value for key, value in {**BASE, **changes}.items() if key not in dropped}
    if not dropped.isdisjoint(changes):
        record = {**BASE, **changes}
    text = json.dumps(record)
    ours, other = accepted(Metadata.parse, text), accepted(theirs.from_bytes, text.encode())
    assert (ours is None) == (other is None), record
    if ours is not None:
        assert (ours.id, ours.version, ours.license) == (other.id, other.version, other.license)
        assert ours.python_depends == tuple(other.python_depends)
        assert ours.kernels_minver == (other.kernels_minver and str(other.kernels_minver))
        assert Metadata.parse(ours.text()) == ours


texts = st.text("abc/-", min_size=1, max_size=5)
git_states = st.builds(
    GitState, st.text("0123456789abcdef", min_size=40, max_size=40), st.booleans()
)
written = st.builds(
    Metadata,
    name=st.from_regex(r"[a-z][-a-z0-9]{0,8}[a-z0-9]", fullmatch=True),
    id=texts,
    version=st.integers(0, 2**63),
    license=texts,
    backend=st.sampled_from(BACKENDS),
    archs=st.none() | st.lists(st.sampled_from(["8.0", "9.0a"])).map(tuple),
    python_depends=st.lists(texts).map(tuple),
    kernel_depends=st.lists(
        st.builds(KernelDependency, texts, st.integers(0, 9))
        | st.builds(KernelDependency, texts, st.none(), texts)
    ).map(tuple),
    upstream=st.none() | st.just("https://a.b/c"),
    kernels_minver=st.none() | st.just("0.17.0"),
    digest=st.none() | st.builds(Digest, st.just("sha256"), st.just({})),
    provenance=st.none()
    | st.builds(Provenance, texts, st.none() | git_states, st.none() | git_states),
    kernelmill=st.dictionaries(texts, texts),
)


@given(written)
def test_what_is_written_reads_back_here_and_there(metadata):
    text = metadata.text()
    assert Metadata.parse(text) == metadata
    other = theirs.from_bytes(text.encode())
    assert other.name.python_name == metadata.python_name
    assert other.backend.archs == (None if metadata.archs is None else list(metadata.archs))


def test_the_text_is_sorted_and_ends_in_a_newline():
    m = Metadata(
        name="relu",
        id="_r",
        version=1,
        license="MIT",
        backend="cpu",
        kernelmill={"version": "1.0.2"},
    )
    assert m.text().endswith("}\n")
    assert list(json.loads(m.text())) == sorted(json.loads(m.text()))
    assert m.semantic_version == "1.0.2"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "1"}, 'M: version is "1"; accepted: a whole number from 0 on'),
        (
            {"backend": {"type": "universal"}},
            'M: backend: type is "universal"; accepted: cann, cpu,',
        ),
        ({"name": "a_b"}, 'M: name is "a_b"; accepted: lower case, digits, hyphens'),
        ({"kernel-depends": [{"repo-id": "a/b"}]}, "M: kernel-depends[0] needs either version or"),
        ({"provenance": {"kernel-builder": {"version": "1", "commit": "x"}}}, 'commit is "x"'),
    ],
)
def test_refusals_name_the_key(change, message):
    with pytest.raises(PackageError) as caught:
        Metadata.parse(json.dumps({**BASE, **change}), place="M")
    assert message in str(caught.value)


def test_faults_of_the_file(tmp_path):
    with pytest.raises(PackageError, match=r"has no metadata\.json"):
        read_metadata(tmp_path)
    for text, message in [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is a list; accepted: an object"),
        (json.dumps({k: v for k, v in BASE.items() if k != "id"}), "lacks the key id"),
        (" " * ((16 << 20) + 1), "is larger than 16 MiB"),
    ]:
        (tmp_path / "metadata.json").write_text(text)
        with pytest.raises(PackageError, match=message):
            read_metadata(tmp_path)
