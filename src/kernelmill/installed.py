"""Installed distributions: what each extra of kernelmill lacks, which wheels are in others' way.

The rules are functions of versions alone, so that they can be tried on any set. Nothing is
imported from a distribution, and nothing is installed.
"""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "BINDINGS",
    "DISTRIBUTION",
    "RULES",
    "Conflict",
    "Extra",
    "Installed",
    "Need",
    "extras",
    "find_conflicts",
    "install_line",
    "installed",
    "names_of",
    "requirements_of",
    "version_of",
]

DISTRIBUTION: Final = "kernelmill"
BINDINGS: Final = "cuda-bindings"


# ----------------------------------------------------------------------------- distributions


@dataclass(frozen=True, slots=True)
class Need:
    """One requirement of an extra: what is asked for, and the version found, "" for none."""

    name: str
    specifier: str
    version: str

    @property
    def satisfied(self) -> bool:
        """Whether a version is installed and is one of those asked for."""
        return bool(self.version) and _matches(self.version, self.specifier)


@dataclass(frozen=True, slots=True)
class Extra:
    """One extra of kernelmill and the line that installs it."""

    name: str
    needs: tuple[Need, ...]
    install: str

    @property
    def complete(self) -> bool:
        """Whether all of it is installed."""
        return all(need.satisfied for need in self.needs)


@dataclass(frozen=True, slots=True)
class Installed:
    """Versions of installed distributions by name, and what torch requires in its own words."""

    versions: Mapping[str, str]
    torch_requires: tuple[str, ...] = ()

    def of(self, name: str) -> str:
        """Return the version of a distribution, "" when it is not installed."""
        return self.versions.get(name, "")


_REQUIREMENT: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*\(?(?P<specifier>[^;)]*)\)?"
    r"\s*(;(?P<marker>.*))?",
    re.ASCII,
)
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_CLAUSE: Final = re.compile(r"\s*(>=|<=|==|!=|~=|>|<)\s*([0-9][^\s,]*)\s*")
_SEPARATORS: Final = re.compile(r"[-_.]+")


@dataclass(frozen=True, slots=True)
class _Requirement:
    name: str
    specifier: str
    extra: str


def _parse(requirement: str) -> _Requirement:
    found = _REQUIREMENT.match(requirement.strip())
    assert found is not None, "metadata holds requirements only"
    extra = _EXTRA.search(found["marker"] or "")
    name = _SEPARATORS.sub("-", found["name"]).lower()
    return _Requirement(name, found["specifier"].strip(), extra[1] if extra else "")


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: (2, 13, 0) of "2.13.0+cpu"."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _minor(version: str) -> tuple[int, ...]:
    return _release(version)[:2]


_COMPARE: Final[Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}


def _matches(version: str, specifier: str) -> bool:
    """Compare release numbers; enough for the requirements of kernelmill and of torch."""
    return all(_clause_holds(_release(version), clause) for clause in _clauses(specifier))


def _clauses(specifier: str) -> list[tuple[str, str]]:
    found = (_CLAUSE.fullmatch(text) for text in specifier.split(","))
    return [(clause[1], clause[2]) for clause in found if clause]


def _clause_holds(version: tuple[int, ...], clause: tuple[str, str]) -> bool:
    relation, limit = clause
    wanted = _release(limit)
    width = max(len(version), len(wanted))
    found, least = (side + (0,) * (width - len(side)) for side in (version, wanted))
    if limit.endswith(".*"):
        return (found[: len(wanted)] == wanted) is (relation == "==")
    if relation == "~=":
        return found >= least and found[: len(wanted) - 1] == wanted[:-1]
    return _COMPARE[relation](found, least)


def installed(names: Iterable[str]) -> Installed:
    """Return the versions of these distributions and of all that the rules look at."""
    versions = {name: version_of(name) for name in {*names, *_LOOKED_AT}}
    return Installed({n: v for n, v in versions.items() if v}, requirements_of("torch"))


def version_of(name: str) -> str:
    """Return the version of an installed distribution, "" for one that is not there."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def requirements_of(name: str) -> tuple[str, ...]:
    """Return what an installed distribution requires, in its own words."""
    try:
        return tuple(importlib.metadata.requires(name) or ())
    except importlib.metadata.PackageNotFoundError:
        return ()


def names_of(requirements: Iterable[str]) -> set[str]:
    """Return the distributions that requirements name."""
    return {_parse(text).name for text in requirements}


def extras(requirements: Iterable[str], found: Installed) -> tuple[Extra, ...]:
    """Return the extras that the requirements of a distribution name, in their order."""
    needs: dict[str, list[Need]] = {}
    for row in map(_parse, requirements):
        if row.extra:
            need = Need(row.name, row.specifier, found.of(row.name))
            needs.setdefault(row.extra, []).append(need)
    return tuple(Extra(name, tuple(rows), install_line(name)) for name, rows in needs.items())


def install_line(*names: str) -> str:
    """Return the line for the shell that installs extras of kernelmill."""
    return f"pip install '{DISTRIBUTION}[{','.join(names)}]'"


# ----------------------------------------------------------------------------- conflicts


@dataclass(frozen=True, slots=True)
class Conflict:
    """Wheels in each other's way: what was found, what breaks, and the line that mends it."""

    found: str
    breaks: str
    mend: str


@dataclass(frozen=True, slots=True)
class _Wheels:
    """Names of NVIDIA's wheels for one major version of CUDA."""

    major: int
    nvrtc: str
    nvjitlink: str
    runtime: str

    def names(self) -> tuple[str, ...]:
        return self.nvrtc, self.nvjitlink, self.runtime


_CUDA: Final = (
    _Wheels(12, "nvidia-cuda-nvrtc-cu12", "nvidia-nvjitlink-cu12", "nvidia-cuda-runtime-cu12"),
    _Wheels(13, "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "nvidia-cuda-runtime"),
)
_TOOLKIT: Final = "cuda-toolkit"
_LOOKED_AT: Final = ("torch", BINDINGS, *(name for wheels in _CUDA for name in wheels.names()))


def _both_majors(found: Installed) -> Conflict | None:
    """Refuse two majors: there is one cuda-bindings, which loads the libraries of its own."""
    old, new = _CUDA
    if not (found.of(old.nvrtc) and found.of(new.nvrtc)):
        return None
    bindings = found.of(BINDINGS)
    unused = new if bindings and _release(bindings)[0] == old.major else old
    by = f"cuda-bindings {bindings} loads" if bindings else "cuda-bindings would load"
    return Conflict(
        f"{old.nvrtc} {found.of(old.nvrtc)} and {new.nvrtc} {found.of(new.nvrtc)} are both "
        "installed",
        f"{by} the libraries of its own major version only; the others are never used, and the "
        "extra that asked for them cannot work beside this one",
        f"pip uninstall -y {' '.join(unused.names())}",
    )


def _old_nvjitlink(found: Installed) -> Conflict | None:
    """Compare the two: a linker reads code of its own version and older, never of a newer one."""
    for wheels in _CUDA:
        nvrtc, linker = found.of(wheels.nvrtc), found.of(wheels.nvjitlink)
        if nvrtc and linker and _minor(linker) < _minor(nvrtc):
            least = ".".join(map(str, _minor(nvrtc)))
            return Conflict(
                f"{wheels.nvjitlink} {linker} is older than {wheels.nvrtc} {nvrtc}",
                "nvJitLink refuses LTO-IR that a newer NVRTC has made "
                "(NVJITLINK_ERROR_OUTDATED_LIBRARY)",
                f"pip install '{wheels.nvjitlink}>={least},<{_release(nvrtc)[0] + 1}'",
            )
    return None


def _torch_pin(found: Installed) -> Conflict | None:
    """Torch requires the NVRTC that it was built with, to the minor version."""
    for row in map(_parse, found.torch_requires):
        pins = [limit for relation, limit in _clauses(row.specifier) if relation == "=="]
        wheels = _pinned_wheels(row, pins)
        nvrtc = found.of(wheels.nvrtc) if wheels else ""
        if wheels and nvrtc and _minor(nvrtc) != _minor(pins[0]):
            wanted = ".".join(map(str, _minor(pins[0])))
            return Conflict(
                f"torch {found.of('torch')} pins {row.name}=={pins[0]}; {wheels.nvrtc} {nvrtc} is "
                "installed",
                f"torch was built and tested with NVRTC {wanted}; what it compiles at run time "
                "goes through another one now, and `pip check` fails",
                f"pip install '{wheels.nvrtc}=={wanted}.*'",
            )
    return None


def _pinned_wheels(row: _Requirement, pins: list[str]) -> _Wheels | None:
    """Return the wheels whose NVRTC a requirement of torch pins: by name, or as a toolkit."""
    if row.extra or not pins:
        return None
    for wheels in _CUDA:
        toolkit = row.name == _TOOLKIT and _release(pins[0])[0] == wheels.major
        if toolkit or row.name == wheels.nvrtc:
            return wheels
    return None


def _other_bindings(found: Installed) -> Conflict | None:
    """See that the bindings find libnvrtc.so of their own major version."""
    bindings = found.of(BINDINGS)
    there = [(wheels, found.of(wheels.nvrtc)) for wheels in _CUDA if found.of(wheels.nvrtc)]
    if not bindings or not there or any(w.major == _release(bindings)[0] for w, _ in there):
        return None
    (wheels, nvrtc) = there[0]
    return Conflict(
        f"cuda-bindings {bindings} and {wheels.nvrtc} {nvrtc} are of different major versions",
        f"cuda-bindings looks for libnvrtc.so.{_release(bindings)[0]}, which is not there: "
        "nothing can be compiled for the GPU",
        f"pip install 'cuda-bindings>={wheels.major}.0,<{wheels.major + 1}'",
    )


RULES: Final[tuple[Callable[[Installed], Conflict | None], ...]] = (
    _both_majors,
    _old_nvjitlink,
    _torch_pin,
    _other_bindings,
)


def find_conflicts(found: Installed) -> tuple[Conflict, ...]:
    """Return what the rules say of a set of installed versions.

    Examples
    --------
    >>> from kernelmill.installed import Installed, find_conflicts
    >>> wheels = {"cuda-bindings": "12.9.1", "nvidia-cuda-nvrtc": "13.0.88"}
    >>> find_conflicts(Installed(wheels))[0].mend
    "pip install 'cuda-bindings>=13.0,<14'"
    """
    conflicts = (rule(found) for rule in RULES)
    return tuple(conflict for conflict in conflicts if conflict is not None)
