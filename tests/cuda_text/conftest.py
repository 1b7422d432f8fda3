"""A false driver to install, and an emulator that keeps the texts of plans and builds none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import kernelmill as km
from kernelmill.algorithms import plan as plans
from kernelmill.runtime import devices as registry
from kernelmill.runtime.backend import Kernel, KernelSource
from kernelmill.runtime.cuda import device as device_module
from kernelmill.runtime.cuda import driver as driver_module

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def install(monkeypatch):
    """Put a false driver in the place of the bindings, and forget what was found before."""
    monkeypatch.setattr(driver_module._State, "driver", None)
    monkeypatch.setattr(driver_module._State, "forked", False)
    monkeypatch.setattr(device_module, "_DEVICES", {})
    monkeypatch.setattr(driver_module.os, "register_at_fork", lambda **_: None)

    def put(module: object) -> None:
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", module)

    return put


class Looking:
    """The emulator, with texts that are kept and never built, and the grids of launches."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.texts, self.grids = inner, [], []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def build(self, source: KernelSource) -> Kernel:
        self.texts.append(source)
        return Kernel(source, 1)

    def launcher(self, kernel: Kernel, direct: Any) -> None:
        self.grids.append(direct.grid)


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Looking]:
    """The emulator as one that looks on; it is the current device."""
    made = Looking(registry.backend_named("emulator"))
    monkeypatch.setattr(plans, "_BUILT", {})  # rows may share a kernel
    monkeypatch.setitem(registry._BACKENDS, "emulator", made)
    with km.Device("emulator"):
        yield made
