import pytest
import torch
from rope_triton import rope

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(1, 1, 2), (5, 3, 64), (7, 2, 96)])
def test_values(device, shape):
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=draw, dtype=torch.float64).to(device, torch.float32)
    angles = torch.rand(shape[0], shape[2] // 2, generator=draw).to(device)
    # The same rotation, written as a product of complex numbers.
    left, right = x.double().chunk(2, dim=-1)
    turned = (
        torch.complex(left, right) * torch.polar(torch.ones_like(angles), angles).cdouble()[:, None]
    )
    wanted = torch.cat((turned.real, turned.imag), dim=-1).float()
    torch.testing.assert_close(rope(x, angles.cos(), angles.sin()), wanted, rtol=1e-5, atol=1e-5)


def test_the_operator_keeps_the_rules_of_torch():
    import rope_triton

    cos, sin = torch.rand(3, 1, 4), torch.rand(3, 1, 4)
    torch.library.opcheck(rope_triton._rope, (torch.randn(3, 2, 8), cos, sin))


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"rope takes \(positions, heads, 2 \* d\)"):
        rope(torch.zeros(2, 3), torch.zeros(2, 1), torch.zeros(2, 1))
