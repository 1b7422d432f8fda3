"""Operators with sin, cos and tan are computed in a quick form first, and exp in them: no bit shows it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelmill as km
from intrinsic_library import intrinsic

SIZES = (1, 511, 512, 513, 3000)
FAR = (1e6, -3e9, 2.0**100, float("inf"), float("nan"))


def exact(name: str, x: np.ndarray) -> np.ndarray:
    return np.array([intrinsic(name, v) for v in x.ravel()], x.dtype).reshape(x.shape)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(
        np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a), np.signbit(b))
    )


def arguments(dtype: type, size: int, far_at: tuple[int, ...]) -> np.ndarray:
    x = np.random.default_rng(size).normal(scale=50, size=size).astype(dtype)
    for i, where in enumerate(far_at):
        x[where % size] = FAR[i % len(FAR)]
    return x


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("far_at", [(), (0,), (510, 511, 512), (-1, 700)])
def test_near_and_far_arguments_give_the_bits_of_the_exact_function(dtype, size, far_at):
    x = arguments(dtype, size, far_at)
    found = km.transform(x, lambda v: (math.sin(v), math.cos(v), math.tan(v)))
    for name, result in zip(("sin", "cos", "tan"), found, strict=True):
        assert same(result, exact(name, x)), name


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("dtype", "high"), [(np.float32, 89), (np.float64, 710)])
@pytest.mark.parametrize("reach", [0.7, 1.2])
def test_exp_beside_them_gives_the_bits_of_the_exact_function(dtype, high, reach):
    random = np.random.default_rng(high)
    x = random.uniform(-1.3 * high, reach * high, 3000).astype(dtype)
    x[7::500] = [-np.inf, 0.0, -0.0, 1.0, -1e30, -high][: len(x[7::500])]
    if reach > 1:
        x[9::700] = [np.inf, np.nan, 1e30, np.copysign(np.nan, -1), high][: len(x[9::700])]
    y = random.uniform(-9, 9, 3000).astype(dtype)
    found = km.transform((x, y), lambda v, w: (math.exp(v), math.sin(w)))
    assert same(found[0], exact("exp", x))
    assert same(found[1], exact("sin", y))


@pytest.mark.parametrize("far_at", [(), (5, 600)])
def test_in_place_and_strided_outputs(far_at):
    x = arguments(np.float32, 2000, far_at)
    expected = exact("sin", x)
    wide = np.full(4000, 7, np.float32)
    km.transform(x, math.sin, out=wide[::2])
    assert same(wide[::2], expected)
    assert (wide[1::2] == 7).all()
    km.transform(x, math.sin, out=x)
    assert same(x, expected)


def test_streamed_outputs_are_the_same():
    x = arguments(np.float32, 1 << 24, tuple(range(0, 1 << 24, 100_003)))
    found = km.transform(x, math.sin)
    pieces = [km.transform(part, math.sin) for part in np.array_split(x, 64)]
    assert same(found, np.concatenate(pieces))


def test_inside_a_called_function_and_a_branch():
    def wave(v):
        return math.sin(v) if v > 0 else v * 2

    x = arguments(np.float64, 1500, (3, 1400))
    found = km.transform(x, lambda v: wave(v) + 1)
    assert same(found, np.where(x > 0, exact("sin", x), x * 2) + 1)
