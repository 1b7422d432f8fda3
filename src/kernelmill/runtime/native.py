"""The one place that chooses between the compiled extension `_native` and its pure-Python twin.

It also tells the chosen one how many threads to use. What they do is in `_native.c`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from kernelmill.config import get_config

try:
    from kernelmill._native import Caller
except ImportError:  # it differs from the extension's in the cost of a call only
    from kernelmill._native_py import Caller  # type: ignore[assignment]

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Buffer

    from kernelmill.config import Config

__all__ = ["Caller", "Native", "NativeStatus", "native", "native_status", "stream_threshold"]

_HOST: Final = Path(__file__).resolve().parent.parent / "host"
_POOL_SOURCES: Final = ("pool.c", "pool.h")
_STREAM_RANGE: Final = (8 << 20, 64 << 20)


class Native(Protocol):
    """What `_native` and `_native_py` both offer."""

    @property
    def runtime_address(self) -> int:
        """Address of the `Runtime` record that kernels are handed."""
        ...

    @property
    def parallel_for_address(self) -> int:
        """Address of `km_parallel_for`."""
        ...

    @property
    def Launcher(self) -> Any:  # noqa: N802 - Any: a class; its signature stands in _native.pyi
        """Class of the fast path: a kernel that is called with NumPy arrays."""
        ...

    @property
    def HostBuffer(self) -> Any:  # noqa: N802 - Any: a class, as above
        """Class of pooled memory with the buffer protocol."""
        ...

    @property
    def CudaLauncher(self) -> Any:  # noqa: N802 - Any: a class, as above
        """Class of a kernel on a CUDA device that is called with device arrays."""
        ...

    @property
    def cuda_library(self) -> Any:  # Any: a function; its signature stands in _native.pyi
        """What tells `CudaLauncher` of a type of arrays; the kind "none" forgets it."""
        ...

    def address(
        self,
        obj: object,
        writable: bool = False,  # noqa: FBT001, FBT002
        /,
    ) -> tuple[int, int, np.dtype[Any] | str, tuple[int, ...], tuple[int, ...], bool]:
        """Return (pointer, nbytes, dtype or typestr, shape, strides in bytes, readonly)."""
        ...

    def call(  # noqa: PLR0917 - the fields of the call record, in its order
        self,
        entry: int,
        shape: tuple[int, ...],
        pointers: tuple[int, ...],
        strides: tuple[tuple[int, ...], ...],
        captures: Buffer | None,
        workspace: int,
        flags: int,
        threads: int,
        release_gil: bool,  # noqa: FBT001
        /,
    ) -> bool:
        """Call a kernel with pointers and strides."""
        ...

    def configure(self, threads: int = 0, spin_us: int = -1, nontemporal_bytes: int = ...) -> int:
        """Set up the thread pool; returns the number of threads."""
        ...

    def memory_stats(self, limit: int = -1, /) -> tuple[int, int, int]:
        """Return bytes used, bytes waiting for reuse and their limit."""
        ...

    def thread_count(self) -> int:
        """Return the number of threads set."""
        ...


@dataclass(frozen=True, slots=True)
class NativeStatus:
    """Which module serves the call path (`extension` or `python`), and why not the extension."""

    kind: str
    reason: str


class _Chosen:
    """The module in use and the settings it was chosen and set up for."""

    config: Config | None = None
    module: Native | None = None


def native() -> Native:
    """Return the native call path for the current settings: the extension, else its twin.

    The first call, and the first after a change of `num_threads`, sets the number of threads. No
    thread is started by it, and nothing is compiled.

    Examples
    --------
    >>> from kernelmill.runtime.native import native
    >>> native().HostBuffer(1000).nbytes
    1000
    """
    config = get_config()
    if config is not _Chosen.config or _Chosen.module is None:
        return _choose(config)
    return _Chosen.module


def native_status() -> NativeStatus:
    """Return which module `native()` returns, with the reason in words."""
    extension, why_absent = _extension()
    if extension is None:
        return NativeStatus("python", why_absent)
    if not get_config().native:
        return NativeStatus("python", "the setting native is off (KERNELMILL_NATIVE=0)")
    return NativeStatus("extension", "")


def _choose(config: Config) -> Native:
    extension, _ = _extension()
    module = extension if extension is not None and config.native else _twin()
    before = _Chosen.config
    if before is None or module is not _Chosen.module or before.num_threads != config.num_threads:
        module.configure(config.num_threads or 0, nontemporal_bytes=stream_threshold())
    _Chosen.config, _Chosen.module = config, module
    return module


@once
def _extension() -> tuple[Native | None, str]:
    try:
        from kernelmill import _native  # noqa: PLC0415 - it may be absent
    except ImportError as error:
        return None, f"the extension is not there: {error}"
    return _native, ""


@once
def _twin() -> Native:
    from kernelmill import _native_py  # noqa: PLC0415 - only where the extension is not used

    _native_py.use_pool(_build_pool)
    return _native_py


@once
def stream_threshold() -> int:
    """Return the size from which outputs bypass the caches: that of the last-level cache.

    A virtual machine may show the cache of a whole socket, so the value is kept within bounds.
    """
    name = "SC_LEVEL3_CACHE_SIZE"
    size = os.sysconf(name) if name in os.sysconf_names else 0
    low, high = _STREAM_RANGE
    return min(max(size, low), high)


def _build_pool() -> str:
    """Compile the thread pool, or take it from the cache; returns the path of the library."""
    from kernelmill.cache import (  # noqa: PLC0415
        Bundle,
        EntryPoint,
        Image,
        default_cache,
        digest,
    )
    from kernelmill.toolchain import (  # noqa: PLC0415 - the extension needs neither
        compile_shared,
        find_host_compiler,
        toolchain_identity,
    )

    config = get_config()
    compiler = find_host_compiler(config)
    texts = {name: (_HOST / name).read_text() for name in _POOL_SOURCES}

    def compile_here(directory: Path) -> Bundle:
        made = compile_shared(
            texts["pool.c"],
            directory / "pool.so",
            compiler=compiler,
            march=config.march,
            include_dirs=(_HOST,),
            extra=("-pthread",),
            language="c",
        )
        image = Image("cpu", "so", made.path.read_bytes())
        return Bundle((image,), (EntryPoint("km_parallel_for"),), signature="thread pool")

    key = digest(
        kind="thread pool",
        toolchain=toolchain_identity(compiler, config.march, language="c"),
        sources=texts,
    )
    path = default_cache().get_or_build(key, compile_here).image("cpu").path
    assert path is not None, "the cache gives every image a file"
    return str(path)
