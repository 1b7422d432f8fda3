"""Compute capabilities: how they are written, which a kernel is compiled for, what nvcc is told.

Hugging Face's builder matches what a kernel asks for with what the toolkit serves "loosely": each
served capability takes the highest asked one that its code can run on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from kernelmill.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Arch", "gencode", "loose_intersection", "sorted_archs"]

_FORM: Final = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Arch:
    """A capability such as 9.0, 9.0a or 12.0+PTX.

    Examples
    --------
    >>> from kernelmill.package.archs import Arch
    >>> Arch.parse("9.0a").sm, str(Arch.parse("12.0+PTX"))
    ('90a', '12.0+PTX')
    """

    major: int
    minor: int
    suffix: str = ""
    ptx: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a capability.

        Raises
        ------
        PackageError
            It is none.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise PackageError(
                f"{text!r} is no compute capability",
                hint="they are written 8.0, 9.0a, 10.0f or 12.0+PTX",
            )
        return cls(int(match[1]), int(match[2]), match[3], bool(match[4]))

    @property
    def sm(self) -> str:
        """The number that compilers use."""
        return f"{self.major}{self.minor}{self.suffix}"

    @property
    def base(self) -> tuple[int, int]:
        """Major and minor."""
        return self.major, self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.suffix}{'+PTX' if self.ptx else ''}"


def sorted_archs(texts: Iterable[str]) -> tuple[Arch, ...]:
    """Return capabilities in ascending order, each once."""
    return tuple(sorted({Arch.parse(text) for text in texts}))


def loose_intersection(asked: Sequence[str], served: Sequence[str]) -> tuple[Arch, ...]:
    """Return what to compile for, given what a kernel asks for and what the toolkit serves.

    A capability with a suffix is taken where its base is served, and then stands for it. Each other
    served one takes the highest asked one that is not above it and of its major version, or, with
    +PTX, of any.

    Examples
    --------
    >>> from kernelmill.package.archs import loose_intersection
    >>> asked, served = ["7.5", "8.0", "8.6", "9.0", "9.0a"], ["8.0", "8.9", "9.0"]
    >>> [str(arch) for arch in loose_intersection(asked, served)]
    ['8.0', '8.6', '9.0a']
    >>> [str(arch) for arch in loose_intersection(["8.0+PTX"], ["9.0"])]
    ['8.0+PTX']
    """
    wanted, targets = sorted_archs(asked), sorted_archs(served)
    forms = {target.base for target in targets}
    special = {arch for arch in wanted if arch.suffix and arch.base in forms}
    covered = {arch.base for arch in special}
    with_ptx = {arch.base for arch in wanted if arch.ptx and not arch.suffix}
    plain = sorted({arch.base for arch in wanted if not arch.suffix})
    chosen = set()
    for target in targets:
        if target.base in covered:
            continue
        fits = [
            base
            for base in plain
            if base <= target.base and (base[0] == target.major or base in with_ptx)
        ]
        if fits:
            chosen.add(Arch(*fits[-1], ptx=fits[-1] in with_ptx))
    return tuple(sorted(chosen | special))


def gencode(archs: Iterable[Arch]) -> tuple[str, ...]:
    """Return nvcc's arguments for machine code of each capability, and PTX where it is asked for.

    Examples
    --------
    >>> from kernelmill.package.archs import gencode, sorted_archs
    >>> gencode(sorted_archs(["8.0", "9.0+PTX"]))[1:]
    ('-gencode=arch=compute_90,code=sm_90', '-gencode=arch=compute_90,code=compute_90')
    """
    made = []
    for arch in archs:
        made.append(f"-gencode=arch=compute_{arch.sm},code=sm_{arch.sm}")
        if arch.ptx:
            made.append(f"-gencode=arch=compute_{arch.sm},code=compute_{arch.sm}")
    return tuple(made)
