"""NumPy arrays given to a CUDA device: copied there, results copied back; each copy is an event.

Arrays of other libraries are not moved: where they are decides where a call runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmill import events
from kernelmill.algorithms.feed_nodes import ended
from kernelmill.algorithms.sequences import is_iterator, length_of
from kernelmill.runtime.backend import reads_host
from kernelmill.runtime.devices import current_backend
from kernelmill.runtime.memory import as_view, is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Moved", "computed", "moved"]


@dataclass(frozen=True, slots=True)
class Moved:
    """The arguments of a call with NumPy arrays replaced by copies on the device.

    `returns` says that results go back to NumPy: into `targets`, which the user gave as `out`, or
    into new arrays where there are none.
    """

    inputs: tuple[Any, ...]
    out: Any
    returns: bool = False
    targets: Any = None

    def back(self, result: Any) -> Any:
        """Return the results of the call as the user wants them; waits for the device."""
        from kernelmill.runtime.cuda.arrays import view_of  # noqa: PLC0415 - only where it is used
        from kernelmill.runtime.cuda.copies import to_host  # noqa: PLC0415

        made = result if type(result) is tuple else (result,)
        hosts = [to_host(view_of(array, "a result")) for array in made]
        if self.targets is None:
            values = tuple(host if host.ndim else host[()] for host in hosts)
            return values if type(result) is tuple else values[0]
        given = self.targets if type(self.targets) is tuple else (self.targets,)
        for target, host in zip(given, hosts, strict=True):
            np.copyto(target, host)
        return self.targets


def moved(inputs: tuple[Any, ...], out: Any, name: str, *, partly: bool = False) -> Moved:
    """Return the arguments of a call with its NumPy arrays on the device that will compute.

    That is the device of another input, else the current one; on the CPU nothing is moved. Where
    no input is an array at all, outputs of NumPy are written there and copied back likewise.
    Iterators become arrays: families that read them themselves call `feeds.moved_feeds`.

    Parameters
    ----------
    inputs, out
        As the user gave them.
    name
        What error texts call the inputs.
    partly
        Whether some elements of the outputs may stay as they are.

    Raises
    ------
    ArgumentError, DTypeError
        An array cannot be copied: masked, of a dtype that is not served, a read-only output.
    DeviceError
        There is not that much memory.
    """
    inputs = computed(inputs, name)
    arrays = [x for x in inputs if isinstance(x, np.ndarray)]
    placed = [x for x in inputs if is_on_cuda(x)]
    given = out if type(out) is tuple else () if out is None else (out,)
    on_host = bool(given) and all(isinstance(x, np.ndarray) for x in given)
    if not (arrays or (on_host and not placed)) or (reads_host(current_backend()) and not placed):
        return Moved(inputs, out)
    number = _number(placed)
    names = [f"{name}[{i}]" if len(inputs) > 1 else name for i in range(len(inputs))]
    sent = tuple(
        _sent(x, n, number) if isinstance(x, np.ndarray) else x
        for x, n in zip(inputs, names, strict=True)
    )
    if placed:
        return Moved(sent, out)
    if out is None:
        return Moved(sent, None, returns=True)
    if not on_host:
        return Moved(sent, out)
    room = _kept if partly else _room
    replaced = tuple(room(x, "out", number) for x in given)
    return Moved(sent, replaced if type(out) is tuple else replaced[0], returns=True, targets=out)


def computed(inputs: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """Return inputs with iterators as arrays, for families that read arrays only."""
    if not any(map(is_iterator, inputs)):
        return inputs
    return tuple(_computed(x, name) if is_iterator(x) else x for x in inputs)


def _computed(part: Any, name: str) -> Any:  # Any: an array of whatever library
    """Return the elements of an iterator as an array, for a family that reads arrays only."""
    from kernelmill.algorithms.transform import transform  # noqa: PLC0415 - it moves arrays itself

    ended(name, length_of(part))
    made = transform(part, _same)
    if events.active:
        size = getattr(made, "nbytes", 0)
        events.emit("copy", name, device="cpu", bytes=size, reason="iterator")
    return made


def _same(value: Any) -> Any:
    return value


def _number(placed: Sequence[Any]) -> int:
    """Return the number of the device of the first array, else of the current one."""
    from kernelmill.runtime.cuda.arrays import view_of  # noqa: PLC0415 - only where it is used

    if not placed:
        return int(current_backend().name.partition(":")[2])
    first = placed[0]
    says = getattr(first, "__dlpack_device__", None)  # without asking for its memory
    return int(says()[1]) if says is not None else view_of(first, "an input").device


def _sent(array: np.ndarray[Any, Any], name: str, number: int) -> Any:  # Any: a CudaArray
    from kernelmill.runtime.cuda.copies import to_device  # noqa: PLC0415 - as above

    as_view(array, name)  # refuses what cannot be copied, by its name
    made = to_device(array, device=number)
    made.is_copy = True
    return made


def _kept(array: np.ndarray[Any, Any], name: str, number: int) -> Any:  # Any: a CudaArray
    as_view(array, name, writable=True)
    return _sent(array, name, number)


def _room(array: np.ndarray[Any, Any], name: str, number: int) -> Any:  # Any: a CudaArray
    from kernelmill.runtime.cuda.arrays import empty  # noqa: PLC0415 - as above

    view = as_view(array, name, writable=True)
    return empty(view.shape, view.dtype, "cuda", device=number)
