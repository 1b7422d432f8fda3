"""Streams, memory, lifetimes, graphs, and what goes wrong in a process, on a GPU."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap
from multiprocessing.pool import ThreadPool

import numpy as np
import pytest

import kernelmill as km
from cuda_kernels import TEXT, blocks, zeros
from kernelmill import events
from kernelmill.errors import DeviceError, DTypeError
from kernelmill.runtime import cuda
from kernelmill.runtime.cuda import lifetimes

pytestmark = pytest.mark.cuda


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


def test_arrays_that_are_held_when_a_process_ends(cupy, torch):
    """They go before the driver does: torch aborts a process that frees a tensor later."""
    body = """
        import cupy, torch, kernelmill as km
        x = torch.zeros(64, device="cuda")
        stream = km.Device("cuda:0").create_stream()
        text = 'extern "C" __global__ void touch(float* x) { x[threadIdx.x] += 1; }'
        kernel = km.Program(text).compile("cubin").get_kernel("touch")
        km.launch(stream, km.LaunchConfig(1, 64), kernel, x)
        km.launch(stream, km.LaunchConfig(1, 64), kernel, cupy.asarray(x))
        del x
        print("over", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")


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
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=600)
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
