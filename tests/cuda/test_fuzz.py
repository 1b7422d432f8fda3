"""Random typed programs: the interpreter against a GPU, bit for bit; 1,000 by default."""

from __future__ import annotations

import numpy as np
import pytest

from device_fuzz import PROGRAMS, batches, compare, run, sources_of, together
from kernelmill.dtypes import dtype_of
from kernelmill.runtime import cuda
from kernelmill.runtime.cuda.arrays import DeviceView
from kernelmill.runtime.devices import backend_named
from kernelmill.toolchain.nvrtc import CudaOptions

pytestmark = pytest.mark.cuda


def views(arrays):
    """The arrays as memory of the device; what fetches the last one."""
    held = []
    for x in arrays:
        memory = cuda.to_device(x.view(np.uint8))
        view = DeviceView(
            int(memory.buffer.handle), x.shape, x.strides, dtype_of(x.dtype), readonly=False,
            owner=memory, library="dlpack", device=0, maker="cuda",
        )  # fmt: skip
        held.append(view)
    return held, lambda: held[-1].owner.numpy().view(arrays[-1].dtype)


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@batches(PROGRAMS)
def test_interpreter_and_gpu_agree_to_the_bit(cases):
    sources = sources_of(cases)
    program = cuda.Program(together(sources), options=CudaOptions(), headers=cuda.device_headers(),
                           name="fuzz.cu")  # fmt: skip
    code = program.compile("cubin")
    for i, (case, source) in enumerate(zip(cases, sources, strict=True)):
        kernel = code.get_kernel(f"kernel{i}")
        compare(case, run(backend_named("cuda:0"), kernel, source, case, views), source.text)
