"""Nodes that say how an element of an iterator is computed; `weave.py` makes a program of them.

Which nodes an iterator is made of, and where numbers and addresses come from, is in
`feed_nodes.py`. A node compares by what it is made of, so that an element of the same structure is
woven once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kernelmill.compiler.op import Specialized
    from kernelmill.dtypes import DType, StructType, Type

__all__ = [
    "Apply",
    "Choose",
    "Clip",
    "Count",
    "Element",
    "Index",
    "Input",
    "Leaf",
    "Node",
    "Number",
    "Pack",
    "Part",
    "Place",
    "Shuffled",
    "Stored",
    "Value",
]

Item: TypeAlias = "DType | StructType"


@dataclass(frozen=True, slots=True)
class Leaf:
    """Parameter `at`: an element of an array, the index of the loop, or an address."""

    at: int
    type: Type


@dataclass(frozen=True, slots=True)
class Input:
    """The value that an output takes: the first parameter, before the operands."""

    type: Type


@dataclass(frozen=True, slots=True)
class Number:
    """Number `slot` of the call."""

    slot: int
    type: DType


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the call, from as many numbers as it has scalars, from `slot` on."""

    slot: int
    type: Item


@dataclass(frozen=True, slots=True)
class Index:
    """`first + step * of`; a step of 1 or -1 is part of the text, `first` may be absent."""

    first: Number | None
    step: Number | int
    of: Node


@dataclass(frozen=True, slots=True)
class Count:
    """`start + step * of` in the type of the elements."""

    start: Number
    step: Number | None
    of: Node
    type: DType


@dataclass(frozen=True, slots=True)
class Clip:
    """An index, or the nearest one from 0 to `last`."""

    of: Node
    last: Number


@dataclass(frozen=True, slots=True)
class Element:
    """What lies `step` bytes times an index behind an address; `how` names the function."""

    how: str
    address: Leaf
    step: Number
    of: Node
    type: Item


@dataclass(frozen=True, slots=True)
class Place:
    """A value, and how far behind an address it belongs: nowhere where the index is none."""

    value: Node
    of: Node
    count: Number
    step: Number
    type: Item


@dataclass(frozen=True, slots=True)
class Shuffled:
    """The place of an index in an order of all below a count; `numbers` are count, bits and key."""

    of: Node
    numbers: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """Operator number `at` of the call, applied; converted to `type` where that is given."""

    at: int
    operator: Specialized
    args: tuple[Node, ...]
    type: Type | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    """Several values as a struct, or as a tuple where there is none."""

    items: tuple[Node, ...]
    type: StructType | None


@dataclass(frozen=True, slots=True)
class Choose:
    """One value where `test` is true, else another one of the same type."""

    test: Node
    then: Node
    orelse: Node


@dataclass(frozen=True, slots=True)
class Stored:
    """A value in the type in which it is stored."""

    of: Node
    type: Item


@dataclass(frozen=True, slots=True)
class Part:
    """Item `at` of a struct or a tuple; of any other value the value itself."""

    of: Node
    at: int


Node: TypeAlias = (
    "Leaf | Input | Number | Value | Index | Count | Clip | Element | Place | Shuffled | Apply"
    " | Pack | Choose | Stored | Part"
)
