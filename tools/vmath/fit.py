"""Fits near-minimax polynomials and splits constants, in 50 digits; writes no C++ text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import mpmath as mp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

mp.mp.dps = 50

Real: TypeAlias = Any
"""An mpmath number; mpmath is not annotated."""
NODES = 44
"""Chebyshev nodes of every fit: more than any polynomial here has coefficients."""


def smooth(function: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """Return `function` with a removable singularity at 0 filled in by a nearby value."""
    near = mp.mpf("1e-12")
    return lambda x: function(x if abs(x) > near else near)


def chebyshev_series(function: Callable[[Real], Real], low: Real, high: Real) -> list[Real]:
    """Return the Chebyshev coefficients of `function` on [low, high]."""
    middle, half = (low + high) / 2, (high - low) / 2
    angles = [mp.pi * (mp.mpf(k) + 0.5) / NODES for k in range(NODES)]
    values = [function(middle + half * mp.cos(angle)) for angle in angles]
    series = []
    for j in range(NODES):
        total = mp.fsum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=True))
        series.append(total * (2 if j else 1) / NODES)
    return series


def to_powers(series: list[Real], low: Real, high: Real) -> list[Real]:
    """Turn a Chebyshev series on [low, high] into coefficients of 1, x, x^2, ..."""
    scale, shift = 2 / (high - low), -(high + low) / (high - low)
    before: list[Real] = [mp.mpf(1)]
    here: list[Real] = [shift, scale]
    powers = [mp.mpf(0)] * len(series)
    for j, weight in enumerate(series):
        term = before if j == 0 else here
        for i, value in enumerate(term):
            powers[i] += weight * value
        if j:
            following = [mp.mpf(0)] * (len(here) + 1)
            for i, value in enumerate(here):
                following[i] += 2 * shift * value
                following[i + 1] += 2 * scale * value
            for i, value in enumerate(before):
                following[i] -= value
            before, here = here, following
    return powers


def fit(function: Callable[[Real], Real], low: Real, high: Real, tolerance: Real) -> list[Real]:
    """Return the shortest Chebyshev fit (lowest power first) within `tolerance` (absolute).

    Example: ``fit(mp.exp, mp.mpf(-1), mp.mpf(1), mp.mpf(2) ** -24)`` has 8 coefficients.
    """
    low, high = mp.mpf(low), mp.mpf(high)
    series = chebyshev_series(smooth(function), low, high)
    count, rest = NODES, mp.mpf(0)
    while count > 1 and rest + abs(series[count - 1]) <= tolerance:
        count -= 1
        rest += abs(series[count])
    if count > NODES - 4:
        raise ValueError(
            f"a fit within {mp.nstr(tolerance, 3)} on [{low}, {high}] needs > {NODES - 4} terms"
        )
    return to_powers(series[:count], low, high)


def split(value: Real, widths: Iterable[int]) -> list[Real]:
    """Split `value` into parts: one of each width in bits, then what is left."""
    parts: list[Real] = []
    for bits in widths:
        grid = mp.mpf(2) ** (bits - 1 - mp.floor(mp.log(abs(value), 2)))
        part = mp.nint(value * grid) / grid
        parts.append(part)
        value -= part
    return [*parts, value]


def two_over_pi_digits(count: int) -> int:
    """Return the first `count` binary digits of 2/pi after the point."""
    with mp.workprec(count + 64):
        return int(mp.floor(mp.ldexp(2 / mp.pi, count)))
