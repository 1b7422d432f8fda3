"""What a warm call costs: arrays of 1,000 elements, outputs given, the pool not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

import kernelmill as km
from harness import OURS, Case, Contender, Goal, timed_statement
from peers import peer, values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Budget

__all__ = ["cases"]

ELEMENTS: Final = 1000
_PLAN: Final = (Goal(seconds=1.5e-6),)
_FREE: Final = (Goal(seconds=3e-6),)


class _Call(NamedTuple):
    """A statement of ours, with the statements that do the same elsewhere."""

    name: str
    ours: str
    goals: tuple[Goal, ...]
    numpy: str
    torch: str = ""


_CALLS: Final = (
    _Call(
        "plan(x, y, out=o)",
        "plan(x, y, out=o)",
        _PLAN,
        "np.add(x, y, out=o)",
        "torch.add(tx, ty, out=to)",
    ),
    _Call(
        "transform, out=",
        "km.transform((x, y), add, out=o)",
        _FREE,
        "np.add(x, y, out=o)",
        "torch.add(tx, ty, out=to)",
    ),
    _Call(
        "transform, lambda in the call, out=",
        "km.transform(x, lambda a: 2 * a + 1, out=o)",
        _FREE,
        "np.add(np.multiply(x, 2, out=o), 1, out=o)",
        "torch.mul(tx, 2, out=to).add_(1)",
    ),
    _Call(
        "plan of a captured scalar",
        "plan_scale(x, out=o)",
        _PLAN,
        "np.multiply(x, 2.5, out=o)",
        "torch.mul(tx, 2.5, out=to)",
    ),
    _Call(
        "transform, captured scalar, out=",
        "km.transform(x, scale, out=o)",
        _FREE,
        "np.multiply(x, 2.5, out=o)",
        "torch.mul(tx, 2.5, out=to)",
    ),
    _Call(
        "transform, two results, out=",
        "km.transform((x, y), both, out=oo)",
        _FREE,
        "np.add(x, y, out=o); np.subtract(x, y, out=o2)",
    ),
    _Call("plan of a sum", "plan_sum(x, out=s)", _PLAN, "np.sum(x, out=s)", "torch.sum(tx)"),
    _Call("sum, out=", "km.reduce(x, km.add, out=s)", _FREE, "np.sum(x, out=s)", "torch.sum(tx)"),
    _Call("sum, a new scalar", "km.reduce(x)", (), "np.sum(x)", "torch.sum(tx)"),
    _Call(
        "plan of sum, minimum and maximum",
        "plan_three(x, out=sss)",
        _PLAN,
        "np.sum(x); np.min(x); np.max(x)",
    ),
    _Call(
        "sum, minimum and maximum, out=",
        "km.reduce(x, three, out=sss)",
        _FREE,
        "np.sum(x); np.min(x); np.max(x)",
    ),
    _Call(
        "sum of (x - y)**2, out=",
        "km.transform_reduce((x, y), squared, out=s)",
        _FREE,
        "np.sum((x - y) ** 2)",
        "torch.sum((tx - ty) ** 2)",
    ),
    _Call(
        "sum over an axis, out=",
        "km.reduce(grid, axis=0, out=column)",
        _FREE,
        "np.sum(grid, 0, out=column)",
        "torch.sum(tgrid, 0, out=tcolumn)",
    ),
)


def _names() -> dict[str, Any]:
    x, y, o, o2 = values(4, ELEMENTS, "float32")
    s, low, high = (np.zeros((), np.float32) for _ in range(3))
    grid, column = x.reshape(25, 40), np.empty(40, np.float32)
    factor = 2.5
    three = (km.add, km.minimum, km.maximum)

    def add(a: Any, b: Any) -> Any:
        return a + b

    def scale(a: Any) -> Any:
        return a * factor

    def both(a: Any, b: Any) -> Any:
        return a + b, a - b

    def squared(a: Any, b: Any) -> Any:
        return (a - b) ** 2

    oo, sss = (o, o2), (s, low, high)
    planned: Any = km.transform
    reduced: Any = km.reduce
    return {
        "km": km,
        "np": np,
        "x": x,
        "y": y,
        "o": o,
        "o2": o2,
        "s": s,
        "oo": oo,
        "sss": sss,
        "grid": grid,
        "column": column,
        "three": three,
        "add": add,
        "scale": scale,
        "both": both,
        "squared": squared,
        "plan": planned.plan((x, y), add, out=o),
        "plan_scale": planned.plan(x, scale, out=o),
        "plan_sum": reduced.plan(x, km.add, out=s),
        "plan_three": reduced.plan(x, three, out=sss),
    }


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    del budget
    names = _names()
    torch = peer("torch")
    skipped = {"torch": torch} if isinstance(torch, str) else {}
    if not skipped:
        given = {"tx": "x", "ty": "y", "to": "o", "tgrid": "grid", "tcolumn": "column"}
        names["torch"] = torch
        names |= {name: torch.from_numpy(names[array]) for name, array in given.items()}
    for call in _CALLS:
        found = [_contender(OURS, call.ours, names), _contender("numpy", call.numpy, names)]
        if call.torch and not skipped:
            found.append(_contender("torch", call.torch, names))
        yield Case(
            name=call.name,
            dtype="float32",
            elements=ELEMENTS,
            contenders=tuple(found),
            goals=call.goals,
            skipped=skipped,
        )


def _contender(name: str, statement: str, names: dict[str, Any]) -> Contender:
    timer = timed_statement(statement, **names)
    return Contender(name, lambda: timer(1), timer)
