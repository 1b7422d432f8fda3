"""Layers from registries, locks and directories, on a real torch model: ours beside the real ones."""

from __future__ import annotations

import importlib
import logging
from types import SimpleNamespace

import pytest

import kernelmill.compat.kernels as shim
from hub_clients import clean, served  # noqa: F401 - fixtures
from kernelmill.config import override
from kernelmill.package import layers
from kernelmill.package.dependencies import read_dependencies
from kernelmill.package.lock_make import make_lock, write_lock
from kernelmill.package.registry_hub import HubRegistry
from published_kernels import release, variant_files

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("kernels")
nn, functional = torch.nn, torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:Use .content=:DeprecationWarning")

CODE = """
import torch
from . import layers

def silu_and_mul(x):
    d = x.shape[-1] // 2
    return torch.nn.functional.silu(x[..., :d]) * x[..., d:] + {extra}

def answer():
    return {extra}
"""
LAYERS = """
import torch

class RMSNorm(torch.nn.Module):
    can_torch_compile = True

    def forward(self, hidden_states):
        x = hidden_states.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * x.to(hidden_states.dtype)

class SiluAndMul(torch.nn.Module):
    can_torch_compile = True

    def forward(self, x):
        d = x.shape[-1] // 2
        return torch.nn.functional.silu(x[..., :d]) * x[..., d:] + {extra}
"""


def kernel_files(extra):
    return {
        "__init__.py": CODE.replace("{extra}", str(extra)),
        "layers.py": LAYERS.replace("{extra}", str(extra)),
    }


@pytest.fixture
def world(served, tmp_path, caplog):  # noqa: F811
    caplog.set_level(logging.CRITICAL)
    inner = served.service.registry
    release(inner, "org/act", "1.0.0", files=kernel_files(10))
    release(inner, "org/act", "2.0.0", files=kernel_files(20))
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"org/act" = 1\n')
    write_lock(project, make_lock(HubRegistry(served.endpoint), read_dependencies(project)))
    local = tmp_path / "local" / "build" / "torch-universal"
    local.mkdir(parents=True)
    for path, body in variant_files("act-local", "1.0.0", files=kernel_files(30)).items():
        (local / path).write_bytes(body)
    layers._loaded.clear()
    layers._valid.clear()
    importlib.import_module("kernels.layer.layer")._CACHED_LAYER.clear()
    with override(hub_endpoint=served.endpoint, hub_cache=tmp_path / "our-cache"):
        yield SimpleNamespace(project=project, local=tmp_path / "local", server=served)


def repositories(one, world):
    lockfile = world.project / "kernels.lock"
    return {
        "version": (one.LayerRepository("org/act", layer_name="SiluAndMul", version=2), 20),
        "revision": (one.LayerRepository("org/act", layer_name="SiluAndMul", revision="v1"), 10),
        "local": (one.LocalLayerRepository(world.local, layer_name="SiluAndMul"), 30),
        "locked": (
            one.LockedLayerRepository("org/act", lockfile=lockfile, layer_name="SiluAndMul"), 10
        ),
        "function": (one.FuncRepository("org/act", func_name="silu_and_mul", version=2), 20),
        "local function": (one.LocalFuncRepository(world.local, func_name="silu_and_mul"), 30),
        "locked function": (
            one.LockedFuncRepository("org/act", lockfile=lockfile, func_name="silu_and_mul"), 10
        ),
    }  # fmt: skip


def a_model(one):
    @one.use_kernel_forward_from_hub("SiluAndMul")
    class SiluAndMul(nn.Module):
        def forward(self, x):
            d = x.shape[-1] // 2
            return functional.silu(x[..., :d]) * x[..., d:]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(8, 16)
            self.act = SiluAndMul()
            self.down = nn.Linear(8, 8)

        def forward(self, x):
            return x + self.down(self.act(self.up(x)))

    torch.manual_seed(3)
    return nn.Sequential(Block(), Block())


@pytest.mark.parametrize("which", ["version", "revision", "local", "locked", "function",
                                   "local function", "locked function"])  # fmt: skip
def test_each_kind_of_repository(world, which):
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    results = []
    for one in (shim, theirs):
        repository, extra = repositories(one, world)[which]
        model = a_model(one)
        plain = model[0].act(model[0].up(x))
        with one.use_kernel_mapping({"SiluAndMul": {"cpu": repository}}):
            one.kernelize(model, mode=one.Mode.INFERENCE, device="cpu", use_fallback=False)
        assert torch.equal(model[0].act(model[0].up(x)), plain + extra)
        results.append(model(x))
    assert torch.equal(*results)


def test_a_layer_with_the_state_of_the_module_it_serves(world):
    @shim.use_kernel_forward_from_hub("RMSNorm")
    class RMSNorm(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(0.5, 1.5, size))
            self.variance_epsilon = 1e-6

        def forward(self, hidden_states):
            raise AssertionError("not replaced")

    model = nn.Sequential(nn.Linear(8, 8), RMSNorm(8))
    repository = shim.LayerRepository("org/act", layer_name="RMSNorm", version=">=1,<2")
    with shim.use_kernel_mapping({"RMSNorm": {"cpu": {shim.Mode.TRAINING: repository}}}):
        shim.kernelize(model, mode=shim.Mode.TRAINING)
    x = torch.randn(4, 8)
    hidden = model[0](x)
    expected = functional.rms_norm(hidden, (8,), model[1].weight, 1e-6)
    torch.testing.assert_close(model(x), expected)
    model(x).sum().backward()
    assert model[1].weight.grad is not None
    assert model[0].weight.grad is not None


def test_nothing_is_asked_before_a_layer_is_needed(world):
    world.server.log.requests.clear()
    repository = shim.LayerRepository("org/act", layer_name="SiluAndMul", version=1)
    shim.register_kernel_mapping({"SiluAndMul": {"cuda": repository}})
    try:
        shim.kernelize(a_model(shim), mode=shim.Mode.INFERENCE)
        assert not world.server.log.requests
    finally:
        shim.register_kernel_mapping({}, inherit_mapping=False)


def test_fallbacks_where_there_is_no_such_kernel(world):
    for one in (shim, theirs):
        missing = one.LayerRepository("org/act", layer_name="Nothing", version=1)
        with one.use_kernel_mapping({"SiluAndMul": {"cpu": missing}}), pytest.raises(ValueError):
            one.kernelize(
                a_model(one), mode=one.Mode.INFERENCE, use_fallback=one.KernelizeFallback.ALL
            )
    absent = shim.LayerRepository("org/none", layer_name="SiluAndMul", version=1)
    model = a_model(shim)
    with shim.use_kernel_mapping({"SiluAndMul": {"cpu": absent}}):
        with pytest.raises(ValueError):
            shim.kernelize(model, mode=shim.Mode.INFERENCE)
        shim.kernelize(model, mode=shim.Mode.INFERENCE, use_fallback=shim.KernelizeFallback.ALL)
    assert model(torch.zeros(1, 8)).shape == (1, 8)


NORM = """
import torch

class LayerNorm(torch.nn.Module):
    can_torch_compile = True

    def forward(self, input):
        mean = input.mean(-1, keepdim=True)
        centred = input - mean
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)
        return centred * scale * self.weight + self.bias
"""


def test_the_norms_of_a_transformer(world, monkeypatch):
    """A class of torch itself gets a name; the whole encoder trains with kernels in it."""
    files = {"__init__.py": "from . import layers\n", "layers.py": NORM}
    release(world.server.service.registry, "org/norm", "1.0.0", files=files)
    monkeypatch.setattr(nn.LayerNorm, "kernel_layer_name", "LayerNorm", raising=False)
    monkeypatch.setattr(nn.LayerNorm, "kernel_condition", None, raising=False)
    results = []
    for one in (None, shim, theirs):
        torch.manual_seed(7)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        if one is not None:
            one.replace_kernel_forward_from_hub(
                nn.LayerNorm, "LayerNorm", condition=lambda m: m.elementwise_affine
            )
            repository = one.LayerRepository("org/norm", layer_name="LayerNorm", version=1)
            with one.use_kernel_mapping({"LayerNorm": {"cpu": repository}}):
                one.kernelize(model, mode=one.Mode.TRAINING, use_fallback=False)
            bound = [m for m in model.modules() if "forward" in vars(m)]
            assert len(bound) == 4
        x = torch.linspace(-1, 1, 3 * 5 * 16).reshape(3, 5, 16)
        out = model(x)
        out.square().sum().backward()
        results.append((out.detach(), [p.grad for p in model.parameters()]))
    plain, ours, other = results
    assert torch.equal(ours[0], other[0])
    torch.testing.assert_close(ours[0], plain[0], rtol=1e-5, atol=1e-5)
    for one, two in zip(ours[1], plain[1], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)
