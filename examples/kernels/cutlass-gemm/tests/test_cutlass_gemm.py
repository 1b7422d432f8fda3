import pytest
import torch
from cutlass_gemm import gemm

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "sides", [(1, 1, 1), (3, 5, 7), (64, 64, 64), (33, 24, 40), (128, 129, 100), (2, 0, 3)]
)
def test_values(device, sides):
    m, k, n = sides
    draw = torch.Generator().manual_seed(1)
    a, b = (torch.randn(shape, generator=draw).half().to(device) for shape in ((m, k), (k, n)))
    torch.testing.assert_close(gemm(a, b), (a.float() @ b.float()).half(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 65504.0, 6e-8, -6e-5, float("inf"), 1e-3])
def test_every_kind_of_number_comes_through(value):
    a = torch.tensor([[value]]).half()
    assert torch.equal(gemm(a, torch.ones(1, 1).half()), a)


def test_rounding_is_that_of_torch():
    a = torch.randn(64, 2, generator=torch.Generator().manual_seed(2)).half()
    b = torch.tensor([[1.0], [2.0**-11]]).half()
    assert torch.equal(gemm(a, b), (a.float() @ b.float()).half())


def test_what_is_refused():
    with pytest.raises(ValueError, match="two matrices of float16"):
        gemm(torch.zeros(2, 2), torch.zeros(2, 2))
    with pytest.raises(RuntimeError, match="do not fit"):
        gemm(torch.zeros(2, 3).half(), torch.zeros(2, 2).half())
