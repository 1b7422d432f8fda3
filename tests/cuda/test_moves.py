"""NumPy arrays given to a GPU: copied there and back, and nothing silently."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from array_layouts import filled, same
from kernelmill import events
from kernelmill.errors import ArgumentError, DTypeError
from kernelmill.runtime import cuda

pytestmark = pytest.mark.cuda


def moves(seen):
    return [(e.source, e.device, e.bytes) for e in seen if e.kind == "copy"]


def test_results_come_back_in_numpy_and_each_copy_is_an_event():
    a, b = filled((50, 60), "f4", 1), filled((50, 60), "f8", 2)
    with km.Device("cuda"), events.listen("copy", "launch") as seen:
        found = km.transform((a, b), lambda v, w: v * w)
    assert type(found) is np.ndarray
    same(found, a * b)
    there, back = ("cpu", "cuda:0"), ("cuda:0", "cpu")
    assert moves(seen) == [(*there, a.nbytes), (*there, b.nbytes), (*back, found.nbytes)]
    assert [e.device for e in seen if e.kind == "launch"] == ["cuda:0"]


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_element_types_and_layouts(dtype):
    base = filled((40, 30), dtype, 3)
    with km.Device("cuda"):
        for view in (base, base.T, base[::2, ::-3], base[:0], base[3:4, 5]):
            same(km.transform(view, lambda v: v), view)


def test_structs_and_scalars():
    pairs = np.zeros(100, np.dtype([("key", "i4"), ("value", "f8")]))
    pairs["key"], pairs["value"] = np.arange(100), np.arange(100) / 3
    with km.Device("cuda"):
        same(km.transform(pairs, lambda p: p.value + p.key), pairs["value"] + pairs["key"])
        number = km.transform(np.array(2.5), lambda v: v * 2)
        same(km.transform((pairs["key"], 2, np.float32(0.5)), lambda a, b, c: a * b + c),
             pairs["key"] * 2 + np.float32(0.5))  # fmt: skip
    assert isinstance(number, np.float64)
    assert number == 5


def test_given_outputs_are_written():
    x, out = filled((20, 30), "f4", 1), np.zeros((30, 40), "f4")
    view = out.T[::2]
    parts = np.zeros((20, 30)), np.zeros((20, 30), "?")
    with km.Device("cuda"):
        assert km.transform(x, lambda v: v + 1, out=view) is view
        found = km.transform(x, lambda v: (v * 2, v > 0), out=parts)
        total = km.reduce(x, km.maximum, axis=0, out=np.zeros(30, "f4"))
    same(view, x + 1)
    assert (out[:, 1::2] == 0).all()
    assert found is parts
    same(parts[0], (x * 2).astype("f8"))
    same(parts[1], x > 0)
    same(total, x.max(axis=0))


def test_an_output_may_be_an_input():
    x = np.arange(1000, dtype="f4")
    with km.Device("cuda"):
        assert km.transform(x, lambda v: v + 1, out=x) is x
        km.transform(x[:-1], lambda v: v * 2, out=x[1:])
    expected = np.arange(1000, dtype="f4") + 1
    same(x, np.concatenate([expected[:1], expected[:-1] * 2]))


def test_reductions_give_scalars():
    x = filled((1000,), "i4", 4) % 100
    with km.Device("cuda"):
        total, least = km.reduce(x, (km.add, km.minimum))
        assert (total, least) == (x.sum(), x.min())
        assert isinstance(total, np.integer)
        same(km.reduce(x.reshape(10, 100), km.maximum, axis=0), x.reshape(10, 100).max(axis=0))


def test_plans():
    x = filled((1000,), "f4", 1)
    with km.Device("cuda"):
        twice = km.transform.plan(x, lambda v: v * 2)
        for _ in range(3):
            same(twice(x), x * 2)
    there = cuda.to_device(x)
    assert isinstance(twice(there), cuda.CudaArray)
    same(twice(there).numpy(), x * 2)


@pytest.mark.parametrize("order", [1, -1])
def test_beside_arrays_on_a_device_they_are_copied_and_decide_nothing(torch, cupy, order):
    host = filled((64,), "f4", 1)
    for made in (torch.as_tensor(host, device="cuda"), cupy.asarray(host)):
        with events.listen("copy") as seen:
            found = km.transform((made, host)[::order], lambda a, b: a - b + 1)
        assert type(found) is type(made)
        assert (found == 1).all()
        assert moves(seen) == [("cpu", "cuda:0", host.nbytes)]


def test_what_cannot_be_copied():
    readonly = np.zeros(4)
    readonly.flags.writeable = False
    with km.Device("cuda"):
        with pytest.raises(DTypeError, match="argument 'inputs'"):
            km.transform(np.array([None]), lambda v: v)
        with pytest.raises(ArgumentError, match="argument 'out' is read-only"):
            km.transform(np.zeros(4), lambda v: v, out=readonly)
        with pytest.raises(ArgumentError, match="'inputs' is a masked array"):
            km.transform(np.ma.masked_array([1.0]), lambda v: v)
