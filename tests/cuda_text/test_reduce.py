"""The CUDA text of reductions: it compiles for the chips of CI, and is spread as the shape asks."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kernelmill as km
from array_layouts import filled, same
from kernelmill.algorithms.spread import Spread, orders_of
from kernelmill.errors import ArgumentError
from kernelmill.runtime import devices
from kernelmill.runtime.backend import Kernel
from kernelmill.runtime.cuda import device_headers
from kernelmill.runtime.emulator import Schedule, scheduled
from kernelmill.toolchain.nvrtc import compile_cuda

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")

K = 3
AS_TREE = "device_to_device"


class TextOnly:
    """A device that keeps the texts it is asked for, and how they would be launched."""

    name, target, families = "emulator", "cuda", ("transform", "reduce")

    def __init__(self, multiprocessors: int = 132) -> None:
        self.multiprocessors = multiprocessors
        self.sources, self.launches = [], []

    def build(self, source):
        self.sources.append(source)
        return Kernel(source, 0)

    def launch(self, kernel, launch):
        self.launches.append(launch)

    def launcher(self, kernel, direct):
        return None

    allocator = launcher


@pytest.fixture
def device(monkeypatch):
    from kernelmill.algorithms import plan

    monkeypatch.setattr(plan, "_BUILT", {})
    found = TextOnly()
    monkeypatch.setitem(devices._BACKENDS, "emulator", found)
    with km.Device("emulator"):
        yield found


def affine(a: Any, b: Any) -> Any:
    return a * K + b


def loops(source) -> list[str]:
    """The loops of device/reduce*.cuh that a text calls, without their arguments."""
    return re.findall(r"^  km::(\w+)<.*>::(\w+)(?:<([\w, ]+)>)?\(call\)", source.text, re.MULTILINE)


FORMS = {
    "whole": lambda t: km.reduce(np.zeros(1 << 20, t)),
    "small": lambda t: km.reduce(np.zeros(1 << 12, t)),
    "blocks": lambda t: km.reduce(np.zeros((3, 1 << 20), t), axis=1),
    "threads": lambda t: km.reduce(np.zeros((1 << 18, 4), t), axis=1),
    "teams": lambda t: km.reduce(np.zeros((1 << 12, 40), t), axis=1, keepdims=True),
    "runs": lambda t: km.reduce(np.zeros((64, 30, 200), t), axis=(0, 2)),
    "columns": lambda t: km.reduce(np.zeros((500, 1000), t), axis=0),
    "strided columns": lambda t: km.reduce(np.zeros((30, 8, 70), t)[:, :, ::2], axis=(0, 1)),
    "narrow": lambda t: km.reduce(np.zeros((5000, 3), t), axis=0),
    "tree": lambda t: km.reduce(np.zeros(1 << 18, t), determinism=AS_TREE),
    "tree of few": lambda t: km.reduce(np.zeros((1 << 18, 5), t), axis=1, determinism=AS_TREE),
    "tree of rows": lambda t: km.reduce(np.zeros((9, 900), t), axis=1, determinism=AS_TREE),
    "tree of columns": lambda t: km.reduce(np.zeros((900, 9), t), axis=0, determinism=AS_TREE),
    "ordered": lambda t: km.reduce(np.zeros(1 << 18, t), affine, dtype=t),
    "ordered runs": lambda t: km.reduce(np.zeros((9, 7, 50), t), affine, axis=(0, 2), dtype=t),
    "ordered columns": lambda t: km.reduce(np.zeros((900, 9), t), affine, axis=0, dtype=t),
}
TYPES = ["f4", "i8", "f2", "c16", "u1", "f8", "i2", ml_dtypes.bfloat16, "u4", "c8", "?", "i4"]


def compiled(source, arch):
    image = compile_cuda(source.text, arch=arch, headers=device_headers(), cache=False)
    assert image.log == ""
    assert b"km_kernel\0" in image.data


@pytest.mark.parametrize("form", FORMS)
def test_every_form_compiles(device, form):
    at = list(FORMS).index(form)
    for turn, arch in enumerate(("sm_90", "sm_80", "sm_100")):
        t = TYPES[(at + 5 * turn) % len(TYPES)]
        FORMS[form](np.dtype("i4" if t == "?" and "ordered" in form else t))
        compiled(device.sources[-1], arch)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_form_compiles_for_every_type(device, form):
    for t in TYPES:
        if t != "?" or "ordered" not in form:
            FORMS[form](np.dtype(t))
            compiled(device.sources[-1], "sm_90")


def test_transforms_structs_several_folds_and_starts_compile(device):
    record = np.dtype([("tag", "u1"), ("half", "f2"), ("value", "f4")])
    a, b = np.zeros((300, 40), "f4"), np.zeros(40)
    first = lambda p, q: p if p.value > q.value else q
    km.transform_reduce((a, 2.0, b), lambda p, s, q: (p * s + K, q), (km.add, km.maximum), axis=0)
    km.reduce(np.zeros((700, 30), record), first, axis=1)
    km.reduce(np.zeros((70, 300), record), km.op(first, commutative=True), axis=0)
    km.reduce(a, (km.add, affine, km.logical_or), init=(1, 2, False), determinism=AS_TREE)
    km.reduce(np.zeros((500, 3), "i4"), (km.add, affine), axis=0, determinism=AS_TREE)
    assert len(device.sources) == 5
    for source in device.sources:
        compiled(source, "sm_90")


# ----------------------------------------------------------------------------- spread


@pytest.mark.parametrize(
    ("shape", "axis", "found"),
    [
        ((10,), None, ("rows", "teams", "256, 1")),
        ((1 << 12,), None, ("whole", "one", "")),
        ((1 << 14,), None, ("whole", "one", "")),
        ((1 << 16,), None, ("whole", "by_warp", "")),
        ((1 << 20,), None, ("whole", "several", "")),
        ((16, 1 << 20), 1, ("rows", "blocks", "512")),
        ((1 << 18, 4), 1, ("rows", "few", "256, 1, 1, 4, false")),
        ((1 << 18, 64), 1, ("rows", "few", "256, 8, 2, 2, false")),
        ((1 << 18, 3), 1, ("rows", "few", "256, 1, 3, 4, false")),
        ((1 << 18, 160), 1, ("rows", "teams", "256, 8")),
        ((1000, 4), 1, ("rows", "teams", "256, 1")),
        ((100, 1 << 12), 1, ("rows", "blocks", "256")),
        ((100, 1 << 12), 0, ("columns", "blocks", "")),
        ((1 << 12, 3), 0, ("narrow", "blocks", "")),
        ((1 << 12, 17), 0, ("columns", "blocks", "")),
    ],
)
def test_as_many_threads_as_a_sequence_needs(device, shape, axis, found):
    km.reduce(np.zeros(shape, "f4"), axis=axis)
    assert loops(device.sources[-1]) == [found]


def test_pieces_depend_on_shape_and_chip_alone(device):
    for count in (1, 132, 132, 16):
        device.multiprocessors = count
        km.reduce(np.zeros(1 << 22, "f4"))
    grids = [launch.grid for launch in device.launches]
    assert grids[1] == grids[2]
    assert [g.blocks for g in grids] == [2, 128, 128, 32]
    for grid in grids:
        _, length, units, pieces, piece, _ = grid.numbers
        assert (units, length, grid.tickets) == (1, 1 << 22, 1)
        assert (pieces - 1) * piece < length <= pieces * piece
        assert grid.parts == 16 * (1 + pieces)
        assert grid.tagged


def test_a_plan_takes_other_shapes_though_they_are_spread_otherwise(device):
    plan = km.reduce.plan(np.zeros(100, "f4"))
    for size in (1 << 20, 100, 1 << 24):
        plan(np.zeros(size, "f4"))
        assert device.launches[-1].shape == (size,)
    assert len({source.text for source in device.sources}) == 3
    with pytest.raises(ArgumentError, match=r"for reduce add \(float32 contiguous\) rows, the arr"):
        plan(np.zeros(100))
    with pytest.raises(ArgumentError, match="the arrays need reduce add .float32 strided. rows"):
        plan(np.zeros(100, "f4")[::2])


def test_small_arrays_take_one_block_and_no_scratch_memory(device):
    for size in (1, 100, 4096, 16384):
        km.reduce(np.zeros(size, "f4"))
        grid = device.launches[-1].grid
        assert (grid.blocks, grid.parts, grid.tickets) == (1, 0, 0)


def test_several_kinds_of_folds_are_passes_only_where_the_tree_is_asked_for(device):
    x = np.zeros(1 << 18, "f4")
    km.reduce(x, (km.add, affine))
    km.reduce(x, (km.add, affine), determinism=AS_TREE)
    km.reduce(x.astype("i4"), (km.add, affine), determinism=AS_TREE)
    assert [[name for name, *_ in loops(s)] for s in device.sources] == [
        ["ordered_rows"],
        ["rows", "ordered_rows"],
        ["ordered_rows"],
    ]
    parts = [(launch.grid.parts, launch.grid.tickets) for launch in device.launches]
    assert parts[1] == (2 * 256, 2)


def test_orders():
    assert orders_of([(False, True)], as_tree=True) == ("free",)
    assert orders_of([(False, False)], as_tree=True) == ("tree",)
    assert orders_of([(False, False)], as_tree=False) == ("free",)
    assert orders_of([(True, False), (False, True)], as_tree=True) == ("ordered",)


def test_packets_are_loaded_as_such(device):
    """Four of 16 bytes at a time, and no register array in local memory before the last block."""
    km.reduce(np.zeros(1 << 20, "f4"))
    km.reduce(np.zeros((1 << 12, 40), "f4"), axis=1)
    ptx = [
        compile_cuda(
            s.text, arch="sm_90", output="ptx", headers=device_headers(), cache=False
        ).data.decode()
        for s in device.sources
    ]
    assert all(len(re.findall(r"\bld(?:\.\w+)*\.v4\.[a-z]*32", text)) >= 5 for text in ptx)
    assert ".local" not in ptx[1]


def test_large_states_fit_shared_memory(device):
    wide = np.dtype([(f"f{i}", "f8") for i in range(60)])
    first = km.op(lambda a, b: a if a.f0 < b.f0 else b, commutative=True)
    km.reduce(np.zeros((40, 50), wide), first, axis=0)
    compiled(device.sources[-1], "sm_90")


# ----------------------------------------------------------------------------- values


def test_values_on_the_emulator():
    """The bits of the CPU where they are promised, whatever the number of multiprocessors."""
    emulator = devices.backend_named("emulator")
    shapes = [((70_001,), None), ((9, 30, 20), (0, 2)), ((2001, 3), 0)]
    for shape, axis in shapes:
        x, y = filled(shape, "f4", 1), filled(shape, "u4", 2)
        with km.Device("emulator"):
            tree = km.reduce(x, axis=axis, determinism=AS_TREE)
            plain = km.reduce(x, axis=axis)
            both = km.reduce(y, (km.add, affine), axis=axis, init=(5, 7))
        same(tree, km.reduce(x, axis=axis))
        np.testing.assert_allclose(plain, x.sum(axis=axis, dtype="f8"), rtol=1e-4, atol=1e-2)
        for found, exact in zip(both, km.reduce(y, (km.add, affine), axis=axis, init=(5, 7)),
                                strict=True):  # fmt: skip
            same(found, exact)
    assert emulator.multiprocessors != 132


@pytest.mark.parametrize(
    ("shape", "axis"), [((70_001,), None), ((2, 40_000), 1), ((3000, 40), 0), ((20_000, 3), 0)]
)
def test_the_same_bits_however_blocks_and_threads_take_turns(shape, axis):
    """Parts are handed over right whoever comes first: counters, tags and shared memory."""
    x = filled(shape, "f4", 1)
    with km.Device("emulator"):
        plan = km.reduce.plan(x, axis=axis)
        first = plan(x)
        for order, seed, blocks in (("reversed", 0, 0), ("reversed", 0, 16), ("random", 1, 16),
                                    ("random", 2, 5), ("random", 3, 2)):  # fmt: skip
            with scheduled(Schedule(order, seed, blocks)):
                same(plan(x), first)
    np.testing.assert_allclose(first, x.sum(axis=axis, dtype="f8"), rtol=1e-4, atol=1e-2)


def test_a_spread_is_a_value():
    one = Spread("blocks", ("free",), 512, 512, 4, 4, nested=False)
    assert one == Spread("blocks", ("free",), 512, 512, 4, 4, nested=False)
    assert len({one}) == 1
