"""The CUDA texts of merges: one instance of a template of `device/merge_*.cuh` each.

Which of them a sort takes, and in what order, is in `merges_sort.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kernelmill.algorithms.costs import count_flops
from kernelmill.algorithms.plan import Scope
from kernelmill.algorithms.policy_merges import SPLIT_THREADS
from kernelmill.algorithms.source import VALUE_SLOT, storing, text_of
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import CUDA
from kernelmill.dtypes import bool_
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from kernelmill.algorithms.policy import Chip
    from kernelmill.algorithms.policy_merges import MergeTile
    from kernelmill.compiler.op import Specialized
    from kernelmill.dtypes import DType, StructType

__all__ = [
    "RUNS",
    "SPREAD",
    "MergeOrder",
    "begin_source",
    "pack_source",
    "pass_source",
    "room_of_block",
    "split_source",
    "tiles_source",
    "unpack_source",
    "work_bytes",
]

# As device/merge_sort.cuh has them.
RUNS: Final = 4
SPREAD: Final = 8
Runs: TypeAlias = Literal["row_runs", "array_runs"]
_OPERANDS: Final = {"": 5, "row_runs": 5, "array_runs": 7}
_PASSES: Final = 32
_WORD: Final = 4
_SPLIT: Final = 8 * RUNS
_PACKET: Final = 16


@dataclass(frozen=True, slots=True)
class MergeOrder:
    """What elements are compared by, and from above or below; first by segments, where `parted`."""

    type: DType | StructType
    compare: Specialized
    descending: bool
    chip: Chip
    parted: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """What a text depends on."""
        return (self.compare.kept, self.type, self.descending, self.chip, self.parted)

    @property
    def spelled(self) -> str:
        """The type of what is merged, in C++."""
        spelled = type_spelling(self.type, qualified=True)
        return f"km::in_segment<km::stored<{spelled}>::type>" if self.parted else spelled

    @property
    def itemsize(self) -> int:
        """The bytes of what is merged."""
        if not self.parted:
            return self.type.itemsize
        unit = max(self.type.alignment, _WORD)
        return -(-(-(-self.type.itemsize // _WORD) * _WORD + _WORD) // unit) * unit

    @property
    def scope(self) -> Scope:
        """The operator, whose captured scalars a launch is handed."""
        return Scope((self.compare.kept,))

    @property
    def flops(self) -> int:
        """Operations of a comparison."""
        return count_flops(self.compare.translation.program)


def work_bytes(tiles: int) -> int:
    """Return the memory of a sort of several tiles, as `merge_work` lays it out."""
    return _PASSES * _WORD + tiles * _SPLIT


def _packets(nbytes: int) -> int:
    return -(-nbytes // _PACKET) * _PACKET


def room_of_block(tile: MergeTile, item: int, payload: int) -> int:
    """Return the shared memory of a block that merges."""
    places = _packets(2 * tile.elements) if payload else 0
    return 2 * (_packets(tile.elements * item) + 32 * RUNS) + 2 * places


def _shape(tile: MergeTile, chip: Chip) -> str:
    bulk = str(chip == "bulk").lower()
    return f"km::merge_shape<{tile.threads}, {tile.items}, {tile.resident}, {bulk}>"


def _source(
    name: str, order: MergeOrder, run: str, *, operands: int, bounds: str, tile: int, check: str
) -> KernelSource:
    """Return the text of a kernel that runs one instance of a template."""
    program = storing(order.compare.translation.program, (bool_,))
    compared = "compared_in_segment" if order.parted else "compared"
    template = "merge_segments.cuh" if order.parted else "merge_sort.cuh"
    room = max(VALUE_SLOT, -(-order.scope.size // VALUE_SLOT) * VALUE_SLOT)
    body = "  Run::run(call);\n"
    if order.chip == "bulk":
        trap = "  __trap();  // other chips are given another text\n"
        body = f"#if __CUDA_ARCH__ >= 900\n{body}#else\n{trap}#endif\n"
    rest = (
        f"typedef km::{compared}<km::Op, {type_spelling(order.type, qualified=True)}, "
        f"{str(order.descending).lower()}> Less;\n"
        f"typedef {run} Run;\n{check}"
        f"KM_EXPORT void __launch_bounds__({bounds})\n"
        f"km_kernel(const __grid_constant__ km::MergeCall<{room}, {operands}> call) {{\n"
        f"  km::take_turn();\n{body}}}\n"
    )
    text = text_of(name, [template], [print_program(program, CUDA)], rest)
    return KernelSource(name, text, tile)


def tiles_source(order: MergeOrder, payload: int, tile: MergeTile) -> KernelSource:
    """Return the text that sorts tiles; `payload` is the bytes of one."""
    return _block_source("merge_tiles", order, payload, tile, "")


def pass_source(order: MergeOrder, payload: int, tile: MergeTile, runs: Runs) -> KernelSource:
    """Return the text that merges runs of rows, or two arrays."""
    return _block_source("merge_pass", order, payload, tile, runs)


def _block_source(
    template: str, order: MergeOrder, payload: int, tile: MergeTile, runs: str
) -> KernelSource:
    beside = f"km::u{8 * payload}" if payload else "km::no_payload"
    shape = _shape(tile, order.chip)
    told = f"{order.compare.op.name} ({order.type}, {payload} bytes beside)"
    merged = f", km::{runs}" if runs else ""
    run = f"km::{template}<Less, {order.spelled}, {beside},\n    {shape}{merged}>"
    room = room_of_block(tile, order.itemsize, payload)
    check = f'static_assert(Run::room == {room}, "what is asked of shared memory");\n'
    bounds = f"{tile.threads}, {tile.resident}"
    name = f"{template.replace('_', ' ')} {told}"
    return _source(
        name, order, run, operands=_OPERANDS[runs], bounds=bounds, tile=tile.elements, check=check
    )


def begin_source(order: MergeOrder, tile: MergeTile) -> KernelSource:
    """Return the text that makes the memory of a merge of two arrays ready."""
    run = f"km::merge_begin<km::array_runs<{tile.elements}>>"
    bounds = str(SPLIT_THREADS)
    name = f"merge begin {order.compare.op.name} ({order.type})"
    return _source(name, order, run, operands=7, bounds=bounds, tile=tile.elements, check="")


def split_source(order: MergeOrder, tile: MergeTile, runs: Runs) -> KernelSource:
    """Return the text that finds where tiles begin in their runs."""
    run = f"km::merge_splits<Less, {order.spelled}, {_shape(tile, order.chip)}, km::{runs}>"
    name = f"merge splits {order.compare.op.name} ({order.type})"
    bounds = str(SPLIT_THREADS)
    return _source(
        name, order, run, operands=_OPERANDS[runs], bounds=bounds, tile=tile.elements, check=""
    )


def pack_source(order: MergeOrder, offsets: DType | StructType, threads: int) -> KernelSource:
    """Return the text that gives elements the numbers of their segments."""
    stored = f"km::stored<{type_spelling(order.type, qualified=True)}>::type"
    run = f"km::segments_pack<{stored}, {type_spelling(offsets, qualified=True)}>"
    name = f"segments {order.compare.op.name} ({order.type}, {offsets})"
    bounds = str(threads)
    return _source(name, order, run, operands=3, bounds=bounds, tile=threads, check="")


def unpack_source(order: MergeOrder, threads: int) -> KernelSource:
    """Return the text that writes elements without the numbers of their segments."""
    run = f"km::segments_unpack<km::stored<{type_spelling(order.type, qualified=True)}>::type>"
    name = f"segments written {order.compare.op.name} ({order.type})"
    bounds = str(threads)
    return _source(name, order, run, operands=2, bounds=bounds, tile=threads, check="")
