"""Calls that repeat with arrays of other layouts than C order: the short way, and what it leaves.

What the general way does with layouts is in test_transform_layouts.py.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

import kernelmill as km
from kernelmill import events

transforms = sys.modules[km.transform.__module__]


def triple(v):
    return 3 * v + 1


def views(x: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "cut": x[1:4, 2:6, ::2],
        "turned": x.transpose(2, 0, 1),
        "backwards": x[::-1, :, ::-2],
        "broadcast": np.broadcast_to(x[:, :1], (6, 5, 8)),
        "row": x[2, :, 3],
        "one": x[1:2, 1:2, 1:2],
    }


NAMES = list(views(np.zeros((6, 7, 8))))


@pytest.fixture
def short_only(monkeypatch):
    """Return what makes every call fail that takes the general way."""

    def refuse(*_):
        raise AssertionError("the general way was taken")

    return lambda: monkeypatch.setattr(transforms, "_prepare", refuse)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_second_call_takes_the_short_way(name, native, short_only):
    x, y = (np.arange(336.0).reshape(6, 7, 8) + k for k in (0, 1000))
    with km.config.override(native=native):
        given, other = views(x)[name], views(y)[name]
        out, wide = np.zeros(given.shape), np.zeros((*given.shape, 2))
        first = km.transform(given, triple)
        km.transform(given, triple, out=out)
        km.transform(given, triple, out=wide[..., 0])
        short_only()
        second = km.transform(other, triple)
        assert km.transform(other, triple, out=out) is out
        km.transform(other, triple, out=wide[..., 0])
    assert np.array_equal(first, triple(given))
    assert second.strides == first.strides
    for found in (second, out, wide[..., 0]):
        assert np.array_equal(found, triple(other))
    assert not wide[..., 1].any()


def test_several_outputs_and_scalars_of_the_scope(short_only):
    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    step = 2.0

    def both(v, w):
        return v * step, w - v

    km.transform((x.T, x[0, :6]), both)
    short_only()
    for value in (5.0, -1.0):
        step = value
        found = km.transform((x.T, x[0, :6]), both)
        assert np.array_equal(found[0], x.T * np.float32(value))
        assert np.array_equal(found[1], x[0, :6] - x.T)
        assert found[0].strides == x.T.strides


def test_a_plan_takes_it_too(monkeypatch):
    x = np.arange(24.0).reshape(4, 6)
    plan = km.transform.plan(x.T, triple, out=np.empty((6, 4)))
    assert np.array_equal(plan(x.T[::-1]), triple(x.T[::-1]))  # the kernel does, the short way not
    with pytest.raises(km.ArgumentError, match="prepared for"):
        plan(np.ascontiguousarray(x.T))
    monkeypatch.setattr(type(plan), "_general", None)
    assert np.array_equal(plan(-x.T), triple(-x.T))
    with pytest.raises(TypeError):
        plan(x.T[::-1])


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_outputs_that_share_memory_with_inputs(shift):
    for turn in range(6):
        x = np.arange(80.0) + turn
        given, out = x[:60:3], x[shift : shift + 60 : 3]
        expected = triple(given.copy())
        km.transform(given, triple, out=out)
        assert np.array_equal(out, expected), turn


def test_memory_is_shared_in_another_way_each_time():
    for shift in (0, 3, 1, 0, 6, 2, 0, 3, 1, 30):
        x = np.arange(80.0)
        given, out = x[:20:2], x[shift : shift + 20 : 2]
        expected = triple(given.copy())
        km.transform(given, triple, out=out)
        assert np.array_equal(out, expected), shift


def test_what_the_short_way_leaves_is_told_as_ever():
    x = np.arange(24.0).reshape(4, 6)
    out = np.zeros((6, 4))
    for _ in range(2):
        km.transform(x.T, triple, out=out)
    out.flags.writeable = False
    with pytest.raises(km.ArgumentError, match="read-only"):
        km.transform(x.T, triple, out=out)
    assert np.array_equal(out, triple(x.T))
    swapped = x.T.astype(">f8")
    with pytest.raises(km.DTypeError):
        km.transform(swapped, triple, out=np.zeros((6, 4)))
    shifted = np.zeros(24 * 8 + 1, np.uint8)[1:].view(np.float64).reshape(4, 6)
    shifted[:] = x
    assert np.array_equal(km.transform(shifted.T, triple, out=np.zeros((6, 4))), triple(x.T))


def test_listeners_are_told():
    x = np.arange(24.0).reshape(4, 6)
    out = np.zeros((6, 4))
    km.transform(x.T, triple, out=out)
    with events.listen() as seen:
        km.transform(x.T, triple, out=out)
    (launch,) = seen
    assert (launch.kind, launch.device, launch.bytes) == ("launch", "cpu", 24 * 16)


def test_layouts_that_no_plan_serves_are_not_planned_again_and_again(monkeypatch):
    made = []
    real = transforms._plan
    monkeypatch.setattr(transforms, "_plan", lambda *given: made.append(1) or real(*given))
    x = np.arange(100.0).reshape(10, 10)
    for turn in range(12):
        x[:] = np.arange(100).reshape(10, 10)
        expected = x + x[0]
        km.transform((x, x[0]), lambda a, b: a + b, out=x)  # the row is copied first
        assert np.array_equal(x, expected), turn
    assert len(made) <= 4


def test_reductions_of_other_layouts(short_only):
    x = np.arange(120, dtype=np.int64).reshape(4, 5, 6)
    out = np.zeros((6, 4), np.int64)
    for given in (x.transpose(2, 1, 0), -x.transpose(2, 1, 0), x.transpose(2, 1, 0)):
        km.reduce(given, km.add, axis=1, out=out)
        assert np.array_equal(out, given.sum(axis=1))
    wide = np.zeros((6, 8), np.int64)
    for _ in range(2):
        km.reduce(x.transpose(2, 1, 0), km.add, axis=1, out=wide[:, ::2])
        assert np.array_equal(wide[:, ::2], x.transpose(2, 1, 0).sum(axis=1))
