"""Captured arrays and where they are: on the GPU, on the host, read and written there."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill import events
from kernelmill.errors import DeviceError

pytestmark = pytest.mark.cuda
X = np.arange(-3, 13, dtype=np.int32)


def test_arrays_of_the_device_are_read_where_they_are():
    table = km.to_device(np.arange(5, dtype=np.float32) * 2)
    x = km.to_device(X)
    with events.listen("copy") as seen:
        found = km.transform(x, lambda i: table[i] + len(table))
    assert seen == []
    wanted = [2 * i + 5 if 0 <= i < 5 else 5 for i in X]
    assert found.numpy().tolist() == wanted


def test_arrays_of_the_host_are_copied_and_each_copy_is_an_event():
    table = np.arange(12, dtype=np.int64).reshape(3, 4)[::-1, ::2]
    x = km.to_device(np.arange(3))
    with events.listen("copy") as seen:
        found = km.transform(x, lambda i: table[i, 1])
    assert [(e.source, e.device) for e in seen] == [("cpu", "cuda:0")]
    assert found.numpy().tolist() == table[:, 1].tolist()


def test_what_is_written_to_arrays_of_the_host_comes_back():
    counts = np.zeros((2, 6), np.int32)
    part = counts[:, 1::2]

    def op(i):
        km.atomic.add(part, (1, i % 3), 1)
        return i

    x = km.to_device(np.arange(12))
    with events.listen("copy") as seen:
        km.transform(x, op)
    assert [e.device for e in seen] == ["cuda:0", "cpu"]
    assert counts.tolist() == [[0] * 6, [0, 4, 0, 4, 0, 4]]


def test_atomics_of_the_device_count():
    counts = km.to_device(np.zeros(1, np.int32))
    x = km.to_device(np.arange(100_000, dtype=np.int32))

    def odd(v):
        if v % 2 == 1:
            return True
        km.atomic.add(counts, 0, 1)
        return False

    assert km.select(x, odd).numpy().tolist() == list(range(1, 100_000, 2))
    assert counts.numpy().tolist() == [50_000]


def test_the_processor_reads_no_memory_of_a_device():
    table = km.to_device(np.arange(3))
    with pytest.raises(DeviceError, match="this call runs on the CPU"):
        km.transform(X, lambda i: table[i])


def test_tensors_are_captured():
    torch = pytest.importorskip("torch")
    table = torch.arange(6, dtype=torch.float32, device="cuda").reshape(2, 3).T
    found = km.transform(torch.arange(3, device="cuda"), lambda i: table[i, 1])
    assert found.tolist() == [3.0, 4.0, 5.0]
