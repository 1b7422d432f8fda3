"""`Caller`, which plans inherit, of the extension and of its twin: when the launcher is called."""

import gc
import weakref

import numpy as np
import pytest

import kernelmill as km
from kernelmill import _native_py, events
from native_fixtures import F4, MODULES, Recorder, _native, growth

X, OUT = np.ones(8, "f4"), np.empty(8, "f4")


@pytest.fixture
def plan(request):
    """A plan that writes down the calls that its launcher left, and how to make others."""
    module = request.param
    module.Caller.watch(vars(events))

    class Plan(module.Caller):
        __slots__ = ("__weakref__", "left")

        def __init__(self, launcher):
            self.left = []
            self._launcher, self._read, self.functions = launcher, None, ()
            self._single = None

        def _general(self, inputs, out):
            self.left.append((inputs, out))
            return "general"

    kernel = Recorder(2)
    made = Plan(module.Launcher(kernel.entry, (F4, F4), 1))
    made_calls = kernel.calls
    yield made, made_calls, Plan
    assert events.active is False


BOTH = pytest.mark.parametrize(
    "plan",
    [pytest.param(_native_py, id="python")]
    + ([pytest.param(_native, id="extension")] if _native is not None else []),
    indirect=True,
)


@BOTH
def test_the_common_call_goes_to_the_launcher(plan):
    made, calls, _ = plan
    assert made(X, out=OUT) is OUT
    assert made(*[X], out=OUT) is OUT
    assert len(calls) == 2
    assert made.left == []


@BOTH
def test_a_launcher_of_the_other_module_is_called_too(plan, request):
    """As it is where the setting `native` is off."""
    _, _, Plan = plan
    other = _native if request.node.callspec.id == "python" else _native_py
    if other is None:
        pytest.skip("the extension is not installed")
    kernel = Recorder(2, captures=4)
    made = Plan(other.Launcher(kernel.entry, (F4, F4), 1, captures=bytes(4)))
    made._read = lambda _: b"1234"
    assert made(X, out=OUT) is OUT
    assert kernel.calls[0]["captures"] == b"1234"
    assert made(X[:7], out=OUT) == "general"


@BOTH
def test_every_other_call_is_left(plan):
    made, calls, Plan = plan
    tuple_ = (OUT,)
    assert made(X) == "general"
    assert made(X, out=None) == "general"
    assert made(X, out=tuple_) == "general"
    assert made(X, X, out=OUT) == "general"
    assert made([1.0], out=OUT) == "general"
    assert made() == "general"
    assert calls == []
    assert [len(inputs) for inputs, _ in made.left] == [1, 1, 1, 2, 1, 0]
    assert [out for _, out in made.left[:3]] == [None, None, tuple_]
    assert Plan(None)(X, out=OUT) == "general"


@BOTH
def test_listeners_see_every_call(plan):
    made, calls, _ = plan
    with events.listen():
        assert made(X, out=OUT) == "general"
    assert made(X, out=OUT) is OUT
    assert len(calls) == 1


@BOTH
def test_a_new_output_is_launched_on_too(plan):
    made, calls, _ = plan
    asked, outputs = [], [OUT, OUT, None, np.empty(9, "f4"), LookupError()]

    def single(inputs):
        asked.append(inputs)
        found = outputs.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    made._single = single
    assert made(X) is OUT
    assert made(X, out=None) is OUT
    assert len(calls) == 2
    assert made(X) == "general", "none was made"
    assert made(X) == "general", "the launcher does not take it"
    with pytest.raises(LookupError):
        made(X)
    assert len(asked) == 5
    assert asked[0][0] is X
    assert [out for _, out in made.left] == [None, None]
    with events.listen():
        assert made(X) == "general"
    assert made(X, out=OUT) is OUT
    assert len(asked) == 5


@BOTH
def test_captured_scalars_are_read_at_each_call(plan, request):
    _, _, Plan = plan
    module = _native_py if request.node.callspec.id == "python" else _native
    kernel, values = Recorder(2, captures=8), [b"12345678", b"abcdefgh", None, b"short"]
    made = Plan(module.Launcher(kernel.entry, (F4, F4), 1, captures=bytes(8)))
    made.functions = ("f", "g")

    def read(functions):
        assert functions == ("f", "g")
        return values.pop(0)

    made._read = read
    assert [made(X, out=OUT) is OUT for _ in range(4)] == [True, True, False, False]
    assert [c["captures"] for c in kernel.calls] == [b"12345678", b"abcdefgh"]
    assert len(made.left) == 2
    with pytest.raises(IndexError):
        made(X, out=OUT)


@BOTH
def test_a_plan_that_its_operator_holds_is_freed(plan):
    _, _, Plan = plan

    def make():
        made = Plan(None)
        made.functions = (lambda: made,)
        return weakref.ref(made)

    kept = make()
    gc.collect()
    assert kept() is None


@BOTH
def test_what_is_raised_reaches_the_caller(plan):
    made, _, Plan = plan
    for wrong in ({"into": OUT}, {"out": OUT, "into": OUT}):
        with pytest.raises(TypeError, match="a plan takes its inputs, and out="):
            made(X, **wrong)

    class Broken(Plan):
        __slots__ = ()

        def _general(self, inputs, out):
            raise LookupError("no way")

    with pytest.raises(LookupError, match="no way"):
        Broken(None)(X)


@BOTH
def test_plans_are_freed(plan):
    _, _, Plan = plan
    kept = weakref.ref(Plan(None))
    gc.collect()
    assert kept() is None

    def work():
        for _ in range(100):
            Plan(None)(X, out=OUT)

    assert growth(work) < 2000


@MODULES
def test_events_are_watched_where_they_are(module):
    with pytest.raises(TypeError, match="takes a dict"):
        module.Caller.watch(None)
    module.Caller.watch(vars(events))


def test_plans_of_the_product_are_callers():
    plan = km.transform.plan(X, lambda v: v + 1)
    assert isinstance(plan, (_native or _native_py).Caller)
    assert plan(X, out=OUT) is OUT
    assert (OUT == 2).all()
    assert (plan(X) == 2).all()
