"""`histogram_even`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelmill.algorithms import histogram
from kernelmill.algorithms.transform import transform
from kernelmill.compat.cuda_compute import elements
from kernelmill.compat.cuda_compute.algorithm import (
    WORKSPACE,
    Algorithm,
    check_stream,
    kept,
    ordered_on,
)
from kernelmill.dtypes import int64

__all__ = ["histogram_even", "make_histogram_even"]


@dataclass(frozen=True, slots=True)
class HistogramEven(Algorithm):
    """How many samples lie in each of the bins between two levels."""

    tag: ClassVar[str] = "histogram_even"

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_samples: Any,
        d_histogram: Any,
        h_num_output_levels: Any,
        h_lower_level: Any,
        h_upper_level: Any,
        num_samples: int,
        stream: Any = None,
    ) -> int:
        """Run it, or return the size of the workspace in bytes where `temp_storage` is None."""
        check_stream(stream)
        if temp_storage is not None:
            bins = int(np.asarray(h_num_output_levels).reshape(-1)[0]) - 1
            low, high = (
                np.asarray(v).reshape(-1)[0].item() for v in (h_lower_level, h_upper_level)
            )
            with ordered_on(stream, d_samples, d_histogram):
                counts = histogram.histogram_even(
                    elements.reading(d_samples, num_samples), bins, low, high
                )
                transform(counts, lambda v: v, out=elements.writing(d_histogram, bins, int64))
        return WORKSPACE


def make_histogram_even(
    *,
    d_samples: Any,
    d_histogram: Any,
    h_num_output_levels: Any,
    h_lower_level: Any,
    h_upper_level: Any,
    num_samples: int,
    compute_capability: Any = None,
) -> Any:
    """Return `histogram_even` for arguments like these.

    Raises
    ------
    TypeError
        The two levels are of different types.
    """
    del compute_capability, num_samples  # kernels are compiled for the device that runs them
    lower, upper = (elements.type_of(level) for level in (h_lower_level, h_upper_level))
    if lower != upper:
        raise TypeError(
            f"h_lower_level is of {lower} and h_upper_level of {upper}; they must have the same "
            "dtype"
        )
    levels = (h_num_output_levels, h_lower_level, h_upper_level)
    return kept(HistogramEven, d_samples, d_histogram, *levels)


def histogram_even(
    *,
    d_samples: Any,
    d_histogram: Any,
    num_output_levels: int,
    lower_level: Any,
    upper_level: Any,
    num_samples: int,
    stream: Any = None,
) -> None:
    """Count samples in `num_output_levels - 1` bins of one width between two levels.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat import cuda_compute as cc
    >>> counts = np.zeros(3, np.int32)
    >>> cc.histogram_even(d_samples=np.array([0.5, 1.5, 1.7, 9]), d_histogram=counts,
    ...                   num_output_levels=4, lower_level=np.float64(0),
    ...                   upper_level=np.float64(3), num_samples=4)
    >>> counts
    array([1, 2, 0], dtype=int32)
    """
    HistogramEven()(
        temp_storage=b"",
        d_samples=d_samples,
        d_histogram=d_histogram,
        h_num_output_levels=num_output_levels,
        h_lower_level=lower_level,
        h_upper_level=upper_level,
        num_samples=num_samples,
        stream=stream,
    )
