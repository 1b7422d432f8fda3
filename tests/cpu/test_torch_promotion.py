"""Operators on torch tensors promote as torch does; the peer is torch itself."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import kernelmill as km

TYPES = (torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64,
         torch.float16, torch.bfloat16, torch.float32, torch.float64)  # fmt: skip


def ones(dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(3, dtype=dtype)


def test_products_have_the_types_of_torch():
    for a, b in itertools.combinations_with_replacement(TYPES, 2):
        found = km.transform((ones(a), ones(b)), lambda x, y: x * y)
        assert found.dtype == torch.result_type(ones(a), ones(b)), (a, b)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float16])
def test_division_functions_and_python_scalars_have_the_types_of_torch(dtype):
    x = ones(dtype)
    found = km.transform(x, lambda v: (v / v, math.exp(v), v + 1.5, v * 2))
    expected = (x / x, torch.exp(x), x + 1.5, x * 2)
    assert [f.dtype for f in found] == [e.dtype for e in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours.double(), theirs.double(), rtol=1e-3)


def test_the_same_operator_on_numpy_arrays_keeps_numpys_rules():
    def product(x, y):
        return x * y

    tensors = km.transform((ones(torch.float32), ones(torch.int64)), product)
    arrays = km.transform((np.ones(3, np.float32), np.ones(3, np.int64)), product)
    assert (tensors.dtype, arrays.dtype) == (torch.float32, np.float64)


def test_transform_reduce_follows_too():
    x, y = ones(torch.float32), ones(torch.int64)
    assert km.transform_reduce((x, y), lambda a, b: a * b).dtype == torch.float32
