"""`check_associative`: what it lets pass, and what it says of what it does not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km
from kernelmill.testing import check_associative

if TYPE_CHECKING:
    from collections.abc import Callable

MAPS = np.dtype([("scale", np.int64), ("shift", np.int64)])


def composed(f: Any, g: Any) -> Any:
    return Affine(f.scale * g.scale, f.shift * g.scale + g.shift)


Affine = km.struct(MAPS, name="Affine")


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "i8", "f2", "f4", "f8", "c8"])
def test_well_known_operators_pass(dtype: str) -> None:
    x = np.array([0, 1, 3, 2, 1, 7], dtype)
    for op in (km.add, km.multiply, km.bitwise_or if x.dtype.kind in "?iu" else km.add):
        if x.dtype.kind != "?":
            check_associative(op, x)
    if x.dtype.kind != "c":
        check_associative(km.minimum, x)
        check_associative(km.maximum, x)


def test_roundings_are_forgiven_and_more_is_not() -> None:
    x = np.random.default_rng(0).standard_normal(500)
    check_associative(km.add, x)
    with pytest.raises(AssertionError, match="add is not associative"):
        check_associative(km.add, x, rtol=0.0)
    check_associative(km.maximum, np.array([np.nan, 1.0, np.inf, -np.inf]))


def test_structs() -> None:
    maps = np.array([(2, 1), (3, -1), (0, 5), (-1, 0)], MAPS)
    check_associative(composed, maps)
    told = km.op(composed, commutative=True, name="composed")
    with pytest.raises(AssertionError, match="composed is not commutative: op"):
        check_associative(told, maps)


@pytest.mark.parametrize(
    ("op", "samples", "text"),
    [
        (lambda a, b: a - b, [5, 2], "op(op(5, 5), 5) is -5, op(5, op(5, 5)) is 5"),
        (km.op(lambda a, b: a, commutative=True, name="left"), [1, 2],
         "left is not commutative: op(1, 2) is 1, op(2, 1) is 2"),
        (km.op(lambda a, b: a + b, identity=1, name="plus"), [3],
         "1 is not the identity of plus: op(1, 3) is 4"),
        (km.op(lambda a, b: b, identity=7, name="right"), [3],
         "7 is not the identity of right: op(3, 7) is 7"),
    ],
)  # fmt: skip
def test_what_does_not_hold(op: Callable[..., Any], samples: list[int], text: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(text)):
        check_associative(op, samples)


def test_bad_arguments() -> None:
    with pytest.raises(
        km.ArgumentError, match="`samples` is empty; at least one element is needed"
    ):
        check_associative(km.add, [])
    with pytest.raises(
        km.ArgumentError, match="lambda of two kernelmill.int64|lambda of two int64"
    ):
        check_associative(lambda a, b: a < b, [1, 2])
