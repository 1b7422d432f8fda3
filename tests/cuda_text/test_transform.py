"""The CUDA text of `transform` compiles for the chips of CI: element types, patterns, packets."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest

from cuda_stand_ins import Result, false_driver
from kernelmill.algorithms.source import loop_for, tile_side, transform_source
from kernelmill.compiler.op import as_op, specialize
from kernelmill.dtypes import (
    SCALARS,
    StructType,
    bool_,
    complex128,
    dtype_of,
    float16,
    float32,
    float64,
    int8,
    uint8,
    weak_float,
    weak_int,
)
from kernelmill.errors import DeviceError
from kernelmill.runtime import devices
from kernelmill.runtime.cuda import device as device_module
from kernelmill.runtime.cuda import device_headers
from kernelmill.runtime.devices import Device, available_devices
from kernelmill.toolchain.nvrtc import compile_cuda

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")

PATTERNS = ("contiguous", "broadcast", "strided", "transposed", "unaligned")
K = 3


def source(op, inputs, outputs, loop):
    found = specialize(as_op(op), tuple(t for t, _ in inputs))
    return transform_source("transform", found.translation.program, inputs, outputs, loop)


def together(sources) -> str:
    """One text of several kernels, each under names of its own."""
    parts = []
    for i, made in enumerate(sources):
        text = made.text.replace("km_kernel", f"kernel{i}").replace("Captures", f"Captures{i}")
        parts.append(re.sub(r"\b(Op|Run)\b", rf"\g<1>{i}", text))
    return "\n".join(parts)


def compiled(sources, arch):
    image = compile_cuda(together(sources), arch=arch, headers=device_headers(), cache=False)
    assert image.log == ""
    for i in range(len(sources)):
        assert f"kernel{i}\0".encode() in image.data
    return image


def of_every_type(loop):
    """Each element type with another pattern of the second input; flat ones also as packets."""
    turn = itertools.cycle(PATTERNS[:3] if loop == "flat" else PATTERNS)
    first = "transposed" if loop == "tiled" else "contiguous"
    return [
        source(
            lambda a, b: a + b,
            [(t, first), (t, next(turn))],
            [(t, "contiguous")],
            loop,
        )
        for t in SCALARS
    ]


@pytest.mark.parametrize(
    ("arch", "loop"),
    [("sm_90", "flat"), ("sm_90", "nested"), ("sm_80", "flat"), ("sm_100", "tiled")],
)
def test_every_element_type_compiles(arch, loop):
    sources = of_every_type(loop)
    for start in range(0, len(sources), 5):
        compiled(sources[start : start + 5], arch)


def test_turned_inputs_go_through_tiles_that_fit():
    large = dtype_of(np.dtype([(f"f{i}", "f8") for i in range(60)]))
    inputs = {
        64: [(float32, "transposed"), (float64, "contiguous")],
        32: [(float64, "transposed"), (float32, "transposed")],
        16: [(float32, "transposed")] * 9,
        0: [(large, "transposed")],
    }
    for side, given in inputs.items():
        assert tile_side(given) == side
        assert loop_for("cuda", 2, given) == ("tiled" if side else "nested")
    assert loop_for("cuda", 3, [(float32, "strided")]) == "nested"
    assert loop_for("host", 2, inputs[64]) == "any"
    made = source(lambda a, b: a + b, inputs[64], [(float64, "contiguous")], "tiled")
    assert "km::tiles<Run, 64>::all(call)" in made.text


def test_scalars_results_structs_and_captures_compile():
    record = dtype_of(np.dtype([("tag", "u1"), ("half", "f2"), ("value", "f4")]))
    assert isinstance(record, StructType)
    sources = [
        source(
            lambda a, s, t: (K * a + s, a < t),
            [(float32, "contiguous"), (weak_int, "by_value"), (weak_float, "by_value")],
            [(float32, "contiguous"), (bool_, "strided")],
            "flat",
        ),
        source(lambda r: r, [(record, "contiguous")], [(record, "contiguous")], "flat"),
        source(lambda r: r.value, [(record, "strided")], [(float32, "contiguous")], "nested"),
        source(lambda v: v, [(float32, "unaligned")], [(float32, "unaligned")], "flat"),
        source(lambda v: v, [(record, "unaligned")], [(record, "unaligned")], "nested"),
        source(
            lambda a, b: (a, b, a + b),
            [(uint8, "contiguous"), (complex128, "contiguous")],
            [(uint8, "contiguous"), (complex128, "contiguous"), (complex128, "strided")],
            "flat",
        ),
    ]
    compiled(sources, "sm_90")


@pytest.mark.parametrize(
    ("types", "tile"),
    [
        ((float32, float32), 1024),
        ((float16, float16), 2048),
        ((float64, float64), 512),
        ((int8, int8), 2048),
        ((uint8, float64), 2048),
        ((float16, float32), 2048),
    ],
)
def test_a_thread_takes_whole_packets(types, tile):
    first, last = types
    made = source(
        lambda a: a,
        [(first, "contiguous")],
        [(last, "contiguous")],
        "flat",
    )
    assert made.tile == tile


def test_packets_are_moved_as_such():
    """16 bytes at a time in and out; nothing of the kind where neighbours are apart."""
    packets = source(
        lambda a: 2 * a + 1, [(float32, "contiguous")], [(float32, "contiguous")], "flat"
    )
    apart = source(lambda a: 2 * a + 1, [(float32, "strided")], [(float32, "strided")], "flat")
    ptx = [
        compile_cuda(
            s.text, arch="sm_90", output="ptx", headers=device_headers(), cache=False
        ).data.decode()
        for s in (packets, apart)
    ]
    moves = [len(re.findall(r"\b(?:ld|st)(?:\.\w+)*\.v4\.[a-z]*32", text)) for text in ptx]
    assert moves == [4, 0]
    assert ".local" not in ptx[0]


def test_expensive_operators_hold_few_elements():
    made = source(np.sin, [(float64, "contiguous")], [(float64, "contiguous")], "flat")
    assert made.tile == 256


# ----------------------------------------------------------------------------- devices by name


@pytest.fixture
def forget(monkeypatch):
    monkeypatch.setattr(devices, "_BACKENDS", {})
    monkeypatch.setattr(device_module, "core", lambda: SimpleNamespace(Device=lambda n: n))


@pytest.mark.usefixtures("forget")
def test_a_device_says_what_is_missing(install):
    install(false_driver(init=Result.CUDA_ERROR_NO_DEVICE))
    for name in ("cuda", "cuda:0"):
        with pytest.raises(DeviceError) as caught:
            Device(name)
        assert caught.value.message == f"device {name!r} cannot be used: the driver sees no GPU"
        assert "CUDA_VISIBLE_DEVICES" in caught.value.hint
    assert available_devices() == ("cpu",)
    install(None)
    with pytest.raises(DeviceError, match="cannot be used: running on CUDA needs the packages"):
        Device("cuda")


@pytest.mark.usefixtures("forget")
def test_devices_by_name_and_number(install):
    install(false_driver(devices=2))
    assert Device("cuda").backend.name == "cuda:0"
    assert Device("cuda:1").backend.name == "cuda:1"
    assert available_devices() == ("cpu", "cuda:0", "cuda:1")
    with pytest.raises(DeviceError, match="'cuda:2' cannot be used: there is no device cuda:2"):
        Device("cuda:2")


@pytest.mark.usefixtures("forget")
def test_host_arrays_of_others_do_not_move_by_themselves(install):
    import kernelmill as km

    install(false_driver())
    with km.Device("cuda"), pytest.raises(DeviceError) as caught:
        km.transform(bytearray(3), lambda v: v + 1)
    assert caught.value.message == (
        "argument 'inputs' is in the memory of the host; the current device is cuda:0"
    )
