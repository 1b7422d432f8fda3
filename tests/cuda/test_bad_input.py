"""Faults on a GPU through the primitives: kernels that fail, forks, several processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import kernelmill as km
from kernelmill.errors import DeviceError
from kernelmill.runtime import cuda

pytestmark = pytest.mark.cuda


def run(body: str, **environment: str) -> list[str]:
    """Run Python in a process of its own, since the device may be lost to it."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


FAILING = """
import numpy as np, kernelmill as km
from kernelmill.errors import DeviceError
text = "__device__ float peek(float x) {{ return *(const float*)(long)(x * 4); }}"
peek = km.RawOp(cpp=text, arguments=(km.float32,), result=km.float32)
x = km.to_device(np.full(1000, 123, np.float32))
fine = km.transform(x, lambda v: v + 1)
for use in (lambda: km.transform(x, peek).numpy(), lambda: fine.numpy(),
            lambda: km.transform(x, lambda v: v + 1).numpy(), km.Device("cuda:0").sync):
    try:
        use()
    except DeviceError as error:
        print(error.message, "|", error.hint.partition(";")[0])
"""


def test_an_operator_that_reads_memory_of_nobody_is_named():
    lines = run(FAILING.format())
    assert len(lines) == 4
    for line in lines:
        assert "a kernel read or wrote memory that is not its own" in line
        assert "newest first: " in line
        assert "transform peek (float32 contiguous" in line
        assert "start the process again" in line


def test_a_forked_process_that_computes_is_told():
    lines = run("""
    import os, sys
    import numpy as np, kernelmill as km
    from kernelmill.errors import DeviceError
    x = km.to_device(np.arange(4, dtype=np.float32))
    y = km.transform(x, lambda v: v + 1)
    print(y.numpy().tolist(), flush=True)
    child = os.fork()
    if child == 0:
        try:
            km.transform(x, lambda v: v + 1).numpy()
        except DeviceError as error:
            os.write(1, f"{error.message} | {error.hint}\\n".encode())
        os._exit(0)
    os.waitpid(child, 0)
    print(km.transform(x, lambda v: v + 1).numpy().tolist())
    """)
    assert lines[0] == lines[2] == "[1.0, 2.0, 3.0, 4.0]"
    assert "forked from one that" in lines[1]
    assert lines[1].endswith(
        "start processes with multiprocessing's method 'spawn' or 'forkserver'"
    )


def test_no_visible_gpu():
    lines = run(
        """
        import kernelmill as km
        try:
            km.Device("cuda:0")
        except km.DeviceError as error:
            print(error.message, "|", error.hint)
        """,
        CUDA_VISIBLE_DEVICES="",
    )
    assert lines == [
        (
            "device 'cuda:0' cannot be used: the driver sees no GPU | check nvidia-smi and "
            "CUDA_VISIBLE_DEVICES"
        )
    ]


def test_arrays_on_two_devices():
    if len(cuda.cuda_device().core.get_all_devices()) < 2:
        pytest.skip("there is one device: arrays on two were not tried")
    x, y = (cuda.to_device(np.zeros(4, np.float32), device=n) for n in (0, 1))
    with pytest.raises(DeviceError, match="is on cuda:1, .* on cuda:0; a call runs on one device"):
        km.transform((x, y), lambda a, b: a + b)
