"""Wheels that a build takes parts of: fetched, compared with their sha256, unpacked once, kept.

Which parts a compilation uses is decided in `nvcc.py`, `cuda12.py` and `headers.py`. Nothing is
installed into an environment: a kept tree lies in the cache, and its name tells its content.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import zipfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.cache.lock import Workspace, hold, sweep
from kernelmill.errors import ToolchainError
from kernelmill.package.build_cache import build_cache
from kernelmill.package.digest import safe_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["PINNED", "Pin", "Tree", "WheelFile", "kept_tree", "unpacked", "wheel_of"]

_WAIT: Final = 1800.0  # seconds; another process may be fetching 230 MB on a slow line
_FACTS: Final = "facts.json"
_PROGRAM: Final = (b"\x7fELF", b"#!")
_MOST_UNPACKED: Final = 8 << 30  # a wheel of torch has 3 GB


@dataclass(frozen=True, slots=True)
class Pin:
    """One wheel by name, version and, where we know it, hash (of the x86_64 one)."""

    project: str
    version: str
    sha256: str | None = None


# The compilers of a CUDA release that has no nvcc on PATH. Their hashes are part of every build.
PINNED: Final[dict[str, tuple[Pin, ...]]] = {
    "13.0": (
        Pin(
            "nvidia-cuda-nvcc",
            "13.0.88",
            "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03",
        ),
        Pin(
            "nvidia-cuda-crt",
            "13.0.88",
            "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
        ),
        Pin(
            "nvidia-nvvm",
            "13.0.88",
            "c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0",
        ),
        Pin(
            "nvidia-cuda-runtime",
            "13.0.96",
            "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
        ),
        Pin(
            "nvidia-cuda-cccl",
            "13.0.85",
            "e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649",
        ),
    ),
    # No nvcc, cicc, cudafe++ or fatbinary among these: `cuda12.py` says what stands in for them.
    "12.8": (
        Pin(
            "nvidia-cuda-nvcc-cu12",
            "12.8.93",
            "2d6dc36fb7cb5ac9c0b8825bc13d193c35487a315664007287d0126531238011",
        ),
        Pin(
            "nvidia-cuda-nvrtc-cu12",
            "12.8.93",
            "a7756528852ef889772a84c6cd89d41dfa74667e24cca16bb31f8f061e3e9994",
        ),
        Pin(
            "nvidia-cuda-runtime-cu12",
            "12.8.90",
            "adade8dcbd0edf427b7204d480d6066d33902cab2a4707dcfc48a2d0fd44ab90",
        ),
        Pin(
            "nvidia-cuda-cccl-cu12",
            "12.9.27",
            "37869e17ce2e1ecec6eddf1927cca0f8c34e64fd848d40453df559091e2d7117",
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class WheelFile:
    """One file of a project on the index, with the sha256 that the index promises."""

    name: str
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Tree:
    """Unpacked files in the cache, and the wheels that they came from."""

    path: Path
    wheels: tuple[WheelFile, ...]


def wheel_of(pin: Pin) -> WheelFile:
    """Look the wheel of a pin up on the index.

    Raises
    ------
    ToolchainError
        The index cannot be asked, or has no such wheel with that hash.
    """
    from kernelmill.package.pip_index import default_index  # noqa: PLC0415 - urllib: only to fetch

    machine = platform.machine()
    stem = re.escape(f"{pin.project.replace('-', '_')}-{pin.version}")
    name = rf"{stem}-py3-none-.*linux.*_{machine}\.whl"
    return default_index().find(pin.project, name, pin.sha256 if machine == "x86_64" else None)


def unpacked(pins: Sequence[Pin], label: str) -> Tree:
    """Return the wheels of `pins`, unpacked into one directory.

    Parameters
    ----------
    pins
        What to fetch, if it is not there yet.
    label
        The first part of the directory's name.

    Raises
    ------
    ToolchainError, IntegrityError
        A wheel cannot be fetched, or is another one than promised.
    """
    text = json.dumps([asdict(pin) for pin in pins] + [platform.machine()])
    name = f"{label}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def make(place: Path) -> dict[str, object]:
        wheels = [wheel_of(pin) for pin in pins]
        for wheel in wheels:
            _unpack(wheel, place)
        return {"wheels": [asdict(wheel) for wheel in wheels]}

    path, facts = kept_tree("wheels", name, make)
    rows = facts["wheels"]
    assert isinstance(rows, list)
    return Tree(path, tuple(WheelFile(**row) for row in rows))


def kept_tree(
    kind: str, name: str, make: Callable[[Path], dict[str, object]]
) -> tuple[Path, dict[str, object]]:
    """Return a directory of the build cache and what was noted of it; made if it is absent.

    `make` fills an empty directory and returns the notes. The directory appears whole or not at
    all; two processes that want it do the work once.
    """
    parent = build_cache() / kind
    path = parent / name
    facts = _facts(path)
    if facts is not None:
        return path / "tree", facts
    parent.mkdir(parents=True, exist_ok=True)
    with hold(parent / f"{name}.lock", _WAIT):
        facts = _facts(path)
        if facts is None:
            facts = _make_tree(parent, path, make)
    return path / "tree", facts


def _facts(path: Path) -> dict[str, object] | None:
    try:
        found = json.loads((path / _FACTS).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _make_tree(
    parent: Path, path: Path, make: Callable[[Path], dict[str, object]]
) -> dict[str, object]:
    sweep(parent, ".new-")
    with Workspace(parent, ".new-") as work:
        tree = work.path / "whole" / "tree"
        tree.mkdir(parents=True)
        facts = make(tree)
        (tree.parent / _FACTS).write_text(json.dumps(facts, indent=1, sort_keys=True))
        shutil.rmtree(path, ignore_errors=True)  # what lies there has no notes: it is not whole
        os.replace(tree.parent, path)  # noqa: PTH105 - the system call
    return facts


@contextmanager
def fetched(wheel: WheelFile) -> Iterator[Path]:
    """Fetch a wheel into a temporary file that is gone at the end of the `with` block."""
    from kernelmill.package.pip_index import default_index, download  # noqa: PLC0415 - urllib: only to fetch

    parent = build_cache() / "wheels"
    parent.mkdir(parents=True, exist_ok=True)
    with Workspace(parent, ".new-") as work:
        path = work.path / wheel.name
        download(wheel, path, default_index())
        yield path


def _unpack(wheel: WheelFile, place: Path) -> None:
    with fetched(wheel) as path:
        extract_wheel(path, place)


def extract_wheel(path: Path, place: Path, wanted: Callable[[str], bool] | None = None) -> int:
    """Unpack the files of a wheel that are wanted; programs become executable. Return how many.

    Raises
    ------
    ToolchainError
        It is no zip file, one of its files is damaged, or they have more bytes than the limit.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if not n.endswith("/")]
            kept = [name for name in names if wanted is None or wanted(name)]
            size = sum(archive.getinfo(name).file_size for name in kept)
            if size > _MOST_UNPACKED:
                raise ToolchainError(
                    f"{path.name} unpacks to {size:,} bytes; the limit is {_MOST_UNPACKED:,}"
                )
            for name in kept:
                _write(place / safe_path(name), archive.read(name))
            return len(kept)
    except (zipfile.BadZipFile, EOFError) as error:
        raise ToolchainError(f"{path.name} cannot be unpacked: {error}") from None


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if data.startswith(_PROGRAM):
        path.chmod(0o755)
