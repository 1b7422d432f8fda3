"""What holds for all tests: a cache of their own, hypothesis settings, tests on each device."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORKER = "PYTEST_XDIST_WORKER" in os.environ
_CACHE = os.environ["KERNELMILL_CACHE_DIR"] if _WORKER else tempfile.mkdtemp(prefix="km-tests-")
# Set before anything imports kernelmill: the user's own cache is neither read nor written, and the
# workers and children inherit it.
os.environ["KERNELMILL_CACHE_DIR"] = _CACHE
# A test that means a limit sets one of its own; these only end what hangs, however busy the machine.
for _limit in ("KERNELMILL_CXX_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"):
    os.environ.setdefault(_limit, "600")

# A shell that starts the tests in the background lets them ignore Ctrl-C, and all their children.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

_HYPOTHESIS = {
    "deadline": None,  # an example may compile
    "database": None,  # nothing is carried from one run, or worker, to the next
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "print_blob": True,
}
# The same examples in every run of CI, two of five; `make full` and `make fuzz` draw all, new ones
# each time, by --hypothesis-profile=random, and a failure there says how to repeat it.
settings.register_profile("kernelmill", derandomize=True, **_HYPOTHESIS)
settings.register_profile("random", derandomize=False, **_HYPOTHESIS)
settings.load_profile("kernelmill")


@pytest.fixture(
    scope="module", params=["cpu", "emulator", pytest.param("cuda", marks=pytest.mark.cuda)]
)
def device(request: pytest.FixtureRequest) -> str:
    """Run the tests of a file on each device: `km` in it is kernelmill with calls that run there.

    A file asks for it with `pytestmark = pytest.mark.usefixtures("device")`, or a test does; one
    that is about the processor alone is marked `host`, one whose texts are of host arrays
    `not_on("cuda")`.
    """
    return str(request.param)


@pytest.fixture(params=["cpu", "emulator", pytest.param("cuda", marks=pytest.mark.cuda)])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A device that is current: NumPy arrays go there and come back."""
    import devices
    import kernelmill

    name = str(request.param)
    if name == "cuda" and not _has_gpu():
        pytest.skip("there is no GPU here")
    if name == "emulator":
        devices.on(name, monkeypatch)  # some texts are compiled for chips too
    with kernelmill.Device(name):
        yield name


@pytest.fixture
def unoptimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of the emulator are compiled in half the time; in `make full` as users have them."""
    import devices

    devices.unoptimised(monkeypatch)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Let a test run on its device, and nothing beside it."""
    name = _device_of(pyfuncitem)
    with pytest.MonkeyPatch.context() as patch:
        if not pyfuncitem.get_closest_marker("all_examples"):
            _draw_fewer(pyfuncitem.obj, patch, emulated=name == "emulator")
        if name != "cpu":
            import devices

            patch.setattr(pyfuncitem.module, "km", devices.on(name, patch))
        return (yield)


def _draw_fewer(test: Any, patch: pytest.MonkeyPatch, *, emulated: bool) -> None:
    """Let a test draw a part of its examples in CI; on the emulator most of them compile."""
    attribute = "_hypothesis_internal_use_settings"
    asked = getattr(test, attribute, None)
    if asked is not None and asked.derandomize:
        count = max(min(asked.max_examples, 5), asked.max_examples * (1 if emulated else 2) // 5)
        patch.setattr(test, attribute, settings(asked, max_examples=count))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests on devices that their marks exclude, and those for a device that is absent."""
    _sample(items)
    devices_of = {item: _device_of(item) for item in items}
    no_gpu = "cuda" in devices_of.values() and not _has_gpu()
    left_out = {
        item
        for item, device in devices_of.items()
        if (device == "cuda" and no_gpu) or _is_excluded(item, device)
    }
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _sample(items: list[pytest.Item]) -> None:
    """Of the variants of a test, mark all but a third as slow on the emulator.

    They run in `make full`, and each of them on the CPU in any case. A third is drawn once and for
    all, by names; of each test one variant at least.
    """
    variants: dict[str, list[pytest.Item]] = {}
    for item in items:
        call = getattr(item, "callspec", None)
        given = {} if call is None else call.params
        on = "emulator" in (given.get("device"), given.get("place"))
        if on and not item.get_closest_marker("slow"):
            variants.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for them in variants.values():
        them.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        for item in them[-(-len(them) // 3) :]:
            item.add_marker(pytest.mark.slow)


def _is_excluded(item: pytest.Item, device: str) -> bool:
    if device != "cpu" and item.get_closest_marker("host"):
        return True
    return any(device in mark.args for mark in item.iter_markers("not_on"))


def _device_of(item: pytest.Item) -> str:
    """Return the device of a test that runs on each of them."""
    call = getattr(item, "callspec", None)
    return str(call.params.get("device", "cpu")) if call is not None else "cpu"


def _has_gpu() -> bool:
    from kernelmill.runtime.devices import available_devices

    return any(name.startswith("cuda") for name in available_devices())


def pytest_unconfigure() -> None:
    if not _WORKER:
        shutil.rmtree(_CACHE, ignore_errors=True)
