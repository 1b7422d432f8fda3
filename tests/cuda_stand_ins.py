"""A driver that is none: what the tests of the CUDA runtime put in the place of the bindings."""

from __future__ import annotations

import enum
from types import SimpleNamespace


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803


class Names:
    def __getattr__(self, name: str) -> str:
        return name.removeprefix("CU_DEVICE_ATTRIBUTE_")


def false_driver(*, init=Result.CUDA_SUCCESS, version=99000, devices=1, capability=(9, 0)):
    def attribute(name: str, _: int):
        named = {
            "COMPUTE_CAPABILITY_MAJOR": capability[0],
            "COMPUTE_CAPABILITY_MINOR": capability[1],
        }
        return Result.CUDA_SUCCESS, named.get(name, 1024)

    return SimpleNamespace(
        cuInit=lambda _: (init,),
        cuDriverGetVersion=lambda: (Result.CUDA_SUCCESS, version),
        cuDeviceGetCount=lambda: (Result.CUDA_SUCCESS, devices),
        cuDeviceGet=lambda n: (Result.CUDA_SUCCESS, n),
        cuDeviceGetAttribute=attribute,
        CUdevice_attribute=Names(),
    )
