"""The C++ text of a scan: its operator as one struct around an instance of a template.

The templates are `host/scan.hpp` and `device/scan.cuh`, which take the same structs; what is asked
of them is decided in `scans.py` and `scans_by_key.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kernelmill.algorithms.feed_text import PlacedFeed
from kernelmill.algorithms.source import VALUE_SLOT, assemble, text_of
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import CUDA, HOST
from kernelmill.dtypes import DType
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from kernelmill.algorithms.feeds import Feed
    from kernelmill.algorithms.layout import Access
    from kernelmill.algorithms.policy import RingPolicy, ScanTree
    from kernelmill.compiler.cpp import PrintedOperator
    from kernelmill.compiler.dialects import Dialect
    from kernelmill.compiler.ir import Program
    from kernelmill.dtypes import StructType

__all__ = [
    "RING_ROLES",
    "KeyText",
    "Part",
    "ScanText",
    "Way",
    "cuda_scan_source",
    "host_scan_source",
]

# How a device goes through the tiles: by the ring, one block a tile, a warp for each sequence.
Way: TypeAlias = Literal["ring", "tiles", "each"]
# The templates of the host: one sequence or several, those of integers in any order, those whose
# elements lie apart, by key.
HostWay: TypeAlias = Literal["scan", "scan_exact", "scan_columns", "scan_serial"]
Stored: TypeAlias = "DType | StructType"
# Warps of device/ring.cuh that do neither scan nor reduce: one loads, one looks back.
RING_ROLES: Final = 2
_WARP: Final = 32
# Operators that host/fold.hpp has with vector forms, and the types that rows of them are made of.
_FOLDS: Final = frozenset(
    ("add", "multiply", "minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor")
)
_WORDS: Final = frozenset(("float32", "float64", "int32", "int64", "uint32", "uint64"))


@dataclass(frozen=True, slots=True)
class Part:
    """A program of a scan, and where its captured scalars lie in the block of all."""

    program: Program
    offset: int


@dataclass(frozen=True, slots=True)
class KeyText:
    """Keys of a scan by key: how they are reached, and when two neighbours are the same.

    `count` is the type of the number of segments where each is reduced to one value. `values` is
    the operand that those are in, behind `read` operands come seed and results, behind them `sunk`
    of feeds. `feeds` are by what they stand for: "keys", "values", "results", "keys to" and
    "totals to".
    """

    taken: tuple[Stored, Access]
    same: Part
    count: DType | None
    values: int
    read: int
    sunk: int
    feeds: dict[str, PlacedFeed] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ScanText:
    """What the text of a scan is made of.

    `name` is that of a well-known operator, or empty. `element` makes a value of an element; None
    where it is one. `finish` makes of a value what is stored. `seed` makes the value that stands
    before the first, of an operand of type `seed_at` where that is not None, else of captured
    scalars; None where none stands there. `captured` is the size of the block of scalars, and
    `beside` how many blocks share a multiprocessor at least.

    Operands are the keys, the elements, the seed, the results, as far as there are such.
    """

    name: str
    taken: tuple[Stored, Access]
    made: tuple[Stored, Access]
    value: Stored
    combine: Part
    finish: Program
    element: Part | None
    seed: Part | None
    seed_at: Stored | None
    tree: ScanTree
    exclusive: bool
    captured: int
    keys: KeyText | None = None
    beside: int = 1
    source: tuple[Feed, int] | None = field(default=None, repr=False, compare=False)
    sink: tuple[Feed, int] | None = field(default=None, repr=False, compare=False)

    @property
    def seed_operand(self) -> int:
        """Number of the operand that the seed is in."""
        if self.source is not None:
            return len(self.source[0].arguments)
        return 1 if self.keys is None else self.keys.read

    @property
    def result_operand(self) -> int:
        """Number of the first operand that is written."""
        return self.seed_operand + (self.seed_at is not None)

    @property
    def operands(self) -> int:
        """How many arrays the call has."""
        if self.sink is not None:
            return self.result_operand + len(self.sink[0].arguments)
        if self.keys is None:
            return self.result_operand + 1
        return self.result_operand + (3 if self.keys.count is not None else 1) + self.keys.sunk


def host_scan_source(name: str, parts: ScanText, way: HostWay = "scan") -> KernelSource:
    """Return the text of a scan on the host."""
    writer = _Writer(parts, HOST)
    structs = writer.structs()
    if way == "scan" and writer.is_exact:
        way = "scan_exact"
    none = "if (c.length == 0) return Sink::none(c);\n  " if writer.reduces else ""
    launch = f"const km::ScanCall c(call);\n  {none}km::{way}<Scan, Feed, Sink>::run(c, Scan(c));"
    return assemble(name, writer.files(f"{way}.hpp"), writer.printed, launch, structs)


def cuda_scan_source(name: str, parts: ScanText, way: Way, ring: RingPolicy | None) -> KernelSource:
    """Return the text of a scan on a device."""
    writer = _Writer(parts, CUDA)
    structs = writer.structs()
    warps = parts.tree.warps
    bounds = f"{warps * _WARP}, {parts.beside}"
    loops = f"km::scan_tiles<Scan, Feed, Sink>::{'each' if way == 'each' else 'run'}"
    if ring is not None:
        bounds = f"{(warps + ring.reducers + RING_ROLES) * _WARP}, 1"
        loops = f"km::scan_ring<Scan, Feed, Sink, {ring.stages}, {ring.reducers}>::run"
    body = f"  {loops}(c, Scan(c));\n"
    if writer.reduces:
        body = f"  if (c.length == 0) return threadIdx.x ? void() : Sink::none(c);\n{body}"
    if ring is not None:
        trap = "  __trap();  // other chips are given another way\n"
        body = f"#if __CUDA_ARCH__ >= 900\n{body}#else\n{trap}#endif\n"
    body = f"  km::take_turn();\n{body}"
    rest = (
        f"{structs}\n"
        f"typedef km::ScanCall<{parts.operands}, {max(parts.captured, VALUE_SLOT)}> Call;\n"
        f"KM_EXPORT void __launch_bounds__({bounds})\n"
        f"km_kernel(const __grid_constant__ Call c) {{\n{body}}}\n"
    )
    text = text_of(name, writer.files("scan.cuh"), writer.printed, rest)
    return KernelSource(name, text, parts.tree.tile)


class _Writer:
    """Prints the structs of one scan for one side; `printed` are the operators they use."""

    def __init__(self, parts: ScanText, dialect: Dialect) -> None:
        self.parts, self.dialect = parts, dialect
        self.printed: list[PrintedOperator] = []
        self.lines: list[str] = []
        self.includes: tuple[str, ...] = ()
        # Whether every order of combination gives the same bits.
        self.is_exact = False

    @property
    def reduces(self) -> bool:
        """Whether each segment becomes one value."""
        return self.parts.keys is not None and self.parts.keys.count is not None

    def files(self, template: str) -> list[str]:
        """Return the templates that the text includes."""
        keys = [] if self.parts.keys is None else ["scan_keys.hpp"]
        return [template, *keys, *self.includes]

    def structs(self) -> str:
        """Return the structs that a template takes."""
        parts = self.parts
        plain = self._combine()
        self._print(parts.finish, "Finish")
        value, stored = type_spelling(parts.value, qualified=True), self._spelled(parts.made)
        self.lines += [f"typedef {value} Value;", f"typedef {stored} Stored;"]
        if parts.keys is None:
            self._scan(plain)
            self._feed()
        else:
            self._keyed(parts.keys)
        return "\n".join(self.lines)

    def _print(self, program: Program, name: str) -> None:
        self.printed.append(print_program(program, self.dialect, name=name))

    def _combine(self) -> bool:
        """Print the operator; returns whether the host has vector forms for it."""
        parts = self.parts
        spelled = type_spelling(parts.value, qualified=True)
        value = parts.value
        number = isinstance(value, DType) and value.name in _WORDS
        vectors = self.dialect is HOST and parts.name in _FOLDS and number
        base = f"km::fold::{parts.name}<{spelled}>" if vectors else "km::Combine"
        made = "" if vectors else f" : km::Combine(packed + {parts.combine.offset})"
        self.is_exact = vectors and isinstance(value, DType) and value.kind != "float"
        if not vectors:
            self._print(parts.combine.program, "Combine")
        self.lines += [
            f"struct Fold : {base} {{",
            f"  KM_INL explicit Fold([[maybe_unused]] const char* packed){made} {{}}",
            "};",
        ]
        return vectors

    def _scan(self, vectors: bool) -> None:  # noqa: FBT001 - a fact
        """Append the struct of a scan of plain values."""
        parts = self.parts
        seed = self._seed()
        started = "" if seed is None else f", seed({seed})"
        self._head("Value", "Stored", "Fold", seeded=seed is not None)
        self.lines += [
            (
                f"  static constexpr bool vectors = {_flag(vectors)}, "
                f"plain = {_flag(parts.made[0] == parts.value)};"
            ),
            "  Fold op;",
            "  km::Finish last;",
            "  Value seed;",
            "  template <class Call>",
            "  KM_INL explicit Scan(const Call& c)",
            f"      : op(c.captures), last(c.captures){started} {{}}",
            "  KM_INL Stored finish(const Value& v, bool) const { return last(v); }",
            "  static KM_INL bool begins(const Value&) { return false; }",
            "};",
        ]

    def _head(self, value: str, stored: str, op: str, *, seeded: bool) -> None:
        tree = self.parts.tree
        self.lines += [
            "struct Scan {",
            f"  typedef {value} value;",
            f"  typedef {stored} stored;",
            f"  typedef {op} Op;",
            f"  static constexpr int run = {tree.run}, rows = {tree.rows}, warps = {tree.warps};",
            (
                f"  static constexpr bool exclusive = {_flag(self.parts.exclusive)}, "
                f"seeded = {_flag(seeded)};"
            ),
        ]

    def _seed(self) -> str | None:
        """Return the expression of the value before the first one; None where there is none."""
        parts = self.parts
        if parts.seed is None:
            return None
        self._print(parts.seed.program, "Start")
        start = f"km::Start(c.captures + {parts.seed.offset})"
        if parts.seed_at is None:
            return f"{start}()"
        spelled = type_spelling(parts.seed_at, qualified=True)
        return f"{start}(km::element<{spelled}>::load(c.at({parts.seed_operand})))"

    def _feed(self) -> None:
        mapper = self._mapper()
        at = self.parts.result_operand
        feed = f"typedef km::scan_feed<0, {_argument(self.parts.taken)}, {mapper}> Feed;"
        if self.parts.source is not None:
            source, captures = self.parts.source
            feed = self._computed("Feed", PlacedFeed(source, 0, captures), mapper)
        sink = f"typedef km::scan_sink<{at}, {_argument(self.parts.made)}> Sink;"
        if self.parts.sink is not None:
            taking, captures = self.parts.sink
            sink = self._given("Sink", PlacedFeed(taking, at, captures))
        self.lines += [feed, sink]

    def _computed(self, name: str, given: PlacedFeed, mapper: str) -> str:
        """Return the struct that reads what an iterator makes."""
        made = given.text(f"{name}Of")
        self.printed += made.printed
        self.includes += made.includes
        call = "c.call" if self.dialect is HOST else "c"
        return "\n".join(
            [
                made.text,
                f"struct {name} {{",
                f"  typedef {type_spelling(given.feed.type, qualified=True)} type;",
                "  static constexpr bool contiguous = false, plain = false;",
                f"  {made.type} in;",
                f"  {mapper} map;",
                "  template <class Call> static KM_INL auto make(const Call& call) {",
                f"    return {made.made};",
                "  }",
                "  template <class Call>",
                f"  KM_INL {name}(const Call& c, km::i64) : in(make({call})), map(c.captures) {{}}",
                "  KM_INL auto of(const type& x) const { return map(x); }",
                "  KM_INL auto at(km::i64 i) const { return map(in(i)); }",
                "  KM_INL auto operator()(km::i64 i) const { return "
                + ("map(in(i))" if self.dialect is HOST else "in(i)")
                + "; }",
                "};",
            ]
        )

    def _given(self, name: str, given: PlacedFeed) -> str:
        """Return the struct that hands results to an iterator."""
        made = given.text(f"{name}Of")
        self.printed += made.printed
        self.includes += made.includes
        call = "c.call" if self.dialect is HOST else "c"
        return "\n".join(
            [
                made.text,
                f"struct {name} {{",
                f"  typedef {type_spelling(given.feed.type, qualified=True)} type;",
                "  static constexpr bool contiguous = false;",
                f"  {made.type} out;",
                "  template <class Call>",
                "  static KM_INL auto make([[maybe_unused]] const Call& call) {",
                f"    return {made.made};",
                "  }",
                "  template <class Call>",
                f"  KM_INL {name}(const Call& c, km::i64) : out(make({call})) {{}}",
                "  KM_INL void operator()(km::i64 i, const type& v) const { out(i, v); }",
                "};",
            ]
        )

    def _mapper(self) -> str:
        """Return the type that makes a value of an element; appends its struct."""
        element = self.parts.element
        if element is None:
            return "km::scan_same<Value>"
        self._print(element.program, "Element")
        self.lines += [
            "struct Map : km::Element {",
            "  static constexpr bool plain = false;",
            "  KM_INL explicit Map(const char* packed)",
            f"      : km::Element(packed + {element.offset}) {{}}",
            "};",
        ]
        return "Map"

    def _keyed(self, keys: KeyText) -> None:
        """Append the structs of a scan by key."""
        parts = self.parts
        self._print(keys.same.program, "Equal")
        self.lines += [
            "struct Same : km::Equal {",
            "  KM_INL explicit Same(const char* packed)",
            f"      : km::Equal(packed + {keys.same.offset}) {{}}",
            "};",
            f"typedef km::keyed<Value, km::{'i64' if keys.count else 'u32'}> Pair;",
            "typedef km::by_segment<Fold, Value, decltype(Pair::heads)> Segments;",
        ]
        seed = self._seed()
        self._head("Pair", "Pair" if keys.count else "Stored", "Segments", seeded=False)
        made = "" if seed is None else f", start({seed})"
        self.lines += [
            "  static constexpr bool vectors = false, plain = false;",
            "  Segments op;",
            "  km::Finish last;",
            "  Value start;",
            "  Pair seed;",
            "  template <class Call>",
            "  KM_INL explicit Scan(const Call& c)",
            f"      : op{{Fold(c.captures)}}, last(c.captures){made} {{}}",
            f"  {self._finish(seeded=seed is not None)}",
            "  static KM_INL bool begins(const Pair& v) { return v.heads != 0; }",
            "};",
        ]
        self._key_feeds(keys)
        at = parts.result_operand
        if keys.count is not None:
            self._key_buffers(keys, keys.count)
        elif "results" in keys.feeds:
            self.lines.append(self._given("Sink", keys.feeds["results"]))
        else:
            self.lines.append(f"typedef km::scan_sink<{at}, {_argument(parts.made)}> Sink;")

    def _key_feeds(self, keys: KeyText) -> None:
        """Append what reads keys and values."""
        mapper, key = self._mapper(), self._spelled(keys.taken)
        same = f"km::scan_same<{key}>"
        reading = {
            "keys": f"typedef km::scan_feed<0, {_argument(keys.taken)}, {same}> Keys;",
            "values": (
                f"typedef km::scan_feed<{keys.values}, {_argument(self.parts.taken)}, {mapper}> "
                "Values;"
            ),
        }
        for name, struct, map_ in (("keys", "Keys", same), ("values", "Values", mapper)):
            if name in keys.feeds:
                reading[name] = self._computed(struct, keys.feeds[name], map_)
        self.lines += [*reading.values(), "typedef km::keyed_feed<Keys, Values, Same, Pair> Feed;"]

    def _key_buffers(self, keys: KeyText, count: DType) -> None:
        """Append what takes the first key and the total of each segment."""
        at = self.parts.result_operand
        taking = []
        columns = (
            ("keys to", "KeysTo", self._spelled(keys.taken)),
            ("totals to", "TotalsTo", "Stored"),
        )
        for number, (name, struct, type_) in enumerate(columns):
            if name in keys.feeds:
                self.lines.append(self._given(struct, keys.feeds[name]))
                taking.append(struct)
            else:
                taking.append(f"km::keyed_buffer<{type_}, {at + number}>")
        self.lines += [
            f"typedef km::keyed_sink<Keys, Same, km::Finish, Pair, {', '.join(taking)},",
            f"    {type_spelling(count, qualified=True)}, {at + 2}> Sink;",
        ]

    def _finish(self, *, seeded: bool) -> str:
        """Return what makes a result of a pair; `head` says that its element begins a segment."""
        if self.reduces:
            return "KM_INL const Pair& finish(const Pair& v, bool) const { return v; }"
        started = "op.op(start, v.value)" if seeded else "v.value"
        if self.parts.exclusive:
            started = f"head ? start : {started}"
        return (
            "KM_INL Stored finish(const Pair& v, [[maybe_unused]] bool head) const "
            f"{{ return last({started}); }}"
        )

    @staticmethod
    def _spelled(operand: tuple[Stored, Access]) -> str:
        return type_spelling(operand[0], qualified=True)


def _flag(value: bool) -> str:  # noqa: FBT001 - how C++ spells it
    return "true" if value else "false"


def _argument(operand: tuple[Stored, Access]) -> str:
    type_, access = operand
    return f"km::arg<{type_spelling(type_, qualified=True)}, km::{access}>"
