"""`transform` on a GPU: element types, layouts, scalars, outputs, streams, graphs, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km
from array_layouts import filled, lowered, same, shapes, views
from cuda_arrays import OnDevice
from kernelmill import events
from kernelmill.errors import ArgumentError, DeviceError, ShapeError
from kernelmill.runtime import cuda
from kernelmill.runtime.devices import available_devices

pytestmark = pytest.mark.cuda

REAL = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
# A tile and its neighbours, and many blocks.
SIZES = (0, 1, 63, 1024, 4095, 4096, 4097, 100_003)


def mixed(a: Any, b: Any) -> Any:
    return a * b + a


# ----------------------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", REAL)
def test_element_types(dtype):
    for size in SIZES:
        a, b = filled((size,), dtype, size), filled((size,), dtype, size + 1)
        found = km.transform((OnDevice(a), OnDevice(b)), mixed)
        assert isinstance(found, cuda.CudaArray)
        same(found.numpy(), mixed(a, b))


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "u1", "u2"])
def test_integers_that_overflow_are_widened_after_it(dtype):
    """Some compilers take the negative of 16 bits for one that does not overflow."""
    limits = np.iinfo(dtype)
    ends = [limits.min, limits.min + 1, 0, 1, limits.max]
    x = np.resize(np.array(ends, dtype), 4099)
    wide = np.zeros(x.size, np.int64)
    with np.errstate(over="ignore"):
        for op, wanted in (
            (lambda a, b: -a + b, -x),
            (lambda a, b: abs(a) + b, np.abs(x)),
            (lambda a, b: a * a + b, x * x),
            (lambda a, b: (a - a - a) + b, -x),
        ):
            found = km.transform((OnDevice(x), OnDevice(wide)), op)
            same(found.numpy(), wanted.astype(np.int64))


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", "c16"])
def test_arrays_that_are_not_aligned_to_packets(dtype):
    base = filled((5001,), dtype, 1)
    found = km.transform(OnDevice(base[1:], base), lambda v: v + v)
    same(found.numpy(), base[1:] + base[1:])


@pytest.mark.parametrize("dtype", ["f2", "i4", "f8", "c16", "f4,i8"])
def test_elements_at_any_address(dtype):
    """Views of bytes, fields of packed structs; as inputs, and as outputs."""
    raw = filled((5001 * 24 + 3,), "u1", 5) % 64
    for offset in (1, 3):
        base = raw[: 5001 * np.dtype(dtype).itemsize + 3].copy()
        view = base[offset:][: 5001 * np.dtype(dtype).itemsize].view(dtype)
        x, target = OnDevice(view, base), OnDevice(view.copy())
        same(km.transform(x, lambda v: v).numpy(), view)
        km.transform(target, lambda v: v, out=x)
        assert (x.numpy() == base).all()
        plan = km.transform.plan(x, lambda v: v)
        same(plan(x).numpy(), view)


def test_fields_of_packed_structs():
    packed = np.zeros((40, 30), np.dtype([("tag", "u1"), ("value", "f8"), ("flag", "?")]))
    packed["value"] = filled((40, 30), "f8", 1)
    view = packed["value"]
    same(km.transform(OnDevice(view, packed), lambda v: v * 2).numpy(), view * 2)
    same(km.transform(OnDevice(view.T, packed), lambda v: v + 1).numpy(), view.T + 1)
    same(km.reduce(OnDevice(view, packed), km.maximum, axis=1).numpy(), view.max(axis=1))


def test_bools_that_hold_other_bytes():
    raw = filled((5000,), "u1", 3)
    same(km.transform(OnDevice(raw.view("?")), lambda v: v).numpy(), raw != 0)


@pytest.mark.parametrize("types", [("u1", "f8"), ("f2", "f4"), ("f4", "c16"), ("i8", "i1")])
def test_types_of_different_sizes(types):
    a, b = (filled((9001,), t, i) for i, t in enumerate(types))
    for x, y in ((a, b), (b, a)):
        same(km.transform((OnDevice(x), OnDevice(y)), lambda p, q: p + q).numpy(), x + y)


@given(st.data())
@settings(max_examples=60)
def test_layouts(data):
    dtype = data.draw(st.sampled_from(["u1", "i4", "f4", "f8"]))
    shape = data.draw(shapes())
    a, base = data.draw(views(shape, dtype, unaligned=False))
    b, other = data.draw(views(lowered(data.draw, shape), dtype, unaligned=False))
    found = km.transform((OnDevice(a, base), OnDevice(b, other)), mixed)
    same(found.numpy(), mixed(a, b))


@given(st.data())
@settings(max_examples=40)
def test_outputs_of_any_layout(data):
    dtype = data.draw(st.sampled_from(["i2", "f4", "f8"]))
    shape = data.draw(shapes(empty=False))
    x = filled(shape, dtype, 5)
    out, base = data.draw(views(shape, dtype, broadcast=False, unaligned=False))
    target = OnDevice(out, base)
    assert km.transform(OnDevice(x), lambda v: v + v, out=target) is target
    out[...] = x + x
    same(target.numpy(), base)


@pytest.mark.parametrize("dtype", ["?", "u1", "f2", "f4", "f8", "c16"])
def test_turned_inputs(dtype):
    """Whole tiles, parts of them, and rows that are not aligned to words."""
    for shape in ((64, 64), (128, 192), (3, 64, 132), (2, 70, 130), (1000, 17), (16, 900)):
        x, y = filled(shape, dtype, 1), filled(shape, dtype, 2)
        turned = x.swapaxes(-1, -2)
        z = filled(turned.shape, dtype, 3)
        found = km.transform((OnDevice(turned, x), OnDevice(z)), lambda a, b: (a, b))
        same(found[0].numpy(), np.ascontiguousarray(turned))
        same(found[1].numpy(), z)
        other = y.swapaxes(-1, -2)
        found = km.transform((OnDevice(z), OnDevice(turned, x), OnDevice(other, y)),
                             lambda a, b, c: (a, b, c))  # fmt: skip
        for f, e in zip(found, (z, turned, other), strict=True):
            same(f.numpy(), np.ascontiguousarray(e))


def test_eight_dimensions_and_not_nine():
    x = filled((3,) * 9, "f4", 1)[..., 0].transpose(7, 0, 5, 2, 4, 3, 6, 1)
    base = x.base.base if x.base.base is not None else x.base
    steps = x[::2, ::2, ::2, ::2, ::2, ::2, ::2, ::2]
    same(km.transform(OnDevice(steps, base), lambda v: v * v).numpy(), steps * steps)
    y = filled((3,) * 9, "f4", 2)
    every = y[(slice(None, None, 2),) * 9]
    with pytest.raises(ShapeError, match="the limit is 8"):
        km.transform(OnDevice(every, y), lambda v: v)


def test_a_value_of_no_dimensions():
    x = np.array(3.0)
    same(km.transform(OnDevice(x), lambda v: v + 1).numpy(), np.array(4.0))


# ----------------------------------------------------------------------------- operators


def test_captured_scalars_are_read_at_each_call():
    x = OnDevice(filled((5000,), "f4", 1))
    k, offset = 3, np.float32(0.5)

    def op(v):
        return k * v + offset

    plan = km.transform.plan(x, op)
    for value in (3, 4, -1.5):
        k = value
        if isinstance(value, int):
            same(plan(x).numpy(), np.float32(k) * x.base + offset)
        same(km.transform(x, op).numpy(), np.float32(k) * x.base + offset)


def test_python_and_numpy_scalars_are_handed_over():
    x = OnDevice(filled((5000,), "i2", 1))
    same(km.transform((x, 300), lambda a, b: a + b).numpy(), x.base + np.int16(300))
    same(km.transform((2.5, x), lambda a, b: a * b).numpy(), 2.5 * x.base)
    same(km.transform((x, True), lambda a, b: a * b).numpy(), x.base * True)
    same(km.transform((x, np.float32(3)), lambda a, b: a - b).numpy(), x.base - np.float32(3))
    k = 2
    found = km.transform((7, x, 1j), lambda a, b, c: (a - b, k * b + c))
    same(found[0].numpy(), 7 - x.base)
    same(found[1].numpy(), 2 * x.base + 1j)
    with pytest.raises(OverflowError):
        km.transform((x, 40_000), lambda a, b: a + b)
    wide = filled((40, 50), "f8", 1)
    same(km.transform((OnDevice(wide.T, wide), 2.0), lambda a, b: a / b).numpy(), wide.T / 2)


def test_structs():
    kind = np.dtype([("tag", "u1"), ("half", "f2"), ("value", "f4")])
    x = np.zeros(3000, kind)
    x["tag"], x["value"] = np.arange(3000) % 251, np.arange(3000)
    found = km.transform(OnDevice(x), lambda r: (r.value + r.tag, r))
    same(found[0].numpy(), x["value"] + x["tag"])
    assert found[1].numpy().tobytes() == x.tobytes()


def test_a_call_is_one_launch():
    x = OnDevice(filled((300, 40), "f4", 1))
    seen = []
    stop = events.subscribe(seen.append)
    try:
        km.transform((x, x), lambda a, b: (a + b, a - b, a * b))
    finally:
        stop()
    launches = [e for e in seen if e.kind == "launch"]
    assert [(e.device, e.bytes) for e in launches] == [("cuda:0", 300 * 40 * 20)]


# ----------------------------------------------------------------------------- outputs


def test_in_place_and_overlap():
    x = filled((9000,), "f4", 1)
    both = OnDevice(x)
    assert km.transform((both, both), mixed, out=both) is both
    same(both.numpy(), mixed(x, x))
    memory = cuda.to_device(x)
    ahead, behind = (_part(memory, n) for n in (1, 0))
    km.transform(behind, lambda v: v + 1, out=ahead)
    same(memory.numpy(), np.concatenate([x[:1], x[:-1] + 1]))


def _part(memory: Any, start: int) -> Any:
    class Part:
        __cuda_array_interface__ = {  # noqa: RUF012 - the protocol wants a dict
            **memory.__cuda_array_interface__,
            "shape": (memory.shape[0] - 1,),
            "data": (int(memory.buffer.handle) + 4 * start, False),
        }

    return Part()


def test_outputs_of_another_type():
    x = OnDevice(filled((5000,), "f4", 1))
    out = OnDevice(np.zeros(5000))
    km.transform(x, lambda v: v * v, out=out)
    same(out.numpy(), (x.base * x.base).astype("f8"))
    rows = OnDevice(np.zeros((3, 5000), "f4"))
    km.transform(x, lambda v: -v, out=rows)
    same(rows.numpy(), np.broadcast_to(-x.base, (3, 5000)))


# ----------------------------------------------------------------------------- torch and CuPy


def test_tensors_come_back_as_tensors(torch):
    x = torch.randn(64, 33, device="cuda")
    found = km.transform((x.t(), x.t()), lambda a, b: a * b)
    assert isinstance(found, torch.Tensor)
    assert found.device == x.device
    assert found.stride() == x.t().stride()
    assert torch.equal(found, x.t() * x.t())
    ints = torch.arange(64, device="cuda")[:, None]
    assert km.transform((x, ints), lambda a, b: a + b).dtype == torch.float32  # torch's promotion
    short = x.bfloat16()
    assert torch.equal(km.transform((short, short), lambda a, b: a + b), short + short)
    assert km.transform(x.sum(), lambda v: v).shape == ()


def test_torchs_current_stream(torch):
    x = torch.zeros(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    km.transform(x, lambda v: v + 1)  # compiled and loaded, so that the call below takes no time
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x.fill_(3)
        y = km.transform(x, lambda v: v + 1)
        assert not side.query()
        z = y * 2
    side.synchronize()
    assert (z == 8).all()


def test_arrays_dropped_before_the_kernel_ran(torch):
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        x = torch.full((1 << 20,), 5.0, device="cuda")
        y = km.transform(x, lambda v: v + 1)
        del x
        other = torch.zeros(1 << 20, device="cuda")
    side.synchronize()
    assert (y == 6).all()
    assert (other == 0).all()


def test_a_plan_in_a_graph(torch):
    x, y = torch.arange(5000.0, device="cuda"), torch.zeros(5000, device="cuda")
    plan = km.transform.plan(x, lambda v: 2 * v + 1, out=y)
    plan(x, out=y)
    y.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(x, out=y)
        plan(y, out=y)
    torch.cuda.synchronize()
    assert (y == 0).all()
    for step in range(3):
        x.fill_(step)
        graph.replay()
        assert (y == 2 * (2 * step + 1) + 1).all()


def test_more_elements_than_32_bits_count(torch):
    side = 46_400
    x = torch.randint(0, 256, (side, side), dtype=torch.uint8, device="cuda")
    out = torch.empty_like(x)
    km.transform(x.t(), lambda v: v + 1, out=out)
    assert torch.equal(out, x.t() + 1)
    flat = x.view(-1)
    assert torch.equal(km.transform(flat, lambda v: v + 1), flat + 1)


def test_cupy_arrays_come_back_as_such(cupy):
    x = cupy.arange(6000, dtype="f4").reshape(60, 100)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        found = km.transform(x.T, lambda v: v + 1)
        doubled = found * 2
    stream.synchronize()
    assert isinstance(found, cupy.ndarray)
    same(cupy.asnumpy(doubled), (cupy.asnumpy(x).T + 1) * 2)


# ----------------------------------------------------------------------------- refusals


def test_arrays_in_different_places(torch):
    x, host = torch.ones(3, device="cuda"), torch.ones(3)
    add = lambda a, b: a + b
    with pytest.raises(DeviceError, match=r"'inputs\[1\]' is a torch tensor on cpu in the memory"):
        km.transform((x, host), add)
    with pytest.raises(DeviceError, match=r"'inputs\[1\]' is a torch tensor on cuda:0"):
        km.transform((host, x), add)
    with pytest.raises(DeviceError, match="'out' is a NumPy array in the memory of the host"):
        km.transform(x, lambda v: v, out=np.ones(3, "f4"))
    with pytest.raises(DeviceError, match="'out' is a torch tensor on cpu in the memory of the"):
        km.transform(x, lambda v: v, out=torch.ones(3))
    with pytest.raises(DeviceError, match="the current device is cuda:0"), km.Device("cuda"):
        km.transform(host, lambda v: v)
    with km.Device("cpu"):  # the arrays decide
        assert km.transform(x, lambda v: v + 1).device == x.device


def test_what_is_not_served(torch):
    x = torch.ones(4, device="cuda")
    with pytest.raises(ArgumentError, match="several of its elements share memory"):
        km.transform(x, lambda v: v, out=torch.zeros(1, device="cuda").expand(4))


def test_the_device_is_listed():
    assert available_devices()[:2] == ("cpu", "cuda:0")
    assert km.Device("cuda").backend.name == "cuda:0"
    rows = km.capabilities().find(backend="cuda")
    assert {row.family for row in rows if row.supported} >= {"transform", "reduce", "scan", "sort"}
    text = km.transform.plan(OnDevice(np.ones(3)), lambda v: v).explain()
    assert "device: cuda:0" in text
