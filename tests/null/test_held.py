"""Captured arrays at a launch: addresses, copies for a device, and what is refused; no device is here."""

from __future__ import annotations

import dataclasses
import re
import types

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms.held import placed
from kernelmill.compiler.captured import pointers
from kernelmill.compiler.frontend import translate
from kernelmill.errors import ArgumentError, DeviceError
from kernelmill.runtime.backend import Captured
from kernelmill.runtime.cuda import arrays, copies
from kernelmill.runtime.cuda.arrays import DeviceView
from kernelmill.runtime.memory import as_view

CPU = types.SimpleNamespace(name="cpu", target="host")
GPU = types.SimpleNamespace(name="cuda:0", target="cuda")


def found(function, *, more=()):
    made = translate(function, [km.int32])
    return [(p, p.take(function), (p.offset, *more)) for p in pointers(made.captures)]


def address(block, at=0):
    return int.from_bytes(block[at : at + 8], "little")


def test_addresses_go_where_they_belong():
    table = np.arange(4.0)
    made = placed(bytes(32), found(lambda i: table[i], more=(16,)), CPU)
    assert address(made.captures) == address(made.captures, 16) == table.ctypes.data
    assert made.captures[8:16] == made.captures[24:] == bytes(8)
    assert [(c.offset, c.name, c.written) for c in made.arrays] == [
        (0, "table", False),
        (16, "table", False),
    ]
    assert isinstance(made.arrays[0], Captured)
    made.settle(())  # nothing was copied


@pytest.fixture
def copied(monkeypatch):
    """A device whose memory is the host's; what was copied there and back."""
    there, back = [], []

    def to_device(array, *, device):
        there.append((device, array.copy()))
        return there[-1][1]

    def to_host(view, *, stream):
        back.append(stream.handle)
        return view.owner

    def view_of(array, where):
        view = as_view(array, where)
        known = {f.name: getattr(view, f.name) for f in dataclasses.fields(view)}
        return DeviceView(**known, device=0, maker="cuda")

    monkeypatch.setattr(copies, "to_device", to_device)
    monkeypatch.setattr(copies, "to_host", to_host)
    monkeypatch.setattr(arrays, "view_of", view_of)
    return there, back


def test_arrays_of_the_host_are_copied_to_a_device(copied):
    there, back = copied
    table = np.arange(6, dtype=np.int32)[::2]
    made = placed(bytes(64), found(lambda i: table[i]), GPU)
    assert [(number, a.view("i4").tolist()) for number, a in there] == [(0, [0, 1, 2, 3, 4])]
    assert address(made.captures) == there[0][1].ctypes.data != table.ctypes.data
    made.settle(())
    assert back == []  # nothing was written


def test_what_was_written_comes_back(copied):
    there, _ = copied
    whole = np.zeros((2, 6), np.float32)
    counts = whole[:, ::-2]

    def op(i):
        km.atomic.add(counts, (0, 1), 1)
        return counts[0, 0]

    made = placed(bytes(64), found(op), GPU)
    assert address(made.captures) == there[0][1].ctypes.data + 4 * 4
    there[0][1].view("f4")[...] = 7
    whole[0, 0] = 5  # changed meanwhile, and no element of the array
    made.settle(())
    assert whole.tolist() == [[5, 7, 0, 7, 0, 7], [0, 7, 0, 7, 0, 7]]


def test_what_was_written_is_read_behind_the_launch(copied):
    """On the stream of the launch, which is CuPy's for its arrays."""
    _, back = copied
    counts, table = np.zeros(3, np.int32), np.arange(5)[::2]

    def op(i):
        km.atomic.add(counts, 0, table[i])
        return i

    made = placed(bytes(64), found(op), GPU)
    operand = DeviceView(
        4096, (4,), (4,), km.int32, readonly=False, owner=None, library="dlpack", device=0,
        maker="cupy", producer=7,
    )  # fmt: skip
    made.settle((operand,))
    made.settle((dataclasses.replace(operand, maker="cuda"),))
    assert back == [7, 0]


def test_what_comes_back_undoes_nothing(copied):
    whole = np.zeros(8, np.int32)
    left, right, read = whole[:5], whole[4:], whole[2:]

    def op(i):
        left[0] = i
        right[0] = i
        return read[i]

    with pytest.raises(ArgumentError, match="'left' and 'right' of the host share memory, and the"):
        placed(bytes(128), found(op), GPU)
    assert len(placed(bytes(128), found(op), CPU).arrays) == 3
    right = whole[5:]
    assert len(placed(bytes(128), found(op), GPU).sent) == 2


class OnDevice:
    def __init__(self, ptr=4096, device=0):
        self.ptr, self.device = ptr, device

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": (4,),
            "typestr": "<f4",
            "data": (self.ptr, True),
            "strides": None,
            "version": 3,
        }


def test_arrays_of_a_device_are_refused_on_the_processor():
    table = OnDevice()
    with pytest.raises(
        DeviceError, match=re.escape("in the memory of a CUDA device; this call runs")
    ):
        placed(bytes(32), found(lambda i: table[i]), CPU)


def test_arrays_of_another_device_are_refused():
    table = OnDevice(device=1)
    with pytest.raises(DeviceError) as caught:
        placed(bytes(32), found(lambda i: table[i]), GPU)
    assert caught.value.message == ("captured array 'table' is on cuda:1, this call runs on cuda:0")
    table = OnDevice()
    assert address(placed(bytes(32), found(lambda i: table[i]), GPU).captures) == 4096


def test_read_only_arrays_are_not_written():
    counts = np.zeros(3)
    counts.flags.writeable = False

    def op(i):
        counts[0] = 1
        return i

    for backend in (CPU, GPU):
        with pytest.raises(ArgumentError, match="argument 'counts' is read-only"):
            placed(bytes(32), found(op), backend)


def test_elements_on_a_device_are_aligned(copied):
    packed = np.zeros(3, np.dtype([("tag", "u1"), ("x", "<f4")]))["x"]
    with pytest.raises(
        ArgumentError, match=re.escape("with strides (5,): elements of float32 are")
    ):
        placed(bytes(64), found(lambda i: packed[i]), GPU)
    assert placed(bytes(64), found(lambda i: packed[i]), CPU).arrays
    shifted = np.frombuffer(bytes(9), "<f4", offset=1, count=2)
    assert placed(bytes(64), found(lambda i: shifted[i]), GPU).arrays  # a copy begins anywhere
