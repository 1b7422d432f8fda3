"""Arrays of other libraries through `transform` and `reduce`: in as they come, out as they came."""

from __future__ import annotations

import array
import mmap
from typing import Any

import numpy as np
import pytest

import kernelmill as km
from array_layouts import filled, same

torch = pytest.importorskip("torch")


def plus(v: Any) -> Any:
    return v + 1


class Exporter:
    """An array that shows itself through DLPack only."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    def __dlpack__(self, **options: Any) -> Any:
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


# ----------------------------------------------------------------------------- torch

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64",
          "complex64"]  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_in_tensors_out(name: str) -> None:
    x = torch.from_numpy(filled((65,), name, 1))
    found = km.transform(x, lambda v: v)
    assert type(found) is torch.Tensor
    assert found.dtype == x.dtype
    assert torch.equal(found, x)
    assert found.data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [("int64", "float32", "float32"), ("int32", "float16", "float16"), ("uint8", "int8", "int16"),
     ("float64", "complex64", "complex128"), ("bool", "int16", "int16")],
)  # fmt: skip
def test_tensors_promote_by_the_table_of_torch(a: str, b: str, joined: str) -> None:
    x, y = torch.from_numpy(filled((65,), a, 1)), torch.from_numpy(filled((65,), b, 2))
    found = km.transform((x, y), lambda p, q: p + q)
    assert found.dtype == getattr(torch, joined)
    assert torch.equal(found, x + y)
    same_elements = km.transform((x.numpy(), y.numpy()), lambda p, q: p + q)
    assert same_elements.dtype == np.result_type(a, b)  # the same text, by the table of NumPy


def test_bfloat16_tensors() -> None:
    x = torch.from_numpy(filled((1000,), "f4", 1)).bfloat16()
    assert torch.equal(km.transform(x, lambda v: v * 1.5), x * 1.5)
    assert torch.equal(km.reduce(x, km.maximum), x.max())
    wide = km.reduce(x, dtype=km.float32)
    total = km.reduce(x)
    assert (total.dtype, wide.dtype) == (torch.bfloat16, torch.float32)
    assert total == wide.bfloat16()


@pytest.mark.parametrize("shape", [(), (0,), (5,), (40, 33), (0, 3), (300, 400)])
def test_shapes_and_strides_of_tensors(shape: tuple[int, ...]) -> None:
    x = torch.from_numpy(np.asarray(filled(shape, "f4", 1)))
    for tensor in (x, x.T if x.ndim == 2 else x, x[::2] if x.ndim else x):
        found = km.transform(tensor, plus)
        assert torch.equal(found, tensor + 1)
        assert found.stride() == (tensor + 1).stride()


def test_expanded_tensors() -> None:
    x = torch.arange(3.0).expand(4, 3)
    assert torch.equal(km.transform(x, plus), x + 1)
    assert torch.equal(km.reduce(x, axis=0), x.sum(0))


def test_reductions_of_tensors() -> None:
    x = torch.arange(24, dtype=torch.int32).reshape(2, 3, 4)
    total = km.reduce(x)
    assert (type(total), total.shape, total.dtype) == (torch.Tensor, (), torch.int64)
    assert total == 276
    assert torch.equal(km.reduce(x, km.maximum, axis=(0, -1)), x.amax((0, 2)))
    low, high = km.reduce(x, (km.minimum, km.maximum), axis=1, keepdims=True)
    assert torch.equal(low, x.amin(1, keepdim=True))
    assert torch.equal(high, x.amax(1, keepdim=True))


def test_large_tensors_live_after_what_made_them() -> None:
    x = torch.ones(1 << 18)
    found = km.transform(x, plus)
    again = km.transform(x, lambda v: v - 1)
    assert (found == 2).all()
    assert (again == 0).all()
    found += 1
    assert (found == 3).all()


def test_outputs_may_be_of_another_library() -> None:
    x = filled((100,), "f4", 1)
    tensor, flat, raw = torch.zeros(100), np.zeros(100, "f4"), bytearray(100)
    assert km.transform(x, plus, out=tensor) is tensor
    same(tensor.numpy(), x + np.float32(1))
    assert km.transform(torch.from_numpy(x), plus, out=flat) is flat
    same(flat, x + np.float32(1))
    letters = np.arange(100, dtype="u1")
    assert km.transform(letters, plus, out=raw) is raw
    assert raw == bytearray(letters + np.uint8(1))
    corner = memoryview(bytearray(100))[:1]
    assert km.reduce(letters, km.maximum, axis=0, keepdims=True, out=corner) is corner
    assert corner[0] == 99


def test_the_first_array_decides_the_library_of_the_result() -> None:
    x, tensor = filled((3,), "f4", 1), torch.ones(2, 3)
    add = lambda a, b: a + b
    assert type(km.transform((x, tensor), add)) is np.ndarray
    assert type(km.transform((tensor, x), add)) is torch.Tensor
    assert type(km.transform((2, tensor), add)) is torch.Tensor
    assert torch.equal(km.transform((2, tensor), add), tensor + 2)


def test_a_tensor_in_place() -> None:
    x = torch.arange(10.0)
    km.transform(x[:-1], plus, out=x[1:])
    assert x.tolist() == [0, *range(1, 10)]


def test_parameters_without_grad() -> None:
    x = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    assert km.transform(x, plus).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: torch.ones(3, requires_grad=True), km.ArgumentError,
         ("argument 'x' is a torch tensor that requires grad; accepted: plain CPU tensors\n\n"
         "hint: pass `x.detach()`")),
        (lambda: torch.ones(3, dtype=torch.complex64).conj(), km.ArgumentError,
         ("argument 'x' is a torch tensor that is a lazy conjugate; accepted: plain CPU tensors\n\n"
         "hint: pass `x.resolve_conj()`")),
        (lambda: torch.ones(3).to_sparse(), km.ArgumentError,
         ("argument 'x' is a torch tensor that is not strided; accepted: plain CPU tensors\n\n"
         "hint: pass `x.to_dense()`")),
        (lambda: torch.ones(3, device="meta"), km.DeviceError,
         ("argument 'x' is a torch tensor on meta; this call runs on the CPU\n\n"
         "hint: copy it to the host first, for example `x.cpu()`")),
    ],
    ids=["grad", "conj", "sparse", "meta"],
)  # fmt: skip
def test_tensors_that_are_more_than_memory(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        km.reduce(make())
    assert str(caught.value) == text


def test_tensors_hold_no_records() -> None:
    point = km.struct({"x": "float32"}, name="Point")
    with pytest.raises(km.DTypeError) as caught:
        km.transform(torch.ones(3), lambda v: point(v))
    assert str(caught.value) == (
        "torch has no tensors of dtype Point\n\n"
        "hint: pass NumPy arrays, or convert the result in the operator"
    )


# ----------------------------------------------------------------------------- DLPack, buffers


@pytest.mark.parametrize("layout", ["c", "f", "sliced"])
def test_dlpack(layout: str) -> None:
    x = filled((40, 30), "f4", 1)
    x = {"c": x, "f": np.asfortranarray(x), "sliced": x[::2, ::3]}[layout]
    found = km.transform(Exporter(x), plus)
    assert type(found) is np.ndarray
    same(found, x + np.float32(1))
    same(km.reduce(Exporter(x), axis=0), km.reduce(x, axis=0))


def test_dlpack_output() -> None:
    x = np.zeros(10)
    out = Exporter(x)
    assert km.transform(np.arange(10.0), plus, out=out) is out
    same(x, np.arange(10.0) + 1)


class Elsewhere:
    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("nobody may ask for its memory")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 1)


class Interface:
    __cuda_array_interface__ = {"data": (1, False), "shape": (1,), "typestr": "<f4", "version": 3}  # noqa: RUF012


def test_arrays_of_another_device() -> None:
    with pytest.raises(km.DeviceError) as caught:
        km.transform((bytearray(3), Elsewhere()), lambda a, b: a + b)
    assert str(caught.value) == (
        f"argument 'inputs[1]' is a {__name__}.Elsewhere on cuda:1; this call runs on the CPU\n\n"
        "hint: copy it to the host first, for example `inputs[1].cpu()`"
    )
    with pytest.raises(km.DeviceError, match="in the memory of a CUDA device"):
        km.transform((bytearray(3), Interface()), lambda a, b: a + b)


def test_a_numpy_array_beside_one_on_a_device_that_is_not_there() -> None:
    """It would be copied there; nobody asks for the other's memory before."""
    with pytest.raises((km.DeviceError, km.MissingExtraError)):
        km.transform((np.ones(3), Elsewhere()), lambda a, b: a + b)


def test_buffers() -> None:
    same(km.transform(array.array("d", [1, 2.5]), plus), np.array([2, 3.5]))
    same(km.transform(b"abc", plus), np.array([98, 99, 100], "u1"))
    same(km.transform(memoryview(b"abcdef")[::-2], plus), np.array([103, 101, 99], "u1"))
    with mmap.mmap(-1, 4096) as memory:
        km.transform(np.arange(4096, dtype="u2").astype("u1"), plus, out=memory)
        assert memory[:3] == b"\x01\x02\x03"
        assert km.reduce(memory, km.maximum) == 255


def test_a_buffer_is_free_again_behind_the_call() -> None:
    memory = bytearray(1000)
    km.transform(memory, plus, out=memory)
    km.reduce(memory)
    memory.append(1)  # BufferError while somebody holds it
    assert memory[0] == 1


def test_numpy_subclasses_and_memory_maps(tmp_path: Any) -> None:
    x = np.memmap(tmp_path / "x", "f4", "w+", shape=(100,))
    x[:] = np.arange(100)
    found = km.transform(x, plus)
    assert type(found) is np.ndarray
    same(found, np.arange(100, dtype="f4") + 1)
    assert km.transform(x, plus, out=x) is x
    same(np.asarray(x), found)
