"""`make wheels`: collects the packages that a machine with a GPU and no network lacks.

Wheels for its Python and platform, whatever this machine has; and one archive with what the
benchmarks compare with, packed tighter than wheels are. Nothing is installed here.
"""

from __future__ import annotations

import argparse
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PEERS", "TOOLS", "main", "pack", "platforms"]

# What the tests and the CUDA runtime need, with all that those need in turn. The machine itself
# brings NumPy, click, torch with Triton, CuPy, setuptools, and NVRTC with nvJitLink.
TOOLS: Final = (
    "cuda-bindings>=13,<14", "cuda-core>=1,<2", "cuda-pathfinder", "ml_dtypes", "hypothesis",
    "sortedcontainers", "pytest>=8.4,<10", "pytest-xdist", "execnet", "iniconfig", "packaging",
    "pluggy", "pygments",
)  # fmt: skip
# cuda.compute, without the package that compiles its Python operators: the benchmarks give it
# compiled ones, which is 70 MB less to carry.
PEERS: Final = ("cuda-cccl==1.2.1",)
# What no machine with CUDA 13 loads.
_UNUSED: Final = ("cuda/compute/cu12/",)
ARCHIVE: Final = "peers.tar.xz"
# Wheels name the oldest C library they run with, and pip matches the name exactly.
_GLIBC: Final = (17, 24, 26, 27, 28, 31, 34, 35)
# An executable shrinks more behind a filter that knows the addresses in it.
_FILTERS: Final = (
    {"id": lzma.FILTER_X86},
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 64 << 20},
)


def platforms(machine: str = "x86_64") -> list[str]:
    """Return the platform tags of wheels that run on a present-day Linux.

    Examples
    --------
    >>> platforms()[0], platforms()[-1]
    ('manylinux_2_17_x86_64', 'manylinux2014_x86_64')
    """
    return [*(f"manylinux_2_{n}_{machine}" for n in _GLIBC), f"manylinux2014_{machine}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="tools/wheels.py", description=__doc__)
    parser.add_argument("directory", type=Path, help="where wheels and archive go")
    parser.add_argument("--python", default="3.12", help="version of the machine's Python")
    parser.add_argument("--machine", default="x86_64", help="its processor, as uname -m says")
    parser.add_argument("--limit", type=int, default=60, help="MB that may be carried together")
    asked = parser.parse_args(arguments)
    asked.directory.mkdir(parents=True, exist_ok=True)
    _download(TOOLS, asked.directory, asked.python, asked.machine)
    with tempfile.TemporaryDirectory() as aside:
        _download(PEERS, Path(aside), asked.python, asked.machine)
        pack(sorted(Path(aside).glob("*.whl")), asked.directory / ARCHIVE)
    files = sorted((*asked.directory.glob("*.whl"), asked.directory / ARCHIVE))
    total = 0.0
    for path in files:
        size = path.stat().st_size / 1e6
        total += size
        print(f"{size:6.1f} MB  {path.name}")
    print(f"{total:6.1f} MB  together; the limit is {asked.limit} MB")
    return int(total > asked.limit)


def _download(packages: Sequence[str], target: Path, python: str, machine: str) -> None:
    """Fetch wheels as data: they need not run here, and nothing they need is fetched with them."""
    tags = [f"--platform={tag}" for tag in platforms(machine)]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
         "--implementation=cp", f"--python-version={python}", *tags, "--dest", str(target),
         *packages],
        check=True,
    )  # fmt: skip


def pack(wheels: Sequence[Path], target: Path) -> None:
    """Pack what wheels hold into one archive for `tar xJf`; the same wheels give the same bytes."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as opened:
                opened.extractall(root)  # noqa: S202 - zipfile keeps names below the root
        for unused in _UNUSED:
            shutil.rmtree(root / unused, ignore_errors=True)
        with (
            lzma.open(target, "wb", format=lzma.FORMAT_XZ, filters=list(_FILTERS)) as packed,
            tarfile.open(fileobj=packed, mode="w|") as archive,
        ):
            # Files of one kind side by side have more in common.
            for path in sorted(root.rglob("*"), key=lambda p: (p.suffix, str(p))):
                if path.is_file():
                    archive.add(path, str(path.relative_to(root)), filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who owns a file and since when."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    sys.exit(main())
