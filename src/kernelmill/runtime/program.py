"""From the text of a host kernel to its address in this process: cache, compiler, loader.

What the text says is the business of `compiler` and `algorithms`; which compiler runs, of
`toolchain`; where binaries are kept, of `cache`.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill import events
from kernelmill.cache import Bundle, EntryPoint, Image, default_cache, digest
from kernelmill.config import get_config
from kernelmill.errors import CompileError
from kernelmill.runtime.backend import ENTRY, Kernel, KernelSource
from kernelmill.toolchain import compile_shared, find_host_compiler, toolchain_identity

if TYPE_CHECKING:
    from kernelmill.config import Config
    from kernelmill.toolchain import CompileResult, HostCompiler

__all__ = ["HOST_TEMPLATES", "build_host_kernel", "host_templates_digest"]

HOST_TEMPLATES: Final = Path(__file__).resolve().parent.parent / "host"
_TARGET: Final = "cpu"

_LOCK: Final = threading.Lock()
_LOADED: dict[tuple[str, str | None, str], Kernel] = {}


@once
def host_templates_digest() -> str:
    """Return one digest over all templates in `host/`, a part of every key."""
    state = hashlib.sha256()
    for path in sorted(HOST_TEMPLATES.glob("*.hpp")):
        data = path.read_bytes()
        state.update(f"{path.name} {len(data)}\n".encode())
        state.update(data)
    return state.hexdigest()


def build_host_kernel(source: KernelSource) -> Kernel:
    """Return the loaded kernel for a text: from this process, from the cache, or compiled.

    Raises
    ------
    ToolchainError
        There is no usable C++ compiler and the cache does not hold the kernel.
    CompileError
        The compiler refuses the text or does not finish in time; its output is part of the error.
    """
    config = get_config()
    memo = (source.text, config.cxx, config.march)
    found = _LOADED.get(memo)
    if found is None:
        with _LOCK:
            found = _LOADED.get(memo) or _build(source, config)
            _LOADED[memo] = found
    return found


def _build(source: KernelSource, config: Config) -> Kernel:
    compiler = find_host_compiler(config)
    key = digest(
        kind="host kernel",
        text=source.text,
        templates=host_templates_digest(),
        toolchain=toolchain_identity(compiler, config.march),
    )

    made: list[CompileResult] = []

    def compile_here(directory: Path) -> Bundle:
        made.append(_compile(source, compiler, config.march, directory))
        image = Image(_TARGET, "so", made[-1].path.read_bytes())
        return Bundle((image,), (EntryPoint(ENTRY),), signature=source.name, source=source.text)

    bundle = default_cache().get_or_build(key, compile_here)
    image = bundle.image(_TARGET)
    assert image.path is not None, "the cache gives every image a file"
    kernel = _load(source, image.path, key)
    if events.active and made:
        seconds = made[-1].seconds
        events.emit("compile", source.name, device="cpu", seconds=seconds, bytes=len(image.data))
    return kernel


def _compile(
    source: KernelSource, compiler: HostCompiler, march: str, directory: Path
) -> CompileResult:
    try:
        return compile_shared(
            source.text,
            directory / "kernel.so",
            compiler=compiler,
            march=march,
            include_dirs=(HOST_TEMPLATES,),
        )
    except CompileError as error:
        if str(directory) in error.hint:  # what is there is gone when the user reads this
            error.hint = f"it is in the generated text of: {source.name}"
        raise


def _load(source: KernelSource, path: Path, key: str) -> Kernel:
    try:
        library = ctypes.CDLL(str(path))
        entry = ctypes.cast(library[ENTRY], ctypes.c_void_p).value
    except (OSError, AttributeError) as error:
        raise CompileError(
            f"the compiled kernel {source.name} cannot be loaded: {error}",
            hint="`kernelmill cache clear` removes it; `kernelmill doctor` checks the compiler",
        ) from error
    assert entry is not None
    return Kernel(source, entry, path, key)
