"""Operators: well-known ones by `OpKind`, compiled ones by `RawOp`, functions as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from kernelmill.compiler.op import WELL_KNOWN, Op, as_op, op
from kernelmill.compiler.raw import RawOp as NativeOp
from kernelmill.dtypes import DType, StructType, bool_

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["DeviceCode", "OpAdapter", "OpKind", "RawOp", "make_op_adapter", "operator_for"]


class OpKind(IntEnum):
    """The operators that need no function."""

    STATELESS = 0
    STATEFUL = 1
    PLUS = 2
    MINUS = 3
    MULTIPLIES = 4
    DIVIDES = 5
    MODULUS = 6
    EQUAL_TO = 7
    NOT_EQUAL_TO = 8
    GREATER = 9
    LESS = 10
    GREATER_EQUAL = 11
    LESS_EQUAL = 12
    LOGICAL_AND = 13
    LOGICAL_OR = 14
    LOGICAL_NOT = 15
    BIT_AND = 16
    BIT_OR = 17
    BIT_XOR = 18
    BIT_NOT = 19
    IDENTITY = 20
    NEGATE = 21
    MINIMUM = 22
    MAXIMUM = 23


def _quotient(a: Any, b: Any) -> Any:  # Any: the operands of operators, here and below
    return a / b


def _whole_quotient(a: Any, b: Any) -> Any:
    return (a - np.fmod(a, b)) // b  # towards zero, as in C++


_COMMUTATIVE: Final[dict[OpKind, Op]] = {
    OpKind.PLUS: WELL_KNOWN["add"],
    OpKind.MULTIPLIES: WELL_KNOWN["multiply"],
    OpKind.MINIMUM: WELL_KNOWN["minimum"],
    OpKind.MAXIMUM: WELL_KNOWN["maximum"],
    OpKind.BIT_AND: WELL_KNOWN["bitwise_and"],
    OpKind.BIT_OR: WELL_KNOWN["bitwise_or"],
    OpKind.BIT_XOR: WELL_KNOWN["bitwise_xor"],
    OpKind.LOGICAL_AND: WELL_KNOWN["logical_and"],
    OpKind.LOGICAL_OR: WELL_KNOWN["logical_or"],
    OpKind.EQUAL_TO: op(lambda a, b: a == b, commutative=True),
    OpKind.NOT_EQUAL_TO: op(lambda a, b: a != b, commutative=True),
}
_OTHERS: Final[dict[OpKind, Callable[..., Any]]] = {
    OpKind.MINUS: lambda a, b: a - b,
    OpKind.DIVIDES: _quotient,
    OpKind.MODULUS: np.fmod,
    OpKind.GREATER: lambda a, b: a > b,
    OpKind.LESS: lambda a, b: a < b,
    OpKind.GREATER_EQUAL: lambda a, b: a >= b,
    OpKind.LESS_EQUAL: lambda a, b: a <= b,
    OpKind.LOGICAL_NOT: lambda a: not a,
    OpKind.BIT_NOT: lambda a: ~a,
    OpKind.IDENTITY: lambda a: a,
    OpKind.NEGATE: lambda a: -a,
}


def make_op_adapter(op: Any) -> Any:  # Any: an operator
    """Return an operator as algorithms take it: as it is, since they need no adapter.

    Raises
    ------
    TypeError
        It is none.
    """
    if isinstance(op, (OpKind, RawOp)) or callable(op):
        return op
    raise TypeError(f"{op!r} is no operator: an OpKind, a RawOp or a function")


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """Compiled code of an operator, or its text: `kind` is "ltoir" or "cpp_source".

    Raises
    ------
    ValueError
        `kind` is another one.
    """

    op_bytes: bytes
    kind: str = "ltoir"

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"DeviceCode.kind is {self.kind!r}; it is one of {', '.join(_KINDS)}")


_KINDS: Final = ("ltoir", "cpp_source")
_MOST_ALIGNED: Final = 16


@dataclass(frozen=True, eq=False, slots=True)
class RawOp:
    """An operator given as LTO-IR, or as C++ text: `void name(void* x, ..., void* result)`.

    Parameters
    ----------
    ltoir
        The code, as bytes or `DeviceCode`.
    name
        The function, with C linkage.
    state, state_alignment
        Bytes of which the function takes a copy by its first pointer, aligned to 16 at most.
    extra_ltoirs
        Further code that the function calls, of its own kind.

    Raises
    ------
    ValueError
        `state_alignment` is no power of two.
    """

    ltoir: bytes | DeviceCode = field(kw_only=True)
    name: str = field(kw_only=True)
    state: bytes = field(default=b"", kw_only=True)
    state_alignment: int = field(default=1, kw_only=True)
    extra_ltoirs: Sequence[bytes | DeviceCode] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        alignment: object = self.state_alignment  # whatever the caller gave
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"state_alignment is {alignment!r}; it is a power of two, 1 or more")

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells operators apart: their code, not their state."""
        extra = tuple(self.extra_ltoirs or ())
        return self.ltoir, self.name, len(self.state), self.state_alignment, extra

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RawOp) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


def operator_for(
    given: Any,  # Any: whatever a user may pass for an operator
    arguments: Sequence[DType | StructType],
    result: DType | StructType | None = None,
    *,
    reduces: bool = False,
) -> Op:
    """Return an operator as the families take it.

    Parameters
    ----------
    given
        An `OpKind`, a `RawOp`, or a function of the operator language.
    arguments, result
        Element types, which decide on the division of `DIVIDES` and on the types of a `RawOp`;
        predicates have no result but bool.
    reduces
        Whether values are combined in any order: `cuda.compute` asks for commutative operators.

    Raises
    ------
    TypeError
        A well-known operator meets structs or complex numbers, or it is no operator.
    ValueError
        The kind is that of an operator which is not well known.
    """
    if isinstance(given, OpKind):
        return _well_known(given, arguments)
    if isinstance(given, RawOp):
        return as_op(_native(given, arguments, result))
    if isinstance(given, Op):
        return given
    if not callable(given):
        raise TypeError(f"{given!r} is no operator: an OpKind, a RawOp or a function")
    return op(given, commutative=True) if reduces else as_op(given)


def _well_known(kind: OpKind, arguments: Sequence[DType | StructType]) -> Op:
    if kind in (OpKind.STATELESS, OpKind.STATEFUL):
        raise ValueError(f"OpKind.{kind.name} names no operator; take OpKind.PLUS, for example")
    for type_ in arguments:
        if isinstance(type_, StructType) or type_.kind == "complex":
            raise TypeError(
                f"OpKind.{kind.name} is not supported for struct or other opaque types "
                f"({type_.to_numpy()}); pass a function instead"
            )
    if kind is OpKind.DIVIDES and all(isinstance(t, DType) and t.is_integer for t in arguments):
        return as_op(_whole_quotient)
    return _COMMUTATIVE[kind] if kind in _COMMUTATIVE else as_op(_OTHERS[kind])


def _native(
    given: RawOp, arguments: Sequence[DType | StructType], result: DType | StructType | None
) -> NativeOp:
    if given.state_alignment > _MOST_ALIGNED:
        raise TypeError(
            f"the state of RawOp {given.name!r} is to be aligned to {given.state_alignment}; "
            f"states are aligned to {_MOST_ALIGNED}"
        )
    codes = [_code(c) for c in (*(given.extra_ltoirs or ()), given.ltoir)]
    if len({code.kind for code in codes}) > 1:
        raise TypeError(f"RawOp {given.name!r} is of LTO-IR and of C++ text; one of them is taken")
    kept: dict[str, Any]
    if codes[-1].kind == "cpp_source":
        kept = {"cpp": "\n".join(code.op_bytes.decode() for code in codes)}
    else:
        kept = {"ltoir": codes[-1].op_bytes, "linked": [code.op_bytes for code in codes[:-1]]}
    if given.state:
        kept["state"] = bytes(given.state)
    return NativeOp(
        **kept, name=given.name, arguments=arguments, result=result or bool_, by_pointer=True
    )


# What `make_op_adapter` returns.
OpAdapter: TypeAlias = "OpKind | RawOp | Callable[..., Any]"


def _code(given: bytes | DeviceCode) -> DeviceCode:
    return given if isinstance(given, DeviceCode) else DeviceCode(given)
