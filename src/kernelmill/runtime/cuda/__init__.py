"""The CUDA runtime: devices, streams, memory, programs, launches and graphs in cuda.core's nouns.

The only package that imports cuda.core and the driver's bindings. Importing it needs neither a
driver nor the extra; the first use names what is missing. `Stream`, `Event`, `Buffer`,
`MemoryResource` and `GraphBuilder` are cuda.core's own classes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kernelmill.runtime.cuda.arguments import Pointer
    from kernelmill.runtime.cuda.arrays import (
        CudaArray,
        DeviceView,
        as_device_view,
        empty,
    )
    from kernelmill.runtime.cuda.backend import CudaBackend
    from kernelmill.runtime.cuda.copies import to_device, to_host
    from kernelmill.runtime.cuda.device import CudaDevice, Limits, cuda_device
    from kernelmill.runtime.cuda.graph import Graph, capture
    from kernelmill.runtime.cuda.launches import LaunchConfig, PreparedLaunch, launch, prepare
    from kernelmill.runtime.cuda.program import (
        Attributes,
        Kernel,
        Linker,
        ObjectCode,
        Program,
        ProgramOptions,
    )
    from kernelmill.runtime.cuda.stream import as_stream, current_stream, synchronize
    from kernelmill.runtime.cuda.templates import device_headers

__all__ = [
    "Attributes",
    "CudaArray",
    "CudaBackend",
    "CudaDevice",
    "DeviceView",
    "Graph",
    "Kernel",
    "LaunchConfig",
    "Limits",
    "Linker",
    "ObjectCode",
    "Pointer",
    "PreparedLaunch",
    "Program",
    "ProgramOptions",
    "as_device_view",
    "as_stream",
    "capture",
    "cuda_device",
    "current_stream",
    "device_headers",
    "empty",
    "launch",
    "prepare",
    "synchronize",
    "to_device",
    "to_host",
]

_HOMES: Final = {
    "arguments": ("Pointer",),
    "arrays": ("CudaArray", "DeviceView", "as_device_view", "empty"),
    "backend": ("CudaBackend",),
    "copies": ("to_device", "to_host"),
    "device": ("CudaDevice", "Limits", "cuda_device"),
    "graph": ("Graph", "capture"),
    "launches": ("LaunchConfig", "PreparedLaunch", "launch", "prepare"),
    "program": ("Attributes", "Kernel", "Linker", "ObjectCode", "Program", "ProgramOptions"),
    "stream": ("as_stream", "current_stream", "synchronize"),
    "templates": ("device_headers",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}
# cuda.core's own classes, which are used as they are.
_CORE: Final = {
    "Buffer": "Buffer",
    "Event": "Event",
    "GraphBuilder": "graph.GraphBuilder",
    "MemoryResource": "MemoryResource",
    "Stream": "Stream",
}


def __getattr__(name: str) -> object:
    """Import a name from its home, or from cuda.core, at its first use."""
    if name in _HOME_OF:
        value: object = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    elif name in _CORE:
        from kernelmill.runtime.cuda.driver import core  # noqa: PLC0415 - the extra may be absent

        value = core()
        for part in _CORE[name].split("."):
            value = getattr(value, part)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
