"""The texts of scans for every chip: they compile silently, keep values in registers, and fit."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

import kernelmill as km
from kernelmill.runtime.cuda.templates import device_headers
from kernelmill.toolchain.nvrtc import CudaOptions, compile_cuda

if TYPE_CHECKING:
    from kernelmill.algorithms.plan import Plan

# Plans are made on the emulator, and not called.
pytestmark = pytest.mark.usefixtures("unoptimised")

TOLD = CudaOptions(extra=("--ptxas-options=-v",))
# Shared memory of a block that kernels may have, less what the driver keeps.
MOST_SHARED = 227 << 10
SLOW = partial(pytest.param, marks=pytest.mark.slow)
# From where on each type is scanned by the ring, at the latest.
LARGE = 1 << 24


def plan_of(dtype: str, size: int) -> Plan:
    """Plan a scan on the emulator; its memory is not touched."""
    x = np.empty(size, dtype)
    with km.Device("emulator"):
        return km.inclusive_scan.plan(x, dtype=dtype, out=x)


def needs(plan: Plan, arch: str) -> tuple[int, int]:
    """Return bytes of the stack and of static shared memory that a chip takes."""
    made = compile_cuda(
        plan.source,
        arch=arch,
        output="cubin",
        options=TOLD,
        headers=device_headers(),
        name="scan.cu",
    )
    assert "warning" not in made.log
    stack = re.search(r"(\d+) bytes stack frame", made.log)
    shared = re.search(r"(\d+) bytes smem", made.log)
    return int(stack[1]) if stack else 0, int(shared[1]) if shared else 0


@pytest.mark.parametrize("dtype", [*map(SLOW, ["f2", "i8"]), "f4", "c16"])
def test_rings_stay_in_registers_and_fit(dtype: str) -> None:
    plan = plan_of(dtype, LARGE)
    assert "scan_ring" in plan.source
    stages = int(re.search(r"scan_ring<Scan, Feed, Sink, (\d+)", plan.source)[1])
    tile = plan.built.kernel.source.tile
    stack, shared = needs(plan, "sm_100")  # sm_90: test_policy.py, all rows
    assert stack == 0, "sm_100 keeps values in local memory"
    assert shared + stages * tile * np.dtype(dtype).itemsize <= MOST_SHARED
    needs(plan, "sm_80")  # compiles, and traps


@pytest.mark.parametrize("dtype", ["f2", SLOW("f4"), "i8"])
def test_tiles_stay_in_registers(dtype: str) -> None:
    plan = plan_of(dtype, 10_000)
    assert "scan_tiles" in plan.source
    for arch in ("sm_75", "sm_90", "sm_120"):
        assert needs(plan, arch)[0] == 0, f"{arch} keeps values in local memory"
