"""`km.inspect` with no driver: what kernels need, their machine code by line, what is refused."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

import kernelmill as km
from cuda_stand_ins import Result, false_driver
from kernelmill.compiler.ir_text import ir_text
from kernelmill.compiler.op import as_op, specialize
from kernelmill.compiler.subject import Subject
from kernelmill.errors import ArgumentError, CompileError, DeviceError, MissingExtraError
from kernelmill.inspection import KernelNeeds
from kernelmill.runtime.cuda.program import Kernel
from kernelmill.toolchain import disassembler
from kernelmill.toolchain.chips import CHIPS, chip_named, occupancy_of
from kernelmill.toolchain.cubin import architecture_of, resources_of
from kernelmill.toolchain.nvrtc import CudaOptions, compile_cuda, supported_architectures
from kernelmill.toolchain.regions import regions_of

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")

TEXT = """
__device__ float square(float x) {
  return x * x;
}
extern "C" __global__ void __launch_bounds__(128) busy(float* x, int n) {
  __shared__ float s[100];
  s[threadIdx.x % 100] = x[0];
  __syncthreads();
  float local[64];
  for (int i = 0; i < n; i++) local[(i * 7) % 64] = s[i];
  x[1] = local[n];
}
extern "C" __global__ void idle(float* x) {
  x[0] = square(x[1]);
}
"""
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* x) {
  float v[48];
#pragma unroll
  for (int i = 0; i < 48; ++i) v[i] = x[i * 1024 + threadIdx.x];
  for (int turn = 0; turn < 9; ++turn)
#pragma unroll
    for (int i = 0; i < 48; ++i) v[i] = v[i] * v[(i + 7) % 48] + v[(i + 20) % 48];
#pragma unroll
  for (int i = 0; i < 48; ++i) x[i * 1024 + threadIdx.x] = v[i];
}
"""
PROGRAM = km.Program(TEXT, name="two.cu")


@pytest.fixture
def no_device(install):
    install(false_driver(init=Result.CUDA_ERROR_NO_DEVICE))


@pytest.fixture
def no_disassembler(monkeypatch):
    monkeypatch.setattr(disassembler, "find_nvdisasm", lambda: None)


# ----------------------------------------------------------------------------- needs


@pytest.mark.parametrize("arch", supported_architectures())
def test_what_kernels_need_is_what_the_assembler_says(arch):
    options = CudaOptions(contract=True, extra=("--ptxas-options=-v",))
    image = compile_cuda(TEXT, arch=arch, options=options, cache=False)
    assert architecture_of(image.data) == arch
    busy, idle = resources_of(image.data)
    assert (busy.name, busy.stack, busy.shared, busy.most_threads) == ("busy", 256, 400, 128)
    assert (idle.name, idle.stack, idle.shared, idle.most_threads) == ("idle", 0, 0, 0)
    said = re.findall(r"entry function '(\w+)'.*?Used (\d+) registers", image.log, re.DOTALL)
    assert {name: int(count) for name, count in said} == {
        "busy": busy.registers,
        "idle": idle.registers,
    }


def test_spills_are_counted():
    (found,) = km.inspect(km.Program(SPILLING), arch="sm_90").kernels
    assert found.registers == 32
    assert found.spill_stores > 0
    assert found.spill_loads > 0
    assert found.most_threads == 1024
    (plain,) = km.inspect(km.Program(TEXT).compile("cubin", arch="sm_90")).kernels[1:]
    assert plain.spill_stores is None


# Threads of a block, registers, shared bytes: blocks of a multiprocessor, as NVIDIA's calculator.
@pytest.mark.parametrize(
    ("arch", "asked", "blocks", "limit"),
    [
        ("sm_90", (256, 32, 0), 8, "threads"),
        ("sm_90", (256, 33, 0), 6, "registers"),
        ("sm_90", (1024, 64, 0), 1, "registers"),
        ("sm_90a", (32, 16, 0), 32, "blocks"),
        ("sm_90", (128, 32, 49152), 4, "shared memory"),
        ("sm_90", (128, 32, 232448), 1, "shared memory"),
        ("sm_80", (256, 32, 0), 8, "threads"),
        ("sm_80", (192, 40, 0), 8, "registers"),
        ("sm_75", (256, 32, 0), 4, "threads"),
        ("sm_75", (64, 32, 32768), 2, "shared memory"),
        ("sm_86", (1024, 16, 0), 1, "threads"),
        ("sm_89", (32, 255, 0), 8, "registers"),
    ],
)
def test_occupancy(arch, asked, blocks, limit):
    found = occupancy_of(chip_named(arch), *asked)
    assert (found.blocks, found.limit) == (blocks, limit)
    chip = chip_named(arch)
    assert found.share == blocks * -(-asked[0] // 32) * 32 / chip.threads <= 1


def test_figures_of_the_chips_of_ci_are_known():
    assert {75, 80, 86, 89, 90, 100, 120} <= set(CHIPS)
    assert chip_named("sm_52") is chip_named("x") is None
    needs = KernelNeeds("k", "sm_52", 8, 0, 0, None)
    with pytest.raises(ArgumentError, match="the figures of sm_52 are not known"):
        needs.occupancy()
    with pytest.raises(
        ArgumentError, match="a block of 2048 threads cannot be launched: 1 to 1024"
    ):
        KernelNeeds("k", "sm_90", 8, 0, 0, None).occupancy(2048)


# ----------------------------------------------------------------------------- programs


def test_a_program():
    found = km.inspect(PROGRAM, arch="sm_90")
    assert (found.name, found.arch, found.cpp, found.ir) == ("two.cu", "sm_90", TEXT, "")
    assert ".visible .entry busy" in found.ptx
    assert "EXIT" in found.sass
    assert found.note == ""
    assert [k.name for k in found.kernels] == ["busy", "idle"]
    busy, idle = found.kernels
    assert busy.occupancy().block == 128
    assert idle.occupancy(64, shmem_size=100 << 10).limit == "shared memory"
    lines = TEXT.splitlines()
    assert all(r.source == lines[r.line - 1].strip() for r in found.regions)
    assert {r.file for r in found.regions} == {"two.cu"}
    (squared,) = (r for r in found.regions if r.source == "return x * x;")
    assert squared.kernel == "idle"
    assert any("FMUL" in i for i in squared.instructions)


def test_the_table():
    head, needs, regions = str(km.inspect(PROGRAM, arch="sm_80")).split("\n\n")
    assert head == "two.cu, sm_80"
    first, busy, idle = needs.splitlines()
    assert first.split() == ["kernel", "registers", "spilled", "stack", "shared", "occupancy"]
    assert re.fullmatch(r"busy +\d+ +0 +256 +400  100%: 16 blocks of 128, by threads", busy)
    assert re.fullmatch(r"idle +\d+ +0 +0 +0  100%: 8 blocks of 256, by threads", idle)
    first, *rows = regions.splitlines()
    assert first.split() == ["line", "SASS", "share", "source"]
    assert any(re.fullmatch(r"two\.cu:3 +\d+ +\d+%  return x \* x;", row) for row in rows)


def test_without_a_disassembler_regions_are_of_ptx(no_disassembler):
    found = km.inspect(PROGRAM, arch="sm_90")
    assert found.sass == ""
    assert found.note == (
        "machine code is shown by nvdisasm, which was not found: pip install nvidia-cuda-nvdisasm, "
        "or put the one of a CUDA toolkit on the PATH"
    )
    (squared,) = (r for r in found.regions if r.source == "return x * x;")
    assert any("mul.f32" in i for i in squared.instructions)
    assert "PTX" in str(found)
    assert str(found).endswith(found.note)


def test_nvdisasm_that_is_missing_or_refuses(monkeypatch):
    with pytest.raises(CompileError, match="nvdisasm refuses this cubin"):
        disassembler.disassemble(b"no cubin")
    monkeypatch.setattr(disassembler, "find_nvdisasm", lambda: None)
    with pytest.raises(MissingExtraError) as caught:
        disassembler.disassemble(b"")
    assert caught.value.hint.startswith("pip install nvidia-cuda-nvdisasm")


def test_images():
    for kind, arch in (("ptx", "sm_80"), ("ltoir", "sm_80"), ("cubin", "sm_80")):
        code = PROGRAM.compile(kind, arch=arch)
        found = km.inspect(code)
        assert (found.name, found.arch) == ("two.cu", "sm_80")
        assert [k.name for k in found.kernels] == ["busy", "idle"]
        assert bool(found.ptx) == (kind == "ptx")
        assert "EXIT" in found.sass
    from cuda.core import ObjectCode

    cubin = PROGRAM.compile("cubin", arch="sm_90").code
    assert km.inspect(ObjectCode.from_cubin(cubin, name="theirs")).name == "theirs"
    with pytest.raises(ArgumentError, match="this is no cubin"):
        resources_of(b"\x7fELF" + bytes(100))


def test_a_loaded_kernel():
    code = PROGRAM.compile("cubin", arch="sm_90")
    kernel = Kernel(SimpleNamespace(handle=1), "shown as", None, code)
    kernel.symbol = "idle"
    found = km.inspect(kernel)
    assert (found.name, [k.name for k in found.kernels]) == ("shown as", ["idle"])
    assert {r.kernel for r in found.regions} <= {"idle"}
    assert found.kernels[0].loaded is kernel
    with pytest.raises(ArgumentError) as caught:
        km.inspect(Kernel(SimpleNamespace(handle=1), "theirs"))
    assert caught.value.message == (
        "kernel 'theirs' was loaded by cuda.core, which does not keep its image"
    )
    assert caught.value.hint == "inspect the object code that it is from"


# ----------------------------------------------------------------------------- operators, plans


def test_an_operator():
    k = 3
    found = km.inspect(lambda a, b: a * b + k, km.float32, km.float32, arch="sm_90")
    assert found.name == "lambda(float32, float32)"
    assert found.ir == (
        "# captured: k: weak float\n"
        "def op(a: float32, b: float32) -> float32:\n"
        "    return add(mul(a, b), float32(captured.k))"
    )
    assert "km::transform<km::Op" in found.cpp
    assert "fma.rn.f32" not in found.ptx
    (needs,) = found.kernels
    assert (needs.name, needs.spill_stores, needs.most_threads) == ("km_kernel", 0, 128)
    assert any("a_ * b_" in r.source for r in found.regions)


def test_raw_operators_bring_their_types():
    text = "__device__ float twice(float x) { return 2 * x; }"
    twice = km.RawOp(cpp=text, arguments=(km.float32,), result=km.float32)
    found = km.inspect(twice, arch="sm_90")
    assert "...  # C++ of twice" in found.ir
    assert any("return 2 * x" in r.source or r.file.endswith("twice.cpp") for r in found.regions)
    code = km.Program(f'extern "C" {text}').compile("ltoir", arch="sm_90")
    linked = km.RawOp(ltoir=code, name="twice", arguments=(km.float32,), result=km.float32)
    found = km.inspect(linked, arch="sm_90")
    assert "...  # LTO-IR of twice" in found.ir
    assert "CALL" not in found.sass
    assert found.kernels[0].spill_stores is None


def test_an_operator_without_a_device_is_text_of_the_host(no_device):
    found = km.inspect(km.add, km.float32, km.float32)
    assert (found.arch, found.ptx, found.kernels) == ("host", "", ())
    assert "KM_EXPORT void km_kernel(const km::Call* call)" in found.cpp
    assert found.note.startswith("for PTX and machine code, pass arch='sm_90'")


def test_a_plan_of_the_host():
    plan = km.transform.plan(np.zeros(3), lambda v: v + 1)
    found = km.inspect(plan)
    assert (found.name, found.arch, found.cpp) == (plan.describe(plan.built), "cpu", plan.source)
    assert found.ir.startswith("def op(v: float64)")
    assert str(plan.built.kernel.path) in found.note


def test_lines_of_python_stand_for_what_is_inlined_into_them(tmp_path):
    """A kernel in Python prints `#line` with its own file, and calls templates."""
    source = tmp_path / "mine.py"
    source.write_text("first = 1\nx[0] = square(x[1])\n")
    text = (
        f'#include "square.cuh"\n#line 1 "{source}"\n'
        'extern "C" __global__ void k(float* x) {\nx[0] = square(x[1]);\n}\n'
    )
    headers = {"square.cuh": "__device__ float square(float x) { return x * x; }\n"}

    class Kernel:
        def __kernelmill_inspect__(self, *types, arch=None):
            assert types == (km.float32,)
            return Subject("mine", "mine.cu", text, CudaOptions(), "the IR", headers)

    found = km.inspect(Kernel(), km.float32, arch="sm_90")
    assert (found.name, found.ir, found.cpp) == ("mine", "the IR", text)
    (region,) = (r for r in found.regions if r.line == 2 and r.file == str(source))
    assert region.source == "x[0] = square(x[1])"
    assert any("FMUL" in i for i in region.instructions)
    assert not any(r.file == "square.cuh" for r in found.regions)


@km.kernel
def scale(x, by):
    for i in km.grid_range(len(x)):
        value = by * x[i]
        x[i] = value + 1


def test_a_kernel_in_python():
    found = km.inspect(scale, "float32[:]", 2.5, arch="sm_90")
    assert (found.name, found.arch) == ("scale", "sm_90")
    assert found.ir.startswith("def scale(by: ")
    assert "#line" not in found.cpp
    (needs,) = found.kernels
    assert (needs.spill_stores, needs.most_threads) == (0, 256)
    by_source = {r.source: r for r in found.regions if r.file == __file__}
    (line,) = (r for r in by_source.values() if r.source == "x[i] = value + 1")
    assert any("STG" in i for i in line.instructions)
    variant = scale.specialize("float32[:]", 2.5)
    assert km.inspect(variant, arch="sm_90").ptx == found.ptx


def doubled(row, by):
    total = row.dtype(0)
    for v in km.static_range(4):
        total += by * row[v]
    return total


@km.kernel
def over_lines(x, out):
    tile = km.shared((32, 4), x.dtype)
    for i in km.tile_range(
        x.shape[0],
    ):
        tile[km.threadIdx.x, i % 4] = (
            x[i, 0]
            if x[i, 0] > 0
            else -x[i, 1]
        )  # fmt: skip
        km.barrier()
        out[i] = doubled(tile[km.threadIdx.x, :], 2)


@pytest.mark.parametrize("kind", ["sass", "ptx"])
def test_every_instruction_is_counted_for_a_line_of_the_functions(kind):
    """What a statement becomes is more than a line of text; the lines behind it are not its own."""
    found = km.inspect(over_lines, "float32[:, :]", "float32[:]", arch="sm_90")
    text = {kind: getattr(found, kind)}
    regions = regions_of(text.get("sass", ""), text.get("ptx", ""), {})
    assert regions
    first = over_lines.function.__code__.co_firstlineno
    last = max(line for *_, line in over_lines.function.__code__.co_lines() if line is not None)
    helper = doubled.__code__
    own = {*range(first + 1, last + 1), *range(helper.co_firstlineno, first - 2)}
    inlined = {r.file for r in regions if not r.file.endswith(".py")}
    assert all(name.endswith((".cuh", ".hpp")) for name in inlined)
    assert {r.line for r in regions if r.file == __file__} <= own
    assert sum(len(r.instructions) for r in regions if r.file == __file__) > 0.95 * sum(
        len(r.instructions) for r in regions
    )


def test_ir_as_text():
    def steps(a, n):
        total = a
        for i in range(n):
            while total > 10:
                total = total / 2
                if i == 3:
                    break
            total = total + i
        return (total, -total) if n > 2 else (a, a)

    shown = ir_text(specialize(as_op(steps), (km.float64, km.int32)).translation.program)
    assert shown.startswith("def steps(a: float64, n: int32) -> ")
    for part in ("    total", "    for i", " in range(0, ", "while ", "break", "return "):
        assert part in shown, shown
    pair = km.struct({"x": km.float32, "y": km.float32}, name="Pair")
    swap = lambda p: pair(p.y, p.x)
    program = specialize(as_op(swap), (km.dtype_of(pair),)).translation.program
    assert ir_text(program).endswith("return Struct(p.y, p.x)") or "Pair(p.y, p.x)" in ir_text(
        program
    )


# ----------------------------------------------------------------------------- bad input


def test_what_cannot_be_inspected(no_device):
    with pytest.raises(ArgumentError) as caught:
        km.inspect(3)
    assert caught.value.message == "a int cannot be inspected"
    with pytest.raises(ArgumentError) as caught:
        km.inspect(lambda a: a)
    assert caught.value.message == (
        "the operator lambda is inspected for types, and none were given"
    )
    with pytest.raises(DeviceError) as caught:
        km.inspect(PROGRAM)
    assert caught.value.message == (
        "two.cu cannot be inspected: no architecture was given, and there is no device to ask"
    )
    assert caught.value.hint == "pass arch='sm_90', or another one; no GPU is needed"
    with pytest.raises(CompileError, match=r"wrong\.cu line 1"):
        km.inspect(km.Program("nonsense", name="wrong.cu"), arch="sm_90")


@km.kernel
def summed(x, out):
    total = x.dtype(0)
    for i in km.grid_range(len(x)):
        total += x[i]
    whole = km.block.reduce(total, km.add)
    km.atomic.add(out, 0, whole)


@pytest.mark.parametrize("kind", ["sass", "ptx"])
def test_what_templates_inline_into_each_other_is_counted_for_the_line_that_called(kind):
    found = km.inspect(summed, "float32[:]", "float32[:]", arch="sm_90")
    text = {kind: getattr(found, kind)}
    regions = regions_of(text.get("sass", ""), text.get("ptx", ""), {})
    assert {r.file for r in regions} == {__file__}
    by_source = {r.source.split()[0]: " ".join(r.instructions).lower() for r in regions}
    assert "shfl" in by_source["whole"]
    assert "bar.sync" in by_source["whole"]
    assert re.search(r"\b(atom|red|redg)\.", by_source["km.atomic.add(out,"])
