"""The same bits for any number of threads, instruction set and compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "determinism_driver.py"
NATIVE = {"KERNELMILL_MARCH": "native", "KERNELMILL_NUM_THREADS": "1"}


def digests(**settings: str) -> dict[str, str]:
    """Run the driver with these settings; returns a digest for each of its results."""
    made = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, **NATIVE, **settings},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return dict(line.split() for line in made.stdout.splitlines())


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    found = digests()
    assert len(found) >= 10
    assert len(set(found.values())) == len(found)
    return found


def compilers(*names: str) -> list[object]:
    return [
        pytest.param(n, marks=pytest.mark.skipif(not shutil.which(n), reason=f"{n} is not there"))
        for n in names
    ]


def test_threads(reference: dict[str, str]) -> None:
    assert digests(KERNELMILL_NUM_THREADS="2") == reference
    assert digests(KERNELMILL_NUM_THREADS="5") == reference


@pytest.mark.parametrize("march", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="these are levels of x86-64")
def test_instruction_sets(reference: dict[str, str], march: str) -> None:
    assert digests(KERNELMILL_MARCH=march, KERNELMILL_NUM_THREADS="2") == reference


@pytest.mark.parametrize("compiler", compilers("clang++"))
def test_compilers(reference: dict[str, str], compiler: str) -> None:
    assert digests(KERNELMILL_CXX=compiler) == reference


@pytest.mark.parametrize("compiler", compilers("g++", "clang++"))
@pytest.mark.parametrize("march", ["x86-64", "x86-64-v2", "x86-64-v3", "native"])
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="these are levels of x86-64")
@pytest.mark.slow
def test_all_builds(reference: dict[str, str], compiler: str, march: str) -> None:
    assert digests(KERNELMILL_CXX=compiler, KERNELMILL_MARCH=march) == reference


@pytest.mark.slow
def test_the_ziglang_wheel(reference: dict[str, str]) -> None:
    pytest.importorskip("ziglang")
    assert digests(KERNELMILL_CXX="zig") == reference


def test_the_twin_of_the_extension(reference: dict[str, str]) -> None:
    assert digests(KERNELMILL_NATIVE="0") == reference
