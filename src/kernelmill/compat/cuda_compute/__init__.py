"""NVIDIA's `cuda.compute` on kernelmill: the same names and signatures, on NumPy arrays too.

A program that was written for it runs with one changed import::

    from kernelmill.compat import cuda_compute as cuda_compute

Arrays in the memory of a GPU are computed with there, NumPy arrays on the current device. What it
has beyond `cuda.compute`, and what it lacks, stands in docs/how-to/move-from-cuda-compute.md.
"""

from kernelmill.compat.cuda_compute import algorithms, iterators, op, struct, types, typing
from kernelmill.compat.cuda_compute.algorithm import clear_all_caches
from kernelmill.compat.cuda_compute.algorithms import (
    binary_transform,
    deserialize,
    exclusive_scan,
    histogram_even,
    inclusive_scan,
    lower_bound,
    make_binary_transform,
    make_exclusive_scan,
    make_histogram_even,
    make_inclusive_scan,
    make_lower_bound,
    make_reduce_into,
    make_segmented_reduce,
    make_select,
    make_three_way_partition,
    make_unary_transform,
    make_unique_by_key,
    make_upper_bound,
    reduce_into,
    segmented_reduce,
    select,
    serialize,
    three_way_partition,
    unary_transform,
    unique_by_key,
    upper_bound,
)
from kernelmill.compat.cuda_compute.determinism import Determinism
from kernelmill.compat.cuda_compute.iterators import (
    CacheModifiedInputIterator,
    ConstantIterator,
    CountingIterator,
    DiscardIterator,
    PermutationIterator,
    ReverseIterator,
    ShuffleIterator,
    TransformIterator,
    TransformOutputIterator,
    ZipIterator,
)
from kernelmill.compat.cuda_compute.op import OpKind
from kernelmill.compat.cuda_compute.proxies import ProxyArray, ProxyValue
from kernelmill.compat.cuda_compute.struct import gpu_struct

__all__ = [
    "CacheModifiedInputIterator",
    "ConstantIterator",
    "CountingIterator",
    "Determinism",
    "DiscardIterator",
    "OpKind",
    "PermutationIterator",
    "ProxyArray",
    "ProxyValue",
    "ReverseIterator",
    "ShuffleIterator",
    "TransformIterator",
    "TransformOutputIterator",
    "ZipIterator",
    "algorithms",
    "binary_transform",
    "clear_all_caches",
    "deserialize",
    "exclusive_scan",
    "gpu_struct",
    "histogram_even",
    "inclusive_scan",
    "iterators",
    "lower_bound",
    "make_binary_transform",
    "make_exclusive_scan",
    "make_histogram_even",
    "make_inclusive_scan",
    "make_lower_bound",
    "make_reduce_into",
    "make_segmented_reduce",
    "make_select",
    "make_three_way_partition",
    "make_unary_transform",
    "make_unique_by_key",
    "make_upper_bound",
    "op",
    "reduce_into",
    "segmented_reduce",
    "select",
    "serialize",
    "struct",
    "three_way_partition",
    "types",
    "typing",
    "unary_transform",
    "unique_by_key",
    "upper_bound",
]
