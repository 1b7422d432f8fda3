"""`kernelmill generate cmake`: what CMake builds from it loads and computes like a build of ours."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from kernelmill.cli import main
from kernelmill.package.scaffold import plan, write

NAME = "torch-stable-abi210-cpu-x86_64-linux"


@pytest.fixture
def root(tmp_path):
    write(plan("grey", backends=("cpu",)), tmp_path / "grey")
    return tmp_path / "grey"


def invoke(*arguments):
    return CliRunner().invoke(main, list(arguments), prog_name="kernelmill")


def test_what_is_written(root):
    pyproject = (root / "pyproject.toml").read_text()
    done = invoke("generate", "cmake", "--project", str(root))
    assert done.exit_code == 0
    assert [line.removeprefix(f"{root}/") for line in done.stdout.splitlines()] == [
        "CMakeLists.txt",
        "setup.py",
        "compile_commands.json",
        "cmake-kernelmill/_ops.py",
        "cmake-kernelmill/metadata.json",
        "cmake-kernelmill/registration.h",
    ]
    assert done.stderr == (
        f"warning: {root}/pyproject.toml was kept: it is there already, and kernelmill did not write it\n"
    )
    assert (root / "pyproject.toml").read_text() == pyproject
    text = (root / "CMakeLists.txt").read_text()
    assert "add_library(_grey_cpu_cmake MODULE csrc/grey_cpu.cpp torch-ext/binding.cpp)" in text
    assert "TORCH_TARGET_VERSION=0x020a000000000000" in text
    # Nothing of this machine is in what can be committed.
    for name in ("CMakeLists.txt", "setup.py"):
        assert str(root) not in (root / name).read_text()
        assert sys.prefix not in (root / name).read_text()
    commands = json.loads((root / "compile_commands.json").read_text())
    assert [row["file"] for row in commands] == ["torch-ext/binding.cpp", "csrc/grey_cpu.cpp"]
    assert all(row["directory"] == str(root) for row in commands)


def test_a_file_of_the_users_stays(root):
    (root / "CMakeLists.txt").write_text("# mine\n")
    done = invoke("generate", "cmake", "--project", str(root))
    assert f"warning: {root}/CMakeLists.txt was kept" in done.stderr
    assert (root / "CMakeLists.txt").read_text() == "# mine\n"


def test_again_writes_the_same(root):
    invoke("generate", "cmake", "--project", str(root))
    first = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    assert invoke("generate", "cmake", "--project", str(root)).exit_code == 0
    assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == first


def test_the_commands_for_editors_compile(root):
    invoke("generate", "cmake", "--project", str(root))
    for row in json.loads((root / "compile_commands.json").read_text()):
        words = [*row["arguments"], "-fsyntax-only"]
        done = subprocess.run(
            words, cwd=row["directory"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("framework", "variant", "said"),
    [
        ("classic", "torch213-cxx11-cpu-x86_64-linux", 'if(NOT torch_version STREQUAL "2.13")'),
        ("tvm-ffi", "tvm-ffi01-cpu-x86_64-linux", "import pathlib, tvm_ffi;"),
    ],
)
def test_other_frameworks(tmp_path, framework, variant, said):
    root = tmp_path / "grey"
    write(plan("grey", backends=("cpu",), framework=framework), root)
    assert invoke("generate", "cmake", "--project", str(root), "--variant", variant).exit_code == 0
    assert said in (root / "CMakeLists.txt").read_text()


def test_what_cannot_be_generated(root, tmp_path):
    done = invoke("generate", "cmake", "--project", str(root), "--variant", "torch-cpu")
    assert done.stderr == f"error: there is no variant torch-cpu; there are\n  {NAME}\n"
    write(plan("grey", framework="noarch"), tmp_path / "python")
    done = invoke("generate", "cmake", "--project", str(tmp_path / "python"))
    assert done.stderr == (
        "error: torch-cpu has no machine code, so there is nothing for CMake to build\n"
    )


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake here")
def test_cmake_builds_a_variant_that_passes_its_tests(root, monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "-q --no-header")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of the time of its start
    python = f"-DPython3_EXECUTABLE={sys.executable}"
    assert invoke("generate", "cmake", "--project", str(root)).exit_code == 0
    made, place = root / "cmake-kernelmill" / "made", root / "build" / NAME
    for words in (
        ["-S", root, "-B", made, f"-DCMAKE_INSTALL_PREFIX={place}", python],
        ["--build", made],
        ["--install", made],
    ):
        done = subprocess.run(["cmake", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    tested = invoke("test", "--project", str(root), "--", "-k", "values or exception")
    assert (tested.exit_code, tested.stdout) == (0, f"tests in Python: passed on {NAME}\n")
    assert invoke("clean", "--project", str(root)).exit_code == 0
    assert not (root / "cmake-kernelmill").exists()
    assert not (root / "build").exists()
