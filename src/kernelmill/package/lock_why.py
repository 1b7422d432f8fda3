"""Which dependency wants what: the chains in a lock that lead to a kernel or a Python package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelmill.errors import LockError
from kernelmill.package.resolve import PROJECT, Step, chains_to
from kernelmill.package.wanted import PythonNeed, canonical_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kernelmill.package.lock import Lock

__all__ = ["Reason", "why"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is locked, and the ways from the project to it, the shortest first."""

    name: str
    version: str
    commit: str
    chains: tuple[tuple[str, ...], ...]

    def lines(self) -> Iterator[str]:
        """Yield what people read."""
        commit = f" ({self.commit})" if self.commit else ""
        yield f"{self.name} {self.version}{commit}".rstrip()
        for chain in self.chains:
            yield "  " + " -> ".join((PROJECT, *chain))


def why(lock: Lock, name: str) -> tuple[Reason, ...]:
    r"""Return why something is locked.

    Parameters
    ----------
    lock
        The project's.
    name
        `organization/name`, perhaps with `@N`, or a Python distribution.

    Returns
    -------
    reasons
        One for each major version that is locked.

    Raises
    ------
    LockError
        Nothing needs it; the text lists what there is.

    Examples
    --------
    >>> from kernelmill.package.index import KernelNeed
    >>> from kernelmill.package.lock import Lock, LockedKernel
    >>> from kernelmill.package.lock_why import why
    >>> from kernelmill.package.wanted import Wanted
    >>> kernel = LockedKernel("org/x", "1.2.0", "v1", "ab" * 20, {})
    >>> lock = Lock((KernelNeed("org/x", Wanted(1)),), {"org/x": kernel})
    >>> print(*next(iter(why(lock, "org/x"))).lines(), sep="\n")
    org/x 1.2.0 (abababababababababababababababababababab)
      the project -> org/x (version 1)
    """
    roots = {lock.slot_of(need): Step("", need) for need in lock.requires}
    edges: dict[str, dict[str, Step]] = {}
    for slot, kernel in lock.kernels.items():
        rows = {to: Step(slot, need) for to, need in kernel.needs.items()}
        python = map(PythonNeed.parse, kernel.python)
        edges[slot] = rows | {f"python:{need.name}": Step(slot, need) for need in python}
    found = [
        Reason(slot, kernel.version, kernel.commit, _texts(chains_to(slot, roots, edges)))
        for slot, kernel in lock.kernels.items()
        if name in {slot, kernel.repo_id}
    ]
    target = f"python:{canonical_name(name)}"
    if any(target in rows for rows in edges.values()):
        found.append(Reason(name, "", "", _texts(chains_to(target, roots, edges))))
    if not found:
        there = sorted({*lock.kernels, *(to for rows in edges.values() for to in rows)})
        words = ", ".join(one.removeprefix("python:") for one in there) or "nothing"
        raise LockError(f"nothing needs {name}; locked: {words}")
    return tuple(found)


def _texts(chains: Iterable[Iterable[Step]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(str(step.need) for step in chain) for chain in chains)
