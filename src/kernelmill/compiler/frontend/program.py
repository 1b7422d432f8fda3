"""Translates a whole program: one function for each choice of argument types, then the entry.

What single statements and expressions become is in `statements.py` and `expressions.py`, how
arguments are bound in `binding.py`.
"""

from __future__ import annotations

import ast
import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kernelmill.compiler import ir
from kernelmill.compiler.capture_slots import as_floats, limits_of, prune
from kernelmill.compiler.frontend import calls, statements
from kernelmill.compiler.frontend.binding import bind_arguments
from kernelmill.compiler.frontend.frame import Frame
from kernelmill.compiler.frontend.names import bound_names, parameters
from kernelmill.compiler.frontend.scope import (
    Baked,
    CapturedScalar,
    Captures,
    Surroundings,
    part_of,
)
from kernelmill.compiler.frontend.translation import Translation
from kernelmill.compiler.frontend.values import Binding, Closure, Known, Value, lift
from kernelmill.compiler.ir_verify import verify
from kernelmill.compiler.kernel_builder import KernelBuilder, has_effects, written
from kernelmill.compiler.simplify import simplify
from kernelmill.compiler.source import find_source
from kernelmill.errors import OperatorError

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from kernelmill.compiler.builder import FunctionBuilder
    from kernelmill.compiler.frontend.kernel_state import KernelState
    from kernelmill.compiler.raw import RawOp
    from kernelmill.compiler.source import FunctionSource
    from kernelmill.dtypes import Type

__all__ = ["ProgramTranslator", "translate"]


def translate(function: Callable[..., object], arg_types: Sequence[Type]) -> Translation:
    """Translate a Python function for given argument types into a verified program.

    Parameters
    ----------
    function
        A lambda, def, bound method, `functools.partial`, callable object, or a callable that the
        language knows by itself (`np.add`, `math.sqrt`, `min`, `operator.mul`). Never executed.
    arg_types
        Types of the arguments: scalars, structs or tuples.

    Returns
    -------
    Translation
        The program; captured scalars, to be read at each call; objects that shaped it.

    Raises
    ------
    OperatorError
        When the function uses what the language does not have; shows the line with a caret.

    Examples
    --------
    >>> import kernelmill as km
    >>> from kernelmill.compiler.frontend import translate
    >>> translate(min, [km.float32, km.float32]).program.entry.result
    kernelmill.float32
    """
    program = ProgramTranslator(function)
    try:
        entry = program.entry(tuple(arg_types))
        made = simplify(ir.Program((*program.functions, entry), program.capture_slots()))
        made, used = prune(made)
        made = as_floats(made)
        verify(made)
    except RecursionError:
        raise OperatorError(
            f"`{getattr(function, '__name__', 'operator')}` nests expressions too deeply",
            hint="name parts of the expression: `t = a + b`",
        ) from None
    limits, changed = limits_of(made), written(made)
    captured = []
    for slot, former in enumerate(used):
        known, type_ = program.captures.scalars[former]
        read = functools.partial(known.read, function)
        stored = made.captures[slot][1]
        array = program.captures.arrays.get(former)
        where = known.name, type_, stored, read, limits.get(slot, ()), known.read
        captured.append(CapturedScalar(*where, array, slot in changed))
    baked = [
        Baked(known.name, functools.partial(known.read, function), known.value, known.read)
        for known in program.captures.baked
        if known.key != _ENTRY
    ]
    return Translation(made, tuple(captured), tuple(baked))


_ENTRY: Final = ("entry",)


@dataclass(frozen=True, slots=True)
class _Callee:
    """A function to be specialised: where it comes from and what identifies it."""

    name: str
    source: FunctionSource
    surroundings: Surroundings
    variables: Mapping[str, Value]
    identity: Hashable


class ProgramTranslator:
    """Functions, captures and baked objects of one program."""

    def __init__(self, root: Callable[..., object]) -> None:
        self.root = root
        self.captures = Captures()
        self.functions: list[ir.Function] = []
        self._made: dict[Hashable, ir.Function] = {}
        self._names: set[str] = set()
        self._active: list[tuple[Hashable, str]] = []
        self._looping: set[str] = set()
        self.kernel: KernelState | None = None

    # ------------------------------------------------------------------ the entry

    def entry(self, arg_types: tuple[Type, ...]) -> ir.Function:
        """Translate the function that the user hands over."""
        function = self.root
        name = getattr(function, "__name__", type(function).__name__)
        known = Known(name, function, lambda root: root, _ENTRY)
        names = self._entry_names(function, arg_types)
        builder = self.builder("entry", list(zip(names, arg_types, strict=True)))
        args = [builder.param(i) for i in range(len(arg_types))]
        frame = Frame(
            program=self,
            source=calls.NO_SOURCE,
            surroundings=Surroundings({}, {}),
            builder=builder,
            names=frozenset(),
            variables={},
            bindings={},
        )
        node = frame.source.node
        result = frame.scalar(calls.call(frame, known, calls.Arguments(args), node), node)
        made = self._inlined(builder, result)
        if made is not None:
            return made
        builder.name = self._free_name(name)
        builder.return_(result)
        return builder.finish()

    @staticmethod
    def _entry_names(function: object, arg_types: tuple[Type, ...]) -> list[str]:
        code = getattr(function, "__code__", None)
        if code is not None and code.co_argcount >= len(arg_types):
            return list(code.co_varnames[: len(arg_types)])
        return [f"x{i}" for i in range(len(arg_types))]

    def _inlined(self, builder: FunctionBuilder, result: ir.Expr) -> ir.Function | None:
        """Return the called function itself as the entry when the entry would only call it."""
        call = builder.only_call(result) if isinstance(builder, KernelBuilder) else None
        if call is None:
            return None
        called = next(f for f in self.functions if f.name == call.function)
        plain = tuple(ir.Param(i, t) for i, (_, t) in enumerate(builder.params))
        if call.args != plain or len(plain) != len(called.params):
            return None
        self.functions.remove(called)
        return called

    def capture_slots(self) -> tuple[tuple[str, Type], ...]:
        """Return names and types of the captures, as identifiers without repetition."""
        taken: dict[str, Type] = {}
        for known, type_ in self.captures.scalars:
            plain = "".join(c if c.isalnum() else "_" for c in known.name).strip("_")
            taken[_free(plain, taken)] = type_
        return tuple(taken.items())

    # ------------------------------------------------------------------ functions

    def call_python(
        self, frame: Frame, function: types.FunctionType, args: calls.Arguments
    ) -> Value:
        """Call a Python function: specialise it for these arguments."""
        code = function.__code__
        if code.co_flags & (
            inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_COROUTINE
        ):
            kind = "an async function" if code.co_flags & inspect.CO_COROUTINE else "a generator"
            raise OperatorError(
                f"`{function.__name__}` is {kind}, which is not part of the operator language",
                span=find_source(function).header() if function is self.root else None,
                hint="write a plain function that returns its result",
            )
        source = find_source(function)
        defaults = self._defaults(function, source)
        surroundings = Surroundings.of(function, rooted=function is self.root)
        callee = _Callee(function.__name__, source, surroundings, {}, ("code", id(function)))
        place = None if frame.source.filename else source.header()
        bound = bind_arguments(callee.name, source, args, defaults, place)
        return self._call(frame, callee, bound)

    def call_closure(self, frame: Frame, closure: Closure, args: calls.Arguments) -> Value:
        """Call a function that stands inside the operator."""
        given = bind_arguments(closure.name, closure.source, args, closure.defaults, None)
        callee = _Callee(
            closure.name,
            closure.source,
            closure.surroundings,
            closure.variables(),
            ("node", id(closure.node)),
        )
        return self._call(frame, callee, given)

    def _call(self, frame: Frame, callee: _Callee, args: Mapping[str, Value]) -> Value:
        self._refuse_recursion(callee)
        leaves: list[tuple[str, ir.Expr]] = []
        keys: list[Hashable] = [callee.identity, id(callee.source.node)]
        given: dict[str, Value] = {}
        taken: dict[str, Value] = {}
        for target, values in ((given, args), (taken, _used(callee))):
            for name, value in values.items():
                key, target[name] = lift(value, leaves, name)
                keys.append((name, key))
        key = tuple(keys)
        made = self._made.get(key)
        if made is None:
            made = self._translate(callee, leaves, given, taken)
            self._made[key] = made
            self.functions.append(made)
        return self.called(frame, made, [value for _, value in leaves])

    @staticmethod
    def builder(name: str, params: Sequence[tuple[str, Type]]) -> FunctionBuilder:
        """Return a builder for one function."""
        return KernelBuilder(name, params)

    def called(self, frame: Frame, function: ir.Function, args: Sequence[ir.Expr]) -> Value:
        """Return the value of a call; a function that uses memory is called at its place."""
        if not has_effects(function):
            return frame.builder.call(function, args)
        assert isinstance(frame.builder, KernelBuilder)
        return frame.leaf(frame.builder.invoke(function, args))

    def combination(self, frame: Frame, op: Value, type_: Type, result: Type, node: ast.AST) -> str:
        """Translate an operator of two values of a type; return the function's name."""
        raise NotImplementedError

    def raw_function(self, raw: RawOp) -> ir.Function:
        """Return the function of a raw operator: declared arguments, then its state."""
        key = ("raw", raw.key)
        made = self._made.get(key)
        if made is None:
            params = [(f"x{i}", t) for i, t in enumerate(raw.arguments)]
            params += [(f"state{i}", s.type) for i, s in enumerate(raw.slots)]
            name = self._free_name(raw.name)
            made = ir.Function(name, tuple(params), raw.result, (), (), raw.raw)
            self._made[key] = made
            self._looping.add(name)
            self.functions.append(made)
        return made

    def _defaults(self, function: types.FunctionType, source: FunctionSource) -> dict[str, Value]:
        """Return the default values of a function's arguments: scalars among them are captured."""
        names = [p.name for p in parameters(source.node) if not p.keyword_only]
        values = function.__defaults__ or ()
        rooted = function is self.root
        owner = Known(
            function.__name__,
            function,
            (lambda root: root) if rooted else (lambda _: function),
            ("function", id(function)),
        )
        found: dict[str, Value] = {}
        for index, name in enumerate(names[len(names) - len(values) :]):
            known = part_of(owner, f".{name}", values[index], _default_at(index))
            found[name] = self.captures.value_of(known)
        for name, value in (function.__kwdefaults__ or {}).items():
            known = part_of(owner, f".{name}", value, _keyword_default(name))
            found[name] = self.captures.value_of(known)
        return found

    def _refuse_recursion(self, callee: _Callee) -> None:
        for position, (identity, _) in enumerate(self._active):
            if identity == callee.identity:
                way = [name for _, name in self._active[position + 1 :]]
                through = f" through {', '.join(f'`{n}`' for n in way)}" if way else ""
                raise OperatorError(
                    f"`{callee.name}` calls itself{through}: recursion is not part of the language",
                    hint="write the recursion as a loop",
                )

    def _translate(
        self,
        callee: _Callee,
        leaves: Sequence[tuple[str, ir.Expr]],
        args: Mapping[str, Value],
        variables: Mapping[str, Value],
    ) -> ir.Function:
        node = callee.source.node
        params: dict[str, Type] = {}
        for name, value in leaves:
            params[_free(name, params)] = value.type
        builder = self.builder(self._free_name(callee.name), list(params.items()))
        for name, type_ in params.items():
            builder.declare(name, type_)  # keeps locals from taking a parameter's name
        span = callee.source.header()
        frame = Frame(
            program=self,
            source=callee.source,
            surroundings=callee.surroundings,
            builder=builder,
            names=bound_names(node),
            variables=variables,
            bindings={name: Binding(value, span) for name, value in args.items()},
        )
        self._active.append((callee.identity, callee.name))
        try:
            statements.function_body(frame, node, callee.name)
        finally:
            self._active.pop()
        made = builder.finish()
        if self._has_loop(made):
            self._looping.add(made.name)
        return made

    def _has_loop(self, function: ir.Function) -> bool:
        return any(
            isinstance(s, (ir.For, ir.While)) or any(map(self.is_heavy, ir.operands(s)))
            for s in ir.walk_statements(function.body)
        )

    def is_heavy(self, value: ir.Expr) -> bool:
        """Whether evaluating a value may run a loop, so that it must not run in vain."""
        if not self._looping:
            return False
        nodes = ir.walk_expressions(value)
        return any(isinstance(n, ir.Call) and n.function in self._looping for n in nodes)

    def _free_name(self, name: str) -> str:
        plain = name if name.isidentifier() else "op"
        free = _free(plain, self._names)
        self._names.add(free)
        return free


def _default_at(index: int) -> Callable[[Any], object]:
    return lambda function: function.__defaults__[index]


def _keyword_default(name: str) -> Callable[[Any], object]:
    return lambda function: function.__kwdefaults__[name]


def _free(name: str, taken: Mapping[str, object] | set[str]) -> str:
    free, count = name, 1
    while free in taken:
        count += 1
        free = f"{name}_{count}"
    return free


def _used(callee: _Callee) -> dict[str, Value]:
    """Return the variables of functions around that a function inside may read."""
    if not callee.variables:
        return {}
    node = callee.source.node
    own = bound_names(node)
    read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - own
    inner = {n for n in own if any(_reads(f, n) for f in _inner_functions(node))}
    return {n: v for n, v in callee.variables.items() if n in read or n in inner}


def _inner_functions(node: ast.AST) -> list[ast.AST]:
    kinds = (ast.Lambda, ast.FunctionDef)
    return [n for n in ast.walk(node) if isinstance(n, kinds) and n is not node]


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))
