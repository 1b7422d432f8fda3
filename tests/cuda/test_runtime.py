"""Devices, launches, configurations and images on a GPU.

Peer access needs two devices; its test is skipped, with that reason, where there is one.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from dataclasses import replace

import numpy as np
import pytest

import kernelmill as km
from cuda_kernels import TEXT, blocks, zeros
from kernelmill import events
from kernelmill.errors import ArgumentError, DeviceError, DTypeError
from kernelmill.runtime import cuda
from kernelmill.runtime.backend import KernelSource
from kernelmill.runtime.cuda import driver
from kernelmill.toolchain.nvrtc import CudaOptions

pytestmark = pytest.mark.cuda


# ----------------------------------------------------------------------------- devices


def test_a_device_says_what_it_is():
    device = cuda.cuda_device()
    assert device.name == "cuda:0"
    assert device.arch.startswith("sm_")
    assert device.limits.threads_per_block == 1024
    assert device.limits.multiprocessors > 0
    free, total = device.memory()
    assert 0 < free <= total
    assert cuda.cuda_device(0) is device


def test_a_device_that_is_not_there():
    with pytest.raises(DeviceError, match="there is no device cuda:99; there are cuda:0"):
        cuda.cuda_device(99)


def test_peers():
    if driver.require().device_count < 2:
        pytest.skip("there is one device: peer access was not run")
    a, b = cuda.cuda_device(0), cuda.cuda_device(1)
    if not a.can_access(b):
        with pytest.raises(DeviceError, match="cannot use the memory"):
            a.enable_access(b)
        return
    a.enable_access(b)
    a.enable_access(b)
    x = cuda.to_device(np.arange(8, dtype=np.float32), device=1)
    y = zeros(8)
    kernel = cuda.Program(TEXT).compile("cubin").get_kernel("saxpy")
    with pytest.raises(DeviceError, match="are on cuda:0 and cuda:1"):
        cuda.launch(None, blocks(8), kernel, 2.0, x, y, 8)
    cuda.launch(None, blocks(8), kernel, 2.0, int(x.buffer.handle), y, 8)
    assert y.numpy().tolist() == [2.0 * i for i in range(8)]


# ----------------------------------------------------------------------------- launches


def test_saxpy_on_torch_tensors(code, torch):
    x = torch.randn(1000, device="cuda")
    y = torch.randn(1000, device="cuda")
    wanted = torch.addcmul(y, x, torch.full_like(x, 2.5))
    cuda.launch(None, blocks(1000), code.get_kernel("saxpy"), 2.5, x, y, 1000)
    assert torch.allclose(y, wanted, rtol=1e-6, atol=1e-6)


def test_saxpy_on_cupy_arrays(code, cupy):
    x, y = cupy.arange(1000, dtype=np.float32), cupy.ones(1000, np.float32)
    cuda.launch(None, blocks(1000), code.get_kernel("saxpy"), 2.0, x, y, 1000)
    assert (y.get() == 2 * np.arange(1000, dtype=np.float32) + 1).all()


def test_saxpy_on_our_arrays_and_buffers(code):
    x, y = cuda.to_device(np.arange(1000, dtype=np.float32)), zeros(1000)
    cuda.launch(None, blocks(1000), code.get_kernel("saxpy"), 2.0, x.buffer, y, 1000)
    assert (y.numpy() == 2 * np.arange(1000)).all()


def test_dlpack_arrays(code, torch):
    class Exported:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    x = torch.arange(8, dtype=torch.float32, device="cuda")
    view = cuda.as_device_view(Exported(x), "x")
    assert (view.ptr, view.shape, view.strides, view.dtype) == (
        x.data_ptr(),
        (8,),
        (4,),
        km.float32,
    )
    y = zeros(8)
    cuda.launch(None, blocks(8), code.get_kernel("saxpy"), 1.0, Exported(x), y, 8)
    assert y.numpy().tolist() == list(range(8))


def test_structs_and_scalars_by_value(code):
    point = km.struct({"x": km.float32, "n": km.int64})
    out = zeros(4, np.float64)
    kernel = code.get_kernel("by_value")
    assert kernel.parameters == ((0, 16), (16, 8), (24, 1), (32, 8))
    cuda.launch(None, cuda.LaunchConfig(1, 1), kernel, point(1.5, -7), 2.25, -3, out)
    assert out.numpy().tolist() == [1.5, -7, 2.25, -3]
    raw = struct.pack("<fxxxxq", 2.5, 9)
    cuda.launch(None, cuda.LaunchConfig(1, 1), kernel, raw, np.float64(1), ctypes.c_byte(5), out)
    assert out.numpy().tolist() == [2.5, 9, 1, 5]


def test_template_instances(code):
    x = cuda.to_device(np.arange(4, dtype=np.float32))
    cuda.launch(None, cuda.LaunchConfig(1, 4), code.get_kernel("scale<float>"), x, 3.0)
    n = cuda.to_device(np.arange(4, dtype=np.int64))
    cuda.launch(None, cuda.LaunchConfig(1, 4), code.get_kernel("scale<long>"), n, -2)
    assert (x.numpy().tolist(), n.numpy().tolist()) == ([0, 3, 6, 9], [0, -2, -4, -6])


def test_objects_of_cuda_core_pass_through(code):
    from cuda import core

    assert cuda.Stream is core.Stream
    device = cuda.cuda_device()
    stream = device.create_stream()
    assert type(stream) is core.Stream
    buffer = device.pool().allocate(4 * 256, stream=stream)
    kernel = code.load().get_kernel("fill")
    config = core.LaunchConfig(grid=1, block=256)
    cuda.launch(stream, config, kernel, buffer, 4.0, 256)
    out = cuda.to_host(cuda.as_device_view(buffer, "b"), stream=stream).view(np.float32)
    assert (out == 4).all()
    buffer.close(stream)


def test_signatures_are_checked(code):
    signature = (km.float32, cuda.Pointer(km.float32), cuda.Pointer(km.float32), km.int32)
    kernel = code.get_kernel("saxpy", signature=signature)
    x, wrong = zeros(4), zeros(4, np.float64)
    cuda.launch(None, blocks(4), kernel, 1, x, x, 4)
    with pytest.raises(DTypeError, match=r"argument 1 of kernel 'saxpy' is of type float32\*"):
        cuda.launch(None, blocks(4), kernel, 1.0, wrong, x, 4)
    with pytest.raises(ArgumentError, match="takes 4 arguments, not 3"):
        cuda.launch(None, blocks(4), kernel, 1.0, x, x)
    short = code.get_kernel("saxpy", signature=signature[:2])
    with pytest.raises(ArgumentError, match="has 2 types; it takes 4 arguments"):
        cuda.launch(None, blocks(4), short, 1.0, x, x, 4)


def test_prepared_launches_and_updates(code):
    x = zeros(256)
    made = cuda.prepare(blocks(256), code.get_kernel("fill"), x, 1.0, 256)
    made(0)
    assert (x.numpy() == 1).all()
    made.update(1, struct.pack("<f", 5))
    made(0)
    assert (x.numpy() == 5).all()
    with pytest.raises(ArgumentError, match="argument 1 of kernel 'fill' takes 4 bytes, not 8"):
        made.update(1, bytes(8))


def test_threads_launch_at_once_on_their_own_streams(code):
    device, kernel = cuda.cuda_device(), code.get_kernel("fill")
    arrays = [zeros(4096) for _ in range(8)]
    cuda.synchronize()

    def work(index: int) -> None:
        device.set_current()
        stream = device.create_stream()
        for turn in range(50):
            cuda.launch(stream, blocks(4096), kernel, arrays[index], float(index + turn), 4096)
        stream.sync()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for index, array in enumerate(arrays):
        assert (array.numpy() == index + 49).all()


def test_launches_are_events(code):
    x = zeros(8)
    with events.listen("launch") as seen:
        cuda.launch(None, blocks(8), code.get_kernel("fill"), x, 1.0, 8)
    assert [(e.name, e.device, e.file == __file__) for e in seen] == [("fill", "cuda:0", True)]


# ----------------------------------------------------------------------------- configurations


def test_clusters(code):
    if cuda.cuda_device().limits.major < 9:
        pytest.skip("clusters need sm_90")
    out = zeros(8, np.int32)
    config = cuda.LaunchConfig(grid=2, block=32, cluster=4)
    cuda.launch(None, config, code.get_kernel("clusters"), out)
    assert out.numpy().tolist() == [4, 104, 204, 304] * 2


@pytest.mark.parametrize("size", [1024, 48 << 10, 100 << 10, 0])
def test_dynamic_shared_memory(code, size):
    size = size or cuda.cuda_device().limits.shared_per_block_optin
    out = zeros(1, np.int32)
    config = cuda.LaunchConfig(1, 256, shmem_size=size)
    cuda.launch(None, config, code.get_kernel("shared"), out, size // 4)
    assert out.numpy().tolist() == [size // 4]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"grid": 1, "block": 2048}, r"block in x: 2048 asked, the limit is 1024"),
        ({"grid": 1, "block": (64, 32)}, r"threads a block: 2048 asked, the limit is 1024"),
        ({"grid": 1, "block": (1, 1, 65)}, r"block in z: 65 asked, the limit is 64"),
        ({"grid": (1, 70000), "block": 1}, r"grid in y: 70000 asked, the limit is 65535"),
        ({"grid": 1, "block": 1, "shmem_size": 1 << 20}, r"shared memory a block: 1048576 asked"),
        ({"grid": 1, "block": 1, "cluster": 32}, r"blocks a cluster: 32 asked, the limit is"),
    ],
)
def test_limits_are_named(code, fields, text):
    with pytest.raises(
        ArgumentError, match=r"kernel 'where' cannot be launched on cuda:0: .*" + text
    ):
        cuda.launch(None, cuda.LaunchConfig(**fields), code.get_kernel("where"), zeros(1, np.int32))


def test_limits_of_a_kernel_are_named(code):
    with pytest.raises(
        ArgumentError, match="threads a block of this kernel: 128 asked, the limit is 64"
    ):
        cuda.launch(
            None, cuda.LaunchConfig(1, 128), code.get_kernel("small_blocks"), zeros(1, np.int32)
        )


def test_a_cooperative_grid_that_is_too_large(code):
    config = cuda.LaunchConfig(1 << 20, 256, is_cooperative=True)
    with pytest.raises(DeviceError, match="do not fit on the device at once"):
        cuda.launch(None, config, code.get_kernel("where"), zeros(1, np.int32))
    assert zeros(1).numpy().tolist() == [0]


def test_attributes_and_occupancy(code):
    kernel = code.get_kernel("small_blocks")
    attributes = kernel.attributes()
    assert attributes.max_threads_per_block == 64
    assert attributes.registers > 0
    assert attributes.local_bytes == 0
    resident = cuda.cuda_device().limits.threads_per_multiprocessor
    assert 0 < kernel.occupancy(64) <= resident // 64
    assert code.get_kernel("shared").occupancy(256, shmem_size=40 << 10) < resident // 256


@pytest.mark.parametrize("name", ["small_blocks", "shared", "saxpy", "by_value"])
def test_what_is_computed_is_what_the_driver_says(code, name):
    (needs,) = km.inspect(code.get_kernel(name)).kernels
    attributes = code.get_kernel(name).attributes()
    assert needs.registers == attributes.registers
    assert (needs.shared, needs.stack) == (attributes.shared_bytes, attributes.local_bytes)
    for block in (32, 64, 96, 256, 1024):
        for size in (0, 1000, 20_000, 100_000):
            if block <= attributes.max_threads_per_block:
                driver = needs.occupancy(block, shmem_size=size)
                computed = replace(needs, loaded=None).occupancy(block, shmem_size=size)
                assert driver.blocks == computed.blocks, (block, size)


# ----------------------------------------------------------------------------- images


def test_ptx_is_compiled_by_the_driver(code):
    ptx = cuda.Program(TEXT).compile("ptx", arch="sm_80")
    x = zeros(8)
    cuda.launch(None, blocks(8), ptx.get_kernel("fill"), x, 3.0, 8)
    assert (x.numpy() == 3).all()


def test_linked_operators_run():
    caller = 'extern __device__ float op(float); extern "C" __global__ void k(float* x) { x[threadIdx.x] = op(x[threadIdx.x]); }'
    operator = "__device__ float op(float x) { return 3.0f * x; }"
    parts = [cuda.Program(t).compile("ltoir") for t in (caller, operator)]
    x = cuda.to_device(np.arange(32, dtype=np.float32))
    cuda.launch(None, cuda.LaunchConfig(1, 32), cuda.Linker(*parts).link().get_kernel("k"), x)
    assert (x.numpy() == 3 * np.arange(32)).all()


def test_contraction_is_what_was_asked():
    text = 'extern "C" __global__ void k(float* x) { x[3] = x[0] * x[1] + x[2]; }'
    values = np.array([1 + 2**-12, 1 + 2**-12, -1, 0], np.float32)
    found = []
    for contract in (False, True):
        x = cuda.to_device(values)
        made = cuda.Program(text, options=CudaOptions(contract=contract)).compile("cubin")
        cuda.launch(None, cuda.LaunchConfig(1, 1), made.get_kernel("k"), x)
        found.append(float(x.numpy()[3]))
    rounded = float(values[0] * values[1] + values[2])
    assert found == [rounded, 2.0**-11 + 2.0**-24]


def test_code_for_another_chip_is_refused():
    other = "sm_75" if cuda.cuda_device().arch != "sm_75" else "sm_80"
    code = cuda.Program(TEXT, name="other.cu").compile("cubin", arch=other)
    with pytest.raises(
        DeviceError, match=r"other\.cu.*no code for this chip|of another chip"
    ) as caught:
        code.get_kernel("fill")
    assert caught.value.hint


def test_a_kernel_that_is_not_there(code):
    with pytest.raises(DeviceError, match="cannot load kernel 'missing'.*no such name"):
        code.get_kernel("missing")


def test_damaged_images_are_refused(code):
    with pytest.raises(ArgumentError, match="is no whole cubin"):
        cuda.ObjectCode.from_cubin(code.code[:-2000])
    with pytest.raises(DeviceError, match="cannot load"):
        cuda.ObjectCode.from_ptx(b".version 8.0\n.target sm_80\nnonsense\n").get_kernel("fill")
    assert zeros(2).numpy().tolist() == [0, 0]


def test_the_back_end_builds_once():
    backend = cuda.CudaBackend()
    text = (
        '#include "scalar.hpp"\nKM_EXPORT void km_kernel(long* x) { *x = km::floordiv(-7l, 2l); }'
    )
    kernel = backend.build(KernelSource("divide", text))
    assert kernel.entry
    assert backend.build(KernelSource("divide", text)) == kernel
