"""`kernelmill test` makes the build for this machine importable under its own name."""

import img2gray
import pytest
import torch

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def expected(image):
    wide = image.to(torch.int32)
    return ((77 * wide[..., 0] + 150 * wide[..., 1] + 29 * wide[..., 2] + 128) >> 8).to(torch.uint8)


def drawn(*shape, device="cpu"):
    return torch.randint(
        0, 256, (*shape, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    ).to(device)


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (7, 33), (64, 64), (101, 257)])
def test_values(device, shape):
    image = drawn(*shape, device=device)
    assert torch.equal(img2gray.img2gray(image), expected(image))


def test_a_view_that_is_not_contiguous(device):
    image = drawn(40, 50, device=device)[::2, 5:]
    assert torch.equal(img2gray.img2gray(image), expected(image))


def test_what_is_refused(device):
    with pytest.raises(ValueError, match="takes a"):
        img2gray.img2gray(torch.zeros(4, 4, device=device))


def test_under_compile(device):
    image = drawn(8, 16, device=device)
    compiled = torch.compile(img2gray.img2gray, fullgraph=True, backend="eager")
    assert torch.equal(compiled(image), expected(image))


def test_the_operator_keeps_the_rules_of_torch(device):
    image = drawn(8, 16, device=device)
    grey = torch.empty(8, 16, dtype=torch.uint8, device=device)
    torch.library.opcheck(img2gray._ops.ops.img2gray.default, (image, grey))


def test_an_error_of_the_operator_is_an_exception(device):
    with pytest.raises(RuntimeError, match="uint8 only"):
        img2gray._ops.ops.img2gray(drawn(2, 2, device=device), torch.empty(2, 2, device=device))
