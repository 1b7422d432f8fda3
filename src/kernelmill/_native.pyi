# Types of the native call path; `_native_py` has the same names in pure Python.

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import Buffer

# pointer, nbytes, dtype or typestr, shape, strides in bytes, readonly
Address: TypeAlias = tuple[int, int, np.dtype[Any] | str, tuple[int, ...], tuple[int, ...], bool]
# shape of each operand, shape of the call, strides of each operand in the call
Fixed: TypeAlias = tuple[tuple[tuple[int, ...], ...], tuple[int, ...], tuple[tuple[int, ...], ...]]

# One of an array: "a" and at, dtype, numpy dtype, DLPack code, bits, itemsize, alignment, shape_at,
# strides_at, rank, (shape, strides in bytes) or None. One of an integer: "i" and at, size, low,
# high; of a float, a bool or a complex: "f", "b", "z" and at, size; of a NumPy scalar: "n" and at,
# size, type.
Slot: TypeAlias = tuple[Any, ...]
Triple: TypeAlias = tuple[int, int, int]

runtime_address: int
parallel_for_address: int

class HostBuffer:
    def __init__(self, nbytes: int) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Launcher:
    def __init__(
        self,
        entry: int,
        dtypes: tuple[np.dtype[Any], ...],
        n_outputs: int,
        *,
        captures: Buffer | None = None,
        workspace: int = 0,
        serial_below: int = 32768,
        nontemporal_above: int = -1,
        gil_above: int = 32768,
        limit: int = ...,
        max_threads: int = 512,
        flags: int = 0,
        fixed: Fixed | None = None,
    ) -> None: ...
    def __call__(self, *operands: object) -> bool: ...

class CudaLauncher:
    def __init__(
        self,
        driver: tuple[int, int, int, int],
        function: int,
        record: Buffer,
        parameters: tuple[int, ...],
        slots: tuple[Slot, ...],
        *,
        grid: Triple = (1, 1, 1),
        block: Triple = (1, 1, 1),
        shared: int = 0,
        device: int = 0,
        context: int = 0,
        outputs: int = 0,
        mode: int = 0,
        tile: int = 0,
        most: int = ...,
        count_at: int = -1,
        captures: int = 0,
        takes_stream: bool = False,
        attributes: Buffer | None = None,
        name: object = None,
        note: Callable[[object], object] | None = None,
        failed: Callable[[int], BaseException] | None = None,
        scratch: tuple[int, Callable[[int], bytes]] | None = None,
    ) -> None: ...
    def __call__(self, *operands: object) -> bool: ...

class Caller:
    _launcher: Any
    _read: Any
    _single: Any
    functions: tuple[object, ...]
    @staticmethod
    def watch(events: dict[str, Any], /) -> None: ...
    def __call__(self, *inputs: Any, out: Any = None) -> Any: ...
    def _general(self, inputs: tuple[Any, ...], out: Any) -> Any: ...

def cuda_library(
    type: Any,  # noqa: A002 - the name in the extension
    kind: str,
    *,
    api: int = 0,
    stream: Callable[..., int] | None = None,
    is_negative: Callable[[Any], bool] | None = None,
    is_conjugate: Callable[[Any], bool] | None = None,
    codes: dict[Any, int] | None = None,
    methods: tuple[Callable[[Any], Any], ...] = (),
) -> None: ...
def address(obj: object, writable: bool = False, /) -> Address: ...
def call(
    entry: int,
    shape: tuple[int, ...],
    pointers: tuple[int, ...],
    strides: tuple[tuple[int, ...], ...],
    captures: Buffer | None,
    workspace: int,
    flags: int,
    threads: int,
    release_gil: bool,
    /,
) -> bool: ...
def configure(threads: int = 0, spin_us: int = -1, nontemporal_bytes: int = ...) -> int: ...
def memory_stats(limit: int = -1, /) -> tuple[int, int, int]: ...
def thread_count() -> int: ...
