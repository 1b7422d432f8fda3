"""The twelve kernels as cases: arguments, launches, what NumPy says, how close a result must come.

Nothing is launched here: `run.py` does, and tests and benchmarks may, with sizes of their own. The
arguments of a case have names, the same ones for NumPy, CUDA C++ and Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "Case", "Launch", "Tolerance", "difference", "values_of"]

HERE: Final = Path(__file__).resolve().parent
Values: TypeAlias = dict[str, Any]  # Any: NumPy arrays, or arrays of a device, and scalars
Extent: TypeAlias = int | tuple[int, ...]
# Threads of a block; blocks that fill the largest chip several times over.
THREADS: Final = 256
PLANE: Final = (32, 8)
BLOCKS: Final = 2112


@dataclass(frozen=True, slots=True)
class Launch:
    """How the CUDA C++ form is launched: blocks, threads, arguments in the order of the kernel."""

    grid: Extent
    block: Extent
    arguments: tuple[Any, ...]
    shmem_size: int = 0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a result may be from NumPy's: as `np.isclose`, but for a share of the elements."""

    relative: float = 0.0
    absolute: float = 0.0
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """One example.

    `make` gives the arguments for a size, `numpy` what is expected of the argument `output`,
    `launch` how CUDA C++ is called; `small` is a size for tests, `large` one for benchmarks.
    `flops` are floating-point operations, where they and not the memory decide the time.
    """

    name: str
    make: Callable[..., Values]
    output: str
    numpy: Callable[..., Any]
    launch: Callable[..., Launch]
    small: tuple[int, ...]
    large: tuple[int, ...]
    tolerance: Tolerance = field(default_factory=Tolerance)
    flops: Callable[..., float] | None = None

    @property
    def source(self) -> Path:
        """The CUDA C++ form."""
        return HERE / f"{self.name}.cu"

    @property
    def module(self) -> Path:
        """The Python form."""
        return HERE / f"{self.name}.py"


def values_of(case: Case, size: tuple[int, ...] | None = None, *, seed: int = 1) -> Values:
    """Return the arguments of a case, by default of its small size."""
    return case.make(np.random.default_rng(seed), *(size or case.small))


def difference(case: Case, found: np.ndarray, values: Values) -> float:
    """Return the share of elements that are further from NumPy's than they may be."""
    expected = np.asarray(case.numpy(**values))
    assert found.shape == expected.shape, (found.shape, expected.shape)
    allowed = case.tolerance.absolute + case.tolerance.relative * np.abs(expected.astype(float))
    wrong = ~(np.abs(found.astype(float) - expected) <= allowed)  # a NaN is wrong
    return float(wrong.mean())


def _over(extent: int, part: int) -> int:
    return -(-extent // part)


def _plane(height: int, width: int) -> tuple[int, int]:
    return _over(width, PLANE[0]), _over(height, PLANE[1])


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)


# ------------------------------------------------------------------------------------ saxpy


def _saxpy(rng: np.random.Generator, n: int) -> Values:
    return {"a": 2.5, "x": _normal(rng, n), "y": _normal(rng, n)}


def _numpy_saxpy(a: float, x: Any, y: Any) -> Any:
    return a * x.astype(float) + y


def _launch_saxpy(a: float, x: Any, y: Any) -> Launch:
    (n,) = x.shape
    return Launch(_over(n, 8 * THREADS), THREADS, (a, x, y, n))


# --------------------------------------------------------------------------------- img2gray


def _img2gray(rng: np.random.Generator, height: int, width: int) -> Values:
    rgb = rng.integers(0, 256, (height, width, 3), np.uint8)
    return {"rgb": rgb, "gray": np.zeros((height, width), np.uint8)}


def _numpy_img2gray(rgb: Any, gray: Any) -> Any:  # noqa: ARG001 - the output
    return (rgb @ np.array([0.299, 0.587, 0.114]) + 0.5).astype(np.uint8)


def _launch_img2gray(rgb: Any, gray: Any) -> Launch:
    height, width = gray.shape
    return Launch(_over(height * width, 4 * THREADS), THREADS, (rgb, gray, height, width))


# -------------------------------------------------------------------------------- transpose


def _transpose(rng: np.random.Generator, height: int, width: int) -> Values:
    return {"x": _normal(rng, height, width), "out": np.zeros((width, height), np.float32)}


def _numpy_transpose(x: Any, out: Any) -> Any:  # noqa: ARG001 - the output
    return x.T


def _launch_transpose(x: Any, out: Any) -> Launch:
    height, width = x.shape
    return Launch((_over(width, 32), _over(height, 32)), (32, 4), (x, out, height, width))


# ----------------------------------------------------------------------------------- matmul


def _matmul(rng: np.random.Generator, m: int, k: int, n: int) -> Values:
    return {"a": _normal(rng, m, k), "b": _normal(rng, k, n), "c": np.zeros((m, n), np.float32)}


def _numpy_matmul(a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001 - the output
    return a.astype(float) @ b.astype(float)


def _launch_matmul(a: Any, b: Any, c: Any) -> Launch:
    (m, k), n = a.shape, b.shape[1]
    return Launch((_over(n, 128), _over(m, 128)), (16, 16), (a, b, c, m, n, k))


def _flops_matmul(a: Any, b: Any, c: Any) -> float:  # noqa: ARG001 - the output
    return 2.0 * a.shape[0] * a.shape[1] * b.shape[1]


# ----------------------------------------------------------------------- softmax, layer norm


def _softmax(rng: np.random.Generator, rows: int, columns: int) -> Values:
    x = 4 * _normal(rng, rows, columns)
    return {"x": x, "out": np.zeros_like(x)}


def _numpy_softmax(x: Any, out: Any) -> Any:  # noqa: ARG001 - the output
    weights = np.exp(x.astype(float) - x.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _launch_softmax(x: Any, out: Any) -> Launch:
    rows, columns = x.shape
    return Launch(rows, THREADS, (x, out, columns))


def _layer_norm(rng: np.random.Generator, rows: int, columns: int) -> Values:
    return {
        "x": 3 + 2 * _normal(rng, rows, columns),
        "gain": _normal(rng, columns),
        "bias": _normal(rng, columns),
        "out": np.zeros((rows, columns), np.float32),
        "epsilon": 1e-5,
    }


def _numpy_layer_norm(x: Any, gain: Any, bias: Any, out: Any, epsilon: float) -> Any:  # noqa: ARG001
    wide = x.astype(float)
    centred = wide - wide.mean(axis=1, keepdims=True)
    return centred / np.sqrt(wide.var(axis=1, keepdims=True) + epsilon) * gain + bias


def _launch_layer_norm(x: Any, gain: Any, bias: Any, out: Any, epsilon: float) -> Launch:
    rows, columns = x.shape
    return Launch(rows, THREADS, (x, gain, bias, out, columns, epsilon))


# ------------------------------------------------------------------------------------ nbody


def _nbody(rng: np.random.Generator, n: int) -> Values:
    bodies = rng.uniform(-1, 1, (n, 4)).astype(np.float32)
    bodies[:, 3] = rng.uniform(0.5, 2, n)
    return {"bodies": bodies, "acceleration": np.zeros((n, 4), np.float32), "softening": 0.01}


def _numpy_nbody(bodies: Any, acceleration: Any, softening: float) -> Any:
    wide = bodies.astype(float)
    expected = np.zeros(acceleration.shape)
    for i, own in enumerate(wide):
        apart = wide[:, :3] - own[:3]
        pull = wide[:, 3] / ((apart**2).sum(axis=1) + softening) ** 1.5
        expected[i, :3] = pull @ apart
    return expected


def _launch_nbody(bodies: Any, acceleration: Any, softening: float) -> Launch:
    n = bodies.shape[0]
    return Launch(_over(n, THREADS), THREADS, (bodies, acceleration, n, softening))


def _flops_nbody(bodies: Any, acceleration: Any, softening: float) -> float:  # noqa: ARG001
    return 20.0 * bodies.shape[0] ** 2  # as it is usually counted


# ---------------------------------------------------------------------------------- stencil


def _stencil(rng: np.random.Generator, height: int, width: int) -> Values:
    u = _normal(rng, height, width)
    return {"u": u, "out": np.zeros_like(u), "rate": 0.2}


def _numpy_stencil(u: Any, out: Any, rate: float) -> Any:  # noqa: ARG001 - the output
    wide, expected = u.astype(float), u.astype(float)
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    expected[1:-1, 1:-1] += rate * (around - 4 * wide[1:-1, 1:-1])
    return expected


def _launch_stencil(u: Any, out: Any, rate: float) -> Launch:
    height, width = u.shape
    return Launch(_plane(_over(height, 4), width), PLANE, (u, out, height, width, rate))


# ---------------------------------------------------------------------- histogram, reduction


def _histogram(rng: np.random.Generator, n: int) -> Values:
    x = rng.uniform(-0.01, 1.01, n).astype(np.float32)
    x[: min(n, 2)] = [0, 1][:n]  # the bounds themselves
    return {"x": x, "counts": np.zeros(256, np.int32)}


def _numpy_histogram(x: Any, counts: Any) -> Any:
    return counts + np.histogram(x, 256, (0, 1))[0]


def _launch_histogram(x: Any, counts: Any) -> Launch:
    (n,) = x.shape
    return Launch(min(_over(n, 8 * THREADS), BLOCKS), THREADS, (x, counts, n))


def _reduction(rng: np.random.Generator, n: int) -> Values:
    return {"x": rng.uniform(0, 1, n).astype(np.float32), "total": np.zeros(1, np.float32)}


def _numpy_reduction(x: Any, total: Any) -> Any:
    return total + x.sum(dtype=float)


def _launch_reduction(x: Any, total: Any) -> Launch:
    (n,) = x.shape
    return Launch(min(_over(n, 4 * THREADS), BLOCKS), THREADS, (x, total, n))


# ------------------------------------------------------------------------------- mandelbrot


def _mandelbrot(_: np.random.Generator, height: int, width: int, most: int) -> Values:
    pixel = 3.0 / width
    steps = np.zeros((height, width), np.int32)
    return {"steps": steps, "left": -2.25, "top": -pixel * height / 2, "pixel": pixel, "most": most}


def _numpy_mandelbrot(steps: Any, left: float, top: float, pixel: float, most: int) -> Any:
    height, width = steps.shape
    real = np.float32(left) + np.arange(width, dtype=np.float32) * np.float32(pixel)
    imaginary = np.float32(top) + np.arange(height, dtype=np.float32) * np.float32(pixel)
    c = (real + 1j * imaginary[:, None]).astype(np.complex64)
    z, count = np.zeros_like(c), np.zeros(steps.shape, np.int32)
    inside = np.ones(steps.shape, bool)
    for _ in range(most):
        z[inside] = z[inside] ** 2 + c[inside]
        count += inside
        inside &= z.real**2 + z.imag**2 <= 4
    return count


def _launch_mandelbrot(steps: Any, left: float, top: float, pixel: float, most: int) -> Launch:
    height, width = steps.shape
    return Launch(_plane(height, width), PLANE, (steps, height, width, left, top, pixel, most))


# -------------------------------------------------------------------------- flash attention

HEAD: Final = 64  # elements of a query


def _flash_attention(rng: np.random.Generator, heads: int, length: int) -> Values:
    q, k, v = (_normal(rng, heads, length, HEAD) for _ in range(3))
    return {"q": q, "k": k, "v": v, "out": np.zeros_like(q), "scale": HEAD**-0.5}


def _numpy_flash_attention(q: Any, k: Any, v: Any, out: Any, scale: float) -> Any:  # noqa: ARG001
    scores = scale * (q.astype(float) @ k.astype(float).transpose(0, 2, 1))
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return weights / weights.sum(axis=2, keepdims=True) @ v.astype(float)


def _launch_flash_attention(q: Any, k: Any, v: Any, out: Any, scale: float) -> Launch:
    heads, length, _ = q.shape
    shared = 3 * 64 * (HEAD + 1) * 4
    return Launch((_over(length, 64), heads), (16, 16), (q, k, v, out, length, scale), shared)


def _flops_flash_attention(q: Any, k: Any, v: Any, out: Any, scale: float) -> float:  # noqa: ARG001
    heads, length, _ = q.shape
    return 4.0 * heads * length**2 * HEAD


# ---------------------------------------------------------------------------------- the table

_FLOAT: Final = Tolerance(relative=1e-5, absolute=1e-5)
_SUMS: Final = Tolerance(relative=1e-4, absolute=1e-4)
# fmt: off
CASES: Final[dict[str, Case]] = {
    case.name: case
    for case in (
        Case("saxpy", _saxpy, "y", _numpy_saxpy, _launch_saxpy, (10_007,), (1 << 27,), _FLOAT),
        # Rounded once less than NumPy does it, a half may become the other neighbour.
        Case("img2gray", _img2gray, "gray", _numpy_img2gray, _launch_img2gray,
             (61, 103), (8192, 16384), Tolerance(absolute=1)),
        Case("transpose", _transpose, "out", _numpy_transpose, _launch_transpose,
             (100, 70), (16384, 16384)),
        Case("matmul", _matmul, "c", _numpy_matmul, _launch_matmul,
             (140, 50, 150), (4096, 4096, 4096), _SUMS, _flops_matmul),
        Case("softmax", _softmax, "out", _numpy_softmax, _launch_softmax,
             (37, 1000), (65536, 2048), Tolerance(relative=2e-5)),
        Case("layer_norm", _layer_norm, "out", _numpy_layer_norm, _launch_layer_norm,
             (37, 1000), (65536, 2048), _SUMS),
        Case("nbody", _nbody, "acceleration", _numpy_nbody, _launch_nbody,
             (600,), (65536,), Tolerance(relative=1e-3, absolute=1e-2), _flops_nbody),
        Case("stencil", _stencil, "out", _numpy_stencil, _launch_stencil,
             (70, 130), (16384, 16384), _FLOAT),
        Case("histogram", _histogram, "counts", _numpy_histogram, _launch_histogram,
             (50_021,), (1 << 28,)),
        Case("reduction", _reduction, "total", _numpy_reduction, _launch_reduction,
             (100_003,), (1 << 28,), Tolerance(relative=1e-5)),
        # Near the border of the set, one rounding decides how soon a point leaves.
        Case("mandelbrot", _mandelbrot, "steps", _numpy_mandelbrot, _launch_mandelbrot,
             (96, 128, 200), (4096, 6144, 1000), Tolerance(share=0.02)),
        Case("flash_attention", _flash_attention, "out", _numpy_flash_attention,
             _launch_flash_attention, (2, 100), (32, 4096), _FLOAT, _flops_flash_attention),
    )
}
# fmt: on
