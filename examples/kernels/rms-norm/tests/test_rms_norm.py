import pytest
import torch
from rms_norm import rms_norm

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def drawn(*shape, device="cpu"):
    draw = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=draw).to(device).requires_grad_()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (2, 3, 64), (7, 1000)])
def test_values_and_gradients(device, shape):
    x, weight = drawn(*shape, device=device), drawn(shape[-1], device=device)
    expected = torch.nn.functional.rms_norm(x, shape[-1:], weight, 1e-6)
    found = rms_norm(x, weight)
    torch.testing.assert_close(found, expected)
    seed = torch.randn_like(found)
    wanted = torch.autograd.grad(expected, (x, weight), seed)
    given = torch.autograd.grad(found, (x, weight), seed)
    torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


def test_a_view():
    x, weight = drawn(6, 8), drawn(4)
    view = x[::2, 4:]
    torch.testing.assert_close(
        rms_norm(view, weight), torch.nn.functional.rms_norm(view, (4,), weight, 1e-6)
    )


def test_under_compile_with_its_gradient():
    x, weight = drawn(4, 16), drawn(16)
    compiled = torch.compile(rms_norm, fullgraph=True, backend="aot_eager")
    compiled(x, weight).sum().backward()
    wanted = torch.autograd.grad(rms_norm(x, weight).sum(), (x, weight))
    torch.testing.assert_close((x.grad, weight.grad), wanted)


def test_the_operator_keeps_the_rules_of_torch():
    import rms_norm as kernel

    torch.library.opcheck(kernel._rms_norm, (drawn(3, 8), drawn(8), 1e-6))


def test_what_is_refused():
    with pytest.raises(ValueError, match="one weight a column"):
        rms_norm(torch.zeros(2, 3), torch.zeros(4))
