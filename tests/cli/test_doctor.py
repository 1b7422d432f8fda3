"""The facts of `kernelmill doctor`: distributions, rules for CUDA wheels, devices, compilers."""

import json
import shutil
import tomllib
from pathlib import Path

import hypothesis.strategies as st
import pytest
from click.testing import CliRunner
from hypothesis import given
from packaging.specifiers import SpecifierSet

from kernelmill import config, doctor, installed
from kernelmill.algorithms.capabilities import absence
from kernelmill.cli import main
from kernelmill.installed import Conflict, Installed, extras, find_conflicts
from kernelmill.runtime.native import NativeStatus
from kernelmill.toolchain import HostCompiler, Rejection

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
CUDA13 = {
    "cuda-bindings": "13.0.3",
    "nvidia-cuda-nvrtc": "13.0.88",
    "nvidia-nvjitlink": "13.0.88",
    "nvidia-cuda-runtime": "13.0.96",
}
CUDA12 = {
    "cuda-bindings": "12.9.10",
    "nvidia-cuda-nvrtc-cu12": "12.9.86",
    "nvidia-nvjitlink-cu12": "12.9.86",
    "nvidia-cuda-runtime-cu12": "12.9.79",
}


def invoke(*arguments):
    return CliRunner().invoke(main, list(arguments), prog_name="kernelmill")


@pytest.fixture
def root(tmp_path):
    with config.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


# ----------------------------------------------------------------------------- conflicts


@pytest.mark.parametrize(
    "found",
    [
        Installed({}),
        Installed(CUDA13),
        Installed(CUDA12),
        Installed(CUDA13 | {"nvidia-nvjitlink": "13.5.37"}),
        Installed(
            CUDA13 | {"torch": "2.14.1"},
            ('cuda-toolkit[nvrtc,nvjitlink]==13.0.3; platform_system == "Linux"', "sympy>=1.13"),
        ),
        # An extra of torch pins what is not asked for.
        Installed(CUDA13 | {"torch": "2.14.1"}, ('nvidia-cuda-nvrtc==12.1.1; extra == "old"',)),
        # A pin of the other major version is about wheels that are not there.
        Installed(CUDA12 | {"torch": "2.14.1"}, ("cuda-toolkit==13.0.3",)),
        Installed({"nvidia-nvjitlink": "13.0.88"}),
        Installed({"cuda-bindings": "13.0.3"}),
    ],
)
def test_sets_that_work_together(found):
    assert find_conflicts(found) == ()


CONFLICTS = {
    "both majors, bindings 13": (
        Installed(CUDA12 | CUDA13),
        Conflict(
            "nvidia-cuda-nvrtc-cu12 12.9.86 and nvidia-cuda-nvrtc 13.0.88 are both installed",
            "cuda-bindings 13.0.3 loads the libraries of its own major version only; the others "
            "are never used, and the extra that asked for them cannot work beside this one",
            "pip uninstall -y nvidia-cuda-nvrtc-cu12 nvidia-nvjitlink-cu12 "
            "nvidia-cuda-runtime-cu12",
        ),
    ),
    "both majors, bindings 12": (
        Installed(CUDA13 | CUDA12),
        Conflict(
            "nvidia-cuda-nvrtc-cu12 12.9.86 and nvidia-cuda-nvrtc 13.0.88 are both installed",
            "cuda-bindings 12.9.10 loads the libraries of its own major version only; the others "
            "are never used, and the extra that asked for them cannot work beside this one",
            "pip uninstall -y nvidia-cuda-nvrtc nvidia-nvjitlink nvidia-cuda-runtime",
        ),
    ),
    "old nvjitlink": (
        Installed(CUDA13 | {"nvidia-cuda-nvrtc": "13.5.37", "nvidia-nvjitlink": "13.4.92"}),
        Conflict(
            "nvidia-nvjitlink 13.4.92 is older than nvidia-cuda-nvrtc 13.5.37",
            "nvJitLink refuses LTO-IR that a newer NVRTC has made "
            "(NVJITLINK_ERROR_OUTDATED_LIBRARY)",
            "pip install 'nvidia-nvjitlink>=13.5,<14'",
        ),
    ),
    "old nvjitlink of CUDA 12": (
        Installed(CUDA12 | {"nvidia-nvjitlink-cu12": "12.8.93"}),
        Conflict(
            "nvidia-nvjitlink-cu12 12.8.93 is older than nvidia-cuda-nvrtc-cu12 12.9.86",
            "nvJitLink refuses LTO-IR that a newer NVRTC has made "
            "(NVJITLINK_ERROR_OUTDATED_LIBRARY)",
            "pip install 'nvidia-nvjitlink-cu12>=12.9,<13'",
        ),
    ),
    "torch pins a toolkit": (
        Installed(
            CUDA13
            | {"nvidia-cuda-nvrtc": "13.5.37", "nvidia-nvjitlink": "13.5.37", "torch": "2.14.1"},
            ("filelock", 'cuda-toolkit[nvrtc]==13.0.3; platform_system == "Linux"'),
        ),
        Conflict(
            "torch 2.14.1 pins cuda-toolkit==13.0.3; nvidia-cuda-nvrtc 13.5.37 is installed",
            "torch was built and tested with NVRTC 13.0; what it compiles at run time goes "
            "through another one now, and `pip check` fails",
            "pip install 'nvidia-cuda-nvrtc==13.0.*'",
        ),
    ),
    "torch pins a wheel": (
        Installed(CUDA12 | {"torch": "2.8.0"}, ("nvidia-cuda-nvrtc-cu12==12.8.93",)),
        Conflict(
            "torch 2.8.0 pins nvidia-cuda-nvrtc-cu12==12.8.93; nvidia-cuda-nvrtc-cu12 12.9.86 is "
            "installed",
            "torch was built and tested with NVRTC 12.8; what it compiles at run time goes "
            "through another one now, and `pip check` fails",
            "pip install 'nvidia-cuda-nvrtc-cu12==12.8.*'",
        ),
    ),
    "other bindings": (
        Installed(CUDA13 | {"cuda-bindings": "12.9.10"}),
        Conflict(
            "cuda-bindings 12.9.10 and nvidia-cuda-nvrtc 13.0.88 are of different major versions",
            "cuda-bindings looks for libnvrtc.so.12, which is not there: nothing can be compiled "
            "for the GPU",
            "pip install 'cuda-bindings>=13.0,<14'",
        ),
    ),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_a_conflict_says_what_breaks_and_what_mends_it(case):
    found, expected = CONFLICTS[case]
    assert find_conflicts(found) == (expected,)


def test_every_rule_has_a_case():
    firing = {rule for rule in installed.RULES for found, _ in CONFLICTS.values() if rule(found)}
    assert firing == set(installed.RULES)


def test_several_conflicts_are_all_told():
    found = Installed(CUDA12 | CUDA13 | {"nvidia-nvjitlink-cu12": "12.8.93"})
    assert len(find_conflicts(found)) == 2


# ----------------------------------------------------------------------------- requirements


numbers = st.lists(st.integers(0, 12), min_size=1, max_size=3).map(lambda n: ".".join(map(str, n)))
clauses = st.one_of(
    st.tuples(st.sampled_from([">=", "<=", "==", "!=", "<", ">"]), numbers).map("".join),
    numbers.map("=={}.*".format),
    numbers.map("!={}.*".format),
    st.tuples(numbers, st.integers(0, 12)).map(lambda pair: f"~={pair[0]}.{pair[1]}"),
)
specifiers = st.lists(clauses, max_size=3).map(",".join)


@given(numbers, st.sampled_from(["", "+cpu"]), specifiers)
def test_versions_match_as_packaging_says(number, local, specifier):
    expected = SpecifierSet(specifier).contains(number + local)
    assert installed._matches(number + local, specifier) is expected


def test_extras_are_those_of_the_project():
    declared = PYPROJECT["project"]["optional-dependencies"]
    found = extras(installed.requirements_of("kernelmill"), Installed({}))
    names = {e.name: {need.name for need in e.needs} for e in found}
    assert names == {
        name: {installed._parse(requirement).name for requirement in requirements}
        for name, requirements in declared.items()
    }
    assert all(e.install == f"pip install 'kernelmill[{e.name}]'" for e in found)
    assert not any(e.complete for e in found)


def test_an_extra_is_complete_when_each_version_is_one_asked_for():
    requirements = (
        "numpy<3,>=2.0",
        'cuda-bindings<14,>=13.0; extra == "cuda13"',
        "nvidia_cuda.NVRTC<14,>=13.0; extra == 'cuda13'",
        'torch>=2.10; extra == "torch"',
    )
    versions = {"cuda-bindings": "13.0.3", "nvidia-cuda-nvrtc": "12.9.1", "torch": "2.13.0+cpu"}
    cuda13, torch = extras(requirements, Installed(versions))
    assert [need.satisfied for need in cuda13.needs] == [True, False]
    assert (cuda13.complete, torch.complete) == (False, True)


def test_installed_versions_are_those_of_this_environment():
    from importlib.metadata import version

    found = installed.installed(["click", "kernelmill-that-nobody-made"])
    assert found.of("click") == version("click")
    assert found.of("kernelmill-that-nobody-made") == ""


@pytest.mark.parametrize(
    ("versions", "driver", "compiler", "lines"),
    [
        ({}, "", True, ("pip install 'kernelmill[torch]'",)),
        ({"torch": "2.13"}, "", True, ()),
        ({"torch": "2.13"}, "", False, ("pip install 'kernelmill[zig]'",)),
        ({"torch": "2.13"}, "libcuda.so.1", True, ("pip install 'kernelmill[cuda13]'",)),
        ({"torch": "2.13", "bind": "12.8"}, "libcuda.so.1", True, ()),
        (
            {"torch": "2.13", "rtc-cu12": "12.8"},
            "libcuda.so.1",
            True,
            ("pip install 'kernelmill[cuda12]'",),
        ),
    ],
)
def test_one_line_installs_what_is_missing(versions, driver, compiler, lines):
    requirements = [
        'bind>=12,<13; extra == "cuda12"',
        'rtc-cu12>=12; extra == "cuda12"',
        'bind>=13; extra == "cuda13"',
        'torch>=2; extra == "torch"',
        'ziglang; extra == "zig"',
    ]
    if "bind" in versions:
        versions = versions | {"rtc-cu12": "12.8"}
    found = extras(requirements, Installed(versions))
    compilers = (doctor.Compiler("c++", "gcc", "", (), "", chosen=compiler),)
    assert doctor._missing(found, compilers, doctor.Cuda(driver, "", "")) == lines


# ----------------------------------------------------------------------------- this machine


def test_the_report_of_this_machine(root):
    import os
    import platform

    report = doctor.examine()
    assert report.python == platform.python_version()
    assert report.cpu.threads == len(os.sched_getaffinity(0))
    assert report.cpu.model
    assert report.cuda.reason == absence("cuda")
    assert report.emulator == ""
    assert report.cache.root == root
    assert report.warmth is None
    assert [c for c in report.compilers if c.chosen] == [c for c in report.compilers if c.kind][:1]
    assert report.has_compiler


def test_instruction_set_is_the_highest_level_that_the_processor_has(monkeypatch):
    from kernelmill.toolchain import cpu

    v3 = {f for name, features in cpu._LEVELS if name != "x86-64-v4" for f in features}
    machine = cpu.Cpu("x86_64", "a model", frozenset(v3), "")
    monkeypatch.setattr(doctor, "host_cpu", lambda: machine)
    assert doctor._cpu().instruction_set == "x86-64-v3"
    monkeypatch.setattr(doctor, "host_cpu", lambda: cpu.Cpu("x86_64", "", frozenset(), ""))
    assert doctor._cpu().instruction_set == "x86-64"
    monkeypatch.setattr(doctor, "host_cpu", lambda: cpu.Cpu("aarch64", "", frozenset(), ""))
    assert doctor._cpu().instruction_set == "aarch64"


def test_a_driver_library_is_found_by_loading_it(monkeypatch):
    monkeypatch.setattr(doctor, "_DRIVER", "libm.so.6")
    assert doctor._cuda().driver == "libm.so.6"
    monkeypatch.setattr(doctor, "_DRIVER", "libthere-is-none.so.1")
    assert doctor._cuda().driver == ""


def test_the_first_usable_compiler_is_the_chosen_one(monkeypatch):
    found = (
        Rejection("c++", "it is not on PATH"),
        HostCompiler("gcc", ("/usr/bin/g++",), "12.2.0", "x86_64-linux-gnu", "1"),
        HostCompiler("zig", ("/opt/zig", "cc"), "0.13.0", "x86_64-linux", "2"),
    )
    monkeypatch.setattr(doctor, "survey_host_compilers", lambda: found)
    rows = doctor._compilers()
    assert [(row.name, row.reason, row.chosen) for row in rows] == [
        ("c++", "it is not on PATH", False),
        ("g++ 12.2.0", "", True),
        ("zig 0.13.0", "", False),
    ]


# ----------------------------------------------------------------------------- the command


def test_no_compiler_is_status_1_with_the_report_first(root):
    with config.override(cxx="/nowhere/g++"):
        result = invoke("doctor")
    assert result.exit_code == 1
    assert "compilers (* is used)\n     /nowhere/g++  cannot be used" in result.stdout
    assert result.stderr.startswith("error: KERNELMILL_CXX='/nowhere/g++' cannot be used: ")
    assert "\n\nhint: name a working g++, clang++ or zig, or unset KERNELMILL_CXX" in result.stderr


def test_no_compiler_and_nothing_to_warm(root):
    with config.override(cxx="/nowhere/g++"):
        result = invoke("doctor", "--json")
        assert result.exit_code == 1
        (row,) = json.loads(result.stdout)["compilers"]
        assert row["chosen"] is False
        assert row["reason"]


def test_warm_compiles_once(root):
    with config.override(cxx=shutil.which("c++") or shutil.which("clang++")):
        first = json.loads(invoke("doctor", "--json", "--warm").stdout)["warmth"]
        assert first["compiled"] == 1
        assert first["seconds"] > 0
        entries = json.loads(invoke("cache", "info", "--json").stdout)["cache"]["entries"]
        assert entries >= 1
        again = invoke("doctor", "--warm").stdout
    assert "\nwarm\n  a kernel was in the cache already: " in again


def test_sections_of_the_text(monkeypatch, root):
    conflict = find_conflicts(Installed(CUDA13 | {"cuda-bindings": "12.9.10"}))
    monkeypatch.setattr(doctor, "find_conflicts", lambda _: conflict)
    twin = NativeStatus("python", "the setting native is off (KERNELMILL_NATIVE=0)")
    monkeypatch.setattr(doctor, "native_status", lambda: twin)
    monkeypatch.setattr(
        doctor, "unknown_variables", lambda: (config.UnknownVariable("KERNELMILL_X", "NEAR"),)
    )
    text = invoke("doctor").stdout
    assert text.splitlines()[0].startswith("kernelmill ")
    assert (
        "conflicts between CUDA wheels\n"
        "  found:   cuda-bindings 12.9.10 and nvidia-cuda-nvrtc 13.0.88 are of different major "
        "versions\n"
        "  breaks:  cuda-bindings looks for libnvrtc.so.12, which is not there: nothing can be "
        "compiled for the GPU\n"
        "  mend:    pip install 'cuda-bindings>=13.0,<14'\n"
    ) in text
    assert (
        "native call path\n  pure-Python twin: the setting native is off (KERNELMILL_NATIVE=0)\n"
    ) in text
    assert "unknown variables\n  KERNELMILL_X  did you mean NEAR?\n" in text
    assert f"cache\n  directory   {root}\n" in text
