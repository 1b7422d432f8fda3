"""One version of every kernel that a project needs, such that all requirements hold. Locks nothing.

`resolvelib` searches; here stands what it asks about kernels. Kernels depend on kernels, and on
Python distributions, whose versions are not chosen but whose ranges must have one in common. Where
no set of versions will do, the error shows each chain of requirements that leads to it.
"""

from __future__ import annotations

import importlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import MissingExtraError, ResolutionError
from kernelmill.package.catalog import Catalog
from kernelmill.package.index import KernelNeed
from kernelmill.package.wanted import PythonNeed, Wanted, joined, satisfiable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernelmill.package.versions import Published, Reading

__all__ = ["PROJECT", "Pin", "Resolution", "Step", "chains_to", "resolve"]

PROJECT: Final = "the project"
MOST_ROUNDS: Final = 20_000
MOST_WAYS: Final = 20
_MOST_CHAINS: Final = 6


@dataclass(frozen=True, slots=True)
class _Asked:
    """A requirement: what it is about, and the need."""

    slot: str
    need: KernelNeed | PythonNeed


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A candidate: one version of a kernel."""

    slot: str
    repo_id: str
    published: Published = field(compare=False)
    commit: str = ""

    def __str__(self) -> str:
        return f"{self.repo_id} {self.published}"


@dataclass(frozen=True, slots=True)
class _Distribution:
    """A candidate: a Python distribution at whatever version meets these ranges."""

    slot: str
    ranges: frozenset[str]


@dataclass(frozen=True, slots=True)
class Step:
    """One edge of a chain: who asks (a repository, "" for the project), and for what."""

    by: str
    need: KernelNeed | PythonNeed


@dataclass(frozen=True, slots=True)
class Pin:
    """A kernel at the version that was chosen; slot → what it needs there.

    A slot is the repository, or `repository@N` where several major versions live side by side.
    """

    slot: str
    repo_id: str
    published: Published
    leads_to: Mapping[str, KernelNeed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What was chosen: pins by slot, sorted; what the project's own needs led to; Python ranges."""

    pins: tuple[Pin, ...]
    roots: tuple[str, ...]
    python: tuple[PythonNeed, ...]


def resolve(
    registry: Reading,
    needs: Sequence[KernelNeed],
    *,
    preferred: Mapping[str, str] | None = None,
    side_by_side: Iterable[str] | bool = False,
    catalog: Catalog | None = None,
) -> Resolution:
    """Choose a version of each kernel that a project needs.

    Parameters
    ----------
    registry
        Where the kernels are published.
    needs
        What the project itself asks for.
    preferred
        Slot → commit, from an earlier lock: kept as long as it meets what is asked.
    side_by_side
        Repositories of which several major versions may be chosen at once; True for all, as
        Hugging Face has it. Else each kernel gets one version.
    catalog
        What is known of the registry already.

    Returns
    -------
    resolution
        The newest versions that go together.

    Raises
    ------
    ResolutionError
        No set of versions meets all needs, or kernels depend on each other in a circle.
    RegistryError
        The registry does not answer, or has no such kernel.

    Examples
    --------
    >>> import json
    >>> from kernelmill.package.index import KernelNeed
    >>> from kernelmill.package.registry import Add
    >>> from kernelmill.package.registry_files import FilesRegistry
    >>> from kernelmill.package.resolve import resolve
    >>> from kernelmill.package.shelf import open_shelf
    >>> from kernelmill.package.wanted import Wanted
    >>> registry = FilesRegistry(open_shelf("memory://resolve"))
    >>> registry.create("org/x")
    >>> facts = {"name": "xx", "id": "_x", "version": 1, "license": "MIT", "python-depends": [],
    ...          "backend": {"type": "cpu"}, "kernelmill": {"version": "1.2.0"}}
    >>> add = Add("build/torch-universal/metadata.json", json.dumps(facts).encode())
    >>> _ = registry.publish("org/x", "v1", [add], message="first")
    >>> found = resolve(registry, [KernelNeed("org/x", Wanted.parse(">=1.1,<2"))])
    >>> [(pin.repo_id, str(pin.published)) for pin in found.pins]
    [('org/x', '1.2.0')]
    """
    library = _resolvelib()
    known = catalog or Catalog(registry, preferred or {})
    known.crawl(needs)
    provider = _Provider(known, side_by_side)
    asked = [provider.asked(need) for need in needs]
    for one in asked:
        provider.trail.add(one, None)
    try:
        result = library.Resolver(provider, library.BaseReporter()).resolve(asked, MOST_ROUNDS)
    except library.ResolutionImpossible as error:
        raise _impossible(error.causes, provider) from None
    except library.ResolutionTooDeep:
        raise ResolutionError(
            f"no set of versions was found in {MOST_ROUNDS:,} rounds",
            hint="narrow the ranges in pyproject.toml",
        ) from None
    return _resolution(result, provider, asked)


def _resolvelib() -> Any:  # Any: a module
    try:
        return importlib.import_module("resolvelib")
    except ImportError as error:
        raise MissingExtraError(
            "resolving kernels needs the distribution resolvelib, which is not installed",
            hint="pip install 'kernelmill[hub]'",
        ) from error


# ----------------------------------------------------------------------------- what is asked about


@dataclass(slots=True)
class _Trail:
    """Who has asked for what, over the whole search; chains for errors are read from it."""

    asked: dict[str, list[tuple[_Asked, _Kernel | None]]] = field(default_factory=dict)

    def add(self, one: _Asked, by: _Kernel | None) -> None:
        rows = self.asked.setdefault(one.slot, [])
        if (one, by) not in rows:
            rows.append((one, by))


class _Provider:
    """What resolvelib asks about kernels; duck-typed, since that library may be absent."""

    def __init__(self, known: Catalog, side_by_side: Iterable[str] | bool) -> None:  # noqa: FBT001
        self.known = known
        self.trail = _Trail()
        self.several = side_by_side if isinstance(side_by_side, bool) else frozenset(side_by_side)

    def asked(self, need: KernelNeed | PythonNeed) -> _Asked:
        if isinstance(need, PythonNeed):
            return _Asked(f"python:{need.name}", need)
        several = self.several
        apart = several if isinstance(several, bool) else need.repo_id in several
        return _Asked(self.known.slot(need) if apart else need.repo_id, need)

    def identify(self, requirement_or_candidate: _Asked | _Kernel | _Distribution) -> str:
        return requirement_or_candidate.slot

    def narrow_requirement_selection(
        self, identifiers: Iterable[str], **_: object
    ) -> Iterable[str]:
        return identifiers

    def get_preference(
        self, identifier: str, *_: object, backtrack_causes: Sequence[Any] = (), **__: object
    ) -> tuple[bool, bool, str]:
        blamed = any(cause.requirement.slot == identifier for cause in backtrack_causes)
        return identifier.startswith("python:"), not blamed, identifier

    def find_matches(
        self,
        identifier: str,
        requirements: Mapping[str, Iterator[_Asked]],
        incompatibilities: Mapping[str, Iterator[_Kernel]],
    ) -> list[_Kernel] | list[_Distribution]:
        needs = [one.need for one in requirements[identifier]]
        if identifier.startswith("python:"):
            ranges = frozenset(need.range for need in needs if isinstance(need, PythonNeed))
            return [_Distribution(identifier, ranges)] if satisfiable(ranges) else []
        kernels = [need for need in needs if isinstance(need, KernelNeed)]
        barred = {one.commit for one in incompatibilities[identifier]}
        repo_id = kernels[0].repo_id
        return [
            _Kernel(identifier, repo_id, one, one.commit)
            for one in self.known.candidates(repo_id, [need.wanted for need in kernels], identifier)
            if one.commit not in barred
        ]

    def is_satisfied_by(self, requirement: _Asked, candidate: _Kernel | _Distribution) -> bool:
        need = requirement.need
        if isinstance(candidate, _Distribution):
            return need.range in candidate.ranges if isinstance(need, PythonNeed) else False
        assert isinstance(need, KernelNeed)
        return self.known.admits(need, candidate.published)

    def get_dependencies(self, candidate: _Kernel | _Distribution) -> list[_Asked]:
        if isinstance(candidate, _Distribution):
            return []
        found = self.known.needs(candidate.repo_id, candidate.published)
        needs: tuple[KernelNeed | PythonNeed, ...] = (*found.kernels, *found.python)
        made = [self.asked(need) for need in needs]
        for one in made:
            self.trail.add(one, candidate)
        return made


# ----------------------------------------------------------------------------- what was chosen


def _resolution(result: Any, provider: _Provider, asked: Sequence[_Asked]) -> Resolution:
    pins: list[Pin] = []
    python: list[PythonNeed] = []
    for slot, candidate in sorted(result.mapping.items()):
        if isinstance(candidate, _Distribution):
            name = slot.removeprefix("python:")
            python += (PythonNeed(name, text) for text in candidate.ranges)
            continue
        found = provider.known.described(candidate.repo_id, candidate.published)
        needs = provider.known.needs(candidate.repo_id, candidate.published)
        leads: dict[str, KernelNeed] = {}
        for need in needs.kernels:
            place = provider.asked(need).slot
            leads[place] = _both(leads[place], need) if place in leads else need
        pins.append(Pin(slot, candidate.repo_id, found, dict(sorted(leads.items()))))
    _refuse_circles({pin.slot: tuple(pin.leads_to) for pin in pins})
    roots = sorted({one.slot for one in asked if isinstance(one.need, KernelNeed)})
    return Resolution(tuple(pins), tuple(roots), joined(python))


def _both(one: KernelNeed, other: KernelNeed) -> KernelNeed:
    """Return what two variants ask of one kernel: both ranges, else the stricter of the two."""
    if one.wanted.range and other.wanted.range:
        joined_range = f"{one.wanted.range},{other.wanted.range}"
        return KernelNeed(one.repo_id, Wanted.parse(joined_range))
    return max(one, other, key=lambda need: (bool(need.wanted.revision), str(need)))


def _refuse_circles(edges: Mapping[str, Sequence[str]]) -> None:
    done: set[str] = set()
    for start in sorted(edges):
        path: list[str] = []
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            slot, leaving = stack.pop()
            if leaving:
                done.add(path.pop())
                continue
            if slot in path:
                raise ResolutionError(
                    "kernels depend on each other in a circle: "
                    + " -> ".join([*path[path.index(slot) :], slot]),
                    hint="a kernel is loaded after those that it depends on, so there is no first",
                )
            if slot in done:
                continue
            path.append(slot)
            stack.append((slot, True))
            stack.extend((other, False) for other in reversed(edges.get(slot, ())))


def _impossible(causes: Iterable[Any], provider: _Provider) -> ResolutionError:
    """Show which requirements exclude each other, each with the chain from the project to it."""
    groups: dict[str, list[str]] = {}
    for cause in causes:
        text = _chain(cause.requirement, cause.parent, provider.trail)
        lines = groups.setdefault(cause.requirement.slot, [])
        if text not in lines:
            lines.append(text)
    lines = ["no versions meet all requirements:"]
    for slot, chains in sorted(groups.items()):
        lines.append(f"  {_headline(slot, len(chains), provider)}")
        lines += (f"    {text}" for text in sorted(chains)[:_MOST_CHAINS])
        more = len(chains) - _MOST_CHAINS
        lines += [f"    and {more} more"] if more > 0 else []
    return ResolutionError("\n".join(lines), hint=_advice(groups))


def _headline(slot: str, requirements: int, provider: _Provider) -> str:
    if slot.startswith("python:"):
        return f"{slot.removeprefix('python:')}: no version of this Python package is in all ranges"
    repo_id = slot.partition("@")[0]
    there = ", ".join(map(str, provider.known.versions(repo_id))) or "none"
    many = "all of these requirements" if requirements > 1 else "this requirement"
    return f"{repo_id}: no published version meets {many} (published: {there})"


def _advice(groups: Mapping[str, object]) -> str:
    names = [slot for slot in sorted(groups) if not slot.startswith("python:") and "@" not in slot]
    if not names:
        return "relax one of the ranges"
    listed = ", ".join(f'"{name}"' for name in names)
    return f"relax one of them, or allow several major versions: side-by-side = [{listed}]"


def _chain(asked: _Asked, by: _Kernel | None, trail: _Trail) -> str:
    """Write a chain of requirements, from the project to the one that is in the way."""
    steps = [str(asked.need)]
    seen: set[str] = set()
    while by is not None and by.slot not in seen:
        seen.add(by.slot)
        steps.append(str(by))
        rows = trail.asked.get(by.slot, [])
        by = next((parent for _, parent in rows if parent is None or parent.slot not in seen), None)
    return " -> ".join([PROJECT, *reversed(steps)])


# ----------------------------------------------------------------------------- who wants what


def chains_to(
    target: str, roots: Mapping[str, Step], edges: Mapping[str, Mapping[str, Step]]
) -> tuple[tuple[Step, ...], ...]:
    """Return ways from the project to a kernel or a Python distribution, the shortest 20 first.

    Parameters
    ----------
    target
        A slot, or `python:name`.
    roots
        Slot → what the project asks for there.
    edges
        Slot → slot → what the first asks of the second.
    """
    found: list[tuple[Step, ...]] = []
    waiting: deque[tuple[str, tuple[Step, ...]]] = deque(
        (slot, (step,)) for slot, step in sorted(roots.items())
    )
    for _ in range(MOST_ROUNDS):  # a net of diamonds has more ways than anybody reads
        if not waiting or len(found) == MOST_WAYS:
            break
        slot, path = waiting.popleft()
        if slot == target:
            found.append(path)
            continue
        waiting.extend((nxt, (*path, step)) for nxt, step in sorted(edges.get(slot, {}).items()))
    return tuple(found)
