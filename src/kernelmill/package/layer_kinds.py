"""Modes, fallbacks and kinds of devices of `kernelize`. Knows no layers, imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from typing import TYPE_CHECKING, Final

from kernelmill.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DEVICES",
    "PROPERTIES",
    "SERVES",
    "CUDAProperties",
    "Device",
    "KernelizeFallback",
    "Mode",
    "ROCMProperties",
]

DEVICES: Final = ("cpu", "cuda", "mps", "neuron", "npu", "rocm", "tpu", "xpu")


class Mode(Flag):
    """What a model is kernelized for, or a mapping is registered for.

    `INFERENCE` or `TRAINING`, either with `TORCH_COMPILE`. `FALLBACK` stands in mappings alone:
    what serves where nothing else does.

    Examples
    --------
    >>> from kernelmill.package.layer_kinds import Mode
    >>> Mode.INFERENCE in (Mode.INFERENCE | Mode.TORCH_COMPILE)
    True
    """

    _NONE = 0
    FALLBACK = auto()
    TRAINING = auto()
    INFERENCE = auto()
    TORCH_COMPILE = auto()

    def __or__(self, other: Mode) -> Mode:
        union = super().__or__(other)
        if Mode.INFERENCE in union and Mode.TRAINING in union:
            raise ArgumentError(
                "Mode.INFERENCE and Mode.TRAINING are both asked for; accepted: one of them",
                hint="a layer for training also infers",
            )
        if Mode.FALLBACK in union and union != Mode.FALLBACK:
            raise ArgumentError("Mode.FALLBACK stands alone; it cannot be combined")
        return union


class KernelizeFallback(Flag):
    """Where a module may keep its own forward method, rather than that `kernelize` raises.

    `NO_LAYER`: the name is in no mapping; `NO_DEVICE`: not for this kind of device;
    `NO_COMPATIBLE_PROPERTIES`: not for this capability; `NO_COMPATIBLE_MODE`: not for this mode,
    or the layer that was found does not support it; `CANNOT_LOAD`: there is no such kernel, or none
    for this machine. `DEFAULT` is all but the last, `ALL` all, `NONE` none.

    Bytes that are not the promised ones and publishers that are not trusted always raise.
    """

    NONE = 0
    NO_LAYER = auto()
    NO_DEVICE = auto()
    NO_COMPATIBLE_PROPERTIES = auto()
    NO_COMPATIBLE_MODE = auto()
    CANNOT_LOAD = auto()

    DEFAULT = NO_LAYER | NO_DEVICE | NO_COMPATIBLE_PROPERTIES | NO_COMPATIBLE_MODE
    ALL = DEFAULT | CANNOT_LOAD


_INFER, _TRAIN, _COMPILE = Mode.INFERENCE, Mode.TRAINING, Mode.TORCH_COMPILE
# What serves a mode: the first that is registered. A layer for more serves for less.
SERVES: Final[Mapping[Mode, tuple[Mode, ...]]] = {
    _INFER: (_INFER, _INFER | _COMPILE, _TRAIN, _TRAIN | _COMPILE, Mode.FALLBACK),
    _TRAIN: (_TRAIN, _TRAIN | _COMPILE, Mode.FALLBACK),
    _INFER | _COMPILE: (_INFER | _COMPILE, _TRAIN | _COMPILE, Mode.FALLBACK),
    _TRAIN | _COMPILE: (_TRAIN | _COMPILE, Mode.FALLBACK),
}


# ----------------------------------------------------------------------------- devices


@dataclass(frozen=True)
class CUDAProperties:
    """The CUDA compute capabilities that a kernel serves, both ends included: 75 means 7.5.

    Examples
    --------
    >>> from kernelmill.package.layer_kinds import CUDAProperties, Device
    >>> Device("cuda", CUDAProperties(75, 90)).properties.max_capability
    90
    """

    min_capability: int
    max_capability: int

    def __post_init__(self) -> None:
        _check_capabilities(self.min_capability, self.max_capability)
        self.validate_capability_range()

    def validate_capability_range(self) -> None:
        """Refuse an interval that holds nothing.

        Raises
        ------
        ArgumentError
            The lower end is above the upper one.
        """
        if self.min_capability > self.max_capability:
            raise ArgumentError(
                f"min_capability ({self.min_capability}) must be <= max_capability "
                f"({self.max_capability})"
            )


@dataclass(frozen=True)
class ROCMProperties:
    """As `CUDAProperties`, for ROCm devices."""

    min_capability: int
    max_capability: int

    def __post_init__(self) -> None:
        _check_capabilities(self.min_capability, self.max_capability)
        self.validate_capability_range()

    def validate_capability_range(self) -> None:
        """See `CUDAProperties`."""
        CUDAProperties(self.min_capability, self.max_capability)


def _check_capabilities(*values: object) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentError(
                f"a capability is {value!r}; accepted: an integer, such as 90 for 9.0"
            )


PROPERTIES: Final[Mapping[str, type[object]]] = {"cuda": CUDAProperties, "rocm": ROCMProperties}


@dataclass(frozen=True)
class Device:
    """A kind of device, and for CUDA and ROCm the capabilities that are meant."""

    type: str
    properties: CUDAProperties | ROCMProperties | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.type, str):
            raise ArgumentError(f"a device's type is {self.type!r}; accepted: a text")
        if self.properties is None:
            return
        for name, kind in PROPERTIES.items():
            if isinstance(self.properties, kind) and self.type != name:
                raise ArgumentError(f"{kind.__name__} is only for {name!r} devices")
        if not isinstance(self.properties, tuple(PROPERTIES.values())):
            raise ArgumentError(f"properties of a device are {self.properties!r}")
