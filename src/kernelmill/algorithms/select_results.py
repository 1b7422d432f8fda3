"""What becomes of the buffers of a selection: how full they are, and what the user gets of them.

Buffers have room for every element; which elements they get is the business of the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from kernelmill.algorithms.transform import transform
from kernelmill.errors import ArgumentError, ShapeError
from kernelmill.runtime.devices import Device
from kernelmill.runtime.memory import empty_like_library, empty_numpy, may_overlap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.feeds import Feed
    from kernelmill.algorithms.moves import Moved
    from kernelmill.runtime.memory import View

__all__ = ["Buffers", "Nest", "Results"]

# Which of the arrays of a part make a result: the number of one, or a tuple of such.
Nest: TypeAlias = "int | tuple[Nest, ...]"
# A result that leaves most of a buffer empty is copied out of it, where the rest is worth it.
_WASTED: Final = 1 << 20
_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class Buffers:
    """The arrays that a call writes: of each part those carried along, lengths, counts.

    Where one of `sinks` is not None, results go there, and the output only says how many may.
    """

    outputs: tuple[Argument, ...]
    arrays: tuple[Any, ...]
    sinks: tuple[Feed | None, ...] = ()

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The sinks, in order."""
        return tuple(s for s in self.sinks if s is not None)

    @property
    def sunk(self) -> tuple[Argument, ...]:
        """The operands of the sinks, in order."""
        return tuple(a for s in self.feeds for a in s.arguments)

    @property
    def written(self) -> tuple[Argument, ...]:
        """The memory that is written."""
        sinks = self.sinks or (None,) * len(self.outputs)
        made: list[Argument] = []
        for output, sink in zip(self.outputs, sinks, strict=True):
            if sink is None:
                made.append(output)
            else:
                made += sink.arguments[len(sink.arguments) - sink.written :]
        return tuple(made)

    def check_apart(self) -> None:
        """Raise ArgumentError where memory is written twice."""
        written = self.written
        for i, output in enumerate(written):
            for other in written[:i]:
                if may_overlap(other.view, output.view):
                    raise ArgumentError(f"`{other.name}` and `{output.name}` overlap")

    def rooms(self, parts: int, carried: int, *, lengths: bool) -> tuple[int, ...]:
        """Return for each array how many elements fit in its part: the least of its arrays."""
        sizes = [o.view.shape[0] for o in self.outputs]
        rooms: list[int] = []
        for part in range(parts):
            mine = sizes[part * carried : (part + 1) * carried]
            least = min([*mine, *(sizes[-2:-1] if lengths else [])], default=0)
            rooms += [least] * (carried + lengths)
        return (*rooms, sizes[-1])


@dataclass(frozen=True, slots=True)
class Results:
    """How the buffers of calls of these very shapes become results.

    `call` says whether the arrays were copied to a device, and so go back; `computed`, whether some
    of what is read or written is no array.
    """

    layout: Nest
    parts: int
    lengths: bool
    buffers: Buffers
    call: Moved
    length: int
    computed: bool

    @property
    def is_given(self) -> bool:
        """Whether the user gave the buffers."""
        return self.call.out is not None

    @property
    def is_plain(self) -> bool:
        """Whether a short way could serve later calls."""
        view = self.buffers.outputs[0].view
        plain = self.length > 0 and not self.computed and not self.call.returns
        return plain and not self._may_lack(view)

    def _may_lack(self, view: View) -> bool:
        """Whether it must be seen, and can be, if a buffer was too small."""
        return self.is_given and view.place is None and self._least < self.length

    @property
    def _least(self) -> int:
        return min((o.view.shape[0] for o in self.buffers.outputs[:-1]), default=self.length)

    def make(self) -> tuple[Any, ...]:
        """Return new buffers like those of the first call."""
        return tuple(_alike(o.view) for o in self.buffers.outputs)

    def found(self, arrays: tuple[Any, ...]) -> int:
        """Return how many elements of the first part there are."""
        return self._held(arrays)[0]

    def suffice(self, arrays: tuple[Any, ...]) -> bool:
        """Whether new buffers of one part had room for everything."""
        return self.found(arrays) <= self._least

    @property
    def are_large(self) -> bool:
        """Whether results may be copied out of new buffers on the host, to spare memory."""
        outputs = self.buffers.outputs
        if self.is_given or self.parts > 1 or outputs[-1].view.place is not None:
            return False
        return any(o.view.nbytes > _WASTED for o in outputs)

    def wasted(self, arrays: tuple[Any, ...]) -> bool:
        """Whether results are copied out of these buffers, which are large."""
        found = self.found(arrays)
        return any(_is_wasteful(a, found) for a in arrays[:-1])

    def finish(self, arrays: tuple[Any, ...]) -> Any:
        """Return what the user gets of a call: results of exact length, or `out` itself."""
        if not self.is_given:
            results = self.cut(arrays)
            return _on_host(results) if self.call.returns else results
        view = self.buffers.outputs[-1].view
        if self.call.returns or self._may_lack(view):
            self._check(self._held(arrays))
        if self.call.returns and self.buffers.sinks:
            return self.call.back(arrays)
        if self.call.returns:
            self._bring_back(arrays)
            return self.call.targets
        return arrays

    def cut(self, arrays: tuple[Any, ...]) -> Any:
        """Return the results of exact length; waits for a device."""
        held = self._held(arrays)
        each = (len(arrays) - 1 - self.lengths) // self.parts
        made = []
        for part, count in enumerate(held):
            mine = [_front(a, count) for a in arrays[part * each : (part + 1) * each]]
            made.append(_nested(self.layout, mine))
        if not each:
            return held[0]
        if self.lengths:
            return made[0], _front(arrays[-2], held[0])
        return made[0] if self.parts == 1 else tuple(made)

    def _held(self, arrays: Sequence[Any]) -> list[int]:
        """Return how many elements each part holds."""
        counted = [int(count) for count in _values(arrays[-1])]
        return counted if self.parts == 1 else [*counted, self.length - sum(counted)]

    def _check(self, held: Sequence[int]) -> None:
        """Refuse buffers that were too small."""
        each = (len(self.buffers.outputs) - 1 - self.lengths) // self.parts
        for index, output in enumerate(self.buffers.outputs[:-1]):
            part = 0 if index == each * self.parts else index // each
            room = output.view.shape[0]
            if held[part] > room:
                raise ShapeError(
                    f"`{output.name}` has room for {room} elements, {held[part]} were found",
                    hint="give buffers with room for every element; the rest stays as it is",
                )

    def _bring_back(self, arrays: tuple[Any, ...]) -> None:
        """Copy what was written on a device to the arrays of the user."""
        held = self._held(arrays)
        each = (len(arrays) - 1 - self.lengths) // self.parts
        for index, (target, array) in enumerate(zip(self.call.targets, arrays, strict=True)):
            if index == len(arrays) - 1:
                np.copyto(target, _values(array))
                continue
            count = held[0 if index == each * self.parts else index // each]
            np.copyto(target[:count], _on_host(_front(array, count)))


def _nested(layout: Nest, arrays: Sequence[Any]) -> Any:
    if isinstance(layout, int):
        return arrays[layout]
    return tuple(_nested(item, arrays) for item in layout)


def _values(array: Any) -> Any:  # Any: an array of any library; of NumPy
    """Return a small array on the host; waits for a device."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "tolist") and not hasattr(array, "buffer"):
        return array.tolist()
    return _on_host(array)


def _on_host(array: Any) -> Any:
    from kernelmill.runtime.cuda.arrays import view_of  # noqa: PLC0415 - for such arrays only
    from kernelmill.runtime.cuda.copies import to_host  # noqa: PLC0415

    if type(array) is tuple:
        return tuple(map(_on_host, array))
    return array if isinstance(array, int) else to_host(view_of(array, "a result"))


def _alike(view: View) -> Any:  # Any: an array of whatever library
    if view.place is None:
        return empty_like_library(view.shape, view.dtype, view.library)
    from kernelmill.runtime.cuda.arrays import DeviceView, empty  # noqa: PLC0415 - as above

    assert isinstance(view, DeviceView)
    return empty(view.shape, view.dtype, view.maker, device=view.device)


def _front(array: Any, count: int) -> Any:
    """Return the first elements of an array of one dimension, alone where much is left over."""
    size = array.shape[0]
    if count == size:
        return array
    if not hasattr(array, "__getitem__"):  # one of ours, in the memory of a device
        from kernelmill.runtime.cuda.arrays import CudaArray  # noqa: PLC0415 - as above

        return CudaArray(array.buffer, (count,), array.dtype, array.device, array.stream)
    front = array[:count]
    if _is_wasteful(array, count):
        return front.clone() if hasattr(front, "clone") else _apart(front)
    return front


def _is_wasteful(array: Any, count: int) -> bool:
    """Whether so few elements leave most of an array empty, and that is much."""
    size = array.shape[0]
    return bool(_SHARE * count <= size and (size - count) * array.itemsize > _WASTED)


def _apart(front: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array with all threads, into memory that is used again."""
    made = empty_numpy(front.shape, front.dtype)
    word = np.int64 if front.nbytes % 8 == 0 else np.uint8  # one kernel for all types
    with Device("cpu"):
        transform(front.view(word), _as_it_is, out=made.view(word))
    return made


def _as_it_is(word: Any) -> Any:
    return word
