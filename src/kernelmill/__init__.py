"""kernelmill: write, run, build, version, lock and ship compute kernels from Python.

>>> import numpy as np, kernelmill as km
>>> x = np.arange(4, dtype=np.float32)
>>> km.transform(x, lambda v: 2 * v + 1)
array([1., 3., 5., 7.], dtype=float32)
>>> km.reduce(x, km.maximum)
np.float32(3.0)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kernelmill import iterators as iterators
    from kernelmill import testing as testing
    from kernelmill.algorithms.batched_copy import batched_copy
    from kernelmill.algorithms.capabilities import capabilities
    from kernelmill.algorithms.extremes import argmax, argmin
    from kernelmill.algorithms.histogram import (
        bincount,
        histogram,
        histogram_even,
        histogram_range,
    )
    from kernelmill.algorithms.merge import (
        is_sorted,
        merge,
        set_difference,
        set_intersection,
        set_union,
    )
    from kernelmill.algorithms.neighbours import adjacent_difference, for_each
    from kernelmill.algorithms.partition import partition, three_way_partition
    from kernelmill.algorithms.plan import Plan
    from kernelmill.algorithms.reduce import reduce, transform_reduce
    from kernelmill.algorithms.scan import exclusive_scan, inclusive_scan
    from kernelmill.algorithms.scan_by_key import (
        exclusive_scan_by_key,
        inclusive_scan_by_key,
        reduce_by_key,
    )
    from kernelmill.algorithms.search import lower_bound, upper_bound
    from kernelmill.algorithms.segmented import segmented_reduce, segmented_scan
    from kernelmill.algorithms.segmented_sort import segmented_sort
    from kernelmill.algorithms.select import select
    from kernelmill.algorithms.shuffle import shuffle
    from kernelmill.algorithms.sort import argsort, sort, sort_by_key
    from kernelmill.algorithms.topk import batched_topk, nth_element, topk
    from kernelmill.algorithms.transform import transform
    from kernelmill.algorithms.unique import (
        run_length_encode,
        unique,
        unique_by_key,
        unique_count,
    )
    from kernelmill.compiler.functions import (
        clz,
        ctz,
        erf,
        erfc,
        fma,
        lgamma,
        popcount,
        rsqrt,
        tgamma,
    )
    from kernelmill.compiler.kernel_functions import (
        atomic,
        barrier,
        block,
        block_range,
        blockDim,
        blockIdx,
        dynamic_shared,
        fence,
        grid_range,
        gridDim,
        local,
        shared,
        static,
        static_range,
        threadIdx,
        tile_range,
        warp,
    )
    from kernelmill.compiler.op import (
        Op,
        add,
        bitwise_and,
        bitwise_or,
        bitwise_xor,
        logical_and,
        logical_or,
        maximum,
        minimum,
        multiply,
        op,
    )
    from kernelmill.compiler.raw import RawOp
    from kernelmill.dtypes import (
        bfloat16,
        bool_,
        complex64,
        complex128,
        dtype_of,
        float16,
        float32,
        float64,
        int8,
        int16,
        int32,
        int64,
        uint8,
        uint16,
        uint32,
        uint64,
    )
    from kernelmill.errors import (
        ArgumentError,
        CacheWarning,
        CompileError,
        ConfigError,
        DeviceError,
        DTypeError,
        KernelmillError,
        MissingExtraError,
        NotImplementedHere,
        OperatorError,
        ScalarOverflowError,
        ShapeError,
        ToolchainError,
    )
    from kernelmill.inspection import inspect
    from kernelmill.kernels import kernel
    from kernelmill.runtime.cuda import (  # noqa: F401 - not starred, see _FROM_EXTRAS
        Buffer,
        Event,
        MemoryResource,
        Stream,
    )
    from kernelmill.runtime.cuda.arguments import Pointer
    from kernelmill.runtime.cuda.copies import to_device
    from kernelmill.runtime.cuda.graph import Graph, capture
    from kernelmill.runtime.cuda.launches import LaunchConfig, launch, prepare
    from kernelmill.runtime.cuda.program import (
        Kernel,
        Linker,
        ObjectCode,
        Program,
        ProgramOptions,
    )
    from kernelmill.runtime.devices import Device, set_default_device
    from kernelmill.structs import struct

__version__ = "0.1.0"

# Where each public name lives. A name is imported when it is first used: `import kernelmill`
# costs next to nothing.
_HOMES: Final = {
    "kernelmill.algorithms.batched_copy": ("batched_copy",),
    "kernelmill.algorithms.capabilities": ("capabilities",),
    "kernelmill.algorithms.extremes": ("argmax", "argmin"),
    "kernelmill.algorithms.merge": (
        "is_sorted",
        "merge",
        "set_difference",
        "set_intersection",
        "set_union",
    ),
    "kernelmill.algorithms.neighbours": ("adjacent_difference", "for_each"),
    "kernelmill.algorithms.histogram": (
        "bincount",
        "histogram",
        "histogram_even",
        "histogram_range",
    ),
    "kernelmill.algorithms.partition": ("partition", "three_way_partition"),
    "kernelmill.algorithms.plan": ("Plan",),
    "kernelmill.algorithms.reduce": ("reduce", "transform_reduce"),
    "kernelmill.algorithms.scan": ("exclusive_scan", "inclusive_scan"),
    "kernelmill.algorithms.scan_by_key": (
        "exclusive_scan_by_key",
        "inclusive_scan_by_key",
        "reduce_by_key",
    ),
    "kernelmill.algorithms.search": ("lower_bound", "upper_bound"),
    "kernelmill.algorithms.select": ("select",),
    "kernelmill.algorithms.segmented": ("segmented_reduce", "segmented_scan"),
    "kernelmill.algorithms.segmented_sort": ("segmented_sort",),
    "kernelmill.algorithms.shuffle": ("shuffle",),
    "kernelmill.algorithms.sort": ("argsort", "sort", "sort_by_key"),
    "kernelmill.algorithms.topk": ("batched_topk", "nth_element", "topk"),
    "kernelmill.algorithms.transform": ("transform",),
    "kernelmill.algorithms.unique": (
        "run_length_encode",
        "unique",
        "unique_by_key",
        "unique_count",
    ),
    "kernelmill.compiler.functions": (
        "clz",
        "ctz",
        "erf",
        "erfc",
        "fma",
        "lgamma",
        "popcount",
        "rsqrt",
        "tgamma",
    ),
    "kernelmill.compiler.kernel_functions": (
        "atomic",
        "barrier",
        "block",
        "blockDim",
        "blockIdx",
        "block_range",
        "dynamic_shared",
        "fence",
        "gridDim",
        "grid_range",
        "local",
        "shared",
        "static",
        "static_range",
        "threadIdx",
        "tile_range",
        "warp",
    ),
    "kernelmill.compiler.op": (
        "Op",
        "add",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "logical_and",
        "logical_or",
        "maximum",
        "minimum",
        "multiply",
        "op",
    ),
    "kernelmill.compiler.raw": ("RawOp",),
    "kernelmill.dtypes": (
        "bfloat16",
        "bool_",
        "complex64",
        "complex128",
        "dtype_of",
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    ),
    "kernelmill.errors": (
        "ArgumentError",
        "CacheWarning",
        "CompileError",
        "ConfigError",
        "DTypeError",
        "DeviceError",
        "KernelmillError",
        "MissingExtraError",
        "NotImplementedHere",
        "OperatorError",
        "ScalarOverflowError",
        "ShapeError",
        "ToolchainError",
    ),
    "kernelmill.inspection": ("inspect",),
    "kernelmill.kernels": ("kernel",),
    "kernelmill.runtime.cuda": ("Buffer", "Event", "MemoryResource", "Stream"),
    "kernelmill.runtime.cuda.arguments": ("Pointer",),
    "kernelmill.runtime.cuda.copies": ("to_device",),
    "kernelmill.runtime.cuda.graph": ("Graph", "capture"),
    "kernelmill.runtime.cuda.launches": ("LaunchConfig", "launch", "prepare"),
    "kernelmill.runtime.cuda.program": (
        "Kernel",
        "Linker",
        "ObjectCode",
        "Program",
        "ProgramOptions",
    ),
    "kernelmill.runtime.devices": ("Device", "set_default_device"),
    "kernelmill.structs": ("struct",),
}
# Modules of public names that are imported when they are first used.
_MODULES: Final = ("iterators", "testing")
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}
# Classes of cuda.core: not part of `*`, which must work where the extra is absent.
_FROM_EXTRAS: Final = ("Buffer", "Event", "MemoryResource", "Stream")

__all__ = [
    "ArgumentError",
    "CacheWarning",
    "CompileError",
    "ConfigError",
    "DTypeError",
    "Device",
    "DeviceError",
    "Graph",
    "Kernel",
    "KernelmillError",
    "LaunchConfig",
    "Linker",
    "MissingExtraError",
    "NotImplementedHere",
    "ObjectCode",
    "Op",
    "OperatorError",
    "Plan",
    "Pointer",
    "Program",
    "ProgramOptions",
    "RawOp",
    "ScalarOverflowError",
    "ShapeError",
    "ToolchainError",
    "add",
    "adjacent_difference",
    "argmax",
    "argmin",
    "argsort",
    "atomic",
    "barrier",
    "batched_copy",
    "batched_topk",
    "bfloat16",
    "bincount",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "block",
    "blockDim",
    "blockIdx",
    "block_range",
    "bool_",
    "capabilities",
    "capture",
    "clz",
    "complex64",
    "complex128",
    "ctz",
    "dtype_of",
    "dynamic_shared",
    "erf",
    "erfc",
    "exclusive_scan",
    "exclusive_scan_by_key",
    "fence",
    "float16",
    "float32",
    "float64",
    "fma",
    "for_each",
    "gridDim",
    "grid_range",
    "histogram",
    "histogram_even",
    "histogram_range",
    "inclusive_scan",
    "inclusive_scan_by_key",
    "inspect",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_sorted",
    "kernel",
    "launch",
    "lgamma",
    "local",
    "logical_and",
    "logical_or",
    "lower_bound",
    "maximum",
    "merge",
    "minimum",
    "multiply",
    "nth_element",
    "op",
    "partition",
    "popcount",
    "prepare",
    "reduce",
    "reduce_by_key",
    "rsqrt",
    "run_length_encode",
    "segmented_reduce",
    "segmented_scan",
    "segmented_sort",
    "select",
    "set_default_device",
    "set_difference",
    "set_intersection",
    "set_union",
    "shared",
    "shuffle",
    "sort",
    "sort_by_key",
    "static",
    "static_range",
    "struct",
    "tgamma",
    "threadIdx",
    "three_way_partition",
    "tile_range",
    "to_device",
    "topk",
    "transform",
    "transform_reduce",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unique",
    "unique_by_key",
    "unique_count",
    "upper_bound",
    "warp",
]


def __getattr__(name: str) -> object:
    """Import a public name from its home (PEP 562)."""
    if name in _MODULES:
        return importlib.import_module(f"kernelmill.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'kernelmill' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__, *_FROM_EXTRAS, *_MODULES})
