"""Runs each example as a program of its own; each checks itself against NumPy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# What a run must print besides being right, so that an example that does nothing is found.
PRINTED = {
    "argmax.py": "largest of all: 9.0 at 230000\n",
    "complex_numbers.py": "share of the frequency 0.3: 1.000\n",
    "grayscale.py": "451 x 300 pixels, first row ",
    "in_place.py": "neighbours added: [0 1 3 5 7 9]\n",
    "lock_a_kernel.py": "version 1.1.0 says 42; an edited lock: kernels[0] (acme/twice) was changed",
    "mandelbrot.py": "@@@@",
    "outliers.py": " bursts, the longest has 50 readings\n",
    "ranking.py": "best of the days [860, 408, 975, 284, 912] best of all 781\n",
    "running_return.py": "worst loss from a peak: 12.5%, 15.6%, 13.0%, 10.6%\n",
    "running_statistics.py": "count 1000000, mean 9999.99",
    "segments.py": "lengths [2, 3, 4, 5, 0, 0, 4, 5] sums [3, 12, 30, 60, 0, 0, 66, 105]\n",
    "without_arrays.py": "pi is about 3.141592654\n",
}


def run(program, directory):
    return subprocess.run(
        [sys.executable, "-W", "error", program],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_each_example_is_known():
    assert [e.name for e in EXAMPLES] == sorted(PRINTED)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_an_example_runs_and_checks_itself(example, tmp_path):
    done = run(example, tmp_path)
    assert done.returncode == 0, done.stderr
    assert PRINTED[example.name] in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
    assert "\nassert " in example.read_text()
