"""What stands before the first value of a scan: an `init`, here or on a device, or an identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmill.algorithms.arguments import Argument, argument
from kernelmill.compiler.builder import FunctionBuilder, convert
from kernelmill.compiler.ir import Program
from kernelmill.dtypes import DType, bfloat16, can_store
from kernelmill.errors import ArgumentError, DTypeError, ShapeError
from kernelmill.runtime.memory import array_of

if TYPE_CHECKING:
    from kernelmill.algorithms.folds import Fold

__all__ = ["Seed", "init_of", "seed_of"]


@dataclass(frozen=True, slots=True)
class Seed:
    """The value before the first: of the host, as captured scalars, or an array of a device."""

    part: Program | None = None
    scalars: bytes = b""
    operand: Argument | None = None


def init_of(init: Any, x: Argument) -> tuple[Any, Argument | None]:
    """Return `init` as a number or a record, or as an argument where it is on a device."""
    if init is None or isinstance(init, np.generic) or not hasattr(init, "shape"):
        return init, None
    given = argument(
        init, "init", on_cuda=x.view.place is not None and not isinstance(init, np.ndarray)
    )
    if given.view.shape != ():
        raise ShapeError(
            f"`init` has shape {given.view.shape}; expected: a number or an array of no dimensions"
        )
    if given.view.place is None:
        value = array_of(given.view)
        if given.view.dtype is bfloat16:  # as its bits; a Python number is of any float type
            return float((value.astype(np.uint32) << 16).view(np.float32)), None
        return value[()], None
    if given.view.place != x.view.place:
        raise ArgumentError(f"`init` is on {given.view.place}, `x` on {x.view.place}")
    return None, given


def seed_of(fold: Fold, operand: Argument | None, *, exclusive: bool) -> Seed:
    """Return what stands before the first: `init`, for exclusive scans else the identity."""
    if operand is not None:
        type_ = operand.view.dtype
        if type_ != fold.accumulator and not can_store(type_, fold.accumulator):
            raise DTypeError(
                f"`init` is {type_}, the scan accumulates in {fold.accumulator}: "
                "not of the same kind",
                hint="convert it, or pass another `dtype=`",
            )
        builder = FunctionBuilder("start", [("init", type_)])
        value = builder.param(0)
        builder.return_(value if type_ == fold.accumulator else convert(value, fold.accumulator))
        return Seed(Program((builder.finish(),), ()), b"", operand)
    if fold.init is None and not exclusive:
        return Seed()
    if fold.init is None and fold.op.identity_for(fold.accumulator) is None:
        raise ArgumentError(
            f"exclusive_scan with {fold.op.name}, which has no identity, has no first element",
            hint="pass `init=`, or declare one: `km.op(f, identity=...)`",
        )
    if fold.init is None and isinstance(fold.accumulator, DType):
        identity: Any = fold.op.identity_for(fold.accumulator)
        builder = FunctionBuilder("start", [])
        builder.return_(convert(builder.const(identity), fold.accumulator))
        return Seed(Program((builder.finish(),), ()))
    program, scalars = fold.constant(fold.accumulator)
    return Seed(program, scalars)
