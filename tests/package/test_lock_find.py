"""Which lock holds for whom: beside the code, in the metadata of its wheel, as named."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
import zipfile

import pytest

from kernelmill.errors import LockError
from kernelmill.package import lock_find
from kernelmill.package.index import KernelNeed
from kernelmill.package.lock import Lock, LockedFile, LockedKernel, LockedVariant
from kernelmill.package.lock_find import Caller, find_lock, read_any_lock
from kernelmill.package.lock_hf import HfLock
from kernelmill.package.wanted import Wanted

VARIANT = LockedVariant("torch-universal", {"__init__.py": LockedFile("ab" * 32, 3)})
OURS = Lock(
    (KernelNeed("org/x", Wanted(1)),),
    {"org/x": LockedKernel("org/x", "1.0.0", "v1", "cd" * 20, {VARIANT.name: VARIANT})},
)
THEIRS = HfLock({KernelNeed("org/x", Wanted(1)): "cd" * 20})
CODE = "from kernelmill.package.lock_find import caller, find_lock\ndef find(): return find_lock(caller())\n"


@pytest.fixture
def site(tmp_path, monkeypatch):
    place = tmp_path / "lib" / "site-packages"
    place.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(place))
    lock_find._names.cache_clear()
    yield place
    for name in ("lock_user", "lock_user.inner"):
        sys.modules.pop(name, None)
    lock_find._names.cache_clear()


def install(site, **locks):
    (site / "lock_user").mkdir()
    (site / "lock_user" / "__init__.py").write_text("from .inner import find\n")
    (site / "lock_user" / "inner.py").write_text(CODE)
    info = site / "lock_user-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lock-user\nVersion: 1.0\n")
    (info / "RECORD").write_text("lock_user/__init__.py,,\nlock_user/inner.py,,\n")
    for name, lock in locks.items():
        (info / f"{name}.lock").write_text(lock.text())
    importlib.invalidate_caches()
    return importlib.import_module("lock_user")


def test_an_installed_package_has_the_lock_of_its_metadata(site):
    found = install(site, kernelmill=OURS, kernels=THEIRS).find()
    assert found.lock.kernels == OURS.kernels
    assert found.place == "kernelmill.lock in the metadata of lock-user 1.0"
    assert found.project is None


def test_the_lock_of_others_serves_too(site):
    assert install(site, kernels=THEIRS).find().lock == THEIRS


def test_an_installed_package_does_not_take_a_lock_from_around(site, monkeypatch):
    (site / "kernelmill.lock").write_text(OURS.text())
    monkeypatch.chdir(site)
    module = install(site)
    with pytest.raises(LockError) as caught:
        module.find()
    assert str(caught.value).partition("\n")[0] == (
        "no lock was found for the module 'lock_user.inner'; "
        "looked in: the metadata of lock-user 1.0"
    )


def test_code_of_a_project_has_the_nearest_lock_above_it(tmp_path):
    project = tmp_path / "project"
    (project / "src" / "deep").mkdir(parents=True)
    code = project / "src" / "deep" / "code.py"
    code.write_text("")
    who = Caller("code", code)
    (tmp_path / "kernels.lock").write_text(THEIRS.text())
    assert find_lock(who).project == tmp_path
    (project / "kernels.lock").write_text(THEIRS.text())
    assert find_lock(who).lock == THEIRS
    (project / "kernelmill.lock").write_text(OURS.text())
    found = find_lock(who)
    assert (found.lock.kernels, found.project) == (OURS.kernels, project)
    assert found.place == str(project / "kernelmill.lock")


def test_an_interactive_session_has_that_of_the_current_directory(tmp_path, monkeypatch):
    (tmp_path / "kernelmill.lock").write_text(OURS.text())
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    text = "from kernelmill.package.lock_find import *; print(find_lock(caller()).place)"
    made = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == str(tmp_path / "kernelmill.lock")


def test_a_script_has_that_beside_it_wherever_it_is_started(tmp_path):
    (tmp_path / "kernels.lock").write_text(THEIRS.text())
    (tmp_path / "run.py").write_text(CODE + "print(find().place)\n")
    made = subprocess.run(
        [sys.executable, str(tmp_path / "run.py")], capture_output=True, text=True, check=True,
        cwd="/",
    )  # fmt: skip
    assert made.stdout.strip() == str(tmp_path / "kernels.lock")


def test_a_named_file_counts_in_any_case(tmp_path):
    for name, lock in (("a.txt", OURS), ("b.txt", THEIRS)):
        (tmp_path / name).write_text(lock.text())
        assert read_any_lock(tmp_path / name).lock.text() == lock.text()
        assert find_lock(Caller("x", None), tmp_path / name).project == tmp_path
    for text in ("", "x", "3"):
        (tmp_path / "c.txt").write_text(text)
        with pytest.raises(LockError, match=r"c.txt is"):
            read_any_lock(tmp_path / "c.txt")
    for name in ("none", "."):
        with pytest.raises(LockError, match="there is no "):
            read_any_lock(tmp_path / name)


# ----------------------------------------------------------------------------- in wheels


def build(tmp_path, pyproject, locks):
    project = tmp_path / "project"
    (project / "src" / "carrier").mkdir(parents=True)
    (project / "src" / "carrier" / "__init__.py").write_text(CODE)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "carrier"\nversion = "1.0"\n' + pyproject
    )
    for name, text in locks.items():
        (project / name).write_text(text)
    # The entry points of a kernelmill that is installed, whatever the environment's has.
    info = tmp_path / "entry" / "entry_of_kernelmill-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: entry-of-kernelmill\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[egg_info.writers]\nkernelmill.lock = kernelmill.package.lock_wheel:write\n"
        "kernels.lock = kernelmill.package.lock_wheel:write\n"
    )
    text = f"""
        import sys
        sys.path.append({str(info.parent)!r})
        from setuptools import build_meta
        print(build_meta.build_wheel({str(tmp_path)!r}))
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, cwd=project,
        timeout=600, check=False,
    )  # fmt: skip


NEEDS = '[tool.kernelmill.dependencies]\n"org/x" = 1\n'


def test_a_wheel_carries_its_locks_and_finds_them(tmp_path, site):
    made = build(tmp_path, NEEDS, {"kernelmill.lock": OURS.text(), "kernels.lock": THEIRS.text()})
    assert made.returncode == 0, made.stderr
    with zipfile.ZipFile(tmp_path / "carrier-1.0-py3-none-any.whl") as wheel:
        assert wheel.read("carrier-1.0.dist-info/kernelmill.lock").decode() == OURS.text()
        assert wheel.read("carrier-1.0.dist-info/kernels.lock").decode() == THEIRS.text()
        wheel.extractall(site)
    importlib.invalidate_caches()
    try:
        assert importlib.import_module("carrier").find().lock.kernels == OURS.kernels
    finally:
        sys.modules.pop("carrier", None)


def test_a_wheel_with_an_edited_lock_is_not_built(tmp_path):
    edited = OURS.text().replace("cd" * 20, "ce" * 20)
    made = build(tmp_path, NEEDS, {"kernelmill.lock": edited})
    assert made.returncode != 0
    assert "kernelmill.lock: kernels[0] (org/x) was changed after it was written" in made.stderr


def test_projects_that_name_no_kernels_are_left_alone(tmp_path):
    made = build(tmp_path, "", {"kernelmill.lock": "nonsense"})
    assert made.returncode == 0, made.stderr
    with zipfile.ZipFile(tmp_path / "carrier-1.0-py3-none-any.whl") as wheel:
        assert not [name for name in wheel.namelist() if name.endswith(".lock")]
