"""`inclusive_scan` and `exclusive_scan`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kernelmill.algorithms import scan as scans
from kernelmill.compat.cuda_compute import elements
from kernelmill.compat.cuda_compute.algorithm import (
    WORKSPACE,
    Algorithm,
    check_stream,
    kept,
    ordered_on,
)
from kernelmill.compat.cuda_compute.op import operator_for

__all__ = ["exclusive_scan", "inclusive_scan", "make_exclusive_scan", "make_inclusive_scan"]


@dataclass(frozen=True, slots=True)
class InclusiveScan(Algorithm):
    """`d_out[i] = init op d_in[0] op … op d_in[i]`."""

    tag: ClassVar[str] = "inclusive_scan"

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        op: Any,
        init_value: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Run it, or return the size of the workspace in bytes where `temp_storage` is None."""
        check_stream(stream)
        if temp_storage is not None and num_items:
            with ordered_on(stream, d_in, d_out):
                self._run(d_in, d_out, op, init_value, num_items)
        return WORKSPACE

    def _run(self, d_in: Any, d_out: Any, op: Any, init_value: Any, count: int) -> None:
        value = elements.type_of(d_in if init_value is None else init_value)
        scan = scans.inclusive_scan if self.tag == "inclusive_scan" else scans.exclusive_scan
        given = elements.reading(d_in, count, value)
        operator = operator_for(op, (value, value), value)
        init = None if init_value is None else elements.initial(init_value)
        scan(given, operator, init=init, out=elements.writing(d_out, count, value))


@dataclass(frozen=True, slots=True)
class ExclusiveScan(InclusiveScan):
    """`d_out[i] = init op d_in[0] op … op d_in[i - 1]`."""

    tag: ClassVar[str] = "exclusive_scan"


def make_inclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any = None, compute_capability: Any = None
) -> Any:
    """Return `inclusive_scan` for arguments like these."""
    del compute_capability  # kernels are compiled for the device that runs them
    return kept(InclusiveScan, d_in, d_out, op, init_value)


def make_exclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any, compute_capability: Any = None
) -> Any:
    """Return `exclusive_scan` for arguments like these.

    Raises
    ------
    ValueError
        There is no `init_value`, which would be the first result.
    """
    del compute_capability
    if init_value is None:
        raise ValueError("Exclusive scan with No init value is not supported")
    return kept(ExclusiveScan, d_in, d_out, op, init_value)


def inclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any = None, num_items: int, stream: Any = None
) -> None:
    """Write what `op` makes of the elements up to each one, itself included.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> x = np.arange(4)
    >>> cc.inclusive_scan(d_in=x, d_out=x, op=cc.OpKind.PLUS, num_items=4)
    >>> x
    array([0, 1, 3, 6])
    """
    made = make_inclusive_scan(d_in=d_in, d_out=d_out, op=op, init_value=init_value)
    made(
        temp_storage=b"",
        d_in=d_in,
        d_out=d_out,
        op=op,
        init_value=init_value,
        num_items=num_items,
        stream=stream,
    )


def exclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any, num_items: int, stream: Any = None
) -> None:
    """Write what `op` makes of `init_value` and the elements before each one.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> x = np.arange(4)
    >>> cc.exclusive_scan(d_in=x, d_out=x, op=cc.OpKind.PLUS, init_value=np.int64(5), num_items=4)
    >>> x
    array([5, 5, 6, 8])
    """
    made = make_exclusive_scan(d_in=d_in, d_out=d_out, op=op, init_value=init_value)
    made(
        temp_storage=b"",
        d_in=d_in,
        d_out=d_out,
        op=op,
        init_value=init_value,
        num_items=num_items,
        stream=stream,
    )
