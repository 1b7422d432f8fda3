"""`determinism="device_to_device"`: which operators can promise it, and what the others are told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km

if TYPE_CHECKING:
    from collections.abc import Callable

it = km.iterators
X = np.arange(1.0, 7.0)
KEYS = np.array([0, 0, 1, 1, 1, 2])
ENDS = np.array([0, 2, 6])
ALWAYS = "device_to_device"
RAW = km.RawOp(cpp="double joined(double a, double b) { return a + b; }",
               arguments=(km.float64, km.float64), result=km.float64)  # fmt: skip


def log_sum(a: Any, b: Any) -> Any:
    high = max(a, b)
    return high + np.log1p(min(a, b) - high)


def length(a: Any, b: Any) -> Any:
    return np.sqrt(a * a + b * b) / 1 - abs(min(a, -b)) + max(a % 2, np.floor(b))


FAMILIES: dict[str, Callable[[Any], Any]] = {
    "reduce": lambda op: km.reduce(X, op, determinism=ALWAYS),
    "rows": lambda op: km.reduce(X.reshape(2, 3), op, axis=1, determinism=ALWAYS),
    "scan": lambda op: km.inclusive_scan(X, op, determinism=ALWAYS),
    "scan by key": lambda op: km.inclusive_scan_by_key(KEYS, X, op, determinism=ALWAYS),
    "reduce by key": lambda op: km.reduce_by_key(KEYS, X, op, determinism=ALWAYS),
    "segments": lambda op: km.segmented_reduce(X, ENDS, op, determinism=ALWAYS),
    "scans of segments": lambda op: km.segmented_scan(X, ENDS, op, determinism=ALWAYS),
    "equal segments": lambda op: km.segmented_reduce(X, op=op, segment_size=2, determinism=ALWAYS),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_an_operator_that_is_rounded_more_than_once_is_named_with_its_line(family: str) -> None:
    with pytest.raises(km.OperatorError) as caught:
        FAMILIES[family](log_sum)
    assert caught.value.message.startswith(
        "determinism='device_to_device' with log_sum: `np.log1p` of float64 has an error of up to "
        "2 ulp, so that nobody promises its bits on every device; accepted: + - * / sqrt, "
    )
    assert "return high + np.log1p(min(a, b) - high)" in str(caught.value)
    assert caught.value.hint == "write it with those, or ask for determinism='run_to_run'"


@pytest.mark.parametrize("family", FAMILIES)
def test_an_operator_in_cpp_is_named(family: str) -> None:
    with pytest.raises(km.OperatorError, match="with joined: joined is C\\+\\+, whose bits may"):
        FAMILIES[family](RAW)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_rounded_once_is_served(family: str) -> None:
    FAMILIES[family](length)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: km.transform_reduce(X, np.exp, determinism=ALWAYS), "exp: `np.exp` of float64"),
        (lambda: km.transform_reduce(X, lambda v: v**2.5, determinism=ALWAYS), "lambda: `**` of"),
        (lambda: km.reduce(it.transform(X, np.sin), determinism=ALWAYS), "sin: `np.sin` of"),
        (lambda: km.inclusive_scan(it.transform(X, np.sin), determinism=ALWAYS), "sin: `np.sin`"),
        (lambda: km.reduce_by_key(KEYS, it.transform(X, np.cos), determinism=ALWAYS), "cos: `np."),
        (lambda: km.segmented_reduce(it.transform(X, np.tan), ENDS, determinism=ALWAYS), "tan: "),
        (lambda: km.transform_reduce(X * 1j, abs, determinism=ALWAYS), "abs: `abs` of complex128"),
        (lambda: km.bincount(KEYS, it.transform(KEYS, lambda v: int(np.exp(v))),
                             determinism=ALWAYS), "`np.exp` of float64 has an error"),
    ],
)  # fmt: skip
def test_what_is_applied_before_counts_too(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(km.KernelmillError, match=re.escape(text)):
        call()


def test_integers_and_exact_functions_of_all_kinds_are_served() -> None:
    whole = np.arange(1, 5)
    assert km.reduce(whole, lambda a, b: (a**2 + abs(b)) // 3, determinism=ALWAYS) == 1
    assert km.reduce(it.permutation(X, KEYS), determinism=ALWAYS) == 11
    assert km.reduce(np.array([3 + 4j, 1j]), determinism=ALWAYS) == 3 + 5j
    assert km.reduce(X, lambda a, b: np.copysign(a, b) + np.trunc(b), determinism=ALWAYS) == 21


@pytest.mark.parametrize("call", [km.reduce, km.inclusive_scan, km.segmented_reduce])
def test_an_option_that_is_no_constant_is_named(call: Any) -> None:
    arrays = (X, ENDS) if call is km.segmented_reduce else (X,)
    with pytest.raises(km.ArgumentError, match=r"`determinism` is \['always'\]; accepted"):
        call(*arrays, determinism=["always"])
    with pytest.raises(km.DTypeError, match="is not a dtype"):
        call(*arrays, dtype=np)


def test_an_option_that_is_no_constant_but_false_is_taken() -> None:
    assert [km.argmin(X, keepdims=[]) for _ in range(3)] == [0] * 3  # type: ignore[arg-type]


def test_a_promise_that_is_none() -> None:
    with pytest.raises(km.ArgumentError) as caught:
        km.reduce(X, determinism="always")
    assert caught.value.message == (
        "`determinism` is 'always'; accepted: 'not_guaranteed', 'run_to_run', 'device_to_device'"
    )
