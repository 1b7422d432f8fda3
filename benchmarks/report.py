"""Results as Markdown, and the pages of the documentation that show them; nothing is measured.

A page holds a block between two comments; what stands in it is made here from the files in
`results/`, and a test compares them. As a script: print a file's tables, rewrite the blocks, or
take over what was measured on another machine.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import results
from harness import (
    BUILT_IN,
    COPY,
    CUDA_CPP,
    FASTEST,
    FLOOR,
    OURS,
    PEERS,
    REFERENCE,
    Row,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness import Goal

__all__ = ["BEGIN", "END", "block", "duration", "goal_text", "main", "render", "take", "update"]

BEGIN: Final = "<!-- benchmarks: made by benchmarks/report.py -->"
END: Final = "<!-- end of benchmarks -->"
DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
_BLOCK: Final = re.compile(
    rf"<!-- benchmarks(?: of (\w+))?: made by benchmarks/report\.py -->\n.*?{re.escape(END)}",
    re.DOTALL,
)
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_OTHERS: Final = (REFERENCE, CUDA_CPP, FLOOR, COPY, BUILT_IN, "contiguous", *PEERS)


# ----------------------------------------------------------------------------- words


def duration(seconds: float) -> str:
    """Return seconds in a fitting unit, three digits.

    Examples
    --------
    >>> duration(0.00123)
    '1.23 ms'
    """
    scale, unit = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    return f"{_digits(seconds / scale)} {unit}"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _size(elements: int) -> str:
    """Return a number of elements, nothing where a case has none."""
    if elements <= 1:
        return ""
    power = elements.bit_length() - 1
    return f"2^{power}" if elements == 1 << power else f"{elements:,}"


def goal_text(goal: Goal) -> str:
    """Return what is asked, in words."""
    if not goal.peer:
        return f"≤ {duration(goal.seconds)}"
    if not goal.ratio:
        more = [f"{goal.share:.0%}"] * (goal.share > 0) + [duration(goal.seconds)] * (
            goal.seconds > 0
        )
        return f"≤ {goal.peer}" + (f" + {' or '.join(more)}" if more else "")
    return f"≥ {_digits(goal.ratio)} x {goal.peer}"


def _goals(row: Row) -> str:
    """Return the goals of a row with what was reached, those that are missed in bold."""
    shown = []
    for goal in row.goals:
        reached, met = verdict(row, goal)
        if reached is None:
            text = f"{goal_text(goal)}: {goal.peer} did not run"
        elif not goal.peer:
            text = goal_text(goal)
        else:
            peer = f" ({row.fastest_peer()})" if goal.peer == FASTEST else ""
            text = f"{goal_text(goal)}{peer}: {reached:.2f}"
        shown.append(f"met: {text}" if met else f"**missed**: {text}")
    return "; ".join(shown)


# ----------------------------------------------------------------------------- tables


def render(data: results.Data) -> str:
    """Return a results file as Markdown: the machine, then a table a family."""
    found = data["machine"]
    parts = _gpu(found) if "gpu" in found else _processor(found)
    for name, family in data["families"].items():
        parts.append(f"#### {name}")
        for number, group in enumerate(results.groups(family)):
            rows = [Row.from_json(row) for row in group["rows"]]
            older = "Older rows, which that run did not measure. " if number else ""
            parts += [older + _stamp(group["stamp"]), _table(rows, group["stamp"])]
            parts += _skipped(rows)
    return "\n\n".join(parts)


def _processor(found: dict[str, Any]) -> list[str]:
    caches = ", ".join(
        f"L{c['level']} {c['bytes'] >> 10} KiB"
        for c in found["caches"]
        if c["kind"] != "instruction"
    )
    return [
        f"### {found['cpu']}, {found['cores']} cores",
        f"{found['architecture']}; {caches}; {found['memory_bytes'] / 2**30:.0f} GiB of memory.",
    ]


def _gpu(found: dict[str, Any]) -> list[str]:
    parts = (
        f"Compute capability {found['capability']}; {found['multiprocessors']} multiprocessors",
        f"L2 {found['l2_bytes'] >> 20} MiB; {found['memory_bytes'] / 2**30:.0f} GiB of memory.",
    )
    return [f"### {found['gpu']}", ", ".join(parts)]


def _stamp(stamp: dict[str, Any]) -> str:
    packages = ", ".join(f"{n} {v}" for n, v in stamp["packages"].items() if v)
    roof = stamp["roofline"]
    rates = ", ".join(
        f"{name} {roof[f'{name}_bytes_per_second'] / 1e9:.1f}" for name in ("read", "write", "copy")
    )
    kind = "a quick run, not to be relied on; " if stamp["quick"] else ""
    where = f"driver {stamp['driver']}" if "driver" in stamp else f"{stamp['threads']} threads"
    text = f"{kind}{where}; "
    return (
        f"{text[0].upper()}{text[1:]}Python {stamp['python']}, {packages}, "
        f"{stamp['compiler']}; {stamp['date'][:10]}, commit {stamp['commit'][:12]}"
        f"{'+' if stamp['commit'].endswith('+') else ''}. Rooflines in GB/s: {rates}."
    )


def _table(rows: Sequence[Row], stamp: dict[str, Any]) -> str:
    others = [name for name in _OTHERS if any(name in row.best for row in rows)]
    moves = any(row.bytes for row in rows)
    goals = any(row.goals for row in rows)
    head = ["case", "type", "elements", "time"]
    head += ["GB/s", "of roofline"] if moves else []
    head += [f"x {name}" for name in others] + (["goals"] if goals else [])
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2 - goals), *["---"] * goals]]
    for row in rows:
        cells = [row.case, row.dtype, _size(row.elements), duration(row.best[OURS])]
        cells += _bandwidth(row, stamp["roofline"]) if moves else []
        ratios = [row.speedup(name) for name in others]
        cells += ["" if r is None else f"{r:.2f}" for r in ratios]
        lines.append(cells + ([_goals(row)] if goals else []))
    return "\n".join(f"| {' | '.join(c.replace('|', '¦') for c in line)} |" for line in lines)


def _bandwidth(row: Row, roofline: dict[str, Any]) -> list[str]:
    """Return the bandwidth, and its share of the roofline for arrays that no cache holds."""
    if not row.bytes:
        return ["", ""]
    rate = row.bytes / row.best[OURS]
    if row.bytes < roofline["array_bytes"]:
        return [f"{rate / 1e9:.1f}", ""]
    limit = roofline["copy_bytes_per_second" if row.written else "read_bytes_per_second"]
    return [f"{rate / 1e9:.1f}", f"{rate / limit:.0%}"]


def _skipped(rows: Sequence[Row]) -> list[str]:
    reasons = {name: why for row in rows for name, why in row.skipped.items()}
    return [f"{name} did not run: {why}" for name, why in reasons.items()]


# ----------------------------------------------------------------------------- pages

_NOTHING: Final = "No results are kept yet; `make bench` measures this machine."


def block(directory: Path = results.DIRECTORY, family: str = "") -> str:
    """Return the block that a page shows: every results file, or a line when there is none.

    With the name of a family it is that family's, of every file that has it.
    """
    kept = [results.read(path) for path in sorted(directory.glob("*.json"))]
    if family:
        kept = [
            {**data, "families": {family: data["families"][family]}}
            for data in kept
            if family in data["families"]
        ]
    text = "\n\n".join(map(render, kept)) or _NOTHING
    begin = BEGIN.replace("benchmarks:", f"benchmarks of {family}:", 1) if family else BEGIN
    return f"{begin}\n\n{text}\n\n{END}"


def update(docs: Path = DOCS, directory: Path = results.DIRECTORY) -> list[Path]:
    """Rewrite the blocks of all pages; returns those that changed."""
    changed = []
    for page in sorted(docs.rglob("*.md")):
        text = page.read_text()
        renewed = _BLOCK.sub(lambda match: block(directory, match[1] or ""), text)
        if renewed != text:
            page.write_text(renewed)
            changed.append(page)
    return changed


def take(carried: Path, directory: Path = results.DIRECTORY) -> Path:
    """Merge the families of a file from another machine into what is kept; returns that file.

    Of a family that was measured in part, the newest of each row is kept.

    Raises ValueError where one of the files is not a results file, or is of another machine.
    """
    found = results.read(carried)
    target = results.place(directory, results.machine_name(found["machine"]))
    kept = results.read(target) if target.exists() else None
    old = {} if kept is None else kept["families"]
    taken = {
        name: results.combined(old.get(name), family) for name, family in found["families"].items()
    }
    results.write(target, results.merge(kept, found["machine"], taken))
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks/report.py", description=__doc__)
    parser.add_argument("file", nargs="*", type=Path, help="results files; all that are kept")
    parser.add_argument("--update", action="store_true", help="rewrite the documentation's blocks")
    parser.add_argument("--take", action="store_true", help="keep files from other machines")
    asked = parser.parse_args(arguments)
    if asked.take:
        for path in asked.file:
            print(take(path))
    if asked.update or asked.take:
        for page in update():
            print(page)
        return 0
    for path in asked.file or sorted(results.DIRECTORY.glob("*.json")):
        print(render(results.read(path)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
