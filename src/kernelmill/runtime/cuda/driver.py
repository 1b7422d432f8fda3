"""The door to the driver: the bindings imported, the driver checked once, its errors put in words.

Only the modules of this package import `cuda.core` and `cuda.bindings.driver`, and only through
here. Importing this package needs neither; what is missing is named by the first use.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache as once
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kernelmill.errors import DeviceError, KernelmillError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Driver",
    "api",
    "check",
    "core",
    "core_error",
    "in_words",
    "recent_kernels",
    "require",
    "translated",
]

_NO_LIBRARY: Final = "the driver library libcuda.so.1 cannot be loaded"
_INSTALL_DRIVER: Final = (
    "install NVIDIA's driver, or in a container start it with the GPU (docker run --gpus all); "
    "`kernelmill doctor` shows what was found"
)
_LOCAL: Final = "start the process again: nothing on this device works until then"

# Names of the kernels launched last, newest last: an error is reported after the launch it is of.
recent_kernels: Final[deque[str]] = deque(maxlen=8)

# Result: what it means, hint. A sticky one leaves the process without its device.
_STICKY: Final[dict[str, str]] = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel read or wrote memory that is not its own",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "a kernel used an address that its type may not have",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "a kernel met an instruction that is none",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "a kernel used memory of the wrong kind",
    "CUDA_ERROR_INVALID_PC": "a kernel jumped to where no code is",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "the stack of a kernel overflowed or was damaged",
    "CUDA_ERROR_LAUNCH_FAILED": "a kernel failed while it ran",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "a kernel ran longer than the display driver allows",
    "CUDA_ERROR_ASSERT": "an assertion in a kernel failed",
}
_MEANINGS: Final[dict[str, tuple[str, str]]] = {
    "CUDA_ERROR_OUT_OF_MEMORY": (
        "the device has not that much free memory",
        "free arrays, or work in parts; arrays and the device stay usable",
    ),
    "CUDA_ERROR_NO_DEVICE": ("the driver sees no GPU", "check nvidia-smi and CUDA_VISIBLE_DEVICES"),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": (
        "the image holds no code for this chip",
        "compile for its architecture: Program(...).compile('cubin') takes the device's own",
    ),
    "CUDA_ERROR_INVALID_SOURCE": (
        "the image is of another chip or damaged",
        "compile for the architecture of the device",
    ),
    "CUDA_ERROR_INVALID_IMAGE": (
        "the image is damaged, or was made by a compiler newer than the driver",
        "`kernelmill doctor` shows which NVRTC is taken, and the driver's version",
    ),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": (
        "the PTX was made by a compiler newer than the driver",
        "compile to a cubin, or update the driver",
    ),
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (
        "a block needs more registers or shared memory than there are",
        "launch fewer threads a block, or compile with maxregcount",
    ),
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": (
        "the blocks of a cooperative launch do not fit on the device at once",
        "launch fewer blocks; kernel.occupancy says how many fit",
    ),
    "CUDA_ERROR_INVALID_HANDLE": (
        "a stream, event or kernel is closed, or of another device",
        "keep it open as long as it is used",
    ),
    "CUDA_ERROR_NOT_INITIALIZED": (
        "CUDA is not initialised in this process, or it was forked from one that used CUDA",
        "start processes with multiprocessing's method 'spawn' or 'forkserver'",
    ),
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": ("the device was reset by another library", _LOCAL),
    "CUDA_ERROR_NOT_FOUND": ("there is no such name in the image", 'kernels need extern "C"'),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": (
        "the driver's library and its kernel module are of different versions",
        "restart the machine, or install both again",
    ),
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": (
        "this cannot be part of a graph",
        "do it before the capture begins",
    ),
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": (
        "the capture was broken by a call that cannot be part of a graph",
        "synchronise and allocate before the capture begins",
    ),
}


@dataclass(frozen=True, slots=True)
class Driver:
    """The initialised driver: `version` such as (13, 0), and how many devices it shows."""

    version: tuple[int, int]
    device_count: int


class _State:
    """What was found at the first use, and in which process."""

    driver: Driver | None = None
    forked: bool = False


def _missing_extra(error: ImportError) -> NoReturn:
    raise MissingExtraError(
        f"running on CUDA needs the packages of an extra: {error}",
        hint="pip install 'kernelmill[cuda13]', or 'kernelmill[cuda12]' for a driver below 580",
    )


def api() -> Any:  # Any: a module that may be absent
    """Return `cuda.bindings.driver`.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    found = sys.modules.get("cuda.bindings.driver")
    if found is not None:
        return found
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        _missing_extra(error)


def core() -> Any:  # Any: as above
    """Return `cuda.core`.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    try:
        return importlib.import_module("cuda.core")
    except ImportError as error:
        _missing_extra(error)


def require() -> Driver:
    """Return the driver, initialised.

    Raises
    ------
    DeviceError
        There is no driver, it is too old, it sees no GPU, or this process was forked from one
        that used it.
    MissingExtraError
        The bindings are not installed.
    """
    if _State.forked:
        raise DeviceError(
            "CUDA cannot be used here: this process was forked from one that had initialised it",
            hint="start processes with multiprocessing's method 'spawn' or 'forkserver'",
        )
    if _State.driver is None:
        _State.driver = _initialise()
    return _State.driver


def _initialise() -> Driver:
    cuda = api()
    try:
        (status,) = cuda.cuInit(0)
    except RuntimeError as error:  # the library is absent, or cannot be loaded
        first = str(error).strip().partition("\n")[0]
        raise DeviceError(f"{_NO_LIBRARY}: {first}", hint=_INSTALL_DRIVER) from error
    if status.name == "CUDA_ERROR_NO_DEVICE":
        raise DeviceError("the driver sees no GPU", hint=_MEANINGS[status.name][1])
    check((status,), "initialise the driver")
    number = check(cuda.cuDriverGetVersion(), "ask for the driver's version")
    version = number // 1000, number % 1000 // 10
    needed = _bindings_major()
    if version[0] < needed:
        raise DeviceError(
            f"the driver is for CUDA {version[0]}.{version[1]}; cuda-bindings {needed} needs one "
            f"for CUDA {needed}.0 or later",
            hint="update the driver, or `pip install 'kernelmill[cuda12]'` in place of cuda13"
            if needed > 12  # noqa: PLR2004 - the major version of CUDA
            else "update the driver",
        )
    count = check(cuda.cuDeviceGetCount(), "count the devices")
    if not count:
        raise DeviceError("the driver sees no GPU", hint=_MEANINGS["CUDA_ERROR_NO_DEVICE"][1])
    os.register_at_fork(after_in_child=_after_fork)
    return Driver(version, int(count))


def _after_fork() -> None:
    _State.forked = True


@once
def _bindings_major() -> int:
    module = importlib.import_module("cuda.bindings")
    return int(str(module.__version__).partition(".")[0])


# ----------------------------------------------------------------------------- errors


def check(answer: tuple[Any, ...], action: str) -> Any:  # Any: what the call returns
    """Return the value of a driver call, or raise what its result means.

    Raises
    ------
    DeviceError
        The call failed; `action` says what was tried.
    """
    if int(answer[0]):
        raise explained(answer[0].name, action)
    return answer[1] if len(answer) == 2 else answer[1:]  # noqa: PLR2004 - a status and a value


def explained(result: str, action: str, detail: str = "") -> DeviceError:
    """Return the error for a result of the driver, with what it means and what to do."""
    if result in _STICKY:
        last = ", ".join(dict.fromkeys(reversed(recent_kernels))) or "none of kernelmill's"
        return DeviceError(
            f"cannot {action}: {_STICKY[result]} ({result}); kernels launched last, newest "
            f"first: {last}",
            hint=f"{_LOCAL}; compute-sanitizer names the line, and CUDA_LAUNCH_BLOCKING=1 the "
            "launch",
        )
    meaning, hint = _MEANINGS.get(result, (detail or "the driver refused", ""))
    return DeviceError(f"cannot {action}: {meaning} ({result})", hint=hint)


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Turn what cuda.core raises inside the block into a DeviceError that says what was tried."""
    try:
        yield
    except KernelmillError:
        raise
    except core_error() as error:
        raise in_words(error, action) from error


def in_words(error: Exception, action: str) -> DeviceError:
    """Return what an error of cuda.core means; `action` says what was tried."""
    text = str(error)
    result = text.partition(":")[0].strip()
    return explained(result, action, text.partition("\n")[0])


@once
def core_error() -> type[Exception]:
    """Return the class of cuda.core's errors; it became public after 1.2."""
    found = getattr(core(), "CUDAError", None)
    if found is None:
        found = importlib.import_module("cuda.core._utils.cuda_utils").CUDAError
    assert isinstance(found, type)
    assert issubclass(found, Exception)
    return found
