"""The fixture that installs a false driver."""

from __future__ import annotations

import sys

import pytest

from kernelmill.runtime.cuda import device as device_module
from kernelmill.runtime.cuda import driver as driver_module


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
