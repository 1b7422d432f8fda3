"""Layers on real torch models, beside the real `kernels`: the same layers get the same forward."""

from __future__ import annotations

import inspect
import itertools
import logging

import pytest

from kernelmill.config import override
from kernelmill.errors import ArgumentError, IntegrityError, PackageError, TrustError
from kernelmill.package import layer_repositories, layers
from kernelmill.package.layer_kinds import SERVES, Device, KernelizeFallback, Mode

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("kernels")
theirs_layer = pytest.importorskip("kernels.layer.layer")
theirs_repos = pytest.importorskip("kernels.layer.repos")
theirs_globals = pytest.importorskip("kernels.layer.globals")
nn = torch.nn


@pytest.fixture(autouse=True)
def fresh(caplog):
    """No mapping and nothing loaded, on either side."""
    caplog.set_level(logging.CRITICAL)
    tokens = layers._mapping.set({}), theirs_globals._KERNEL_MAPPING.set({})
    layers._loaded.clear()
    layers._valid.clear()
    theirs_layer._CACHED_LAYER.clear()
    yield
    layers._mapping.reset(tokens[0])
    theirs_globals._KERNEL_MAPPING.reset(tokens[1])


class Fast(nn.Module):
    can_torch_compile = True

    def forward(self, x):
        return x + 1


class NoCompile(nn.Module):
    def forward(self, x):
        return x + 2


class NoBackward(nn.Module):
    has_backward = False
    can_torch_compile = True

    def forward(self, x):
        return x + 3


class Bare(nn.Module):
    has_backward = False

    def forward(self, x):
        return x + 4


class Repo:
    """Where a class comes from."""

    def __init__(self, layer, error=None):
        self.layer, self.error = layer, error

    def load(self):
        if self.error is not None:
            raise self.error
        return self.layer


def a_model(module):
    @module.use_kernel_forward_from_hub("Slow")
    class Slow(nn.Module):
        def forward(self, x):
            return x

    return nn.Sequential(nn.Linear(2, 2, bias=False), Slow())


def outcome(module, mapping, mode, fallback, device="cpu"):
    """What the named layer of a kernelized model adds to its input, or the kind of error."""
    flags = getattr(module, "KernelizeFallback", KernelizeFallback)
    modes = getattr(module, "Mode", Mode)
    own = {
        name: {
            device: {modes(m.value): repo for m, repo in row.items()}
            if isinstance(row, dict)
            else row
            for device, row in devices.items()
        }
        for name, devices in mapping.items()
    }
    try:
        model = a_model(module)
        with module.use_kernel_mapping(own):
            module.kernelize(
                model,
                mode=modes(mode.value),
                device=device,
                use_fallback=fallback if isinstance(fallback, bool) else flags(fallback.value),
            )
        return float(model[1](torch.zeros(1)))
    except (ValueError, TypeError, FileNotFoundError) as error:
        return next(k for k in (FileNotFoundError, TypeError, ValueError) if isinstance(error, k))


def both(mapping, mode, fallback=True, device="cpu"):
    ours = outcome(layers, mapping, mode, fallback, device)
    assert ours == outcome(theirs, mapping, mode, fallback, device)
    return ours


MODES = list(SERVES)
REGISTERED = [*MODES, Mode.FALLBACK]


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("layer", [Fast, NoCompile, NoBackward, Bare])
def test_every_mode_against_every_registration(mode, layer):
    seen = set()
    for count in (1, 2):
        for registered in itertools.combinations(REGISTERED, count):
            for fallback in (True, False):
                mapping = {"Slow": {"cpu": {m: Repo(layer) for m in registered}}}
                seen.add(both(mapping, mode, fallback))
    assert seen


def test_which_registration_is_taken():
    """Each mode maps to another layer, so the value tells which one was taken."""
    kinds = {
        mode: type(f"L{n}", (nn.Module,), {"can_torch_compile": True, "forward": _adds(n)})
        for n, mode in enumerate(REGISTERED, 10)
    }
    for mode in MODES:
        for count in range(1, len(REGISTERED) + 1):
            for registered in itertools.combinations(REGISTERED, count):
                both({"Slow": {"cpu": {m: Repo(kinds[m]) for m in registered}}}, mode)


def _adds(n):
    def forward(self, x):
        return x + n

    return forward


FALLBACKS = [True, False, *KernelizeFallback, KernelizeFallback.ALL, KernelizeFallback.DEFAULT]


@pytest.mark.parametrize("fallback", FALLBACKS, ids=str)
def test_each_fallback(fallback):
    infer = Mode.INFERENCE
    cases = [
        ({"Other": {"cpu": Repo(Fast)}}, infer),
        ({"Slow": {"cuda": Repo(Fast)}}, infer),
        ({"Slow": {"cpu": {Mode.TRAINING | Mode.TORCH_COMPILE: Repo(Fast)}}}, infer),
        ({"Slow": {"cpu": {infer: Repo(Fast)}}}, Mode.TRAINING),
        ({"Slow": {"cpu": Repo(NoBackward)}}, Mode.TRAINING),
        ({"Slow": {"cpu": Repo(NoCompile)}}, infer | Mode.TORCH_COMPILE),
        ({"Slow": {"cpu": Repo(None, FileNotFoundError("none"))}}, infer),
        ({"Slow": {"cpu": Repo(None, ValueError("none"))}}, infer),
    ]
    assert len({both(mapping, mode, fallback) for mapping, mode in cases}) > 1


def test_capabilities(monkeypatch):
    monkeypatch.setattr(layers, "_capability", lambda: now)
    monkeypatch.setattr(theirs_repos, "_find_capability", lambda: now)
    spans = {(75, 90): 10, (80, 80): 20, (86, 120): 30, None: 40}
    kinds = {
        span: type(f"L{n}", (nn.Module,), {"can_torch_compile": True, "forward": _adds(n)})
        for span, n in spans.items()
    }
    for count in range(1, 5):
        for chosen in itertools.combinations(spans, count):
            for now in (70, 75, 80, 86, 90, 100, 121):  # noqa: B007 - read by the stand-ins
                found = []
                for module in (layers, theirs):
                    kind, properties = theirs.Device, theirs.CUDAProperties
                    if module is layers:
                        kind, properties = Device, layers.CUDAProperties
                    row = {
                        kind("cuda", properties(*span) if span else None): Repo(kinds[span])
                        for span in chosen
                    }
                    found += [outcome_of(module, {"Slow": row}, f) for f in (True, False)]
                assert found[:2] == found[2:]


def outcome_of(module, mapping, fallback):
    modes = getattr(module, "Mode", Mode)
    model = a_model(module)
    try:
        with module.use_kernel_mapping(mapping):
            module.kernelize(model, mode=modes.INFERENCE, device="cuda", use_fallback=fallback)
    except ValueError:
        return ValueError
    return float(model[1](torch.zeros(1)))


def with_state():
    class State(nn.Module):
        def __init__(self):
            super().__init__()

        def forward(self, x):
            return x

    return State


def layer_of(**members):
    return type("Made", (nn.Module,), {"forward": _adds(1), **members})


BAD = {
    "no module": type("Plain", (), {"forward": _adds(1)}),
    "a constructor": with_state(),
    "a member": layer_of(extra=1),
    "a method": layer_of(call_me=lambda self: 1),
    "one argument more": layer_of(forward=lambda self, x, y: x),
    "keyword only": layer_of(forward=lambda self, *, x: x),
    "star": layer_of(forward=lambda self, *x: x),
}


@pytest.mark.parametrize("layer", BAD.values(), ids=BAD)
def test_layers_that_may_not_serve(layer):
    for fallback in (True, False, KernelizeFallback.ALL):
        assert both({"Slow": {"cpu": Repo(layer)}}, Mode.INFERENCE, fallback) is TypeError


def test_layers_that_may_serve():
    for layer in (
        layer_of(has_backward=False),
        layer_of(forward=lambda self, other_name: other_name + 1),
    ):
        assert both({"Slow": {"cpu": Repo(layer)}}, Mode.INFERENCE) == 1.0


def test_each_class_is_checked_though_the_layer_is_loaded_once():
    """Theirs checks a layer against the first class alone."""

    @layers.use_kernel_forward_from_hub("Slow")
    class Two(nn.Module):
        def forward(self, x, y):
            return x + y

    repo = Repo(Fast)
    with layers.use_kernel_mapping({"Slow": {"cpu": repo}}):
        layers.kernelize(a_model(layers), mode=Mode.INFERENCE, device="cpu")
        with pytest.raises(TypeError, match="forward takes 2 arguments; that of Two 3"):
            layers.kernelize(nn.Sequential(Two()), mode=Mode.INFERENCE, device="cpu")


def test_intervals_of_one_width_are_taken_in_order(monkeypatch):
    """Theirs takes the one whose dictionary lies lower in memory."""
    monkeypatch.setattr(layers, "_capability", lambda: 80)
    low, high = layer_of(), layer_of(forward=_adds(2))
    row = {
        Device("cuda", layers.CUDAProperties(76, 81)): Repo(high),
        Device("cuda", layers.CUDAProperties(75, 80)): Repo(low),
    }
    model = a_model(layers)
    with layers.use_kernel_mapping({"Slow": row}):
        layers.kernelize(model, mode=Mode.INFERENCE, device="cuda")
    assert float(model[1](torch.zeros(1))) == 1.0


@pytest.mark.parametrize("error", [IntegrityError("x"), TrustError("x")])
def test_what_is_not_trusted_is_never_passed_over(error):
    with layers.use_kernel_mapping({"Slow": {"cpu": Repo(None, error)}}):
        for fallback in (True, KernelizeFallback.ALL):
            with pytest.raises(type(error)):
                layers.kernelize(
                    a_model(layers), mode=Mode.INFERENCE, device="cpu", use_fallback=fallback
                )


def test_modes_and_flags_are_theirs():
    for ours, other in ((Mode, theirs.Mode), (KernelizeFallback, theirs.KernelizeFallback)):
        assert {m.name: m.value for m in ours} == {m.name: m.value for m in other}
    assert KernelizeFallback.ALL.value == theirs.KernelizeFallback.ALL.value
    assert KernelizeFallback.DEFAULT.value == theirs.KernelizeFallback.DEFAULT.value
    for one, other in itertools.product(REGISTERED, repeat=2):
        kinds = []
        for kind in (Mode, theirs.Mode):
            try:
                kinds.append((kind(one.value) | kind(other.value)).value)
            except ValueError:
                kinds.append(None)
        assert kinds[0] == kinds[1], (one, other)


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": Mode.FALLBACK}, {"mode": Mode.TORCH_COMPILE}, {"mode": Mode._NONE},
        {"mode": Mode.INFERENCE, "device": "gpu"},
    ],
    ids=str,
)  # fmt: skip
def test_arguments_that_are_refused(arguments):
    for module in (layers, theirs):
        mode = getattr(module, "Mode", Mode)(arguments["mode"].value)
        with pytest.raises(ValueError):
            module.kernelize(a_model(module), **{"device": "cpu", **arguments, "mode": mode})
        with pytest.raises(ValueError):
            module.kernelize(nn.Sequential(), mode=mode)
        with pytest.raises(ValueError):
            module.register_kernel_mapping({"Slow": {"gpu": Repo(Fast)}})


def test_devices():
    for module in (layers, theirs):
        for kind, name in ((module.CUDAProperties, "cuda"), (module.ROCMProperties, "rocm")):
            one = module.Device(name, kind(75, 90))
            assert one == module.Device(name, kind(75, 90))
            assert hash(one) == hash(module.Device(name, kind(75, 90)))
            assert one != module.Device(name)
            with pytest.raises(ValueError):
                module.Device("cpu", kind(75, 90))
            with pytest.raises(Exception, match="must be <="):
                kind(90, 75)
            for bad in ("75", None):
                with pytest.raises(Exception, match=r"(?i)capability"):
                    kind(bad, 90)
    with pytest.raises(ArgumentError, match="a device's type is 3"):
        layers.Device(3)


def test_nested_mappings_and_what_remains_after_them():
    one, two = Repo(layer_of()), Repo(layer_of(forward=_adds(2)))
    layers.register_kernel_mapping({"Slow": {"cpu": one}})

    def value():
        model = a_model(layers)
        layers.kernelize(model, mode=Mode.INFERENCE, device="cpu")
        return float(model[1](torch.zeros(1)))

    with layers.use_kernel_mapping({"Slow": {"cpu": two}}):
        assert value() == 2
        with layers.use_kernel_mapping({"Other": {"cpu": one}}, inherit_mapping=False):
            assert value() == 0
        assert value() == 2
    assert value() == 1
    with pytest.raises(ZeroDivisionError), layers.use_kernel_mapping({"Slow": {"cpu": two}}):
        raise ZeroDivisionError
    assert value() == 1
    layers.register_kernel_mapping({}, inherit_mapping=False)
    assert value() == 0


def test_conditions_and_functions():
    for module in (layers, theirs):
        modes = getattr(module, "Mode", Mode)

        @module.use_kernel_forward_from_hub("Slow", condition=lambda m: m.wanted)
        class Sometimes(nn.Module):
            def __init__(self, wanted):
                super().__init__()
                self.wanted = wanted

            def forward(self, x):
                return x

        @module.use_kernel_forward_from_hub("Slow")
        def identity(x):
            """Return it."""
            return x

        @module.use_kernelized_func(identity)
        class Uses(nn.Module):
            def forward(self, x):
                return identity(x)

        model = nn.Sequential(Sometimes(True), Sometimes(False), Uses())
        with module.use_kernel_mapping({"Slow": {"cpu": Repo(Fast)}}):
            module.kernelize(model, mode=modes.INFERENCE, device="cpu")
        assert [float(part(torch.zeros(1))) for part in model] == [1.0, 0.0, 1.0]
        assert len(list(model.modules())) == 4  # the function is no submodule
        assert list(inspect.signature(type(identity).forward).parameters) == ["self", "x"]
        with pytest.raises(ValueError):
            module.use_kernelized_func(len)(nn.Linear)
        with pytest.raises(TypeError):
            module.use_kernel_forward_from_hub("Slow")(3)


def test_a_model_prepared_with_one_works_with_the_other():
    model = a_model(theirs)
    with layers.use_kernel_mapping({"Slow": {"cpu": Repo(Fast)}}):
        layers.kernelize(model, mode=Mode.INFERENCE, device="cpu")
    assert float(model[1](torch.zeros(1))) == 1.0


def test_a_setting_switches_it_off():
    model = a_model(layers)
    with (
        override(disable_kernel_mapping=True),
        layers.use_kernel_mapping({"Slow": {"cpu": Repo(Fast)}}),
    ):
        layers.kernelize(model, mode=Mode.INFERENCE, device="cpu")
    assert float(model[1](torch.zeros(1))) == 0.0


def test_the_device_is_that_of_the_model():
    model = a_model(layers)
    with layers.use_kernel_mapping({"Slow": {"cpu": Repo(Fast)}}):
        layers.kernelize(model, mode=Mode.INFERENCE)
        assert float(model[1](torch.zeros(1))) == 1.0
        layers.kernelize(model, mode=Mode.INFERENCE, device=torch.device("meta"))
        assert float(model[1](torch.zeros(1))) == 0.0


def test_it_trains_and_compiles_with_what_was_bound():
    class Double(nn.Module):
        can_torch_compile = True

        def forward(self, x):
            return x * self.scale

    @layers.use_kernel_forward_from_hub("Scale")
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(3.0))

        def forward(self, x):
            return x

    model = nn.Sequential(nn.Linear(4, 4), Scale())
    with layers.use_kernel_mapping({"Scale": {"cpu": Repo(Double)}}):
        layers.kernelize(model, mode=Mode.TRAINING)
    model(torch.ones(2, 4)).sum().backward()
    assert model[1].scale.grad is not None
    model[1].scale.data.fill_(5.0)
    assert torch.equal(model[1](torch.ones(1)), torch.tensor([5.0]))


def test_repositories_are_told_apart():
    make = layer_repositories.LayerRepository
    one = make("org/x", layer_name="L", version=1)
    assert one == make("org/x", layer_name="L", version=1)
    assert hash(one) == hash(make("org/x", layer_name="L", version=1))
    others = [
        make("org/x", layer_name="M", version=1), make("org/y", layer_name="L", version=1),
        make("org/x", layer_name="L", version=2), make("org/x", layer_name="L", revision="v1"),
        make("org/x", layer_name="L", version=1, trust_remote_code=True),
        make("org/x", layer_name="L", version=1, trust_remote_code=["org/x"]),
        layer_repositories.LocalLayerRepository("org/x", layer_name="L"),
        layer_repositories.FuncRepository("org/x", func_name="L", version=1),
    ]  # fmt: skip
    assert len({one, *others}) == 9
    for module in (layer_repositories, theirs):
        for arguments in ({}, {"version": 1, "revision": "v1"}):
            with pytest.raises(ValueError):
                module.LayerRepository("org/x", layer_name="L", **arguments)


def test_what_a_mapping_lacks_is_said():
    def said(mapping, mode=Mode.INFERENCE, device="cpu"):
        with layers.use_kernel_mapping(mapping), pytest.raises(ArgumentError) as caught:
            layers.kernelize(a_model(layers), mode=mode, device=device, use_fallback=False)
        return str(caught.value)

    assert said({}) == "no mapping has the layer Slow"
    assert said({"Slow": {"cuda": Repo(Fast), "xpu": Repo(Fast)}}) == (
        "the layer Slow is mapped for cuda, xpu, not for cpu"
    )
    assert said(
        {"Slow": {"cpu": {Mode.TRAINING: Repo(Fast)}}}, Mode.INFERENCE | Mode.TORCH_COMPILE
    ) == (
        f"the layer Slow is mapped for {Mode.TRAINING}, which does not serve "
        f"{Mode.INFERENCE | Mode.TORCH_COMPILE}"
    )
    assert said({"Slow": {"cpu": Repo(NoBackward)}}, Mode.TRAINING) == (
        f"the kernel for the layer Slow does not support backward, so not {Mode.TRAINING}"
    )
    with pytest.raises(PackageError, match="the kernel has no layer 'L'; it has: Other"):
        kernel = type("K", (), {"layers": type("Layers", (), {"Other": 1})})
        layer_repositories._layer(kernel, "L", "org/x")
