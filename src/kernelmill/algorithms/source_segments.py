"""The C++ text of segmented reductions and scans: a fold as a struct around one template.

The templates are `host/segmented.hpp` and `device/segmented.cuh`; what is asked of them is decided
in `segments.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kernelmill.algorithms.policy import segment_tree
from kernelmill.algorithms.source import assemble, text_of
from kernelmill.algorithms.source_reduce import FoldText, device_fold_lines, host_fold_lines
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import CUDA, HOST
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from kernelmill.algorithms.feed_text import PlacedFeed
    from kernelmill.compiler.cpp import PrintedOperator
    from kernelmill.compiler.dialects import Dialect
    from kernelmill.compiler.ir import Program
    from kernelmill.dtypes import DType, StructType

__all__ = ["SEGMENT_WARPS", "SegmentsText"]

SEGMENT_WARPS: Final = 8  # of a block, as device/segmented.cuh has them
_THREADS: Final = 32 * SEGMENT_WARPS


@dataclass(frozen=True, slots=True)
class SegmentsText:
    """What the text of a kernel is made of; `empty_at` and `room` are places in its scalars.

    `source` and `sink` stand where elements or results are no array, `bounds` where offsets are
    none, on the host; `item` is then what elements are made of. `element` makes an accumulator of
    an element; None where it is one. `adjoins` says that elements lie beside each other, `aligned`
    that they lie where their type wants them. `apart` says that begins and ends are arrays of their
    own, `exclusive` is None for reductions. At least `resident` blocks share a multiprocessor.
    """

    name: str
    fold: FoldText
    element: Program | None
    empty: Program
    empty_at: int
    room: int
    item: DType | StructType
    offset: DType
    adjoins: bool
    aligned: bool
    apart: bool
    exclusive: bool | None
    operands: int
    source: PlacedFeed | None = field(default=None, repr=False)
    sink: PlacedFeed | None = field(default=None, repr=False)
    resident: int = 1
    bounds: tuple[PlacedFeed, ...] = field(default=(), repr=False)

    def host(self) -> KernelSource:
        """Return the text for the processor."""
        writer = _Writer(self, HOST)
        lines = host_fold_lines(0, self.fold, writer.printed)
        lines += writer.lines()
        writer.printed.append(print_program(self.empty, HOST, name="Empty0"))
        pattern = "contiguous" if self.adjoins else "strided"
        launch = (
            "const char* packed = (const char*)call->captures;\n"
            f"  km::segmented<{writer.mapper}, {writer.argument(pattern)}, Fold0, km::Empty0,\n"
            f"      {_spelled(self.offset)}, {_flag(self.apart)}{writer.rest}>::{self._function}"
            f"(call, {writer.made}, Fold0(packed), km::Empty0(packed + {self.empty_at}));"
        )
        return assemble(
            self.name, ["segmented.hpp", *writer.includes], writer.printed, launch,
            "\n".join(lines),
        )  # fmt: skip

    @property
    def _function(self) -> str:
        return "reduce" if self.exclusive is None else f"scan<{_flag(self.exclusive)}>"

    def device(self) -> KernelSource:
        """Return the text for a device."""
        writer = _Writer(self, CUDA)
        lines = device_fold_lines(0, self.fold, writer.printed)
        lines += writer.lines()
        writer.printed.append(print_program(self.empty, CUDA, name="Empty"))
        lines += [
            "struct Empty0 : km::Empty {",
            "  KM_INL explicit Empty0(const char* packed)",
            f"      : km::Empty(packed + {self.empty_at}) {{}}",
            "};",
        ]
        tree = segment_tree(self.fold.accumulator.itemsize)
        access = "km::element" if self.aligned else "km::unaligned_element"
        threads = _THREADS if self.apart else _THREADS + 32
        bounds = str(threads) if self.apart else f"{threads}, km::segment_blocks<{self.resident}>"
        function = "apart" if self.apart else self._function
        lines += [
            f"typedef km::segmented<{writer.mapper}, {writer.argument('contiguous')},",
            (
                f"    Fold0, Empty0, {_spelled(self.offset)}, {_flag(self.fold.ordered)}, "
                f"{_flag(self.apart)}, {tree.wide}, {tree.rows}, {max(16, self.room)},"
            ),
            f"    {access}, {self.operands}{writer.to}> Run;",
            f"KM_EXPORT void __launch_bounds__({bounds})",
            "km_kernel(const __grid_constant__ Run::call call) {",
            f"  km::take_turn();\n  Run::{function}(call);\n}}\n",
        ]
        text = text_of(
            self.name, ["segmented.cuh", *writer.includes], writer.printed, "\n".join(lines)
        )
        return KernelSource(self.name, text, tree.tile)


class _Writer:
    """Prints what reads elements and takes results; `printed` are the operators they use."""

    def __init__(self, text: SegmentsText, dialect: Dialect) -> None:
        self.text, self.dialect = text, dialect
        self.printed: list[PrintedOperator] = []
        self.includes: tuple[str, ...] = ()
        item = _spelled(text.item)
        self.mapper, self.made = f"km::same<{item}>", f"km::same<{item}>()"
        self.to = self.bounds = ""

    @property
    def rest(self) -> str:
        """The template arguments for results and offsets that are no arrays."""
        to = self.to
        if self.bounds and not to:
            to = f", km::results_at<Fold0::out, {2 + self.text.apart}>"
        return to + self.bounds

    def argument(self, pattern: str) -> str:
        """Return how the template reads elements: of what is computed, their numbers."""
        if self.text.source is not None:
            return "km::arg<km::i64, km::index>"
        return f"km::arg<{_spelled(self.text.item)}, km::{pattern}>"

    def lines(self) -> list[str]:
        """Return the structs; sets the names by which a template is given them."""
        text = self.text
        if text.element is not None:
            self.printed.append(print_program(text.element, self.dialect, name="Element"))
        lines = self._reading(text.source) if text.source is not None else self._map()
        lines += self._writing(text.sink) if text.sink is not None else []
        return lines + (self._bounding(text.bounds) if text.bounds else [])

    def _map(self) -> list[str]:
        if self.text.element is None:
            return []
        self.mapper, self.made = "Map", "Map(packed)"
        return [
            "struct Map : km::Element, km::mapped {",
            "  KM_INL explicit Map(const char* packed) : km::Element(packed) {}",
            "};",
        ]

    def _reading(self, source: PlacedFeed) -> list[str]:
        made = source.text("Reading")
        self.printed += made.printed
        self.includes += made.includes
        self.mapper, self.made = "Map", "Map(call)"
        held, value = "", "in(i)"
        if self.text.element is not None:
            held, value = "  km::Element element;\n", "element(in(i))"
        start = ", element(km::captures_of(call))" if held else ""
        return [
            made.text,
            "struct Map : km::mapped {",
            f"  {made.type} in;",
            f"{held}  template <class Call> KM_INL explicit Map(const Call& call)",
            f"      : in({made.made}){start} {{}}",
            f"  KM_INL auto operator()(km::i64 i) const {{ return {value}; }}",
            "};",
        ]

    def _bounding(self, bounds: tuple[PlacedFeed, ...]) -> list[str]:
        made = [b.text(f"Bound{number}") for number, b in enumerate(bounds)]
        for text in made:
            self.printed += text.printed
            self.includes += text.includes
        self.bounds = ", Bounds"
        first, last = made[0], made[-1]
        ends = "last(i)" if self.text.apart else "last(i + 1)"
        return [
            *(text.text for text in made),
            "struct Bounds {",
            "  static constexpr bool array = false;",
            f"  {first.type} first;",
            f"  {last.type} last;",
            "  KM_INL explicit Bounds(const km::Call* call)",
            f"      : first({first.made}), last({last.made}) {{}}",
            "  KM_INL km::i64 begin(km::i64 i) const { return (km::i64)first(i); }",
            f"  KM_INL km::i64 end(km::i64 i) const {{ return (km::i64){ends}; }}",
            "};",
        ]

    def _writing(self, sink: PlacedFeed) -> list[str]:
        made = sink.text("Writing")
        self.printed += made.printed
        self.includes += made.includes
        self.to = ", Results"
        return [
            made.text,
            "struct Results {",
            "  static constexpr bool array = false;",
            f"  {made.type} out;",
            "  template <class Call> KM_INL explicit Results([[maybe_unused]] const Call& call)",
            f"      : out({made.made}) {{}}",
            "  KM_INL void operator()(km::i64 i, const Fold0::out& value) const { out(i, value); }",
            "};",
        ]


def _flag(value: bool) -> str:  # noqa: FBT001 - how C++ spells it
    return "true" if value else "false"


def _spelled(type_: DType | StructType) -> str:
    return type_spelling(type_, qualified=True)
