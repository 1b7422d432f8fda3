"""What `capabilities()` lists as supported is carried out; what it does not list, is refused."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest

import capability_table as table
import kernelmill as km
from kernelmill.algorithms import capabilities as module
from kernelmill.algorithms.capabilities import (
    DTYPES,
    FAMILIES,
    ITERATORS,
    LAYOUTS,
    Capabilities,
    Capability,
    absence,
    capabilities,
    hole,
)
from kernelmill.dtypes import SCALARS
from kernelmill.errors import DeviceError, KernelmillError

if TYPE_CHECKING:
    from collections.abc import Iterator

CELLS = list(itertools.product(FAMILIES, DTYPES, LAYOUTS))


Cell: TypeAlias = "tuple[str, str, str]"


def pairs(cell: tuple[str, ...]) -> set[tuple[int, int, str, str]]:
    """Which values of family, type, form and back end meet in a cell."""
    return {(i, j, cell[i], cell[j]) for i, j in itertools.combinations(range(len(cell)), 2)}


def on_emulator() -> Iterator[Cell]:
    """Every family with a quarter of the forms, in turn; the types take turns too."""
    turns = itertools.product(enumerate(FAMILIES), enumerate(LAYOUTS))
    some = ((family, layout) for (i, family), (j, layout) in turns if (i + j) % 4 == 0)
    for at, (family, layout) in enumerate(some):
        yield family, DTYPES[at * 5 % len(DTYPES)], layout


def on_cpu(others: list[Cell]) -> list[Cell]:
    """Few cells in which all meet that do not meet in others: the next one has most new."""
    wanted = {pair for cell in CELLS for pair in pairs((*cell, "cpu"))}
    left = wanted - {pair for cell in others for pair in pairs((*cell, "emulator"))}
    order = np.random.default_rng(0).permutation(len(CELLS))
    cells, found, most = [CELLS[i] for i in order], [], 6
    while left:
        for cell in cells:
            fresh = pairs((*cell, "cpu")) & left
            if len(fresh) >= most:
                found.append(cell)
                left -= fresh
        most -= 1
    return found


EMULATED = list(on_emulator())
SAMPLE = on_cpu(EMULATED)


def check(cell: tuple[str, str, str], device: str) -> None:
    if device == "cuda" and absence(device):
        pytest.skip(absence(device))
    family, dtype, layout = cell
    (row,) = capabilities().find(family=family, dtype=dtype, layout=layout, backend=device)
    given, elements = table.arranged(dtype, layout)
    call = table.FAMILIES[family]
    with km.Device(device):
        if row.supported:
            found, wanted = table.there(call.call(given)), call.wanted(elements)
            several = type(wanted) is tuple
            for a, b in zip(found, wanted, strict=True) if several else [(found, wanted)]:
                np.testing.assert_array_equal(a, b)
            return
        gap = hole(family, dtype, layout)
        if gap is None:
            with pytest.raises(km.NotImplementedHere) as lacking:
                call.call(given)
            assert lacking.value.message == f"{row.reason}; the arrays are on {device}"
            return
        with pytest.raises(KernelmillError) as error:
            call.call(given)
        assert error.value.message == gap.told(dtype, elements.shape)


def named(cell: tuple[str, str, str]) -> str:
    return "-".join(cell)


@pytest.mark.parametrize("cell", SAMPLE, ids=named)
def test_on_the_cpu(cell: tuple[str, str, str]) -> None:
    check(cell, "cpu")


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("cell", EMULATED, ids=named)
def test_on_the_emulator(cell: tuple[str, str, str]) -> None:
    check(cell, "emulator")


@pytest.mark.cuda
@pytest.mark.parametrize("cell", SAMPLE, ids=named)
def test_on_a_gpu(cell: tuple[str, str, str]) -> None:
    check(cell, "cuda")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cpu", "emulator"])
@pytest.mark.parametrize("cell", CELLS, ids=named)
def test_every_cell(cell: tuple[str, str, str], place: str) -> None:
    check(cell, place)


@pytest.mark.slow
@pytest.mark.cuda
@pytest.mark.parametrize("cell", CELLS, ids=named)
def test_every_cell_on_a_gpu(cell: tuple[str, str, str]) -> None:
    check(cell, "cuda")


# ----------------------------------------------------------------------------- the sample


def test_every_family_of_the_table_has_a_call() -> None:
    assert set(table.FAMILIES) == set(FAMILIES)


def test_every_two_of_family_type_form_and_back_end_meet_in_the_sample() -> None:
    sample = [(*cell, "cpu") for cell in SAMPLE] + [(*cell, "emulator") for cell in EMULATED]
    met = set().union(*map(pairs, sample))
    assert met == {pair for c in itertools.product(CELLS, ("cpu", "emulator"))
                   for pair in pairs((*c[0], c[1]))}  # fmt: skip
    assert len(sample) < 1.2 * len(FAMILIES) * len(DTYPES)


@pytest.mark.parametrize("layout", [n for n in LAYOUTS if n not in ITERATORS])
def test_the_arrays_of_these_tests_have_the_layouts_they_are_named_for(layout: str) -> None:
    x, _ = table.arranged("float32", layout)
    plan = km.transform.plan(x, table.same, out=np.empty(x.shape, x.dtype))
    assert f"km::{layout}>>, km::out<" in plan.source


# ----------------------------------------------------------------------------- the table


def test_the_table_is_complete_and_has_no_row_twice() -> None:
    rows = capabilities().rows
    cells = {(row.family, row.dtype, row.layout, row.backend) for row in rows}
    assert len(cells) == len(rows) == len(FAMILIES) * (len(SCALARS) + 1) * len(LAYOUTS) * 3


@pytest.mark.parametrize("backend", ["cuda", "emulator"])
def test_a_device_that_is_absent_is_refused_with_the_same_reason(backend: str) -> None:
    rows = capabilities().find(backend=backend)
    if any(row.supported for row in rows):
        assert {row.family for row in rows if row.supported} == set(FAMILIES)
        return
    (reason,) = {row.reason for row in rows}
    with pytest.raises(DeviceError, match=re.escape(reason)):
        km.Device(backend)


def test_a_family_without_a_form_for_a_device_is_not_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device is there that runs transform alone."""
    only = SimpleNamespace(families=("transform",), target="cuda")
    monkeypatch.setattr(module, "absence", lambda _: "")
    monkeypatch.setattr(module, "backend_named", lambda _: only)
    rows = capabilities.__wrapped__().rows
    supported = {row.family for row in rows if row.supported}
    assert supported == {"transform", "for_each", "adjacent_difference"}
    reasons = {row.reason for row in rows if row.family == "scan"}
    assert reasons == {"scan has no form for CUDA in this version"}


def test_find_takes_any_combination() -> None:
    (row,) = capabilities().find(family="reduce", dtype="bfloat16", layout="strided", backend="cpu")
    assert row.supported
    assert capabilities().find(dtype="float128") == ()
    assert capabilities().find() == capabilities().rows


def test_the_text_puts_together_what_belongs_together() -> None:
    lines = [line.split() for line in str(capabilities()).splitlines()]
    assert lines[0] == ["family", "backend", "dtypes", "layouts", "supported"]
    assert lines[1] == ["transform", "cpu", "all", "all", "yes"]
    reason = capabilities().find(family="transform", backend="cuda")[0].reason
    assert " ".join(lines[2]) == f"transform cuda all all {f'no: {reason}' if reason else 'yes'}"


def test_the_text_names_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DTYPES", ("int8", "float16", "float32"))
    monkeypatch.setattr(module, "LAYOUTS", ("contiguous", "broadcast", "strided", "transposed"))

    def narrowed(row: Capability) -> Capability:
        return replace(row, reason="too narrow" if row.layout == "strided" else "")

    rows: tuple[Any, ...] = tuple(
        narrowed(row) if row.dtype == "int8" else row
        for row in capabilities().find(family="reduce", backend="cpu")
        if row.dtype in module.DTYPES and row.layout in module.LAYOUTS
    )
    assert [" ".join(line.split()) for line in str(Capabilities(rows)).splitlines()[1:]] == [
        "reduce cpu int8 contiguous, broadcast, transposed yes",
        "reduce cpu int8 strided no: too narrow",
        "reduce cpu float16, float32 all yes",
    ]
