"""`batched_copy`: arrays, pieces and addresses, on processor and emulator; faults by their texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import devices
import kernelmill as km
from kernelmill.runtime.emulator import Schedule, sanitized, scheduled


def pieces(lengths: list[int], dtype: str) -> tuple[np.ndarray, ...]:
    """An array, where its pieces begin, their lengths, and where each goes to."""
    random = np.random.default_rng(len(lengths))
    sizes = np.array(lengths, np.int64)
    begins = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    order = random.permutation(len(sizes))
    to = np.zeros(len(sizes), np.int64)
    to[order] = np.concatenate([[0], np.cumsum(sizes[order])])[:-1]
    x = random.integers(0, 250, sizes.sum()).astype(dtype)
    wanted = np.concatenate([x[begins[i] : begins[i] + sizes[i]] for i in order])
    return x, begins, sizes, to, wanted


HOST = pytest.mark.parametrize("place", ["cpu", "emulator"], indirect=True)


@HOST
def test_arrays_of_any_type_length_and_address(place):
    random = np.random.default_rng(1)
    kinds = (
        (0, "u1"),
        (1, "u1"),
        (3, "f8"),
        (200_003, "u1"),
        (5, "i2"),
        (100_000, "f4"),
        (33, "c16"),
    )
    arrays = [random.integers(0, 250, n + 1).astype(t)[1:] for n, t in kinds]
    made = [np.full_like(a, 77) for a in arrays]
    assert km.batched_copy(arrays, made) is made
    for a, b in zip(arrays, made, strict=True):
        assert np.array_equal(a, b)
    assert km.batched_copy((), ()) == ()


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=30),
    st.sampled_from(["u1", "i2", "f4", "c16"]),
)
def test_pieces_go_where_they_belong(lengths: list[int], dtype: str) -> None:
    x, begins, sizes, to, wanted = pieces(lengths, dtype)
    out = np.zeros_like(x)
    km.batched_copy(x, out, sizes, source_offsets=begins, destination_offsets=to)
    assert np.array_equal(out, wanted)


@HOST
def test_long_pieces_beside_short_ones(place):
    x, begins, sizes, to, wanted = pieces([1, 300_000, 0, 7, 70_001, 2] + [3] * 500, "i2")
    out = np.zeros_like(x)
    found = km.batched_copy(
        x, out, sizes.astype("i4"), source_offsets=begins.astype("u4"), destination_offsets=to
    )
    assert found is out
    assert np.array_equal(out, wanted)
    out[:] = 0
    addresses = (x.ctypes.data + 2 * begins).astype("u8"), (out.ctypes.data + 2 * to).astype("u8")
    km.batched_copy(*addresses, 2 * sizes)
    assert np.array_equal(out, wanted)


def test_the_sanitizer_finds_nothing_and_pieces_outside_are_left_out(monkeypatch):
    devices.on("emulator", monkeypatch)
    x, begins, sizes, to, wanted = pieces([900, 3, 0, 64], "f4")
    out = np.zeros_like(x)
    with km.Device("emulator"), sanitized(), scheduled(Schedule("random", seed=3)):
        km.batched_copy(x, out, sizes, source_offsets=begins, destination_offsets=to)
        assert np.array_equal(out, wanted)
        out[:] = 7
        wrong = np.array([-1, len(x) - 2, 5, 0])
        km.batched_copy(x, out, sizes, source_offsets=wrong, destination_offsets=to)
    assert np.array_equal(out[to[3] : to[3] + 64], x[:64])
    assert (np.delete(out, np.arange(to[3], to[3] + 64)) == 7).all()


def test_pieces_of_no_possible_size_are_left_out_by_a_device(monkeypatch):
    devices.on("emulator", monkeypatch)
    x, begins, sizes, to, wanted = pieces([900, 3, 64], "f4")
    for wrong in (-1, -(1 << 40), len(x) + 1, 1 << 62):
        out = np.zeros_like(x)
        with km.Device("emulator"):
            km.batched_copy(
                x,
                out,
                np.array([wrong, *sizes, wrong]),
                source_offsets=np.array([0, *begins, 1]),
                destination_offsets=np.array([0, *to, 1]),
            )
        assert np.array_equal(out, wanted)


X = np.arange(3.0)
ONE = np.array([1])
FAR = (1 << 63) - 1
FAULTS: list[tuple[Any, type[Exception], str]] = [
    (lambda: km.batched_copy([X], []), km.ArgumentError,
     "`sources` has 1 arrays, `destinations` has 0"),
    (lambda: km.batched_copy([X], X), km.ArgumentError,
     "`sources` and `destinations` are sequences of arrays, or arrays, both"),
    (lambda: km.batched_copy([X], [X.astype("f4")]), km.ShapeError,
     ("`sources[0]` has shape (3,) and elements of float64, `destinations[0]` has (3,) and "
      "float32; each is copied to one like it")),
    (lambda: km.batched_copy([X[::2]], [X[:2]]), km.ShapeError,
     "`sources[0]` has gaps or another order; arrays that are copied whole have none"),
    (lambda: km.batched_copy([X], [X], ONE), km.ArgumentError,
     "sequences of arrays are copied whole: without sizes and offsets"),
    (lambda: km.batched_copy(X, X, ONE, source_offsets=ONE), km.ArgumentError,
     "pieces of arrays have `sizes`, and offsets for both sides or for none"),
    (lambda: km.batched_copy(X, X, ONE), km.DTypeError,
     "`sources` has elements of float64; addresses are uint64"),
    (lambda: km.batched_copy(X, X, ONE, source_offsets=X[:1], destination_offsets=ONE), km.DTypeError,
     "`source_offsets` has elements of float64; expected: integers"),
    (lambda: km.batched_copy(X, X, ONE, source_offsets=ONE, destination_offsets=np.arange(2)),
     km.ShapeError, "`destination_offsets` has shape (2,); expected: (1,), one for each size"),
    (lambda: km.batched_copy(X, X, 3 * ONE, source_offsets=ONE, destination_offsets=0 * ONE),
     km.ArgumentError, "piece 0 begins at 1 of `source_offsets` and has 3 elements; the array has 3"),
    (lambda: km.batched_copy(X, X, ONE, source_offsets=FAR * ONE, destination_offsets=ONE),
     km.ArgumentError,
     f"piece 0 begins at {FAR} of `source_offsets` and has 1 elements; the array has 3"),
    (lambda: km.batched_copy(X, X, FAR * ONE, source_offsets=ONE, destination_offsets=ONE),
     km.ArgumentError,
     f"piece 0 begins at 1 of `source_offsets` and has {FAR} elements; the array has 3"),
    (lambda: km.batched_copy(ONE.astype("u8"), ONE.astype("u8"), -ONE), km.ArgumentError,
     "`sizes[0]` is -1; a piece has 0 bytes or more"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), FAULTS)
def test_faults_say_what_was_found(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.message == text  # type: ignore[attr-defined]
