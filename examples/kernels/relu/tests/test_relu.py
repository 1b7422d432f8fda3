import math

import pytest
import relu
import torch

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (3, 5, 11), (1024,), (2, 4097)])
def test_values(device, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(device)
    assert torch.equal(relu.relu(x), torch.relu(x))


@pytest.mark.parametrize("device", DEVICES)
def test_nan_and_zeros(device):
    x = torch.tensor([math.nan, -0.0, math.inf, -math.inf], device=device)
    found = relu.relu(x).tolist()
    assert math.isnan(found[0])
    assert found[1:] == [0.0, math.inf, 0.0]


def test_a_result_of_ones_own():
    x, out = torch.tensor([-1.0, 2.0]), torch.empty(2)
    assert relu.relu(x, out) is out
    assert out.tolist() == [0.0, 2.0]


def test_what_is_refused():
    with pytest.raises(TypeError, match="takes float32, not torch.float64"):
        relu.relu(torch.zeros(2, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="another size"):
        relu.relu(torch.zeros(2), torch.zeros(3))


@pytest.mark.parametrize("device", DEVICES)
def test_the_operator_keeps_the_rules_of_torch(device):
    arguments = (torch.empty(8, device=device), torch.randn(8, device=device))
    torch.library.opcheck(relu._ops.ops.relu.default, arguments)


def test_the_layer():
    x = torch.randn(4, 8)
    assert torch.equal(relu.layers.ReLU()(x), torch.relu(x))
