"""Manifests against the parser of Hugging Face's `kernels`, and what is refused before parsing."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from kernels import _rust

from kernelmill.errors import ManifestError
from kernelmill.package.manifest import LARGEST, Manifest, parse_manifest, read_manifest
from kernelmill.package.manifest_readers import read_git_address
from kernelmill.package.metadata import BACKENDS
from kernelmill.package.release import Release
from manifest_cases import CASES, broken_tables, tables, write


def theirs(text: str) -> _rust.Build | None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "build.toml").write_bytes(text.encode())
        try:
            return _rust.Build.open(directory)
        except ValueError:
            return None


def ours(text: str) -> Manifest | None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "build.toml").write_bytes(text.encode())
        try:
            return read_manifest(directory)
        except ManifestError:
            return None


def depends_of(found: list[_rust.KernelDependency]) -> list[tuple[str, object]]:
    return [
        (d.repo_id, getattr(d.version, "version", None), getattr(d.version, "revision", None))
        for d in found
    ]


def compare(text: str) -> bool:
    """Compare verdict, backends and dependencies on kernels; tell whether both accept."""
    expected, found = theirs(text), ours(text)
    assert (expected is None) == (found is None), text
    if expected is None or found is None:
        return False
    names = [str(backend).lower().rpartition(".")[2] for backend in expected.general.backends]
    assert names == list(found.general.backends)
    for backend in BACKENDS:
        theirs_of = _rust.Backend.from_str(backend)
        assert depends_of(expected.all_kernel_depends(theirs_of)) == [
            (d.repo_id, d.version, d.revision) for d in found.kernel_depends(backend)
        ]
    return True


@pytest.mark.parametrize("name", CASES)
def test_written_manifests(name):
    compare(CASES[name])


def test_both_verdicts_occur_among_the_written_manifests():
    assert {compare(text) for text in CASES.values()} == {True, False}


@settings(max_examples=250, deadline=None)
@given(tables)
def test_drawn_manifests_are_accepted(table):
    assert compare(write(table))


@settings(max_examples=500, deadline=None)
@given(broken_tables())
def test_broken_manifests_have_the_same_verdict(table):
    text = write(table)
    if not _positional(table):
        compare(text)


def _positional(table: dict[str, object]) -> bool:
    """Tell whether a list stands for a table: there `kernels` reads the values by their order."""
    general = table.get("general")
    inner = [general, table.get("torch"), table.get("torch-noarch"), table.get("tvm-ffi")]
    if isinstance(general, dict):
        inner += [general.get(name) for name in ("cuda", "neuron", "xpu", "tpu", "hub")]
        inner += (
            general["kernel-depends"] if isinstance(general.get("kernel-depends"), list) else []
        )
    kernels = table.get("kernel")
    inner += kernels.values() if isinstance(kernels, dict) else []
    return any(isinstance(value, list) for value in inner)


def test_a_list_in_place_of_a_table_is_refused():
    text = CASES["edition 5"].replace("[torch]", 'hub = ["org/relu", "main"]\n[torch]')
    assert theirs(text) is not None
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text)
    assert str(caught.value) == (
        "build.toml: `general.hub` must be a table; found a list, ['org/relu', 'main']"
    )


ADDRESSES = """
https://a.b/c|http:|https://|https:a|https:///a|git:foo|git@github.com:o/r.git|github.com:o/r|a b:c|ssh://
ssh:///x|git://|git+ssh://g@h/x|ftp://a/b|file:///x|https://[::1]/x|https://a:99999/|https://a:b/|https://a b/
https://%/|HTTPS://A/|  https://a |git@h:/abs|git@h:|@:x|https://a..b|https://1.2.3.4.5/|https://exa<mple
ssh://a b/|ssh://a:x/|x||git@h:1:2|https:\\\\a|a@b:c d|https://-a-/|https://a_b/|ü@h:x|https://ü.de/
https://xn--a/|git@h^:x|ssh://[::/|https://a@/|https://:80/|https://256.1.1.1/|https://0x1/|git@exa%mple:x
ssh://h%zz/|https://a:80:80/|https://a:/|https://%61.b/|https://[1]/|git:|:x|1:x|https://u:p@h:1/x?y#z|ssh://:1/
""".replace("\n", "|").strip("|").split("|")  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses(address):
    table = {"general": {"name": "ab", "version": 1, "edition": 5, "license": "x", "backends": [],
                         "upstream": address}, "torch": {}}  # fmt: skip
    compare(write(table))


def test_addresses_that_are_kept():
    assert read_git_address("git@github.com:o/r.git", "x") == "git@github.com:o/r.git"
    with pytest.raises(ManifestError, match=r"^build.toml: `x` is 'ftp://a', whose scheme is ftp"):
        read_git_address("ftp://a", "x")


# ----------------------------------------------------------------------------- what the texts say

GENERAL = CASES["no framework"]


@pytest.mark.parametrize(
    ("text", "path", "message", "hint"),
    [
        (
            GENERAL + "[torch]\nstable_abi = '2.10'\n",
            "torch.stable_abi",
            ("build.toml: unknown key `torch.stable_abi`; known in [torch]: src, include, pyext, "
            "cxx-flags, minver, maxver, stable-abi"),
            "the nearest known key is `torch.stable-abi`",
        ),
        (
            CASES["kebab case in noarch"],
            "torch-noarch.cuda-capabilities",
            ("build.toml: unknown key `torch-noarch.cuda-capabilities`; known in [torch-noarch]: "
            "pyext, cuda_capabilities, rocm_archs"),
            "the nearest known key is `torch-noarch.cuda_capabilities`",
        ),
        (
            GENERAL + "[torch]\n[kernel.a]\nbackend = 'cpu'\ndepends = []\nsrc = []\ncuda-flag = []\n",
            "kernel.a.cuda-flag",
            ("build.toml: unknown key `kernel.a.cuda-flag`; known in [kernel.a]: backend, depends, "
            "src, include, cxx-flags"),
            "the nearest known key is `kernel.a.cxx-flags`",
        ),
        (
            GENERAL + "[torch]\n[kernal.a]\n",
            "kernal",
            ("build.toml: unknown key `kernal`; known in the file: general, kernel, torch, "
            "torch-noarch, tvm-ffi"),
            "the nearest known key is `kernel`",
        ),
        (
            GENERAL.replace('"cuda"]', '"cdua"]') + "[torch]\n",
            "general.backends[1]",
            ("build.toml: `general.backends[1]` is 'cdua'; known are cann, cpu, cuda, metal, neuron, "
            "rocm, tpu, xpu"),
            "did you mean 'cuda'?",
        ),
        (
            GENERAL + "[torch]\nsrc = ['a', 1]\n",
            "torch.src[1]",
            "build.toml: `torch.src[1]` must be a text; found a whole number, 1",
            "",
        ),
        (
            GENERAL.replace('name = "relu"', 'name = "Relu_"') + "[torch]\n",
            "general.name",
            "build.toml: `general.name` is 'Relu_', which cannot be the name of a kernel",
            "at least two characters: lower-case letters, digits and dashes, a letter first, no dash last",
        ),
        (
            GENERAL + "kernel-depends = [{ repo-id = 'a/b' }]\n[torch]\n",
            "general.kernel-depends[0]",
            "build.toml: `general.kernel-depends[0]` needs `version` or `revision`",
            "",
        ),
        (
            CASES["edition 6"],
            "general.edition",
            "build.toml: `general.edition` must be 5, the newest that is known; found a whole number, 6",
            "",
        ),
        (
            GENERAL.replace("edition = 5\n", "").replace("version = 1\n", "") + "[torch]\n",
            "general.version",
            "build.toml: `general.version` is missing",
            "`kernelmill migrate` brings an older form of manifest to edition 5",
        ),
        (
            CASES["two frameworks"],
            "",
            ("build.toml: one of [torch], [torch-noarch], [tvm-ffi] says how the kernel is loaded; "
            "found [torch] and [torch-noarch]"),
            "",
        ),
        ("=", "", "build.toml is no TOML: invalid statement (at line 1, column 1)", ""),
    ],
)  # fmt: skip
def test_errors_name_the_key(text, path, message, hint):
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text)
    assert (caught.value.message, caught.value.hint, caught.value.path) == (message, hint, path)


def test_what_a_whole_manifest_holds():
    found = parse_manifest("""
[general]
name = "my-relu"
version = 3
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]
python-depends = ["einops"]
[general.cuda]
minver = "12.8"
python-depends = ["nvidia-cutlass-dsl"]
[general.hub]
repo-id = "org/my-relu"
[torch]
src = ["torch-ext/binding.cpp"]
stable-abi = { cuda = "2.10" }
[kernel.b]
backend = "cuda"
depends = ["torch", "cutlass_4_0"]
src = ["b.cu"]
cuda-capabilities = ["9.0a"]
cuda-minver = "13.0"
[kernel.a]
backend = "cpu"
depends = ["torch"]
src = ["a.cpp"]
include = ["."]
""")
    assert found.general.python_name == "my_relu"
    assert found.general.cuda.minver == Release.of(12, 8)
    assert found.framework_name == "torch"
    assert found.framework.stable_abi_of("cuda") == Release.of(2, 10)
    assert found.framework.stable_abi_of("cpu") is None
    assert [kernel.name for kernel in found.kernels] == ["b", "a"]
    assert found.kernels_of("cuda")[0].cuda_capabilities == ("9.0a",)
    assert found.kernels_of("cpu")[0].include == (".",)
    assert found.python_depends("cuda") == ("einops", "nvidia-cutlass-dsl")
    assert found.python_depends("cpu") == ("einops",)
    assert hash(found) == hash(parse_manifest(CASES["edition 5"])) or found != parse_manifest(
        CASES["edition 5"]
    )


# ----------------------------------------------------------------------------- hostile files


def test_a_manifest_of_ten_megabytes_is_refused_unread(tmp_path, monkeypatch):
    (tmp_path / "build.toml").write_text(CASES["edition 5"] + "#" * (10 << 20))
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read"))
    with pytest.raises(ManifestError) as caught:
        read_manifest(tmp_path)
    assert f"bytes; at most {LARGEST:,} are read" in caught.value.message


def test_a_manifest_at_the_limit_is_read(tmp_path):
    text = CASES["edition 5"]
    (tmp_path / "build.toml").write_text(text + "#" * (LARGEST - len(text)))
    assert read_manifest(tmp_path).general.name == "relu"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = " + "[" * 100_000, "lists or tables lie too deep in each other"),
        ("a = " + "{b=" * 100_000, "lists or tables lie too deep in each other"),
        ("a." * 400_000 + "b = 1", "a line holds more than 1000 dots"),
        ("[" + "a." * 400_000 + "b]", "a line holds more than 1000 dots"),
        ("a = " + "9" * 900_000, "is no TOML"),
        ('a = "' + "\\u0041" * 100_000, "is no TOML"),
        ("\0", "is no TOML"),
    ],
    ids=["lists", "tables", "a dotted key", "a dotted section", "digits", "escapes", "a NUL"],
)
def test_hostile_toml_ends_soon_in_an_error(text, says):
    began = time.process_time()
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text)
    assert time.process_time() - began < 60  # at most 0.2 s here; hours where it is quadratic
    assert says in caught.value.message


def test_files_that_are_not_read(tmp_path):
    with pytest.raises(ManifestError, match="there is no build.toml in"):
        read_manifest(tmp_path)
    os.mkfifo(tmp_path / "build.toml")
    with pytest.raises(ManifestError, match="is no regular file"):
        read_manifest(tmp_path)
    (tmp_path / "build.toml").unlink()
    (tmp_path / "build.toml").write_bytes(b"\xff")
    with pytest.raises(ManifestError, match="is not UTF-8: byte 0 cannot be read"):
        read_manifest(tmp_path)
    (tmp_path / "build.toml").unlink()
    (tmp_path / "build.toml").symlink_to(tmp_path / "build.toml")
    with pytest.raises(ManifestError, match="cannot be read: Too many levels"):
        read_manifest(tmp_path)
