"""Iterators leave no trace in machine code: as many instructions as in a kernel fused by hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km
from kernelmill import iterators as it
from kernelmill.runtime.backend import KernelSource
from kernelmill.runtime.cuda.images import image_of
from kernelmill.toolchain.disassembler import disassemble, find_nvdisasm

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")
pytestmark = pytest.mark.skipif(find_nvdisasm() is None, reason="needs nvdisasm")

X = np.zeros(64, np.float32)
SCALE = 2.0

# The operator as one would write it for the loop: index and element in, one result.
FUSED = """
#include "base.hpp"
#include "transform.cuh"
namespace km {{
struct Op {{
  {members}
  KM_INL explicit Op(const void* packed) : {loads} {{}}
  KM_INL {result} operator()(i64 i, f32 x) const {{ return {body}; }}
}};
}}
typedef km::transform<km::Op, km::in<km::arg<km::i64, km::index>, km::arg<km::f32, km::contiguous>>,
    km::out<km::arg<km::{result}, km::contiguous>>, {captured}, {captured}, {wide}, {packets}> Run;
KM_EXPORT void __launch_bounds__(128)
km_kernel(const __grid_constant__ Run::call call) {{ Run::flat(call); }}
"""


def instructions(text: str, arch: str) -> list[str]:
    image = image_of(KernelSource("fused", text, 128), arch)
    assert image.log == ""
    code = re.findall(
        r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", disassemble(image.data)
    )
    return [name for name in code if name != "NOP"]


CASES: dict[str, tuple[Callable[[], Any], dict[str, str]]] = {
    "zip of transform of counting": (
        lambda: km.transform.plan(
            it.zip(it.transform(it.counting(7), lambda i: np.float32(i) * np.float32(3)), X),
            lambda p: p[0] + p[1],
        ),
        {
            "members": "i64 start;",
            "loads": "start(element<i64>::load((const char*)packed))",
            "body": "f32(start + i) * 3.0f + x",
            "result": "f32",
        },
    ),
    "captured scalar in a nest": (
        lambda: km.transform.plan(
            it.transform(it.zip(it.counting(), it.transform(X, lambda v: v * SCALE)),
                         lambda p: p[1] - np.float32(p[0])),
            lambda v: v * v,
        ),
        {
            "members": "f64 scale;",
            "loads": "scale(element<f64>::load((const char*)packed))",
            "body": "(x * f32(scale) - f32(i)) * (x * f32(scale) - f32(i))",
            "result": "f32",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", CASES)
def test_as_many_instructions_as_by_hand(name: str, arch: str) -> None:
    made, parts = CASES[name]
    with km.Device("emulator"):
        text = made().source
    numbers = re.search(r", (\d+), \d+, (\d+), (\d+)> Run;", text)
    assert numbers is not None
    captured, wide, packets = numbers.groups()
    hand = FUSED.format(**parts, captured=captured, wide=wide, packets=packets)
    ours, theirs = instructions(text, arch), instructions(hand, arch)
    assert len(theirs) > 20
    assert abs(len(ours) - len(theirs)) <= 2, (len(ours), len(theirs))


ZIPPED = it.zip(it.transform(it.counting(7), lambda i: np.float32(i) * np.float32(3)), X)
# In the text of a call with it: the struct that computes an element, and how one would write it.
FAMILIES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "reduce": (
        lambda: km.reduce.plan(it.transform(ZIPPED, lambda p: p[0] + p[1])),
        "Element",
        """struct Element {
  i64 start;
  KM_INL explicit Element(const void* packed) : start(element<i64>::load((const char*)packed)) {}
  KM_INL f32 operator()(i64 i, f32 x) const { return f32(start + i) * 3.0f + x; }
};""",
    ),
    "scan": (
        lambda: km.inclusive_scan.plan(it.transform(ZIPPED, lambda p: p[0] + p[1])),
        "FeedOf",
        """struct FeedOf {
  using type = km::f32;
  static constexpr bool contiguous = false;
  const km::f32* data;
  km::i64 start;
  template <class Call> KM_INL explicit FeedOf(const Call& c)
      : data((const km::f32*)c.data[1]), start(*(const km::i64*)c.captures) {}
  KM_INL type operator()(km::i64 i) const { return km::f32(start + i) * 3.0f + data[i]; }
};""",
    ),
    "select": (
        lambda: km.select.plan(ZIPPED, lambda p: p[0] > p[1]),
        "Feed0",
        """struct Feed0 {
  using type = STRUCT;
  static constexpr bool contiguous = false;
  const km::f32* data;
  km::i64 start;
  template <class Call> KM_INL explicit Feed0(const Call& c)
      : data((const km::f32*)c.data[1]), start(*(const km::i64*)c.captures) {}
  KM_INL type operator()(km::i64 i) const { return {km::f32(start + i) * 3.0f, data[i]}; }
};""",
    ),
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", FAMILIES)
def test_families_have_as_many_instructions_as_by_hand(name: str, arch: str) -> None:
    made, struct, hand = FAMILIES[name]
    with km.Device("emulator"):
        text = made().source
    found = re.search(rf"^struct {struct} \{{\n.*?^\}};$", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    type_ = re.search(r"using type = (.*);", found[0])
    hand = hand.replace("STRUCT", type_[1] if type_ else "")
    theirs = instructions(text.replace(found[0], hand), arch)
    ours = instructions(text, arch)
    assert text.replace(found[0], hand) != text
    assert len(theirs) > 50
    assert abs(len(ours) - len(theirs)) <= 2, (len(ours), len(theirs))


def test_nested_arrays_are_read_in_packets() -> None:
    with km.Device("emulator"):
        plan = km.transform.plan(
            it.transform((X, it.reverse(it.reverse(X))), lambda a, b: a + b), lambda v: v
        )
    code = instructions(plan.source, "sm_90")
    assert "LDG.E.128" in " ".join(code) or any(c.startswith("LDG.E.128") for c in code)
    # One array that occurs twice is loaded once: as many loads as for a plain transform of it.
    with km.Device("emulator"):
        plain = km.transform.plan(X, lambda v: v + v)
    loads = [
        sum(c.startswith("LDG") for c in instructions(p.source, "sm_90")) for p in (plan, plain)
    ]
    assert loads[0] == loads[1]
