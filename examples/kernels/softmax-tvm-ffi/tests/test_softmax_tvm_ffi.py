import numpy as np
import pytest
from softmax_tvm_ffi import softmax


def expected(x):
    powers = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 32), (2, 1000), (0, 4)])
def test_values(shape):
    x = (np.random.default_rng(1).standard_normal(shape) * 5).astype(np.float32)
    np.testing.assert_allclose(
        softmax(x, np.empty_like(x)), expected(x) if x.size else x, rtol=1e-5
    )


def test_a_tensor_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.randn(4, 9)
    torch.testing.assert_close(softmax(x, torch.empty_like(x)), torch.softmax(x, dim=-1))


def test_what_is_refused():
    with pytest.raises(TypeError, match="float32 only"):
        softmax(np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="shape of the argument"):
        softmax(np.zeros((2, 2), np.float32), np.zeros((2, 3), np.float32))
