"""Runs a selection or a sort on the emulator under its sanitizer, with a wait taken out of a template.

A process of its own, since broken kernels would be kept for those that come later. Arguments: the
work, the template, the wait, what stands in its place. Prints what the sanitizer found.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

import kernelmill as km
from kernelmill.algorithms import policy
from kernelmill.runtime.emulator import SanitizerError, Schedule, backend, build

from kernelmill.runtime.emulator import sanitized, scheduled  # isort: skip
from kernelmill.runtime.emulator.templates import emulator_headers

Values = np.ndarray[Any, Any]


def aligned(values: Values) -> Values:
    """Return a copy at an address that the copy engine takes."""
    raw = np.empty(values.nbytes + 16, np.uint8)
    start = -raw.ctypes.data % 16
    made = raw[start : start + values.nbytes].view(values.dtype)
    made[:] = values
    return made


def select() -> None:
    """Select of a few tiles, by a ring."""
    x = aligned(np.random.default_rng(1).integers(0, 9, 8192 * 2 + 1).astype(np.float32))
    assert np.array_equal(km.select(x, lambda v: v > 4), x[x > 4])


def sort() -> None:
    """Sort so many tiles that a scanner hands on several batches of them."""
    x = np.random.default_rng(2).integers(-(1 << 30), 1 << 30, 130_001).astype(np.int32)
    assert np.array_equal(km.sort(x), np.sort(x))


def main() -> None:
    """Break the template, and do the work."""
    work, template, wait, instead = sys.argv[1:]
    texts = emulator_headers()
    assert texts[template].count(wait) == 1, "the wait is not there"
    broken: Any = {**texts, template: texts[template].replace(wait, instead)}
    backend.emulator_headers = lambda: broken
    build._KERNEL_FLAGS = tuple("-O0" if f == "-O2" else f for f in build._KERNEL_FLAGS)  # type: ignore[misc]
    policy._RINGS = tuple(replace(row, least=1) for row in policy._RINGS)  # type: ignore[misc]
    try:
        with km.Device("emulator"), sanitized(), scheduled(Schedule("random", seed=3, blocks=4)):
            {"select": select, "sort": sort}[work]()
    except SanitizerError as error:
        print(error)
    else:
        print("nothing")


if __name__ == "__main__":
    main()
