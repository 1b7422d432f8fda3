"""Prints kernels as CUDA C++: one struct with arrays as members, and the entry that fills it.

Expressions and control flow are printed as operators' are (`cpp_expr.py`, `cpp_body.py`); here are
memory and parameters, functions are in
`cpp_kernel_body.py`. What the text calls is in `device/kernel.cuh`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from kernelmill.compiler import ir
from kernelmill.compiler.cpp import program_types
from kernelmill.compiler.cpp_kernel_body import (
    KernelFunctionPrinter,
    KernelScope,
    element_count,
    element_spelling,
    is_spelled_out,
    line_directive,
)
from kernelmill.compiler.cpp_raw import print_raw, raw_text
from kernelmill.compiler.cpp_types import (
    Names,
    choose_definitions,
    literal,
    type_definitions,
    type_spelling,
)
from kernelmill.compiler.dialects import CUDA, KERNEL
from kernelmill.compiler.intrinsics import EFFECTS
from kernelmill.compiler.kernel_ir import (
    UNIT,
    Array,
    Atomic,
    Effect,
    Extent,
    Kernel,
    Perform,
    Store,
)
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    Type,
    bool_,
    storage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelmill.compiler.dialects import Dialect
    from kernelmill.errors import SourceSpan

_LINE: Final = "#line "
# Registers of a block, of every chip that is served; they are given out to warps, so many a thread.
_REGISTERS: Final = 1 << 16
_REGISTER_UNIT: Final = 8
_WARP: Final = 32

__all__ = ["KernelParameter", "PrintedKernel", "print_kernel", "written_arrays"]


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A parameter of the entry: what it is taken from, and its type.

    `kind` is "data" (address), "shape" or "stride" of dimension `dim` of the array `name`, or
    "scalar": the argument `name` by value.
    """

    kind: str
    name: str
    dim: int
    type: DType | StructType | None


@dataclass(frozen=True, slots=True)
class PrintedKernel:
    """A kernel as CUDA C++ text; `entry` is the symbol, `parameters` what a launch passes."""

    entry: str
    text: str = field(repr=False)
    parameters: tuple[KernelParameter, ...]


def print_kernel(
    kernel: Kernel,
    *,
    exact: bool = False,
    lines: bool = True,
    head: SourceSpan | None = None,
    registers: int | None = None,
) -> PrintedKernel:
    """Print a verified kernel.

    With `exact`, functions are the project's own, equal to the bit on all devices; else those of
    CUDA. With `lines`, `#line` names the user's lines; what belongs to no statement is counted for
    `head`, the first line of the Python function. `registers` is the most that the compiler will be
    told to take.
    """
    dialect = CUDA if exact else KERNEL
    return _KernelPrinter(kernel, dialect, lines=lines, head=head, registers=registers).print()


class _KernelPrinter:
    """Prints one kernel."""

    def __init__(
        self,
        kernel: Kernel,
        dialect: Dialect,
        *,
        lines: bool,
        head: SourceSpan | None,
        registers: int | None,
    ) -> None:
        self.kernel, self.registers = kernel, registers
        self.head = [line_directive(head)] if lines and head is not None else []
        types = [t for t in program_types(kernel.program) if t != UNIT]
        self.types = tuple(dict.fromkeys((*types, *(a.dtype for a in kernel.arrays))))
        if any(isinstance(t, (StructType, TupleType)) for t in self.types):
            dialect = dialect.for_neighbours()
        self.written = written_arrays(kernel)
        self.scope = KernelScope(kernel, dialect, written=self.written, lines=lines)

    def print(self) -> PrintedKernel:
        kernel = self.kernel
        bodies: list[list[str]] = []
        chosen: list[Type] = []
        raw = ""
        for function in kernel.program.functions:
            spelled = self.scope.functions.get(function.name, "run")
            if function.raw is not None:
                raw += raw_text(function, function.raw, self.scope.dialect)
                bodies.append(print_raw(function, function.raw, self.scope.dialect, spelled))
                continue
            printer = KernelFunctionPrinter(self.scope, function)
            own = self.head if function is kernel.program.entry else []
            bodies.append(_numbered([*own, *printer.print(spelled)]))
            chosen += printer.chosen
        definitions = type_definitions(self.types, self.scope.dialect)
        choices = choose_definitions(chosen, self.scope.dialect)
        lines = [*self._constants(), "struct Kernel {", *map(_indented, self._members())]
        for body in bodies:
            lines += ["", *map(_indented, body)]
        parameters = tuple(self._parameters())
        entry = (
            f"km_{kernel.name}"
            if kernel.name.isascii() and kernel.name.isidentifier()
            else "km_kernel"
        )
        body_text = "\n".join([*lines, "};"])
        includes = "".join(
            f'#include "{f}"\n' for f in (*self.scope.headers.files(), *self._headers())
        )
        shown = "\n".join(_numbered([*self.head, *self._entry(entry, parameters)]))
        text = (
            f"// {_signature(kernel)}\n{includes}\n{raw}namespace km {{\n\n{definitions}{choices}"
            f"{body_text}\n\n}}  // namespace km\n\n{shown}\n"
        )
        return PrintedKernel(entry, text, parameters)

    def _headers(self) -> tuple[str, ...]:
        """Return the files of what is called: functions of threads in some are seldom used."""
        statements = (s for f in self.kernel.program.functions for s in ir.walk_statements(f.body))
        called = {EFFECTS[s.op].header for s in statements if isinstance(s, Perform)}
        return ("kernel.cuh", *sorted(called - {""}))

    # ------------------------------------------------------------------ memory

    def _constants(self) -> Iterator[str]:
        for array in self.kernel.arrays:
            if array.space == "constant":
                yield from _constant(array, self.scope.members[array.name], self.scope.dialect)

    def _members(self) -> Iterator[str]:
        for array in self.kernel.arrays:
            name, spelled = self.scope.members[array.name], self.scope.spelled_array(array)
            if array.space == "global":
                yield f"{spelled} {name};"
            elif array.space in ("shared", "dynamic"):
                yield f"static KM_INL {spelled} {name}() {{"
                yield from (f"  {line}" for line in _room(array, name))
                yield "}"

    # ------------------------------------------------------------------ the entry

    def _parameters(self) -> Iterator[KernelParameter]:
        params = self.kernel.program.entry.params
        shown = _extents(self.kernel)
        for argument in self.kernel.arguments:
            if isinstance(argument, int):
                name, type_ = params[argument]
                stored = storage(type_)
                assert isinstance(stored, (DType, StructType))
                yield KernelParameter("scalar", name, argument, stored)
                continue
            array = self.kernel.array(argument)
            yield KernelParameter("data", argument, 0, None)
            for dim in range(array.ndim):
                inner = array.layout == "contiguous" and dim > 0
                if inner or (argument, dim) in shown:
                    yield KernelParameter("shape", argument, dim, None)
            if array.layout != "contiguous":
                steps = array.ndim - (1 if array.layout == "rows" else 0)
                for dim in range(steps):
                    yield KernelParameter("stride", argument, dim, None)

    def _entry(self, entry: str, parameters: Sequence[KernelParameter]) -> Iterator[str]:
        names = {p: _parameter_name(p) for p in parameters}
        shown = ", ".join(f"{self._parameter_type(p)} {names[p]}" for p in parameters)
        yield f"KM_EXPORT void {self._bounds()}{entry}({shown}) {{"
        arrays = [a for a in self.kernel.arrays if a.space == "global"]
        members = [self._filled(array, names) for array in arrays]
        yield f"  const km::Kernel kernel{{{', '.join(members)}}};"
        scalars = {p.dim: names[p] for p in parameters if p.kind == "scalar"}
        given = [
            f"{scalars[i]} != 0" if storage(t) == bool_ else scalars[i]
            for i, (_, t) in enumerate(self.kernel.program.entry.params)
        ]
        yield f"  kernel.run({', '.join(given)});"
        yield "}"

    def _bounds(self) -> str:
        """Return the launch bounds; none where a limit on registers is to count.

        The compiler forgets the limit where there are bounds. They stay where the block could not
        be launched with as many registers: then they are the tighter limit.
        """
        if self.registers is not None:
            each = -(-self.registers // _REGISTER_UNIT) * _REGISTER_UNIT
            if -(-self.kernel.threads // _WARP) * _WARP * each <= _REGISTERS:
                return ""
        return f"__launch_bounds__({self.kernel.threads}) "

    def _filled(self, array: Array, names: dict[KernelParameter, str]) -> str:
        """Spell the initialiser of a member that is an array."""
        data = names[KernelParameter("data", array.base or array.name, 0, None)]
        if array.base:
            base = self.kernel.array(array.base)
            extents = [KernelParameter("shape", base.name, d, None) for d in range(base.ndim)]
            held = [names.get(extent, "0") for extent in extents]
            return f"{{{data}, {{{' * '.join(held)}}}, {{0}}}}"
        parts = [data]
        for kind in ("shape", "stride"):
            held = [
                names.get(KernelParameter(kind, array.name, d, None), "0")
                for d in range(max(array.ndim, 1))
            ]
            parts.append(f"{{{', '.join(held)}}}")
        return f"{{{', '.join(parts)}}}"

    def _parameter_type(self, parameter: KernelParameter) -> str:
        if parameter.kind == "scalar":
            assert parameter.type is not None
            return (
                "km::u8"
                if parameter.type == bool_
                else type_spelling(parameter.type, qualified=True)
            )
        if parameter.kind != "data":
            return f"km::{self.scope.index}"
        array = self.kernel.array(parameter.name)
        const = "" if array.name in self.written else "const "
        restrict = " KM_R" if self.kernel.disjoint else ""
        element = "km::u8" if array.dtype == bool_ else type_spelling(array.dtype, qualified=True)
        return f"{const}{element}*{restrict}"


def _parameter_name(parameter: KernelParameter) -> str:
    name = Names().take(parameter.name)
    if parameter.kind in ("data", "scalar"):
        return name
    return f"{name}{parameter.kind}_{parameter.dim}"


def _numbered(lines: Sequence[str]) -> list[str]:
    """Name the user's line before each line of text, not only before the first of a statement.

    Else what follows would be counted for the lines behind it, which may be anybody's.
    """
    found: list[str] = []
    now = next((line for line in lines if line.startswith(_LINE)), "")
    fresh = False
    for line in lines:
        if line.startswith(_LINE):
            now = line
        elif now and not fresh:
            found.append(now)
        fresh = line.startswith(_LINE)
        found.append(line)
    return found


def _indented(line: str) -> str:
    return f"  {line}" if line and not line.startswith("#") else line


def _signature(kernel: Kernel) -> str:
    parts = []
    for argument in kernel.arguments:
        if isinstance(argument, int):
            name, type_ = kernel.program.entry.params[argument]
            parts.append(f"{name}: {type_}")
        else:
            array = kernel.array(argument)
            dims = ", ".join(":" * array.ndim)
            parts.append(f"{argument}: {array.dtype}[{dims}]")
    x, y, z = kernel.block
    return f"{kernel.name}({', '.join(parts)}), blocks of {x} x {y} x {z} threads".encode(
        "ascii", "replace"
    ).decode()


def _room(array: Array, name: str) -> Iterator[str]:
    """Yield the body of the function that gives memory."""
    element = element_spelling(array.dtype)
    if array.space == "dynamic":
        yield "extern __shared__ __align__(16) char km_dynamic_shared[];"
        yield f"return {{({element}*)km_dynamic_shared}};"
    else:
        yield f"__shared__ __align__(16) {element} {name}[{element_count(array)}];"
        yield f"return {{{name}}};"


def _constant(array: Array, name: str, dialect: Dialect) -> Iterator[str]:
    """Yield the definition of a constant array; types with constructors are given as bytes."""
    dtype = array.dtype
    if is_spelled_out(dtype):
        values = np.frombuffer(array.data, dtype.to_numpy()).tolist()
        element = element_spelling(dtype)
        items = [str(int(v)) if dtype == bool_ else literal(v, dtype, dialect) for v in values]
    else:
        element, items = "u8", [str(b) for b in array.data]
    yield f"static __constant__ __align__(16) const {element} {name}room[{len(items)}] = {{"
    per_line = 8
    for first in range(0, len(items), per_line):
        yield f"  {', '.join(items[first : first + per_line])},"
    yield "};"


# ----------------------------------------------------------------------------- what is used


def _effects(program: ir.Program) -> Iterator[Effect]:
    for function in program.functions:
        for statement in ir.walk_statements(function.body):
            if isinstance(statement, Effect):
                yield statement


def written_arrays(kernel: Kernel) -> set[str]:
    """Return the arrays that a kernel changes, or reads atomically."""
    effects = _effects(kernel.program)
    found = {e.place.array for e in effects if isinstance(e, (Store, Atomic))}
    found |= {a.base for a in kernel.arrays if a.base and a.name in found}
    return found | {a.name for a in kernel.arrays if a.base in found}


def _extents(kernel: Kernel) -> set[tuple[str, int]]:
    """Return the extents that the kernel reads, those of a whole array one by one."""
    found: set[tuple[str, int]] = set()
    bases = {a.name: kernel.array(a.base) for a in kernel.arrays if a.base}
    for function in kernel.program.functions:
        for statement in ir.walk_statements(function.body):
            for operand in ir.operands(statement):
                for node in ir.walk_expressions(operand):
                    if isinstance(node, Extent) and node.array in bases:
                        base = bases[node.array]
                        found |= {(base.name, dim) for dim in range(base.ndim)}
                    elif isinstance(node, Extent):
                        found.add((node.array, node.dim))
    return found
