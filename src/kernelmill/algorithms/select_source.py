"""The C++ text of a selection: its tests as one struct around one instance of a template.

Which templates exist is seen in `host/` and `device/`; what is asked of them, in `select_call.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from kernelmill.algorithms.source import VALUE_SLOT, assemble, text_of
from kernelmill.compiler.builder import FunctionBuilder
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_definitions, type_spelling
from kernelmill.compiler.dialects import CUDA, HOST
from kernelmill.compiler.ir import Program
from kernelmill.dtypes import DType, StructType, TupleType, bool_
from kernelmill.errors import DTypeError
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.feeds import Feed
    from kernelmill.algorithms.layout import Access
    from kernelmill.algorithms.policy import SelectTile
    from kernelmill.compiler.cpp import PrintedOperator
    from kernelmill.compiler.dialects import Dialect
    from kernelmill.compiler.ir import Expr
    from kernelmill.dtypes import Type

__all__ = [
    "Column",
    "SelectionText",
    "Sinks",
    "Way",
    "chunk_of",
    "cuda_select_source",
    "equality",
    "flag_test",
    "host_select_source",
    "stage_bytes",
    "truth_of",
]


# ----------------------------------------------------------------------------- tests as programs


def truth_of(program: Program, name: str) -> Program:
    """Return the program with an entry that gives the truth of its result."""
    entry = program.entry
    if entry.result == bool_:
        return program
    if isinstance(entry.result, (StructType, TupleType)):
        raise DTypeError(
            f"`{name}` returns {entry.result}; accepted: a bool or a number",
            hint="return a comparison, such as `x > 0`",
        )
    wrapper = FunctionBuilder(f"{entry.name}_truth", entry.params)
    result = wrapper.call(entry, [wrapper.param(i) for i in range(len(entry.params))])
    wrapper.return_(wrapper.truth(result))
    return Program((*program.functions, wrapper.finish()), program.captures)


def flag_test(type_: DType | StructType) -> Program:
    """Return the program that gives the truth of a flag."""
    if isinstance(type_, StructType):
        raise DTypeError(
            f"`flags` has dtype {type_}; accepted: bool or a number", hint="pass one of its fields"
        )
    function = FunctionBuilder("flag", (("flag", type_),))
    function.return_(function.truth(function.param(0)))
    return Program((function.finish(),), ())


def equality(types: Sequence[DType | StructType]) -> Program:
    """Return the program that compares one element with the one before, in every column."""
    names = [(f"{side}{i}", t) for side in ("a", "b") for i, t in enumerate(types)]
    function = FunctionBuilder("equal", tuple(names))
    count, same = len(types), None
    for index in range(count):
        alike = _alike(function, function.param(index), function.param(count + index))
        same = alike if same is None else function.apply("and", same, alike)
    assert same is not None, "something is compared"
    function.return_(same)
    return Program((function.finish(),), ())


def _alike(function: FunctionBuilder, a: Expr, b: Expr) -> Expr:
    """Compare two values; structs field for field."""
    if not isinstance(a.type, StructType):
        return function.apply("eq", a, b)
    same: Expr | None = None
    for item in a.type.fields:
        left, right = function.field(a, item.name), function.field(b, item.name)
        alike = _alike(function, left, right)
        same = alike if same is None else function.apply("and", same, alike)
    assert same is not None, "a struct has a field"
    return same


# ----------------------------------------------------------------------------- the host


@dataclass(frozen=True, slots=True)
class Column:
    """What decides or is carried along: element type, how it is reached, which of both.

    `operand` is the number of its array in the call; `feed` computes it where `access` is "fed".
    `sinks` take its results of each part, where those are not all contiguous arrays.
    """

    type: DType | StructType
    access: Access | Literal["fed"]
    carried: bool
    operand: int
    key: object = None
    feed: Feed | None = field(default=None, repr=False, compare=False)
    captures: int = 0
    sinks: Sinks | None = None


@dataclass(frozen=True, slots=True)
class Sinks:
    """What takes results of each part: feeds, and where operands and captured scalars of each lie.

    `key` is what the text depends on.
    """

    key: tuple[object, ...]
    places: tuple[tuple[int, int], ...]
    feeds: tuple[Feed, ...] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SelectionText:
    """What the text of a selection is made of.

    `tests` are programs that give a bool, with the offset of their captured scalars; they see
    `deciding` columns from number `first` on, and where `heads` is set the element before too, and
    say then whether both are equal. `lengths` is the type of the lengths of runs.
    """

    columns: tuple[Column, ...]
    first: int
    deciding: int
    tests: tuple[tuple[Program, int], ...]
    heads: bool
    parts: int
    lengths: DType | None
    counts: DType
    inputs: int
    length_sinks: Sinks | None = None

    @property
    def width(self) -> int:
        """Bytes of one element in a stage of shared memory."""
        return sum(c.type.itemsize for c in self.columns) + (_BEGIN if self.lengths else 0)

    @property
    def operands(self) -> int:
        """How many arrays the call has."""
        carried = sum(c.carried for c in self.columns)
        fixed = self.inputs + self.parts * carried + (self.lengths is not None) + 1
        sinks = [c.sinks for c in self.columns if c.sinks is not None]
        sinks += [] if self.length_sinks is None else [self.length_sinks]
        return fixed + sum(len(f.arguments) for s in sinks for f in s.feeds)

    @property
    def marks(self) -> int:
        """How many words of bits say of what kind the elements of a lane are."""
        return 2 if self.parts == 3 else 1  # noqa: PLR2004 - the third part is the rest


# Where a run begins in its tile, in device/select_part.cuh.
_BEGIN: Final = 4
# Bytes of a chunk's packed elements, which stay in the second-level cache, and elements of one.
_PACKED: Final = 65536
_MOST_CHUNK: Final = 16384
_LEAST_CHUNK: Final = 512


def chunk_of(columns: Sequence[Column]) -> int:
    """Return how many elements one thread of the host takes at a time."""
    width = max(1, sum(c.type.itemsize for c in columns if c.carried))
    most = max(_LEAST_CHUNK, min(_MOST_CHUNK, _PACKED // width))
    return 1 << (most.bit_length() - 1)


def host_select_source(name: str, text: SelectionText) -> KernelSource:
    """Return the text of a selection on the host."""
    printed: list[PrintedOperator] = []
    structs = decide_struct(text, HOST, printed)
    columns, sources, includes = _columns(text, printed, HOST)
    lengths = "void" if text.lengths is None else _spelled(text.lengths)
    launch = (
        f"km::selection<Decide, {text.parts}, {chunk_of(text.columns)}, {_spelled(text.counts)}, "
        f"{lengths}, {_lengths_to(text)}, {text.first}, {text.deciding}, {text.inputs},\n"
        f"      {columns}>"
        "::run(call, Decide((const char*)call->captures));"
    )
    return assemble(name, ["select.hpp", *includes], printed, launch, structs + sources)


def _columns(
    text: SelectionText, printed: list[PrintedOperator], dialect: Dialect
) -> tuple[str, str, tuple[str, ...]]:
    """Return the template arguments of the columns, the structs they name, and files of those."""
    spelled: list[str] = []
    includes: list[str] = []
    defined = type_definitions([c.type for c in text.columns], dialect)
    structs = f"namespace km {{\n{defined}}}\n" if defined else ""
    for index, column in enumerate(text.columns):
        carried = str(column.carried).lower()
        source, sinks = "", ""
        if column.feed is not None:
            made = column.feed.text(
                f"Feed{index}", operand=column.operand, captures=column.captures
            )
            printed += made.printed
            includes += made.includes
            source = f", Source{index}"
            structs += (
                f"{made.text}struct Source{index} {{\n"
                "  template <class Call> static KM_INL auto make(const Call& call) {\n"
                f"    return {made.made};\n  }}\n}};\n"
            )
        if column.sinks is not None:
            sinks = f"{'' if source else ', void'}, Sinks{index}"
            structs += _sinks_struct(f"Sinks{index}", column.sinks, printed, includes)
        spelled.append(
            f"km::column<{_spelled(column.type)}, km::{column.access}, {carried}, "
            f"{column.operand}{source}{sinks}>"
        )
    if text.length_sinks is not None:
        structs += _sinks_struct("Lengths", text.length_sinks, printed, includes)
    return ", ".join(spelled), structs, tuple(includes)


def _sinks_struct(
    name: str, sinks: Sinks, printed: list[PrintedOperator], includes: list[str]
) -> str:
    """Return the struct that makes what takes the results of each part."""
    text, body = "", ""
    for part, (feed, (operand, captures)) in enumerate(zip(sinks.feeds, sinks.places, strict=True)):
        made = feed.text(f"{name}Of{part}", operand=operand, captures=captures)
        printed += made.printed
        includes += made.includes
        text += made.text
        body += f"    {'else ' if part else ''}if constexpr (P == {part}) return {made.made};\n"
    return (
        f"{text}struct {name} {{\n"
        "  template <int P, class Call>\n"
        "  static KM_INL auto make([[maybe_unused]] const Call& call) {\n"
        f"{body}  }}\n}};\n"
    )


def _lengths_to(text: SelectionText) -> str:
    return "void" if text.length_sinks is None else "Lengths"


def decide_struct(text: SelectionText, dialect: Dialect, printed: list[PrintedOperator]) -> str:
    """Return the struct that gives the part of an element; appends the operators it is made of."""
    names = []
    for index, (program, _) in enumerate(text.tests):
        printed.append(print_program(program, dialect, name=f"Test{index}"))
        names.append(f"test{index}")
    offsets = [offset for _, offset in text.tests]
    made = ", ".join(
        f"{n}(packed + {o})" if p.captures_layout else f"{n}()"
        for n, o, p in zip(names, offsets, printed, strict=True)
    )
    members = "".join(f"  km::Test{i} {n};\n" for i, n in enumerate(names))
    if len(names) > 1:  # both are evaluated, so that nothing branches
        part = "(km::u8)((1 - (km::u8)test0(x...)) * (2 - (km::u8)test1(x...)))"
    else:
        part = f"(km::u8)({'' if text.heads else '!'}test0(x...))"
    return (
        "struct Decide {\n"
        f"  static constexpr bool heads = {str(text.heads).lower()};\n"
        f"{members}"
        f"  KM_INL explicit Decide([[maybe_unused]] const char* packed) : {made} {{}}\n"
        f"  template <class... T> KM_INL km::u8 operator()(const T&... x) const {{\n"
        f"    return {part};\n"
        "  }\n"
        "};\n"
    )


# ----------------------------------------------------------------------------- devices


@dataclass(frozen=True, slots=True)
class Way:
    """How a kernel goes through the tiles: by a ring of so many stages, or a block a tile (0).

    `wide` asks for counts of 64 bits.
    """

    tile: SelectTile
    wide: bool
    stages: int = 0
    reducers: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        roles = self.reducers + _ROLES if self.stages else 0
        return (self.tile.warps + roles) * _WARP


_WARP: Final = 32
# Warps of device/ring.cuh beside workers and reducers: the loader and the one that looks back.
_ROLES: Final = 2
_PACKET: Final = 16
_STAGE_UNIT: Final = 128


def stage_bytes(text: SelectionText, tile: SelectTile) -> int:
    """Return the shared memory of a tile, as device/select_part.cuh lays it out."""
    total = 0
    for index, column in enumerate(text.columns):
        size = column.type.itemsize
        leads = text.heads and text.first <= index < text.first + text.deciding
        room = tile.elements * size + (_rounded(size, _PACKET) if leads else 0)
        total += _rounded(room, _PACKET)
    total += text.marks * tile.warps * _WARP * 4
    total += tile.elements * _BEGIN if text.lengths else 0
    return _rounded(total, _STAGE_UNIT)


def _rounded(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


def cuda_select_source(name: str, text: SelectionText, way: Way, captured: int) -> KernelSource:
    """Return the text of a selection on a device; `captured` is the size of all its scalars."""
    printed: list[PrintedOperator] = []
    structs = decide_struct(text, CUDA, printed)
    columns, sources, includes = _columns(text, printed, CUDA)
    lengths = "void" if text.lengths is None else _spelled(text.lengths)
    tile, bounds = way.tile, str(way.threads)
    run = "  km::select_tiles<Part, Decide>::run(call);\n"
    if way.stages:
        bounds += ", 1"
        run = (
            "#if __CUDA_ARCH__ >= 900\n"
            f"  km::select_ring<Part, Decide, {way.stages}, {way.reducers}, Call>::run(call);\n"
            "#else\n  __trap();  // other chips are given another way\n#endif\n"
        )
    rest = (
        f"{structs}{sources}\n"
        f"typedef km::SelectCall<{text.operands}, {max(captured, VALUE_SLOT)}> Call;\n"
        f"typedef km::selection<Decide, {text.parts}, km::{'u64' if way.wide else 'u32'}, "
        f"{_spelled(text.counts)}, {lengths}, {_lengths_to(text)}, {text.first}, {text.deciding},\n"
        f"    {text.inputs}, {tile.run}, {tile.rows}, {tile.warps}, {columns}> Part;\n"
        f"static_assert(Part::stage_bytes == {stage_bytes(text, tile)}, "
        '"what is asked of shared memory");\n'
        f"KM_EXPORT void __launch_bounds__({bounds})\n"
        f"km_kernel(const __grid_constant__ Call call) {{\n  km::take_turn();\n{run}}}\n"
    )
    return KernelSource(
        name, text_of(name, ["select.cuh", *includes], printed, rest), tile.elements
    )


def _spelled(type_: Type) -> str:
    return type_spelling(type_, qualified=True)
