"""Which processor this is: model, features, digest, and what an instruction set needs. No flags.

`-march=native` makes the processor one of the things that a binary was made by, so its identity is
part of every cache key.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["Cpu", "host_cpu", "missing_features", "read_cpu"]

_CPUINFO: Final = Path("/proc/cpuinfo")

# What names a processor, on x86 and on ARM. Clock, microcode and core numbers are left out: they
# change while the machine runs, and the instructions do not depend on them.
_MODEL_FIELDS: Final = (
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
)
_FEATURE_FIELDS: Final = ("flags", "Features")

# What the x86-64 psABI asks of each level, in the words of /proc/cpuinfo. Each level adds to the
# one before.
_LEVELS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("x86-64-v2", ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")),
    ("x86-64-v3", ("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")),
    ("x86-64-v4", ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")),
)


@dataclass(frozen=True, slots=True)
class Cpu:
    """A processor: `machine` as `uname -m` says it, `model` for people, `features` of the kernel.

    `digest` is equal for two processors of one model with the same features.
    """

    machine: str
    model: str
    features: frozenset[str]
    digest: str


@cache
def host_cpu() -> Cpu:
    """Return the processor that this process runs on; read once.

    Examples
    --------
    >>> from kernelmill.toolchain import host_cpu
    >>> len(host_cpu().digest)
    64
    """
    return read_cpu(_CPUINFO)


def read_cpu(cpuinfo: Path) -> Cpu:
    """Return the processor that the first block of `cpuinfo` describes.

    Where the file says nothing of use, the digest holds the name of the host instead, so that a
    cache on a shared disk never hands a binary to another kind of processor.
    """
    machine = os.uname().machine
    block = _first_block(cpuinfo)
    features = next((block[name] for name in _FEATURE_FIELDS if name in block), "")
    named = [f"{name}={block[name]}" for name in _MODEL_FIELDS if name in block]
    if not named or not features:
        named.append(f"host={os.uname().nodename}")
    text = "\n".join([machine, *named, *sorted(features.split())])
    return Cpu(
        machine=machine,
        model=block.get("model name") or block.get("CPU part") or machine,
        features=frozenset(features.split()),
        digest=hashlib.sha256(text.encode()).hexdigest(),
    )


def _first_block(cpuinfo: Path) -> dict[str, str]:
    """Read as far as the first empty line: the file has one block a core, and is made as read."""
    block: dict[str, str] = {}
    try:
        with cpuinfo.open("r", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, colon, value = line.partition(":")
                if colon:
                    block[name.strip()] = value.strip()
                elif block:
                    break
    except OSError:
        return {}  # no /proc here; `read_cpu` says what stands in
    return block


def missing_features(march: str, cpu: Cpu | None = None) -> tuple[str, ...]:
    """Return the features that `march` needs and `cpu` (default: this one) lacks, sorted.

    Code made for an instruction set that the processor lacks ends the process with SIGILL; whoever
    loads it asks here first. Only the levels x86-64-v2, -v3 and -v4 are known; the answer for
    `native`, and for any other name, is empty.

    Examples
    --------
    >>> from kernelmill.toolchain import missing_features
    >>> missing_features("native")
    ()
    """
    cpu = cpu or host_cpu()
    names = [name for name, _ in _LEVELS]
    if march not in names:
        return ()
    wanted = {f for _, features in _LEVELS[: names.index(march) + 1] for f in features}
    return tuple(sorted(wanted - cpu.features))
