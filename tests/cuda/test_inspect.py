"""`km.inspect` on a GPU: plans and kernels as they run there, for the chip that is there."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill.runtime import cuda

pytestmark = pytest.mark.cuda


@km.kernel
def scale(x, by):
    for i in km.grid_range(len(x)):
        x[i] = by * x[i]


def test_plans_are_shown_for_the_chip():
    x = km.to_device(np.arange(1000, dtype=np.float32))
    k = 3
    for plan in (km.transform.plan(x, lambda v: v * k), km.reduce.plan(x, km.add)):
        found = km.inspect(plan)
        assert found.name == plan.describe(plan.built)
        assert found.arch == cuda.cuda_device().arch
        assert found.cpp == plan.source
        assert found.kernels[0].registers > 0
        assert f".target {found.arch}" in found.ptx
        assert found.regions
    assert "captured.k" in km.inspect(km.transform.plan(x, lambda v: v * k)).ir


def test_what_is_shown_is_what_runs():
    x = km.to_device(np.arange(1000, dtype=np.float32))
    scale.launch(1000, x, 2.0)
    variant = scale.specialize(x, 2.0)
    loaded = variant.on_cuda(0)
    (needs,) = km.inspect(scale, x, 2.0).kernels
    assert needs.registers == loaded.attributes().registers
    assert km.inspect(loaded).kernels[0].occupancy(256).blocks == loaded.occupancy(256)
