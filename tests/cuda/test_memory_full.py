"""More memory than a GPU has: what asks for it takes all there is for a moment, so nothing runs beside."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from cuda_kernels import blocks
from kernelmill.errors import DeviceError
from kernelmill.runtime import cuda

pytestmark = pytest.mark.cuda


def test_out_of_memory_harms_nothing():
    """A result that does not fit: what was there stays, and the next call works."""
    x = cuda.to_device(np.arange(8, dtype=np.float32))
    _, total = cuda.cuda_device().memory()
    with pytest.raises(DeviceError) as caught:
        km.Device("cuda:0").allocate(2 * total, km.Device("cuda:0").create_stream())
    assert f"cannot allocate {2 * total} bytes on cuda:0" in caught.value.message
    assert f"of {total} bytes are free" in caught.value.message
    assert km.transform(x, lambda v: v + 1).numpy().tolist() == list(range(1, 9))
    assert x.numpy().tolist() == list(range(8))


def test_out_of_memory_of_torch(torch):
    x = torch.zeros(1, device="cuda")
    _, total = cuda.cuda_device().memory()
    wide = x.expand(total // 4)
    with pytest.raises(torch.OutOfMemoryError):
        km.transform(wide, lambda v: v + 1)
    assert km.transform(x, lambda v: v + 1).tolist() == [1]


def test_out_of_memory_says_how_much_is_free_and_harms_nothing(code):
    x = cuda.to_device(np.ones(16, np.float32))
    with pytest.raises(DeviceError) as caught:
        cuda.empty((1 << 40,), km.float32, "cuda")
    assert caught.match(r"cannot allocate 4398046511104 bytes on cuda:0: the device has not that")
    assert caught.match(r"\d+ of \d+ bytes are free")
    assert "stay usable" in caught.value.hint
    cuda.launch(None, blocks(16), code.get_kernel("saxpy"), 1.0, x, x, 16)
    assert (x.numpy() == 2).all()
