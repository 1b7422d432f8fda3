"""Hypothesis strategies for arrays of every layout, and what tests compare them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

# Extents on both sides of a tile (16), and of vectors.
EXTENTS = st.sampled_from((1, 2, 3, 5, 16, 17, 33))
STEPS = st.sampled_from((1, 1, 1, 2, 3, -1, -2))


def shapes(max_dims: int = 4, *, empty: bool = True) -> st.SearchStrategy[tuple[int, ...]]:
    extents = st.one_of(EXTENTS, EXTENTS, EXTENTS, st.just(0)) if empty else EXTENTS
    return (
        st.lists(extents, max_size=max_dims).map(tuple).filter(lambda s: int(np.prod(s)) <= 40_000)
    )


def filled(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    """Random values; any bits for integers, moderate numbers for floats."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, shape, dtype, endpoint=True)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.kind == "c":
        return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(dtype)
    return (random.normal(size=shape) * 8).astype(dtype)


@st.composite
def views(
    draw: Callable[..., Any],
    shape: tuple[int, ...],
    dtype: Any,
    *,
    broadcast: bool = True,
    unaligned: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """A view of that shape with any strides, and the flat array whose memory it is."""
    dtype = np.dtype(dtype)
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(STEPS) for _ in shape]
    alone = [broadcast and n > 1 and draw(st.integers(0, 7)) == 0 for n in shape]
    extents = [1 if z else n * abs(s) for n, s, z in zip(shape, steps, alone, strict=True)]
    size = int(np.prod([extents[a] for a in order])) if shape else 1
    raw = np.zeros(size * dtype.itemsize + 1, np.uint8)
    start = int(unaligned and draw(st.integers(0, 7)) == 0)
    base = raw[start : start + size * dtype.itemsize].view(dtype)
    base[...] = filled((size,), dtype, draw(st.integers(0, 2**16)))
    x = base.reshape([extents[a] for a in order]).transpose(np.argsort(order))
    slices = [slice(None, None, 1 if z else s) for s, z in zip(steps, alone, strict=True)]
    x = x[(*slices, ...)]
    return np.broadcast_to(x, shape) if any(alone) else x, base


def lowered(draw: Callable[..., Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `shape`: fewer leading axes, some extents 1."""
    kept = shape[draw(st.integers(0, len(shape))) :] if draw(st.booleans()) else shape
    return tuple(1 if draw(st.integers(0, 4)) == 0 else n for n in kept)


def same(found: Any, expected: Any) -> None:
    """Equal dtype, shape and bits; all NaNs are equal, -0.0 is not 0.0."""
    a, b = np.asarray(found), np.asarray(expected)
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    if a.dtype.kind in "fc":
        nan = np.isnan(b)
        assert np.array_equal(np.isnan(a), nan)
        a, b = np.where(nan, b.dtype.type(0), a), np.where(nan, b.dtype.type(0), b)
    assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
