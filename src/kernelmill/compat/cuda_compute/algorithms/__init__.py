"""The algorithms of `cuda.compute`, one file for each of kernelmill's families."""

from kernelmill.compat.cuda_compute.algorithm import deserialize, serialize
from kernelmill.compat.cuda_compute.algorithms.histogram import histogram_even, make_histogram_even
from kernelmill.compat.cuda_compute.algorithms.reduce import (
    make_reduce_into,
    make_segmented_reduce,
    reduce_into,
    segmented_reduce,
)
from kernelmill.compat.cuda_compute.algorithms.scan import (
    exclusive_scan,
    inclusive_scan,
    make_exclusive_scan,
    make_inclusive_scan,
)
from kernelmill.compat.cuda_compute.algorithms.search import (
    lower_bound,
    make_lower_bound,
    make_upper_bound,
    upper_bound,
)
from kernelmill.compat.cuda_compute.algorithms.select import (
    make_select,
    make_three_way_partition,
    make_unique_by_key,
    select,
    three_way_partition,
    unique_by_key,
)
from kernelmill.compat.cuda_compute.algorithms.sort import (
    DoubleBuffer,
    SortOrder,
    make_merge_sort,
    make_radix_sort,
    make_segmented_sort,
    merge_sort,
    radix_sort,
    segmented_sort,
)
from kernelmill.compat.cuda_compute.algorithms.transform import (
    binary_transform,
    make_binary_transform,
    make_unary_transform,
    unary_transform,
)

__all__ = [
    "DoubleBuffer",
    "SortOrder",
    "binary_transform",
    "deserialize",
    "exclusive_scan",
    "histogram_even",
    "inclusive_scan",
    "lower_bound",
    "make_binary_transform",
    "make_exclusive_scan",
    "make_histogram_even",
    "make_inclusive_scan",
    "make_lower_bound",
    "make_merge_sort",
    "make_radix_sort",
    "make_reduce_into",
    "make_segmented_reduce",
    "make_segmented_sort",
    "make_select",
    "make_three_way_partition",
    "make_unary_transform",
    "make_unique_by_key",
    "make_upper_bound",
    "merge_sort",
    "radix_sort",
    "reduce_into",
    "segmented_reduce",
    "segmented_sort",
    "select",
    "serialize",
    "three_way_partition",
    "unary_transform",
    "unique_by_key",
    "upper_bound",
]
