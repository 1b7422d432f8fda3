"""Which of a project's variants a call builds: named ones, all, or what some system would load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kernelmill.errors import ArgumentError, NotImplementedHere, PackageError
from kernelmill.package.matrix import entries, machine_entries
from kernelmill.package.release import Release
from kernelmill.package.system import here
from kernelmill.package.variant import Backend, decide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.package.matrix import Entry, Project

__all__ = ["Selection", "select"]


@dataclass(frozen=True, slots=True)
class Selection:
    """What is built, and what of all variants cannot be."""

    entries: tuple[Entry, ...]
    refused: tuple[Entry, ...] = ()


def select(
    project: Project,
    *,
    variants: Sequence[str] = (),
    everything: bool = False,
    torch: str | None = None,
    cuda: str | None = None,
) -> Selection:
    """Return the variants to build.

    Parameters
    ----------
    project
        The project.
    variants
        Names, or patterns with `*`.
    everything
        All that can be built.
    torch, cuda
        Versions that stand for those of this system; what it would then load is built.

    Raises
    ------
    ArgumentError
        Options that exclude each other, or a version that is none.
    PackageError
        A name fits no variant, or nothing fits the versions.
    NotImplementedHere
        A variant that is named cannot be built.
    """
    ways = [bool(variants), everything, bool(torch or cuda)]
    if sum(ways) > 1:
        raise ArgumentError("--variant, --all and --torch/--cuda exclude each other")
    if variants:
        return Selection(_named(project, variants))
    if everything:
        found = entries(project)
        built = tuple(entry for entry in found if entry.refusal is None)
        if not built:
            reasons = "\n".join(f"  {entry.variant}: {entry.refusal}" for entry in found)
            raise NotImplementedHere(f"no variant of {project.name} can be built:\n{reasons}")
        return Selection(built, tuple(entry for entry in found if entry.refusal))
    if torch or cuda:
        return Selection(_for_system(project, torch, cuda))
    chosen = machine_entries(project)
    if not chosen:
        known = "\n".join(f"  {entry.variant}" for entry in entries(project))
        raise PackageError(
            f"{project.name} has no variant for this machine; it has:\n{known}",
            hint="`kernelmill build --all` builds what can be built, `--variant NAME` one of them",
        )
    return Selection(chosen)


def _named(project: Project, names: Sequence[str]) -> tuple[Entry, ...]:
    found = entries(project)
    chosen: dict[str, Entry] = {}
    for name in names:
        fits = [entry for entry in found if fnmatchcase(str(entry.variant), name)]
        if not fits:
            known = "\n".join(f"  {entry.variant}" for entry in found)
            raise PackageError(f"{project.name} has no variant {name}; it has:\n{known}")
        for entry in fits:
            if entry.refusal is not None and "*" not in name:
                raise NotImplementedHere(f"{entry.variant} cannot be built: {entry.refusal}")
            if entry.refusal is None:
                chosen[str(entry.variant)] = entry
    return tuple(chosen.values())


def _for_system(project: Project, torch: str | None, cuda: str | None) -> tuple[Entry, ...]:
    system = here()
    if torch:
        project = replace(project, torch=(_version(torch, "--torch"),))
        system = replace(system, torch=Release.parse(torch), cxx11=True)
    if cuda:
        project = replace(project, cuda=(_version(cuda, "--cuda"),))
        system = replace(system, backend=Backend("cuda", Release.parse(cuda)))
    found = {e.variant: e for e in entries(project) if e.refusal is None}
    chosen = tuple(found[d.variant] for d in decide(found, system) if d.accepted)
    if not chosen:
        wanted = " and ".join(
            f"{name} {version}" for name, version in (("torch", torch), ("CUDA", cuda)) if version
        )
        reasons = "\n".join(f"  {d.variant}: {d.reason}" for d in decide(found, system))
        raise PackageError(
            f"{project.name} has no variant that a system with {wanted} loads:\n{reasons}"
        )
    return chosen


def _version(text: str, option: str) -> str:
    try:
        release = Release.parse(text)
    except ValueError:
        raise ArgumentError(f"{option} {text!r} is no version; written like 2.12") from None
    return f"{release.major}.{release.minor}"
