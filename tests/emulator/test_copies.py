"""Copies beside the threads: their waits, groups and proxy fences, as the sanitizer sees them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import kernelmill as km
from emulator_copies import FAULTY, NUMBERS, RIGHT, TEXT, arguments, lines_of
from kernelmill.runtime.emulator import (
    SanitizerError,
    Schedule,
    compile_emulated,
    sanitized,
    scheduled,
)

ORDERS = (Schedule(), Schedule("reversed"), Schedule("random", seed=5))


@cache
def kernel(name: str):
    return compile_emulated(TEXT, name="copies.cu").get_kernel(name)


def launch(name: str):
    args = arguments(name)
    km.launch(None, km.LaunchConfig(1, 64), kernel(name), *args)
    return args[1]


@pytest.mark.parametrize("name", RIGHT)
def test_right_copies_give_their_values_and_no_report(name):
    wanted = [RIGHT[name](NUMBERS, i) for i in range(64)]
    for order in ORDERS:
        with scheduled(order):
            assert launch(name)[:64].tolist() == wanted
            with sanitized():
                assert launch(name)[:64].tolist() == wanted


@pytest.mark.parametrize("name", FAULTY)
def test_a_copy_out_of_order_is_a_race_at_its_lines(name):
    for order in ORDERS:
        with scheduled(order), sanitized(), pytest.raises(SanitizerError) as raised:
            launch(name)
        reports = raised.value.reports
        # What is not there yet may also not have been written before.
        assert {"race"} <= {r.kind for r in reports} <= {"race", "uninitialised read"}, reports
        reports = [r for r in reports if r.kind == "race"]
        for report in reports:
            assert {report.place.line, report.other.line} <= lines_of(name), report
    without_fence = name in {
        "stores_without_fence", "fence_before_the_write", "fence_of_one_warp", "load_over_writes",
        "load_of_what_was_written",
    }  # fmt: skip
    assert without_fence == any("fence.proxy.async" in r.text for r in reports)


def test_copies_of_16_bytes_fill_with_zeros_and_take_their_size_as_an_operand():
    text = """extern "C" __global__ void f(const int* x, int* y, int n) {
  __shared__ __align__(16) int s[8];
  unsigned at = (unsigned)__cvta_generic_to_shared(s);
  asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(x), "n"(16), "r"(n));
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at + 16), "l"(x + 4));
  asm volatile("cp.async.wait_all;");
  for (int i = 0; i < 8; i++) y[i] = s[i];
}"""
    x, y = NUMBERS[:8], np.zeros(8, np.int32)
    code = compile_emulated(text).get_kernel("f")
    with sanitized():
        km.launch(None, km.LaunchConfig(1, 1), code, x, y, 8)
    assert y.tolist() == [*x[:2], 0, 0, *x[4:]]
