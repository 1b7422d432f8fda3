"""What a build refuses, and what it leaves behind when it fails: exact texts, no half artifact."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import kernel_projects as kp
from kernelmill.cache.lock import hold
from kernelmill.errors import (
    ArgumentError,
    CacheWarning,
    CompileError,
    ManifestError,
    NotImplementedHere,
    PackageError,
    ToolchainError,
)
from kernelmill.package.build import Options, build
from kernelmill.package.matrix import entries, machine_entries, read_project
from kernelmill.package.nvcc import find_cuda
from kernelmill.package.release import Release
from kernelmill.package.select import select
from kernelmill.package.toolchain_lock import ToolchainLock

CPU = f"torch-stable-abi210-cpu-{kp.MACHINE}"
OPTIONS = Options(jobs=2, unique="0123abc")


@pytest.fixture
def root(tmp_path):
    return kp.scaffolded(tmp_path / "img2gray", "torch", ("cpu",))


def made(root, options=OPTIONS):
    project = read_project(root)
    return build(project, machine_entries(project), options)


def leftovers(root):
    """What a build left: temporary directories, and half variants."""
    own = root / "build" / ".kernelmill"
    return [p.name for p in own.glob(".work-*")] + [p.name for p in root.glob("build/torch*")]


def test_an_absent_source(root):
    (root / "csrc/img2gray_cpu.cpp").unlink()
    with pytest.raises(ManifestError, match=r"csrc/img2gray_cpu\.cpp"):
        made(root)
    done = kp.kernelmill("build", cwd=root, check=1)
    assert "csrc/img2gray_cpu.cpp" in done.stderr
    assert "Traceback" not in done.stderr
    assert leftovers(root) == []


def test_a_compiler_error_is_the_compilers_own_text(root):
    source = root / "csrc/img2gray_cpu.cpp"
    source.write_text(source.read_text() + "\nint wrong = no_such_name;\n")
    line = source.read_text().splitlines().index("int wrong = no_such_name;") + 1
    done = kp.kernelmill("build", cwd=root, check=1)
    assert done.stderr.startswith(
        "error: csrc/img2gray_cpu.cpp was not compiled: the compiler reports\n"
    )
    assert f"csrc/img2gray_cpu.cpp:{line}:13: error: " in done.stderr
    assert "int wrong = no_such_name;" in done.stderr
    assert done.stdout == ""
    assert leftovers(root) == []
    log = (root / "build/.kernelmill/logs" / f"{CPU}.log").read_text()
    assert "-c csrc/img2gray_cpu.cpp -o" in log
    assert "no_such_name" in log


def test_an_error_keeps_the_variant_that_was_there(root):
    made(root)
    before = kp.tree(root / "build" / CPU)
    source = root / "csrc/img2gray_cpu.cpp"
    source.write_text("#error no\n")
    with pytest.raises(CompileError, match="#error no"):
        made(root)
    assert kp.tree(root / "build" / CPU) == before


def test_a_link_error(root):
    source = root / "csrc/img2gray_cpu.cpp"
    twice = 'extern "C" void* PyInit__img2gray_cpu_0123abc() { return nullptr; }\n'
    source.write_text(source.read_text() + twice)
    with pytest.raises(
        CompileError, match=r"abi3\.so was not linked: the compiler reports"
    ) as caught:
        made(root)
    assert "multiple definition of `PyInit__img2gray_cpu_0123abc'" in caught.value.log
    assert leftovers(root) == []


def test_a_full_disk(root, monkeypatch):
    made(root)
    before = kp.tree(root / "build" / CPU)
    (root / "torch-ext/img2gray/more.py").write_text("x = 1\n")

    def full(source, target):
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr("kernelmill.package.artifact.shutil.copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        made(root)
    assert kp.tree(root / "build" / CPU) == before
    assert leftovers(root) == [CPU]
    monkeypatch.undo()
    assert "more.py" in kp.tree(made(root)[0].path)


def test_where_files_cannot_be_locked_that_is_said_once(root, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("kernelmill.cache.lock.fcntl.flock", refuse)
    with pytest.warns(CacheWarning) as said:  # noqa: PT031 - once for both
        made(root)
        made(root, replace(OPTIONS, unique="0123abd"))
    place = root / "build" / ".kernelmill" / "locks"
    text = "two builds of a variant at once may end with an error"
    assert [str(one.message) for one in said] == [f"files in {place} cannot be locked: {text}"]


def test_two_builds_at_once_wait_for_each_other(root):
    command = [sys.executable, "-m", "kernelmill", "build", "--json", "--no-cache"]
    both = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) for _ in range(2)]
    rows = [json.loads(one.communicate(timeout=600)[0])[0] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert sorted(row["unchanged"] for row in rows) == [False, True]
    assert leftovers(root) == [CPU]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing_half(root, number):
    # A source that the compiler needs seconds for.
    body = (
        "template<int N> struct F { static constexpr long v = F<N-1>::v + F<N-2>::v % 7 + N; };\n"
    )
    body += "template<> struct F<0> { static constexpr long v = 1; };\n"
    body += "template<> struct F<1> { static constexpr long v = 1; };\n"
    body += "".join(f"long f{i}() {{ return F<{800 - i % 7}>::v; }}\n" for i in range(40_000))
    (root / "csrc/img2gray_cpu.cpp").write_text(body)
    command = [sys.executable, "-m", "kernelmill", "build", "--no-cache"]
    process = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True)
    own = root / "build/.kernelmill"
    wait_for(
        lambda: (
            list(own.glob(".work-*/*.o"))
            or list(own.glob(".work-*/*.s"))
            or list(own.glob(".work-*/cc*"))
        )
    )
    process.send_signal(number)
    _, said = process.communicate(timeout=600)
    assert process.returncode != 0
    assert not (root / "build" / CPU).exists()
    if number != signal.SIGKILL:
        assert said.endswith("error: interrupted\n")
        assert leftovers(root) == []
    # What a killed build left is removed by the next one, which works.
    (root / "csrc/img2gray_cpu.cpp").write_text(
        '#include "img2gray.h"\nvoid img2gray_on_cpu(const std::uint8_t*, std::uint8_t*, std::int64_t, std::int64_t) {}\n'
    )
    made(root)
    assert leftovers(root) == [CPU]


def test_who_waits_for_another_build_can_be_interrupted(root):
    locks = root / "build/.kernelmill/locks"
    locks.mkdir(parents=True)
    with hold(locks / f"{CPU}.lock", 1) as held:
        assert held
        command = [sys.executable, "-m", "kernelmill", "build"]
        process = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: has_open(process, locks / f"{CPU}.lock"))
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 1
    assert said.endswith("error: interrupted\n")
    assert leftovers(root) == []


def has_open(process, path):
    """Whether a process has a file open."""
    found = set()
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(entry.readlink())
    return path in found


def wait_for(condition):
    until = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_something_in_the_way(root):
    (root / "build").mkdir()
    (root / "build" / CPU).write_text("mine")
    with pytest.raises(PackageError, match="is in the way: it is no directory"):
        made(root)
    assert (root / "build" / CPU).read_text() == "mine"


def test_a_package_without_init_or_with_its_own_ops(root):
    (root / "torch-ext/img2gray/_ops.py").write_text("")
    with pytest.raises(ManifestError, match=r"_ops\.py is written by the build"):
        made(root)


# ----------------------------------------------------------------------------- what is refused


def test_backends_that_are_not_built(tmp_path):
    root = kp.scaffolded(tmp_path / "img2gray", "torch", ("cpu", "rocm"))
    text = (root / "build.toml").read_text().replace("src = []", 'src = ["csrc/img2gray.h"]')
    (root / "build.toml").write_text(text)
    name = f"torch-stable-abi210-rocm71-{kp.MACHINE}"
    done = kp.kernelmill("build", "--list", "--json", cwd=root)
    rows = {row["variant"]: row["refusal"] for row in json.loads(done.stdout)}
    assert rows[name] == "it needs hipcc of ROCm, which no wheel brings"
    assert rows[CPU] is None
    done = kp.kernelmill("build", "--variant", name, cwd=root, check=1)
    assert done.stderr == (
        f"error: {name} cannot be built: it needs hipcc of ROCm, which no wheel brings\n"
    )


@pytest.mark.parametrize("backend", ["xpu", "metal", "neuron", "tpu"])
def test_every_other_backend_is_listed_with_its_reason(tmp_path, backend):
    text = f"""
[general]
name = "img2gray"
version = 1
edition = 5
license = "MIT"
backends = ["{backend}"]
[torch]
stable-abi = "2.10"
"""
    (tmp_path / "build.toml").write_text(text)
    found = entries(read_project(tmp_path))
    assert found
    assert all("it needs" in entry.refusal for entry in found)
    with pytest.raises(NotImplementedHere, match="cannot be built: it needs"):
        select(read_project(tmp_path), variants=[str(found[0].variant)])
    with pytest.raises(NotImplementedHere, match="no variant of img2gray can be built:\n  torch-"):
        select(read_project(tmp_path), everything=True)


@pytest.mark.parametrize(
    ("keys", "versions"),
    [
        ("", ["212", "213"]),
        ('minver = "2.13"', ["213"]),
        ('maxver = "2.12"', ["212"]),
        ('minver = "2.14"', ["214"]),  # neither is in the range: its border is built
        ('maxver = "2.11"', ["211"]),
    ],
)
def test_versions_of_torch_in_a_range(tmp_path, keys, versions):
    (tmp_path / "build.toml").write_text(
        '[general]\nname = "img2gray"\nversion = 1\nlicense = "MIT"\nbackends = ["cpu"]\n'
        f"[torch]\n{keys}\n"
    )
    found = [str(entry.variant) for entry in entries(read_project(tmp_path))]
    assert found == [f"torch{version}-cxx11-cpu-{kp.MACHINE}" for version in versions]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"variants": ["torch-cpu"]},
            PackageError,
            "img2gray has no variant torch-cpu; it has:\n  torch-",
        ),
        ({"variants": ["x"], "everything": True}, ArgumentError, "exclude each other"),
        ({"torch": "2.x"}, ArgumentError, "--torch '2.x' is no version; written like 2.12"),
        ({"torch": "2.4"}, PackageError, "it needs torch 2.10 or newer; torch 2.4 is installed"),
        ({"cuda": "13.0"}, PackageError, "no variant that a system with CUDA 13.0 loads"),
    ],
)
def test_selections(root, options, kind, message):
    with pytest.raises(kind) as caught:
        select(read_project(root), **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('version = "1.2"', "version` is '1.2'; written like 1.2.0"),
        ('version = "2.0.0"', "version 2.0.0 has the major number 2; build.toml has version 1"),
        ("torch = []", "`tool.kernelmill.torch` must be a list of texts, not empty"),
        ('torch = ["2.13.0"]', "holds '2.13.0'; versions are written like 2.13"),
        ('manifests = ["../build.toml"]', "does not lie in the project's directory"),
        ('manifests = ["build.toml", "none.toml"]', "there is no none.toml"),
    ],
)
def test_settings_of_a_project(root, settings, message):
    (root / "pyproject.toml").write_text(f"[tool.kernelmill]\n{settings}\n")
    with pytest.raises(ManifestError) as caught:
        read_project(root)
    assert message in str(caught.value)


def test_manifests_of_one_project_agree(root):
    text = (root / "build.toml").read_text()
    (root / "other.toml").write_text(text.replace("version = 1", "version = 2"))
    settings = '[tool.kernelmill]\nmanifests = ["build.toml", "other.toml"]\n'
    (root / "pyproject.toml").write_text(settings)
    with pytest.raises(
        ManifestError, match=r"other\.toml is about img2gray 2; build\.toml is about img2gray 1"
    ):
        read_project(root)


def test_an_absent_cuda(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError) as caught:
        find_cuda(Release.parse("13.9"))
    assert caught.value.message == (
        "CUDA 13.9 is not available: no nvcc is on PATH; wheels serve 12.8, 13.0"
    )


def test_zig_is_refused_for_torch(root, monkeypatch):
    from dataclasses import replace

    from kernelmill.package import recipe

    host = replace(
        recipe.find_host_compiler(), kind="zig", command=("/opt/zig", "cc"), version="0.17.1"
    )
    monkeypatch.setattr(recipe, "find_host_compiler", lambda: host)
    with pytest.raises(
        ToolchainError, match=r"zig 0\.17\.1 cannot make a torch binding: it links libc"
    ):
        made(root)


# ----------------------------------------------------------------------------- toolchain.lock


def test_a_lock_is_written_and_drift_recorded_refused_or_taken_over(root):
    made(root)
    path = root / "toolchain.lock"
    facts = json.loads(path.read_text())
    assert str(root) not in path.read_text()
    assert "http" not in path.read_text()
    assert len(facts["host-compiler"]["sha256"]) == 64
    ((name, headers),) = facts["headers"].items()
    assert name == "torch 2.13.0"
    assert len(headers["tree"]) == 64
    assert made(root, Options(jobs=2, unique="0123abc", policy="refuse"))[0].drift == ()
    facts["host-compiler"]["version"] = "11.1.0"
    path.write_text(json.dumps(facts))
    built = made(root)[0]
    (drift,) = built.drift
    assert str(drift).startswith("host-compiler version: locked is 11.1.0, found ")
    metadata = json.loads((built.path / "metadata.json").read_text())
    assert metadata["kernelmill"]["toolchain-drift"] == [str(drift)]
    assert json.loads(path.read_text())["host-compiler"]["version"] == "11.1.0"
    done = kp.kernelmill("build", "--locked", cwd=root, check=1)
    assert (
        "this is not the toolchain of toolchain.lock:\n  host-compiler version: locked is 11.1.0"
        in done.stderr
    )
    kp.kernelmill("build", "--update-lock", cwd=root)
    assert json.loads(path.read_text())["host-compiler"]["version"] != "11.1.0"


def test_locked_refuses_what_is_not_locked(root):
    done = kp.kernelmill("build", "--locked", cwd=root, check=1)
    assert "host-compiler sha256: not locked" in done.stderr
    for text, message in (("{", "is no JSON"), ('{"schema": 9}', "has another form than schema 1")):
        (root / "toolchain.lock").write_text(text)
        with pytest.raises(PackageError, match=message):
            ToolchainLock.read(root)


def test_the_options_are_shown_by_verbose(root):
    done = kp.kernelmill("build", "--verbose", "--no-cache", cwd=root)
    assert " -std=c++20 -O3 " in done.stderr
    assert "-DTORCH_TARGET_VERSION=0x020a000000000000" in done.stderr


def test_device_code_with_torchs_headers_is_not_built_for_cuda_12(tmp_path, monkeypatch):
    from kernelmill.package import nvcc

    root = kp.scaffolded(tmp_path / "img2gray", "torch", ("cuda",))
    source = root / "csrc/img2gray.cu"
    source.write_text("#include <ATen/cuda/CUDAContext.h>\n" + source.read_text())
    monkeypatch.setattr(nvcc, "nvcc_on_path", lambda: None)
    found = {str(entry.variant.backend): entry.refusal for entry in entries(read_project(root))}
    assert found == {
        "cu128": "csrc/img2gray.cu includes ATen/cuda/CUDAContext.h, which NVRTC does not take; "
        "an nvcc 12.8 on PATH would",
        "cu130": None,
    }
