"""The reduction tree of docs/reference/reduction-tree.md, run from the page on any array.

The elements of a sequence are arrays over the kept indices, so that one run of the definition gives
all results of a reduction along axes; NumPy's ufuncs are the operators.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DOCUMENT = Path(__file__).parents[1] / "docs/reference/reduction-tree.md"
CHUNK = 16384


def _definition() -> dict[str, Any]:
    space: dict[str, Any] = {}
    for text in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        exec(text, space)
    return space


_SPACE = _definition()
tree, scan_tree = _SPACE["reduce"], _SPACE["scan"]


def sequence(
    x: np.ndarray, axes: Sequence[int], *, commutative: bool, like: Sequence[np.ndarray] = ()
) -> list[np.ndarray]:
    """The elements of a reduction in order: arrays (or scalars) over the kept axes.

    `like` are the inputs that `x` was computed from, whose memory order counts.
    """
    given = list(like) or [x]
    axes = sorted(axes)
    if commutative:
        axes = sorted(
            axes, key=lambda a: tuple(-abs(g.strides[a]) if g.shape[a] != 1 else 0 for g in given)
        )
    kept = [a for a in range(x.ndim) if a not in axes]
    moved = np.ascontiguousarray(x.transpose([*axes, *kept]))
    return list(moved.reshape(-1, *(x.shape[a] for a in kept)))


def reduced(
    x: np.ndarray,
    op: Callable[[Any, Any], Any],
    *,
    axis: int | Sequence[int] | None = None,
    commutative: bool = True,
    init: Any = None,
    accumulator: Any = None,
    like: Sequence[np.ndarray] = (),
) -> Any:
    """Reduce as the page says; `accumulator` is the dtype to convert elements to."""
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis) % x.ndim
    found = x if accumulator is None else x.astype(accumulator)
    elements = sequence(found, [int(a) for a in axes], commutative=commutative, like=like or [x])
    with np.errstate(all="ignore"):
        return tree(
            elements,
            op,
            commutative=commutative,
            accumulator_bytes=found.dtype.itemsize,
            init=init,
        )
