"""What `kernelmill new` writes: sound projects, in which every text is valid as it is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib

import pytest
from click.testing import CliRunner
from kernels import _rust

from kernelmill.cli import main
from kernelmill.errors import ManifestError, PackageError
from kernelmill.package.manifest import read_manifest
from kernelmill.package.project import require_sound
from kernelmill.package.scaffold import FRAMEWORKS, plan, write
from kernelmill.package.wheel import write_archive
from kernelmill.toolchain import find_host_compiler

BACKENDS = [("cpu",), ("cuda",), ("cpu", "cuda"), ("cpu", "rocm")]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("backends", BACKENDS, ids="-".join)
def test_a_new_project_is_sound(tmp_path, framework, backends):
    made = plan("my-kernel", framework=framework, backends=backends, licence="MIT")
    write(made, tmp_path / "my-kernel")
    root = tmp_path / "my-kernel"
    assert sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()) == [
        path for path, _ in made.files
    ]
    manifest = read_manifest(root)
    require_sound(root, manifest)
    assert manifest.general.backends == backends
    assert manifest.general.license == "MIT"
    assert len(_rust.Build.open(root).general.backends) == len(backends)
    stable = framework == "torch"
    assert (manifest.framework_name == "torch" and bool(manifest.framework.stable_abi)) == stable
    for path, text in made.files:
        assert not re.search(r"\{\{\w+\}\}", text)
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        if path.endswith(".py"):
            compile(text, path, "exec", ast.PyCF_ONLY_AST)
        elif path.endswith(".toml"):
            tomllib.loads(text)


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_new_project_builds_passes_its_tests_and_the_check(tmp_path, monkeypatch, framework):
    monkeypatch.setenv("PYTEST_ADDOPTS", "-q --no-header")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of the time of its start
    root = tmp_path / "grey"
    write(plan("grey", framework=framework), root)
    for verb in (["build"], ["test"], ["bench", "--iterations", "2"]):
        done = invoke(*verb, "--project", str(root))
        assert done.exit_code == 0, done.output
    done = invoke("check", str(root))
    assert done.exit_code == 0, done.output
    sane = [sys.executable, "-B", "sanity.py"]
    done = subprocess.run(sane, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_kernel_compiles_without_a_warning(tmp_path):
    write(plan("grey"), tmp_path / "grey")
    command = [
        *find_host_compiler().command,
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
    ]
    done = subprocess.run(
        [*command, str(tmp_path / "grey/csrc/grey_cpu.cpp")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_kernel_for_the_gpu_runs_on_the_emulator(tmp_path):
    from kernelmill.runtime.emulator import Sanitizer, run_program

    write(plan("grey"), tmp_path / "grey")
    csrc = tmp_path / "grey" / "csrc"
    for name in ("grey.h", "grey.cu", "grey_cpu.cpp"):
        (tmp_path / "grey" / "tests" / name).write_text((csrc / name).read_text())
    tests = tmp_path / "grey" / "tests"
    for sanitizer in (None, Sanitizer()):
        done = run_program(
            tests / "on_device.cu",
            others=[tests / "grey.cu", tests / "grey_cpu.cpp"],
            capture=True,
            sanitizer=sanitizer,
        )
        assert (done.returncode, done.stdout, done.reports) == (0, "0 differences\n", ())


@pytest.mark.parametrize("name", ["Relu", "a", "1a", "a_b", "a/b", "../a", ""])
def test_names_that_no_kernel_has(name):
    with pytest.raises(ManifestError, match="cannot be the name of a kernel"):
        plan(name)


@pytest.mark.parametrize("name", ["torch", "class", "static", "tvm-ffi", "lambda", "ops"])
def test_names_that_something_else_has(name):
    with pytest.raises(PackageError, match="is a word of Python or C") as caught:
        plan(name)
    assert plan(caught.value.hint.rpartition(" ")[2]).files


@pytest.mark.parametrize(
    ("backends", "found"), [((), "none"), (("cpu", "gpu"), "gpu"), (("tpu",), "tpu")]
)
def test_backends_that_no_kernel_is_compiled_for(backends, found):
    with pytest.raises(PackageError) as caught:
        plan("relu", backends=backends)
    assert caught.value.message == (
        f"backends of a kernel are cpu, cuda, metal, rocm, xpu; asked for {found}"
    )


def invoke(*arguments):
    return CliRunner().invoke(main, list(arguments), prog_name="kernelmill")


def test_new_writes_and_does_not_overwrite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("new", "img2gray", "--backends", "cpu")
    assert done.exit_code == 0
    assert "img2gray/torch-ext/binding.cpp\n" in done.stdout
    assert done.stderr == "\nnext: cd img2gray && kernelmill build && kernelmill test\n"
    again = invoke("new", "img2gray")
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr == (
        "error: img2gray is there already, and not empty\n\n"
        "hint: give another directory with --directory, or remove this one\n"
    )


def test_clean_removes_what_was_made_and_nothing_else(tmp_path):
    root = tmp_path / "img2gray"
    write(plan("img2gray"), root)
    before = sorted(root.rglob("*"))
    variant = root / "build" / "torch-stable-abi210-cpu-x86_64-linux"
    variant.mkdir(parents=True)
    (variant / "metadata.json").write_text("{}")
    (root / "build" / f"{variant.name}.log").write_text("")
    (root / "build" / "torch-cpu").symlink_to(root / "csrc")
    (root / "build" / "notes.txt").write_text("mine")
    (root / "CMakeLists.txt").write_text("# made by `kernelmill generate cmake`\n")
    (root / "setup.py").write_text("# mine\n")
    (root / "compile_commands.json").write_text("[]")  # another build system's
    (root / "dist").mkdir()
    (root / "dist" / "other.whl").write_text("mine")
    write_archive(root / "dist" / "ours.whl", {}, "img2gray", "1.0", tag="py3-none-any", facts=[])
    ours = (root / "dist" / "ours.whl").read_bytes()  # as if it had a password:
    locked = re.sub(rb"(PK\x01\x02.{4})\0", b"\\1\x01", ours, flags=re.DOTALL)
    (root / "dist" / "locked.whl").write_bytes(locked)
    shown = invoke("clean", "--project", str(root), "--dry-run")
    assert shown.stdout.count("would remove ") == 5
    assert variant.exists()
    done = invoke("clean", "--project", str(root))
    assert done.exit_code == 0
    assert done.stdout == shown.stdout.replace("would remove", "removed")
    assert done.stderr == (
        f"warning: {root}/build/notes.txt was kept: it is none of a build's files\n"
    )
    assert (root / "csrc" / "img2gray.h").exists()
    (root / "build" / "notes.txt").unlink()
    (root / "build").rmdir()
    (root / "setup.py").unlink()
    (root / "compile_commands.json").unlink()
    (root / "dist" / "other.whl").unlink()
    (root / "dist" / "locked.whl").unlink()
    (root / "dist").rmdir()
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("verb", [["build", "--list"], ["migrate"], ["clean"], ["check"]])
def test_a_project_is_found_from_within(tmp_path, monkeypatch, verb):
    write(plan("grey", framework="noarch"), tmp_path / "grey")
    monkeypatch.chdir(tmp_path / "grey" / "torch-ext" / "grey")
    done = invoke(*verb)
    if verb == ["check"]:  # nothing is built, and the place is named
        assert done.stderr.startswith(
            f"error: there are no built variants in {tmp_path / 'grey'}\n"
        )
    else:
        assert done.exit_code == 0, done.stderr


def test_clean_wants_a_project(tmp_path):
    (tmp_path / "build" / "torch-cpu").mkdir(parents=True)
    done = invoke("clean", "--project", str(tmp_path))
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: there is no build.toml in {tmp_path}\n")
    assert (tmp_path / "build" / "torch-cpu").exists()
