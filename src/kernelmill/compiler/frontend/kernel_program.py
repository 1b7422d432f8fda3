"""Translates a kernel: a procedure over arrays, for one choice of arguments and one shape of block.

Everything but memory and threads is that of operators: `program.py`. Captured scalars are baked.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from kernelmill.compiler import ir
from kernelmill.compiler.builder import convert
from kernelmill.compiler.divergence import check_barriers
from kernelmill.compiler.frontend import calls, statements
from kernelmill.compiler.frontend.frame import Frame
from kernelmill.compiler.frontend.kernel_state import KernelState
from kernelmill.compiler.frontend.names import bound_names
from kernelmill.compiler.frontend.program import ProgramTranslator
from kernelmill.compiler.frontend.scope import Baked, Captures, Surroundings
from kernelmill.compiler.frontend.values import Binding, Closure, Known, Value
from kernelmill.compiler.ir_verify import verify
from kernelmill.compiler.kernel_builder import KernelBuilder, has_effects
from kernelmill.compiler.kernel_ir import UNIT, Array, Invoke, Kernel, Perform
from kernelmill.compiler.kernel_verify import verify_kernel
from kernelmill.compiler.narrow import narrow
from kernelmill.compiler.simplify import drop_unread
from kernelmill.compiler.source import find_source
from kernelmill.dtypes import storage
from kernelmill.errors import OperatorError

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Sequence

    from kernelmill.compiler.arrays import ArrayType
    from kernelmill.compiler.source import FunctionSource
    from kernelmill.dtypes import Type

__all__ = [
    "ArrayArgument",
    "FixedArgument",
    "KernelTranslation",
    "ScalarArgument",
    "translate_kernel",
]


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An argument that is an array; `array.name` is that of the parameter."""

    array: Array


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """An argument that is passed by value; `limits` bounds an integer."""

    name: str
    type: Type
    limits: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class FixedArgument:
    """An argument that is baked into the kernel: a number, a dtype, a function."""

    name: str
    value: object


Argument: TypeAlias = ArrayArgument | ScalarArgument | FixedArgument


@dataclass(frozen=True, slots=True)
class KernelTranslation:
    """A kernel, the objects of its surroundings that shaped it, and where its text stands."""

    kernel: Kernel
    baked: tuple[Baked, ...]
    source: FunctionSource


def translate_kernel(
    function: types.FunctionType,
    arguments: Sequence[Argument],
    *,
    block: tuple[int, int, int],
    flat: bool = True,
    wide: bool = False,
    debug: bool = False,
    disjoint: bool = False,
    small: bool = True,
    covered: tuple[bool, ...] = (),
) -> KernelTranslation:
    """Translate a Python function into a verified kernel.

    Parameters
    ----------
    function
        Never executed.
    arguments
        What is passed, in the order of the parameters.
    block
        Threads of a block in x, y, z.
    flat
        Whether the blocks of the grid lie in one direction.
    wide
        Whether an array has more than 2**30 elements, so that indices have 64 bits.
    debug
        Check indices.
    disjoint
        Whether no array that is passed overlaps another one.
    small
        Whether the grid has at most 2**30 threads.
    covered
        Of each loop over the grid, whether no thread makes a second turn.

    Raises
    ------
    OperatorError
        When the function uses what kernels do not have; shows the line with a caret.
    """
    program = _KernelTranslator(function, KernelState(block, flat, debug))
    try:
        made = program.kernel_entry(function, arguments)
        functions = tuple(drop_unread(f) for f in (*program.functions, made))
        functions = _reached(functions)
        verify(ir.Program(functions))
        check_barriers(ir.Program(functions))
    except RecursionError:
        raise OperatorError(
            f"`{function.__name__}` nests expressions too deeply",
            hint="name parts of the expression: `t = a + b`",
        ) from None
    scalars = [a for a in arguments if isinstance(a, ScalarArgument)]
    order: list[str | int] = []
    for argument in arguments:
        if isinstance(argument, ArrayArgument):
            order.append(argument.array.name)
        elif isinstance(argument, ScalarArgument):
            order.append(scalars.index(argument))
    assert program.kernel is not None
    kernel = Kernel(
        function.__name__,
        ir.Program(functions),
        tuple(program.kernel.arrays.values()),
        tuple(order),
        block,
        wide=wide,
        debug=debug,
        disjoint=disjoint,
        small=small,
        covered=covered,
        limits=tuple(s.limits for s in scalars),
    )
    kernel = narrow(kernel)
    verify_kernel(kernel)
    baked = tuple(
        Baked(k.name, _reader(k, function), k.value, k.read) for k in program.captures.baked
    )
    return KernelTranslation(kernel, baked, program.source)


def _reader(known: Known, function: object) -> Callable[[], object]:
    return lambda: known.read(function)


def _reached(functions: tuple[ir.Function, ...]) -> tuple[ir.Function, ...]:
    """Drop functions that nothing calls."""
    wanted = {functions[-1].name}
    for function in reversed(functions):
        if function.name in wanted:
            wanted |= set(called_by(function))
    return tuple(f for f in functions if f.name in wanted)


def called_by(function: ir.Function) -> list[str]:
    """Return the names of the functions that a function calls."""
    names: list[str] = []
    for statement in ir.walk_statements(function.body):
        if isinstance(statement, Invoke):
            names.append(statement.call.function)
        if isinstance(statement, Perform) and statement.function:
            names.append(statement.function)
        for operand in ir.operands(statement):
            nodes = ir.walk_expressions(operand)
            names += [n.function for n in nodes if isinstance(n, ir.Call)]
    return names


class _BakedCaptures(Captures):
    """Captured scalars become literals: another value is another kernel."""

    def _scalar(self, known: Known, type_: Type) -> ir.Expr:
        self.bake(known)
        value = known.value
        return ir.Const(value.item() if isinstance(value, np.generic) else value, type_)  # type: ignore[arg-type]  # captured_type admits scalars only

    def _array(self, known: Known, type_: ArrayType) -> Value:
        """Leave arrays to `kernel_value`, which makes them constant memory."""
        del type_
        return known


class _KernelTranslator(ProgramTranslator):
    """Functions, memory and baked objects of one kernel."""

    source: FunctionSource

    def __init__(self, root: types.FunctionType, state: KernelState) -> None:
        super().__init__(root)
        self.captures = _BakedCaptures()
        self.kernel = state

    def kernel_entry(
        self, function: types.FunctionType, arguments: Sequence[Argument]
    ) -> ir.Function:
        """Translate the kernel itself."""
        source = self.source = find_source(function)
        node = source.node
        if function.__code__.co_flags & _GENERATORS:
            raise OperatorError(
                f"`{function.__name__}` is a generator or an async function, not a kernel",
                span=source.header(),
                hint="write a plain function that writes its results to arrays",
            )
        scalars = [a for a in arguments if isinstance(a, ScalarArgument)]
        builder = KernelBuilder(
            self._free_name(function.__name__), [(s.name, s.type) for s in scalars]
        )
        for scalar in scalars:
            builder.declare(scalar.name, scalar.type)
        span = source.header()
        frame = Frame(
            program=self,
            source=source,
            surroundings=Surroundings.of(function, rooted=True),
            builder=builder,
            names=bound_names(node),
            variables={},
            bindings={},
            is_kernel=True,
        )
        for name, value in self._arguments(builder, arguments, scalars).items():
            frame.bindings[name] = Binding(value, span)
        self._active.append((("code", id(function)), function.__name__))
        statements.function_body(frame, node, function.__name__)
        return builder.finish()

    def _arguments(
        self,
        builder: KernelBuilder,
        arguments: Sequence[Argument],
        scalars: list[ScalarArgument],
    ) -> dict[str, Value]:
        assert self.kernel is not None
        found: dict[str, Value] = {}
        for argument in arguments:
            match argument:
                case ArrayArgument(array):
                    found[array.name] = self.kernel.argument(array)
                case ScalarArgument(name):
                    found[name] = builder.param(scalars.index(argument))
                case FixedArgument(name, value):
                    found[name] = self._fixed(name, value)
        return found

    def _fixed(self, name: str, value: object) -> Value:
        known = Known(name, value, lambda _: value, ("argument", name), constant=True)
        return _BakedCaptures().value_of(known)

    def called(self, frame: Frame, function: ir.Function, args: Sequence[ir.Expr]) -> Value:
        """Return the value of a call; a function with effects is called at its place."""
        if not has_effects(function):
            return frame.builder.call(function, args)
        assert isinstance(frame.builder, KernelBuilder)
        made = frame.builder.invoke(function, args)
        if function.result == UNIT:
            name = f"{function.name}(...)"
            return Known(name, None, lambda _: None, ("nothing", name), constant=True)
        return frame.leaf(made)

    def combination(self, frame: Frame, op: Value, type_: Type, result: Type, node: ast.AST) -> str:
        """Translate an operator of two values of a type; return the function's name."""
        if isinstance(op, Closure) and _uses_values(op):
            raise frame.refusal(
                node,
                "the operator of a reduction uses variables or memory of the kernel",
                "let it compute from its two arguments alone",
            )
        builder = KernelBuilder(self._free_name("combine"), [("a", type_), ("b", type_)])
        inner = Frame(
            program=self,
            source=frame.source,
            surroundings=frame.surroundings,
            builder=builder,
            names=frozenset(),
            variables={},
            bindings={},
        )
        pair = [builder.param(0), builder.param(1)]
        with frame.at(node):
            made = inner.scalar(calls.call(inner, op, calls.Arguments(pair), node), node)
            if type_ != result and storage(made.type) != result:
                raise frame.refusal(
                    node,
                    f"the comparator returns {made.type}; a comparator returns a bool",
                    "say whether the first value comes before the second",
                )
            builder.return_(convert(builder.cast(made, result), result))
        combine = builder.finish()
        if has_effects(combine):
            raise frame.refusal(
                node,
                "the operator of a reduction reads or changes memory",
                "let it compute from its two arguments alone",
            )
        self.functions.append(combine)
        return combine.name


def _uses_values(closure: Closure) -> bool:
    """Whether a function inside the kernel uses what the kernel computes around it."""
    own = bound_names(closure.node)
    read = {n.id for n in ast.walk(closure.node) if isinstance(n, ast.Name)} - own
    for name, value in closure.variables().items():
        if name not in read or isinstance(value, (Known, ir.Const)):
            continue
        if not isinstance(value, Closure) or _uses_values(value):
            return True
    return False


_GENERATORS: Final = 0x20 | 0x80 | 0x200
