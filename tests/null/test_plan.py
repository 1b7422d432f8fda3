"""Plans, devices and launches on a back end that computes nothing; and what events say."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km
from kernelmill import events
from kernelmill.algorithms.plan import Cost, Plan
from kernelmill.runtime.backend import FLAG_STREAM, KEPT_SHIFT, Kernel, Launch
from kernelmill.runtime.devices import current_backend
from kernelmill.runtime.native import stream_threshold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelmill.runtime.null import NullBackend

X = np.arange(1000, dtype=np.float32)


@pytest.fixture
def null() -> Iterator[NullBackend]:
    with km.Device("null") as device:
        backend: Any = device.backend
        backend.built.clear()
        backend.launched.clear()
        yield backend


def last(backend: NullBackend) -> tuple[Kernel, Launch]:
    return backend.launched[-1]


def test_a_launch_of_a_transform(null: NullBackend) -> None:
    out = np.zeros(1000, np.float64)
    assert km.transform((X, X), lambda a, b: a + b, out=out) is out
    kernel, launch = last(null)
    assert kernel.source.name == (
        "transform lambda (float32 contiguous, float32 contiguous, float64 contiguous)"
    )
    assert launch == Launch(
        shape=(1000,),
        pointers=(X.ctypes.data, X.ctypes.data, out.ctypes.data),
        strides=((4,), (4,), (8,)),
        captures=b"",
        workspace=0,
        threads=1,
        flags=0,
        release_gil=False,
    )
    assert not out.any()


def test_a_launch_of_a_reduction(null: NullBackend) -> None:
    x = np.zeros((3, 100_000, 7))
    k = 2.5
    out = np.zeros((3, 7))
    km.transform_reduce(x, lambda v: v * k, axis=1, out=out)
    kernel, launch = last(null)
    assert "columns" in kernel.source.name
    assert (launch.shape, launch.flags >> KEPT_SHIFT) == ((3, 100_000, 7), 1)
    assert launch.strides == ((5_600_000, 56, 8), (56, 0, 8))
    assert launch.captures == np.array([2.5, 0]).tobytes()
    assert launch.workspace == -(-3 * 7 * 7 * 8 // 64) * 64  # a result for each chunk
    assert launch.release_gil
    assert launch.threads >= 1


def test_nothing_is_built_twice_and_nothing_is_launched_for_nothing(null: NullBackend) -> None:
    op = lambda v: v * 3 - 1
    for size in (1, 5, 1000):
        km.transform(X[:size], op)
    assert len(null.built) == 1
    assert len(null.launched) == 3
    km.transform(X[:0], op)
    km.reduce(X[:0], km.minimum)
    assert len(null.launched) == 3


def test_large_outputs_are_streamed(null: NullBackend) -> None:
    size = stream_threshold() // 2 + 1  # one byte is read, one written
    x = np.zeros(size, np.uint8)
    km.transform(x, lambda v: v + 1, out=x)
    assert last(null)[1].flags == FLAG_STREAM
    km.transform(x[1:], lambda v: v + 1, out=x[1:])
    assert last(null)[1].flags == 0


def test_a_device_is_current_inside_its_block_only(null: NullBackend) -> None:
    op = lambda v: v + 100
    with km.Device("cpu"):
        assert km.transform(X[:2], op).tolist() == [100, 101]
        with km.Device("null"):
            out = np.zeros(2, np.float32)
            km.transform(X[:2], op, out=out)
            assert not out.any()
        assert km.transform(X[:2], op).tolist() == [100, 101]  # the quick path knows them apart
    km.transform(X[:2], op, out=out)
    assert not out.any()


def test_a_default_device() -> None:
    assert current_backend().name == "cpu"
    km.set_default_device("null")
    try:
        assert current_backend().name == "null"
        with km.Device("cpu"):
            assert current_backend().name == "cpu"
    finally:
        km.set_default_device(None)
    assert current_backend().name == "cpu"
    km.set_default_device(km.Device("cpu"))
    km.set_default_device(None)


def test_the_null_device_needs_no_compiler() -> None:
    text = """
    import numpy as np, kernelmill as km
    km.transform(np.zeros(5), lambda v: v + 1)
    km.reduce(np.zeros((5, 6)), (km.add, lambda a, b: a), axis=0)
    """
    environment = {**os.environ, "KERNELMILL_DEVICE": "null", "KERNELMILL_CXX": "/nowhere"}
    subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text)],
        check=True,
        env=environment,
        timeout=600,
    )


# ----------------------------------------------------------------------------- plans


def test_a_plan_says_what_it_does(null: NullBackend) -> None:
    plan = km.transform.plan((X, X), lambda a, b: a * b + a)
    assert isinstance(plan, Plan)
    name = "transform lambda (float32 contiguous, float32 contiguous, float32 contiguous)"
    assert repr(plan) == f"<Plan {name}>"
    assert plan.explain().splitlines() == [
        name,
        "device: null",
        "cost an element: 12 bytes, 2 operations",
        f"second thread from {plan.cost.serial_below} elements",
        "binary: None",
    ]
    assert plan.source == null.built[-1].text
    assert "km_kernel" in plan.source


def test_a_plan_is_built_before_it_is_called(null: NullBackend) -> None:
    plan = km.reduce.plan(X, (km.add, km.minimum))
    assert (len(null.built), len(null.launched)) == (1, 0)
    plan(X)
    plan(X[:10])
    assert (len(null.built), len(null.launched)) == (1, 2)


@pytest.mark.parametrize(
    ("arrays", "needs"),
    [
        ((np.arange(3),), "transform lambda (int64 contiguous, int64 contiguous)"),
        ((X[::2],), "transform lambda (float32 strided, float32 contiguous)"),
        ((np.broadcast_to(X[:1], 50),), "transform lambda (float32 broadcast, float32 contiguous)"),
    ],
)
def test_a_plan_refuses_arrays_that_need_another_kernel(
    null: NullBackend, arrays: tuple[Any, ...], needs: str
) -> None:
    plan = km.transform.plan(X, lambda v: v + 1)
    with pytest.raises(km.ArgumentError) as caught:
        plan(*arrays)
    assert str(caught.value) == (
        "this plan was prepared for transform lambda (float32 contiguous, float32 contiguous), "
        f"the arrays need {needs}\n\n"
        "hint: make a plan for these arrays, or call the function itself"
    )


def test_plans_of_reductions_check_their_arrays(null: NullBackend) -> None:
    plan = km.reduce.plan(np.ones((3, 4)), axis=0)
    with pytest.raises(km.ShapeError, match=r"`out` has shape \(3,\), the result has \(4,\)"):
        plan(np.ones((3, 4)), out=np.zeros(3))
    with pytest.raises(km.ArgumentError, match=r"this plan was prepared for reduce add .*columns"):
        plan(np.ones((3, 4)).T)
    with pytest.raises(km.OperatorError, match="takes 2 arguments, got 1"):
        km.transform_reduce.plan((X, X), lambda a, b: a * b)(X)


def test_plans_of_one_element_and_of_none_serve_any_length(null: NullBackend) -> None:
    for size in (0, 1, 7):
        plan = km.transform.plan((X[:size], X[:size]), lambda a, b: a - b)
        plan(X, X)
        assert last(null)[1].shape == (1000,)


def test_results_of_the_native_path_and_of_the_general_one_are_equal() -> None:
    plan = km.transform.plan(X, lambda v: v * 2 + 1)
    total = km.reduce.plan(X.reshape(10, 100), km.maximum, axis=1)
    quick = plan(X), total(X.reshape(10, 100)), plan(X.reshape(10, 100))
    with events.listen():
        slow = plan(X), total(X.reshape(10, 100)), plan(X.reshape(10, 100))
    for a, b in zip(quick, slow, strict=True):
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


# ----------------------------------------------------------------------------- costs, events


def test_costs() -> None:
    assert Cost(8, 1).serial_below == 25_000
    assert Cost(8, 1000).serial_below == 1024
    assert Cost(1, 1).seconds < Cost(100, 1).seconds


def test_events_of_launches(null: NullBackend) -> None:
    op = lambda a, b: np.exp(a) + b
    km.transform((X[:1], X[:1]), op)  # one element must not fix the cost of all
    with events.listen("launch") as seen:
        km.transform((X, X), op)
        km.reduce(X.reshape(10, 100), km.maximum, axis=0)
    mapped, folded = seen
    assert (mapped.device, mapped.bytes, mapped.flops) == ("null", 12 * 1000, 17 * 1000)
    assert (folded.device, folded.bytes) == ("null", 4 * 1000)
    assert folded.name == "reduce maximum (float32 contiguous) columns"
    assert {e.file for e in seen} == {__file__}
    assert mapped.seconds >= 0


def test_events_of_copies(null: NullBackend) -> None:
    x = np.arange(100.0)
    with events.listen("copy") as seen:
        km.transform(x[:-1], lambda v: v + 1, out=x[1:])
        km.transform(x, lambda v: v + 1, out=x)
    assert [(e.name, e.bytes, e.reason) for e in seen] == [("inputs", 99 * 8, "overlap")]
