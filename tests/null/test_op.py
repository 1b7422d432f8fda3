"""Operators as objects: what they obey, how they are specialised, and how scalars are packed."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np
import pytest

import kernelmill as km
from kernelmill.compiler.captured import pack_format
from kernelmill.compiler.op import WELL_KNOWN, Op, as_op, root_of, specialize
from kernelmill.dtypes import (
    bfloat16,
    bool_,
    complex64,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    weak_complex,
    weak_float,
    weak_int,
)


def test_the_well_known_operators() -> None:
    for name, known in WELL_KNOWN.items():
        assert getattr(km, name) is known
        assert known.commutative
        assert known.function is getattr(np, name)
    assert {n for n, o in WELL_KNOWN.items() if o.wide} == {"add", "multiply"}
    assert km.add(2, 3) == 5


@pytest.mark.parametrize(
    ("name", "type_", "value"),
    [("add", float32, 0), ("multiply", int8, 1), ("minimum", float64, math.inf),
     ("minimum", int8, 127), ("minimum", bool_, 1), ("maximum", uint8, 0), ("maximum", int8, -128),
     ("maximum", float16, -math.inf), ("bitwise_and", uint8, 255), ("bitwise_and", int32, -1),
     ("bitwise_and", bool_, 1), ("bitwise_or", int32, 0), ("logical_and", bool_, 1)],
)  # fmt: skip
def test_identities_leave_every_value_alone(name: str, type_: Any, value: Any) -> None:
    known = WELL_KNOWN[name]
    assert known.identity_for(type_) == value
    identity = type_.to_numpy().type(known.identity_for(type_))
    for x in (-1, 0, 1, 2, 100):
        element = np.asarray(x).astype(type_.to_numpy())[()]
        assert known(identity, element) == known.function(element, identity)
        if not name.startswith("logical"):
            assert known(identity, element) == element


def test_op_declares() -> None:
    def f(a: Any, b: Any) -> Any:
        return a + b

    made = km.op(f, commutative=True, identity=7, name="plus")
    assert (made.name, made.commutative, made.identity_for(int8), made.wide) == (
        "plus", True, 7, False,
    )  # fmt: skip
    assert made(2, 3) == 5
    assert km.op(f).name == "f"
    assert km.op(lambda a: a).name == "lambda"
    assert km.op(functools.partial(f, 1)).name == "partial"

    @km.op(commutative=True)
    def g(a: Any, b: Any) -> Any:
        return a * b

    assert isinstance(g, Op)
    assert (g.name, g.commutative, g(2, 3)) == ("g", True, 6)


def test_as_op() -> None:
    assert as_op(np.add) is as_op(operator.add) is as_op(km.add) is km.add
    assert as_op(operator.and_) is km.bitwise_and
    assert as_op(max).name == "max"
    assert not as_op(lambda a, b: a).commutative

    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, a: Any) -> Any:
            return a

    assert as_op(Odd()).name == "Odd"
    for wrong in (3, None, "add", [len]):
        with pytest.raises(km.ArgumentError, match=r"`op` expects a function or a km\.op, got"):
            as_op(wrong)


def test_a_text_is_translated_once() -> None:
    def make(k: float) -> Any:
        return lambda a: a * k

    first = specialize(as_op(make(1.0)), (float32,))
    assert specialize(as_op(make(2.0)), (float32,)) is first
    assert specialize(as_op(make(2)), (float32,)) is not first  # a weak int
    assert specialize(as_op(make(2.0)), (float64,)) is not first
    assert specialize(as_op(make(3.0)), (float32,)) is first


def test_what_is_baked_decides_too() -> None:
    def make(inner: Any) -> Any:
        return lambda a: inner(a)

    up, down = (
        specialize(as_op(make(np.ceil)), (float32,)),
        specialize(as_op(make(np.floor)), (float32,)),
    )
    assert up is not down
    assert up.read(make(np.ceil)) == b""
    assert up.read(make(np.floor)) is None
    assert specialize(as_op(make(np.ceil)), (float32,)) is up


def test_roots_are_texts_or_the_callable_itself() -> None:
    def make(k: int) -> Any:
        return lambda a: a + k

    assert root_of(make(1)) is root_of(make(2))
    assert root_of(np.exp) is np.exp
    assert root_of(km.add) is km.add

    class Same:
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

        def __call__(self, a: Any) -> Any:
            return a

    one, two = Same(), Same()
    assert root_of(one) == root_of(one)
    assert root_of(one) != root_of(two)
    assert hash(root_of(one)) == hash(root_of(one))


def test_read_packs_as_a_c_struct() -> None:
    a, b, c, d, e, f = np.int8(-2), 7, True, 2.5, 1 + 2j, 9
    op = as_op(lambda v: (v * a, int(v) + b, c, v * d, v * e, v + f))
    found = specialize(op, (float64,))
    c_layout = np.dtype(
        {"names": [str(t) for t in range(len(found.translation.captures))],
         "formats": [{"a": "i1", "b": "i8", "c": "?", "d": "f8", "e": "c16", "f": "f8"}[t.name]
                     for t in found.translation.captures]}, align=True,
    )  # fmt: skip
    values = {"a": a, "b": b, "c": c, "d": d, "e": e, "f": f}
    wanted = np.zeros((), c_layout)
    for i, t in enumerate(found.translation.captures):
        wanted[str(i)] = values[t.name]
    packed = found.read(op.function)
    assert packed is not None
    made = np.frombuffer(packed.ljust(c_layout.itemsize, b"\0"), c_layout, count=1)[0]
    assert made.tolist() == wanted.tolist()


def test_pack_format() -> None:
    assert pack_format([int8, float64, weak_int, weak_float]).size == 32
    assert pack_format([complex64, bool_, weak_complex]).size == 32
    assert pack_format([]).size == 0
    with pytest.raises(km.DTypeError) as caught:
        pack_format([bfloat16])
    assert str(caught.value) == "a captured bfloat16 is not served\n\nhint: capture a float32"


def test_integers_are_checked_when_they_are_read() -> None:
    k = 5
    op = as_op(lambda v: v + k)
    found = specialize(op, (int8,))
    assert found.read(op.function) == (5).to_bytes(16, "little")
    k = 128
    with pytest.raises(OverflowError, match="Python integer 128 out of bounds for int8"):
        found.read(op.function)
    k = 1.5
    assert found.read(op.function) is None  # of another type now


def test_explain() -> None:
    k, t = 2, np.float32(1)
    made = km.op(lambda a, b: np.exp(a * k) + b * t, name="wave")
    assert made.explain(km.float32, km.int8).splitlines() == [
        "wave(float32, int8) -> float32",
        "captured, read at each call: k: weak int, t: float32",
        "baked into the code: np",
    ]
    assert str(specialize(as_op(lambda a: 3), (int64,)).result) == "weak int"
