"""Layers of torch models that run kernels: names, mappings, `kernelize`. Loads no kernel itself.

A layer gets a name; a mapping says which repository serves that name on which device and in which
mode; `kernelize` binds the forward method of the kernel's layer to the modules of a model. Names,
attributes and rules are those of `kernels`, so a model prepared with one works with the other.
torch is imported only by a call that gets a model.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kernelmill.config import get_config
from kernelmill.errors import ArgumentError, NotPublishedError
from kernelmill.package.layer_check import check_layer, lacking, torch_module
from kernelmill.package.layer_kinds import (
    DEVICES,
    PROPERTIES,
    SERVES,
    CUDAProperties,
    Device,
    KernelizeFallback,
    Mode,
    ROCMProperties,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = [
    "CUDAProperties",
    "Device",
    "KernelizeFallback",
    "Mode",
    "ROCMProperties",
    "Repository",
    "function_layer",
    "kernelize",
    "register_kernel_mapping",
    "replace_kernel_forward_from_hub",
    "use_kernel_forward_from_hub",
    "use_kernel_mapping",
    "use_kernelized_func",
]

_logger: Final = logging.getLogger("kernelmill")
_T = TypeVar("_T")


class Repository(Protocol):
    """Where a layer comes from; hashable, so that each is loaded once."""

    def load(self) -> type[Any]:  # Any: a class of torch
        """Return the layer's class."""


# ----------------------------------------------------------------------------- mappings

_Modes = dict[Mode, Repository]


@dataclass(slots=True)
class _OnDevice:
    """Repositories of one layer for one kind of device, by interval of capabilities."""

    intervals: dict[tuple[int, int], _Modes] = field(default_factory=dict)

    def insert(self, device: Device, modes: _Modes) -> None:
        properties = device.properties
        ends = (
            (0, sys.maxsize)
            if properties is None
            else (properties.min_capability, properties.max_capability)
        )
        self.intervals[ends] = modes

    def at(self, device_type: str) -> _Modes | None:
        """Return what serves the device that is there: the narrowest interval, then the lowest."""
        if device_type not in PROPERTIES:
            return next(iter(self.intervals.values()))
        capability = _capability()
        fitting = [ends for ends in self.intervals if ends[0] <= capability <= ends[1]]
        if not fitting:
            return None
        return self.intervals[min(fitting, key=lambda ends: (ends[1] - ends[0], ends))]

    def copy(self) -> _OnDevice:
        return _OnDevice({ends: dict(modes) for ends, modes in self.intervals.items()})


_Mapping = dict[str, dict[str, _OnDevice]]
_mapping: Final[ContextVar[_Mapping]] = ContextVar("kernel mapping", default={})  # noqa: B039 - shared by all threads


def register_kernel_mapping(
    mapping: Mapping[str, Mapping[Device | str, Repository | dict[Mode, Repository]]],
    inherit_mapping: bool = True,  # noqa: FBT001, FBT002 - as in `kernels`
) -> None:
    """Say which repositories serve which layers.

    Parameters
    ----------
    mapping
        Layer's name → device (`"cuda"` or `Device`) → repository, or mode → repository.
    inherit_mapping
        Whether what was registered before stays.

    Raises
    ------
    ArgumentError
        A device is of no known kind.

    Examples
    --------
    >>> from kernelmill.package.layer_repositories import LayerRepository
    >>> from kernelmill.package.layers import register_kernel_mapping
    >>> silu = LayerRepository("org/activation", layer_name="SiluAndMul", version=1)
    >>> register_kernel_mapping({"SiluAndMul": {"cuda": silu}})
    """
    if not inherit_mapping:
        _mapping.set({})
    for name, devices in mapping.items():
        served = _mapping.get().setdefault(name, {})
        for key, value in devices.items():
            device = Device(key) if isinstance(key, str) else key
            _check_device(device.type)
            modes = value if isinstance(value, dict) else {Mode.FALLBACK: value}
            served.setdefault(device.type, _OnDevice()).insert(device, modes)


def use_kernel_mapping(
    mapping: Mapping[str, Mapping[Device | str, Repository | dict[Mode, Repository]]],
    *,
    inherit_mapping: bool = True,
) -> contextlib.AbstractContextManager[None]:
    """Return a context in which a mapping holds, on top of what was registered or alone.

    Parameters
    ----------
    mapping, inherit_mapping
        As `register_kernel_mapping`.
    """

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        before = _mapping.get() if inherit_mapping else {}
        copied = {
            name: {device: one.copy() for device, one in served.items()}
            for name, served in before.items()
        }
        token = _mapping.set(copied)
        try:
            register_kernel_mapping(mapping)
            yield
        finally:
            _mapping.reset(token)

    return context()


def _check_device(name: str) -> None:
    if name not in DEVICES:
        raise ArgumentError(f"the device type {name!r} is unknown; accepted: {', '.join(DEVICES)}")


# ----------------------------------------------------------------------------- naming layers


def replace_kernel_forward_from_hub(
    cls: type[Any],  # Any: a class of torch
    layer_name: str,
    condition: Callable[[Any], bool] | None = None,
) -> None:
    """Give a class of layers the name under which mappings serve it.

    Parameters
    ----------
    cls
        The class; a third party's too.
    layer_name
        The name in mappings.
    condition
        Called with each module; where it says no, `kernelize` leaves that one alone.
    """
    cls.kernel_layer_name = layer_name
    # A staticmethod, so that an instance does not bind it.
    cls.kernel_condition = staticmethod(condition if condition is not None else _always)


def _always(_: object) -> bool:
    return True


def use_kernel_forward_from_hub(
    layer_name: str, condition: Callable[[Any], bool] | None = None
) -> Callable[[Any], Any]:  # Any: a class, or a function that becomes a module
    """Return a decorator that names a class of layers, or makes a named module of a function.

    Parameters
    ----------
    layer_name, condition
        As `replace_kernel_forward_from_hub`.
    """

    def decorator(ty: Any) -> Any:
        if inspect.isfunction(ty):
            made = function_layer(ty)
            replace_kernel_forward_from_hub(made, layer_name, condition)
            return made()
        if not inspect.isclass(ty):
            raise TypeError(f"use_kernel_forward_from_hub is for classes and functions, not {ty!r}")
        replace_kernel_forward_from_hub(ty, layer_name, condition)
        return ty

    return decorator


def use_kernelized_func(*args: Callable[..., Any]) -> Callable[[type[_T]], type[_T]]:
    """Return a decorator that shows a class's functions to `kernelize`.

    Parameters
    ----------
    *args
        Functions that `use_kernel_forward_from_hub` decorated; they become no submodules.

    Raises
    ------
    ArgumentError
        One was not decorated.
    """

    def decorator(cls: type[_T]) -> type[_T]:
        for function in args:
            if not hasattr(function, "kernel_layer_name"):
                name = getattr(function, "__name__", repr(function))
                raise ArgumentError(
                    f"the function {name} has no layer name",
                    hint="decorate it with @use_kernel_forward_from_hub first",
                )
        made = cls.__init__

        def initialize(self: Any, *inner: Any, **options: Any) -> None:
            made(self, *inner, **options)
            attached = self.__dict__.setdefault("_kernel_funcs", {})
            for function in args:
                name = getattr(function, "__name__", None) or function.kernel_layer_name  # type: ignore[attr-defined]
                attached[name] = function

        cls.__init__ = initialize  # type: ignore[method-assign]
        return cls

    return decorator


def function_layer(function: Callable[..., Any]) -> type[Any]:
    """Return a class of stateless modules whose forward method is a function."""
    nn = torch_module().nn

    class Func(nn.Module):  # type: ignore[misc, name-defined]
        can_torch_compile = getattr(function, "can_torch_compile", False)
        has_backward = getattr(function, "has_backward", True)

        def forward(self, *args: Any, **options: Any) -> Any:
            return function(*args, **options)

    found = inspect.signature(function)
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    Func.forward.__signature__ = found.replace(  # type: ignore[attr-defined]
        parameters=[first, *found.parameters.values()]
    )
    return Func


# ----------------------------------------------------------------------------- kernelize


def kernelize(
    model: Any,  # Any: torch.nn.Module
    *,
    mode: Mode,
    device: Any = None,
    use_fallback: bool | KernelizeFallback = True,
) -> Any:
    """Bind kernels to the layers of a model, as mappings say.

    Parameters
    ----------
    model
        A `torch.nn.Module`; it is changed in place.
    mode
        `Mode.INFERENCE` or `Mode.TRAINING`, perhaps with `| Mode.TORCH_COMPILE`.
    device
        A kind of device or a `torch.device`; None for that of the model's parameters.
    use_fallback
        Where a layer may keep its own forward method; True is `KernelizeFallback.DEFAULT`, False
        `KernelizeFallback.NONE`.

    Returns
    -------
    model
        The same object.

    Raises
    ------
    ArgumentError
        The mode or device cannot be used, or nothing serves a layer and no fallback is allowed.
    TypeError
        A kernel's layer has state, or another forward signature.
    """
    if Mode.FALLBACK in mode or not (mode & Mode.INFERENCE or mode & Mode.TRAINING):
        raise ArgumentError(
            f"mode is {mode}; accepted: Mode.INFERENCE or Mode.TRAINING, perhaps with "
            "| Mode.TORCH_COMPILE"
        )
    if isinstance(device, str):
        _check_device(device)
    kind = _device_of(model) if device is None else str(getattr(device, "type", device))
    if isinstance(use_fallback, bool):
        use_fallback = KernelizeFallback.DEFAULT if use_fallback else KernelizeFallback.NONE
    order = _Order(mode, kind, use_fallback)
    for _, module in model.named_modules():
        for function in getattr(module, "_kernel_funcs", {}).values():
            order.carry_out(function)
        cls = type(module)
        if not hasattr(cls, "kernel_layer_name"):
            continue
        condition = getattr(cls, "kernel_condition", None)
        if condition and not condition(module):
            _logger.info("%s keeps its forward: its condition says so", cls.__name__)
            continue
        order.carry_out(module)
    return model


class _NotServedError(Exception):
    """Nothing serves a layer: which case, and in words."""

    def __init__(self, case: KernelizeFallback, text: str) -> None:
        super().__init__(text)
        self.case = case


@dataclass(frozen=True, slots=True)
class _Order:
    """One call of `kernelize`."""

    mode: Mode
    device: str
    fallback: KernelizeFallback

    def carry_out(self, module: Any) -> None:
        """Bind a module's forward method: a kernel's, or its own where that is allowed."""
        cls = type(module)
        if get_config().disable_kernel_mapping:
            _bind(module, cls)
            return
        try:
            layer = self._layer(str(cls.kernel_layer_name), cls)
        except _NotServedError as reason:
            if reason.case not in self.fallback:
                raise ArgumentError(str(reason)) from reason.__cause__
            # What is not mapped at all is likely a mistyped name.
            unknown = reason.case is KernelizeFallback.NO_LAYER
            level = logging.WARNING if unknown else logging.INFO
            _logger.log(level, "%s; it keeps its own forward", reason)
            _bind(module, cls)
        else:
            _bind(module, layer)

    def _layer(self, name: str, cls: type[Any]) -> type[Any]:
        repository, registered = self._repository(name)
        try:
            layer = _load(repository, cls)
        except (FileNotFoundError, NotPublishedError) as error:
            if KernelizeFallback.CANNOT_LOAD not in self.fallback:
                raise
            text = f"the kernel for the layer {name} cannot be loaded: {error}"
            raise _NotServedError(KernelizeFallback.CANNOT_LOAD, text) from error
        lacks = lacking(layer, registered)
        if lacks:
            raise ArgumentError(
                f"{repository} does not support {lacks}; it was registered for {name}, {registered}"
            )
        lacks = lacking(layer, self.mode)
        if lacks:
            raise _NotServedError(
                KernelizeFallback.NO_COMPATIBLE_MODE,
                f"the kernel for the layer {name} does not support {lacks}, so not {self.mode}",
            )
        return layer

    def _repository(self, name: str) -> tuple[Repository, Mode]:
        devices = _mapping.get().get(name)
        if devices is None:
            raise _NotServedError(KernelizeFallback.NO_LAYER, f"no mapping has the layer {name}")
        served = devices.get(self.device)
        if served is None:
            there = ", ".join(sorted(devices))
            raise _NotServedError(
                KernelizeFallback.NO_DEVICE,
                f"the layer {name} is mapped for {there}, not for {self.device}",
            )
        modes = served.at(self.device)
        if modes is None:
            ends = ", ".join(f"{low} to {high}" for low, high in sorted(served.intervals))
            raise _NotServedError(
                KernelizeFallback.NO_COMPATIBLE_PROPERTIES,
                f"the layer {name} is mapped for the capabilities {ends}; here is {_capability()}",
            )
        for mode in SERVES[self.mode]:
            if mode in modes:
                return modes[mode], mode
        there = ", ".join(map(str, modes))
        raise _NotServedError(
            KernelizeFallback.NO_COMPATIBLE_MODE,
            f"the layer {name} is mapped for {there}, which does not serve {self.mode}",
        )


def _bind(module: Any, layer: type[Any]) -> None:
    module.forward = MethodType(layer.forward, module)


_loaded: Final[dict[Repository, type[Any]]] = {}
_valid: Final[set[tuple[Repository, type[Any]]]] = set()


def _load(repository: Repository, cls: type[Any]) -> type[Any]:
    """Load a layer once, and check it against each class that it is to serve."""
    layer = _loaded.get(repository)
    if layer is None:
        layer = repository.load()
    if (repository, cls) not in _valid:
        check_layer(layer, cls, str(repository))
        _valid.add((repository, cls))
    _loaded[repository] = layer
    return layer


# ----------------------------------------------------------------------------- torch


def _capability() -> int:
    major, minor = torch_module().cuda.get_device_capability(device=None)
    return int(major) * 10 + int(minor)


def _device_of(model: Any) -> str:
    parameters: Iterable[Any] = model.parameters()
    first = next(iter(parameters), None)
    if first is None:
        raise ArgumentError(
            "the model has no parameters that would tell its device", hint="pass `device=`"
        )
    kind = str(first.device.type)
    hip = kind == "cuda" and getattr(torch_module().version, "hip", None) is not None
    return "rocm" if hip else kind
