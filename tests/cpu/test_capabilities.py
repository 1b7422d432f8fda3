"""What `capabilities()` lists as supported is carried out; what it does not list, is refused."""

import re
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from kernelmill.algorithms import capabilities as module
from kernelmill.algorithms.capabilities import DTYPES, FAMILIES, LAYOUTS, Capabilities, capabilities
from kernelmill.algorithms.reduce import reduce
from kernelmill.algorithms.transform import transform
from kernelmill.compiler.op import WELL_KNOWN, op
from kernelmill.dtypes import SCALARS, dtype_of
from kernelmill.errors import DeviceError
from kernelmill.runtime.devices import Device
from kernelmill.structs import struct

SHAPE = (20, 24)
PAIR = struct({"key": "int32", "value": "float64"}, name="Pair")
assert ml_dtypes  # registers bfloat16 with NumPy


def sampled():
    """Every type with one layout, which differs from type to type; every layout with float32."""
    for row in capabilities().find(backend="cpu"):
        turn = DTYPES.index(row.dtype) + FAMILIES.index(row.family)
        if row.dtype in {"float32", "struct"} or row.layout == LAYOUTS[turn % len(LAYOUTS)]:
            yield row


def values(dtype, shape):
    random = np.random.default_rng(3)
    if dtype == "struct":
        made = np.empty(shape, PAIR.dtype)
        made["key"] = random.integers(-1000, 1000, shape)
        made["value"] = random.random(shape)
        return made
    numbers = random.integers(0, 100, shape)
    type_ = dtype_of(dtype).to_numpy()
    return (
        (numbers + 1j * numbers[::-1]).astype(type_) if "c" in type_.kind else numbers.astype(type_)
    )


def arranged(dtype, layout):
    rows, columns = SHAPE
    return {
        "contiguous": lambda: values(dtype, SHAPE),
        "strided": lambda: values(dtype, (rows, 2 * columns))[:, ::2],
        "broadcast": lambda: np.broadcast_to(values(dtype, (rows, 1)), SHAPE),
        "transposed": lambda: values(dtype, (columns, rows)).T,
    }[layout]()


def same(x):
    return x


def larger_key(a, b):
    return a if a.key > b.key else b


def run_transform(x):
    out = np.empty(SHAPE, x.dtype)
    assert transform(x, same, out=out) is out
    assert np.array_equal(out, x)


def run_reduce(x):
    if x.dtype == PAIR.dtype:
        found = reduce(x, op(larger_key, commutative=True))
        assert found["key"] == x["key"].max()
    else:
        found = reduce(x, WELL_KNOWN["maximum"])
        assert found == np.maximum.reduce(x, axis=None)


RUN = {"transform": run_transform, "reduce": run_reduce}


@pytest.mark.parametrize(
    "row", list(sampled()), ids=lambda row: f"{row.family}-{row.dtype}-{row.layout}"
)
def test_what_is_listed_works(row):
    assert row.supported
    RUN[row.family](arranged(row.dtype, row.layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_arrays_of_these_tests_have_the_layouts_they_are_named_for(layout):
    x = arranged("float32", layout)
    plan = transform.plan(x, same, out=np.empty(SHAPE, x.dtype))
    assert f"km::{layout}>>, km::out<" in plan.source


def test_the_sample_meets_every_type_and_every_layout_of_every_family():
    rows = list(sampled())
    for family in FAMILIES:
        assert {row.dtype for row in rows if row.family == family} == set(DTYPES)
        assert {row.layout for row in rows if row.family == family} == set(LAYOUTS)


def test_the_table_is_complete_and_has_no_row_twice():
    rows = capabilities().rows
    cells = {(row.family, row.dtype, row.layout, row.backend) for row in rows}
    assert len(cells) == len(rows) == 2 * (len(SCALARS) + 1) * 4 * 3


@pytest.mark.parametrize("backend", ["cuda", "emulator"])
def test_what_is_not_listed_is_refused_with_the_same_reason(backend):
    rows = capabilities().find(backend=backend)
    reasons = {row.reason for row in rows}
    if "" in reasons:
        assert {row.family for row in rows if row.supported} == set(FAMILIES)
        return
    (reason,) = reasons
    with pytest.raises(DeviceError, match=re.escape(reason)):
        Device(backend)


def test_a_family_without_a_form_for_a_device_is_not_listed(monkeypatch):
    """A device is there that runs transform alone."""
    only = SimpleNamespace(families=("transform",))
    monkeypatch.setattr(module, "absence", lambda _: "")
    monkeypatch.setattr(module, "backend_named", lambda _: only)
    rows = capabilities.__wrapped__().rows
    assert {row.family for row in rows if row.supported} == {"transform"}
    (reason,) = {row.reason for row in rows if not row.supported}
    assert reason == "reduce has no form for CUDA in this version"


def test_find_takes_any_combination():
    (row,) = capabilities().find(family="reduce", dtype="bfloat16", layout="strided", backend="cpu")
    assert row.supported
    assert capabilities().find(dtype="float128") == ()
    assert capabilities().find() == capabilities().rows


def test_the_text_puts_together_what_belongs_together():
    lines = [line.split() for line in str(capabilities()).splitlines()]
    assert lines[0] == ["family", "backend", "dtypes", "layouts", "supported"]
    assert lines[1] == ["transform", "cpu", "all", "all", "yes"]
    reason = capabilities().find(family="transform", backend="cuda")[0].reason
    assert " ".join(lines[2]) == f"transform cuda all all {f'no: {reason}' if reason else 'yes'}"
    assert len(lines) == 1 + 6


def test_the_text_names_exceptions(monkeypatch):
    from dataclasses import replace

    monkeypatch.setattr(module, "DTYPES", ("int8", "float16", "float32"))
    rows = tuple(
        replace(row, reason="too narrow" if (row.dtype, row.layout) == ("int8", "strided") else "")
        for row in capabilities().find(family="reduce", backend="cpu")
        if row.dtype in module.DTYPES
    )
    assert [" ".join(line.split()) for line in str(Capabilities(rows)).splitlines()[1:]] == [
        "reduce cpu int8 contiguous, broadcast, transposed yes",
        "reduce cpu int8 strided no: too narrow",
        "reduce cpu float16, float32 all yes",
    ]
