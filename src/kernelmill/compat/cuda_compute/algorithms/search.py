"""`lower_bound` and `upper_bound`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kernelmill.algorithms import search
from kernelmill.compat.cuda_compute import elements
from kernelmill.compat.cuda_compute.algorithm import Algorithm, kept, ordered_on
from kernelmill.compat.cuda_compute.op import OpKind, operator_for
from kernelmill.dtypes import DType, int64

__all__ = ["lower_bound", "make_lower_bound", "make_upper_bound", "upper_bound"]


@dataclass(frozen=True, slots=True)
class LowerBound(Algorithm):
    """The first place of each value in sorted data."""

    tag: ClassVar[str] = "lower_bound"

    def __call__(
        self,
        *,
        d_data: Any,
        num_items: int,
        d_values: Any,
        num_values: int,
        d_out: Any,
        comp: Any,
        stream: Any = None,
    ) -> None:
        """Run it; there is no workspace."""
        if not num_values:
            return
        found = elements.type_of(d_data)
        less = None if comp in (None, OpKind.LESS) else operator_for(comp, (found, found))
        with ordered_on(stream, d_data, d_values, d_out):
            bound = search.lower_bound if self.tag == "lower_bound" else search.upper_bound
            places = bound(
                elements.reading(d_data, num_items),
                elements.reading(d_values, num_values, found),
                less,
            )
            elements.store(places, d_out, num_values, int64)


@dataclass(frozen=True, slots=True)
class UpperBound(LowerBound):
    """The place behind the last one of each value in sorted data."""

    tag: ClassVar[str] = "upper_bound"


def _check_places(d_out: Any) -> None:
    found = elements.type_of(d_out)
    if not isinstance(found, DType) or found.kind != "uint":
        raise TypeError(f"d_out is of {found}; places are of an unsigned integer type")
    if found.itemsize != int64.itemsize:
        raise ValueError(f"d_out is of {found}; places are of a pointer-sized type, as np.uintp")


def make_lower_bound(
    *,
    d_data: Any,
    d_values: Any,
    d_out: Any,
    comp: Any = None,
    compute_capability: Any = None,
) -> Any:
    """Return `lower_bound` for arguments like these."""
    del compute_capability  # kernels are compiled for the device that runs them
    _check_places(d_out)
    return kept(LowerBound, d_data, d_values, d_out, comp)


def make_upper_bound(
    *,
    d_data: Any,
    d_values: Any,
    d_out: Any,
    comp: Any = None,
    compute_capability: Any = None,
) -> Any:
    """Return `upper_bound` for arguments like these."""
    del compute_capability
    _check_places(d_out)
    return kept(UpperBound, d_data, d_values, d_out, comp)


def lower_bound(
    *,
    d_data: Any,
    num_items: int,
    d_values: Any,
    num_values: int,
    d_out: Any,
    comp: Any = None,
    stream: Any = None,
) -> None:
    """Write where each value would go first in data that `comp` has sorted.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> places = np.zeros(2, np.uintp)
    >>> cc.lower_bound(d_data=np.array([1, 3, 3, 7]), num_items=4, d_values=np.array([3, 8]),
    ...                num_values=2, d_out=places)
    >>> places
    array([1, 4], dtype=uint64)
    """
    make_lower_bound(d_data=d_data, d_values=d_values, d_out=d_out, comp=comp)(
        d_data=d_data,
        num_items=num_items,
        d_values=d_values,
        num_values=num_values,
        d_out=d_out,
        comp=comp,
        stream=stream,
    )


def upper_bound(
    *,
    d_data: Any,
    num_items: int,
    d_values: Any,
    num_values: int,
    d_out: Any,
    comp: Any = None,
    stream: Any = None,
) -> None:
    """Write where each value would go last in data that `comp` has sorted.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> places = np.zeros(2, np.uintp)
    >>> cc.upper_bound(d_data=np.array([1, 3, 3, 7]), num_items=4, d_values=np.array([3, 8]),
    ...                num_values=2, d_out=places)
    >>> places
    array([3, 4], dtype=uint64)
    """
    make_upper_bound(d_data=d_data, d_values=d_values, d_out=d_out, comp=comp)(
        d_data=d_data,
        num_items=num_items,
        d_values=d_values,
        num_values=num_values,
        d_out=d_out,
        comp=comp,
        stream=stream,
    )
