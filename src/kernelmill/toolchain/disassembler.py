"""nvdisasm, found and run: the machine code of a cubin as text. What it means is not read here."""

from __future__ import annotations

import importlib
import tempfile
from functools import cache as once
from pathlib import Path
from typing import Final

from kernelmill.errors import CompileError, MissingExtraError
from kernelmill.toolchain.run import run

__all__ = ["disassemble", "find_nvdisasm"]

_SECONDS: Final = 60.0


@once
def find_nvdisasm() -> Path | None:
    """Return nvdisasm of the wheel, of a CUDA installation or of the PATH; None where none is."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ImportError:
        return None
    find = getattr(pathfinder, "find_nvidia_binary_utility", None)  # came with pathfinder 1.4
    found = find("nvdisasm") if find is not None else None
    return None if found is None else Path(found)


def disassemble(cubin: bytes, *, lines: bool = True) -> str:
    """Return the machine code of a cubin as text, with source lines where they were kept.

    Where a function is inlined, its own line comes first, then those of its callers.

    Raises
    ------
    MissingExtraError
        nvdisasm is not installed; the hint is the `pip install` line.
    CompileError
        It refuses the cubin.
    """
    program = find_nvdisasm()
    if program is None:
        raise MissingExtraError(
            "machine code is shown by nvdisasm, which was not found",
            hint="pip install nvidia-cuda-nvdisasm, or put the one of a CUDA toolkit on the PATH",
        )
    with tempfile.TemporaryDirectory(prefix="kernelmill-") as directory:
        path = Path(directory) / "kernel.cubin"
        path.write_bytes(cubin)
        made = run([str(program), *(["-gi"] if lines else []), "-c", str(path)], timeout=_SECONDS)
    if made.returncode:
        raise CompileError("nvdisasm refuses this cubin", log=made.output)
    return made.output
