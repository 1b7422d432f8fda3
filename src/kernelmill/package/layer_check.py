"""Whether a kernel's layer can serve in the place of a module's class. Binds nothing.

torch is imported only by a call.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Final

from kernelmill.errors import MissingExtraError
from kernelmill.package.layer_kinds import Mode

__all__ = ["check_layer", "lacking", "torch_module"]

# What a kernel's layer may have beyond what every module has.
_FLAGS: Final = frozenset({"can_torch_compile", "has_backward"})


def torch_module() -> Any:  # Any: a module
    """Return torch.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            "layers need torch, which is not installed", hint="pip install 'kernelmill[torch]'"
        ) from error


def lacking(layer: type[Any], mode: Mode) -> str:  # Any: a class of torch
    """Return what a layer lacks for a mode, in words; "" where it lacks nothing."""
    if Mode.TRAINING in mode and not getattr(layer, "has_backward", True):
        return "backward"
    if Mode.TORCH_COMPILE in mode and not getattr(layer, "can_torch_compile", False):
        return "torch.compile"
    return ""


def check_layer(layer: type[Any], cls: type[Any], place: str) -> None:
    """Check that a kernel's layer can serve in the place of a class.

    Raises
    ------
    TypeError
        It is no module, has a constructor or members of its own, or another forward signature.
    """
    module = torch_module().nn.Module
    if not issubclass(layer, module):
        raise TypeError(f"{place}: the layer {layer.__name__} is no torch.nn.Module")
    if layer.__init__ is not module.__init__:
        raise TypeError(f"{place}: the layer has a constructor; accepted: layers without state")
    extra = {n for n, _ in inspect.getmembers(layer)} - {n for n, _ in inspect.getmembers(module)}
    if extra - _FLAGS:
        raise TypeError(
            f"{place}: the layer has the members {', '.join(sorted(extra - _FLAGS))}; "
            f"accepted beside forward: {', '.join(sorted(_FLAGS))}"
        )
    found, asked = (list(inspect.signature(c.forward).parameters.values()) for c in (layer, cls))
    if len(found) != len(asked):
        raise TypeError(
            f"{place}: forward takes {len(found)} arguments; that of {cls.__name__} {len(asked)}"
        )
    for one, other in zip(found, asked, strict=True):
        if one.kind != other.kind:
            raise TypeError(
                f"{place}: the argument {one.name} of forward is {one.kind.description}; "
                f"{other.name} of {cls.__name__} is {other.kind.description}"
            )
