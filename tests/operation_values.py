"""Every operation on every type, and what its values should be: the same for each device.

How a device computes them is in the tests of that device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import oracle
import printed_operations as printed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

OPERATIONS = printed.operations()
BY_NAME = {name: [o for o in OPERATIONS if o.op == name] for name in {o.op: 0 for o in OPERATIONS}}
INDEX = {operation: i for i, operation in enumerate(OPERATIONS)}


def check(
    name: str, extra: int, compute: Callable[[int, list[Any], np.dtype[Any]], Iterable[Any]]
) -> None:
    """Compare an operation on all its types with the oracle, bit for bit.

    `compute` takes the number of the operation, its arguments and the type of its results; each is
    tried on special values and `extra` random ones.
    """
    for operation in BY_NAME[name]:
        index = INDEX[operation]
        args = printed.operands(operation, index, extra)
        results = compute(index, args, printed.numpy_of(operation.result))
        with np.errstate(all="ignore"):
            for values, got in zip(zip(*args, strict=True), results, strict=True):
                if name == "cast":
                    wanted = oracle.convert(values[0], operation.result)
                else:
                    wanted = oracle.apply(name, values)
                assert oracle.same_bits(wanted, got), (str(operation), values, wanted, got)


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Equal to the bit, with all NaNs equal."""
    bits = np.dtype(f"u{a.itemsize}")
    equal = a.view(bits) == b.view(bits)
    return equal | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else equal
