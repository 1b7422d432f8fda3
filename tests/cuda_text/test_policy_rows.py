"""Rows of the tuning table of one block a tile: what each needs fits every chip that it is for.

Rows of rings are in `test_policy.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms import policy
from kernelmill.runtime.cuda.images import image_of
from kernelmill.toolchain.cubin import resources_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")

FULL = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
# Static shared memory of a block, registers of a multiprocessor and of a thread.
SHARED, REGISTERS, MOST = 48 << 10, 65536, 255
# Bytes of a thread's stack that are no harm: what is put aside once, outside of loops. Larger
# elements than this are in no registers.
STACK, LARGE = 160, 64
TYPES = {1: "u1", 2: "f2", 4: "f4", 8: "f8", 16: "c16"}
N = 5000


def array(largest: int, length: int = N) -> np.ndarray:
    """Return elements of so many bytes."""
    dtype: Any = TYPES.get(largest)
    if dtype is None:
        dtype = [(f"v{i}", "f8") for i in range(min(largest, 1024) // 8)]
    return np.zeros(length, dtype)


def least(a: Any, b: Any) -> Any:
    return a if a.v0 < b.v0 else b


def operator_of(x: np.ndarray) -> Any:
    if x.dtype.names is None:
        return km.add if x.dtype == "c16" else km.maximum
    return km.op(least, commutative=True)


def scan(row: policy.ScanTree) -> None:
    x = array(min(row.largest, 64))
    km.inclusive_scan.plan(x, operator_of(x), out=x.copy())


def select(row: policy.SelectTile) -> None:
    x = array(row.largest, row.elements * policy.GROUP_TILES)  # fewer take tiles of fewer rows
    keep = (lambda v: v.v0 > 0) if x.dtype.names else lambda v: v != 0
    km.select.plan(x, keep, out=(x.copy(), np.zeros(1, np.int64)))


def segments(row: policy.SegmentTree, length: int = policy.segments_evenly().many) -> None:
    x = array(min(row.largest, 64), length)
    km.segmented_reduce.plan(x, np.arange(0, length + 1, 50), operator_of(x), init=x[0])


def even_segments(row: policy.SegmentTree) -> None:
    segments(row, N)


def search(row: policy.SearchPolicy) -> None:
    km.lower_bound.plan(array(4), array(4, min(row.most, 1 << 20)))


def counted(dtype: str) -> None:
    km.histogram.plan(np.zeros(N, dtype), 256, range=(0, 256))


def summed(bins: int) -> None:
    km.histogram.plan(np.zeros(N, "f4"), bins, range=(0, 1), weights=np.zeros(N, "f4"))


CASES: dict[str, tuple[Callable[[Any], None], Any]] = {
    **{f"scan-{row.largest}": (scan, row) for row in policy.SCAN_TREES},
    **{f"select-{row.largest}": (select, row) for row in policy._SELECT_TILES},
    **{f"segments-{row.largest}": (segments, row) for row in policy._SEGMENT_TREES},
    **{f"even-segments-{row.largest}": (even_segments, row) for row in policy._SEGMENT_TREES},
    **{f"search-{row.most}": (search, row) for row in policy._SEARCHES},
    **{f"histogram-{dtype}": (counted, dtype) for dtype in ("f4", "u1", "f8")},
    **{f"histogram-sums-{bins}": (summed, bins) for bins in (16, 100_000)},
}


def check(looking: Any, case: str, arch: str) -> None:
    plan, row = CASES[case]
    plan(row)
    image = image_of(looking.texts[-1], arch)
    assert image.log == ""
    (needs,) = [n for n in resources_of(image.data) if n.name == "km_kernel"]
    large = getattr(row, "largest", 0) > LARGE
    assert needs.stack <= STACK or large, "registers are spilled"
    assert needs.registers <= MOST
    assert needs.registers * needs.most_threads <= REGISTERS
    assert needs.shared <= SHARED


# Every family, and every chip, once.
SAMPLE = [(case, FULL[i % len(FULL)]) for i, case in enumerate(CASES) if i % 3 == 0]


@pytest.mark.parametrize(("case", "arch"), SAMPLE)
def test_rows_fit(case: str, arch: str, looking: Any) -> None:
    check(looking, case, arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", FULL)
@pytest.mark.parametrize("case", CASES)
def test_rows_fit_every_chip(case: str, arch: str, looking: Any) -> None:
    check(looking, case, arch)
