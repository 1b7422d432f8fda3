"""The contenders of a family's expressions: kernelmill, the C++ loop, NumPy, numba, torch, numexpr.

An expression says how each of them writes it; the timing is done in `harness.py`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache as once
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import reference
from harness import OURS, REFERENCE, Case, Contender
from kernelmill.runtime.native import native, stream_threshold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness import Goal

__all__ = ["Expression", "apart", "case_of", "loops", "peer", "threads", "values"]

Array = np.ndarray[Any, Any]
# torch.compile takes seconds an expression and type, and loses milliseconds a call when it is cold.
_COMPILED_FROM: Final = 1 << 20
# Beyond, contenders with temporaries take seconds a call; NumPy does as well, and is enough.
_WITH_TEMPORARIES: Final = 1 << 24
_TOO_SLOW: Final = "it takes seconds a call at this size"
# Elements on which contenders compile their functions, before anything is compared or timed.
_FEW: Final = 64
_BETWEEN: Final = 1 << 16
_TOLERANCE: Final = {"float32": 2e-5, "float64": 1e-12}
# Of sums, whose order is each contender's own.
_REDUCED: Final = {"float32": 1e-3, "float64": 1e-11, "int32": 0.0}


@once
def threads() -> int:
    """Return the number of threads of kernelmill's pool; every contender gets as many."""
    return native().thread_count()


@once
def peer(name: str) -> Any:  # Any: a module, or the reason in words why it is absent
    """Return the module of a peer, set to our number of threads; a text says why there is none."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        return str(error)
    module.set_num_threads(threads())
    return module


@lru_cache(maxsize=1)  # of one case after another
def values(
    count: int, elements: int, dtype: str, low: float = -1.0, high: float = 2.0
) -> tuple[Array, ...]:
    """Return arrays of uniform values, which repeat every 65,537 elements, to be read only."""
    random = np.random.default_rng(count)
    block = random.uniform(low, high, (count, min(elements, 65537)))
    return tuple(np.resize(row.astype(dtype), elements) for row in block)


def apart(sizes: Sequence[int]) -> list[int]:
    """Return the sizes, largest first, since of these most is asked; one has no goals at all."""
    return sorted((n for n in sizes if n != _BETWEEN), reverse=True)


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression as each contender writes it; all functions take the inputs, then the output.

    `out` makes the output for an input; what a contender allocates itself, it allocates in every
    call. `numba` gets the module and returns a compiled function; `loop` names a C++ loop;
    `torch_compiled` is a function of the inputs alone that torch.compile gets.
    """

    name: str
    inputs: int
    ours: Callable[..., Any]
    numpy: Callable[..., Any]
    out: Callable[[Array], Array]
    loop: str = ""
    numba: Callable[[Any], Callable[..., Any]] | None = None
    torch: Callable[..., Any] | None = None
    torch_compiled: Callable[..., Any] | None = None
    numexpr: str = ""
    low: float = -1.0
    reduces: bool = False


def case_of(
    expression: Expression, dtype: str, elements: int, goals: tuple[Goal, ...] = ()
) -> Case:
    """Return the case of an expression for one type and size, with all contenders that exist."""
    inputs = values(expression.inputs, elements, dtype, expression.low)
    out = expression.out(inputs[0])
    written = 0 if expression.reduces else out.nbytes
    moved = sum(x.nbytes for x in inputs) + written
    found: list[Contender] = []
    skipped: dict[str, str] = {}
    for name, make in _MAKERS.items():
        made = make(expression, inputs, out, moved)
        if isinstance(made, Contender):
            found.append(made)
        elif made:
            skipped[name] = made
    scale = float(np.abs(inputs[0][:65537], dtype=np.float64).sum()) if expression.reduces else 0.0
    return Case(
        name=expression.name,
        dtype=dtype,
        elements=elements,
        contenders=tuple(found),
        goals=goals,
        bytes=moved,
        written=written,
        tolerance=(_REDUCED if expression.reduces else _TOLERANCE)[dtype],
        scale=scale * max(1.0, elements / 65537),
        skipped=skipped,
    )


# ----------------------------------------------------------------------------- one a contender
# Each returns a contender, or the reason why there is none; no reason where it has no such form.

Inputs = tuple[Array, ...]


def _ours(e: Expression, inputs: Inputs, out: Array, moved: int) -> Contender:
    del moved
    e.ours(*(x[:_FEW] for x in inputs), out[:_FEW])
    return Contender(OURS, lambda: e.ours(*inputs, out))


def _numpy(e: Expression, inputs: Inputs, out: Array, moved: int) -> Contender:
    del moved
    return Contender("numpy", lambda: e.numpy(*inputs, out))


def _reference(e: Expression, inputs: Inputs, out: Array, moved: int) -> Contender | str:
    if not e.loop:
        return ""
    loaded = loops()
    if loaded.missing:
        return loaded.missing
    streams = not e.reduces and moved > stream_threshold()
    return Contender(
        REFERENCE, loaded.bind(e.loop, inputs, out, threads=threads(), streams=streams)
    )


@once
def loops() -> reference.Reference:
    """Return the loops of reference.cpp, compiled once."""
    return reference.load()


def _numba(e: Expression, inputs: Inputs, out: Array, moved: int) -> Contender | str:
    del moved
    if e.numba is None:
        return ""
    module = peer("numba")
    if isinstance(module, str):
        return module
    compiled = _numba_compiled(e.numba)
    compiled(*(x[:_FEW] for x in inputs), out[:_FEW])
    return Contender("numba", lambda: compiled(*inputs, out))


@once
def _numba_compiled(make: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    numba = peer("numba")
    return make(numba.njit(parallel=True, fastmath=True))


def _torch(e: Expression, inputs: Inputs, out: Array, moved: int) -> Contender | str:
    del moved
    if e.torch is None:
        return ""
    if e.torch_compiled is not None and inputs[0].size > _WITH_TEMPORARIES:
        return _TOO_SLOW
    module = peer("torch")
    if isinstance(module, str):
        return module
    tensors = [module.from_numpy(x) for x in (*inputs, out)]
    function = e.torch
    return Contender("torch", lambda: function(module, *tensors))


def _torch_compiled(e: Expression, inputs: Inputs, out: Array, moved: int) -> Contender | str:
    del moved, out
    if e.torch_compiled is None or inputs[0].size < _COMPILED_FROM:
        return ""
    module = peer("torch")
    if isinstance(module, str):
        return module
    compiled = _compiled_once(e.torch_compiled)
    if isinstance(compiled, str):
        return compiled
    tensors = [module.from_numpy(x) for x in inputs]
    compiled(*(t[:_FEW] for t in tensors))
    return Contender("torch.compile", lambda: compiled(*tensors))


@once
def _compiled_once(function: Callable[..., Any]) -> Any:  # Any: a function, or why there is none
    torch = peer("torch")
    compiled = torch.compile(lambda *tensors: function(torch, *tensors), dynamic=True)
    try:
        compiled(*(torch.ones(_FEW) for _ in range(3)))
    except (RuntimeError, OSError) as error:  # no C++ compiler, or no headers of Python
        return f"torch.compile does not work here: {str(error).strip().splitlines()[0][:200]}"
    return compiled


def _numexpr(e: Expression, inputs: Inputs, out: Array, moved: int) -> Contender | str:
    del moved
    if not e.numexpr:
        return ""
    if inputs[0].size > _WITH_TEMPORARIES:
        return _TOO_SLOW
    module = peer("numexpr")
    if isinstance(module, str):
        return module
    names = dict(zip("abc", inputs, strict=False))
    target = None if e.reduces else out
    return Contender("numexpr", lambda: module.evaluate(e.numexpr, local_dict=names, out=target))


_MAKERS: Final[dict[str, Callable[[Expression, Inputs, Array, int], Contender | str]]] = {
    OURS: _ours,
    REFERENCE: _reference,
    "numpy": _numpy,
    "numba": _numba,
    "torch": _torch,
    "torch.compile": _torch_compiled,
    "numexpr": _numexpr,
}
