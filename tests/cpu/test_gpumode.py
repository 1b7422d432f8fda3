"""GPU MODE's problems: the submissions are right, and what judges them finds what is not.

Their times are taken on a GPU, by `benchmarks/gpumode.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import kernelmill as km

torch = pytest.importorskip("torch")
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import gpumode
import gpumode_peers
import gpumode_problems

SMALL = {
    "vectoradd": (33,),
    "vectorsum": (10_001,),
    "prefixsum": (5_000,),
    "sort": (1_003,),
    "histogram": (3_001, 40),
    "grayscale": (17,),
}
PROBLEMS = {problem.name: problem for problem in gpumode_problems.PROBLEMS}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("device", ["cpu", "emulator"])
@pytest.mark.parametrize("name", SMALL)
def test_submissions_are_right(name: str, device: str) -> None:
    problem = PROBLEMS[name]
    data = problem.data(SMALL[name], 7, "cpu")
    data[-1].fill_(77)
    given = data
    if device == "emulator":  # which takes arrays of the host
        given = tuple(t.numpy() for t in data)
    with km.Device(device):
        found: Any = gpumode_peers.submission(name)(given)
    assert problem.right(data, torch.as_tensor(found))


@pytest.mark.parametrize("name", SMALL)
def test_what_is_wrong_is_found(name: str) -> None:
    problem = PROBLEMS[name]
    data = problem.data(SMALL[name], 7, "cpu")
    found = gpumode_peers.submission(name)(data).clone()
    assert problem.right(data, found)
    wrong = found.view(-1)[found.numel() // 2]
    wrong += max(1, abs(wrong.item()) / 1000)
    assert not problem.right(data, found)


@pytest.mark.parametrize("name", SMALL)
def test_torch_solves_it_too(name: str) -> None:
    problem = PROBLEMS[name]
    data = problem.data(SMALL[name], 3, "cpu")
    assert problem.right(data, gpumode_peers._TORCH[name](data))
    other = problem.data(SMALL[name], 4, "cpu")
    assert not torch.equal(data[0], other[0])


def test_measuring_ends_when_the_mean_is_known() -> None:
    assert not gpumode._is_enough([1.0, 1.0])
    assert gpumode._is_enough([1.0, 1.0001, 1.0])
    assert not gpumode._is_enough([1.0, 1.1, 0.9])


def test_sizes_are_those_of_the_problems() -> None:
    counts = {p.name: [p.elements(size) for size in p.sizes] for p in PROBLEMS.values()}
    assert counts["vectoradd"][-1] == 16384**2
    assert counts["vectorsum"] == [1_638_400 * 2**k for k in range(6)]
    assert counts["prefixsum"] == [2**k for k in range(18, 29)]
    assert counts["sort"] == [10**5, 5 * 10**5, 10**6, 10**7, 10**8]
    assert counts["histogram"] == [
        1_310_720,
        2_621_440,
        2_621_440,
        2_621_440,
        5_242_880,
        10_485_760,
    ]
    assert counts["grayscale"] == [3 * 2 ** (2 * k) for k in range(9, 15)]
