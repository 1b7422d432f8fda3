"""What is refused for more than family, element type and layout: by option, operator or size.

A row is the text of an error and what it is raised for; `capabilities()` prints them. What type and
layout alone decide, is in `capabilities.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kernelmill.algorithms.policy_merges import LARGEST_ELEMENT
from kernelmill.compiler.raw import IMAGE_ALONE
from kernelmill.errors import NotImplementedHere

__all__ = ["BITS", "IMAGES", "REFUSALS", "SEGMENTS", "WEIGHTS", "WIDE", "Refusal"]

_EVERYWHERE: Final = ("cpu", "cuda", "emulator")
_GRIDS: Final = ("cuda", "emulator")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A combination that is not carried out, and the text of its error, with names to fill in.

    No families stand for all of them.
    """

    families: tuple[str, ...]
    backends: tuple[str, ...]
    when: str
    text: str
    hint: str = ""

    def error(self, **found: object) -> NotImplementedHere:
        """Return the error for a call."""
        return NotImplementedHere(self.text.format(**found), hint=self.hint)

    def line(self) -> str:
        """Return the row as text: families, back ends, the case, and the error."""
        families, backends = ", ".join(self.families) or "all", ", ".join(self.backends)
        return f"{families} on {backends}, {self.when}: {self.text}"


SEGMENTS: Final = Refusal(
    ("segmented", "segmented_scan"),
    _GRIDS,
    "determinism='device_to_device' with an operator that is none of the well-known ones of "
    "integers",
    "{name} of {operator} in {type} has no order that is the same on every device: "
    "`determinism='device_to_device'`",
    "use `segment_size=` where all are of one length, or the default 'run_to_run'",
)
WEIGHTS: Final = Refusal(
    ("histogram", "bincount"),
    _EVERYWHERE,
    "determinism='device_to_device' with weights that are added as floats",
    "sums of {type} weights have no order that is the same on every device: "
    "`determinism='device_to_device'`",
    "use integer weights, or the default 'run_to_run'",
)
WIDE: Final = Refusal(
    ("sort", "segmented_sort", "merge"),
    _GRIDS,
    f"elements that are compared, of more than {LARGEST_ELEMENT} bytes, the number of a segment "
    "among them",
    "{name} of elements of {bytes} bytes has no form for CUDA in this version; the arrays are on "
    "{device}",
    "sort places by a key with `km.argsort`, or copy the arrays to the host",
)
IMAGES: Final = Refusal((), ("cpu", "emulator"), "a raw operator of LTO-IR", IMAGE_ALONE)
BITS: Final = Refusal(
    (
        "reduce",
        "transform_reduce",
        "scan",
        "exclusive_scan",
        "scan_by_key",
        "reduce_by_key",
        "segmented",
        "segmented_scan",
        "histogram",
        "bincount",
    ),
    _EVERYWHERE,
    "determinism='device_to_device' with a floating-point operation that is not rounded once, C++, "
    "or an operator that changes captured arrays",
    "determinism='device_to_device' with {operator}: {reason}",
)
REFUSALS: Final = (SEGMENTS, WEIGHTS, WIDE, IMAGES, BITS)
