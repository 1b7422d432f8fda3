"""Tiles, streamed rows and strided inputs of the element-wise template, whatever the alignment.

Kernels are called through the call record, so small arrays take the paths of large ones. Inputs end
where the memory ends: a read behind the last element is a crash.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelmill as km
from array_layouts import filled, same
from host_kernel import STREAM, build, call
from kernelmill.algorithms.layout import Operand, c_strides, elementwise

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
PAGE = mmap.PAGESIZE
# On both sides of a square (8, 16), of a tile (32, 64) and of a line.
EXTENTS = st.sampled_from((1, 2, 7, 15, 16, 17, 31, 33, 64, 65, 129, 150))


def at_the_end(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array whose last byte is the last one that may be read."""
    nbytes = math.prod(shape) * dtype.itemsize
    room = -(-nbytes // PAGE) * PAGE
    memory = mmap.mmap(-1, room + PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(PAGE), 0) == 0
    return np.frombuffer(memory, dtype, math.prod(shape), room - nbytes).reshape(shape)


def kernel(size: int, patterns: tuple[str, ...], march: str = "native") -> ctypes.CDLL:
    word, (*taken, made) = WORDS[size], patterns
    names = [f"a{k}" for k in range(len(taken))]
    return build(
        f"""#include "transform.hpp"
using namespace km;
struct Op {{
  KM_INL {word} operator()({", ".join(f"{word} {n}" for n in names)}) const {{
    return ({word})({" + ".join(f"{2 * k + 3}u * {n}" for k, n in enumerate(names))});
  }}
}};
KM_EXPORT void km_kernel(const km::Call* call) {{
  km::transform<Op, km::in<{", ".join(f"km::arg<{word}, km::{p}>" for p in taken)}>,
                km::out<km::arg<{word}, km::{made}>>>::run(call, Op());
}}
""",
        march,
    )


def expected(inputs: list[np.ndarray]) -> np.ndarray:
    dtype = inputs[0].dtype
    total = sum(x.astype(np.uint64) * (2 * k + 3) for k, x in enumerate(inputs))
    return np.asarray(total).astype(dtype)


@st.composite
def view(
    draw: Callable[..., object], shape: tuple[int, ...], dtype: np.dtype, steps: tuple[int, ...]
) -> np.ndarray:
    """Return a view of that shape, with any order of axes, at the end of the memory."""
    order = draw(st.permutations(range(len(shape))))
    step = [draw(st.sampled_from(steps)) for _ in shape]
    extents = [max(1, n * abs(s) - (abs(s) - 1)) for n, s in zip(shape, step, strict=True)]
    base = at_the_end(tuple(extents[a] for a in order), dtype)
    base[...] = filled(base.shape, dtype, draw(st.integers(0, 99)))
    x = base.transpose(np.argsort(order))
    return x[tuple(slice(None, None, s) for s in step)]


@given(st.data())
@settings(max_examples=120, suppress_health_check=list(HealthCheck))
def test_any_layout_streamed_or_not_at_any_alignment(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from(sorted(WORDS)))
    dtype = np.dtype(f"u{size}")
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(EXTENTS) for _ in range(rank))
    while math.prod(shape) > 60_000:
        shape = shape[1:]
    steps = data.draw(st.sampled_from(((1,), (1, 1, -1), (1, 2, -1, 3))))
    inputs = [data.draw(view(shape, dtype, steps)) for _ in range(data.draw(st.integers(1, 2)))]
    memory = np.full(math.prod(shape) * size + 256, 0xA5, np.uint8)
    start = data.draw(st.integers(0, 128))
    out = np.frombuffer(memory, np.uint8, math.prod(shape) * size, start).view(dtype)
    out = out.reshape(shape)
    found = elementwise(
        shape,
        [Operand(shape, x.strides, size) for x in inputs],
        [Operand(shape, c_strides(shape, size), size)],
    )
    call(
        kernel(size, found.patterns),
        found.shape,
        list(zip((*inputs, out), found.strides, strict=True)),
        threads=data.draw(st.sampled_from((1, 3))),
        flags=data.draw(st.sampled_from((0, STREAM))),
    )
    assert np.array_equal(out, expected(inputs))
    assert (memory[:start] == 0xA5).all()
    assert (memory[start + out.nbytes :] == 0xA5).all()


@pytest.mark.parametrize("march", ["x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("size", WORDS)
def test_narrower_registers_turn_tiles_too(size: int, march: str) -> None:
    dtype = np.dtype(f"u{size}")
    x = at_the_end((131, 259), dtype)
    x[...] = filled(x.shape, dtype, size)
    for flags in (0, STREAM):
        out = np.zeros((259, 131), dtype)
        call(
            kernel(size, ("transposed", "contiguous"), march),
            out.shape,
            [(x, x.strides[::-1]), (out, out.strides)],
            flags=flags,
            threads=3,
        )
        assert np.array_equal(out, expected([x.T]))


@pytest.mark.parametrize("flags", [0, STREAM])
@pytest.mark.parametrize("step", [1, 2, -1, 3])
def test_an_output_that_is_the_strided_input_itself(step: int, flags: int) -> None:
    memory = filled((5000,), "u4", 1)
    x = memory[::step]
    wanted = expected([x.copy()])
    pattern = "contiguous" if step == 1 else "strided"
    call(kernel(4, (pattern, pattern)), x.shape, [(x, x.strides)] * 2, flags=flags, threads=3)
    assert np.array_equal(x, wanted)


@pytest.mark.parametrize("dtype", ["u1", "f8", "c16", "V3", "V200"])
def test_elements_of_every_size_are_turned(dtype: str) -> None:
    if not dtype.startswith("V"):
        x = filled((53, 47), dtype, 2)
        same(km.transform(x.T, lambda v: v), x.T)
        return
    fields = int(dtype[1:]) // (1 if dtype == "V3" else 8)
    kind = np.uint8 if dtype == "V3" else np.float64
    struct = np.dtype([(f"f{k}", kind) for k in range(min(fields, 25))])
    x = np.zeros((53, 47), struct)
    x["f0"] = np.arange(53 * 47).reshape(53, 47) % 251
    found = km.transform(x.T, lambda v: v.f0 + v.f2)
    same(found, x["f0"].T + x["f2"].T)


def test_odd_shapes_of_float64_that_are_larger_than_the_caches() -> None:
    x = np.arange(61 * 67 * 59 * 71, dtype=np.float64).reshape(61, 67, 59, 71)
    for axes in ((3, 2, 1, 0), (0, 2, 1, 3), (0, 1, 3, 2)):
        view_ = x.transpose(axes)
        out = np.empty(view_.shape)
        km.transform(view_, lambda v: v + 1, out=out)
        assert np.array_equal(out, view_ + 1)
