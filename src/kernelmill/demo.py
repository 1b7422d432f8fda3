"""The main job on a photograph, each result checked against NumPy; what `kernelmill demo` runs.

A picture goes through grayscale, statistics, a contrast stretch and a gamma curve, once at its own
size and once tiled to 2^24 pixels, where memory bandwidth decides.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.algorithms.reduce import reduce
from kernelmill.algorithms.transform import transform
from kernelmill.compiler.op import WELL_KNOWN
from kernelmill.dtypes import struct, uint8
from kernelmill.errors import MissingExtraError
from kernelmill.runtime.calibrate import measure_roofline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["PHOTOGRAPH", "Row", "load_picture", "run_demo", "save_picture"]

PHOTOGRAPH: Final = Path(__file__).resolve().parent / "data" / "chelsea.png"
LARGE: Final = 1 << 24
_WARM_UP: Final = 2
_SECONDS_A_STEP: Final = 0.4


@struct
class RGB:
    """One pixel."""

    r: uint8
    g: uint8
    b: uint8


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what ran where, how long, how it compares; `error` is the largest."""

    step: str
    pixels: int
    device: str
    seconds: float
    bytes: int
    numpy_seconds: float
    error: float
    tolerance: float
    roofline: float

    @property
    def passed(self) -> bool:
        """Whether the result agrees with NumPy."""
        return self.error <= self.tolerance

    @property
    def bandwidth(self) -> float:
        """Bytes read and written a second."""
        return self.bytes / self.seconds


def load_picture(path: Path = PHOTOGRAPH) -> np.ndarray[Any, Any]:
    """Return a picture as an array of shape (height, width) of RGB structs.

    Raises MissingExtraError when pillow is not installed.
    """
    image = _pillow().open(path).convert("RGB")
    return np.ascontiguousarray(np.asarray(image)).view(RGB.dtype)[..., 0]


def save_picture(gray: np.ndarray[Any, Any], path: Path) -> None:
    """Write an array of uint8 of shape (height, width) as a picture."""
    _pillow().fromarray(gray).save(path)


def _pillow() -> Any:  # Any: the module of an optional dependency
    try:
        from PIL import Image  # noqa: PLC0415 - an extra, needed by the demo alone
    except ImportError:
        raise MissingExtraError(
            "reading and writing pictures needs pillow", hint="pip install 'kernelmill[demo]'"
        ) from None
    return Image


# ----------------------------------------------------------------------------- the main job


def grayscale(p: Any) -> Any:  # Any: a struct of the operator language
    """Weigh the channels as ITU-R BT.601 does."""
    weighted = 0.299 * np.float32(p.r) + 0.587 * np.float32(p.g) + 0.114 * np.float32(p.b)
    return np.uint8(weighted + 0.5)


def numpy_grayscale(p: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Do the same with NumPy."""
    weighted = np.float32(0.299) * p["r"] + np.float32(0.587) * p["g"] + np.float32(0.114) * p["b"]
    return (weighted + np.float32(0.5)).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of the job: ours and NumPy's form of it, and the bytes a pixel that it moves."""

    name: str
    ours: Callable[[], Any]
    numpys: Callable[[], Any]
    bytes_a_pixel: int
    tolerance: float


def _steps(pixels: np.ndarray[Any, Any], gray: np.ndarray[Any, Any]) -> Iterable[_Step]:
    """Yield the steps; each works on the result of the one before."""
    stretched, curved = np.empty_like(gray), np.empty_like(gray)
    yield _Step(
        "grayscale",
        lambda: transform(pixels, grayscale, out=gray),
        lambda: numpy_grayscale(pixels),
        4,
        1,
    )
    operators = tuple(WELL_KNOWN[name] for name in ("add", "minimum", "maximum"))
    yield _Step(
        "sum, minimum, maximum in one pass",
        lambda: reduce(gray, operators),
        lambda: (gray.sum(), gray.min(), gray.max()),
        1,
        0,
    )
    _, low, high = reduce(gray, operators)
    scale = 255.0 / max(1, int(high) - int(low))
    yield _Step(
        "contrast stretch, captured scalars",
        lambda: transform(gray, lambda v: np.uint8((v - low) * np.float32(scale)), out=stretched),
        lambda: ((gray - low) * np.float32(scale)).astype(np.uint8),
        2,
        1,
    )
    yield _Step(
        "gamma curve",
        lambda: transform(
            stretched,
            lambda v: np.uint8(255 * (np.float32(v) / 255) ** 0.6 + 0.5),
            out=curved,
        ),
        lambda: _numpy_gamma(stretched),
        2,
        1,
    )


def _numpy_gamma(gray: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    unit = gray.astype(np.float32) / np.float32(255)
    return (np.float32(255) * unit ** np.float32(0.6) + np.float32(0.5)).astype(np.uint8)


def run_demo(pixels: np.ndarray[Any, Any], output: Path, *, large: bool = True) -> list[Row]:
    """Run the job on a picture, and tiled to 2^24 pixels; write the pictures; return the table."""
    roofline = measure_roofline()
    output.mkdir(parents=True, exist_ok=True)
    rows = _run(pixels, roofline, output)
    if large:
        repeats = -(-LARGE // pixels.size)
        rows += _run(np.tile(pixels.ravel(), repeats)[:LARGE], roofline, None)
    return rows


def _run(pixels: np.ndarray[Any, Any], roofline: float, output: Path | None) -> list[Row]:
    gray = np.empty(pixels.shape, np.uint8)
    rows = []
    for step in _steps(pixels, gray):
        result, expected = step.ours(), step.numpys()
        row = Row(
            step.name,
            pixels.size,
            "cpu",
            _time(step.ours),
            step.bytes_a_pixel * pixels.size,
            _time(step.numpys),
            _difference(result, expected),
            step.tolerance,
            roofline,
        )
        rows.append(row)
        if output is not None and isinstance(result, np.ndarray):
            save_picture(result, output / f"{step.name.split(',')[0].replace(' ', '-')}.png")
    return rows


def _difference(result: Any, expected: Any) -> float:
    pairs = zip(result, expected, strict=True) if isinstance(result, tuple) else [(result, expected)]
    return max(
        float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max()) for a, b in pairs
    )


def _time(call: Callable[[], Any]) -> float:
    """Return the shortest of several runs, in seconds."""
    for _ in range(_WARM_UP):
        call()
    best = float("inf")
    end = time.perf_counter() + _SECONDS_A_STEP
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
