"""Which calls take the native path on a GPU, that they compute the same, and which must not."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import kernelmill as km
from array_layouts import filled, same
from cuda_kernels import blocks
from kernelmill import events
from kernelmill.errors import ArgumentError, DeviceError
from kernelmill.runtime import cuda
from kernelmill.runtime.cuda import launches, libraries
from kernelmill.runtime.cuda.backend import CudaBackend
from kernelmill.runtime.native import native

pytestmark = pytest.mark.cuda

X, Y = filled((60, 100), "f4", 1), filled((60, 100), "f4", 2)
add = lambda a, b: a + b


@pytest.fixture(params=["torch", "cupy", "own"])
def library(request):
    """How arrays of a library are made, and read again."""
    if request.param == "torch":
        torch = pytest.importorskip("torch", reason="needs torch")
        return lambda a: torch.as_tensor(a, device="cuda"), lambda a: a.cpu().numpy()
    if request.param == "cupy":
        cupy = pytest.importorskip("cupy", reason="needs CuPy")
        return cupy.asarray, cupy.asnumpy
    return cuda.to_device, lambda a: a.numpy()


@pytest.fixture
def only_native(monkeypatch):
    """Fail what takes the general way; called when the plans are made."""

    def forbid():
        def general(*_):
            raise AssertionError("this call took the general way")

        monkeypatch.setattr(CudaBackend, "launch", general)
        monkeypatch.setattr(launches, "_launch", general)

    return forbid


# ------------------------------------------------------------------------------------ plans


def test_plans(library, only_native):
    put, get = library
    x, y, out = put(X), put(Y), put(np.zeros_like(X))
    plan = km.transform.plan((x, y), add, out=out)
    only_native()
    assert plan(x, y, out=out) is out
    same(get(out), X + Y)
    found = plan(x, y)
    assert type(found) is type(x)
    same(get(found), X + Y)
    assert plan(x, out, out=out) is out, "in place"
    same(get(out), X + (X + Y))
    for shape in ((), (1,), (4097,), (3, 5, 7)):
        a, b = filled(shape, "f4", 3), filled(shape, "f4", 4)
        same(get(plan(put(a), put(b))), np.asarray(a + b))


def test_free_functions(library, only_native):
    put, get = library
    x, y, out = put(X), put(Y), put(np.zeros_like(X))
    op = lambda a, b: a * b
    for _ in range(
        2
    ):  # of a library that a process meets for the first time, the second call is kept
        km.transform((x, y), op)
    km.transform((x, y), op, out=out)
    only_native()
    same(get(km.transform((x, y), op)), X * Y)
    assert km.transform((y, y), op, out=out) is out
    same(get(out), Y * Y)


def test_scalars_and_captured_ones(library, only_native):
    put, get = library
    k = 3.0
    x = put(X)
    op = lambda a, b: a * k + b
    for _ in range(2):
        km.transform((x, 2.5), op)
    km.transform((x, 2), op)
    km.transform((x, np.float32(2)), op)
    only_native()
    for k in (3.0, -1.5):
        for value in (0.5, 7, np.float32(9)):
            same(get(km.transform((x, value), op)), X * np.float32(k) + np.float32(value))


def test_a_torch_without_the_table_of_dlpack(torch, only_native, monkeypatch):
    """Before 2.10, tensors are read by their methods."""
    x, out = torch.as_tensor(X, device="cuda"), torch.zeros(X.shape, device="cuda")
    plan = km.transform.plan(x, lambda v: v * 3, out=out)
    with monkeypatch.context() as patch:
        patch.setattr(libraries, "_exchange_table", lambda _: 0)
        libraries._tell_torch(native(), None)
    try:
        only_native()
        for _ in range(3):
            assert plan(x, out=out) is out
            same(out.cpu().numpy(), X * 3)
            with torch.cuda.stream(torch.cuda.Stream()) as _:
                plan(x, out=out)
            torch.cuda.synchronize()
    finally:
        libraries._tell_torch(native(), None)
    assert plan(x, out=out) is out


def test_several_results_go_to_given_outputs(library, only_native):
    put, get = library
    x, outputs = put(X), (put(np.zeros_like(X)), put(np.zeros(X.shape, "?")))
    plan = km.transform.plan(x, lambda v: (v * 2, v > 0), out=outputs)
    only_native()
    assert plan(x, out=outputs) is outputs
    same(get(outputs[0]), X * 2)
    same(get(outputs[1]), X > 0)


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_layouts_are_served_as_they_were(name, only_native):
    module = pytest.importorskip(name, reason=f"needs {name}")
    x = module.asarray(X) if name == "cupy" else module.as_tensor(X, device="cuda")
    get = module.asnumpy if name == "cupy" else lambda a: a.cpu().numpy()
    column = x[0].reshape(-1, 1)
    out = km.transform((x.T, column), add)
    turned = km.transform.plan((x.T, column), add, out=out)
    only_native()
    for view in (x.T, (x * 2).T):
        assert turned(view, column, out=out) is out
        same(get(out), get(view) + get(column))
    with pytest.raises(AssertionError, match="the general way"):
        turned((x[:30] * 2).T, column, out=out[:, :30])


def test_reductions(library, only_native):
    put, get = library
    x = put(X)
    plan = km.reduce.plan(x, km.maximum, axis=1)
    km.reduce(x, km.maximum, axis=0)
    only_native()
    same(get(plan(x)), X.max(axis=1))
    same(get(km.reduce(x, km.maximum, axis=0)), X.max(axis=0))


def test_events_say_the_same(library):
    put, _ = library
    x = put(X)
    plan = km.transform.plan(x, lambda v: v + 1)
    plan(x)
    with events.listen("launch") as seen:
        plan(x)
        km.transform(x, lambda v: v + 1)
    assert [(e.device, e.bytes) for e in seen] == [("cuda:0", 2 * X.nbytes)] * 2


# ------------------------------------------------------------------------------------ launches


def test_launches(code, library, only_native):
    put, get = library
    kernel, n = code.get_kernel("saxpy"), X.size
    x, y = put(X), put(Y)
    cuda.launch(None, blocks(n), kernel, 2.0, x, y, n)
    only_native()
    cuda.launch(None, blocks(n), kernel, -2.0, x, y, n)
    same(get(y), np.float32(2) * X + Y - np.float32(2) * X)
    with pytest.raises(AssertionError, match="the general way"):
        cuda.launch(None, blocks(n), kernel, 2, x, y, n)  # an integer for a float


def test_a_launch_of_other_types_is_checked_as_ever(code):
    kernel = code.get_kernel("saxpy")
    x = cuda.to_device(X)
    cuda.launch(None, blocks(8), kernel, 0.0, x, x, 8)
    with pytest.raises(OverflowError, match="argument 3 of kernel 'saxpy'"):
        cuda.launch(None, blocks(8), kernel, 0.0, x, x, 1 << 40)
    with pytest.raises(DeviceError, match="a NumPy array in the memory of the host"):
        cuda.launch(None, blocks(8), kernel, 0.0, X, x, 8)
    with pytest.raises(ArgumentError, match="takes 4 arguments, not 3"):
        cuda.launch(None, blocks(8), kernel, 0.0, x, x)


def test_prepared_launches_on_streams(code):
    kernel, x = code.get_kernel("saxpy"), cuda.to_device(np.ones(8, np.float32))
    once = cuda.prepare(blocks(8), kernel, 1.0, x, x, 8)
    stream = cuda.cuda_device().create_stream()
    cuda.synchronize()
    once(int(stream.handle))
    stream.sync()
    once()
    same(x.numpy(), np.full(8, 4, np.float32))
    with pytest.raises(ArgumentError, match="argument 'stream' is 'fast'"):
        once("fast")


# ------------------------------------------------------------------------------------- streams


def test_the_stream_is_that_of_the_library(torch, cupy):
    side, theirs = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    x, c = torch.as_tensor(X, device="cuda"), cupy.asarray(X)
    plan = km.transform.plan(x, lambda v: v + 1)
    plan(x), plan(c)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        found = plan(x)
        assert not side.query()
    side.synchronize()
    same(found.cpu().numpy(), X + 1)
    with theirs:
        found = plan(c)
    theirs.synchronize()
    same(cupy.asnumpy(found), X + 1)


def test_arrays_of_other_streams_are_waited_for(torch, cupy):
    """A mixture that is not ordered on one stream takes the general way, which waits."""
    side = cupy.cuda.Stream(non_blocking=True)
    x, out = torch.as_tensor(X, device="cuda"), torch.zeros(X.shape, device="cuda")
    y = cupy.asarray(Y)
    plan = km.transform.plan((x, y), add, out=out)
    torch.cuda.synchronize()
    with side:
        torch.cuda._sleep(1)
        z = y * 2
        plan(x, z, out=out)
    torch.cuda.synchronize()
    same(out.cpu().numpy(), X + 2 * Y)


def test_tensors_with_more_than_memory(torch):
    x = torch.as_tensor(X, device="cuda")
    plan = km.transform.plan(x, lambda v: v + 1)
    z = torch.complex(x, x).conj()
    for _ in range(3):
        plan(x)
        with pytest.raises(ArgumentError, match="is a lazy negative"):
            plan(torch._neg_view(x))
        with pytest.raises(ArgumentError, match="is a lazy negative"):
            plan(z.imag)
    lazy = km.transform.plan(torch.complex(x, x), lambda v: v)
    with pytest.raises(ArgumentError, match="is a lazy conjugate"):
        lazy(z)
    with pytest.raises(ArgumentError, match="requires grad"):
        plan(x.clone().requires_grad_())


def test_a_plan_is_recorded_into_a_graph(torch):
    x, out = torch.as_tensor(X, device="cuda"), torch.zeros(X.shape, device="cuda")
    plan, total = km.transform.plan((x, out), add, out=out), km.reduce.plan(x, km.add)
    sums = total(x)
    plan(x, out, out=out)
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(x, out, out=out)
        total(x, out=sums)
    same(out.cpu().numpy(), np.zeros_like(X))
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    same(out.cpu().numpy(), X + X + X)


def test_arrays_may_be_freed_right_after(library):
    """Freed memory is used again in the order of the stream, so results stay right."""
    put, get = library
    x = put(filled((1 << 20,), "f4", 1))
    plan = km.transform.plan(x, lambda v: v + 1)
    for _ in range(20):
        found = plan(plan(plan(x)))
        gc.collect()
        same(get(found), get(x) + 1 + 1 + 1)
