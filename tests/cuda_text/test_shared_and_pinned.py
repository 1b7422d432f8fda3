"""What the runtime asks of a driver for shared memory and for copies of page-locked memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cuda_stand_ins import Result
from kernelmill.runtime.cuda import copies
from kernelmill.runtime.cuda.program import Kernel

OK = Result.CUDA_SUCCESS
KIB = 1 << 10


class Driver:
    """Remembers how much shared memory a kernel may use, and what copies are waited for."""

    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="most")
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_MEMORY_TYPE="kind")
    CUkernel = int

    def __init__(self) -> None:
        self.most = 47 * KIB  # the kernel has 1 KiB of its own
        self.pinned, self.capturing, self.log = False, False, []

    def cuKernelGetAttribute(self, name, kernel, device):
        assert (name, kernel, device) == ("most", 5, 0)
        return OK, self.most

    def cuKernelSetAttribute(self, name, value, kernel, device):
        assert (name, kernel, device) == ("most", 5, 0)
        self.most = value
        return (OK,)

    def cuMemcpyHtoDAsync(self, target, source, nbytes, stream):
        self.log.append(("copy", target, nbytes, stream))
        return (OK,)

    def cuPointerGetAttribute(self, name, address):
        return (OK, 1) if self.pinned else (Result.CUDA_ERROR_INVALID_VALUE, None)

    def cuStreamIsCapturing(self, stream):
        return OK, int(self.capturing)

    def cuStreamSynchronize(self, stream):
        self.log.append(("wait", stream))
        return (OK,)


@pytest.fixture
def false(install):
    made = Driver()
    install(made)
    return made


def test_shared_memory_that_was_allowed_stays_allowed(false):
    """A launch that was prepared with much goes on after another one that asks for less."""
    needs = SimpleNamespace(
        num_regs=8,
        shared_size_bytes=KIB,
        local_size_bytes=0,
        const_size_bytes=0,
        max_threads_per_block=1024,
        max_dynamic_shared_size_bytes=47 * KIB,
    )
    device = SimpleNamespace(number=0, core="the device", set_current=lambda: None)
    kernel = Kernel(SimpleNamespace(handle=5, attributes={"the device": needs}), "k")
    found = []
    for size in (47 * KIB, 100 * KIB, 64 * KIB, 0, 120 * KIB, 100 * KIB):
        kernel.allow_shared(size, device)
        found.append(false.most // KIB)
    assert found == [47, 100, 100, 100, 120, 120]


@pytest.mark.parametrize(
    ("pinned", "capturing", "waits"),
    [(False, False, False), (True, False, True), (True, True, False)],
)
def test_copies_of_page_locked_memory_are_waited_for(false, monkeypatch, pinned, capturing, waits):
    """The driver reads it later, and whoever called may change it at once."""
    made = SimpleNamespace(buffer=SimpleNamespace(handle=4096))
    monkeypatch.setattr(copies, "empty", lambda *_, **__: made)
    device = SimpleNamespace(name="cuda:0", set_current=lambda: None)
    monkeypatch.setattr(copies, "cuda_device", lambda _: device)
    false.pinned, false.capturing = pinned, capturing
    assert copies.to_device(np.arange(6, dtype=np.float32), stream=3) is made
    assert false.log == [("copy", 4096, 24, 3), *([("wait", 3)] if waits else [])]
