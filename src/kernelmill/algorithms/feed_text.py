"""The C++ text of a feed: a functor around a printed element, constructed from the call's record.

What an element is made of is decided in `feed_nodes.py`; plain arrays need no text, their functors
are in host/feeds.hpp and device/feeds.cuh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kernelmill.algorithms.feed_nodes import Leaf
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_definitions, type_spelling
from kernelmill.compiler.dialects import CUDA, HOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.feeds import Feed
    from kernelmill.compiler.cpp import PrintedOperator
    from kernelmill.compiler.op import Specialized
    from kernelmill.dtypes import DType, StructType
    from kernelmill.runtime.backend import Target

__all__ = [
    "FeedText",
    "PlacedFeed",
    "Way",
    "placed_feeds",
    "plain_text",
    "print_reading",
    "print_writing",
    "way_of",
]

# How a functor reaches an operand.
Way: TypeAlias = Literal["contiguous", "strided", "unaligned", "index", "address", "placed"]
_DIALECTS: Final = {"host": HOST, "cuda": CUDA}
_INCLUDES: Final = {"host": "feeds.hpp", "cuda": "feeds.cuh"}


@dataclass(frozen=True, slots=True)
class FeedText:
    """A functor: its C++ type, the expression that makes it of `call`, and what both need.

    `printed` are operators, `text` is the struct itself, which stands behind them at file scope.
    """

    type: str
    made: str
    includes: tuple[str, ...]
    printed: tuple[PrintedOperator, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class PlacedFeed:
    """A feed of a call, and where its operands and its captured scalars begin."""

    feed: Feed
    operand: int
    captures: int

    def text(self, name: str) -> FeedText:
        """Return its functor."""
        return self.feed.text(name, operand=self.operand, captures=self.captures)


def placed_feeds(
    feeds: Sequence[Feed], offsets: Sequence[int], *, operand: int, block: int
) -> list[PlacedFeed]:
    """Return feeds whose operands follow each other from `operand` on.

    `offsets` are those of the operators of a call; those of the feeds begin with number `block`.
    """
    found = []
    for feed in feeds:
        computes = feed.operator is not None
        found.append(PlacedFeed(feed, operand, offsets[block] if computes else 0))
        operand += len(feed.arguments)
        block += computes
    return found


def way_of(given: Argument, target: Target) -> Way:
    """Return how a functor reaches an operand of one dimension."""
    if isinstance(given, Leaf):
        return given.form
    view = given.view
    if target == "cuda" and not view.is_aligned:
        return "unaligned"
    return "contiguous" if view.is_c_contiguous else "strided"


def plain_text(
    kind: Literal["in", "out"], type_: DType | StructType, target: Target, operand: int
) -> FeedText:
    """Return the functor of an array that is read or written as it is."""
    spelled = type_spelling(type_, qualified=True)
    functor = f"km::plain_{kind}<{spelled}>"
    pointer = f"const {spelled}*" if kind == "in" else f"{spelled}*"
    made = f"{functor}{{({pointer})km::operand_data(call, {operand})}}"
    defined = type_definitions([type_], _DIALECTS[target])
    text = f"namespace km {{\n{defined}}}\n" if defined else ""
    return FeedText(functor, made, (_INCLUDES[target],), (), text)


def print_reading(
    name: str,
    type_: DType | StructType,
    operator: Specialized,
    operands: Sequence[tuple[DType | StructType, Way]],
    target: Target,
    *,
    operand: int,
    captures: int,
) -> FeedText:
    """Return the functor `name` of elements; operands begin at `operand`, scalars at `captures`."""
    printed = _printed(name, operator, target)
    taken = ", ".join(_taken(i, t, way) for i, (t, way) in enumerate(operands))
    body = f"    return made({taken});\n"
    text = _struct(
        name, type_, printed.name, operands, operand=operand, captures=captures,
        head="type operator()(km::i64 i) const", body=body,
    )  # fmt: skip
    return FeedText(name, f"{name}(call)", (_INCLUDES[target],), (printed,), text)


def print_writing(  # noqa: PLR0917 - a struct's parts, in their order
    name: str,
    type_: DType | StructType,
    operator: Specialized | None,
    operands: Sequence[tuple[DType | StructType, Way]],
    outputs: Sequence[tuple[DType | StructType, Way]],
    target: Target,
    *,
    operand: int,
    captures: int,
) -> FeedText:
    """Return the functor `name` that takes values; its outputs are the last operands."""
    if operator is None:  # everything is discarded
        text = (
            f"struct {name} {{\n  using type = {type_spelling(type_, qualified=True)};\n"
            "  static constexpr bool contiguous = false;\n"
            "  KM_INL void operator()(km::i64, type) const {}\n};\n"
        )
        return FeedText(name, f"{name}()", (_INCLUDES[target],), (), text)
    printed = _printed(name, operator, target)
    taken = ", ".join(["v", *(_taken(i, t, way) for i, (t, way) in enumerate(operands))])
    lines = [f"    const auto out = made({taken});"]
    for at, (stored, way) in enumerate(outputs):
        value = "out" if len(outputs) == 1 else f"out.f{at}"
        lines.append(_stored(len(operands) + at, stored, way, value))
    text = _struct(
        name, type_, printed.name, (*operands, *outputs), operand=operand, captures=captures,
        head="void operator()(km::i64 i, type v) const", body="\n".join(lines) + "\n",
    )  # fmt: skip
    return FeedText(name, f"{name}(call)", (_INCLUDES[target],), (printed,), text)


def _printed(name: str, operator: Specialized, target: Target) -> PrintedOperator:
    program = operator.translation.program
    return print_program(program, _DIALECTS[target], name=f"{name}Element")


def _struct(
    name: str,
    type_: DType | StructType,
    element: str,
    operands: Sequence[tuple[DType | StructType, Way]],
    *,
    operand: int,
    captures: int,
    head: str,
    body: str,
) -> str:
    members, starts = [f"  km::{element} made;"], [f"made(km::captures_of(call) + {captures})"]
    for at, (_, way) in enumerate(operands):
        if way == "index":
            continue
        members.append(f"  char* p{at};")
        starts.append(f"p{at}(km::operand_data(call, {operand + at}))")
        if way in ("strided", "unaligned"):
            members.append(f"  km::i64 s{at};")
            starts.append(f"s{at}(km::operand_stride(call, {operand + at}))")
    return (
        f"struct {name} {{\n"
        f"  using type = {type_spelling(type_, qualified=True)};\n"
        "  static constexpr bool contiguous = false;\n"
        + "\n".join(members)
        + f"\n  template <class Call> KM_INL explicit {name}(const Call& call)\n      : "
        + ",\n        ".join(starts)
        + f" {{}}\n  KM_INL {head} {{\n    (void)i;\n{body}  }}\n}};\n"
    )


def _place(at: int, type_: DType | StructType, way: Way) -> str:
    if way == "contiguous":  # by elements, from which a compiler sees that they adjoin
        return f"(char*)(({type_spelling(type_, qualified=True)}*)p{at} + i)"
    return f"p{at} + i * s{at}"


def _taken(at: int, type_: DType | StructType, way: Way) -> str:
    if way == "index":
        return "i"
    if way == "address":
        return f"(km::i64)p{at}"
    access = "unaligned_element" if way == "unaligned" else "element"
    return f"km::{access}<{type_spelling(type_, qualified=True)}>::load({_place(at, type_, way)})"


def _stored(at: int, type_: DType | StructType, way: Way, value: str) -> str:
    spelled = type_spelling(type_, qualified=True)
    if way == "placed":
        return (
            f"    if ({value}.f1 != km::nowhere) "
            f"km::element<{spelled}>::store(p{at} + {value}.f1, {value}.f0);"
        )
    access = "unaligned_element" if way == "unaligned" else "element"
    return f"    km::{access}<{spelled}>::store({_place(at, type_, way)}, {value});"
