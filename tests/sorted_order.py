"""What NumPy says the order of elements is, stable in both directions."""

from __future__ import annotations

import numpy as np


def order(x: np.ndarray, *, descending: bool = False) -> np.ndarray:
    """The places of sorted elements, equal ones in their order."""
    wide = x.astype("f4") if x.dtype.kind not in "?iufc" or x.dtype == "f2" else x
    if descending:
        return x.size - 1 - np.argsort(wide[::-1], kind="stable")[::-1]
    return np.argsort(wide, kind="stable")
