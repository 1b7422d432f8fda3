"""Every short length, in every form: registers that are not whole, and nothing read after the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelmill as km
from array_layouts import filled, same
from reference_tree import reduced

SCRIPT = Path(__file__).parents[1] / "page_end_driver.py"
STATISTICS = (km.add, km.minimum, km.maximum)
UFUNCS = (np.add, np.minimum, np.maximum)
# Both sides of a register, of the lanes and of twice the lanes.
WIDTHS = (1, 3, 15, 16, 17, 64, 71, 255, 300)


def sums(x: np.ndarray, axis: Any, **other: Any) -> Any:
    return np.asarray(reduced(x, np.add, axis=axis, **other))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_of_every_length(dtype: str) -> None:
    x = filled((3, 140), dtype, 5)
    for n in range(1, 140):
        rows = x[:, :n]
        same(km.reduce(rows, axis=1), sums(rows, 1))
        found = km.reduce(rows, STATISTICS, axis=1)
        for result, ufunc in zip(found, UFUNCS, strict=True):
            same(result, np.asarray(reduced(rows, ufunc, axis=1)))


@pytest.mark.parametrize("dtype", ["i1", "u2"])
def test_rows_of_narrow_integers(dtype: str) -> None:
    x = filled((3, 140), dtype, 6)
    for n in range(1, 140):
        found = km.reduce(x[:, :n], STATISTICS[1:], axis=1)
        for result, ufunc in zip(found, UFUNCS[1:], strict=True):
            same(result, ufunc.reduce(x[:, :n], axis=1))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("rows", [1, 2, 5, 16, 17, 37, 70])
def test_rows_beside_each_other_do_not_meet(dtype: str, rows: int) -> None:
    whole = filled((rows, 300), dtype, 15)
    for n in (1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 64, 71, 100, 128, 200, 300):
        x = whole[:, :n]
        expected = np.asarray(reduced(x, np.add, axis=1))
        same(km.reduce(x, axis=1), expected)
        same(km.reduce(np.ascontiguousarray(x), axis=1), expected)
        squares = km.transform_reduce(x, lambda a: a * a, axis=1)
        same(squares, sums(x * x, 1))
        for result, ufunc in zip(km.reduce(x, STATISTICS, axis=1), UFUNCS, strict=True):
            same(result, np.asarray(reduced(x, ufunc, axis=1)))


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8"])
def test_rows_of_integers_beside_each_other(dtype: str) -> None:
    whole = filled((70, 140), dtype, 16)
    for n in (1, 2, 7, 31, 33, 63, 64, 65, 71, 140):
        same(km.reduce(whole[:, :n], km.maximum, axis=1), whole[:, :n].max(axis=1))
        same(
            km.reduce(whole[:, :n], km.bitwise_xor, axis=1), np.bitwise_xor.reduce(whole[:, :n], 1)
        )


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("width", WIDTHS)
def test_columns_of_every_length(dtype: str, width: int) -> None:
    x = filled((2, 200, width), dtype, 7)
    for n in range(1, 200, 1 if width < 100 else 3):
        whole = np.ascontiguousarray(x[:, :n])
        same(km.reduce(whole, axis=1), sums(whole, 1))  # rows adjoin
        same(km.reduce(x[:, :n], axis=1), sums(whole, 1))
        if width > 1:
            same(km.reduce(x[:, :n, 1:], axis=1), sums(np.ascontiguousarray(whole[:, :, 1:]), 1))


def test_columns_of_a_mapped_element_and_of_several_folds() -> None:
    x = filled((200, 300), "f4", 8)
    for n in (*range(1, 20), 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 192, 193, 200):
        for width in (5, 40, 300):
            part = np.ascontiguousarray(x[:n, :width])
            squares = km.transform_reduce(part, lambda a: a * a, axis=0)
            same(squares, sums(part * part, 0))
            for result, ufunc in zip(km.reduce(part, STATISTICS, axis=0), UFUNCS, strict=True):
                same(result, np.asarray(reduced(part, ufunc, axis=0)))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_runs_of_every_length(dtype: str) -> None:
    x = filled((2, 9, 3, 140), dtype, 9)
    for n in range(1, 140):
        runs = x[..., :n]
        same(km.reduce(runs, axis=(1, 3)), sums(runs, (1, 3)))


def test_columns_of_several_dimensions() -> None:
    for shape in ((7, 3, 59, 11), (5, 2, 64, 16), (3, 2, 130, 7), (40, 2, 3, 33)):
        x = filled(shape, "f4", 10)
        same(km.reduce(x, axis=(0, 2)), sums(x, (0, 2)))
        same(km.reduce(x, axis=(0, 1, 2)), sums(x, (0, 1, 2)))
        same(km.reduce(x[..., 1:], axis=(0, 2)), sums(x[..., 1:], (0, 2)))


def test_several_chunks_of_columns_and_runs() -> None:
    x = filled((2, 181, 3, 190), "f4", 11)  # 34390 elements along two axes: three chunks
    same(km.reduce(x, axis=(1, 3)), sums(x, (1, 3)))
    y = filled((2, 181, 190, 3), "f4", 12)
    same(km.reduce(y, axis=(1, 2)), sums(y, (1, 2)))
    short = filled((2000, 5, 9), "f4", 14)  # runs of nine, two chunks
    same(km.reduce(short, axis=(0, 2)), sums(short, (0, 2)))
    z = filled((16390, 400), "f4", 13)
    same(km.reduce(z, axis=0), sums(z, 0))


@pytest.mark.skipif(sys.platform != "linux", reason="it protects a page")
def test_nothing_is_read_after_the_end_of_a_page() -> None:
    made = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "KERNELMILL_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stderr or f"ended by signal {-made.returncode}"
    assert made.stdout.split() == ["rows", "columns", "runs", "strided", "ordered"]
