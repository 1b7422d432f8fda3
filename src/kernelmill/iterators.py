"""The public names of iterators: `km.iterators`. What they are is in `algorithms/iterators.py`."""

from __future__ import annotations

from kernelmill.algorithms.iterators import (
    cache_modified,
    constant,
    counting,
    discard,
    permutation,
    reverse,
    shuffle,
    strided,
    tabulate,
    transform,
    transform_output,
    zip,  # noqa: A004 - the name that the field has for it
)

__all__ = [
    "cache_modified",
    "constant",
    "counting",
    "discard",
    "permutation",
    "reverse",
    "shuffle",
    "strided",
    "tabulate",
    "transform",
    "transform_output",
    "zip",
]
