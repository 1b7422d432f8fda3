"""`LaunchConfig` and `launch(stream, config, kernel, *args)`: checked once, then quick.

What a launch needs of the driver is prepared for each kernel and configuration, and used again.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from kernelmill import events
from kernelmill.errors import ArgumentError, DeviceError
from kernelmill.runtime.cuda.arguments import ArgumentRecord, pack
from kernelmill.runtime.cuda.arrays import wait_for_producers
from kernelmill.runtime.cuda.device import cuda_device
from kernelmill.runtime.cuda.direct import (
    ATTRIBUTE,
    context_of,
    driver_calls,
    failure,
    turn_attribute,
)
from kernelmill.runtime.cuda.driver import api, recent_kernels, require
from kernelmill.runtime.cuda.lifetimes import hold
from kernelmill.runtime.cuda.program import Kernel
from kernelmill.runtime.cuda.quick import handle_of, slots_of
from kernelmill.runtime.cuda.stream import as_stream
from kernelmill.runtime.native import native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.runtime.backend import Launcher
    from kernelmill.runtime.cuda.arrays import DeviceView
    from kernelmill.runtime.cuda.device import CudaDevice

__all__ = ["LaunchConfig", "PreparedLaunch", "launch", "prepare"]

Extent: TypeAlias = int | tuple[int, ...]
_DIMENSIONS: Final = 3
_PORTABLE_CLUSTER: Final = 8
_MOST_PREPARED: Final = 1024


def _is_whole(n: object) -> bool:
    """Whether it is an integer of any library, NumPy's for one."""
    return isinstance(n, numbers.Integral) and not isinstance(n, bool)


def _extent(value: Extent, name: str) -> tuple[int, int, int]:
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not all(type(n) is int for n in given):
        given = tuple(int(n) if _is_whole(n) else n for n in given)
    if not 1 <= len(given) <= _DIMENSIONS or not all(type(n) is int and n > 0 for n in given):
        raise ArgumentError(
            f"{name}={value!r} cannot be launched; accepted: 1 to 3 whole numbers above 0"
        )
    x, y, z = (*given, 1, 1)[:_DIMENSIONS]
    return x, y, z


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """How many threads, in which arrangement: the fields of cuda.core's.

    Parameters
    ----------
    grid
        Blocks in each direction; where there is a cluster, clusters in each direction.
    block
        Threads of a block in each direction.
    cluster
        Blocks of a cluster in each direction (sm_90 and later), or None.
    shmem_size
        Bytes of dynamic shared memory.
    is_cooperative
        All blocks run at once and may wait for each other.
    programmatic_stream_serialization
        May begin before the kernel in front of it ends (sm_90 and later).

    Examples
    --------
    >>> from kernelmill.runtime.cuda.launches import LaunchConfig
    >>> LaunchConfig(grid=8, block=(16, 16)).block
    (16, 16, 1)
    """

    grid: Extent
    block: Extent
    cluster: Extent | None = None
    shmem_size: int = 0
    is_cooperative: bool = False
    programmatic_stream_serialization: bool = False
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", _extent(self.grid, "grid"))
        object.__setattr__(self, "block", _extent(self.block, "block"))
        if self.cluster is not None:
            object.__setattr__(self, "cluster", _extent(self.cluster, "cluster"))
        if self.shmem_size < 0:
            raise ArgumentError(f"shmem_size={self.shmem_size} is below 0")
        parts = (
            self.grid,
            self.block,
            self.cluster,
            self.shmem_size,
            self.is_cooperative,
            self.programmatic_stream_serialization,
        )
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        """Return the hash, which every launch asks for."""
        return self._hash


def _own(config: object) -> LaunchConfig:
    """Return the configuration as ours: one of cuda.core has the same fields."""
    if isinstance(config, LaunchConfig):
        return config
    if not hasattr(config, "shmem_size"):
        kind = type(config).__qualname__
        raise ArgumentError(f"argument 'config' is a {kind}; accepted: a LaunchConfig")
    given: Any = config
    return LaunchConfig(
        tuple(given.grid),
        tuple(given.block),
        tuple(given.cluster) if given.cluster else None,
        int(given.shmem_size or 0),
        bool(given.is_cooperative),
        bool(getattr(given, "programmatic_stream_serialization", False)),
    )


def _own_kernel(kernel: object) -> Kernel:
    if isinstance(kernel, Kernel):
        return kernel
    if hasattr(kernel, "arguments_info") and hasattr(kernel, "handle"):
        return Kernel(kernel, "kernel")
    raise ArgumentError(
        f"argument 'kernel' is a {type(kernel).__qualname__}; accepted: a Kernel of kernelmill or "
        "of cuda.core",
        hint="take one from object code: Program(...).compile('cubin').get_kernel(name)",
    )


# ------------------------------------------------------------------------------- the limits


def _check_limits(config: LaunchConfig, kernel: Kernel, device: CudaDevice) -> None:
    """Compare a configuration with what device and kernel allow, and name the first excess."""
    limits, needs = device.limits, kernel.attributes(device)
    (gx, gy, gz), (bx, by, bz) = _blocks(config), _triple(config.block)
    cluster = math.prod(_triple(config.cluster)) if config.cluster else 1
    rows = (
        ("grid in x", gx, limits.grid_x),
        ("grid in y", gy, limits.grid_y),
        ("grid in z", gz, limits.grid_z),
        ("block in x", bx, limits.block_x),
        ("block in y", by, limits.block_y),
        ("block in z", bz, limits.block_z),
        ("threads a block", bx * by * bz, limits.threads_per_block),
        ("threads a block of this kernel", bx * by * bz, needs.max_threads_per_block),
        (
            "bytes of shared memory a block",
            needs.shared_bytes + config.shmem_size,
            limits.shared_per_block_optin,
        ),
        ("blocks a cluster", cluster, _PORTABLE_CLUSTER if limits.major >= 9 else 1),  # noqa: PLR2004 - sm_90
    )
    for what, asked, limit in rows:
        if asked > limit:
            raise ArgumentError(
                f"kernel {kernel.name!r} cannot be launched on {device.name}: {what}: {asked} "
                f"asked, the limit is {limit}",
                hint=_LIMIT_HINTS.get(what, "launch a smaller grid or block"),
            )


_LIMIT_HINTS: Final = {
    "threads a block of this kernel": "its registers allow no more; compile with maxregcount",
    "bytes of shared memory a block": "use smaller tiles, or less dynamic shared memory",
    "blocks a cluster": "clusters need sm_90; a larger one than 8 is not portable",
}


def _triple(extent: Extent | None) -> tuple[int, int, int]:
    assert isinstance(extent, tuple)
    x, y, z = extent
    return x, y, z


def _blocks(config: LaunchConfig) -> tuple[int, int, int]:
    """Return the grid in blocks; with clusters, the configuration counts those."""
    x, y, z = _triple(config.grid)
    if config.cluster is None:
        return x, y, z
    cx, cy, cz = _triple(config.cluster)
    return x * cx, y * cy, z * cz


# ------------------------------------------------------------------------------- preparation


class _Prepared:
    """A configuration as the driver wants it, for one kernel on one device."""

    __slots__ = ("_attributes", "_config", "_context", "_kernel", "device")

    def __init__(self, kernel: Kernel, config: LaunchConfig, device: CudaDevice) -> None:
        _check_limits(config, kernel, device)
        self._kernel, self._config, self.device = kernel, config, device
        self._context = context_of(device)
        self._attributes = _attributes(config)
        kernel.allow_shared(config.shmem_size, device)

    def launcher(self, record: bytearray, slots: tuple[Any, ...] = ()) -> Launcher:
        """Return what launches on a stream with the arguments of a record, the slots filled in."""
        kernel, config = self._kernel, self._config
        made: Launcher = native().CudaLauncher(
            driver_calls(),
            kernel.handle,
            record,
            tuple(offset for offset, _ in kernel.parameters),
            slots,
            grid=_blocks(config),
            block=_triple(config.block),
            shared=config.shmem_size,
            device=self.device.number,
            context=self._context,
            takes_stream=True,
            attributes=self._attributes,
            name=kernel.name,
            note=recent_kernels.append,
            failed=partial(failure, f"kernel {kernel.name!r}"),
        )
        return made


def _attributes(config: LaunchConfig) -> bytes | None:
    """Return the attributes of a launch as the driver takes them."""
    ids = api().CUlaunchAttributeID
    made = b""
    if config.cluster is not None:
        cluster = int(ids.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        made += ATTRIBUTE.pack(cluster, *_triple(config.cluster))
    if config.is_cooperative:
        made += ATTRIBUTE.pack(int(ids.CU_LAUNCH_ATTRIBUTE_COOPERATIVE), 1, 0, 0)
    if config.programmatic_stream_serialization:
        made += turn_attribute()
    return made or None


def _prepared(kernel: Kernel, config: LaunchConfig, number: int) -> _Prepared:
    key = config, number
    found = kernel.prepared.get(key)
    if found is None:
        if len(kernel.prepared) >= _MOST_PREPARED:
            kernel.prepared.clear()
        found = kernel.prepared[key] = _Prepared(kernel, config, cuda_device(number))
    assert isinstance(found, _Prepared)
    return found


class PreparedLaunch:
    """A launch whose arguments are packed: calling it does nothing but launch.

    Made by `prepare`; holds its arrays as long as it lives. The arguments are those of the time
    of `prepare`; `update` replaces one scalar.
    """

    __slots__ = ("_launch", "_name", "_prepared", "_record", "views")

    def __init__(
        self,
        name: str,
        prepared: _Prepared,
        record: ArgumentRecord,
        views: Sequence[DeviceView],
    ) -> None:
        self._name, self._prepared, self._record = name, prepared, record
        self._launch = prepared.launcher(record.data)
        self.views = tuple(views)

    @property
    def device(self) -> CudaDevice:
        """The device it runs on."""
        return self._prepared.device

    def __call__(self, stream: int = 0) -> None:
        """Launch on a stream, given by its handle.

        Raises
        ------
        ArgumentError
            It is no handle.
        DeviceError
            The driver refuses, or an earlier kernel failed.
        """
        if not self._launch(stream):
            raise ArgumentError(f"argument 'stream' is {stream!r}; accepted: the handle as an int")

    def update(self, index: int, value: bytes) -> None:
        """Replace the bytes of an argument.

        Raises
        ------
        ArgumentError
            They are not as many as the argument has.
        """
        offset, size = self._record.parameters[index]
        if len(value) != size:
            raise ArgumentError(
                f"argument {index} of kernel {self._name!r} takes {size} bytes, not {len(value)}"
            )
        self._record.data[offset : offset + size] = value


def prepare(
    config: object, kernel: object, *args: object, device: int | None = None
) -> PreparedLaunch:
    """Check and pack a launch once, to make it often.

    Parameters are those of `launch`; the result is called with the handle of a stream.

    Examples
    --------
    >>> import kernelmill as km
    >>> def many(kernel, x, turns, stream):  # an array on the GPU
    ...     once = km.prepare(km.LaunchConfig(grid=1, block=32), kernel, x)
    ...     for _ in range(turns):
    ...         once(int(stream.handle))
    """
    emulated: Any = getattr(kernel, "prepare", None)  # Any: a kernel of the emulator
    if emulated is not None:
        return cast("PreparedLaunch", emulated(_own(config), args))
    own, taken = _own(config), _own_kernel(kernel)
    record = _record(taken)
    views = pack(taken.name, args, record, taken.signature)
    number = views[0].device if views else device or 0
    if device is not None and device != number:
        raise DeviceError(
            f"the arrays given to kernel {taken.name!r} are on cuda:{number}; the launch "
            f"is for cuda:{device}",
            hint="the device of the arrays decides; copy them, or leave the device out",
        )
    return PreparedLaunch(taken.name, _prepared(taken, own, number), record, views)


def _record(kernel: Kernel) -> ArgumentRecord:
    if kernel.signature is not None and len(kernel.signature) != len(kernel.parameters):
        raise ArgumentError(
            f"the signature of kernel {kernel.name!r} has {len(kernel.signature)} types; it takes "
            f"{len(kernel.parameters)} arguments"
        )
    return ArgumentRecord(kernel.parameters)


def launch(stream: object, config: object, kernel: object, *args: object) -> None:
    """Launch a kernel.

    Parameters
    ----------
    stream
        Anything with `__cuda_stream__`, a stream of torch or CuPy, a graph builder, a handle, or
        None for the current stream.
    config
        A `LaunchConfig`, ours or cuda.core's.
    kernel
        A `Kernel`, ours or cuda.core's.
    *args
        Arrays (their device decides where it runs), addresses, scalars, structs. A kernel for the
        emulator takes arrays on the host, and has ended when this returns.

    Raises
    ------
    ArgumentError
        An argument or the configuration cannot be used; names the limit.
    DTypeError
        An argument is not of the type that the kernel declares.
    DeviceError
        There is no device, the arrays are elsewhere, or an earlier kernel failed.

    Examples
    --------
    >>> import kernelmill as km
    >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    >>> def twice(x, stream=None):  # up to 1024 float32 of CuPy, torch or km.to_device
    ...     kernel = km.Program(text).compile("cubin").get_kernel("twice")
    ...     km.launch(stream, km.LaunchConfig(grid=1, block=x.shape[0]), kernel, x)
    """
    if type(kernel) is Kernel and type(config) is LaunchConfig:
        found = kernel.prepared.get((config, *map(type, args)))
        if found is not None and found[0](handle_of(stream, found[1].number), *args):
            if events.active:
                events.emit("launch", kernel.name, device=found[1].name)
            return
    else:
        written: Any = getattr(kernel, "launch_with", None)  # Any: a kernel written in Python
        if written is not None:
            written(stream, _own(config), args, {})
            return
        emulated: Any = getattr(kernel, "launch_config", None)  # Any: a kernel of the emulator
        if emulated is not None:
            emulated(_own(config), args)
            return
    require()
    own, taken = _own(config), _own_kernel(kernel)
    try:
        record = taken.spare.pop()
    except IndexError:
        record = _record(taken)
    try:
        device = _launch(stream, own, taken, args, record)
    finally:
        taken.spare.append(record)
    if events.active:
        events.emit("launch", taken.name, device=device.name)


def _launch(
    stream: object,
    config: LaunchConfig,
    kernel: Kernel,
    args: Sequence[object],
    record: ArgumentRecord,
) -> CudaDevice:
    views = pack(kernel.name, args, record, kernel.signature)
    prepared = _prepared(kernel, config, views[0].device if views else 0)
    device = prepared.device
    device.set_current()
    on = as_stream(stream, device.number)
    if views:
        wait_for_producers(views, on)
    launcher = record.launchers.get(prepared)
    if launcher is None:
        launcher = record.launchers[prepared] = prepared.launcher(record.data)
    launcher(on.handle)
    if views:
        hold(views, on)
    _keep(kernel, config, args, prepared, record)
    return device


def _keep(
    kernel: Kernel,
    config: LaunchConfig,
    args: Sequence[object],
    prepared: _Prepared,
    record: ArgumentRecord,
) -> None:
    """Keep the short way for launches with arguments of these types on this device."""
    key = (config, *map(type, args))
    found = kernel.prepared.get(key)
    if found is not None and found[1] is prepared.device:
        return
    slots = slots_of(args, kernel.parameters, kernel.signature)
    if slots is not None:
        quick = prepared.launcher(bytearray(record.data), slots)
        kernel.prepared[key] = quick, prepared.device
