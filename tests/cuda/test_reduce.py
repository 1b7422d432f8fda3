"""`reduce` and `transform_reduce` on a GPU: layouts, types, orders, determinism, graphs, streams."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km
from array_layouts import filled, same, shapes, views
from cuda_arrays import OnDevice
from kernelmill.errors import ArgumentError, DTypeError
from kernelmill.runtime import cuda
from reference_tree import CHUNK

pytestmark = pytest.mark.cuda

BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
# A thread, a team, a block, several, several pieces, chunks of the tree, and odd ends.
SIZES = (1, 2, 3, 15, 17, 31, 33, 64, 65, 255, 1000, 4095, 4097, CHUNK - 1, CHUNK, CHUNK + 1,
         70_001, 8 * CHUNK + 5, 1_000_003)  # fmt: skip
AS_TREE = "device_to_device"


def affine(a: Any, b: Any) -> Any:
    """Neither commutative nor associative: every change of the tree shows."""
    return a * 3 + b


def host(found: Any) -> Any:
    """The result of a call on the host, 0-d arrays as scalars."""
    if type(found) is tuple:
        return tuple(host(f) for f in found)
    return found.numpy()[()] if isinstance(found, cuda.CudaArray) else found


def alike(x: OnDevice, *args: Any, **options: Any) -> None:
    """The same bits as on the CPU."""
    found = host(km.reduce(x, *args, determinism=AS_TREE, **options))
    expected = km.reduce(x.view, *args, **options)
    for f, e in zip(*((found, expected) if type(found) is tuple else ((found,), (expected,))),
                    strict=True):  # fmt: skip
        same(f, e)


def close(found: Any, exact: Any, elements: int) -> None:
    """Within the rounding of any order of a sum; `exact` is of higher precision."""
    found = np.asarray(found)
    eps = np.finfo(found.dtype).eps
    bound = eps * (8 + np.log2(elements + 1) * 4) * np.sqrt(elements) * 16 + eps
    assert np.all(np.abs(found.astype(exact.dtype) - exact) <= bound + eps * np.abs(exact))


# ----------------------------------------------------------------------------- whole arrays


@pytest.mark.parametrize("dtype", TYPES)
def test_sums_of_every_type_and_size(dtype):
    for size in SIZES:
        x = OnDevice(filled((size,), dtype, size))
        alike(x)
        found = host(km.reduce(x))
        if x.view.dtype.kind in "fc":
            wide = x.view.astype("c16" if x.view.dtype.kind == "c" else "f8")
            rough = 2e-2 if dtype == "f2" else 1e-4 if dtype in ("f4", "c8") else 1e-10
            assert abs(found - wide.sum()) <= rough * (np.abs(wide).sum() + 1) * 0.1
        else:
            same(found, km.reduce(x.view))


@pytest.mark.parametrize("dtype", ["?", "i2", "u8", "f2", "f4", "f8"])
def test_other_known_operators(dtype):
    names = ["multiply", "minimum", "maximum", "logical_and", "logical_or"]
    if dtype not in ("f2", "f4", "f8"):
        names += ["bitwise_and", "bitwise_or", "bitwise_xor"]
    ops = tuple(getattr(km, n) for n in names)
    for size in (1, 40, 5000, 300_001):
        x = OnDevice(filled((size,), dtype, size))
        alike(x, ops)
        found, exact = host(km.reduce(x, ops)), km.reduce(x.view, ops)
        for f, e in zip(found[1:], exact[1:], strict=True):
            same(f, e)


@pytest.mark.parametrize("dtype", ["u1", "u4", "u8"])
def test_ordered_operators_keep_the_order(dtype):
    for size in SIZES:
        x = OnDevice(filled((size,), dtype, size))
        for determinism in ("run_to_run", AS_TREE):
            same(host(km.reduce(x, affine, determinism=determinism)), km.reduce(x.view, affine))


def test_ordered_and_commutative_folds_together():
    ops = (km.add, affine, km.maximum)
    for shape, axis in [((5000,), None), ((400_001,), None), ((30, 700), 1), ((40_000, 7), 0)]:
        x = OnDevice(filled(shape, "f4", 3))
        alike(x, ops, axis=axis)
        y = OnDevice(filled(shape, "u4", 4))
        for f, e in zip(host(km.reduce(y, ops, axis=axis)), km.reduce(y.view, ops, axis=axis),
                        strict=True):  # fmt: skip
            same(f, e)


def test_structs_and_their_operators():
    kind = np.dtype([("best", "f8"), ("at", "i4"), ("tag", "u1")])
    x = np.zeros(200_003, kind)
    x["best"], x["at"] = filled(x.shape, "f8", 1), np.arange(x.size)

    def better(a, b):
        return a if a.best >= b.best else b

    def also(a, b):
        return a if (a.best > b.best or (a.best == b.best and a.at < b.at)) else b

    d = OnDevice(x)
    for op in (better, km.op(also, commutative=True)):
        for axis, view in (
            (None, x),
            (0, x[:200_000].reshape(400, 500)),
            (1, x[:99].reshape(3, 33)),
        ):
            on = d if axis is None else OnDevice(view, x)
            found, exact = host(km.reduce(on, op, axis=axis)), km.reduce(view, op, axis=axis)
            assert np.asarray(found).tobytes() == np.asarray(exact).tobytes()


def test_large_structs():
    kind = np.dtype([(f"f{i}", "f8") for i in range(40)])
    x = filled((3000 * 40,), "f8", 1).view(kind)

    def first(a, b):
        return a if a.f0 < b.f0 else b

    for view, axis in ((x, None), (x.reshape(50, 60), 0), (x.reshape(50, 60), 1)):
        for op in (first, km.op(first, commutative=True)):
            found = host(km.reduce(OnDevice(view, x), op, axis=axis))
            assert np.asarray(found).tobytes() == km.reduce(view, op, axis=axis).tobytes()


# ----------------------------------------------------------------------------- layouts

CHOICES = [c for r in range(1, 5) for c in itertools.combinations(range(4), r)]
LAYOUTS = {
    "c": lambda x: x,
    "f": np.asfortranarray,
    "transposed": lambda x: np.ascontiguousarray(x.transpose(2, 0, 3, 1)).transpose(1, 3, 0, 2),
    "backwards": lambda x: np.ascontiguousarray(x[::-1, :, ::-1])[::-1, :, ::-1],
    "sliced": lambda x: np.repeat(np.repeat(x, 2, 3), 2, 1)[:, ::2, :, ::2],
    "broadcast": lambda x: np.broadcast_to(x[:, :1], x.shape),
}


def owner(x: np.ndarray) -> np.ndarray:
    while x.base is not None:
        x = x.base
    return x


def on_device(x: np.ndarray) -> OnDevice:
    base = owner(x)
    flat = np.ndarray((base.size,), base.dtype, base)
    return OnDevice(x, flat)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_choices_of_axes(layout):
    x = on_device(LAYOUTS[layout](filled((3, 17, 5, 36), "f4", 1)))
    y = on_device(LAYOUTS[layout](filled((3, 17, 5, 36), "u4", 2)))
    for axis in CHOICES:
        alike(x, axis=axis, keepdims=axis[0] % 2 == 1)
        for op in (km.add, km.maximum, affine):
            same(host(km.reduce(y, op, axis=axis)), km.reduce(y.view, op, axis=axis))
    same(host(km.reduce(x, axis=())), km.reduce(x.view, axis=()))


@pytest.mark.parametrize(
    "shape",
    [(3, CHUNK + 7), (CHUNK + 7, 3), (2 * CHUNK + 1, 65), (37, 2, 700), (700, 40, 3), (1, 1),
     (100_000, 1), (1, 100_000), (50_000, 2), (2, 50_000), (9, 4096), (4096, 9), (3000, 1000)],
)  # fmt: skip
def test_shapes_of_every_kind(shape):
    for dtype in ("f4", "i8", "u1"):
        x = OnDevice(filled(shape, dtype, 1))
        for axis in range(len(shape)):
            alike(x, axis=axis)
            if dtype != "f4":
                same(host(km.reduce(x, axis=axis)), km.reduce(x.view, axis=axis))
                same(host(km.reduce(x, affine, axis=axis)), km.reduce(x.view, affine, axis=axis))
            else:
                close(host(km.reduce(x, axis=axis)), x.view.sum(axis=axis, dtype="f8"), shape[axis])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_array_along_any_axes(data):
    shape = data.draw(shapes(empty=False))
    axis = tuple(data.draw(st.sets(st.sampled_from(range(len(shape)))))) if shape else ()
    x, base = data.draw(views(shape, "f4", unaligned=False))
    y, other = data.draw(views(shape, "u4", unaligned=False))
    alike(OnDevice(x, base), axis=axis)
    for op in (km.add, affine):
        same(host(km.reduce(OnDevice(y, other), op, axis=axis)), km.reduce(y, op, axis=axis))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_outputs_of_any_layout(data):
    shape = data.draw(shapes(empty=False).filter(bool))
    axis = tuple(data.draw(st.sets(st.sampled_from(range(len(shape))))))
    x = filled(shape, "i4", 1)
    kept = tuple(n for a, n in enumerate(shape) if a not in axis)
    out, base = data.draw(views(kept, "i8", broadcast=False, unaligned=False))
    target = OnDevice(out, base)
    assert km.reduce(OnDevice(x), axis=axis, out=target) is target
    out[...] = x.sum(axis=axis)
    same(target.numpy(), base)


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8"])
def test_arrays_that_are_not_aligned_to_packets(dtype):
    base = filled((300_001,), dtype, 1)
    for start, size in ((1, 40), (1, 5000), (3, 299_990)):
        part = base[start : start + size]
        alike(OnDevice(part, base))
        if dtype == "u1":
            same(host(km.reduce(OnDevice(part, base))), part.sum(dtype="u8"))
    rows = base[:300_000].reshape(300, 1000)[:, 1:998]
    x = OnDevice(rows, base)
    alike(x, axis=1)
    alike(x, axis=0)
    alike(x, axis=None)


def test_windows_that_overlap():
    for step, width in ((16, 65), (1, 33)):
        base = filled((5000 * step + width,), "f4", step)
        x = np.lib.stride_tricks.as_strided(base, (5000, width), (4 * step, 4))
        for axis in (0, 1, None):
            alike(OnDevice(x, base), axis=axis)


# ----------------------------------------------------------------------------- transforms


def test_several_inputs_and_scalars():
    a, b = filled((60, 700), "f4", 1), filled((700,), "f8", 2)
    x, y = OnDevice(a), OnDevice(b)
    k = 2

    def op(p, q, s):
        return (p * q + k, s - p)

    ops = (km.add, km.maximum)
    for axis in (None, 0, 1):
        found = km.transform_reduce((x, y, 1.5), op, ops, axis=axis, determinism=AS_TREE)
        for f, e in zip(host(found), km.transform_reduce((a, b, 1.5), op, ops, axis=axis),
                        strict=True):  # fmt: skip
            same(f, e)


def test_captured_scalars_and_init_are_read_at_each_call():
    x = OnDevice(filled((5000,), "i4", 1))
    k = 3
    plan = km.transform_reduce.plan(x, lambda v: v * k, init=7)
    for value in (3, 5):
        k = value
        same(host(plan(x)), np.int64(7) + (x.view * np.int32(k)).sum())
    same(host(km.reduce(x, (km.add, affine), init=(1, 2))),
         km.reduce(x.view, (km.add, affine), init=(1, 2)))  # fmt: skip


def test_types_in_which_to_accumulate():
    x = OnDevice(filled((5000,), "f4", 1))
    same(host(km.reduce(x, dtype="f8", determinism=AS_TREE)), km.reduce(x.view, dtype="f8"))
    out = OnDevice(np.zeros((), "f8"))
    km.reduce(x, out=out, determinism=AS_TREE)
    same(out.numpy(), np.float64(km.reduce(x.view)))
    with pytest.raises(DTypeError, match="not of the same kind"):
        km.reduce(x, out=OnDevice(np.zeros((), "i4")))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (0, 0)])
def test_no_elements(shape):
    x = OnDevice(np.zeros(shape, "f4"))
    for axis in range(len(shape)):
        same(host(km.reduce(x, axis=axis)), km.reduce(x.view, axis=axis))
        found = host(km.reduce(x, (km.maximum, affine), init=(3, -1.5), axis=axis))
        for f, e in zip(found, km.reduce(x.view, (km.maximum, affine), init=(3, -1.5), axis=axis),
                        strict=True):  # fmt: skip
            same(f, e)
    with pytest.raises(ArgumentError, match="which has no identity"):
        km.reduce(x, affine)


def test_a_value_of_no_dimensions():
    x = OnDevice(np.array(3.0))
    same(host(km.reduce(x)), np.float64(3))
    same(host(km.reduce(x, affine, init=2)), np.float64(9))


# ----------------------------------------------------------------------------- determinism


def test_the_same_bits_each_time(torch):
    x = torch.randn(30_000_001, device="cuda")
    first, tree = km.reduce(x), km.reduce(x, determinism=AS_TREE)
    assert float(tree) == float(km.reduce(x.cpu().numpy()))
    busy = torch.cuda.Stream()
    for turn in range(100):
        with torch.cuda.stream(busy):
            torch.ones(1 << (10 + turn % 14), device="cuda").cumsum(0)
        assert float(km.reduce(x)) == float(first)
    assert float(km.reduce(x, determinism=AS_TREE)) == float(tree)
    y = torch.randn(50_000, 33, device="cuda")
    columns = km.reduce(y, axis=0)
    for _ in range(50):
        assert torch.equal(km.reduce(y, axis=0), columns)


def test_the_bits_of_the_tree_do_not_depend_on_the_grid(monkeypatch):
    from kernelmill.runtime.cuda.backend import CudaBackend

    x = {d: OnDevice(filled((300_007, 3), d, 1)) for d in ("f4", "u4")}
    for count in (1, 7, 132, 1000):
        monkeypatch.setattr(CudaBackend, "multiprocessors", count)
        for axis in (None, 0, 1):
            alike(x["f4"], axis=axis)
            same(host(km.reduce(x["u4"], axis=axis)), km.reduce(x["u4"].view, axis=axis))
            same(host(km.reduce(x["u4"], affine, axis=axis)),
                 km.reduce(x["u4"].view, affine, axis=axis))  # fmt: skip


def test_what_determinism_may_be():
    with pytest.raises(ArgumentError, match="`determinism` is 'always'; accepted: 'not_guaran"):
        km.reduce(OnDevice(np.ones(3)), determinism="always")
    same(host(km.reduce(OnDevice(np.ones(3)), determinism="not_guaranteed")), np.float64(3))


# ----------------------------------------------------------------------------- streams and graphs


def test_many_calls_on_poisoned_memory(torch):
    side = [torch.cuda.Stream() for _ in range(3)]
    x = [torch.randint(-50, 50, (n,), device="cuda") for n in (1_000_003, 4_000_037, 300_000)]
    exact = [int(v.sum()) for v in x]
    rows = torch.randint(-50, 50, (9, 400_001), device="cuda")
    torch.cuda.synchronize()
    for turn in range(60):
        made = []
        for k, stream in enumerate(side):
            with torch.cuda.stream(stream):
                junk = torch.full((1 << 16,), -1, dtype=torch.int64, device="cuda")
                out = torch.full((), -77, dtype=torch.int64, device="cuda")
                km.reduce(x[(k + turn) % 3], out=out)
                made.append((out, km.reduce(rows, axis=1), (k + turn) % 3))
                del junk
        torch.cuda.synchronize()
        for out, sums, which in made:
            assert int(out) == exact[which]
            assert torch.equal(sums, rows.sum(1))


def test_a_plan_in_a_graph(torch):
    x = torch.arange(3_000_000, device="cuda")
    y = torch.zeros((), dtype=torch.int64, device="cuda")
    z = torch.zeros(3000, dtype=torch.int64, device="cuda")
    plan = km.reduce.plan(x, out=y)
    columns = km.reduce.plan(x.view(1000, 3000), axis=0, out=z)
    plan(x, out=y)
    columns(x.view(1000, 3000), out=z)
    graphs = []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(5):
                plan(x, out=y)
                columns(x.view(1000, 3000), out=z)
        graphs.append(graph)
    for step in range(4):
        x.fill_(step)
        y.fill_(-1)
        z.fill_(-1)
        other = km.reduce(x)
        for graph in graphs:
            graph.replay()
        assert int(y) == int(other) == step * 3_000_000
        assert (z == 1000 * step).all()


def test_graphs_beside_launches_on_other_streams(torch):
    x = torch.ones(5_000_000, dtype=torch.int32, device="cuda")
    y = torch.zeros((), dtype=torch.int64, device="cuda")
    plan = km.reduce.plan(x, out=y)
    plan(x, out=y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(x, out=y)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(50):
        graph.replay()
        with torch.cuda.stream(side):
            z = km.reduce(x)
        torch.cuda.synchronize()
        assert int(y) == int(z) == 5_000_000


def test_torchs_current_stream_and_types(torch):
    side = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    km.reduce(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x.fill_(3)
        y = km.reduce(x)
        assert not side.query()
    side.synchronize()
    assert isinstance(y, torch.Tensor)
    assert y.shape == ()
    assert float(y) == 3 * (1 << 20)
    short = torch.randn(70_000, device="cuda").bfloat16()
    found = km.reduce(short, determinism=AS_TREE)
    assert found.dtype == torch.bfloat16
    expected = km.reduce(short.cpu())
    assert torch.equal(found.cpu(), expected if isinstance(expected, torch.Tensor)
                       else torch.tensor(expected))  # fmt: skip


def test_cupy_arrays_come_back_as_such(cupy):
    x = cupy.arange(60_000, dtype="i4").reshape(60, 1000)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        found = km.reduce(x.T, axis=0)
    stream.synchronize()
    assert isinstance(found, cupy.ndarray)
    same(cupy.asnumpy(found), cupy.asnumpy(x).sum(axis=1))


def test_more_elements_than_32_bits_count(torch):
    side = 46_400
    x = torch.randint(0, 256, (side, side), dtype=torch.uint8, device="cuda")
    rows = x.sum(1)
    whole = rows.sum()
    for determinism in ("run_to_run", AS_TREE):
        assert int(km.reduce(x, dtype=km.int64, determinism=determinism)) == int(whole)
        assert int(km.reduce(x.t(), dtype=km.int64, determinism=determinism)) == int(whole)
        assert torch.equal(km.reduce(x, axis=1, dtype=km.int64, determinism=determinism), rows)
        found = km.reduce(x, axis=0, dtype=km.int64, determinism=determinism)
        assert torch.equal(found, x.sum(0))
    assert int(km.reduce(x[::2, 1:-1], dtype=km.int64)) == int(x[::2, 1:-1].sum())
    assert int(km.reduce(x, lambda a, b: a + b, dtype=km.int64)) == int(whole)
