"""The kernel projects in `examples/kernels`: each is built, checked and tested as its user would."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from kernels import _rust

from kernelmill.cli import main
from kernelmill.package.check import check_variant, find_variants
from kernelmill.package.manifest import read_manifest
from kernelmill.package.system import here

EXAMPLES = Path(__file__).parents[2] / "examples" / "kernels"
PROJECTS = sorted(path.parent.name for path in EXAMPLES.glob("*/build.toml"))
# The first is built, loaded and called in `test_build`; no CUTLASS runs in the second on a processor.
KNOWN = frozenset({"img2gray", "cutlass-gemm"})
# More bindings of torch, as `relu` has one, are built in the long suite.
LONG = KNOWN | {"rms-norm", "silu-and-mul"}
BUILT = [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in PROJECTS]
CUDA = [
    "relu",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("rms-norm", "silu-and-mul", "softmax-tvm-ffi")
    ),
    pytest.param("cutlass-gemm", marks=pytest.mark.slow),
]


@pytest.fixture
def copied(tmp_path):
    def copy(name):
        return shutil.copytree(EXAMPLES / name, tmp_path / Path(name).name)

    return copy


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "-q --no-header")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of the time of its start


def invoke(verb, root, *arguments):
    return CliRunner().invoke(
        main, [verb, "--project", str(root), *arguments], prog_name="kernelmill"
    )


def test_there_are_eight_and_two_that_fail():
    assert len(PROJECTS) >= 8
    assert len(list((EXAMPLES / "fails").glob("*/build.toml"))) == 2


def test_every_kind_of_kernel_is_there():
    manifests = [read_manifest(EXAMPLES / name) for name in PROJECTS]
    assert {m.framework_name for m in manifests} == {"torch", "torch-noarch", "tvm-ffi"}
    assert {bool(m.framework.stable_abi) for m in manifests if m.framework_name == "torch"} == {
        True,
        False,
    }


@pytest.mark.parametrize("name", BUILT)
def test_it_builds_passes_the_check_and_its_own_tests(copied, name):
    root = copied(name)
    _rust.Build.open(root)
    variants = ["--variant", "torch-stable-abi210-cpu-x86_64-linux"] if name == "img2gray" else []
    built = invoke("build", root, *variants)
    assert built.exit_code == 0, built.output
    (variant,) = find_variants(root)
    # One is loaded and called wrongly too; all are in the tests of the check.
    report = check_variant(variant, here(), run=name == "edit-distance")
    assert [f for f in report.findings if f.level != "note"] == []
    tested = invoke("test", root)
    assert tested.exit_code == 0, tested.output
    ran = [line for line in tested.stdout.splitlines() if ": passed on " in line]
    assert len(ran) == 1 + len(list((root / "tests").glob("*.cu")))


@pytest.mark.parametrize("name", CUDA)
def test_it_builds_for_cuda(copied, name):
    root = copied(name)
    wanted = {"silu-and-mul": "torch213-cxx11", "softmax-tvm-ffi": "tvm-ffi01"}
    variant = f"{wanted.get(name, 'torch-stable-abi210')}-cu130-x86_64-linux"
    built = invoke("build", root, "--variant", variant, "--arch", "8.0", "--arch", "9.0")
    assert built.exit_code == 0, built.output
    report = check_variant(root / "build" / variant, here())
    assert {f.level for f in report.findings} == {"note"}  # it was not loaded
    assert report.facts["gpu code"].startswith("sm_80, sm_90")


def test_a_capability_that_no_chip_has_is_refused(copied):
    done = invoke("build", copied("fails/invalid-capability"), "--all")
    assert done.exit_code == 1
    assert (
        "`kernel.add_one_cuda.cuda-capabilities`: no chip has compute capability 99999.0"
        in done.stderr
    )


def test_an_operator_without_a_namespace_is_found(copied):
    root = copied("fails/bad-registration")
    assert invoke("build", root).exit_code == 0
    report = check_variant(root / "build" / "torch-cpu", here())
    assert not report.passed
    assert {f.rule for f in report.findings if f.level == "error"} == {"registration"}
