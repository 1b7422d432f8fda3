"""What the first call of an operator costs, in fresh processes: compiled, from the disk, re-valued.

Imports are done before the clock starts. As a script with one argument, JSON, this file is such a
process: it prints the seconds of one call.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case, Contender

__all__ = ["cases"]

# Seconds allowed for an operator, by compiler, and what each transcendental function in it adds.
_LIMITS: Final = {"g++": 0.25, "clang++": 0.35}
_A_TRANSCENDENTAL: Final = 0.05
# Families other than transform and reduce, whose templates are larger.
_SIMPLE: Final = 0.35
_FROM_DISK: Final = 0.020
_NEW, _EMPTY, _DISK, _VALUE = "new operator", "empty cache", "from the disk", "new captured value"


class _Operator(NamedTuple):
    """An operator that a child process calls; `transcendentals` counts the functions in it."""

    name: str
    call: Callable[[Any, Any], Any]
    transcendentals: int


_FACTOR = 2.5
_OPERATORS: Final = {
    o.name: o
    for o in (
        _Operator("2*x + 1", lambda km, x: km.transform(x, lambda a: 2 * a + 1), 0),
        _Operator("factor*x", lambda km, x: km.transform(x, lambda a: a * _FACTOR), 0),
        _Operator("exp(x)", lambda km, x: km.transform(x, lambda a: np.exp(a)), 1),  # noqa: PLW0108
        _Operator(
            "exp(-a*a) * sin(b) + sqrt(c)",
            lambda km, x: km.transform(
                (x, x, x), lambda a, b, c: np.exp(-a * a) * np.sin(b) + np.sqrt(c)
            ),
            2,
        ),
        _Operator("sum", lambda km, x: km.reduce(x), 0),
        _Operator(
            "a if a > b else b, in order",
            lambda km, x: km.reduce(x, lambda a, b: max(b, a)),
            0,
        ),
        _Operator("sum over axis 0", lambda km, x: km.reduce(x.reshape(100, 10), axis=0), 0),
        _Operator(
            "sum, minimum and maximum",
            lambda km, x: km.reduce(x, (km.add, km.minimum, km.maximum)),
            0,
        ),
        _Operator(
            "sum((a - b)**2 * c)",
            lambda km, x: km.transform_reduce((x, x, x), lambda a, b, c: (a - b) ** 2 * c),
            0,
        ),
        _Operator("running sum", lambda km, x: km.inclusive_scan(x), 0),
        _Operator("select", lambda km, x: km.select(x, lambda v: v > 1), 0),
        _Operator("unique", lambda km, x: km.unique(x), 0),
        _Operator("sums by key", lambda km, x: km.reduce_by_key(x, x), 0),
        _Operator("histogram", lambda km, x: km.histogram(x, 10, range=(0, 2)), 0),
        _Operator("bincount", lambda km, x: km.bincount(x.view("u1")), 0),
        _Operator("lower_bound", lambda km, x: km.lower_bound(x, x), 0),
        _Operator("sums of segments", lambda km, x: km.segmented_reduce(x, [0, 10, 1000]), 0),
        _Operator("least element", lambda km, x: km.argmin(x), 0),
    )
}
# Of a second compiler the simplest expressions will do.
_LATER: Final = ("running sum", "select", "unique", "sums by key", "histogram", "bincount",
                 "lower_bound", "sums of segments", "least element")  # fmt: skip
_WARM_UP: Final = "factor*x"
_QUICK: Final = ("2*x + 1", "sum")


# ----------------------------------------------------------------------------- the child process


def _child(asked: dict[str, Any]) -> dict[str, Any]:
    import kernelmill as km
    from kernelmill import events

    for found in pkgutil.walk_packages(km.__path__, "kernelmill."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    x = np.linspace(0.0, 2.0, 1000, dtype=np.float32)
    call = _OPERATORS[asked["operator"]].call
    if asked["revalue"]:
        call(km, x)
        globals()["_FACTOR"] = 3.5
    start = time.perf_counter()
    call(km, x)
    seconds = time.perf_counter() - start
    # Listeners turn the quick path off, so what a further value compiles is counted apart.
    compiled: list[Any] = []
    events.subscribe(lambda event: compiled.append(event) if event.kind == "compile" else None)
    globals()["_FACTOR"] = 4.5
    call(km, x)
    return {"seconds": seconds, "compiled": len(compiled)}


def _numba_child() -> dict[str, Any]:
    import numba

    x = np.linspace(0.0, 2.0, 1000, dtype=np.float32)

    @numba.njit(parallel=True)  # type: ignore[untyped-decorator,unused-ignore]
    def scale(a: Any) -> Any:
        return 2 * a + 1

    start = time.perf_counter()
    scale(x)
    return {"seconds": time.perf_counter() - start}


# ----------------------------------------------------------------------------- the parent


class _Place:
    """Caches for one compiler; `known` is one that knows the compiler and one other operator."""

    def __init__(self, compiler: str, root: Path) -> None:
        self.compiler = compiler
        self._root = root
        self._count = 0
        self.filled: dict[str, Path] = {}  # by operators that were compiled there
        self.known = self.fresh()
        self.call(_WARM_UP, self.known)

    def fresh(self, like: Path | None = None) -> Path:
        """Return a new cache directory: empty, or a copy."""
        self._count += 1
        made = self._root / f"{self.compiler}-{self._count}"
        if like is None:
            made.mkdir()
        else:
            shutil.copytree(like, made)
        return made

    def call(self, operator: str, cache: Path, *, revalue: bool = False) -> float:
        """Return the seconds of one call in a new process; with `revalue`, of the second one.

        Raises AssertionError when a further call compiles something.
        """
        request = {"operator": operator, "revalue": revalue}
        found = _process(request, cache, self.compiler)
        assert found["compiled"] == 0, f"{operator}: {found['compiled']} more kernels were compiled"
        return float(found["seconds"])


def _process(request: dict[str, Any], cache: Path, compiler: str) -> dict[str, Any]:
    environment = {**os.environ, "KERNELMILL_CACHE_DIR": str(cache), "KERNELMILL_CXX": compiler}
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(request)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    present = [name for name in _LIMITS if shutil.which(name)]
    with tempfile.TemporaryDirectory() as root:
        for compiler in present[:1] if budget.quick else present:
            yield from _of_compiler(_Place(compiler, Path(root)), quick=budget.quick)


def _of_compiler(place: _Place, *, quick: bool) -> Iterator[Case]:
    from harness import Goal

    for operator in _OPERATORS.values():
        if operator.name == _WARM_UP or (quick and operator.name not in _QUICK):
            continue
        first = place.compiler == next(iter(_LIMITS))
        if operator.name in _LATER and not first:
            continue
        limit = _SIMPLE if operator.name in _LATER else _LIMITS[place.compiler]
        allowed = limit + _A_TRANSCENDENTAL * operator.transcendentals
        yield _case(place, operator.name, _NEW, (Goal(seconds=allowed),))
        if first:
            yield _case(place, operator.name, _DISK, (Goal(seconds=_FROM_DISK),))
    yield _case(place, "2*x + 1", _EMPTY, ())
    yield _case(place, "factor*x", _VALUE, ())


def _case(place: _Place, operator: str, state: str, goals: tuple[Any, ...]) -> Case:
    from harness import OURS, Case, Contender

    filled = place.filled.get(operator) if state == _DISK else None
    if filled is None:
        filled = place.fresh(place.known)
        if state == _DISK:
            place.call(operator, filled)

    def measure(_: int) -> float:
        if state == _NEW:
            place.filled[operator] = place.fresh(place.known)
            return place.call(operator, place.filled[operator])
        if state == _EMPTY:
            return place.call(operator, place.fresh())
        return place.call(operator, filled, revalue=state == _VALUE)

    found = [Contender(OURS, lambda: measure(1), measure, single=True)]
    if state == _NEW and operator == "2*x + 1":
        found += _numba(place)
    return Case(
        name=f"{state}: {operator} ({place.compiler})",
        dtype="float32",
        elements=1000,
        contenders=tuple(found),
        goals=goals,
    )


def _numba(place: _Place) -> list[Contender]:
    from harness import Contender
    from peers import peer

    if isinstance(peer("numba"), str):
        return []

    def measure(_: int) -> float:
        found = _process({"operator": "numba"}, place.known, place.compiler)
        return float(found["seconds"])

    return [Contender("numba", lambda: measure(1), measure, single=True)]


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    json.dump(_numba_child() if wanted["operator"] == "numba" else _child(wanted), sys.stdout)
