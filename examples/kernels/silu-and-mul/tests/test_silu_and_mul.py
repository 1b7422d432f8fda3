import pytest
import torch
from silu_and_mul import silu_and_mul

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(2,), (3, 8), (2, 5, 254), (0, 4)])
def test_values(device, shape):
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 4).to(device)
    gate, value = x.chunk(2, dim=-1)
    torch.testing.assert_close(silu_and_mul(x), torch.nn.functional.silu(gate) * value)


def test_what_is_refused():
    with pytest.raises(ValueError, match="even last axis"):
        silu_and_mul(torch.zeros(3))
    with pytest.raises(ValueError, match="takes float32"):
        silu_and_mul(torch.zeros(4, dtype=torch.float64))


def test_under_compile():
    x = torch.randn(3, 8)
    compiled = torch.compile(silu_and_mul, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), silu_and_mul(x))
