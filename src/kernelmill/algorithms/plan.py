"""Plans: the one place that builds kernels, sizes workspace, chooses threads and launches.

A family file (`transform.py`, `reduce.py`, …) checks its arguments and describes a kernel; what
happens then is here. What an element costs is in `costs.py`.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import numpy as np

from kernelmill import events
from kernelmill.algorithms.costs import WORTH_A_THREAD, Cost
from kernelmill.algorithms.held import placed
from kernelmill.compiler.captured import ALIGNMENT
from kernelmill.compiler.op import Op
from kernelmill.compiler.raw import check_device
from kernelmill.config import get_config
from kernelmill.errors import ArgumentError
from kernelmill.runtime.backend import FLAG_STREAM, Direct, Kernel, KernelSource, Launch
from kernelmill.runtime.devices import chosen_device
from kernelmill.runtime.memory import QUICK_TYPES
from kernelmill.runtime.native import Caller, native, stream_threshold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kernelmill.algorithms.held import Placed
    from kernelmill.compiler.captured import Pointer
    from kernelmill.compiler.op import Specialized
    from kernelmill.config import Config
    from kernelmill.runtime.backend import Allocator, Backend, Grid, Launcher, Value
    from kernelmill.runtime.memory import View

__all__ = ["Bound", "Built", "Cost", "Plan", "Prepare", "Scope", "build", "execute", "lately"]


# ----------------------------------------------------------------------------- captured scalars


def aligned(block: bytes) -> bytes:
    """Return a block of packed scalars, filled up to where the next one may start."""
    return block + bytes(-len(block) % ALIGNMENT)


@dataclass(frozen=True, slots=True)
class Scope:
    """The operators of one kernel, and where the captured scalars of each lie in its block.

    `constants` stand behind them in the block, and are the same in each call. `repeats` says of
    which operators what they captured is in the block once more, and at what offset.
    """

    operators: tuple[Specialized, ...]
    constants: bytes = b""
    repeats: tuple[tuple[int, int], ...] = ()

    @property
    def is_static(self) -> bool:
        """Whether a kernel is passed nothing of the user's scope, nor anything else."""
        return not self.constants and all(o.is_static for o in self.operators)

    @property
    def is_constant(self) -> bool:
        """Whether a kernel is passed the same block in each call."""
        return all(o.is_static for o in self.operators)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Offset of each operator's block, in bytes."""
        sizes = (o.size for o in self.operators)
        return tuple(accumulate(sizes, initial=0))[:-1]

    @property
    def size(self) -> int:
        """Bytes of the whole block; 0 when nothing is passed."""
        return sum(o.size for o in self.operators) + len(self.constants)

    @property
    def has_arrays(self) -> bool:
        """Whether an operator captured an array."""
        return any(o.pointers for o in self.operators)

    def arrays(self, functions: Sequence[object]) -> Iterator[tuple[Pointer, Any, tuple[int, ...]]]:
        """Yield the arrays that these functions captured, and where their addresses go."""
        offsets = self.offsets
        for at, (operator, function) in enumerate(zip(self.operators, functions, strict=False)):
            starts = (offsets[at], *(o for k, o in self.repeats if k == at))
            root = function.function if type(function) is Op else function
            for pointer in operator.pointers:
                places = tuple(start + pointer.offset for start in starts)
                yield pointer, pointer.take(root), places

    def read(self, functions: Sequence[object]) -> bytes | None:
        """Pack the captured scalars of these functions; None when their scope has changed type.

        Each may be an `Op` too, which stands for the function it wraps.
        """
        if len(self.operators) == 1 and not self.constants:  # the common case, without a loop
            function = functions[0]
            return self.operators[0].read(function.function if type(function) is Op else function)
        block = b""
        for operator, function in zip(self.operators, functions, strict=True):
            packed = operator.read(function.function if type(function) is Op else function)
            if packed is None:
                return None
            block += packed
        return block + self.constants

    def read_placed(self, functions: Sequence[object], *, backend: Backend) -> bytes | None:
        """Pack as `read` does, with the addresses of captured arrays, which are on the host."""
        packed = self.read(functions)
        if packed is None:
            return None
        return placed(packed, self.arrays(functions), backend).captures


# ----------------------------------------------------------------------------- build and launch


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel with its operators and its cost: everything but the arrays.

    Kernels of one `nature` differ only in how they are spread over a device for a shape, and one
    plan takes arrays for any of them; None where each kernel is of its own.
    """

    family: str
    kernel: Kernel
    scope: Scope
    cost: Cost
    backend: Backend = field(repr=False, compare=False)
    nature: object = field(default=None, repr=False, compare=False)

    def serves(self, other: Built) -> bool:
        """Return whether plans for the other one take what this one was built for."""
        return self.kernel == other.kernel or (
            self.nature is not None and self.nature == other.nature
        )


_BUILT: dict[object, Built] = {}


def build(
    key: object,
    family: str,
    scope: Scope,
    cost: Cost,
    source: Callable[[], KernelSource],
    *,
    backend: Backend,
    nature: object = None,
) -> Built:
    """Return the kernel for `key`, which names everything that its text depends on."""
    config = get_config()
    full = (backend.name, config.cxx, config.march, key)
    found = _BUILT.get(full)
    if found is None:
        for operator in scope.operators:
            for function in operator.translation.program.functions:
                if function.raw is not None:
                    check_device(function.raw, backend.name)
        kernel = backend.build(source())
        found = _BUILT.setdefault(full, Built(family, kernel, scope, cost, backend, nature))
    if found.cost != cost:  # arrays of one element, which count as free, came first
        return replace(found, cost=cost)
    return found


@dataclass(frozen=True, slots=True)
class Bound:
    """One call, ready to launch: a kernel and the operands it runs on, inputs first.

    `elements` is the number of elements read, `tail` what follows the captured scalars, `flags` is
    None where the size of the arrays decides whether to stream. `result` is what the user gets,
    0-d NumPy arrays as scalars where `scalar` says so, after `finish` where there is one. Addresses
    on a device are multiples of `alignment`.
    """

    built: Built
    functions: tuple[object, ...]
    shape: tuple[int, ...]
    views: tuple[View, ...]
    strides: tuple[tuple[int, ...], ...]
    elements: int
    workspace: int
    result: Any = field(repr=False)  # Any: an array of the input's library, or a tuple of them
    flags: int | None = None
    tail: bytes = b""
    scalar: bool = False
    grid: Grid | None = None
    finish: Callable[[Any], Any] | None = None
    values: tuple[Value | None, ...] = ()
    alignment: int = 1

    @property
    def is_plain(self) -> bool:
        """Whether a short way could serve later calls: tensors of torch on the host have none."""
        first = self.views[0]
        return self.finish is None and (first.place is not None or first.library != "torch")

    @property
    def unwrapped(self) -> Any:  # Any: as `result`
        """What the user gets."""
        if self.finish is not None:
            return self.finish(self.result)
        return unwrapped(self.result) if self.scalar else self.result


def unwrapped(result: Any) -> Any:  # Any: an array, or a tuple of them
    """Return 0-d NumPy arrays as NumPy scalars."""
    return tuple(r[()] for r in result) if type(result) is tuple else result[()]


def execute(bound: Bound) -> Any:  # Any: as `Bound.result`
    """Launch a bound call and return its result."""
    built = bound.built
    captures = built.scope.read(bound.functions)
    assert captures is not None, "the operators were specialized for these functions just now"
    if bound.elements:
        launch = _launch(bound, captures)
        held = _placed(bound, launch) if built.scope.has_arrays else None
        if held is not None:
            launch = replace(launch, captures=held.captures, arrays=held.arrays)
        start = time.perf_counter()
        built.backend.launch(built.kernel, launch)
        if events.active:
            _report(bound, built.backend.name, time.perf_counter() - start)
        if held is not None:
            held.settle(bound.views)
    return bound.unwrapped


def _launch(bound: Bound, captures: bytes) -> Launch:
    cost, elements = bound.built.cost, bound.elements
    streams = FLAG_STREAM if cost.bytes * elements > stream_threshold() else 0
    return Launch(
        shape=bound.shape,
        pointers=tuple(v.ptr for v in bound.views),
        strides=bound.strides,
        captures=captures + bound.tail,
        workspace=bound.workspace,
        threads=max(1, min(native().thread_count(), 1 + elements // cost.serial_below)),
        flags=streams if bound.flags is None else bound.flags,
        release_gil=elements * cost.seconds > WORTH_A_THREAD,
        views=bound.views,
        grid=bound.grid,
    )


def _placed(bound: Bound, launch: Launch) -> Placed:
    built = bound.built
    return placed(launch.captures, built.scope.arrays(bound.functions), built.backend)


def _report(bound: Bound, device: str, seconds: float) -> None:
    cost, elements = bound.built.cost, bound.elements
    events.emit(
        "launch",
        bound.built.kernel.source.name,
        device=device,
        seconds=seconds,
        bytes=cost.bytes * elements,
        flops=cost.flops * elements,
    )


# ----------------------------------------------------------------------------- plans


class Prepare(Protocol):
    """The checks of a family: from the arguments of a call to a bound call."""

    def __call__(self, inputs: tuple[Any, ...], out: Any) -> Bound:
        """Check arguments and bind them; raises ArgumentError and its kinds."""
        ...


Caller.watch(vars(events))


class Plan(Caller):
    """A prepared call: the kernel is built and loaded; calling the plan launches it.

    Made by `km.transform.plan`, `km.reduce.plan`, …; called as `plan(*inputs, out=None)` with
    arrays of the dtypes and the layout it was prepared for. `out` is an array, or a tuple of
    arrays, for the results; new ones by default. Calls with one output take no Python.

    Raises
    ------
    ArgumentError
        The arrays need another kernel than the plan holds.
    """

    __slots__ = ("_allocate", "_elements", "_prepare", "_scalar", "built")

    def __init__(self, bound: Bound, prepare: Prepare, *, fixed: bool | None) -> None:
        """Prepare calls like `bound`: of those very shapes, or of any one; None: no short way."""
        self.built = built = bound.built
        self.functions = bound.functions
        self._prepare = prepare
        self._launcher: Launcher | None = None
        self._allocate: Allocator | None = None
        self._single: Allocator | None = None
        self._scalar = bound.scalar
        self._elements = bound.elements if fixed else None
        constant = built.scope.is_constant and built.backend.target == "host"
        self._read = None if built.scope.is_static or constant else built.scope.read
        held, on_host = built.scope.has_arrays, built.backend.target == "host"
        if held and on_host:
            self._read = partial(built.scope.read_placed, backend=built.backend)
        short = fixed is not None and (on_host or not held)
        if short and bound.elements and not bound.tail and built.kernel.entry:
            direct = _direct(bound, fixed=bool(fixed))
            self._launcher = built.backend.launcher(built.kernel, direct)
            if self._launcher is not None:
                self._allocate = built.backend.allocator(direct)
                if direct.outputs == 1 and not bound.scalar:
                    self._single = self._allocate

    def _general(self, inputs: tuple[Any, ...], out: Any) -> Any:
        """Run the plan where the launcher does not, or did not."""
        tried = self._launcher is not None and (
            self._single is not None if out is None else type(out) is not tuple
        )
        if events.active or not tried:
            launch = self.told_launch if events.active else self.try_launch
            done = launch(self.functions, inputs, out)
            if done is not None:
                return done
        bound = self._prepare(inputs, out)
        if not self._serves(bound):
            raise ArgumentError(
                f"this plan was prepared for {self.describe(self.built)}, "
                f"the arrays need {self.describe(bound.built)}",
                hint="make a plan for these arrays, or call the function itself",
            )
        return execute(bound)

    def _serves(self, bound: Bound) -> bool:
        """Return whether a call needs the kernel that was prepared."""
        return bound.built.serves(self.built)

    @staticmethod
    def describe(built: Built) -> str:
        """Return the name of a kernel: family, operator, types and layout."""
        return built.kernel.source.name

    def try_launch(self, operators: tuple[object, ...], inputs: tuple[Any, ...], out: Any) -> Any:
        """Launch on the native path; None when the arrays or the scope need the general one."""
        launcher, made = self._launcher, out
        if launcher is None:
            return None
        if self._read is None and out is not None and type(out) is not tuple:  # the common case
            return out if launcher(*inputs, out) else None
        if out is None:
            made = self._allocate(inputs) if self._allocate is not None else None
            if made is None:
                return None
        outputs = made if type(made) is tuple else (made,)
        if self._read is None:
            done = launcher(*inputs, *outputs)
        else:
            captures = self._read(operators)
            done = captures is not None and launcher(*inputs, *outputs, captures)
        if not done:
            return None
        return unwrapped(made) if out is None and self._scalar else made

    def told_launch(self, operators: tuple[object, ...], inputs: tuple[Any, ...], out: Any) -> Any:
        """Launch as `try_launch` does, and tell those who listen to events."""
        start = time.perf_counter()
        done = self.try_launch(operators, inputs, out)
        if done is not None:
            seconds, cost, elements = time.perf_counter() - start, self.built.cost, self._elements
            if elements is None:  # arrays of any shape: as many as results
                elements = math.prod((done[0] if type(done) is tuple else done).shape)
            events.emit(
                "launch",
                self.built.kernel.source.name,
                device=self.built.backend.name,
                seconds=seconds,
                bytes=cost.bytes * elements,
                flops=cost.flops * elements,
            )
        return done

    def release(self) -> None:
        """Let go of the functions that the plan was made with; only the short way is left."""
        self.functions = ()
        self._prepare = _released

    @property
    def is_general(self) -> bool:
        """Whether every call takes the general way, since there is no short one."""
        return self._launcher is None

    @property
    def source(self) -> str:
        """The generated C++ text."""
        return self.built.kernel.source.text

    @property
    def cost(self) -> Cost:
        """Bytes and operations an element."""
        return self.built.cost

    def explain(self) -> str:
        """Say what the plan does: kernel, cost, where its binary lies."""
        built = self.built
        lines = [
            self.describe(built),
            f"device: {built.backend.name}",
            f"cost an element: {built.cost.bytes} bytes, {built.cost.flops} operations",
        ]
        if built.backend.target == "host":
            lines.append(f"second thread from {built.cost.serial_below} elements")
            lines.append(f"binary: {built.kernel.path}")
        else:
            lines.append(f"a block takes {built.kernel.source.tile} elements at a time")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Plan {self.describe(self.built)}>"


def _released(inputs: tuple[Any, ...], out: Any) -> NoReturn:
    del inputs, out
    raise AssertionError("a plan that was released has its short way alone")


def _direct(bound: Bound, *, fixed: bool) -> Direct:
    return Direct(
        views=bound.views,
        outputs=len(bound.result) if type(bound.result) is tuple else 1,
        shape=bound.shape,
        strides=bound.strides,
        captures=bound.built.scope.size,
        fixed=fixed,
        serial_below=_serial_below(bound) if fixed else bound.built.cost.serial_below,
        workspace=bound.workspace,
        flags=bound.flags,
        grid=bound.grid,
        values=bound.values,
        alignment=bound.alignment,
        constants=bound.built.scope.constants if bound.built.scope.is_constant else b"",
    )


def _serial_below(bound: Bound) -> int:
    """Return for how many of what a launcher counts, say segments, one thread is enough."""
    counted = math.prod(bound.shape)
    return max(1, bound.built.cost.serial_below * counted // max(1, bound.elements))


# Plans by what can be read off a call in half a microsecond, newest first, for the settings they
# were made with. Several, since layouts are not read off.
_QUICK: dict[object, tuple[Config, tuple[Plan, ...]]] = {}
_QUICK_LIMIT: Final = 4096
_LATELY: Final = 8


def key_of(
    parts: list[object],
    arrays: Iterable[Any],  # Any: whatever the caller gave
) -> tuple[object, ...] | None:
    """Return `parts` and what tells arrays of common kinds apart; None if there are others.

    Element types of arrays that are not NumPy's are told apart by the launchers.
    """
    for x in arrays:
        kind = type(x)
        if kind is np.ndarray:
            parts += (x.dtype, x.shape)
        elif kind in QUICK_TYPES:
            parts += (kind, getattr(x, "shape", None))
        else:
            return None
    return tuple(parts)


def lately(key: tuple[object, ...]) -> tuple[Plan, ...]:
    """Return the plans that served the last calls with this key on the current device.

    None did where an option in the key is no constant, which the checks of the call name.
    """
    try:
        found = _QUICK.get((chosen_device(), key))
    except TypeError:
        return ()
    return found[1] if found is not None and found[0] is get_config() else ()


def remember(key: tuple[object, ...], plan: Plan) -> None:
    """Serve later calls with this key by this plan, if it has a short way."""
    if plan.is_general:
        return
    try:
        hash(key)
    except TypeError:  # as in `lately`
        return
    if plan.built.scope.has_arrays:  # they live as long as whoever captured them
        if type(plan) is not Plan:
            return
        plan.release()
    before = lately(key)
    if len(_QUICK) >= _QUICK_LIMIT:
        _QUICK.clear()
    _QUICK[chosen_device(), key] = get_config(), (plan, *before[: _LATELY - 1])
