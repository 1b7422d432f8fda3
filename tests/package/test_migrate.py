"""Older manifests brought to edition 5: golden files, and the parser of `kernels` on drawn ones."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import _rust

from kernelmill.cli import main
from kernelmill.errors import ManifestError
from kernelmill.package import whole_file
from kernelmill.package.manifest import parse_manifest
from kernelmill.package.migrate import migrate
from kernelmill.package.toml_text import write_toml
from manifest_cases import CASES, broken_tables, tables, write

GOLDEN = Path(__file__).parent / "migrations"
NAMES = sorted(path.name.removesuffix(".before.toml") for path in GOLDEN.glob("*.before.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_golden_files(name, tmp_path):
    found = migrate((GOLDEN / f"{name}.before.toml").read_text(), licence="Apache-2.0")
    assert found.text == (GOLDEN / f"{name}.after.toml").read_text()
    assert found.form == name.partition("-")[0].replace("edition", "edition 5")
    (tmp_path / "build.toml").write_text(found.text)
    theirs = _rust.Build.open(tmp_path)
    assert len(theirs.general.backends) == len(found.manifest.general.backends)
    assert parse_manifest(found.text) == found.manifest
    again = migrate(found.text)
    assert not again.changed
    assert again.diff() == ""


def test_every_form_has_a_golden_file():
    forms = {migrate((GOLDEN / f"{n}.before.toml").read_text(), licence="MIT").form for n in NAMES}
    assert forms == {"v1", "v2", "v3", "v4", "edition 5"}


def test_the_diff_and_the_notes_of_a_file_that_keeps_its_comments():
    found = migrate((GOLDEN / "v3-comments.before.toml").read_text(), licence="MIT")
    assert found.kept
    assert found.notes == (
        "`general.version` was missing: it is 1",
        "`general.license` was missing: it is MIT",
    )
    assert found.diff() == (
        "--- build.toml (v3)\n"
        "+++ build.toml (edition 5)\n"
        "@@ -1,6 +1,9 @@\n"
        " # The manifest of a kernel; this line must survive.\n"
        " [general]\n"
        ' name = "relu" # so must this one\n'
        "+version = 1\n"
        "+edition = 5\n"
        '+license = "MIT"\n'
        " backends = [\n"
        '     "cuda",\n'
        '     "xpu", # and this\n'
    )


def test_lost_comments_are_said():
    found = migrate((GOLDEN / "v1-hipify.before.toml").read_text(), licence="MIT")
    assert not found.kept
    assert found.notes[-1] == "the file was written anew; its comments are lost"


def test_line_ends_of_windows_stay():
    found = migrate(CASES["edition 4"].replace("\n", "\r\n"))
    assert found.kept
    assert found.text.count("\n") == found.text.count("\r\n") == CASES["edition 5"].count("\n")
    parse_manifest(found.text)


def accepted(text: str, directory: Path) -> _rust.Build:
    (directory / "build.toml").write_bytes(text.encode())
    return _rust.Build.open(directory)


@settings(max_examples=150, deadline=None)
@given(tables)
def test_drawn_manifests_say_the_same_afterwards(tmp_path_factory, table):
    text = write(table)
    before, after = parse_manifest(text), migrate(text)
    assert after.manifest.general.edition == 5
    assert (after.manifest.framework, after.manifest.kernels) == (before.framework, before.kernels)
    theirs = accepted(after.text, tmp_path_factory.mktemp("migrated"))
    assert len(theirs.general.backends) == len(before.general.backends)
    assert tomllib.loads(write_toml(tomllib.loads(after.text))) == tomllib.loads(after.text)


@settings(max_examples=150, deadline=None)
@given(tables, st.sets(st.sampled_from(["version", "license", "framework"])))
def test_what_older_forms_leave_out_is_filled_in(tmp_path_factory, table, lost):
    old = copy.deepcopy(table)
    for name in ("edition", "tpu", "kernel-depends"):
        old["general"].pop(name, None)
    for own in ("cuda", "neuron", "xpu"):
        old["general"].get(own, {}).pop("kernel-depends", None)
    for name in lost - {"framework"}:
        del old["general"][name]
    if "framework" in lost:
        for name in ("torch", "torch-noarch", "tvm-ffi"):
            old.pop(name, None)
    found = migrate(write(old), licence="MIT")
    accepted(found.text, tmp_path_factory.mktemp("migrated"))
    general = found.manifest.general
    assert general.version == (1 if "version" in lost else table["general"]["version"])
    assert general.license == ("MIT" if "license" in lost else table["general"]["license"])
    if "framework" in lost:
        assert found.manifest.framework_name == "torch-noarch"


@settings(max_examples=300, deadline=None)
@given(broken_tables(), st.booleans())
def test_broken_manifests_end_in_an_error_or_in_edition_5(table, old):
    if old and isinstance(table.get("general"), dict):
        for name in ("edition", "backends", "version"):
            table["general"].pop(name, None)
    try:
        found = migrate(write(table), licence="MIT")
    except ManifestError:
        return
    assert parse_manifest(found.text).general.edition == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[general]\nname = "ab"\nbackends = []\n',
            "build.toml: `general.license` is missing, and edition 5 needs it",
        ),
        ("x = 1", "build.toml: the section [general] is missing"),
        (
            '[general]\nname = "ab"\n[kernel.a]\nlanguage = "hip"\n',
            "build.toml: `kernel.a.language` is 'hip'; known are cuda, cuda-hipify, metal",
        ),
        (
            '[general]\nname = "ab"\n[kernel.a]\nlanguage = "cuda-hipify"\n[kernel.a_rocm]\n',
            "build.toml: `kernel.a` needs a twin for ROCm, but `kernel.a_rocm` is there already",
        ),
        (
            '[general]\nname = "ab"\nuniversal = true\n[torch]\nsrc = ["a.cpp"]\n',
            "build.toml: `general.universal` means Python alone, but `torch.src` names sources",
        ),
    ],
)
def test_what_cannot_be_migrated(text, message):
    with pytest.raises(ManifestError) as caught:
        migrate(text)
    assert caught.value.message == message


# ----------------------------------------------------------------------------- the verb


def invoke(*arguments):
    return CliRunner().invoke(main, ["migrate", *arguments], prog_name="kernelmill")


def test_the_verb_writes_and_says_what_it_did(tmp_path):
    path = tmp_path / "build.toml"
    before = (GOLDEN / "v3-comments.before.toml").read_text()
    path.write_text(before)
    path.chmod(0o640)
    shown = invoke("--project", str(tmp_path), "--license", "Apache-2.0", "--dry-run")
    assert (shown.exit_code, path.read_text()) == (0, before)
    assert shown.stdout == migrate(before, licence="Apache-2.0").diff()
    assert shown.stderr.endswith(f"{path} would be brought to edition 5\n")
    done = invoke("--project", str(tmp_path), "--license", "Apache-2.0")
    assert done.stdout == shown.stdout
    assert done.stderr.startswith("note: `general.version` was missing: it is 1\n")
    assert path.read_text() == (GOLDEN / "v3-comments.after.toml").read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    again = invoke("--project", str(tmp_path))
    assert (again.stdout, again.stderr) == ("", f"{path} is edition 5 already\n")


def test_the_verb_prints_json(tmp_path):
    (tmp_path / "build.toml").write_text((GOLDEN / "v4.before.toml").read_text())
    found = json.loads(invoke("--project", str(tmp_path), "--json").stdout)
    assert {key: found[key] for key in ("form", "changed", "comments_kept", "notes")} == {
        "form": "v4",
        "changed": True,
        "comments_kept": True,
        "notes": [],
    }


def test_the_verb_asks_for_a_licence_and_changes_nothing(tmp_path):
    (tmp_path / "build.toml").write_text('[general]\nname = "ab"\nbackends = []\n')
    done = invoke("--project", str(tmp_path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "error: build.toml: `general.license` is missing, and edition 5 needs it\n\n"
        "hint: `kernelmill migrate --license Apache-2.0` writes one of the Hub's identifiers\n"
    )


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "build.toml"
    before = (GOLDEN / "v4.before.toml").read_text()
    path.write_text(before)

    def refuse(*_):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(whole_file.os, "replace", refuse)
    done = invoke("--project", str(tmp_path))
    assert done.stderr == f"error: no space left on device ({path})\n"
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "build.toml").write_text((GOLDEN / "v4.before.toml").read_text())
    (tmp_path / "build.toml").symlink_to("real/build.toml")
    assert invoke("--project", str(tmp_path)).exit_code == 0
    assert (tmp_path / "build.toml").is_symlink()
    assert "edition = 5" in (tmp_path / "real" / "build.toml").read_text()
