"""The C++ text of a histogram: one template, and what computes values or takes counts for it.

The templates are `host/histogram.hpp` and `device/histogram.cuh`; what is asked of them is decided
in `histograms.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelmill.algorithms.feed_text import placed_feeds
from kernelmill.algorithms.source import assemble, text_of
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from kernelmill.algorithms.feed_text import FeedText
    from kernelmill.algorithms.feeds import Feed
    from kernelmill.dtypes import DType

__all__ = ["HistogramText", "cuda_text", "host_text"]


@dataclass(frozen=True, slots=True)
class HistogramText:
    """What the text of a histogram is made of.

    `place` says what a bin is, `counts` what is added up; `operands` are those of the template.
    Feeds, of values and then weights, and sinks, of the counts of each channel, have theirs behind
    them, and captured scalars at `offsets`, `captured` bytes in all.
    """

    name: str
    channels: int
    place: str
    counts: str
    value: DType
    total: DType
    aligned: bool
    operands: int
    offsets: tuple[int, ...]
    captured: int
    feeds: tuple[Feed, ...] = field(default=(), repr=False)
    sinks: tuple[Feed, ...] = field(default=(), repr=False)

    @property
    def fed(self) -> str:
        """The template argument for what is computed or handed on."""
        return ", Fed" if self.feeds or self.sinks else ""

    def texts(self) -> list[FeedText]:
        """Return the functors of feeds and sinks, in order."""
        feeds = (*self.feeds, *self.sinks)
        placed = placed_feeds(feeds, self.offsets, operand=self.operands, block=0)
        return [one.text(f"Feed{number}") for number, one in enumerate(placed)]

    def struct(self, texts: list[FeedText], functions: list[str]) -> str:
        """Return the structs that a template takes as `Fed`."""
        extra = sum(len(f.arguments) for f in (*self.feeds, *self.sinks))
        computes, hands = (str(bool(some)).lower() for some in (self.feeds, self.sinks))
        return (
            "".join(made.text for made in texts) + "struct Fed {\n"
            f"  static constexpr bool computes = {computes}, hands = {hands};\n"
            f"  static constexpr int operands = {extra}, before = {self.captured};\n"
            + "".join(functions)
            + "};\n"
        )


def host_text(text: HistogramText) -> KernelSource:
    """Return the text of a histogram on the host."""
    channels = f"km::indices_of<{text.channels}>"
    launch = f"km::histogram<{channels}, {text.place}, {text.counts}{text.fed}>::run(call);"
    if not text.fed:
        return assemble(text.name, ["histogram.hpp"], [], launch)
    made = text.texts()
    fills = "".join(
        f"    if (k == {k}) {{\n      const auto in = {one.made};\n"
        f"      for (km::i64 j = 0; j < n; j++) km::element<{_type(feed)}>::store("
        f"room + j * {feed.type.itemsize}, in(i + j));\n    }}\n"
        for k, (one, feed) in enumerate(zip(made, text.feeds, strict=False))
    )
    fill = (
        "  static KM_INL void fill([[maybe_unused]] const km::Call* call, int k, km::i64 i,\n"
        f"                          km::i64 n, char* room) {{\n{fills}  }}\n"
    )
    functions = [fill, _put(text, made, "const km::Call*")]
    printed = [p for one in made for p in one.printed]
    files = ["histogram.hpp", *(file for one in made for file in one.includes)]
    return assemble(text.name, files, printed, launch, text.struct(made, functions))


def _type(feed: Feed) -> str:
    return type_spelling(feed.type, qualified=True)


def _put(text: HistogramText, made: list[FeedText], call: str) -> str:
    """Return the function that hands on the count of a bin."""
    sinks = made[len(text.feeds) :]
    puts = "".join(
        f"    if (k == {k}) {{\n      const auto to = {one.made};\n      to(bin, value);\n    }}\n"
        for k, one in enumerate(sinks)
    )
    total = type_spelling(text.total, qualified=True)
    return (
        f"  static KM_INL void put([[maybe_unused]] {call} call, [[maybe_unused]] int k,\n"
        "                         [[maybe_unused]] km::i64 bin,\n"
        f"                         [[maybe_unused]] {total} value) {{\n"
        f"{puts}  }}\n"
    )


def cuda_text(text: HistogramText, loops: str, bounds: str, threads: int) -> KernelSource:
    """Return the text of a histogram on a device."""
    access = "km::element" if text.aligned else "km::unaligned_element"
    made = text.texts() if text.fed else []
    structs = text.struct(made, _device_functions(text, made)) if text.fed else ""
    rest = (
        f"{structs}typedef km::histogram<km::indices_of<{text.channels}>, {text.place}, "
        f"{text.counts}, {access}, {text.operands}{text.fed}> Run;\n"
        f"KM_EXPORT void __launch_bounds__({bounds})\n"
        "km_kernel(const __grid_constant__ Run::call call) {\n"
        f"  km::take_turn();\n  Run::{loops}(call);\n}}\n"
    )
    printed = [p for one in made for p in one.printed]
    files = ["histogram.cuh", *(file for one in made for file in one.includes)]
    return KernelSource(text.name, text_of(text.name, files, printed, rest), threads)


def _device_functions(text: HistogramText, made: list[FeedText]) -> list[str]:
    head = "  template <class Call> static KM_INL"
    found = []
    if text.feeds:
        last = text.channels - 1
        values = "".join(f"    if (k == {k}) return {made[k].made}(i);\n" for k in range(last))
        found.append(
            f"{head} {_type(text.feeds[0])} value(const Call& call, [[maybe_unused]] int k, "
            f"km::i64 i) {{\n{values}    return {made[last].made}(i);\n  }}\n"
        )
    for weight, one in zip(text.feeds[text.channels :], made[text.channels :], strict=False):
        found.append(
            f"{head} {_type(weight)} weight(const Call& call, km::i64 i) {{\n"
            f"    return {one.made}(i);\n  }}\n"
        )
    return [*found, "  template <class Call>\n" + _put(text, made, "const Call&")]
