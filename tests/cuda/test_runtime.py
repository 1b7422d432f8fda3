"""The CUDA runtime on a device: launches, streams, memory, graphs, lifetimes and faults.

Peer access needs two devices; its tests are skipped, with that reason, where there is one.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
import textwrap
import threading
from multiprocessing.pool import ThreadPool

import numpy as np
import pytest

import kernelmill as km
from kernelmill import events
from kernelmill.errors import ArgumentError, DeviceError, DTypeError, NotImplementedHere
from kernelmill.runtime import cuda
from kernelmill.runtime.backend import KernelSource, Launch
from kernelmill.runtime.cuda import driver, lifetimes
from kernelmill.toolchain.nvrtc import CudaOptions

pytestmark = pytest.mark.cuda

TEXT = """
struct Point { float x; long n; };
extern "C" {
__global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
__global__ void fill(float* x, float value, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value;
}
__global__ void wait_then_fill(float* x, float value, int n, long cycles) {
  long start = clock64();
  while (clock64() - start < cycles) {}
  if (threadIdx.x < n) x[threadIdx.x] = value;
}
__global__ void by_value(Point p, double d, signed char c, double* out) {
  out[0] = p.x; out[1] = p.n; out[2] = d; out[3] = c;
}
__global__ void where(int* out) {
  out[blockIdx.x] = 1 + (int)blockIdx.x + 1000 * (int)gridDim.x;
}
__global__ void shared(int* out, int n) {
  extern __shared__ int tile[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = i;
  __syncthreads();
  int sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += tile[n - 1 - i] == n - 1 - i;
  atomicAdd(out, sum);
}
__global__ void clusters(int* out) {
  unsigned rank = 0, size = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
  if (threadIdx.x == 0) out[blockIdx.x] = rank * 100 + size;
}
__global__ void __launch_bounds__(64) small_blocks(int* out) { out[0] = blockDim.x; }
__global__ void nothing(long a, long b, long c, long d, long e, long f) {}
__global__ void beyond(float* x) { x[(1l << 40) + threadIdx.x] = 1; }
__global__ void trap() { asm("trap;"); }
}
template <class T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }
"""


@pytest.fixture(scope="module")
def code():
    names = ("scale<float>", "scale<long>")
    return cuda.Program(TEXT, name="test.cu").compile("cubin", name_expressions=names)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="needs torch")


@pytest.fixture(scope="module")
def cupy():
    return pytest.importorskip("cupy", reason="needs CuPy")


def blocks(n: int) -> cuda.LaunchConfig:
    return cuda.LaunchConfig(grid=-(-n // 256), block=256)


def zeros(n: int, dtype=np.float32) -> cuda.CudaArray:
    return cuda.to_device(np.zeros(n, dtype))


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


def test_the_back_end_builds_and_says_what_it_cannot_do():
    backend = cuda.CudaBackend()
    text = (
        '#include "scalar.hpp"\nKM_EXPORT void km_kernel(long* x) { *x = km::floordiv(-7l, 2l); }'
    )
    kernel = backend.build(KernelSource("divide", text))
    assert kernel.entry
    assert backend.build(KernelSource("divide", text)) == kernel
    launch = Launch((1,), (0,), ((8,),), b"", 0, 1, 0, release_gil=False)
    with pytest.raises(NotImplementedHere, match="no algorithm has a CUDA form"):
        backend.launch(kernel, launch)


# ----------------------------------------------------------------------------- streams


def test_torchs_current_stream_is_honoured(code, torch):
    x = torch.zeros(256, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        cuda.launch(
            None,
            cuda.LaunchConfig(1, 256),
            code.get_kernel("wait_then_fill"),
            x,
            7.0,
            256,
            50_000_000,
        )
        assert not side.query()
        y = x + 1  # on the same stream, so behind it
    side.synchronize()
    assert (y == 8).all()


def test_streams_of_every_library(code, torch, cupy):
    device = cuda.cuda_device()
    ours, theirs = device.create_stream(), cupy.cuda.Stream(non_blocking=True)
    side = torch.cuda.Stream()
    kernel = code.get_kernel("fill")
    for value, stream in enumerate((ours, theirs, side, int(ours.handle), 0, None), 1):
        x = zeros(64)
        cuda.synchronize()
        cuda.launch(stream, cuda.LaunchConfig(1, 64), kernel, x, float(value), 64)
        cuda.synchronize(stream)
        assert (x.numpy() == value).all(), stream
    wrapped = device.create_stream(side)
    assert int(wrapped.handle) == side.cuda_stream


def test_a_stream_that_was_closed(code):
    stream = cuda.cuda_device().create_stream()
    stream.close()
    with pytest.raises(DeviceError, match="a stream that was closed"):
        cuda.launch(stream, blocks(8), code.get_kernel("fill"), zeros(8), 1.0, 8)


def test_events_measure_time(code):
    device = cuda.cuda_device()
    stream = device.create_stream()
    start, end = device.create_event(), device.create_event()
    stream.record(start)
    cuda.launch(
        stream,
        cuda.LaunchConfig(1, 32),
        code.get_kernel("wait_then_fill"),
        zeros(32),
        1.0,
        32,
        2_000_000,
    )
    stream.record(end)
    end.sync()
    assert 0.3 < end - start < 50


def test_an_array_of_another_stream_is_waited_for(code):
    device = cuda.cuda_device()
    slow, quick = device.create_stream(), device.create_stream()
    x = cuda.to_device(np.zeros(32, np.float32), stream=slow)
    cuda.launch(
        slow, cuda.LaunchConfig(1, 32), code.get_kernel("wait_then_fill"), x, 5.0, 32, 50_000_000
    )
    y = cuda.to_device(np.zeros(32, np.float32), stream=quick)
    cuda.launch(quick, blocks(32), code.get_kernel("saxpy"), 2.0, x, y, 32)
    assert (y.numpy() == 10).all()


# ----------------------------------------------------------------------------- memory


def test_copies_are_events_and_keep_every_type():
    for dtype in ("?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"):
        array = np.arange(24).reshape(2, 3, 4).astype(dtype)
        with events.listen("copy") as seen:
            moved = cuda.to_device(array)
            back = moved.numpy()
        assert (back == array).all()
        assert back.dtype == array.dtype
        assert [(e.source, e.device, e.bytes) for e in seen] == [
            ("cpu", "cuda:0", array.nbytes), ("cuda:0", "cpu", array.nbytes),
        ]  # fmt: skip
    turned = np.arange(6.0).reshape(2, 3).T
    assert (cuda.to_device(turned).numpy() == turned).all()
    assert cuda.to_device(np.zeros((0, 3))).numpy().shape == (0, 3)


def test_results_come_in_the_library_of_the_input(torch, cupy):
    made = cuda.empty((2, 3), km.bfloat16, "torch")
    assert (made.dtype, made.device.type, tuple(made.shape)) == (torch.bfloat16, "cuda", (2, 3))
    assert isinstance(cuda.empty((4,), km.int16, "cupy"), cupy.ndarray)
    ours = cuda.empty((4,), km.float32, "cuda")
    assert torch.as_tensor(ours, device="cuda").data_ptr() == int(ours.buffer.handle)
    assert cupy.asarray(ours).data.ptr == int(ours.buffer.handle)
    with pytest.raises(DTypeError, match="torch has no tensors of dtype"):
        cuda.empty((1,), km.dtype_of({"x": km.float32}), "torch")


@pytest.mark.parametrize("kind", ["pool", "pinned", "managed"])
def test_memory_resources(code, kind):
    device = cuda.cuda_device()
    stream = device.create_stream()
    buffer = getattr(device, kind)().allocate(4096, stream=stream)
    cuda.launch(stream, blocks(1024), code.get_kernel("fill"), buffer, 2.0, 1024)
    stream.sync()
    if kind != "pool":
        assert buffer.is_host_accessible
        view = (ctypes.c_float * 1024).from_address(int(buffer.handle))
        assert list(view) == [2.0] * 1024
    buffer.close(stream)
    stream.sync()


def test_out_of_memory_says_how_much_is_free_and_harms_nothing(code):
    x = cuda.to_device(np.ones(16, np.float32))
    with pytest.raises(DeviceError) as caught:
        cuda.empty((1 << 40,), km.float32, "cuda")
    assert caught.match(r"cannot allocate 4398046511104 bytes on cuda:0: the device has not that")
    assert caught.match(r"\d+ of \d+ bytes are free")
    assert "stay usable" in caught.value.hint
    cuda.launch(None, blocks(16), code.get_kernel("saxpy"), 1.0, x, x, 16)
    assert (x.numpy() == 2).all()


def test_arrays_of_others_live_until_the_stream_has_used_them(code, cupy):
    stream = cuda.cuda_device().create_stream()
    x = cupy.zeros(32, np.float32)
    cupy.cuda.Device().synchronize()
    pointer = x.data.ptr
    cuda.launch(
        stream,
        cuda.LaunchConfig(1, 32),
        code.get_kernel("wait_then_fill"),
        x,
        9.0,
        32,
        2_000_000_000,
    )
    del x
    assert lifetimes.held() == 1
    fresh = [cupy.zeros(32, np.float32) for _ in range(64)]
    assert pointer not in [f.data.ptr for f in fresh]
    stream.sync()
    assert lifetimes.held() == 0
    assert all((f.get() == 0).all() for f in fresh)


def test_torch_tensors_live_until_the_stream_has_used_them(code, torch):
    stream = cuda.cuda_device().create_stream()
    x = torch.zeros(32, device="cuda")
    torch.cuda.synchronize()
    pointer = x.data_ptr()
    cuda.launch(
        stream,
        cuda.LaunchConfig(1, 32),
        code.get_kernel("wait_then_fill"),
        x,
        9.0,
        32,
        2_000_000_000,
    )
    del x
    fresh = [torch.zeros(32, device="cuda") for _ in range(64)]
    assert pointer not in [f.data_ptr() for f in fresh]
    stream.sync()
    assert all((f == 0).all() for f in fresh)


# ----------------------------------------------------------------------------- graphs


def test_graphs_are_launched_again(code):
    x = cuda.to_device(np.ones(256, np.float32))
    cuda.synchronize()
    kernel = code.get_kernel("saxpy")
    with cuda.capture() as graph:
        graph.keep(x)
        for _ in range(3):
            cuda.launch(graph.builder, blocks(256), kernel, 1.0, x, x, 256)
        with pytest.raises(DeviceError, match="still being recorded"):
            graph.launch(None)
    assert (x.numpy() == 1).all()
    stream = cuda.cuda_device().create_stream()
    for _ in range(2):
        graph.launch(stream)
    stream.sync()
    assert (x.numpy() == 64).all()


def test_torch_records_our_launches(code, torch):
    x = torch.ones(256, device="cuda")
    kernel = code.get_kernel("saxpy")
    cuda.launch(None, blocks(256), kernel, 0.0, x, x, 256)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cuda.launch(None, blocks(256), kernel, 1.0, x, x, 256)
    torch.cuda.synchronize()
    assert (x == 1).all()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert (x == 8).all()


def test_a_failed_recording_leaves_the_device_usable(code):
    with pytest.raises(ZeroDivisionError), cuda.capture() as graph:
        cuda.launch(graph.builder, blocks(8), code.get_kernel("fill"), zeros(8), 1.0, 8)
        raise ZeroDivisionError
    assert zeros(2).numpy().tolist() == [0, 0]


# ----------------------------------------------------------------------------- processes


def run(body: str) -> str:
    """Run Python in a process of its own, since the device is lost to it."""
    text = f"TEXT = {TEXT!r}\n" + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


STICKY = """
import numpy as np
from kernelmill.errors import DeviceError
from kernelmill.runtime import cuda
code = cuda.Program(TEXT).compile("cubin")
x = cuda.to_device(np.zeros(4, np.float32))
cuda.launch(None, cuda.LaunchConfig(1, 4), code.get_kernel("fill"), x, 1.0, 4)
cuda.launch(None, cuda.LaunchConfig(1, 4), code.get_kernel({name!r}){args})
for use in (cuda.synchronize, cuda.cuda_device().sync, x.numpy):
    try:
        use()
    except DeviceError as error:
        print(error.message, "|", error.hint.partition(";")[0])
"""


def test_an_illegal_access_names_the_kernel():
    lines = run(STICKY.format(name="beyond", args=", x")).splitlines()
    assert len(lines) == 3
    for line in lines:
        assert (
            "a kernel read or wrote memory that is not its own (CUDA_ERROR_ILLEGAL_ADDRESS)" in line
        )
        assert "newest first: beyond, fill" in line
        assert "start the process again" in line
    assert lines[0].startswith("cannot wait for a stream of cuda:0")


def test_a_trap_is_sticky_too():
    lines = run(STICKY.format(name="trap", args="")).splitlines()
    assert len(lines) == 3
    assert all("newest first: trap, fill" in line for line in lines)


def test_a_forked_process_is_told():
    out = run("""
    import os, sys
    from kernelmill.errors import DeviceError
    from kernelmill.runtime import cuda
    cuda.cuda_device()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            cuda.cuda_device()
        except DeviceError as error:
            os.write(1, error.message.encode())
        os._exit(0)
    os.waitpid(child, 0)
    """)
    assert (
        out == "CUDA cannot be used here: this process was forked from one that had initialised it"
    )


def test_two_processes_share_a_device():
    body = """
    import numpy as np
    from kernelmill.runtime import cuda
    kernel = cuda.Program(TEXT).compile("cubin").get_kernel("saxpy")
    x = cuda.to_device(np.full(1 << 20, {0}, np.float32))
    config = cuda.LaunchConfig(1 << 12, 256)
    for _ in range(10):
        y = cuda.to_device(np.zeros(1 << 20, np.float32))
        cuda.launch(None, config, kernel, 1.0, x, y, 1 << 20)
        assert (y.numpy() == {0}).all()
    print("fine")
    """
    with ThreadPool(2) as pool:
        assert pool.map(run, [body.format(3), body.format(4)]) == ["fine\n", "fine\n"]
    assert zeros(1).numpy().tolist() == [0]
