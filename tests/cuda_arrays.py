"""Arrays of NumPy copied to a device with their layout, for the tests that need a GPU."""

from __future__ import annotations

import numpy as np

from kernelmill.runtime import cuda


class OnDevice:
    """A view of a NumPy array, and the memory behind it, copied to the device."""

    def __init__(self, view: np.ndarray, base: np.ndarray | None = None) -> None:
        base = view if base is None else base
        self.view, self.base = view, base
        raw = np.ascontiguousarray(base).view(np.uint8).reshape(-1)
        self.memory = cuda.to_device(raw if raw.size else np.zeros(1, np.uint8))
        offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        self.__cuda_array_interface__ = {
            "shape": view.shape,
            "strides": view.strides,
            "typestr": view.dtype.str,
            "descr": view.dtype.descr,
            "data": (int(self.memory.buffer.handle) + offset, False),
            "version": 3,
            "stream": 1,
        }

    def numpy(self) -> np.ndarray:
        """The memory, as it is now."""
        raw = self.memory.numpy()[: self.base.nbytes]
        return raw.view(self.base.dtype).reshape(self.base.shape)
