"""Fixtures of the toolchain's tests; a plugin (`pytest_plugins`), never imported by a test."""

from __future__ import annotations

import pytest

from kernelmill.config import override
from kernelmill.toolchain import find_host_compiler
from toolchain_stand_ins import INSTALLED


@pytest.fixture
def own_settings(tmp_path):
    with override(cache_dir=tmp_path / "cache", cxx=None, cxx_timeout=120.0, march="native"):
        yield


@pytest.fixture(params=["g++", "clang++", "zig"])
def host_compiler(request):
    if not INSTALLED[request.param]:
        pytest.skip(f"{request.param} is not installed")
    with override(cxx=request.param):
        return find_host_compiler()


@pytest.fixture
def gcc():
    if not INSTALLED["g++"]:
        pytest.skip("g++ is not installed")
    with override(cxx="g++"):
        return find_host_compiler()
