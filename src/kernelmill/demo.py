"""The main job on a photograph, each result checked against NumPy; what `kernelmill demo` runs.

A picture goes through grayscale, statistics, a contrast stretch and a gamma curve, once at its own
size and once tiled to 2^24 pixels or more, where memory bandwidth decides; grayscale once more from
CUDA C++. All of it runs on the GPU where there is one. Nothing is printed here; files of pictures
are `pictures.py`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill import events
from kernelmill.algorithms.reduce import reduce
from kernelmill.algorithms.transform import transform
from kernelmill.compiler.op import WELL_KNOWN
from kernelmill.config import get_config
from kernelmill.errors import DeviceError, KernelmillError, MissingExtraError
from kernelmill.pictures import Pixels, directory_for, write_pictures
from kernelmill.runtime.calibrate import Roofline, last_level_bytes, measure_roofline
from kernelmill.runtime.devices import Device, available_devices, backend_named, chosen_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Demo", "Row", "Statistics", "run_demo"]

_CUDA_TEXT: Final = Path(__file__).resolve().parent / "data" / "grayscale.cu"
_CUDA_STEP: Final = "grayscale from CUDA C++"
_THREADS: Final = 256
_MOST_BLOCKS: Final = 1 << 16
LARGE: Final = 1 << 24
_LARGEST: Final = 1 << 26
_UNKNOWN_CACHE: Final = 64 << 20
_SECONDS_A_STEP: Final = 0.3
_FEWEST_RUNS: Final = 2
_COMPARED_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what ran where, how long, and how it compares.

    `compile_seconds` is what the compiler took at the first call, 0 when the cache had the kernel;
    `seconds` and `numpy_seconds` are the shortest of several runs after it; `error` is the largest
    difference from NumPy; `roofline` is in bytes a second, None for arrays that the caches hold.
    """

    step: str
    pixels: int
    device: str
    compile_seconds: float
    seconds: float
    bytes: int
    numpy_seconds: float
    error: float
    tolerance: float
    roofline: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the result agrees with NumPy."""
        return self.error <= self.tolerance

    @property
    def bandwidth(self) -> float:
        """Bytes read and written a second."""
        return self.bytes / self.seconds

    @property
    def share(self) -> float | None:
        """Bandwidth as a share of the measured roofline."""
        return None if self.roofline is None else self.bandwidth / self.roofline

    @property
    def speedup(self) -> float:
        """How many times as fast as NumPy."""
        return self.numpy_seconds / self.seconds


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the grayscale picture."""

    mean: float
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Demo:
    """What a run gave: the table, the statistics, the pictures it wrote and the roofline.

    `device` is where all ran, but for what `notes` name: what ran elsewhere or not at all, and why.
    """

    rows: tuple[Row, ...]
    statistics: Statistics
    pictures: tuple[Path, ...]
    roofline: Roofline
    device: str = "cpu"
    notes: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows whose result differs from NumPy's by more than they may."""
        return tuple(row for row in self.rows if not row.passed)


# ----------------------------------------------------------------------------- the main job


def grayscale(p: Any) -> Any:  # Any: a struct of the operator language
    """Weigh the channels as ITU-R BT.601 does."""
    weighted = 0.299 * np.float32(p.r) + 0.587 * np.float32(p.g) + 0.114 * np.float32(p.b)
    return np.uint8(weighted + 0.5)


def numpy_grayscale(p: Pixels) -> Pixels:
    """Do the same with NumPy."""
    weighted = np.float32(0.299) * p["r"] + np.float32(0.587) * p["g"] + np.float32(0.114) * p["b"]
    return (weighted + np.float32(0.5)).astype(np.uint8)


def numpy_gamma(gray: Pixels) -> Pixels:
    """Bend the brightness with NumPy as the last step does."""
    unit = gray.astype(np.float32) / np.float32(255)
    return (np.float32(255) * unit ** np.float32(0.6) + np.float32(0.5)).astype(np.uint8)


_STATISTICS: Final = tuple(WELL_KNOWN[name] for name in ("add", "minimum", "maximum"))


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of the job: ours and NumPy's form of it, the bytes a pixel that it moves."""

    name: str
    ours: Callable[[], Any]
    numpys: Callable[[], Any]
    read: int
    written: int
    tolerance: float
    device: str = ""


class _Place:
    """Where arrays are and steps run: here the memory of the host, where nothing is copied."""

    name = "cpu"

    def put(self, array: Pixels) -> Any:  # Any: an array of the device
        """Return the array there."""
        return array

    def get(self, found: Any) -> Any:  # Any: an array of the device, a scalar, a tuple of them
        """Return a result on the host, where all of it is there."""
        return found

    def wait(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Return a call that ends when its work is done."""
        return call

    def roofline(self) -> Roofline:
        """Measure the memory."""
        return measure_roofline()

    def holds(self, nbytes: int) -> bool:
        """Whether the caches hold so many bytes."""
        return nbytes <= (last_level_bytes() or _UNKNOWN_CACHE)


class _Gpu(_Place):
    """The memory of a GPU."""

    def __init__(self, name: str) -> None:
        self.name, self.gpu = name, Device(name).gpu

    def put(self, array: Pixels) -> Any:
        from kernelmill.runtime.cuda.copies import to_device  # noqa: PLC0415 - where there is a GPU

        return to_device(array, device=self.gpu.number)

    def get(self, found: Any) -> Any:
        if isinstance(found, tuple):
            return tuple(map(self.get, found))
        return found.numpy() if hasattr(found, "__cuda_array_interface__") else found

    def wait(self, call: Callable[[], Any]) -> Callable[[], Any]:
        def whole() -> Any:
            found = call()
            self.gpu.sync()
            return found

        return whole

    def roofline(self) -> Roofline:
        from kernelmill.runtime.cuda.roofline import (  # noqa: PLC0415 - as above
            measure_device_roofline,
        )

        return measure_device_roofline(self.gpu.number)

    def holds(self, nbytes: int) -> bool:
        return bool(nbytes <= self.gpu.limits.l2_bytes)


def _place() -> _Place:
    """Return where the demo runs: on the device that was chosen, else on a GPU, else here."""
    name, asked = chosen_device(), get_config().device
    if name is None and asked == "auto":
        name = next((d for d in available_devices() if d.startswith("cuda")), "cpu")
    backend = backend_named(name or asked)
    return _Gpu(backend.name) if backend.name.startswith("cuda") else _Place()


def _steps(place: _Place, pixels: Pixels) -> Iterator[_Step]:
    """Yield the steps; each works on the result of the one before."""
    given = place.put(pixels)
    gray, stretched, curved = (place.put(np.zeros(pixels.shape, np.uint8)) for _ in range(3))
    yield _Step(
        "grayscale of RGB structs",
        lambda: transform(given, grayscale, out=gray),
        lambda: numpy_grayscale(pixels),
        read=3,
        written=1,
        tolerance=1,
    )
    grays = place.get(gray)
    yield _Step(
        "sum, minimum, maximum in one pass",
        lambda: reduce(gray, _STATISTICS),
        lambda: (grays.sum(), grays.min(), grays.max()),
        read=1,
        written=0,
        tolerance=0,
    )
    low, high = int(grays.min()), int(grays.max())
    scale = 255 / max(1, high - low)
    yield _Step(
        "contrast stretch with captured scalars",
        lambda: transform(gray, lambda v: np.uint8((v - low) * np.float32(scale)), out=stretched),
        lambda: ((grays - np.uint8(low)) * np.float32(scale)).astype(np.uint8),
        read=1,
        written=1,
        tolerance=1,
    )
    bright = place.get(stretched)
    yield _Step(
        "gamma curve",
        lambda: transform(
            stretched,
            lambda v: np.uint8(255 * (np.float32(v) / 255) ** 0.6 + 0.5),
            out=curved,
        ),
        lambda: numpy_gamma(bright),
        read=1,
        written=1,
        tolerance=1,
    )


def run_demo(pixels: Pixels, output: Path, *, large: bool = True) -> Demo:
    """Run the job on a picture, and tiled to many pixels; write the pictures.

    Parameters
    ----------
    pixels
        Of shape (height, width), RGB structs; see `pictures.load_picture`.
    output
        Directory for the pictures; made if it is not there.
    large
        Whether to run on 2^24 pixels too: as many more, up to 2^26, as the caches cannot hold.

    Raises
    ------
    ArgumentError
        The directory cannot be made, or written to.
    MissingExtraError
        pillow is not installed.
    CompileError
        There is no usable C++ compiler, or it failed.
    """
    directory, place = directory_for(output), _place()
    rows, results = _run(_steps(place, pixels), pixels.size, place)
    pictures = _write_pictures(results, directory)
    total, low, high = (int(v) for v in results[1])
    cuda_rows, notes = _from_cuda(place, pixels)
    rows += cuda_rows
    before = place.roofline()
    if large:
        many = np.resize(pixels.ravel(), _large_pixels())
        rows += _run(_steps(place, many), many.size, place)[0]
        if isinstance(place, _Gpu):  # the emulator would take half a minute
            rows += _from_cuda(place, many)[0]
    # Neighbours on a shared machine slow a measurement down at times; nothing speeds it up.
    roofline = before.best_with(place.roofline())
    return Demo(
        tuple(_with_roofline(row, roofline, place) for row in rows),
        Statistics(total / pixels.size, low, high),
        pictures,
        roofline,
        place.name,
        notes,
    )


def _from_cuda(place: _Place, pixels: Pixels) -> tuple[list[Row], tuple[str, ...]]:
    """Run grayscale from CUDA C++: on the GPU, or on the emulator, and say so where it is."""
    if isinstance(place, _Gpu):
        return _run([_cuda_step(place, pixels)], pixels.size, place)[0], ()
    try:
        reason = _no_gpu()
        with Device("emulator"):
            rows, _ = _run([_cuda_step(place, pixels, "emulator")], pixels.size, place)
    except KernelmillError as error:
        return [], (f"{_CUDA_STEP}: not run, since {error.message}",)
    return rows, (f"{_CUDA_STEP}: on the emulator, since {reason}",)


def _no_gpu() -> str:
    """Return why no GPU is used."""
    from kernelmill.runtime.cuda.device import cuda_device  # noqa: PLC0415 - where it is asked for

    try:
        cuda_device()
    except (DeviceError, MissingExtraError) as error:
        return error.message.partition(": ")[0]
    return "another device was chosen"


def _cuda_step(place: _Place, pixels: Pixels, device: str = "") -> _Step:
    from kernelmill.runtime.cuda.launches import LaunchConfig, launch  # noqa: PLC0415 - as above
    from kernelmill.runtime.cuda.program import Program  # noqa: PLC0415

    channels = np.ascontiguousarray(pixels).view(np.uint8)
    given, gray = place.put(channels), place.put(np.zeros(pixels.shape, np.uint8))
    config = LaunchConfig(min(-(-pixels.size // _THREADS), _MOST_BLOCKS), _THREADS)
    program = Program(_CUDA_TEXT.read_text(encoding="utf-8"), name=_CUDA_TEXT.name)

    def ours() -> Any:
        kernel = program.compile("cubin").get_kernel("grayscale")
        launch(None, config, kernel, given, gray, pixels.size)
        return gray

    return _Step(
        _CUDA_STEP,
        ours,
        lambda: numpy_grayscale(pixels),
        read=3,
        written=1,
        tolerance=1,
        device=device,
    )


def _large_pixels() -> int:
    """Return how many pixels of one byte the last-level cache cannot hold, within bounds."""
    return min(max(LARGE, 2 * last_level_bytes()), _LARGEST)


def _run(steps: Iterable[_Step], pixels: int, place: _Place) -> tuple[list[Row], list[Any]]:
    rows, results = [], []
    for step in steps:
        ours = place.wait(step.ours)
        with events.listen("compile") as compiled:
            ours()
        seconds, result = _time(ours)
        result = place.get(result)
        numpy_seconds, expected = _time(step.numpys)
        row = Row(
            step=step.name,
            pixels=pixels,
            device=step.device or place.name,
            compile_seconds=sum(event.seconds for event in compiled),
            seconds=seconds,
            bytes=(step.read + step.written) * pixels,
            numpy_seconds=numpy_seconds,
            error=_difference(result, expected),
            tolerance=step.tolerance,
        )
        rows.append(row)
        results.append(result)
    return rows, results


def _with_roofline(row: Row, roofline: Roofline, place: _Place) -> Row:
    if row.device != place.name or place.holds(row.bytes):
        return row
    reads_only = row.bytes == row.pixels
    return replace(row, roofline=roofline.bytes_per_second(1, 0 if reads_only else 1))


def _write_pictures(results: Iterable[Any], directory: Path) -> tuple[Path, ...]:
    arrays = (result for result in results if isinstance(result, np.ndarray))
    names = ("grayscale", "contrast-stretch", "gamma-curve")
    return write_pictures(dict(zip(names, arrays, strict=True)), directory)


def _difference(result: Any, expected: Any) -> float:
    """Return the largest difference of two arrays, or of two tuples of scalars."""
    if isinstance(result, tuple):
        return max(_difference(a, b) for a, b in zip(result, expected, strict=True))
    ours, theirs = np.asarray(result).ravel(), np.asarray(expected).ravel()
    assert ours.shape == theirs.shape
    return max(
        float(np.abs(ours[part].astype(np.float64) - theirs[part]).max())
        for part in (
            slice(start, start + _COMPARED_AT_ONCE)
            for start in range(0, ours.size, _COMPARED_AT_ONCE)
        )
    )


def _time(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the shortest of several runs, in seconds, and what the last one returned."""
    best, runs, result = float("inf"), 0, None
    end = time.perf_counter() + _SECONDS_A_STEP
    while runs < _FEWEST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best, result
