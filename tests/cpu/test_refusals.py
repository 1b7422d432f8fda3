"""What options, operators and sizes leave out is listed by `capabilities()`, and raised as listed."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms import refusals
from kernelmill.algorithms.capabilities import FAMILIES, capabilities
from kernelmill.errors import KernelmillError

if TYPE_CHECKING:
    from collections.abc import Callable

ALWAYS = "device_to_device"
X = np.arange(1.0, 7.0)
KEYS = np.array([0, 0, 1, 1, 1, 2])
ENDS = np.array([0, 2, 6])
LARGE = np.zeros(3, [(f"x{i}", "f8") for i in range(40)])


def log_sum(a: Any, b: Any) -> Any:
    return np.log(np.exp(a) + np.exp(b))


def before(a: Any, b: Any) -> Any:
    return a.x0 < b.x0


def image() -> km.RawOp:
    return km.RawOp(ltoir=b"x", name="twice", arguments=(km.float64,), result=km.float64)


def logs() -> Any:
    return km.iterators.transform(X, np.log)


# A call for each row and each of its families; where there are none, one for all.
CALLS: dict[refusals.Refusal, dict[str, Callable[[], Any]]] = {
    refusals.SEGMENTS: {
        "segmented": lambda: km.segmented_reduce(X, ENDS, determinism=ALWAYS),
        "segmented_scan": lambda: km.segmented_scan(X, ENDS, determinism=ALWAYS),
    },
    refusals.WEIGHTS: {
        "histogram": lambda: km.histogram(X, 3, (0, 9), X, determinism=ALWAYS),
        "bincount": lambda: km.bincount(KEYS, X, determinism=ALWAYS),
    },
    refusals.WIDE: {
        "sort": lambda: km.sort(LARGE, comparator=before),
        "segmented_sort": lambda: km.segmented_sort(LARGE, np.array([0, 3]), comparator=before),
        "merge": lambda: km.merge(LARGE, LARGE, comparator=before),
    },
    refusals.IMAGES: {"": lambda: km.transform(X, image())},
    refusals.BITS: {
        "reduce": lambda: km.reduce(X, log_sum, determinism=ALWAYS),
        "transform_reduce": lambda: km.transform_reduce(X, np.log, determinism=ALWAYS),
        "scan": lambda: km.inclusive_scan(X, log_sum, determinism=ALWAYS),
        "exclusive_scan": lambda: km.exclusive_scan(X, log_sum, init=0.0, determinism=ALWAYS),
        "scan_by_key": lambda: km.inclusive_scan_by_key(KEYS, X, log_sum, determinism=ALWAYS),
        "reduce_by_key": lambda: km.reduce_by_key(KEYS, X, log_sum, determinism=ALWAYS),
        "segmented": lambda: km.segmented_reduce(X, ENDS, log_sum, determinism=ALWAYS),
        "segmented_scan": lambda: km.segmented_scan(X, ENDS, log_sum, determinism=ALWAYS),
        "histogram": lambda: km.histogram(logs(), 3, (0, 9), determinism=ALWAYS),
        "bincount": lambda: km.bincount(KEYS, logs(), determinism=ALWAYS),
    },
}
CASES = [
    (row, family, backend)
    for row in refusals.REFUSALS
    for family in row.families or ("",)
    for backend in row.backends
    if backend != "cuda"
]


def pattern(text: str) -> str:
    """A template as a regular expression: names stand for anything."""
    return "".join(re.escape(part) + (".+" if name else "")
                   for part, name, _, _ in Formatter().parse(text))  # fmt: skip


@pytest.mark.parametrize(
    ("row", "family", "backend"),
    CASES,
    ids=lambda part: part if isinstance(part, str) else part.when[:30],
)
def test_a_row_is_raised_as_it_is_listed(row: refusals.Refusal, family: str, backend: str) -> None:
    with km.Device(backend), pytest.raises(KernelmillError) as caught:
        CALLS[row][family]()
    assert re.fullmatch(pattern(row.text), caught.value.message)
    assert isinstance(caught.value, km.NotImplementedHere) or row is refusals.BITS
    assert not row.hint or caught.value.hint == row.hint


def test_every_row_has_a_call_and_is_printed() -> None:
    assert {row: tuple(calls) for row, calls in CALLS.items()} == {
        row: row.families or ("",) for row in refusals.REFUSALS
    }
    assert all(set(row.families) <= set(FAMILIES) for row in refusals.REFUSALS)
    assert capabilities().refusals == refusals.REFUSALS
    text = str(capabilities())
    assert all(f"  {row.line()}" in text.splitlines() for row in refusals.REFUSALS)


def test_no_algorithm_refuses_beside_the_table() -> None:
    """`backend_of` raises the reasons of the rows; whatever else is not there, `refusals` has."""
    folder = Path(refusals.__file__).parent
    raised = {
        (path.stem, node.func.id)
        for path in sorted(folder.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        and node.func.id == "NotImplementedHere"
    }  # fmt: skip
    assert raised == {("arguments", "NotImplementedHere"), ("refusals", "NotImplementedHere")}
