"""The C++ text of a scan: its operator as one struct around an instance of a template.

The templates are `host/scan.hpp` and `device/scan.cuh`, which take the same structs; what is asked
of them is decided in `scans.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kernelmill.algorithms.source import VALUE_SLOT, assemble, text_of
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import CUDA, HOST
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.layout import Access
    from kernelmill.algorithms.policy import ScanTree
    from kernelmill.compiler.cpp import PrintedOperator
    from kernelmill.compiler.dialects import Dialect
    from kernelmill.compiler.ir import Program
    from kernelmill.dtypes import DType, StructType

__all__ = ["RING_ROLES", "Part", "ScanText", "Way", "cuda_scan_source", "host_scan_source"]

# How a device goes through the tiles: by the ring, one block a tile, a warp for each sequence.
Way: TypeAlias = Literal["ring", "tiles", "each"]
# Warps of device/ring.cuh that do neither scan nor reduce: one loads, one looks back.
RING_ROLES: Final = 2
_WARP: Final = 32


@dataclass(frozen=True, slots=True)
class Part:
    """A program of a scan, and where its captured scalars lie in the block of all."""

    program: Program
    offset: int


@dataclass(frozen=True, slots=True)
class ScanText:
    """What the text of a scan is made of.

    `name` is that of a well-known operator, or empty. `element` makes a value of an element; None where it is one. `finish` makes of a value what is
    stored. `seed` makes the value that stands before the first, of operand `seed_at` where it is
    not None, else of captured scalars; None where none stands there. `captured` is the size of the
    block of scalars.
    """

    name: str
    taken: tuple[DType | StructType, Access]
    made: tuple[DType | StructType, Access]
    value: DType | StructType
    combine: Part
    finish: Program
    element: Part | None
    seed: Part | None
    seed_at: DType | StructType | None
    tree: ScanTree
    exclusive: bool
    captured: int

    @property
    def operands(self) -> int:
        """How many arrays the call has."""
        return 2 if self.seed_at is None else 3


def host_scan_source(name: str, parts: ScanText) -> KernelSource:
    """Return the text of a scan on the host."""
    printed: list[PrintedOperator] = []
    structs = _structs(parts, printed, HOST)
    launch = "const km::ScanCall c(call);\n  km::scan<Scan, Feed, Sink>::run(c, Scan(c));"
    return assemble(name, ["scan.hpp"], printed, launch, structs)


def cuda_scan_source(
    name: str, parts: ScanText, way: Way, *, stages: int = 0, reducers: int = 0
) -> KernelSource:
    """Return the text of a scan on a device; `stages` and `reducers` are those of a ring."""
    printed: list[PrintedOperator] = []
    structs = _structs(parts, printed, CUDA)
    warps = parts.tree.warps
    bounds = str(warps * _WARP)
    call = f"km::scan_tiles<Scan, Feed, Sink>::{'each' if way == 'each' else 'run'}(c, Scan(c));"
    if way == "ring":
        bounds = f"{(warps + reducers + RING_ROLES) * _WARP}, 1"
        call = (
            "\n#if __CUDA_ARCH__ >= 900\n"
            f"  km::scan_ring<Scan, Feed, Sink, {stages}, {reducers}>::run(c, Scan(c));\n"
            "#else\n  __trap();  // other chips are given another way\n#endif\n"
        )
    rest = (
        f"{structs}\n"
        f"typedef km::ScanCall<{parts.operands}, {max(parts.captured, VALUE_SLOT)}> Call;\n"
        f"KM_EXPORT void __launch_bounds__({bounds})\n"
        f"km_kernel(const __grid_constant__ Call c) {{ {call} }}\n"
    )
    return KernelSource(name, text_of(name, ["scan.cuh"], printed, rest), parts.tree.tile)


def _structs(parts: ScanText, printed: list[PrintedOperator], dialect: Dialect) -> str:
    """Return the structs that a template takes; appends the operators they are made of."""
    value = type_spelling(parts.value, qualified=True)
    stored = type_spelling(parts.made[0], qualified=True)
    tree = parts.tree
    lines = _combine(parts, printed, dialect)
    printed.append(print_program(parts.finish, dialect, name="Finish"))
    lines += [
        "struct Scan {",
        f"  typedef {value} value;",
        f"  typedef {stored} stored;",
        f"  typedef {'km::Combine' if len(lines) == 0 else 'Fold'} Op;",
        f"  static constexpr int run = {tree.run}, rows = {tree.rows}, warps = {tree.warps};",
        f"  static constexpr bool exclusive = {_flag(parts.exclusive)}, "
        f"seeded = {_flag(parts.seed is not None)};",
        f"  static constexpr bool vectors = {_flag(bool(lines))}, "
        f"plain = {_flag(parts.made[0] == parts.value)};",
        "  Op op;",
        "  km::Finish last;",
        "  value seed;",
        "  template <class Call>",
        "  KM_INL explicit Scan(const Call& c)",
        f"      : op(c.captures + {parts.combine.offset}), last(c.captures){_seed(parts, printed, dialect)} {{}}",
        "  KM_INL stored finish(const value& v, bool) const { return last(v); }",
        "  static KM_INL bool begins(const value&) { return false; }",
        "};",
    ]
    mapper = _mapper(parts, printed, dialect, lines)
    lines += [
        f"typedef km::scan_feed<0, {_argument(parts.taken)}, {mapper}> Feed;",
        f"typedef km::scan_sink<{parts.operands - 1}, {_argument(parts.made)}> Sink;",
    ]
    return "\n".join(lines)


# Operators that host/fold.hpp has with vector forms, and the types that rows of them are made of.
_FOLDS: Final = frozenset(
    ("add", "multiply", "minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor")
)
_WORDS: Final = frozenset(("float32", "float64", "int32", "int64", "uint32", "uint64"))


def _combine(parts: ScanText, printed: list[PrintedOperator], dialect: Dialect) -> list[str]:
    """Return the struct of the operator where the host has vector forms for it, else print it."""
    if dialect is HOST and parts.name in _FOLDS and parts.value.name in _WORDS:
        spelled = type_spelling(parts.value, qualified=True)
        return [
            f"struct Fold : km::fold::{parts.name}<{spelled}> {{",
            "  KM_INL explicit Fold(const char*) {}",
            "};",
        ]
    printed.append(print_program(parts.combine.program, dialect, name="Combine"))
    return []


def _flag(value: bool) -> str:  # noqa: FBT001 - how C++ spells it
    return "true" if value else "false"


def _argument(operand: tuple[DType | StructType, Access]) -> str:
    type_, access = operand
    return f"km::arg<{type_spelling(type_, qualified=True)}, km::{access}>"


def _mapper(
    parts: ScanText, printed: list[PrintedOperator], dialect: Dialect, lines: list[str]
) -> str:
    """Return the type that makes a value of an element; appends its struct."""
    if parts.element is None:
        return f"km::scan_same<{type_spelling(parts.value, qualified=True)}>"
    printed.append(print_program(parts.element.program, dialect, name="Element"))
    lines += [
        "struct Map : km::Element {",
        "  static constexpr bool plain = false;",
        "  KM_INL explicit Map(const char* packed) "
        f": km::Element(packed + {parts.element.offset}) {{}}",
        "};",
    ]
    return "Map"


def _seed(parts: ScanText, printed: list[PrintedOperator], dialect: Dialect) -> str:
    """Return the initializer of the value before the first one."""
    if parts.seed is None:
        return ""
    printed.append(print_program(parts.seed.program, dialect, name="Start"))
    start = f"km::Start(c.captures + {parts.seed.offset})"
    if parts.seed_at is None:
        return f",\n        seed({start}())"
    spelled = type_spelling(parts.seed_at, qualified=True)
    return f",\n        seed({start}(km::element<{spelled}>::load(c.at(1))))"
