"""Results files: what one looks like, what it says of the machine, and how runs are merged.

One file a processor or GPU, `results/<machine>.json`. A family carries the stamp of the run that
measured it: commit, date, versions, the rooflines of that same run. A run that measured some of its
rows replaces those; the others stay beside them as "older", under the stamps of their own runs.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness import Row
from kernelmill.runtime.calibrate import host_caches
from kernelmill.toolchain import find_host_compiler
from peers import threads
from reference import FLAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.runtime.calibrate import Roofline

__all__ = [
    "DIRECTORY",
    "SCHEMA",
    "combined",
    "common_stamp",
    "groups",
    "joined",
    "machine",
    "machine_name",
    "merge",
    "place",
    "read",
    "stamp",
    "validate",
    "write",
]

SCHEMA: Final = 1
DIRECTORY: Final = Path(__file__).resolve().parent / "results"
_PACKAGES: Final = ("numpy", "numba", "torch", "numexpr")
_MACHINE_KEYS: Final = frozenset(("cpu", "architecture", "cores", "caches", "memory_bytes"))
_GPU_KEYS: Final = frozenset(("gpu", "capability", "multiprocessors", "l2_bytes", "memory_bytes"))
_COMMON_KEYS: Final = ("commit", "date", "quick", "python", "packages", "compiler", "roofline")
_STAMP_KEYS: Final = frozenset((*_COMMON_KEYS, "reference_flags", "threads", "load_before"))
_GPU_STAMP_KEYS: Final = frozenset((*_COMMON_KEYS, "driver"))

Data = dict[str, Any]


# ----------------------------------------------------------------------------- what ran where


def machine() -> Data:
    """Describe the machine: what does not change from run to run."""
    return {
        "cpu": _cpu_model(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": [asdict(cache) for cache in host_caches()],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _cpu_model() -> str:
    """Return the name of the processor, with family and model where virtual machines hide them."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{k} {fields[k]}" for k in ("cpu family", "model") if k in fields]
    return " ".join([name, f"({', '.join(numbers)})"] if numbers else [name])


def machine_name(found: Data) -> str:
    """Return the name of a machine's results file, without its ending."""
    if "gpu" in found:
        return "-".join(re.findall(r"[a-z0-9]+", found["gpu"].lower()))
    text = re.sub(r"cpu family|model|processor", "", found["cpu"].lower())
    words = re.findall(r"[a-z0-9]+", text)
    return "-".join([*words, f"{found['cores']}-cores"])


def stamp(roofline: Roofline, *, quick: bool, load: float, commit: str = "") -> Data:
    """Describe this run; `load` is the load average before it began."""
    compiler = find_host_compiler()
    return {
        **common_stamp(_PACKAGES, quick=quick, commit=commit),
        "compiler": str(compiler).partition(":")[0],
        "reference_flags": " ".join(FLAGS),
        "threads": threads(),
        "load_before": load,
        "roofline": asdict(roofline),
    }


def common_stamp(packages: Sequence[str], *, quick: bool, commit: str = "") -> Data:
    """Describe a run on any machine: the tree, when it was, Python and packages.

    `commit` is that of a tree that was copied without its history.
    """
    return {
        "commit": commit or _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    """Return the commit of the tree, with "+" when files differ from it; "" outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    found, changed = (
        subprocess.run(
            ["git", "-C", str(root), *command], capture_output=True, text=True, check=False
        )
        for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "-uno", "--", "src"))
    )
    return found.stdout.strip() + ("+" if changed.stdout.strip() else "")


# ----------------------------------------------------------------------------- files


def place(directory: Path = DIRECTORY, name: str = "") -> Path:
    """Return the path of this machine's results file."""
    return directory / f"{name or machine_name(machine())}.json"


def read(path: Path) -> Data:
    """Read and validate a results file.

    Raises ValueError naming the file and what is wrong with it.
    """
    try:
        return validate(json.loads(path.read_text()))
    except ValueError as error:
        raise ValueError(f"{path.name} is not a results file: {error}") from None


def validate(data: Any) -> Data:
    """Return the data of a results file; raises ValueError where it is not one."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise ValueError(f"schema {found!r}, expected {SCHEMA}")
    _has(data, ("schema", "machine", "families"), "the file")
    is_gpu = "gpu" in data["machine"]
    _has(data["machine"], _GPU_KEYS if is_gpu else _MACHINE_KEYS, "machine")
    keys = _GPU_STAMP_KEYS if is_gpu else _STAMP_KEYS
    for name, family in data["families"].items():
        _has(family, ("stamp", "rows"), f"family {name}", ("older", "partial"))
        for group in groups(family):
            _has(group, ("stamp", "rows"), f"older rows of {name}")
            _has(group["stamp"], keys, f"the stamp of {name}")
            for number, row in enumerate(group["rows"]):
                _check_row(row, number, name)
        _check_keys(family, name)
    return data


def _check_row(row: Any, number: int, family: str) -> None:
    try:
        checked = Row.from_json(row)
    except (TypeError, KeyError) as error:
        raise ValueError(f"row {number} of {family}: {error}") from None
    if not checked.best or min(checked.best.values()) <= 0:
        raise ValueError(f"row {number} of {family} ({checked.case}): no positive seconds")


def _check_keys(family: Data, name: str) -> None:
    """Raise ValueError where a row stands in the results of two runs."""
    seen = [_key(row) for group in groups(family) for row in group["rows"]]
    for key in seen:
        if seen.count(key) > 1:
            raise ValueError(f"family {name} has two rows {key[0]} {key[1]} {key[2]}")


def _has(data: Data, keys: Any, where: str, optional: Any = ()) -> None:
    missing, unknown = sorted(set(keys) - set(data)), sorted({*data} - {*keys, *optional})
    if missing or unknown:
        raise ValueError(f"{where}: missing {missing}, unknown {unknown}")


def _key(row: Data) -> tuple[str, str, int]:
    return row["case"], row["dtype"], row["elements"]


def groups(family: Data) -> list[Data]:
    """Return the rows of each run that a family holds, with their stamp, the newest run first."""
    newest = {"stamp": family["stamp"], "rows": family["rows"]}
    return [newest, *family.get("older", ())]


def joined(
    old: Data | None,
    rows: Sequence[Row],
    stamped: Data,
    *,
    partial: bool = False,
    wrong: Callable[[Row], bool] = lambda _: False,
) -> Data | None:
    """Return a family as a run leaves it, None where there is nothing of it.

    A `partial` run keeps the rows that it did not measure, but for those that it found `wrong`.
    """
    if not partial:
        return {"stamp": stamped, "rows": [row.as_json() for row in rows]}
    new = {row.key for row in rows}
    left = [{"stamp": stamped, "rows": [row.as_json() for row in rows]}] if rows else []
    for group in [] if old is None else groups(old):
        older = [
            row for row in group["rows"] if _key(row) not in new and not wrong(Row.from_json(row))
        ]
        if older:
            left.append({"stamp": group["stamp"], "rows": older})
    return _family(left, partial=bool(rows) or (old is not None and "partial" in old))


def combined(old: Data | None, carried: Data) -> Data:
    """Return a family of one file with the same family of another: the newest of each row.

    A run that measured all of it replaces what is older as a whole.
    """
    if old is None:
        return carried
    if "partial" not in carried:
        return carried if carried["stamp"]["date"] >= old["stamp"]["date"] else old
    newest: dict[tuple[str, str, int], tuple[Data, Data]] = {}
    for group in sorted([*groups(old), *groups(carried)], key=_date):
        newest |= {_key(row): (group["stamp"], row) for row in group["rows"]}
    left: list[Data] = []
    for stamped, row in newest.values():
        place = next((g for g in left if g["stamp"] == stamped), None)
        if place is None:
            left.append({"stamp": stamped, "rows": [row]})
        else:
            place["rows"].append(row)
    found = _family(left, partial=True)
    assert found is not None
    return found


def _family(left: list[Data], *, partial: bool) -> Data | None:
    """Return the family of the rows of several runs."""
    if not left:
        return None
    first, *rest = sorted(left, key=_date, reverse=True)
    family = {**first, "older": rest} if rest else dict(first)
    return {**family, "partial": True} if partial else family


def _date(group: Data) -> str:
    return str(group["stamp"]["date"])


def merge(old: Data | None, found: Data, families: dict[str, Data]) -> Data:
    """Return `old` with these families replaced, or a new file.

    Raises ValueError when `old` is of another machine.
    """
    if old is not None and old["machine"] != found:
        differs = [key for key in found if old["machine"].get(key) != found[key]]
        raise ValueError(f"the file is of another machine: {', '.join(differs)} differ")
    kept = {} if old is None else old["families"]
    return {
        "schema": SCHEMA,
        "machine": found,
        "families": dict(sorted({**kept, **families}.items())),
    }


def write(path: Path, data: Data) -> None:
    """Write a results file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(validate(data), indent=1) + "\n")
    aside.replace(path)
