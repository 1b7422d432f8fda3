"""Which of a repository's variants this system loads, and why not the others. Reads no file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.errors import NoVariantError, PackageError
from kernelmill.package.system import here
from kernelmill.package.variant import Decision, Variant, decide

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kernelmill.package.system import System

__all__ = ["Choice", "choose", "directories", "local_variant"]

_MOST_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Choice:
    """What a system makes of the variants of one version: the best first, then why not."""

    decisions: tuple[Decision, ...]
    unreadable: tuple[str, ...] = ()

    @property
    def best(self) -> Variant | None:
        """The variant to load; None where there is none."""
        first = self.decisions[0] if self.decisions else None
        return first.variant if first is not None and first.accepted else None

    def require(self, what: str) -> Variant:
        """Return the best variant.

        Raises
        ------
        PackageError
            There is none; the text says of each variant why not.
        """
        if self.best is not None:
            return self.best
        lines = [f"  {d.variant}: {d.reason}" for d in self.decisions]
        lines += [f"  {name}: no name of a variant" for name in self.unreadable[:_MOST_SHOWN]]
        if len(self.unreadable) > _MOST_SHOWN:
            lines.append(f"  and {len(self.unreadable) - _MOST_SHOWN} more that are none")
        raise NoVariantError(
            "\n".join([f"{what} has no variant for this system:", *(lines or ["  none at all"])]),
            hint="ask its publisher for a build, or build it with `kernelmill build`",
        )


def choose(names: Iterable[str], system: System | None = None) -> Choice:
    """Judge variants by their names.

    Parameters
    ----------
    names
        Of directories below `build/`. Those that are no names of variants are kept apart.
    system
        None for the one that runs.

    Examples
    --------
    >>> from kernelmill.package.choice import choose
    >>> from kernelmill.package.system import System
    >>> choice = choose(["torch-cpu", "torch-cuda"], System.parse("cpu-x86_64-linux"))
    >>> str(choice.best), choice.decisions[1].reason
    ('torch-cpu', 'it is for cuda; this system has cpu')
    """
    variants: list[Variant] = []
    unreadable: list[str] = []
    for name in sorted(set(names)):
        try:
            variants.append(Variant.parse(name))
        except PackageError:
            unreadable.append(name)
    return Choice(decide(variants, here() if system is None else system), tuple(unreadable))


def local_variant(path: Path, *, backend: str | None = None) -> Path:
    """Return the directory of the best variant in a directory of a kernel.

    Parameters
    ----------
    path
        A project or repository (with `build/`), a directory of variants, or one variant.
    backend
        "cpu" leaves the accelerator out; None is what the system has.

    Raises
    ------
    PackageError
        There is no such directory, or nothing in it that this system loads.
    """
    if not path.is_dir():
        raise PackageError(f"{path} is not a directory; a kernel is looked for there")
    system = here(backend)
    for base in (path, path / "build"):
        found = choose(directories(base), system)
        if found.best is not None:
            return base / str(found.best)
    if (path / "metadata.json").is_file():
        return path
    names = [*directories(path / "build"), *directories(path)]
    return path / str(choose(names, system).require(str(path)))


def directories(base: Path) -> list[str]:
    """Return the names of the variants in a `build/`: what a build keeps beside them is hidden."""
    if not base.is_dir():
        return []
    names = [entry.name for entry in base.iterdir() if entry.is_dir()]
    return [name for name in names if name != "build" and not name.startswith(".")]
