"""Results files: what one looks like, what it says of the machine, and how runs are merged.

One file a processor or GPU, `results/<machine>.json`. A family is replaced as a whole and carries
the stamp of the run that measured it: commit, date, versions, the rooflines of that same run.
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
    from collections.abc import Sequence

    from kernelmill.runtime.calibrate import Roofline

__all__ = [
    "DIRECTORY",
    "SCHEMA",
    "common_stamp",
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
    for name, family in data["families"].items():
        _has(family, ("stamp", "rows"), f"family {name}")
        keys = _GPU_STAMP_KEYS if is_gpu else _STAMP_KEYS
        _has(family["stamp"], keys, f"the stamp of {name}")
        for number, row in enumerate(family["rows"]):
            try:
                checked = Row.from_json(row)
            except (TypeError, KeyError) as error:
                raise ValueError(f"row {number} of {name}: {error}") from None
            if not checked.best or min(checked.best.values()) <= 0:
                raise ValueError(f"row {number} of {name} ({checked.case}): no positive seconds")
    return data


def _has(data: Data, keys: Any, where: str) -> None:
    missing, unknown = sorted(set(keys) - set(data)), sorted(set(data) - set(keys))
    if missing or unknown:
        raise ValueError(f"{where}: missing {missing}, unknown {unknown}")


def merge(old: Data | None, found: Data, families: dict[str, Sequence[Row]], stamped: Data) -> Data:
    """Return `old` with these families replaced, or a new file.

    Raises ValueError when `old` is of another machine.
    """
    if old is not None and old["machine"] != found:
        differs = [key for key in found if old["machine"].get(key) != found[key]]
        raise ValueError(f"the file is of another machine: {', '.join(differs)} differ")
    kept = {} if old is None else dict(old["families"])
    for name, rows in families.items():
        kept[name] = {"stamp": stamped, "rows": [row.as_json() for row in rows]}
    return {"schema": SCHEMA, "machine": found, "families": dict(sorted(kept.items()))}


def write(path: Path, data: Data) -> None:
    """Write a results file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(validate(data), indent=1) + "\n")
    aside.replace(path)
