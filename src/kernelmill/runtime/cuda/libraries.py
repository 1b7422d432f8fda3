"""What the native path knows of arrays: told once a library, when one of its arrays is first seen.

No library is imported here. What an array is to the general path stands in `arrays.py`.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.dtypes import SCALARS
from kernelmill.runtime.cuda.stream import current_stream
from kernelmill.runtime.memory import QUICK_TYPES
from kernelmill.runtime.native import native

if TYPE_CHECKING:
    from kernelmill.dtypes import DType, StructType

__all__ = ["OPAQUE", "SCALAR_TYPES", "code_of", "tell"]

# The code of a struct, which DLPack has no name for.
OPAQUE: Final = 255
_CODES: Final = {"bool": 6, "int": 0, "uint": 1, "float": 2, "complex": 5}
_BFLOAT: Final = 4
# Beside arrays on a device, scalars have a short way too.
SCALAR_TYPES: Final[frozenset[type]] = frozenset(
    (int, float, *(np.dtype(code).type for code in "?bhilqBHILQefdFD"))
)
_TABLE: Final = "__dlpack_c_exchange_api__"
# Libraries that a module of the native path was told of.
_TOLD: Final[set[tuple[int, str]]] = set()


def code_of(dtype: DType | StructType) -> tuple[int, int]:
    """Return the code of a type in DLPack, and its bits."""
    kind = "bfloat16" if dtype.name == "bfloat16" else getattr(dtype, "kind", "")
    return _CODES.get(kind, _BFLOAT if kind == "bfloat16" else OPAQUE), 8 * dtype.itemsize


def tell(library: str, type_: type | None = None) -> None:
    """Let the native path take arrays of "torch", "cupy" or "own", whose type is then given."""
    module = native()
    key = id(module), library
    if key not in _TOLD:
        _TOLD.add(key)
        QUICK_TYPES.update(SCALAR_TYPES)
        _TELLERS[library](module, type_)


def _tell_torch(module: Any, _: object) -> None:  # Any: either module of the native path
    torch = sys.modules["torch"]
    cls: Any = torch.Tensor
    QUICK_TYPES.add(cls)
    lazy = {"is_negative": cls.is_neg, "is_conjugate": cls.is_conj}
    table = _exchange_table(cls)
    if table:  # torch 2.10 and later
        module.cuda_library(cls, "torch", api=table, **lazy)
        return
    module.cuda_library(
        cls,
        "methods",
        stream=torch._C._cuda_getCurrentRawStream,  # noqa: SLF001 - as in stream.py
        codes=_torch_codes(torch),
        methods=(cls.data_ptr, cls.stride, cls.get_device),
        **lazy,
    )


def _torch_codes(torch: Any) -> dict[Any, int]:  # Any: a module; its element types
    """Return DLPack's code and bits by torch's element types, as one number."""
    found = {}
    for dtype in SCALARS:
        spelling = getattr(torch, dtype.name, None)
        if spelling is not None:
            code, bits = code_of(dtype)
            found[spelling] = 256 * code + bits
    return found


def _tell_cupy(module: Any, _: object) -> None:  # Any: as above
    cupy: Any = sys.modules["cupy"]
    current = cupy.cuda.get_current_stream
    QUICK_TYPES.add(cupy.ndarray)
    module.cuda_library(cupy.ndarray, "cupy", stream=lambda device: int(current(device).ptr))


def _tell_own(module: Any, cls: Any) -> None:  # Any: as above; a class
    QUICK_TYPES.add(cls)
    module.cuda_library(cls, "own", stream=_stream_now)


def _stream_now(device: int) -> int:
    """Return the current stream; once torch uses CUDA, the native path asks torch itself."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        tell("torch")
    return current_stream(device).handle


_TELLERS: Final = {"torch": _tell_torch, "cupy": _tell_cupy, "own": _tell_own}


def _exchange_table(cls: Any) -> int:  # Any: a class
    """Return the address of the table of DLPack's C functions; 0 where the type has none."""
    capsule = getattr(cls, _TABLE, None)
    if type(capsule).__name__ != "PyCapsule":
        return 0
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    return int(pointer(capsule, b"dlpack_exchange_api") or 0)
