"""The main job on a GPU, each step against NumPy; and the roofline it is measured by."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill import demo, pictures
from kernelmill.runtime.cuda.roofline import measure_device_roofline

pytestmark = pytest.mark.cuda
pytest.importorskip("PIL", reason="needs pillow")


def test_all_steps_run_on_the_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "_SECONDS_A_STEP", 0.02)
    monkeypatch.setattr(demo, "_large_pixels", lambda: 1 << 22)
    channels = np.random.default_rng(7).integers(0, 256, (301, 451, 3), np.uint8)
    found = demo.run_demo(channels.view(pictures.RGB.dtype)[..., 0], tmp_path)
    assert found.failures == ()
    assert found.notes == ()
    assert {row.device for row in found.rows} == {found.device} == {"cuda:0"}
    assert len(found.rows) == 10
    assert found.statistics.minimum < found.statistics.mean < found.statistics.maximum
    assert [path.exists() for path in found.pictures] == [True] * 3


def test_the_cpu_is_taken_where_it_was_chosen():
    with km.Device("cpu"):
        assert demo._place().name == "cpu"
    assert demo._place().name == "cuda:0"


def test_the_roofline_is_that_of_memory():
    found = measure_device_roofline()
    rates = (
        found.copy_bytes_per_second,
        found.read_bytes_per_second,
        found.write_bytes_per_second,
    )
    assert all(50e9 < rate < 20e12 for rate in rates)
    assert max(rates) < 2 * min(rates)
