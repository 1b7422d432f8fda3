"""One suite on every back end: `km` for a test file whose calls run where the test is parametrised.

NumPy arrays go in and come out, whatever the device: on "cuda" the memory behind them is copied
there, so that views of one array stay views of one array, and what was written is copied back. On
"emulator" the CUDA text runs on the processor; some of the texts, in `make full` all of them, are
also compiled for the chips of CI.
"""

from __future__ import annotations

import os
import types
import zlib
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest

import kernelmill
from kernelmill.runtime import devices as registry
from kernelmill.runtime.cuda.images import image_of
from kernelmill.runtime.emulator import build

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.runtime.backend import Backend, Kernel, KernelSource

# `make full` sets the variable: all texts are compiled for all chips, and as users have them. Else
# one text in so many is compiled for a chip; and what the emulator runs is not optimised, which
# halves the time of its compiler.
EVERY_CHIP = "KERNELMILL_EVERY_CHIP" in os.environ
CHIPS = {"sm_90": 3, "sm_80": 8, "sm_100": 8}
# Functions of arrays, with the family of algorithms that they are of.
FUNCTIONS = {
    "transform": "transform",
    "reduce": "reduce",
    "transform_reduce": "reduce",
    "inclusive_scan": "scan",
    "exclusive_scan": "scan",
    "inclusive_scan_by_key": "scan",
    "exclusive_scan_by_key": "scan",
    "reduce_by_key": "scan",
    "histogram": "histogram",
    "histogram_even": "histogram",
    "histogram_range": "histogram",
    "bincount": "histogram",
    "segmented_reduce": "segmented",
    "segmented_scan": "segmented",
    "lower_bound": "search",
    "upper_bound": "search",
    "select": "select",
    "partition": "select",
    "three_way_partition": "select",
    "unique": "select",
    "unique_by_key": "select",
    "unique_count": "select",
    "run_length_encode": "select",
    "sort": "sort",
    "argsort": "sort",
}
# What is asked of a device so that its bits are those of the processor.
SAME_BITS = {"transform": {}, "reduce": {"determinism": "device_to_device"}}


def on(name: str, patch: pytest.MonkeyPatch) -> OnDevice:
    """Return kernelmill with calls that run on "cuda" or "emulator"; `patch` is undone behind."""
    if name == "cuda":
        return OnDevice(name, on_cuda)
    backend = CompilingEmulator(registry.backend_named("emulator"))
    patch.setitem(registry._BACKENDS, "emulator", backend)
    unoptimised(patch)
    return OnDevice(name, on_emulator)


def unoptimised(patch: pytest.MonkeyPatch) -> None:
    """Let the emulator compile without optimising, outside of `make full`."""
    if not EVERY_CHIP:
        flags = tuple("-O0" if flag == "-O2" else flag for flag in build._KERNEL_FLAGS)
        patch.setattr(build, "_KERNEL_FLAGS", flags)


class OnDevice(types.ModuleType):
    """The public names of kernelmill; functions of arrays run on one device."""

    def __init__(self, name: str, run: Callable[..., Any]) -> None:
        super().__init__("kernelmill")
        self.device = name
        for function, family in FUNCTIONS.items():
            whole = getattr(kernelmill, function)
            setattr(self, function, _wrapped(whole, family, run))

    def __getattr__(self, name: str) -> Any:
        return getattr(kernelmill, name)


def _wrapped(whole: Any, family: str, run: Callable[..., Any]) -> Any:
    def call(inputs: Any, *rest: Any, **options: Any) -> Any:
        asked = {**SAME_BITS.get(family, {}), **options}
        return run(lambda *given, **o: whole(*given, *rest, **o), (inputs,), asked)

    def plan(inputs: Any, *rest: Any, **options: Any) -> Any:
        asked = {**SAME_BITS.get(family, {}), **options}
        made = run(lambda *given, **o: whole.plan(*given, *rest, **o), (inputs,), asked)
        return lambda *arrays, **o: run(made, arrays, o)

    call.plan = plan
    return call


# ----------------------------------------------------------------------------- CUDA


def on_cuda(function: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a function with the arrays copied to the device, and copy back what it wrote."""
    there = Memory()
    arrays = [there.put(x) for x in inputs]
    given = dict(options)
    out = options.get("out")
    if out is not None:
        given["out"] = there.put(out)
    try:
        found = function(*arrays, **given)
    except kernelmill.ArgumentError as error:
        if "would be copied: only C-contiguous arrays are" not in error.message:
            raise
        hypothesis.reject()
    if out is None or found is not given["out"]:  # a plan is none of the outputs it was made with
        return _fetched(found)
    there.fetch()
    return out


def _fetched(found: Any) -> Any:
    """Return device arrays as NumPy arrays, those of no dimensions as scalars, a plan as it is."""
    if type(found) is tuple:
        return tuple(map(_fetched, found))
    return found.numpy()[()] if hasattr(found, "numpy") else found


class Memory:
    """Arrays of the host with their memory copied to the device, whole and once."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[np.ndarray, Any]] = {}

    def put(self, x: Any) -> Any:
        """Return an array, or a tuple of them, on the device; scalars are handed over as such."""
        if type(x) is tuple:
            return tuple(map(self.put, x))
        if not isinstance(x, np.ndarray):
            return x
        if x.dtype.name == "bfloat16":
            pytest.skip("NumPy's bfloat16 has no place in __cuda_array_interface__")
        raw = _memory_of(x)
        at = raw.ctypes.data
        if at not in self._copies:
            copy = kernelmill.to_device(raw if raw.size else np.zeros(1, np.uint8))
            self._copies[at] = raw, copy
        offset = x.ctypes.data - at if x.size else 0
        return _View(x, self._copies[at][1], offset)

    def fetch(self) -> None:
        """Write what is on the device now to the host's memory."""
        for raw, copy in self._copies.values():
            if raw.flags.writeable:
                raw[...] = copy.numpy()[: raw.size]


def _memory_of(x: np.ndarray) -> np.ndarray:
    """Return the bytes between the first and the last element of what an array is a view of."""
    whole = x
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    low, high = np.lib.array_utils.byte_bounds(whole)
    first = np.lib.array_utils.byte_bounds(x)
    if x.size and not low <= first[0] <= first[1] <= high:  # as_strided beyond its base
        low, high = first
    return _bytes_at(whole, low, high - low if whole.size else 0)


def _bytes_at(owner: np.ndarray, address: int, size: int) -> np.ndarray:
    class Bytes:
        __array_interface__ = {  # noqa: RUF012 - the protocol wants a dict
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, not owner.flags.writeable),
            "version": 3,
        }
        kept = owner

    return np.asarray(Bytes())


class _View:
    """A NumPy array's shape, strides and type over a copy of its memory."""

    def __init__(self, x: np.ndarray, memory: Any, offset: int) -> None:
        self.memory = memory
        self.__cuda_array_interface__ = {
            "shape": x.shape,
            "strides": x.strides,
            "typestr": x.dtype.str,
            "descr": x.dtype.descr,
            "data": (int(memory.buffer.handle) + offset, not x.flags.writeable),
            "version": 3,
            "stream": 1,
        }


# ----------------------------------------------------------------------------- the emulator


class CompilingEmulator:
    """The emulator, with texts that it runs compiled by NVRTC too."""

    def __init__(self, emulator: Backend) -> None:
        self._emulator = emulator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._emulator, name)

    def build(self, source: KernelSource) -> Kernel:
        compiled(source)
        return self._emulator.build(source)


def compiled(source: KernelSource) -> None:
    """Compile a text for chips; the cache, which the workers share, saves doing it again."""
    for arch, one_in in CHIPS.items():
        if not EVERY_CHIP and zlib.crc32(f"{arch} {source.text}".encode()) % one_in:
            continue
        image = image_of(source, arch)
        assert image.log == "", f"{source.name} for {arch}: {image.log}"
        assert b"km_kernel\0" in image.data


def on_emulator(function: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a function with the emulator current: arrays of the host are its memory."""
    with kernelmill.Device("emulator"):
        return function(*inputs, **options)
