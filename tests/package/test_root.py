"""Where a project begins: its file here, above, nowhere, or put there by somebody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelmill.package.root import project_root


@pytest.fixture
def deep(tmp_path):
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    return tmp_path / "a" / "b" / "c"


def test_the_nearest_directory_counts(deep, tmp_path, monkeypatch):
    assert project_root("build.toml", deep) == deep
    for place in (tmp_path, tmp_path / "a" / "b", deep):
        (place / "build.toml").write_text("")
        assert project_root("build.toml", deep) == place
    monkeypatch.chdir(deep.parent)
    assert project_root("build.toml") == Path()
    (deep.parent / "build.toml").unlink()
    assert project_root("build.toml") == tmp_path


def test_a_directory_of_that_name_is_no_file(deep, tmp_path):
    (tmp_path / "build.toml").mkdir()
    assert project_root("build.toml", deep) == deep


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else_above_does_not_count(deep, tmp_path):
    place = tmp_path / "a" / "pyproject.toml"
    place.write_text("")
    os.chown(place, 12345, -1)
    assert project_root("pyproject.toml", deep) == deep
    os.chown(deep, 12345, -1)  # a checkout that belongs to whoever mounted it
    assert project_root("pyproject.toml", deep) == tmp_path / "a"
