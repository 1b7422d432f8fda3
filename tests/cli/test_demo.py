"""The main job on a photograph: its values, its table, its pictures, and how it fails."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import kernelmill as km
from kernelmill import config, demo, pictures
from kernelmill.cli import main
from kernelmill.errors import ArgumentError, DeviceError, MissingExtraError, ToolchainError
from kernelmill.runtime.calibrate import Roofline

STEPS = (
    "grayscale of RGB structs",
    "sum, minimum, maximum in one pass",
    "contrast stretch with captured scalars",
    "gamma curve",
)
CUDA = "grayscale from CUDA C++"
ALL = (*STEPS, CUDA, *STEPS)
PICTURES = ("grayscale.png", "contrast-stretch.png", "gamma-curve.png")
ROOFLINE = Roofline(40e9, 30e9, 20e9, 1 << 28, 2)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Keep the roofline, the large size and any GPU out: they have tests of their own."""
    monkeypatch.setattr(demo, "available_devices", lambda: ("cpu",))
    monkeypatch.setattr(demo, "_no_gpu", lambda: "there is no GPU")
    monkeypatch.setattr(demo, "measure_roofline", lambda: ROOFLINE)
    monkeypatch.setattr(demo, "_large_pixels", lambda: 1 << 18)
    monkeypatch.setattr(demo, "_SECONDS_A_STEP", 0.0)


def invoke(*arguments):
    return CliRunner().invoke(main, list(arguments), prog_name="kernelmill")


def pixels(height=37, width=53, low=0, high=256):
    random = np.random.default_rng(7)
    channels = random.integers(low, high, (height, width, 3), np.uint8)
    return channels.view(pictures.RGB.dtype)[..., 0]


def opened(path):
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image)


# ----------------------------------------------------------------------------- values


def test_pictures_hold_what_numpy_computes(tmp_path):
    given = pixels(low=40, high=200)
    found = demo.run_demo(given, tmp_path / "new" / "place", large=False)
    assert [path.name for path in found.pictures] == list(PICTURES)
    gray, stretched, curved = (opened(path).astype(int) for path in found.pictures)

    r, g, b = (given[name].astype(np.float64) for name in "rgb")
    exact = 0.299 * r + 0.587 * g + 0.114 * b
    assert np.abs(gray - exact).max() <= 1
    low, high = gray.min(), gray.max()
    assert np.abs(stretched - (gray - low) * 255 / (high - low)).max() <= 1
    assert (stretched.min(), stretched.max()) in {(0, 255), (0, 254)}
    assert np.abs(curved - 255 * (stretched / 255) ** 0.6).max() <= 1
    assert found.statistics == demo.Statistics(pytest.approx(gray.mean()), low, high)
    assert found.failures == ()


def test_rows_say_what_ran(tmp_path):
    found = demo.run_demo(pixels(), tmp_path)
    sizes = [37 * 53] * 5 + [1 << 18] * 4
    assert [(row.step, row.pixels) for row in found.rows] == list(zip(ALL, sizes, strict=True))
    assert found.device == "cpu"
    assert [row.device for row in found.rows] == [*["cpu"] * 4, "emulator", *["cpu"] * 4]
    assert [row.bytes // row.pixels for row in found.rows] == [4, 1, 2, 2, 4, 4, 1, 2, 2]
    assert all(row.seconds > 0 and row.numpy_seconds > 0 for row in found.rows)
    assert [row.tolerance for row in found.rows] == [1, 0, 1, 1, 1, 1, 0, 1, 1]
    assert found.notes == ("grayscale from CUDA C++: on the emulator, since there is no GPU",)


def test_why_there_is_no_gpu(monkeypatch):
    from kernelmill.runtime.cuda import device

    def absent():
        raise DeviceError("the driver library cannot be loaded: not found")

    monkeypatch.undo()
    monkeypatch.setattr(device, "cuda_device", absent)
    assert demo._no_gpu() == "the driver library cannot be loaded"
    monkeypatch.setattr(device, "cuda_device", lambda: None)
    assert demo._no_gpu() == "another device was chosen"


def test_an_emulator_that_cannot_run_is_named(monkeypatch, tmp_path):
    def refuse(*_):
        raise ToolchainError("no usable C++ compiler was found", hint="install one")

    monkeypatch.setattr(demo, "_cuda_step", refuse)
    found = demo.run_demo(pixels(), tmp_path, large=False)
    assert [row.step for row in found.rows] == list(STEPS)
    assert found.notes == (
        "grayscale from CUDA C++: not run, since no usable C++ compiler was found",
    )


def test_the_gpu_is_taken_where_there_is_one_and_none_was_chosen(monkeypatch):
    asked = []
    monkeypatch.setattr(demo, "available_devices", lambda: ("cpu", "cuda:0", "cuda:1"))
    monkeypatch.setattr(demo, "_Gpu", lambda name: asked.append(name) or demo._Place())
    backend = lambda name: SimpleNamespace(name=name)
    monkeypatch.setattr(demo, "backend_named", backend)
    demo._place()
    with config.override(device="cpu"):
        assert type(demo._place()) is demo._Place
    with config.override(device="cuda:1"):
        demo._place()
    with km.Device("cpu"):
        demo._place()
    assert asked == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize("value", [0, 255])
def test_a_picture_of_one_colour(tmp_path, value):
    given = np.full((3, 5, 3), value, np.uint8).view(pictures.RGB.dtype)[..., 0]
    found = demo.run_demo(given, tmp_path, large=False)
    assert found.failures == ()
    assert found.statistics == demo.Statistics(value, value, value)


def test_compile_seconds_are_of_the_first_call(tmp_path):
    with config.override(cache_dir=tmp_path / "cache"):
        # A source of its own, so that no kernel of this process or the cache has served it.
        rng = np.random.default_rng()
        value = float(rng.random())
        with demo.events.listen("compile") as seen:
            source = f"lambda v: v + {value!r} if v > 1 else v"
            operator = eval(source)
            step = demo._Step(
                "new",
                lambda: demo.transform(np.ones(3), operator),
                lambda: np.ones(3),
                1,
                1,
                0,
            )
            rows, _ = demo._run([step, step], 3, demo._Place())
    assert rows[0].compile_seconds == pytest.approx(sum(e.seconds for e in seen))
    assert rows[0].compile_seconds > 0
    assert rows[1].compile_seconds == 0


# ----------------------------------------------------------------------------- roofline


def row(**changes):
    made = demo.Row("s", 10, "cpu", 0.0, 2e-9, 40, 6e-9, 0, 1)
    return replace(made, **changes)


def test_derived_columns():
    assert row().bandwidth == pytest.approx(20e9)
    assert row().speedup == pytest.approx(3)
    assert row().share is None
    assert row(roofline=40e9).share == pytest.approx(0.5)
    assert [row(error=e).passed for e in (0, 1, 2)] == [True, True, False]


@pytest.mark.parametrize(
    ("size", "bytes_", "roofline"),
    [(100, 100, None), (101, 101, 30e9), (50, 100, None), (51, 102, 40e9), (30, 120, 40e9)],
)
def test_the_share_is_shown_where_the_caches_do_not_hold_the_arrays(
    monkeypatch, size, bytes_, roofline
):
    monkeypatch.setattr(demo, "last_level_bytes", lambda: 100)
    found = demo._with_roofline(row(pixels=size, bytes=bytes_), ROOFLINE, demo._Place())
    assert found.roofline == roofline
    elsewhere = row(pixels=size, bytes=bytes_, device="emulator")
    assert demo._with_roofline(elsewhere, ROOFLINE, demo._Place()).roofline is None


@pytest.mark.parametrize(
    ("cache", "pixels_"),
    [(0, 1 << 24), (8 << 20, 1 << 24), (32 << 20, 1 << 26), (1 << 30, 1 << 26)],
)
def test_the_large_size_follows_the_cache_within_bounds(monkeypatch, cache, pixels_):
    monkeypatch.undo()
    monkeypatch.setattr(demo, "last_level_bytes", lambda: cache)
    assert demo._large_pixels() == pixels_


# ----------------------------------------------------------------------------- differences


def test_differences_are_found_wherever_they_are(monkeypatch):
    monkeypatch.setattr(demo, "_COMPARED_AT_ONCE", 7)
    expected = np.arange(100, dtype=np.uint8).reshape(10, 10)
    assert demo._difference(expected, expected) == 0
    for index in (0, 6, 7, 50, 99):
        wrong = expected.copy()
        wrong.flat[index] ^= 128
        assert demo._difference(wrong, expected) == 128
    assert demo._difference((np.int64(300), np.uint8(1)), (np.uint64(297), np.uint8(1))) == 3


def test_a_wrong_result_is_a_failure(monkeypatch, tmp_path):
    def off_by_two(inputs, op, *, out):
        real(inputs, op, out=out)
        out.flat[-1] ^= 2
        return out

    real = demo.transform
    monkeypatch.setattr(demo, "transform", off_by_two)
    found = demo.run_demo(pixels(), tmp_path, large=False)
    assert STEPS[0] in [failed.step for failed in found.failures]
    assert found.rows[0].error == 2


# ----------------------------------------------------------------------------- the command


def test_the_command_prints_the_table(tmp_path):
    result = invoke("demo", "--output", str(tmp_path / "out"))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split("  ")[0] == "step"
    assert "of roofline" in lines[0]
    assert [line.split("  ")[0] for line in lines[1:10]] == list(ALL)
    assert lines[10] == "grayscale from CUDA C++: on the emulator, since there is no GPU"
    assert lines[11].startswith("grayscale: mean 119.")
    assert lines[12] == (
        "roofline, measured with 2 threads: copy 40.0, read 30.0 GB/s; - where the caches hold the "
        "arrays"
    )
    assert result.stderr == "this takes about ten seconds\n" + "".join(
        f"wrote {tmp_path / 'out' / name}\n" for name in PICTURES
    )
    assert opened(tmp_path / "out" / PICTURES[0]).shape == (300, 451)


def test_json_has_the_rows_and_the_notes(tmp_path):
    given = tmp_path / "given.png"
    pictures.save_picture(np.arange(96, dtype=np.uint8).reshape(8, 12), given)
    result = invoke("demo", "--json", "--output", str(tmp_path), "--picture", str(given))
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["passed"] is True
    assert [r["step"] for r in found["rows"]] == list(ALL)
    assert found["rows"][0]["pixels"] == 96
    assert found["statistics"] == {"mean": 47.5, "minimum": 0, "maximum": 95}
    assert found["roofline"]["copy_bytes_per_second"] == 40e9
    assert found["device"] == "cpu"
    assert found["notes"] == ["grayscale from CUDA C++: on the emulator, since there is no GPU"]
    assert found["pictures"] == [str(tmp_path / name) for name in PICTURES]


def test_a_difference_is_status_1_after_the_table(monkeypatch, tmp_path):
    good = demo.run_demo(pixels(), tmp_path, large=False)
    bad = replace(good, rows=(replace(good.rows[0], error=3.0), *good.rows[1:]))
    monkeypatch.setattr(demo, "run_demo", lambda *_: bad)
    result = invoke("demo", "--output", str(tmp_path))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].endswith("3 FAILED")
    assert (
        "error: 1 of 5 results differ from NumPy's: grayscale of RGB structs, 1961 pixels: by 3, "
        "at most 1\n\nhint: `kernelmill doctor` shows the compiler; another one is tried with "
        "KERNELMILL_CXX\n"
    ) in result.stderr
    assert json.loads(invoke("demo", "--json", "--output", str(tmp_path)).stdout)["passed"] is False


# ----------------------------------------------------------------------------- pictures


def test_the_photograph_comes_with_kernelmill():
    assert pictures.PHOTOGRAPH.stat().st_size <= 300_000
    found = pictures.load_picture()
    assert (found.shape, found.dtype) == ((300, 451), pictures.RGB.dtype)
    assert "CC0" in (pictures.PHOTOGRAPH.parent / "README.md").read_text()


def test_a_picture_keeps_its_colours(tmp_path):
    from PIL import Image

    channels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    Image.fromarray(channels).save(tmp_path / "p.png")
    found = pictures.load_picture(tmp_path / "p.png")
    assert np.array_equal(found["g"], channels[..., 1])
    Image.fromarray(channels).convert("L").save(tmp_path / "gray.png")
    assert pictures.load_picture(tmp_path / "gray.png").shape == (4, 5)


@pytest.mark.parametrize(
    "content", [b"", b"not a picture", pictures.PHOTOGRAPH.read_bytes()[:5000]]
)
def test_a_file_that_is_no_picture(tmp_path, content):
    path = tmp_path / "broken.png"
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"broken\.png cannot be read as a picture: ") as caught:
        pictures.load_picture(path)
    assert caught.value.hint.startswith("any format that pillow reads will do")
    result = invoke("demo", "--picture", str(path))
    assert (result.exit_code, result.stdout) == (1, "")


def test_without_pillow_the_error_names_the_line(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError) as caught:
        pictures.load_picture()
    assert str(caught.value) == (
        "reading and writing pictures needs pillow\n\nhint: pip install 'kernelmill[demo]'"
    )


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match=r"the directory .*/file/x cannot be made: Not a dir"):
        demo.run_demo(pixels(), tmp_path / "file" / "x")


def test_a_picture_that_cannot_be_written(tmp_path):
    (tmp_path / PICTURES[1]).mkdir()
    with pytest.raises(ArgumentError, match=r"contrast-stretch\.png cannot be written: Is a dir"):
        demo.run_demo(pixels(), tmp_path, large=False)


def test_the_default_directory_is_beside_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("demo").exit_code == 0
    assert sorted(p.name for p in Path("demo-output").iterdir()) == sorted(PICTURES)
