"""GPU MODE's problems: what their data is, at which sizes, and when an output is right.

Stated again from the descriptions of the competition's second round of practice problems; how they
are timed is in `gpumode.py`, the contenders are in `gpumode_peers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import cuda_timing as timing

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PROBLEMS", "Problem", "Size"]

# The number of elements, or of rows; in a histogram the share of one value too, in percent.
Size: TypeAlias = tuple[int, ...]
_WEIGHTS: Final = (0.2989, 0.5870, 0.1140)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: `data` draws inputs and an output from a seed, `right` judges what came out."""

    name: str
    dtype: str
    sizes: tuple[Size, ...]
    data: Callable[[Size, int, str], tuple[Any, ...]]
    right: Callable[[tuple[Any, ...], Any], bool]

    def elements(self, size: Size) -> int:
        """Return how many elements a size has."""
        return {"vectoradd": size[0] ** 2, "grayscale": 3 * size[0] ** 2}.get(self.name, size[0])


def _random(seed: int, device: str) -> Any:
    return timing.torch().Generator(device).manual_seed(seed)


def _normal(shape: Size, seed: int, device: str, dtype: str = "float32") -> Any:
    t = timing.torch()
    kind = getattr(t, dtype)
    return t.randn(shape, generator=_random(seed, device), device=device, dtype=kind)


def _close(found: Any, wanted: Any, relative: float, absolute: float) -> bool:
    """Compare as NumPy's `allclose`, piece by piece, in the type of what is wanted."""
    t = timing.torch()
    pieces = zip(found.reshape(-1).split(_PIECE), wanted.reshape(-1).split(_PIECE), strict=True)
    return all(t.allclose(f.to(w.dtype), w, relative, absolute) for f, w in pieces)


_PIECE: Final = 1 << 26

# ----------------------------------------------------------------------------- problems


def _two_matrices(size: Size, seed: int, device: str) -> tuple[Any, ...]:
    a, b = (_normal((size[0], size[0]), seed + i, device, "float16") for i in range(2))
    return a, b, timing.torch().empty_like(a)


def _values(size: Size, seed: int, device: str) -> tuple[Any, ...]:
    x = _normal(size, seed, device)
    return x, timing.torch().empty_like(x)


def _values_to_add(size: Size, seed: int, device: str) -> tuple[Any, ...]:
    """Values of a scale and around a middle that the seed draws too."""
    t = timing.torch()
    scale, middle = t.rand(2, generator=_random(seed, "cpu")).tolist()
    x = _normal(size, seed, device) * (0.1 + 9.9 * scale) + (200 * middle - 100)
    return x, t.empty(1, device=device)


def _rows_of_values(size: Size, seed: int, device: str) -> tuple[Any, ...]:
    """Rows that are normal around `seed`, `seed + 1`, ..., one behind the other."""
    t = timing.torch()
    rows = int(size[0] ** 0.5)
    columns = -(-size[0] // rows)
    means = t.arange(seed, seed + rows, device=device, dtype=t.float32)
    x = (_normal((rows, columns), seed, device) + means[:, None]).reshape(-1)[: size[0]]
    return x.contiguous(), t.empty(size[0], device=device)


def _bytes(size: Size, seed: int, device: str) -> tuple[Any, ...]:
    """Any bytes, of which one takes the place of as many percent as the size says."""
    t = timing.torch()
    count, percent = size
    random = _random(seed, device)
    x = t.randint(0, 256, (count,), generator=random, device=device, dtype=t.uint8)
    often = t.rand(count, generator=random, device=device) < percent / 100
    return x.masked_fill_(often, seed % 256), t.empty(256, dtype=t.int64, device=device)


def _picture(size: Size, seed: int, device: str) -> tuple[Any, ...]:
    t = timing.torch()
    shape = (size[0], size[0], 3)
    x = t.rand(shape, generator=_random(seed, device), device=device)
    return x, t.empty(shape[:2], device=device)


def _gray(picture: Any) -> Any:
    return sum(w * picture[..., c].double() for c, w in enumerate(_WEIGHTS))


def _running(data: tuple[Any, ...], found: Any) -> bool:
    wide = 1e-5 * data[0].numel() ** 0.5
    return _close(found, data[0].double().cumsum(0), wide, wide)


_SQUARES: Final = tuple((1 << k,) for k in range(9, 15))
PROBLEMS: Final = (
    Problem("vectoradd", "float16", _SQUARES[1:], _two_matrices,
            lambda d, found: _close(found, d[0] + d[1], 1e-5, 1e-8)),
    Problem("vectorsum", "float32", tuple((1_638_400 << k,) for k in range(6)), _values_to_add,
            lambda d, found: _close(found, d[0].double().sum().reshape(1), 1e-5, 1e-8)),
    Problem("prefixsum", "float32", tuple((1 << k,) for k in range(18, 29)), _values, _running),
    Problem("sort", "float32", tuple((n,) for n in (10**5, 5 * 10**5, 10**6, 10**7, 10**8)),
            _rows_of_values, lambda d, found: _close(found, d[0].sort().values, 1e-5, 1e-8)),
    Problem("histogram", "uint8",
            ((1_310_720, 10), (2_621_440, 10), (2_621_440, 40), (2_621_440, 90), (5_242_880, 10),
             (10_485_760, 10)), _bytes,
            lambda d, found: bool((found == d[0].bincount(minlength=256)).all())),
    Problem("grayscale", "float32", _SQUARES, _picture,
            lambda d, found: _close(found, _gray(d[0]), 1e-4, 1e-4)),
)  # fmt: skip
