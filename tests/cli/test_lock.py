"""The verbs of versions and locks: what they print and change, and what they say when they cannot."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from hub_clients import clean  # noqa: F401 - a fixture
from kernelmill import cli
from published_kernels import new_registry, release


def invoke(*arguments):
    return CliRunner().invoke(cli.main, list(map(str, arguments)), prog_name="kernelmill")


def ok(*arguments):
    done = invoke(*arguments)
    assert done.exit_code == 0, done.stderr
    return done


def refused(*arguments):
    done = invoke(*arguments)
    assert done.exit_code == 1, (done.stdout, done.stderr)
    return done.stderr


@pytest.fixture
def registry(tmp_path, clean):  # noqa: F811
    return new_registry(tmp_path / "registry")


@pytest.fixture
def project(tmp_path, registry):
    place = tmp_path / "project"
    place.mkdir()
    (place / "pyproject.toml").write_text(
        "[[tool.kernelmill.registry]]\n"
        f'name = "here"\nurl = "{tmp_path / "registry"}"\ntrust = "all"\n'
        '[tool.kernelmill.dependencies]\n"org/top" = ">=1"\n'
    )
    release(registry, "org/base", "1.0.0", python=["einops>=0.7"])
    release(registry, "org/top", "1.0.0", ranged=[("org/base", ">=1")])
    return place


def test_versions(registry, tmp_path):
    where = tmp_path / "registry"
    one = release(registry, "org/x", "1.0.0", variants=("torch-npu",))
    two = release(registry, "org/x", "1.2.0", variants=("torch-universal", "torch-npu"))
    done = ok("versions", "org/x", "--registry", where)
    assert done.stdout.splitlines() == [
        f"1.2.0  {two[:12]}  v1",
        "  torch-universal: preferred",
        "  torch-npu: it is for npu; this system has cpu",
        f"1.0.0  {one[:12]}",
        "  torch-npu: it is for npu; this system has cpu",
    ]
    found = json.loads(ok("versions", "org/x", "--registry", where, "--json").stdout)
    assert found["repo_id"] == "org/x"
    assert [v["version"] for v in found["versions"]] == ["1.2.0", "1.0.0"]
    assert found["versions"][0]["preferred"] == "torch-universal"
    assert found["versions"][1]["variants"] == [
        {"name": "torch-npu", "accepted": False, "reason": "it is for npu; this system has cpu"}
    ]
    branches = ok("versions", "org/x", "--registry", where, "--no-index").stdout.splitlines()
    assert branches[0] == f"1  {two[:12]}  v1"
    assert "has no repository org/none" in refused("versions", "org/none", "--registry", where)
    registry.create("org/empty")
    done = ok("versions", "org/empty", "--registry", where)
    assert (done.stdout, "has no versions" in done.stderr) == ("", True)


def test_lock_sync_check_and_why(project, registry):
    done = ok("lock", "--project", project)
    commits = {r: registry.commit(r, "v1") for r in ("org/base", "org/top")}
    assert done.stdout.splitlines() == [f"{r} 1.0.0 ({c[:12]})" for r, c in sorted(commits.items())]
    assert "kernels.lock" in done.stderr
    ok("lock", "--project", project, "--check")
    ok("lock", "--project", project, "--check", "--offline")
    done = ok("sync", "--lockfile", project / "kernelmill.lock")
    assert done.stdout.startswith("org/base 1.0.0  torch-universal  ")
    ok("sync", "--lockfile", project / "kernels.lock", "--offline")
    assert ok("why", "org/base", "--project", project).stdout.splitlines() == [
        f"org/base 1.0.0 ({commits['org/base']})",
        "  the project -> org/top (>=1) -> org/base (>=1)",
    ]
    assert ok("why", "Einops", "--project", project).stdout.splitlines() == [
        "Einops",
        "  the project -> org/top (>=1) -> org/base (>=1) -> einops>=0.7",
    ]
    found = json.loads(ok("why", "org/top", "--project", project, "--json").stdout)
    assert found[0]["chains"] == [["org/top (>=1)"]]
    assert refused("why", "org/none", "--project", project) == (
        "error: nothing needs org/none; locked: org/base, org/top, einops\n"
    )


def test_verify_and_info_take_the_version_that_is_locked_here(project, registry, monkeypatch):
    ok("lock", "--project", project)
    newer = release(registry, "org/top", "1.5.0", ranged=[("org/base", ">=1")])
    monkeypatch.chdir(project)
    ok("sync")
    assert "version     1.0.0" in ok("info", "org/top", "--registry", "here").stdout
    assert ok("verify", "org/top").stdout.startswith("torch-universal  holds\n")
    assert newer in ok("info", "org/top", "--version", ">=1").stdout


def test_locking_again_says_what_changes(project, registry):
    first = ok("lock", "--project", project).stdout
    release(registry, "org/top", "1.1.0")
    assert ok("lock", "--project", project).stdout == first
    old = registry.commit("org/base", "v1")
    lines = ok("lock", "--project", project, "--upgrade").stdout.splitlines()
    new = registry.commit("org/top", "v1")
    assert lines[0].startswith(f"org/top 1.1.0 ({new[:12]}), was 1.0.0 (")
    assert lines[1] == "org/base is not needed any more"
    (project / "pyproject.toml").write_text(
        (project / "pyproject.toml").read_text() + '"org/base" = 1\n'
    )
    lines = ok("lock", "--project", project).stdout.splitlines()
    assert lines == [f"org/base 1.0.0 ({old[:12]}), new", f"org/top 1.1.0 ({new[:12]})"]
    release(registry, "org/base", "1.3.0")
    release(registry, "org/top", "1.4.0")
    found = json.loads(
        ok("lock", "--project", project, "--upgrade-kernel", "org/base", "--json").stdout
    )
    assert [(k["slot"], k["version"]) for k in found["kernels"]] == [
        ("org/base", "1.3.0"), ("org/top", "1.1.0"),
    ]  # fmt: skip


def test_a_lock_that_was_edited_is_refused_and_made_anew(project):
    ok("lock", "--project", project)
    path = project / "kernelmill.lock"
    text = path.read_text()
    path.write_text(text.replace('"version": "1.0.0"', '"version": "1.0.1"', 1))
    said = f"{path}: kernels[0] (org/base) was changed after it was written: its digest is"
    for verb in (["lock", "--check"], ["why", "org/top"]):
        assert refused(*verb, "--project", project).startswith(f"error: {said}")
    assert refused("sync", "--lockfile", path).startswith(f"error: {said}")
    done = ok("lock", "--project", project)
    assert done.stderr.startswith(f"warning: {said}")
    assert path.read_text() == text


def test_check_says_what_moved(project, registry):
    ok("lock", "--project", project)
    release(registry, "org/base", "1.0.0", salt="!")  # published again, in the index, too
    text = refused("lock", "--project", project, "--check")
    assert "org/base: v1 stood at " in text
    assert "hint: `kernelmill lock` makes it anew; `git diff` shows what that changes" in text
    ok("lock", "--project", project, "--check", "--offline")


def test_what_cannot_be_locked(project, registry):
    release(registry, "org/other", "1.0.0", ranged=[("org/base", ">=2")])
    with (project / "pyproject.toml").open("a") as stream:
        stream.write('"org/other" = 1\n')
    text = refused("lock", "--project", project)
    assert "the project -> org/other 1.0.0 -> org/base (>=2)" in text
    assert not (project / "kernelmill.lock").exists()
    assert "--offline is for --check" in refused("lock", "--project", project, "--offline")
    (project / "pyproject.toml").unlink()
    assert "there is no " in refused("lock", "--project", project)
    assert "there is no " in refused("lock", "--project", project, "--check")
    assert "`kernelmill lock` makes it" in refused("why", "org/x", "--project", project)


def test_a_project_is_found_from_within(project, registry, monkeypatch):
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    assert "wrote " in ok("lock").stderr
    assert (project / "kernelmill.lock").is_file()
    # The registry that serves the organization stands in the project's file.
    assert ok("versions", "org/top").stdout.startswith("1.0.0")
    assert "org/top 1.0.0" in ok("sync").stdout
    assert ok("why", "org/base").stdout == ok("why", "org/base", "--project", project).stdout
    ok("verify", "org/top")
    ok("lock", "--check")


def test_each_organization_has_its_registry(project, registry, tmp_path):
    other = new_registry(tmp_path / "other")
    release(other, "acme/relu", "2.0.0", ranged=[("org/base", ">=1")])
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(
        f'[[tool.kernelmill.registry]]\nname = "acme"\nurl = "{tmp_path / "other"}"\n'
        f'organizations = ["acme"]\ntrust = "all"\n{text}"acme/relu" = 2\n'
    )
    done = ok("lock", "--project", project)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "acme/relu", "org/base", "org/top",
    ]  # fmt: skip
    done = ok("sync", "--lockfile", project / "kernelmill.lock", "--json")
    assert {one["slot"] for one in json.loads(done.stdout)} == {"acme/relu", "org/base", "org/top"}
    ok("lock", "--project", project, "--check")
