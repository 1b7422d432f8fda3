"""Built kernels as users have them: wheels that pip installs, editable installs, another torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import kernel_projects as kp
from kernelmill.config import override
from kernelmill.errors import PackageError, ToolchainError
from kernelmill.package import choice, matrix, shell, system
from kernelmill.package.matrix import read_project
from kernelmill.package.project_tests import variant_for
from kernelmill.package.shell import Environment, environment_of, lacks_torch

CPU = f"torch-stable-abi210-cpu-{kp.MACHINE}"
GREY = """
import torch, {name} as kernel
image = torch.full((2, 2, 3), 100, dtype=torch.uint8)
assert kernel.{name}(image).tolist() == [[100, 100], [100, 100]]
"""
USE = GREY.format(name=kp.NAME)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = kp.scaffolded(tmp_path_factory.mktemp("use") / kp.NAME, "torch", ("cpu",))
    kp.kernelmill("build", cwd=root)
    return root


def pip(*words, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wheel_is_installed_and_computes(root, tmp_path):
    done = kp.kernelmill("wheel", "--out", tmp_path / "a", "--json", cwd=root)
    (row,) = json.loads(done.stdout)
    name = f"{kp.NAME}-1.0.0+tsabi210.cpu-cp39-abi3-manylinux_2_24_x86_64.whl"
    assert Path(row["path"]).name == name
    assert row["requires"] == ["torch>=2.10"]
    pip("install", "--no-deps", "--target", tmp_path / "site", row["path"])
    kp.python(USE, PYTHONPATH=str(tmp_path / "site"))
    # The same bytes again, and from a repository that somebody else published.
    kp.kernelmill("wheel", "--out", tmp_path / "b", "--from", root / "build" / CPU)
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_changed_file_makes_no_wheel(root, tmp_path):
    import shutil

    copy = shutil.copytree(root / "build" / CPU, tmp_path / "build" / CPU)
    (copy / "__init__.py").write_text("")
    done = kp.kernelmill("wheel", "--from", tmp_path, "--out", tmp_path / "dist", check=1)
    assert "__init__.py: expected" in done.stderr
    assert not (tmp_path / "dist").exists()
    done = kp.kernelmill("wheel", "--variant", "torch-none*", cwd=root, check=1)
    assert "holds no variant torch-none*; it holds torch-stable-abi210-cpu" in done.stderr


def test_pip_installs_it_editable_and_a_reload_sees_the_edit(tmp_path):
    root = kp.scaffolded(tmp_path / kp.NAME, "torch", ("cpu",))
    site = tmp_path / "site"
    pip("install", "--no-build-isolation", "--no-deps", "--prefix", site, "-e", root)
    (place,) = site.glob("lib/python3*/site-packages")
    assert len(list(place.glob("__editable__*"))) == 2
    code = (
        f"import site, sys; site.addsitedir({str(place)!r})\n{USE}"
        """
import importlib
from pathlib import Path
from kernelmill.errors import CompileError
root = Path(sys.argv[1])
source = root / "csrc/img2gray_cpu.cpp"
text = source.read_text()
def edit(old, new):
    source.write_text(text.replace(old, new))
    importlib.reload(kernel)
    return kernel.img2gray(image)[0, 0].item()
assert edit("128u", "640u") == 102
assert edit("128u", "1152u") == 104
assert edit("128u", "128u") == 100  # an earlier state of the sources
before = kernel.__kernelmill__.identifier
importlib.reload(kernel)
assert kernel.__kernelmill__.identifier == before  # nothing changed, so nothing is loaded
try:
    edit("128u", "no_such_name")
except CompileError as error:
    assert "no_such_name" in error.log
assert kernel.img2gray(image)[0, 0].item() == 100
init = root / "torch-ext/img2gray/__init__.py"
init.write_text(init.read_text() + "\\nANSWER = 42\\n")
source.write_text(text)
assert importlib.reload(kernel).ANSWER == 42
"""
    )
    kp.python(code, root)


def test_the_verb_dev(tmp_path):
    root = kp.scaffolded(tmp_path / "devtest", "torch", ("cpu",))
    toml = root / "build.toml"
    toml.write_text(toml.read_text().replace('"img2gray"', '"kernelmill-dev-test"'))
    (root / "torch-ext/img2gray").rename(root / "torch-ext/kernelmill_dev_test")
    try:
        done = kp.kernelmill("dev", "--once", cwd=root)
        assert "compiled" in done.stdout
        kp.python(USE.replace("img2gray as", "kernelmill_dev_test as"))
    finally:
        done = kp.kernelmill("dev", "--remove", cwd=root)
    assert done.stdout.count("removed ") == 2
    done = subprocess.run([sys.executable, "-c", "import kernelmill_dev_test"], capture_output=True)
    assert done.returncode == 1


REGISTRATION = """
#pragma once
#include <Python.h>
#define CONCAT_(A, B) A##B
#define CONCAT(A, B) CONCAT_(A, B)
#define STRINGIFY_(A) #A
#define STRINGIFY(A) STRINGIFY_(A)
#define STABLE_TORCH_LIBRARY_EXPAND(NAME, MODULE) STABLE_TORCH_LIBRARY(NAME, MODULE)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) STABLE_TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)
#define REGISTER_EXTENSION(NAME) \\
  PyMODINIT_FUNC CONCAT(PyInit_, NAME)() { \\
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, STRINGIFY(NAME), nullptr, 0, nullptr}; \\
    return PyModule_Create(&module); \\
  }
"""


def test_a_registration_of_the_projects_own_needs_no_python_headers(tmp_path):
    root = kp.scaffolded(tmp_path / kp.NAME, "torch", ("cpu",))
    (root / "torch-ext/registration.h").write_text(REGISTRATION)
    kp.kernelmill("build", cwd=root)
    code = f"import sys; sys.path.insert(0, {str(root / 'wheels')!r})\n{USE}"
    kp.kernelmill("wheel", "--out", "wheels", cwd=root)
    (made,) = (root / "wheels").iterdir()
    with zipfile.ZipFile(made) as archive:
        archive.extractall(root / "wheels")
    kp.python(code)


EXCEPTIONS = """
#include <charconv>
#include <exception>
#include <string_view>
struct Kept {
  static inline int alive = 0;
  Kept() { ++alive; }
  Kept(const Kept&) { ++alive; }
  ~Kept() { --alive; }
};
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_caught(int times) {
  std::exception_ptr first;
  try {
    throw Kept();
  } catch (...) {
    first = std::current_exception();
  }
  int caught = 0;
  for (int i = 0; i < times; ++i) {
    std::exception_ptr copy = first, other = copy;
    first = other;
    try {
      std::rethrow_exception(copy);
    } catch (const Kept& kept) {
      caught += kept.alive;
    }
  }
  first = nullptr;
  return Kept::alive ? -1 : caught;
}
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_printed(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + 64, value);
  return std::string_view(text, end.ptr - text) == "-0.1";
}
"""


def test_what_newer_libraries_have_loads_on_older_systems(tmp_path):
    import ctypes

    from kernelmill.package.check_library import manylinux_of
    from kernelmill.package.elf import read_library

    root = kp.scaffolded(tmp_path / kp.NAME, "tvm-ffi", ("cpu",))
    source = root / "csrc/img2gray_cpu.cpp"
    source.write_text(source.read_text() + EXCEPTIONS)
    kp.kernelmill("build", cwd=root)
    (library,) = root.glob("build/*/*.so")
    assert manylinux_of(read_library(library)) == "2_24"
    import tvm_ffi  # noqa: F401 - what the library needs, is in the process

    loaded = ctypes.CDLL(str(library))
    assert loaded.__tvm_ffi_caught(1000) == 1000
    assert loaded.__tvm_ffi_printed(ctypes.c_double(-0.1)) == 1


@pytest.mark.parametrize(
    ("framework", "header", "hint"),
    [
        ("torch", "torch/all.h", "without `stable-abi` all are there"),
        ("classic", "torch/csrc/python_headers.h", "include torch/all.h, and register with TORCH_"),
    ],
)
def test_headers_that_a_binding_cannot_include(tmp_path, framework, header, hint):
    root = kp.scaffolded(tmp_path / kp.NAME, framework, ("cpu",))
    (root / "torch-ext/binding.cpp").write_text(f"#include <{header}>\n")
    done = kp.kernelmill("build", cwd=root, check=1)
    assert hint in done.stderr


def test_watching_builds_after_each_change(tmp_path):
    from kernelmill.package.watch import follow

    root = kp.scaffolded(tmp_path / kp.NAME, "torch", ("cpu",))
    events = follow(root)
    assert not next(events).failed
    source = root / "csrc/img2gray_cpu.cpp"
    text = source.read_text()
    source.write_text(text + "\n#error stop here\n")
    event = next(events)
    assert event.failed
    assert "stop here" in str(event)
    source.write_text(text)
    assert not next(events).failed


def test_the_backend_builds_wheel_and_source_archive(root, tmp_path, monkeypatch):
    from kernelmill.package import backend

    monkeypatch.chdir(root)
    name = backend.build_wheel(str(tmp_path))
    assert zipfile.ZipFile(tmp_path / name).testzip() is None
    archive = backend.build_sdist(str(tmp_path))
    assert archive == f"{kp.NAME}-1.0.0.tar.gz"
    assert backend.get_requires_for_build_editable() == []


# ----------------------------------------------------------------------------- make full


@pytest.mark.slow
def test_all_variants_with_an_older_torch_and_all_architectures(tmp_path):
    root = kp.three_bindings(tmp_path / kp.NAME, ("2.11", "2.13"), ("cpu", "cuda"))
    done = kp.kernelmill("build", "--all", "--json", cwd=root)
    rows = {row["variant"]: row for row in json.loads(done.stdout)}
    assert len(rows) == 12
    from kernelmill.package.metadata import read_metadata
    from kernelmill.package.nvcc import default_archs
    from kernelmill.package.release import Release

    for version, backend in (("13.0", "cu130"), ("12.8", "cu128")):
        place = root / "build" / f"torch211-cxx11-{backend}-{kp.MACHINE}"
        assert read_metadata(place).archs == default_archs(Release.parse(version))


def test_what_is_built_and_cannot_be_loaded_here_needs_its_framework(tmp_path, monkeypatch):
    place = kp.scaffolded(tmp_path / "grey", "tvm-ffi", ("cpu",))
    project = read_project(place)
    with pytest.raises(PackageError, match="img2gray is not built yet\n\nhint: `kernelmill build`"):
        variant_for(project)
    (place / "build" / f"tvm-ffi01-cpu-{kp.MACHINE}").mkdir(parents=True)
    without = replace(system.here("cpu"), tvm_ffi=None)
    for module in (choice, matrix):
        monkeypatch.setattr(module, "here", lambda *_: without)
    with pytest.raises(PackageError) as caught:
        variant_for(project)
    assert caught.value.message.endswith("it is for tvm-ffi 0.1; no tvm-ffi is installed")
    assert caught.value.hint.startswith("`pip install apache-tvm-ffi` brings what it needs")


def test_a_shell_says_what_is_not_in_it(root, tmp_path):
    environment = Environment(tmp_path, {"PATH": str(tmp_path)})
    with pytest.raises(ToolchainError, match="there is no program 'nosuch' in the environment"):
        environment.execute(["nosuch"])
    project = read_project(root)
    assert [lacks_torch(project, torch) for torch in (None, "2.12")] == [True, False]


def test_an_environment_that_was_not_made_leaves_nothing(root, tmp_path, monkeypatch):
    def must(command, _seconds, what):
        if "venv" not in command:
            raise ToolchainError(what)
        Path(command[-1], "bin").mkdir(parents=True)

    monkeypatch.setattr(shell, "_must", must)
    with override(cache_dir=tmp_path / "cache"):
        with pytest.raises(ToolchainError, match=r"^numpy click pytest were not installed"):
            environment_of(read_project(root), None)
        assert list((tmp_path / "cache" / "build" / "environments").iterdir()) == []


@pytest.mark.slow
def test_a_shell_with_an_older_torch(root):
    code = USE + "print(torch.__version__)"
    done = kp.kernelmill("shell", "--torch", "2.11", "python", "-c", code, cwd=root)
    assert done.stdout.startswith("2.11.")
    done = kp.kernelmill("shell", "--torch", "2.11", "kernelmill", "--version", cwd=root)
    assert done.stdout


ATEN = """
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

template <class T>
__global__ void twice(const T* x, T* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i] + x[i];
}

void twice_out(torch::Tensor& y, const torch::Tensor& x) {
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  if (x.numel() == 0) return;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "twice", [&] {
    twice<scalar_t><<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(), x.numel());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""
BINDING = """
#include <torch/all.h>
#include <torch/library.h>
#include "registration.h"

void twice_out(torch::Tensor& y, const torch::Tensor& x);

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("twice(Tensor! y, Tensor x) -> ()");
  ops.impl("twice", torch::kCUDA, &twice_out);
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


@pytest.mark.slow
def test_cuda_13_from_its_wheels(tmp_path):
    root = kp.scaffolded(tmp_path / kp.NAME, "torch", ("cuda",))
    places = [p for p in os.environ["PATH"].split(os.pathsep) if not Path(p, "nvcc").exists()]
    name = f"torch-stable-abi210-cu130-{kp.MACHINE}"
    words = ("build", "--arch", "9.0", "--variant", name)
    kp.kernelmill(*words, cwd=root, PATH=os.pathsep.join(places))
    lock = json.loads((root / "toolchain.lock").read_text())
    assert len(lock["cuda"]["13.0"]["wheels"]) == 5
    (library,) = (root / "build" / name).glob("*.so")
    made = library.read_bytes()
    kp.kernelmill(*words, cwd=root)
    if lock["cuda"]["13.0"]["release"] == "13.0.88":  # the toolkit on PATH is the same one
        assert library.read_bytes() == made


@pytest.mark.slow
def test_precompiled_headers_change_no_byte(tmp_path):
    root = kp.scaffolded(tmp_path / kp.NAME, "classic", ("cpu",))
    name = f"torch213-cxx11-cpu-{kp.MACHINE}"
    made = []
    for words in ([], ["--precompiled"]):
        kp.kernelmill("build", "--no-cache", "--verbose", "--variant", name, *words, cwd=root)
        made.append(kp.tree(root / "build" / name))
        log = (root / "build/.kernelmill/logs" / f"{name}.log").read_text()
        assert ("torch_headers.h -std=" in log) == bool(words)
        kp.kernelmill("clean", cwd=root)
    assert made[0] == made[1]


@pytest.mark.slow
def test_device_code_with_atens_headers(tmp_path):
    from kernelmill.package.check import check_variant
    from kernelmill.package.system import here

    root = kp.scaffolded(tmp_path / kp.NAME, "classic", ("cuda",))
    (root / "csrc/img2gray.cu").write_text(ATEN)
    (root / "torch-ext/binding.cpp").write_text(BINDING)
    name = f"torch213-cxx11-cu130-{kp.MACHINE}"
    kp.kernelmill("build", "--arch", "8.0", "--arch", "9.0", "--variant", name, cwd=root)
    report = check_variant(root / "build" / name, here())
    assert {finding.level for finding in report.findings} == {"note"}  # it was not loaded
    assert report.facts["gpu code"].startswith("sm_80, sm_90")


@pytest.mark.slow
def test_cutlass_from_its_wheel(tmp_path):
    root = kp.scaffolded(tmp_path / kp.NAME, "torch", ("cuda",))
    toml = root / "build.toml"
    toml.write_text(
        toml.read_text().replace('depends = ["torch"]', 'depends = ["torch", "cutlass_4_0"]')
    )
    source = root / "csrc/img2gray.cu"
    source.write_text(
        "#include <cutlass/gemm/device/gemm.h>\nusing Gemm = cutlass::gemm::device::Gemm<float, cutlass::layout::RowMajor, float, cutlass::layout::RowMajor, float, cutlass::layout::RowMajor>;\ntemplate class cutlass::gemm::device::Gemm<float, cutlass::layout::RowMajor, float, cutlass::layout::RowMajor, float, cutlass::layout::RowMajor>;\n"
        + source.read_text()
    )
    name = f"torch-stable-abi210-cu130-{kp.MACHINE}"
    done = kp.kernelmill("build", "--arch", "8.0", "--variant", name, cwd=root)
    assert f"note: {name}: cutlass_4_0 is compiled with the headers of 4.2.0.0\n" in done.stderr
    assert "nvidia-cutlass 4.2.0.0" in json.loads((root / "toolchain.lock").read_text())["headers"]
    (library,) = (root / "build" / name).glob("*.so")
    assert b"cutlass" in library.read_bytes()
