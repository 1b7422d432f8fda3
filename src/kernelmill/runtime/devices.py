"""Devices by name, and which one is current; a back end's own work is in its module."""

from __future__ import annotations

import re
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kernelmill.config import get_config
from kernelmill.errors import ArgumentError, DeviceError, MissingExtraError, NotImplementedHere
from kernelmill.runtime.cpu import CpuBackend
from kernelmill.runtime.null import NullBackend

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from kernelmill.runtime.backend import Backend

__all__ = [
    "Device",
    "available_devices",
    "backend_named",
    "chosen_device",
    "current_backend",
    "set_default_device",
]


def _emulator() -> Backend:
    from kernelmill.runtime.emulator import EmulatorBackend  # noqa: PLC0415 - only where it is asked for

    return EmulatorBackend()


_FACTORIES: Final[dict[str, Callable[[], Backend]]] = {
    "cpu": CpuBackend,
    "emulator": _emulator,
    "null": NullBackend,
}
_CUDA: Final = re.compile(r"cuda(?::(\d+))?", re.ASCII)
_BACKENDS: dict[str, Backend] = {}
_CURRENT: ContextVar[str | None] = ContextVar("kernelmill_device", default=None)


def backend_named(name: str) -> Backend:
    """Return the back end of a device.

    Raises
    ------
    DeviceError
        There is no such device here; says what is missing.
    """
    found = _BACKENDS.get(name)
    if found is not None:
        return found
    cuda = _CUDA.fullmatch(name)
    if cuda is not None:
        return _BACKENDS.setdefault(name, _cuda_backend(name, int(cuda[1] or 0)))
    factory = _FACTORIES.get(name)
    if factory is None:
        raise DeviceError(
            f"device {name!r} cannot be used: there is no such device",
            hint=f"devices here: {', '.join(available_devices())}; see `kernelmill doctor`",
        )
    return _BACKENDS.setdefault(name, factory())


def _cuda_backend(name: str, number: int) -> Backend:
    from kernelmill.runtime.cuda.backend import CudaBackend  # noqa: PLC0415 - only where it is asked for

    try:
        return CudaBackend(number)
    except (DeviceError, MissingExtraError) as error:
        raise DeviceError(
            f"device {name!r} cannot be used: {error.message}", hint=error.hint
        ) from error


def available_devices() -> tuple[str, ...]:
    """Return the names of the devices that compute here."""
    from kernelmill.runtime.cuda.driver import require  # noqa: PLC0415 - only where it is asked for

    try:
        count = require().device_count
    except (DeviceError, MissingExtraError):
        count = 0
    return ("cpu", *(f"cuda:{number}" for number in range(count)))


class _Default:
    """The device that is current where no context manager says otherwise."""

    name: str | None = None


def chosen_device() -> str | None:
    """Return the name of the device that was made current; None leaves it to the setting."""
    return _CURRENT.get() or _Default.name


def current_backend() -> Backend:
    """Return the back end of the current device: context, default, setting, else the CPU."""
    name = chosen_device()
    if name is None:
        asked = get_config().device
        name = "cpu" if asked == "auto" else asked
    return backend_named(name)


@dataclass(slots=True)
class Device:
    """A device by name; as a context manager it is the current one inside the `with`.

    Parameters
    ----------
    name
        "cpu", "cuda" for the first GPU, "cuda:1", "emulator" (what a GPU would run, on the CPU), or
        "null" (builds nothing, computes nothing; for tests).
    sanitize
        Whether launches inside the `with` are looked at, on the emulator: races, bounds,
        uninitialised reads, barriers. What is found raises `SanitizerError`.

    Raises
    ------
    DeviceError
        There is no such device here.
    ArgumentError
        `sanitize` is asked of a device that is not the emulator.

    Examples
    --------
    >>> import kernelmill as km
    >>> with km.Device("cpu") as device:
    ...     device.name
    'cpu'

    On a GPU it also makes streams, events and buffers, in the words of cuda.core:

    >>> def copy_of(array):
    ...     device = km.Device("cuda:0")
    ...     stream = device.create_stream()
    ...     return km.to_device(array, stream=stream)
    """

    name: str
    sanitize: bool = field(default=False, kw_only=True)
    _tokens: list[Token[str | None]] = field(default_factory=list, repr=False, compare=False)
    _checks: list[AbstractContextManager[Any]] = field(
        default_factory=list, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        backend_named(self.name)
        if self.sanitize and self.name != "emulator":
            raise ArgumentError(
                f"device {self.name!r} cannot sanitize; the emulator can",
                hint="km.Device('emulator', sanitize=True); NVIDIA has compute-sanitizer for GPUs",
            )

    @property
    def backend(self) -> Backend:
        """The back end that runs on this device."""
        return backend_named(self.name)

    @property
    def gpu(self) -> Any:  # Any: a CudaDevice, which is imported only where it is asked for
        """The GPU itself: limits, memory, pools, peers, cuda.core's own device.

        Raises
        ------
        NotImplementedHere
            The device is none: it has neither streams nor memory of its own.
        """
        found = getattr(self.backend, "device", None)
        if found is None:
            raise NotImplementedHere(
                f"device {self.name!r} has no streams, events or memory of its own",
                hint="those are of a GPU: km.Device('cuda:0')",
            )
        return found

    @property
    def arch(self) -> str:
        """What to compile for: "sm_90"."""
        return str(self.gpu.arch)

    def set_current(self) -> None:
        """Make the GPU the current one of this thread, for the driver and all libraries."""
        self.gpu.set_current()

    def create_stream(self, obj: object = None) -> Any:  # Any: cuda.core.Stream
        """Return a new stream, or a stream of cuda.core for any object with `__cuda_stream__`."""
        return self.gpu.create_stream(obj)

    def create_event(self, *, timing: bool = True) -> Any:  # Any: cuda.core.Event
        """Return a new event; the difference of two is the time between them in milliseconds."""
        return self.gpu.create_event(timing=timing)

    def allocate(self, size: int, stream: object) -> Any:  # Any: cuda.core.Buffer
        """Return `size` bytes of the GPU's memory, ordered on `stream` as their release will be.

        Raises
        ------
        DeviceError
            There is not that much memory; the text says what was asked and what is free.
        """
        return self.gpu.allocate(size, stream)

    def sync(self) -> None:
        """Wait until the GPU has done all that it was given.

        Raises
        ------
        DeviceError
            A kernel failed since the last time; the text names the ones launched last.
        """
        self.gpu.sync()

    def __enter__(self) -> Self:
        self._tokens.append(_CURRENT.set(self.name))
        if self.sanitize:
            from kernelmill.runtime.emulator import sanitized  # noqa: PLC0415 - only where asked for

            self._checks.append(sanitized())
            self._checks[-1].__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.sanitize:
            self._checks.pop().__exit__(kind, error, trace)
        _CURRENT.reset(self._tokens.pop())


def set_default_device(device: Device | str | None) -> None:
    """Make a device the current one of the process; None returns to the setting.

    Examples
    --------
    >>> import kernelmill as km
    >>> km.set_default_device("cpu")
    >>> km.set_default_device(None)
    """
    name = device.name if isinstance(device, Device) else device
    if name is not None:
        backend_named(name)
    _Default.name = name
