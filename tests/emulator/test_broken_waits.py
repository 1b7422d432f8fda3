"""Waits taken out of the device templates: the sanitizer sees the race that each of them prevents.

These are the places that compute-sanitizer's racecheck names although they are in order. What it
cannot follow, the emulator's sanitizer can; that it finds nothing in whole templates, the tests of
the families show.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).parents[1] / "broken_waits_driver.py"
TAKES_SUMS = (
    "if constexpr (sums_first<Work>(nullptr)) copy_barrier_wait(s.summed + at.stage, at.phase);"
)
HANDED_ON = "while ((u32)(before >> handed_bits) != (u32)b);"


def found(*arguments: str) -> str:
    """Return what the sanitizer says of the work with a wait replaced."""
    done = subprocess.run(
        [sys.executable, str(DRIVER), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("work", "template", "wait", "instead", "place"),
    [
        pytest.param(
            "select", "ring.cuh", TAKES_SUMS, "", "select_part.cuh", id="marks of a stage"
        ),
        pytest.param(
            "sort", "radix_pass.cuh", HANDED_ON, "while (false);", "radix_pass.cuh", id="batches"
        ),
    ],
)
def test_a_wait_that_is_missing_is_seen(
    work: str, template: str, wait: str, instead: str, place: str
) -> None:
    text = found(work, template, wait, instead)
    assert f"{place}:" in text
    assert "race: " in text
    assert found(work, template, wait, wait) == "nothing\n"
