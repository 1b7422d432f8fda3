"""Kernels in Python give on a GPU what NumPy gives."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import kernelmill as km
from kernel_cases import CASES
from kernelmill.dtypes import dtype_of
from kernelmill.runtime import cuda
from kernelmill.runtime.cuda import CudaArray, as_stream, to_device

pytestmark = pytest.mark.cuda


class Strided:
    """A view with the strides of a NumPy array, in a buffer on the device that holds its base."""

    def __init__(self, array):
        low, high = np.lib.array_utils.byte_bounds(array)
        whole = np.zeros(high - low, np.uint8)
        start = array.__array_interface__["data"][0] - low
        held = np.ndarray(array.shape, array.dtype, whole.data, start, array.strides)
        held[...] = array
        self.array, self.start, self.whole = array, start, to_device(whole)
        self.size = high - low

    @property
    def __cuda_array_interface__(self):
        dtype = self.array.dtype
        return {
            "shape": self.array.shape,
            "typestr": dtype.str,
            "descr": dtype.descr,
            "data": (int(self.whole.buffer.handle) + self.start, False),
            "strides": self.array.strides,
            "version": 3,
            "stream": None,
        }

    def numpy(self):
        whole = self.whole.numpy()
        array = self.array
        return np.ndarray(array.shape, array.dtype, whole.data, self.start, array.strides)


def launch(case, args):
    if case.config is not None:
        case.kernel[case.config](*args)
    else:
        case.kernel.launch(case.n, *args)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_kernel_gives_the_values_of_numpy(case):
    args = [Strided(a) if isinstance(a, np.ndarray) else a for a in case.args]
    launch(case, args)
    cuda.synchronize()
    for position, wanted in case.expected.items():
        found = args[position].numpy()
        if found.dtype.fields is not None or found.dtype.kind in "biu":
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, rtol=case.rtol, atol=case.rtol)


def test_tensors_of_torch_and_arrays_of_cupy_on_their_streams(torch):
    case = next(c for c in CASES if c.name == "saxpy")
    a, x, y = case.args
    tensors = torch.from_numpy(x).cuda(), torch.from_numpy(y.copy()).cuda()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    case.kernel.launch(1000, a, *tensors, stream=stream)
    stream.synchronize()
    np.testing.assert_allclose(tensors[1].cpu().numpy(), case.expected[2], rtol=1e-5, atol=1e-6)
    with torch.cuda.stream(stream):
        case.kernel.launch(1000, a, *tensors)
    stream.synchronize()
    np.testing.assert_allclose(
        tensors[1].cpu().numpy(), case.expected[2] + np.float32(a) * x, rtol=1e-5, atol=1e-6
    )


def test_exact_kernels_are_equal_to_the_bit_on_the_emulator():
    import kernelmill as km

    @km.kernel(contract=False)
    def waves(x, out):
        for i in km.grid_range(len(x)):
            v = x[i]
            out[i] = np.exp(v) * np.sin(v) + v * np.float32(0.3) - np.float32(0.1) * v

    x = np.random.default_rng(3).uniform(-5, 5, 5000).astype(np.float32)
    here, there = np.zeros_like(x), to_device(np.zeros_like(x))
    with km.Device("emulator"):
        waves.launch(len(x), x, here)
    waves.launch(len(x), to_device(x), there)
    np.testing.assert_array_equal(there.numpy().view(np.uint32), here.view(np.uint32))


def test_launch_and_prepare_take_a_kernel():
    import kernelmill as km

    case = next(c for c in CASES if c.name == "saxpy")
    a, x, y = case.args
    on_device = to_device(x), to_device(y)
    config = km.LaunchConfig(grid=4, block=256)
    km.launch(None, config, case.kernel, a, *on_device)
    np.testing.assert_allclose(on_device[1].numpy(), case.expected[2], rtol=1e-5, atol=1e-6)
    again = km.prepare(config, case.kernel, a, *on_device)
    again(as_stream(None).handle)
    np.testing.assert_allclose(
        on_device[1].numpy(), case.expected[2] + np.float32(a) * x, rtol=1e-5, atol=1e-6
    )
    assert isinstance(on_device[1], CudaArray)
    assert dtype_of(x.dtype) == on_device[0].dtype


def test_numpy_arrays_are_copied_there_and_back():
    import kernelmill as km
    from kernelmill import events

    case = next(c for c in CASES if c.name == "saxpy")
    a, x, y = case.args
    target, whole = y.copy(), np.zeros((1000, 2), np.float32)
    with km.Device("cuda"), events.listen() as seen:
        case.kernel.launch(1000, a, x, target)
    np.testing.assert_allclose(target, case.expected[2], rtol=1e-5, atol=1e-6)
    moves = [(e.source, e.device) for e in seen if e.kind == "copy"]
    assert moves == [("cpu", "cuda:0"), ("cpu", "cuda:0"), ("cuda:0", "cpu")]
    case.kernel.launch(1000, a, to_device(x), whole[:, 1])  # the other array decides
    np.testing.assert_allclose(whole[:, 1], np.float32(a) * x, rtol=1e-5, atol=1e-6)
    assert not whole[:, 0].any()
    with km.Device("cuda"), pytest.raises(km.ArgumentError, match="'x', 'y' two overlap"):
        case.kernel.launch(10, a, whole[:, 0], whole[1:, 0])


@pytest.mark.parametrize("seed", range(24))
def test_a_random_kernel_gives_what_plain_python_gives(seed):
    import kernelmill as km
    from kernel_programs import Generator, arguments, define, plain

    text = Generator(seed).text()
    expected, found = arguments(seed), arguments(seed)
    plain(text, expected)
    kernel = km.kernel(contract=False, debug=seed % 3 == 0)(define(text, km, f"<kernel {seed}>"))
    with km.Device("cuda"):
        kernel[3, 32](*found)
    for wanted, given in zip(expected[2:4], found[2:4], strict=True):
        np.testing.assert_array_equal(given, wanted, err_msg=text)


def test_an_index_out_of_range_ends_a_debug_kernel_and_the_context(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np, kernelmill as km\n"
        "@km.kernel(debug=True)\n"
        "def k(x, n):\n"
        "    x[n] = 1\n"
        "try:\n"
        "    with km.Device('cuda'):\n"
        "        k[1, 1](np.ones(3, np.float32), 7)\n"
        "except km.KernelmillError as error:\n"
        "    print(type(error).__name__, 'k' in error.message)\n"
    )
    made = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=600, check=False
    )
    assert (
        f"kernel k, {program} line 4: index 7 is out of range for dimension 0 of x" in made.stdout
    )
    assert "DeviceError True" in made.stdout


@km.kernel
def scale_into(a, x, y):
    for i in km.grid_range(len(x)):
        y[i] = a * x[i]


def test_a_launch_keeps_no_arrays(torch):
    """Neither the first launch nor the quick way of the later ones."""
    kept = []
    for _ in range(3):
        x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
        scale_into.launch(1000, 2.0, x, y)
        kept += [weakref.ref(x), weakref.ref(y)]
    assert y.eq(2).all()
    del x, y
    gc.collect()
    assert [ref() for ref in kept] == [None] * 6
