"""Versions that are numbers and dots, as manifests and variant names write them. No ranges here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

__all__ = ["Release"]

# What Rust's `usize` reads, since the manifests of others were checked by it.
_NUMBER: Final = re.compile(r"\+?[0-9]+", re.ASCII)
_MOST: Final = (1 << 64) - 1
# What Rust calls white space; Python strips four controls more.
_SPACES: Final = "".join(
    map(chr, (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
              0x202F, 0x205F, 0x3000))
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A version such as 2.10: its numbers, without zeros at the end, so that 2 equals 2.0.

    Examples
    --------
    >>> from kernelmill.package.release import Release
    >>> Release.parse("2.10") > Release.parse("2.9"), str(Release.parse("2"))
    (True, '2.0')
    """

    parts: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read numbers separated by dots.

        Raises
        ------
        ValueError
            There is anything else.
        """
        numbers = text.strip(_SPACES).split(".")
        if not all(_NUMBER.fullmatch(number) and int(number) <= _MOST for number in numbers):
            raise ValueError(text)
        return cls.of(*map(int, numbers))

    @classmethod
    def of(cls, *parts: int) -> Self:
        """Return the version of these numbers."""
        length = len(parts)
        while length and parts[length - 1] == 0:
            length -= 1
        return cls(parts[:length])

    @property
    def major(self) -> int:
        """The first number."""
        return self.parts[0] if self.parts else 0

    @property
    def minor(self) -> int:
        """The second number, 0 where there is none."""
        return self.parts[1] if len(self.parts) > 1 else 0

    def __str__(self) -> str:
        shown = (*self.parts, 0, 0)[: max(2, len(self.parts))]
        return ".".join(map(str, shown))
