"""One CUDA device: its limits, its context, its streams and its memory resources.

Objects of cuda.core are handed out as they are; arrays are in `arrays.py`, launches elsewhere.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Final

from kernelmill import events
from kernelmill.errors import DeviceError
from kernelmill.runtime.cuda.driver import (
    api,
    check,
    core,
    core_error,
    explained,
    in_words,
    require,
    translated,
)

__all__ = ["CudaDevice", "Limits", "cuda_device"]

OLDEST: Final = (7, 5)
_DEVICES: dict[int, CudaDevice] = {}
_CONTEXTS: dict[int, Any] = {}  # Any: a context of the driver, which is a third as dear as core's
_LOCK: Final = threading.Lock()

# Field of `Limits`: attribute of the driver.
_ATTRIBUTES: Final = {
    "block_x": "MAX_BLOCK_DIM_X",
    "block_y": "MAX_BLOCK_DIM_Y",
    "block_z": "MAX_BLOCK_DIM_Z",
    "grid_x": "MAX_GRID_DIM_X",
    "grid_y": "MAX_GRID_DIM_Y",
    "grid_z": "MAX_GRID_DIM_Z",
    "threads_per_block": "MAX_THREADS_PER_BLOCK",
    "shared_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "shared_per_block_optin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "multiprocessors": "MULTIPROCESSOR_COUNT",
    "threads_per_multiprocessor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "l2_bytes": "L2_CACHE_SIZE",
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "memory_pools": "MEMORY_POOLS_SUPPORTED",
    "cooperative": "COOPERATIVE_LAUNCH",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the driver says of a device; sizes in bytes."""

    block_x: int
    block_y: int
    block_z: int
    grid_x: int
    grid_y: int
    grid_z: int
    threads_per_block: int
    shared_per_block: int
    shared_per_block_optin: int
    multiprocessors: int
    threads_per_multiprocessor: int
    l2_bytes: int
    major: int
    minor: int
    memory_pools: int
    cooperative: int


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A GPU that this process can use; made by `cuda_device`.

    `core` is cuda.core's device, which does whatever is not here.
    """

    number: int
    limits: Limits
    core: Any = field(repr=False, compare=False)  # Any: cuda.core.Device

    @property
    def name(self) -> str:
        """Name of the device: "cuda:0"."""
        return f"cuda:{self.number}"

    @property
    def arch(self) -> str:
        """What to compile for: "sm_90"."""
        return f"sm_{self.limits.major}{self.limits.minor}"

    def set_current(self) -> None:
        """Make it the current device of this thread, for the driver and all libraries."""
        require()
        known = _CONTEXTS.get(self.number)
        if known is not None and not api().cuCtxSetCurrent(known)[0]:
            return
        with translated(f"make {self.name} current"):
            self.core.set_current()
        _CONTEXTS[self.number] = check(api().cuCtxGetCurrent(), f"find the context of {self.name}")

    def create_stream(self, obj: object = None) -> Any:  # Any: cuda.core.Stream
        """Return a new stream, or a stream of cuda.core for any object with `__cuda_stream__`."""
        self.set_current()
        with translated(f"make a stream on {self.name}"):
            return self.core.create_stream(obj)

    def create_event(self, *, timing: bool = True) -> Any:  # Any: cuda.core.Event
        """Return a new event; the difference of two is the time between them in milliseconds."""
        self.set_current()
        with translated(f"make an event on {self.name}"):
            return self.core.create_event(core().EventOptions(timing_enabled=timing))

    def sync(self) -> None:
        """Wait until the device has done all that it was given.

        Raises
        ------
        DeviceError
            A kernel failed since the last time; the text names the ones launched last.
        """
        self.set_current()
        check(api().cuCtxSynchronize(), f"wait for {self.name}")
        if events.active:
            events.emit("sync", self.name, device=self.name, reason="device")

    def memory(self) -> tuple[int, int]:
        """Return free and total bytes of the device's memory."""
        self.set_current()
        free, total = check(api().cuMemGetInfo(), f"ask for the memory of {self.name}")
        return int(free), int(total)

    # ------------------------------------------------------------------ memory resources

    def pool(self) -> Any:  # Any: cuda.core.DeviceMemoryResource
        """Return the stream-ordered pool of device memory, which libraries of the process share."""
        self.set_current()
        with translated(f"use the memory pool of {self.name}"):
            return core().DeviceMemoryResource(self.number)

    def pinned(self) -> Any:  # Any: cuda.core.LegacyPinnedMemoryResource
        """Return a resource of page-locked host memory that every device reaches.

        Not the driver's pool of host memory: kernels do not reach that one (driver 580).
        """
        self.set_current()
        with translated("use page-locked memory"):
            return core().LegacyPinnedMemoryResource()

    def managed(self) -> Any:  # Any: cuda.core.ManagedMemoryResource
        """Return a resource of memory that moves between host and device by itself."""
        self.set_current()
        with translated("use managed memory"):
            return core().ManagedMemoryResource()

    def allocate(self, nbytes: int, stream: Any) -> Any:  # Any: objects of cuda.core
        """Return a buffer of device memory, ordered on `stream` as its release will be.

        Raises
        ------
        DeviceError
            There is not that much memory; the text says what was asked and what is free.
        """
        self.set_current()
        try:
            return self.core.allocate(nbytes, stream=stream)
        except core_error() as error:
            found = in_words(error, f"allocate {nbytes} bytes on {self.name}")
            if "OUT_OF_MEMORY" not in found.message:
                raise found from error
            free, total = self.memory()
            raise DeviceError(
                f"{found.message}; {free} of {total} bytes are free", hint=found.hint
            ) from error

    # ------------------------------------------------------------------ peers

    def can_access(self, other: CudaDevice) -> bool:
        """Return whether kernels here can use the memory of another device."""
        require()
        answer = api().cuDeviceCanAccessPeer(self.number, other.number)
        return bool(check(answer, f"ask whether {self.name} reaches {other.name}"))

    def enable_access(self, other: CudaDevice) -> None:
        """Let kernels here use memory of another device: its pool, and what was allocated singly.

        Raises
        ------
        DeviceError
            The devices cannot reach each other.
        """
        if not self.can_access(other):
            raise DeviceError(
                f"{self.name} cannot use the memory of {other.name}: there is no path between them",
                hint="copy through the host, or use devices with NVLink or on one PCIe root",
            )
        with translated(f"let {self.name} use the pool of {other.name}"):
            pool = other.pool()
            pool.peer_accessible_by = {*pool.peer_accessible_by, self.number}
        other.set_current()
        context = check(api().cuCtxGetCurrent(), f"find the context of {other.name}")
        self.set_current()
        (status,) = api().cuCtxEnablePeerAccess(context, 0)
        if status.name not in ("CUDA_SUCCESS", "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"):
            raise explained(status.name, f"let {self.name} use the memory of {other.name}")


def cuda_device(number: int = 0) -> CudaDevice:
    """Return a device by its number; its context is made when first used.

    Raises
    ------
    DeviceError
        There is no driver, no such device, or it is older than sm_75.
    MissingExtraError
        The extra is not installed.
    """
    driver = require()
    found = _DEVICES.get(number)
    if found is not None:
        return found
    if not 0 <= number < driver.device_count:
        last = driver.device_count - 1
        raise DeviceError(
            f"there is no device cuda:{number}; there are cuda:0"
            + (f" to cuda:{last}" if last else ""),
            hint="CUDA_VISIBLE_DEVICES decides which GPUs a process sees",
        )
    limits = _limits(number)
    if (limits.major, limits.minor) < OLDEST:
        raise DeviceError(
            f"cuda:{number} is of compute capability {limits.major}.{limits.minor}; "
            f"served are {OLDEST[0]}.{OLDEST[1]} and later (Turing, 2018)",
            hint="use the CPU: km.Device('cpu')",
        )
    with _LOCK:
        return _DEVICES.setdefault(number, CudaDevice(number, limits, core().Device(number)))


def _limits(number: int) -> Limits:
    cuda = api()
    names = cuda.CUdevice_attribute
    handle = check(cuda.cuDeviceGet(number), f"open cuda:{number}")
    values = {
        key: check(
            cuda.cuDeviceGetAttribute(getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}"), handle),
            f"ask for {name} of cuda:{number}",
        )
        for key, name in _ATTRIBUTES.items()
    }
    return Limits(**{key: int(value) for key, value in values.items()})
