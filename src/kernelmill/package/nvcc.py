"""CUDA's compiler for a build: nvcc on PATH, or the wheels that bring it. Builds nothing.

A release that is neither on PATH nor among the pinned wheels is refused with both lists. CUDA 12
has no nvcc in wheels: `cuda12.py` has what stands in for it there.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from kernelmill.cache.key import digest
from kernelmill.config import child_environment, get_config
from kernelmill.errors import ToolchainError
from kernelmill.package.wheels import PINNED, unpacked
from kernelmill.toolchain.memo import memo_key, recall, remember, stamp

if TYPE_CHECKING:
    from kernelmill.package.release import Release
    from kernelmill.package.wheels import WheelFile

__all__ = ["ARCHITECTURES", "Cuda", "Route", "default_archs", "find_cuda", "served_versions"]

Route = Literal["nvcc", "nvrtc"]
# What is compiled where a manifest names no capabilities: as Hugging Face's builder has it.
ARCHITECTURES: Final = {
    (13, 0): "7.5 8.0 8.6 8.7 8.9 9.0 10.0 11.0 12.0 12.1+PTX",
    (12, 8): "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.1 12.0+PTX",
    (0, 0): "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0+PTX",
}
_ASK_SECONDS: Final = 60.0
_MEMO_SCHEMA: Final = 1
_RELEASE: Final = re.compile(r"release \d+\.\d+, V(\d+\.\d+\.\d+)")
_TOP: Final = re.compile(r"^#\$ TOP=(.*)$", re.MULTILINE)
_INCLUDES: Final = re.compile(r'"-I([^"]+)"')
_SYSTEM_INCLUDES: Final = re.compile(r'"-isystem" "([^"]+)"')
_PARTS: Final = ("bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc")


@dataclass(frozen=True, slots=True)
class Cuda:
    """A toolkit that a build compiles with.

    `release` has three numbers; `root` holds `bin` and `nvvm`; `origin` is "path" or "wheels";
    `route` tells whether device code goes through nvcc or, for CUDA 12 from wheels, NVRTC.
    """

    release: str
    root: Path
    include: tuple[Path, ...]
    system_include: tuple[Path, ...]
    origin: str
    route: Route
    identity: str
    wheels: tuple[WheelFile, ...] = ()
    nvrtc: Path | None = None
    host_tools: Cuda | None = None

    @property
    def nvcc(self) -> Path:
        """The compiler driver; of a toolkit without one, that of its host tools."""
        return (self.host_tools or self).root / "bin" / "nvcc"

    @property
    def major(self) -> int:
        """The first number of the release: libcudart's SONAME ends in it."""
        return int(self.release.partition(".")[0])


def default_archs(version: Release) -> tuple[str, ...]:
    """Return the capabilities that are compiled for a version of CUDA, where none are named.

    Examples
    --------
    >>> from kernelmill.package.nvcc import default_archs
    >>> from kernelmill.package.release import Release
    >>> default_archs(Release.parse("13.0"))[:3]
    ('7.5', '8.0', '8.6')
    """
    own = (version.major, version.minor)
    return tuple(next(text for since, text in ARCHITECTURES.items() if own >= since).split())


def served_versions() -> tuple[str, ...]:
    """Return the versions that wheels serve, oldest first."""
    return tuple(sorted(PINNED, key=lambda text: tuple(map(int, text.split(".")))))


def find_cuda(version: Release) -> Cuda:
    """Return a toolkit of exactly this version, such as 13.0.

    Raises
    ------
    ToolchainError
        There is none on PATH and none in wheels, or a wheel cannot be fetched.
    """
    wanted = f"{version.major}.{version.minor}"
    on_path = nvcc_on_path()
    if on_path is not None and _short(on_path.release) == wanted:
        return on_path
    if wanted not in PINNED:
        found = f"nvcc {on_path.release}" if on_path else "no nvcc"
        raise ToolchainError(
            f"CUDA {wanted} is not available: {found} is on PATH; "
            f"wheels serve {', '.join(served_versions())}",
            hint=f"put nvcc {wanted} on PATH, or build for one of the served versions",
        )
    return _from_wheels(wanted)


def _short(release: str) -> str:
    return ".".join(release.split(".")[:2])


# ----------------------------------------------------------------------------- nvcc on PATH


def nvcc_on_path() -> Cuda | None:
    """Return the toolkit of the nvcc on PATH, or None where there is none that answers."""
    program = shutil.which("nvcc")
    if program is None:
        return None
    facts = _asked(program)
    if facts is None:
        return None
    root = Path(str(facts["root"]))
    return Cuda(
        release=str(facts["release"]),
        root=root,
        include=_paths(facts["include"]),
        system_include=_paths(facts["system_include"]),
        origin="path",
        route="nvcc",
        identity=_identity(root, str(facts["release"])),
    )


def _paths(value: object) -> tuple[Path, ...]:
    assert isinstance(value, list)
    return tuple(map(Path, value))


def _asked(program: str) -> dict[str, object] | None:
    memos = get_config().cache_dir / "toolchain"
    key = memo_key(_MEMO_SCHEMA, "nvcc", stamp(program), child_environment().get("PATH"))
    facts = recall(memos, key)
    if facts is None or not Path(str(facts["root"]), "bin", "nvcc").exists():
        facts = _ask(program)
        if facts is not None:
            remember(memos, key, facts)
    return facts


def _ask(program: str) -> dict[str, object] | None:
    """Have nvcc print its version, and the commands that it would run."""
    from kernelmill.toolchain.run import run  # noqa: PLC0415 - subprocess, at the first use only

    told = run([program, "--version"], timeout=_ASK_SECONDS)
    release = _RELEASE.search(told.output)
    shown = run(
        [program, "--dryrun", "-x", "cu", "-c", os.devnull, "-o", os.devnull], timeout=_ASK_SECONDS
    )
    top = _TOP.search(shown.output)
    if not told.ok or release is None or top is None:
        return None
    return {
        "release": release[1],
        "root": os.path.realpath(top[1]),
        "include": _searched(_INCLUDES, shown.output),
        "system_include": _searched(_SYSTEM_INCLUDES, shown.output),
    }


def _searched(pattern: re.Pattern[str], text: str) -> list[str]:
    line = next((line for line in text.splitlines() if pattern.search(line)), "")
    return [os.path.realpath(path) for path in pattern.findall(line)]


def _identity(root: Path, release: str) -> str:
    """Return what tells two states of a toolkit apart: size and time of what it runs."""
    parts = [stamp(str(root / part)) for part in _PARTS]
    return digest(release=release, parts=[part[1:] for part in parts if part])


# ----------------------------------------------------------------------------- wheels


def _from_wheels(version: str) -> Cuda:
    tree = unpacked(PINNED[version], f"cuda-{version}")
    identity = digest(wheels=[wheel.sha256 for wheel in tree.wheels])
    release = next(pin.version for pin in PINNED[version] if "nvcc" in pin.project)
    nvidia = tree.path / "nvidia"
    if int(version.partition(".")[0]) > 12:  # noqa: PLR2004 - the wheels changed their layout with 13
        root = nvidia / f"cu{version.partition('.')[0]}"
        return Cuda(
            release=release,
            root=root,
            include=(root / "include",),
            system_include=(root / "include" / "cccl",),
            origin="wheels",
            route="nvcc",
            identity=identity,
            wheels=tree.wheels,
        )
    tools = nvcc_on_path()
    if tools is None or tools.major != 13:  # noqa: PLR2004 - whose cudafe++ the stand-ins were tried with
        tools = _from_wheels("13.0")
    return Cuda(
        release=release,
        root=nvidia / "cuda_nvcc",
        include=(nvidia / "cuda_runtime" / "include", nvidia / "cuda_nvcc" / "include"),
        system_include=(nvidia / "cuda_cccl" / "include",),
        origin="wheels",
        route="nvrtc",
        identity=digest(own=identity, host_tools=tools.identity),
        wheels=tree.wheels,
        nvrtc=nvidia / "cuda_nvrtc" / "lib" / "libnvrtc.so.12",
        host_tools=tools,
    )
