"""`kernelmill test` and `kernelmill bench` on a project of the scaffold."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from kernelmill.cli import main
from kernelmill.package.build import Options, build
from kernelmill.package.matrix import machine_entries, read_project
from kernelmill.package.scaffold import plan, write

NAME = "torch-stable-abi210-cpu-x86_64-linux"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs") / "grey"
    write(plan("grey"), root)
    made = read_project(root)
    build(made, machine_entries(made), Options(jobs=2, unique="0123abc"))
    return root


@pytest.fixture
def root(built, tmp_path):
    return shutil.copytree(built, tmp_path / "grey")


def invoke(*arguments):
    return CliRunner().invoke(main, list(arguments), prog_name="kernelmill")


@pytest.fixture
def quiet(monkeypatch):
    """pytest in pytest writes where the outer one writes; these tests are about the verb's lines."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-q --no-header -p no:randomly")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of the time of its start


def test_python_and_device_code_pass(root, quiet):
    done = invoke("test", "--project", str(root), "--", "-k", "values or exception")
    assert (done.exit_code, done.stdout) == (
        0,
        f"tests in Python: passed on {NAME}\non_device.cu: passed on the emulator\n",
    )
    assert done.stderr == (
        "note: the CUDA binding was not run: no GPU; its device code ran in tests/*.cu\n"
    )
    assert not list(root.rglob("__pycache__"))
    assert not list(root.rglob(".pytest_cache"))


def test_a_test_that_fails(root, quiet):
    (root / "tests" / "test_grey.py").write_text(
        "import grey\n\n\ndef test():\n    assert not grey.grey\n"
    )
    (root / "tests" / "on_device.cu").unlink()
    done = invoke("test", "--project", str(root))
    assert done.exit_code == 1
    assert done.stdout == f"tests in Python: failed on {NAME}\n"
    assert done.stderr.endswith("error: 1 of 1 failed: tests in Python\n")
    assert "no tests/*.cu runs its device code" in done.stderr


def test_device_code_that_computes_something_else(root):
    path = root / "csrc" / "grey.cu"
    path.write_text(path.read_text().replace("77u", "78u"))
    (root / "tests" / "test_grey.py").unlink()
    done = invoke("test", "--project", str(root))
    assert done.exit_code == 1
    assert done.stdout == "on_device.cu: failed on the emulator\n"
    assert " differences\n" in done.stderr


def test_the_sanitizer_finds_what_values_do_not_show(root):
    path = root / "csrc" / "grey.cu"
    # One row too many is written, behind the image.
    path.write_text(path.read_text().replace("y >= height", "y > height"))
    (root / "tests" / "test_grey.py").unlink()
    done = invoke("test", "--sanitize", "--project", str(root))
    assert done.exit_code == 1
    assert done.stdout == "on_device.cu: failed on the emulator, with the sanitizer\n"
    assert "out of bounds" in done.stderr
    assert "grey.cu:" in done.stderr


def test_device_code_that_does_not_compile(root):
    path = root / "csrc" / "grey.cu"
    path.write_text(path.read_text().replace("const dim3 block(32, 8);", "const dim3 block(32, 8)"))
    (root / "tests" / "test_grey.py").unlink()
    done = invoke("test", "--project", str(root))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "grey.cu" in done.stderr


def test_nothing_is_built(root):
    shutil.rmtree(root / "build")
    done = invoke("test", "--project", str(root))
    assert done.exit_code == 1
    assert done.stderr.endswith("hint: `kernelmill build` makes it\n")


def test_what_is_built_is_of_another_version(root):
    for name in ("build.toml", "pyproject.toml"):
        text = (root / name).read_text()
        (root / name).write_text(
            text.replace("version = 1", "version = 2").replace('"1.0.0"', '"2.0.0"')
        )
    done = invoke("test", "--project", str(root))
    assert done.stderr == (
        f"error: {NAME} is grey 1; the project is grey 2\n\nhint: `kernelmill build` makes it anew\n"
    )


def test_a_changed_file_is_not_tested(root, capfd):
    (root / "build" / NAME / "__init__.py").write_text("grey = None\n")
    (root / "tests" / "on_device.cu").unlink()
    done = invoke("test", "--project", str(root))
    assert (done.exit_code, done.stdout) == (1, f"tests in Python: failed on {NAME}\n")
    said = capfd.readouterr().err  # pytest's, which is a process of its own
    assert f"ERROR: {root / 'build' / NAME} is not what its digest promises" in said
    assert "INTERNALERROR" not in said


def test_no_tests(root):
    shutil.rmtree(root / "tests")
    done = invoke("test", "--project", str(root))
    assert done.stderr.endswith(
        "error: no tests\n\nhint: tests/test_*.py and tests/*.cu are what is run\n"
    )


def test_benchmarks_are_kept_beside_the_variant(root):
    done = invoke("bench", "--project", str(root), "--iterations", "3", "--warmup", "1", "--json")
    assert done.exit_code == 0
    (row,) = json.loads(done.stdout)
    assert (row["benchmark"], row["iterations"], row["difference"]) == ("Benchmark.full_hd", 3, 0.0)
    assert 0 < row["least"] <= row["median"] <= row["mean"] * 3
    kept = json.loads((root / "build" / f"{NAME}.benchmarks.json").read_text())
    assert (kept["kernel"], kept["version"], kept["id"]) == ("grey", "1.0.0", "_grey_cpu_0123abc")
    assert kept["results"] == [row]


def test_a_benchmark_whose_result_is_wrong(root):
    path = root / "benchmarks" / "benchmark_grey.py"
    path.write_text(path.read_text().replace("77 *", "99 *"))
    done = invoke("bench", "--project", str(root), "--iterations", "1", "--warmup", "0")
    assert done.exit_code == 1
    assert done.stderr.endswith("error: 1 of 1 results are wrong: Benchmark.full_hd\n")


def test_a_benchmark_that_raises(root, capfd):
    (root / "benchmarks" / "benchmark_grey.py").write_text("raise RuntimeError('not today')\n")
    done = invoke("bench", "--project", str(root))
    assert done.stderr == "error: benchmark_grey.py failed: it ended with status 1\n"
    assert "RuntimeError: not today" in capfd.readouterr().err


def test_no_benchmarks(root):
    shutil.rmtree(root / "benchmarks")
    done = invoke("bench", "--project", str(root))
    assert done.stderr.startswith(f"error: there are no benchmarks in {root}/benchmarks\n")
