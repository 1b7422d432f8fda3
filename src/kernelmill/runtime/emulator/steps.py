"""Accesses through `volatile` arrays, before which lanes of a warp wait for each other.

Code for chips before sm_70 counts on lanes that go in step: `s[t] += s[t + 16]` on a `volatile`
array, without a barrier. The array of each such access becomes `km_emu::stepped(array)`, which
does nothing for arrays that are not `volatile` after all. What it does is in `thread.hpp`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kernelmill.runtime.emulator.tokens import is_blank

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["stepped_places"]

_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
_QUALIFIERS: Final = frozenset(("const", "__restrict__", "__restrict", "volatile", "__shared__"))
# Words that may stand before an expression; any other word before a name declares it.
_BEFORE_VALUE: Final = frozenset(("return", "else", "do", "case", "co_return"))
_MEMBER: Final = frozenset((".", "->", "::"))
_ENDS: Final = frozenset(";{}#")


def stepped_places(found: Sequence[str]) -> frozenset[int]:
    """Return the places of tokens that name an array which is accessed through `volatile`.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.tokens import tokens
    >>> text = "volatile float* s = x; s[t] += s[t + 16]; y.s[0] = s;"
    >>> found = tokens(text)
    >>> [len("".join(found[:at])) for at in sorted(stepped_places(found))]
    [23, 31]
    """
    if "volatile" not in found:
        return frozenset()
    places = [i for i, token in enumerate(found) if not is_blank(token)]
    words = [found[i] for i in places]
    names = {_declared(words, at) for at, word in enumerate(words) if word == "volatile"} - {""}
    stepped, depth, begun = set(), 0, 0
    for at, word in enumerate(words):
        depth = 0 if word in _ENDS else depth + (word in "([") - (word in ")]")
        begun = at + 1 if word in _ENDS else begun
        accessed = word in names and words[at + 1 : at + 2] == ["["]
        if accessed and not _is_declared(words[begun:at], depth):
            stepped.add(places[at])
    return frozenset(stepped)


def _declared(words: Sequence[str], at: int) -> str:
    """Return the pointer or array that is declared behind a `volatile`, "" for none."""
    name, is_pointer = "", False
    for word in words[at + 1 : at + 16]:
        if word == "*":
            name, is_pointer = "", True
        elif word == "[":
            return name
        elif word in ("=", ";", ",", ")"):
            return name if is_pointer else ""
        elif _IDENTIFIER.fullmatch(word) and word not in _QUALIFIERS:
            name = word
        elif word not in _QUALIFIERS and word not in ("::", "<", ">"):
            return ""
    return ""


def _is_declared(words: Sequence[str], depth: int) -> bool:
    """Return whether a name is declared, or is a member, behind these words of its statement.

    `depth` is how many brackets it stands in.
    """
    if not words:
        return False
    before = words[-1]
    if before in _MEMBER or (before == "," and not depth):
        return True
    if before == ">":  # `vector<int> s[4];`, but not `x > s[4]`
        return not depth and "<" in words
    if before == "*":  # `float* s[4];`, but not `2 * s[4]`
        return all(_IDENTIFIER.fullmatch(w) or w in "*:" for w in words) and words[0] != "return"
    return bool(_IDENTIFIER.fullmatch(before)) and before not in _BEFORE_VALUE
