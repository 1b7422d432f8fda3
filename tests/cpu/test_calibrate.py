"""The measured rooflines: the kernel moves what it says it moves, and figures are plausible."""

import time

import numpy as np
import pytest

from kernelmill.errors import ArgumentError
from kernelmill.runtime import calibrate
from kernelmill.runtime.calibrate import HostCache, Roofline
from kernelmill.runtime.native import native
from kernelmill.runtime.program import build_host_kernel

BLOCK = calibrate._BLOCK
WRITE, READ, COPY, COPY_AHEAD = calibrate.WAYS


@pytest.fixture(scope="module")
def kernel():
    return build_host_kernel(calibrate._SOURCE)


def arrays(blocks):
    first, second = calibrate._aligned(blocks * BLOCK), calibrate._aligned(blocks * BLOCK)
    random = np.random.default_rng(1)
    first[:] = random.integers(0, 256, first.size, np.uint8)
    second[:] = 99
    return first, second


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("way", [COPY, COPY_AHEAD])
def test_a_copy_copies(kernel, way, threads):
    first, second = arrays(5)
    calibrate.run_way(kernel, way, first, second, threads)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("threads", [1, 2])
def test_write_fills_every_block_with_lines_that_differ(kernel, threads):
    first, second = arrays(5)
    calibrate.run_way(kernel, WRITE, first, second, threads)
    period = np.arange(1024) * 7
    expected = np.concatenate([np.tile(period + b, BLOCK // 1024) for b in range(5)])
    assert np.array_equal(second, expected.astype(np.uint8))
    lines = second.reshape(5, -1, 64)
    assert not np.array_equal(lines[:, 0], lines[:, 1])


def test_read_adds_up_every_byte(kernel):
    first, second = arrays(3)
    calibrate.run_way(kernel, READ, first, second, 1)
    sums = first.view(np.uint64).reshape(-1, 8).sum(axis=0, dtype=np.uint64)
    assert np.array_equal(second[:64].view(np.uint64), sums)
    assert (second[64:] == 99).all()


def test_arrays_begin_with_a_line():
    for size in (BLOCK, 3 * BLOCK):
        made = calibrate._aligned(size)
        assert (made.ctypes.data % 64, made.nbytes) == (0, size)


def test_the_roofline_is_above_what_numpy_gets_on_one_thread():
    source, to = np.ones(1 << 26, np.uint8), np.ones(1 << 26, np.uint8)

    def numpy_rate():
        start = time.perf_counter()
        np.copyto(to, source)
        return 2 * source.nbytes / (time.perf_counter() - start)

    # Other processes may take processor and memory away from one of them: both again then.
    for _ in range(10):
        numpys = max(numpy_rate() for _ in range(5))
        found = calibrate.measure_roofline()
        copy = found.copy_bytes_per_second
        shares = found.read_bytes_per_second / copy, found.write_bytes_per_second / copy
        if copy > 0.5 * numpys and all(0.1 < share < 10 for share in shares):
            break
    assert 0.5 * numpys < copy < 4e12
    assert all(0.1 < share < 10 for share in shares)
    assert found.threads == native().thread_count()
    assert found.array_bytes % BLOCK == 0
    low, high = calibrate._ARRAY_RANGE
    assert low <= found.array_bytes <= high


def test_threads_outside_the_pool_are_refused():
    limit = native().thread_count()
    for threads in (0, -1, limit + 1):
        with pytest.raises(ArgumentError) as caught:
            calibrate.measure_roofline(threads)
        assert str(caught.value) == (
            f"threads={threads}; the pool has {limit}\n\n"
            "hint: pass 1 to that many, or set KERNELMILL_NUM_THREADS"
        )


def test_the_limit_depends_on_what_a_kernel_moves():
    roofline = Roofline(3.0, 2.0, 1.0, 1 << 26, 2)
    assert roofline.bytes_per_second(4, 0) == 2.0
    assert roofline.bytes_per_second(0, 4) == 1.0
    assert roofline.bytes_per_second(3, 1) == 3.0


def test_the_best_of_two_measurements():
    first, second = Roofline(3.0, 2.0, 1.0, 64, 2), Roofline(2.0, 4.0, 1.5, 64, 2)
    assert first.best_with(second) == Roofline(3.0, 4.0, 1.5, 64, 2)


# ----------------------------------------------------------------------------- the caches


def index(directory, name, **files):
    place = directory / name
    place.mkdir()
    for file, text in files.items():
        (place / file).write_text(text + "\n")


def test_caches_as_the_kernel_lists_them(tmp_path):
    index(tmp_path, "index0", level="1", type="Data", size="48K")
    index(tmp_path, "index1", level="1", type="Instruction", size="32K")
    index(tmp_path, "index10", level="3", type="Unified", size="105M")
    index(tmp_path, "index2", level="2", type="Unified", size="1024")
    index(tmp_path, "index3", level="4", type="Unified")
    index(tmp_path, "index4", level="4", type="Unified", size="many")
    (tmp_path / "uevent").write_text("")
    assert calibrate.host_caches(tmp_path) == (
        HostCache(1, "data", 48 << 10),
        HostCache(1, "instruction", 32 << 10),
        HostCache(2, "unified", 1024),
        HostCache(3, "unified", 105 << 20),
    )


def test_no_caches_are_listed(tmp_path):
    assert calibrate.host_caches(tmp_path / "nowhere") == ()


def test_the_last_level_is_the_largest_number(monkeypatch):
    caches = (HostCache(1, "data", 48 << 10), HostCache(3, "unified", 7 << 20))
    monkeypatch.setattr(calibrate, "host_caches", lambda: caches)
    assert calibrate.last_level_bytes() == 7 << 20
    monkeypatch.setattr(calibrate, "host_caches", tuple)
    monkeypatch.setattr(calibrate.os, "sysconf", lambda _: -1)
    assert calibrate.last_level_bytes() == 0
