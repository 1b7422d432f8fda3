"""What the tests on a device share: the compiled kernels, and libraries that may be absent."""

from __future__ import annotations

import pytest

from cuda_kernels import TEXT
from kernelmill.runtime import cuda


@pytest.fixture(scope="session")
def code():
    names = ("scale<float>", "scale<long>")
    return cuda.Program(TEXT, name="test.cu").compile("cubin", name_expressions=names)


@pytest.fixture(scope="session")
def torch():
    return pytest.importorskip("torch", reason="needs torch")


@pytest.fixture(scope="session")
def cupy():
    return pytest.importorskip("cupy", reason="needs CuPy")
