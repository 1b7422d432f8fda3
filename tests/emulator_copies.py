"""The kernels of corpus/copies.cu as cases: the right ones with their values, the others by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator_kernels import CORPUS, X, aligned, zeros

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = (CORPUS / "copies.cu").read_text()
NUMBERS = aligned(X[:640])
# Arguments behind the two arrays.
ROUNDS = {"loads": 4, "reused_too_early": 4}
RIGHT: dict[str, Callable[[np.ndarray, int], Any]] = {
    "stores": lambda x, i: 2 * x[i],
    "stores_fenced_by_one": lambda x, i: 2 * x[i],
    "two_groups": lambda x, i: x[i],
    "loads": lambda x, i: x[63 - i] + x[127 - i] + x[191 - i] + x[255 - i],
    "load_after_fence": lambda x, i: x[i] if i < 32 else 0,
    "small_copies": lambda x, i: x[63 - i] + x[127 - i] + x[191 - i] + x[255 - i],
}
FAULTY = sorted(set(re.findall(r"//@(\w+)", TEXT)))


def lines_of(name: str) -> set[int]:
    """The lines that are marked with a name."""
    mark = re.compile(rf"//@{name}\b")
    return {n for n, line in enumerate(TEXT.splitlines(), 1) if mark.search(line)}


def arguments(name: str) -> list[Any]:
    rest = [ROUNDS[name]] if name in ROUNDS else []
    return [aligned(NUMBERS), aligned(zeros(640)), *rest]
