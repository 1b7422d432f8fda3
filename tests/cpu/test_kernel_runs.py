"""What happens around a kernel on the emulator: printing, faults, launches, events, exactness."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import kernelmill as km
from kernelmill import events


@pytest.fixture(autouse=True)
def emulator():
    with km.Device("emulator"):
        yield


@km.kernel
def add_one(x, step=1):
    for i in km.grid_range(len(x)):
        x[i] += step


# ----------------------------------------------------------------------------- launches


def test_every_way_to_launch():
    x = np.zeros(40, np.int32)
    config = km.LaunchConfig(grid=2, block=16)
    add_one.launch(40, x)
    add_one.launch((40,), x, step=2)
    add_one.launch(np.int64(40), x, 3, block=64)
    add_one[2, 32](x)
    add_one[(2, 1), (8, 4)](x, step=1)
    add_one[config](x, 1)
    km.launch(None, config, add_one, x, 1)
    again = km.prepare(config, add_one, x, 10)
    again()
    again(0)
    np.testing.assert_array_equal(x, 1 + 2 + 3 + 1 + 1 + 1 + 1 + 20)


def test_nothing_is_launched_for_no_elements():
    with events.listen() as seen:
        add_one.launch(0, np.zeros(3))
        add_one.launch((0, 4), np.zeros(3))
    assert [e.kind for e in seen if e.kind == "launch"] == []


def test_a_launch_and_a_compilation_are_events():
    def k(x):
        for i in km.grid_range(len(x)):
            x[i] = 12345.5

    kernel = km.kernel(k)
    with events.listen() as seen:
        kernel.launch(3, np.zeros(3))
    kinds = [(e.kind, e.device) for e in seen]
    assert kinds.count(("launch", "emulator")) == 1
    with events.listen() as seen:
        kernel.launch(3, np.zeros(3))
    assert [e.kind for e in seen] == ["launch"]


def test_a_large_grid_is_covered_by_few_threads():
    x = np.zeros(10_000, np.uint8)
    add_one[3, 7](x)
    assert (x == 1).all()


def test_threads_may_launch_at_once():
    arrays = [np.zeros(500, np.int64) for _ in range(4)]
    kernel = km.kernel(add_one.function)

    def run(x):
        with km.Device("emulator"):
            for _ in range(5):
                kernel.launch(500, x)

    workers = [threading.Thread(target=run, args=(x,)) for x in arrays]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all((x == 5).all() for x in arrays)


def test_tensors_of_torch_on_the_host():
    torch = pytest.importorskip("torch")
    x = torch.zeros(20, dtype=torch.int16)
    add_one.launch(20, x)
    assert bool((x == 1).all())


def test_tensors_of_bfloat16():
    torch = pytest.importorskip("torch")

    @km.kernel
    def k(x, y, bias):
        for i in km.block_range(32):
            y[i] = km.block.reduce(x[i] * 2) + bias
            km.atomic.add(x, 0, 1)

    x = torch.arange(32, dtype=torch.bfloat16)
    y = torch.zeros(32, dtype=torch.bfloat16)
    k[1, 32](x, y, 0.5)
    assert bool((y == 992.0).all())  # 992.5 is rounded to even
    assert float(x[0]) == 32


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize(
    "by",
    [1.1, np.float64(1.1), np.float32(1.1), 2.1 - 1j, np.complex128(2.1 - 1j), np.complex64(1j)],
)
def test_scalars_of_numpy_are_strong_and_those_of_python_are_not(dtype, by):
    """float64 and complex128 of NumPy are subclasses of Python's own."""

    @km.kernel(contract=False)
    def k(x, y, by):
        for i in km.grid_range(len(x)):
            y[i] = x[i] * by

    x = (np.linspace(0, 3, 40) * 1.3).astype(dtype)
    y = np.zeros(40, np.complex128)
    with km.Device("emulator"):
        k.launch(40, x, y, by)
        k.launch(40, x, y, by)  # the short way
    wanted = x * by
    single = wanted.dtype in (np.float32, np.complex64)
    assert np.allclose(y, wanted, rtol=1e-6 if single else 1e-14, atol=0)
    assert np.array_equal(y, y.astype(np.complex64)) == single


# ----------------------------------------------------------------------------- printing, faults


PROGRAM = """
import numpy as np, kernelmill as km
km.set_default_device("emulator")

@km.kernel(debug=True)
def k(x, n):
    for i in km.grid_range(2):
        if i == 1:
            print("x", x[i], f"i={i} 100% {x[i] > 0}", np.uint8(i), n)
        assert n < 5, "n is small"
        x[i + n] = 1

try:
    k[1, 2](np.ones(3, np.float32), ARGUMENT)
except km.KernelmillError as error:
    print(type(error).__name__, error.message)
"""


def run(argument, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM).replace("ARGUMENT", str(argument)))
    made = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=600, check=False
    )
    assert made.stderr == ""
    return made.stdout.splitlines()


def test_a_kernel_prints(tmp_path):
    assert run(0, tmp_path) == ["x 1 i=1 100% True 1 0"]


def test_what_stands_between_printed_values(capfd):
    @km.kernel
    def k(x):
        if km.threadIdx.x == 0:
            print("x", x[0], 3, sep=" 100% ", end=";")
            print(x[1], "|", sep="")
            print()

    with km.Device("emulator"):
        k[1, 32](np.float32([1.5, 2]))
    assert capfd.readouterr().out == "x 100% 1.5 100% 3;2|\n\n"

    @km.kernel
    def other(x, s: km.static):
        print(x[0], 1, sep=s)

    with km.Device("emulator"), pytest.raises(km.OperatorError) as caught:
        other[1, 32](np.ones(3), 4)
    assert caught.value.message == "`print` takes `sep=` and `end=` in a kernel, each a text"


def test_literal_indices_are_checked_in_debug_kernels():
    @km.kernel(debug=True)
    def k(x, y):
        y[0] = x[0, 5]

    with km.Device("emulator"):
        y = np.zeros(1)
        k[1, 1](np.arange(12.0).reshape(2, 6), y)
        assert y[0] == 5
        with pytest.raises(km.DeviceError, match="kernel 'km_k'"):
            k[1, 1](np.arange(10.0).reshape(2, 5), y)


def test_debug_kernels_name_array_index_and_line(tmp_path):
    lines = run(2, tmp_path)
    place = f"kernel k, {tmp_path}/program.py line 11"
    assert (
        f"{place}: index 3 is out of range for dimension 0 of x, which has 3 elements "
        "(block 0 0 0, thread 1 0 0)"
    ) in lines
    assert any(line.startswith("DeviceError kernel 'km_k'") for line in lines)


def test_an_assertion_ends_the_kernel(tmp_path):
    lines = run(7, tmp_path)
    place = f"kernel k, {tmp_path}/program.py line 10"
    assert f"{place}: assertion failed: n is small (block 0 0 0, thread 0 0 0)" in lines
    assert any(line.startswith("DeviceError") for line in lines)


@pytest.mark.parametrize(
    ("body", "array", "dim"),
    [
        ("x[0, m] = 1", "x", 1),
        ("x[m - 20, 0] = 1", "x", 0),
        ("tile[m] = 1", "tile", 0),
        ("own[m] = 1", "own", 0),
        ("row = x[1, :]\n    row[m] = 1", "x", 1),
        ("km.atomic.add(x, (0, m), 1)", "x", 1),
        ("x[0, 0] = TABLE[m]", "TABLE", 0),
        ("x[0, 9] = 1", "x", 1),
        ("x[7, 0] = m", "x", 0),
        ("x[-9, m - m] = 1", "x", 0),
        ("row = x[1, 2:]\n    row[5] = 1", "x", 1),
        ("x.flat[m] = 1", "x.flat", 0),
    ],
)
def test_debug_kernels_check_every_kind_of_memory(body, array, dim):
    import linecache

    text = (
        "def k(x, m):\n    tile = km.shared(9, km.int32)\n    own = km.local(9, km.int32)\n"
        f"    own[0] = tile[0]\n    {body}\n"
    )
    linecache.cache["<d>"] = (len(text), None, text.splitlines(keepends=True), "<d>")
    space = {"km": km, "TABLE": np.arange(4)}
    exec(compile(text, "<d>", "exec"), space)
    checked = km.kernel(debug=True)(space["k"]).source("int32[:, :]", 9)
    assert f'"{array}", {dim}, "k", "<d>"' in checked
    assert "check_index" not in km.kernel(space["k"]).source("int32[:, :]", 9)


def test_the_sanitizer_names_the_users_arrays_and_lines():
    @km.kernel
    def race(x):
        tile = km.shared(32, x.dtype)
        tile[km.threadIdx.x] = x[km.threadIdx.x]
        x[km.threadIdx.x] = tile[31 - km.threadIdx.x]

    line = race.function.__code__.co_firstlineno + 3
    with km.Device("emulator", sanitize=True), pytest.raises(km.KernelmillError) as caught:
        race[1, 32](np.zeros(32, np.float32))
    assert "kernel 'km_race'" in caught.value.message
    assert f"{__file__}:{line}: race: write" in str(caught.value)
    assert "tile_[" in str(caught.value)


# ----------------------------------------------------------------------------- the same bits


def test_exact_kernels_have_the_bits_of_operators():
    def f(v):
        return np.exp(v) * np.sin(v) + v * np.float32(0.3) - np.tanh(v) ** 3

    @km.kernel(contract=False)
    def mapped(x, out):
        for i in km.grid_range(len(x)):
            out[i] = f(x[i])

    x = np.random.default_rng(2).uniform(-9, 9, 4000).astype(np.float32)
    out = np.zeros_like(x)
    mapped.launch(len(x), x, out)
    with km.Device("cpu"):
        expected = km.transform(x, f)
    np.testing.assert_array_equal(out.view(np.uint32), expected.view(np.uint32))


def test_reductions_of_blocks_keep_the_order_of_threads():
    @km.kernel
    def joined(x, out):
        v = x[km.block.rank()]
        out[0] = km.block.reduce(v, lambda a, b: a * 31 + b)

    x = np.arange(1, 65)
    out = np.zeros(1, np.int64)
    joined[1, 64](x, out)
    parts = list(map(int, x))
    while len(parts) > 1:
        parts = [a * 31 + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    wrapped = (parts[0] + (1 << 63)) % (1 << 64) - (1 << 63)
    assert out[0] == wrapped


@pytest.mark.parametrize("threads", [32, 64, 96, 256, 800])
def test_sums_of_blocks_follow_one_tree(threads):
    """An operator in either order, and the same one as any other, to the bit."""

    @km.kernel
    def sums(x, out):
        v = x[km.block.rank()]
        out[0] = km.block.reduce(v)
        out[1] = km.block.reduce(v, lambda a, b: a + b)
        out[2 + km.block.rank()] = km.warp.reduce(v) - km.warp.reduce(v, lambda a, b: a + b)

    x = np.random.default_rng(threads).uniform(-1, 1, threads).astype(np.float32)
    out = np.full(2 + threads, 9, np.float32)
    sums[1, threads](x, out)
    assert out[0] == out[1] == pytest.approx(x.sum(), abs=1e-4)
    assert not out[2:].any()


def test_functions_may_write_and_return():
    def put(array, i, v):
        array[i] = v
        if v > 3:
            return v - 3
        return v

    @km.kernel
    def k(x, out):
        for i in km.grid_range(len(x)):
            out[i] = put(x, i, i) + put(x, len(x) - 1 - i, 100 + i) * 1000

    x, out = np.zeros(8, np.int32), np.zeros(8, np.int64)
    k[1, 1](x, out)
    expected, results = np.zeros(8, np.int32), np.zeros(8, np.int64)
    for i in range(8):
        results[i] = put(expected, i, i) + put(expected, 7 - i, 100 + i) * 1000
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(out, results)


def test_raw_operators_are_called_in_kernels():
    table = np.array([10, 20, 30], np.float32)
    look_up = km.RawOp(
        cpp="__device__ float look_up(int i, const float* t, float s) { return t[i] * s; }",
        arguments=(km.int32,),
        result=km.float32,
        state=(table, 2.0),
    )
    larger = km.RawOp(
        cpp="__device__ float larger(float a, float b) { return a > b ? a : b; }",
        arguments=(km.float32, km.float32),
        result=km.float32,
    )

    @km.kernel
    def k(x, out):
        v = look_up(x[km.block.rank() % 3])
        out[0] = km.block.reduce(v, larger)

    out = np.zeros(1, np.float32)
    k[1, 32](np.array([1, 2, 0], np.int32), out)
    assert out[0] == 60


def test_an_early_return_ends_the_thread():
    @km.kernel
    def k(x, n):
        i = km.blockIdx.x * km.blockDim.x + km.threadIdx.x
        if i >= n:
            return
        x[i] = i + 1

    x = np.zeros(10, np.int32)
    k[2, 8](x, 5)
    assert x.tolist() == [1, 2, 3, 4, 5, 0, 0, 0, 0, 0]


def test_slices_of_shared_memory_are_passed_on():
    def total(row):
        t = row.dtype(0)
        for k in range(len(row)):
            t += row[k]
        return t

    @km.kernel
    def k(x, out):
        tile = km.shared((4, 6), x.dtype)
        for r, c in km.block_range(4, 6):
            tile[r, c] = x[r, c]
        km.barrier()
        for r in km.block_range(4):
            out[r] = total(tile[r, :]) + 100 * total(tile[r, 1:-1])

    x, out = np.arange(24.0).reshape(4, 6), np.zeros(4)
    k[1, 8](x, out)
    np.testing.assert_array_equal(out, x.sum(1) + 100 * x[:, 1:-1].sum(1))


def test_variables_keep_their_types_through_loops_over_threads():
    @km.kernel
    def k(x, out, count):
        total = 0
        largest = x[0]
        for i in km.grid_range(len(x)):
            total = total + x[i]
            if x[i] > largest:
                largest = x[i]
                where = i
            else:
                where = -1
            count[i] = where
        out[0], out[1] = total, largest

    x = np.array([1, 5, 2, 9], np.float32)
    out, count = np.zeros(2, np.float32), np.zeros(4, np.int32)
    k[1, 1](x, out, count)
    assert out.tolist() == [17, 9]
    assert count.tolist() == [-1, 1, -1, 3]
