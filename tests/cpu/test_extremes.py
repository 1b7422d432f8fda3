"""`argmin` and `argmax` as NumPy has them: ties, NaN, axes, every type and layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelmill as km

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
PAIRS = [(km.argmin, np.argmin), (km.argmax, np.argmax)]


def drawn(shape: tuple[int, ...], dtype: str, seed: int = 0, *, nan: bool = False) -> np.ndarray:
    """Few different values, so that there are ties."""
    random = np.random.default_rng(seed)
    x = random.integers(-3, 4, shape).astype(np.float64)
    if np.dtype(dtype).kind == "u":
        x = abs(x)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * random.integers(-1, 2, shape)
    made = x.astype(dtype)
    if nan and made.size and made.dtype.kind in "fc":
        made.reshape(-1)[random.integers(0, made.size, 2)] = np.nan
    return made


def check(x: np.ndarray, **options: Any) -> None:
    for ours, numpys in PAIRS:
        found, wanted = ours(x, **options), numpys(x, **options)
        np.testing.assert_array_equal(found, wanted)
        assert type(found) is type(wanted)
        assert found.dtype == np.int64


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_types(dtype: str, nan: bool) -> None:
    for count in (1, 2, 63, 64, 65, 2047, 2048, 2049, 40_000):
        check(drawn((count,), dtype, count, nan=nan))
    x = drawn((5, 70), dtype, nan=nan)
    check(x)
    check(x, axis=0)
    check(x, axis=-1)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_layouts(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    dtype = data.draw(st.sampled_from(["i4", "f4", "f8", "?"]))
    x = drawn(shape, dtype, data.draw(st.integers(0, 99)), nan=data.draw(st.booleans()))
    x = x.transpose(data.draw(st.permutations(range(len(shape)))))
    x = x[tuple(data.draw(st.sampled_from([slice(None), slice(None, None, -1)])) for _ in shape)]
    axis = data.draw(st.sampled_from([None, *range(-len(shape), len(shape))]))
    keepdims = data.draw(st.booleans())
    check(x, axis=axis, keepdims=keepdims)


def test_on_devices(place: str) -> None:
    del place
    for dtype in ("f4", "i8", "f2"):
        x = drawn((6, 70), dtype, nan=True)
        check(x)
        check(x, axis=1)
        check(x, axis=0)
    check(drawn((30_000,), "f4", nan=True))
    found = km.argmin(km.iterators.transform(np.arange(9), lambda v: (v - 3) ** 2))
    assert found == 3


def test_many_elements_on_every_number_of_threads() -> None:
    x = np.zeros(300_000, np.float32)
    x[[123_456, 250_000]] = -1
    assert km.argmin(x) == 123_456
    assert km.argmax(x) == 0
    x[[77_777, 77_778]] = np.nan
    assert km.argmin(x) == km.argmax(x) == 77_777
    signs = np.array([0.0, -0.0] * 40, np.float32)
    assert km.argmin(signs) == 0
    x = np.arange(100_000, dtype=np.int64)
    assert km.argmax(x) == 99_999
    check(np.full(5000, np.inf))
    check(np.full(5000, np.iinfo(np.int64).max))


def test_out_and_plan() -> None:
    x = drawn((7, 9), "f4")
    out = np.zeros(7, np.int64)
    assert km.argmin(x, axis=1, out=out) is out
    np.testing.assert_array_equal(out, x.argmin(1))
    narrow = np.zeros(9, np.int32)
    km.argmax(x, axis=0, out=narrow)
    np.testing.assert_array_equal(narrow, x.argmax(0))
    plan = km.argmax.plan(x, axis=1)
    np.testing.assert_array_equal(plan(x), x.argmax(1))
    np.testing.assert_array_equal(plan(x + 1), x.argmax(1))
    for _ in range(2):  # the second call takes the short way
        assert km.argmin(x[0]) == x[0].argmin()


def test_it_is_a_torch_tensor_that_comes_back() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[3.0, 1.0], [float("nan"), 0.0]])
    found = km.argmin(x, axis=1)
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [1, 0]
    assert km.argmin(torch.arange(8, dtype=torch.bfloat16)) == 0


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: km.argmin(np.zeros(0)), "argmin of no elements, along axes of extents (0,)"),
        (lambda: km.argmax(np.zeros((3, 0)), axis=1),
         "argmax of no elements, along axes of extents (3, 0)"),
        (lambda: km.argmin(np.zeros((3, 2)), axis=2),
         "axis 2 is out of range for an array of 2 dimensions"),
        (lambda: km.argmin(np.zeros((3, 2)), axis=(0, 1)),  # type: ignore[arg-type]  # that is it
         "`axis` is (0, 1); expected: an integer, or None"),
        (lambda: km.argmin(np.zeros(3, [("a", "i4")])), "elements of argmin are Struct; expected: numbers"),
        (lambda: km.argmin(np.float32(3)), "`x` is a scalar; argmin takes an array"),
        (lambda: km.argmin(km.iterators.reverse(np.zeros(0))), "argmin of no elements"),
        (lambda: km.argmin(np.zeros((3, 2)), axis=1, out=np.zeros(2, np.int64)),
         "`out` has shape (2,), the result has (3,)"),
    ],
)  # fmt: skip
def test_faults(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(km.KernelmillError) as error:
        call()
    assert error.value.message == text


def test_places_are_stored_as_integers() -> None:
    for x in (np.arange(5), km.iterators.reverse(np.arange(5))):
        with pytest.raises(km.DTypeError) as caught:
            km.argmin(x, out=np.zeros(()))
        assert caught.value.message == "`out` has elements of float64; places are integers"
