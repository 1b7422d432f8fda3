"""C++ text as tokens: cutting, matching brackets, splitting. Nothing is rewritten."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kernelmill.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "closing",
    "is_blank",
    "joined_launches",
    "line_breaks",
    "skip_blank",
    "split",
    "tokens",
]

_TOKEN: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/
    |(?:u8|[uUL])?R"(?P<fence>[^(\s]*)\(.*?\)(?P=fence)"
    |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'
    |[A-Za-z_]\w*
    |\.?\d(?:[eEpP][+-]|[\w.]|'(?=\w))*
    |<<<|>>>|::|->|\s+|.""",
    re.DOTALL | re.VERBOSE,
)
_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")


def tokens(text: str) -> list[str]:
    """Cut a text; joined again, the tokens are the text.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.tokens import tokens
    >>> tokens("k<<<1, n>>>(x);  // go")
    ['k', '<<<', '1', ',', ' ', 'n', '>>>', '(', 'x', ')', ';', '  ', '// go']
    """
    return [match.group(0) for match in _TOKEN.finditer(text)]


def joined_launches(found: list[str]) -> list[str]:
    """Make one token of `<< <`, as some formatters write it, and of the `>> >` that ends it.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.tokens import joined_launches, tokens
    >>> "".join(joined_launches(tokens("k << < 1, n >> > (x);")))
    'k <<< 1, n >>> (x);'
    """
    made: list[str] = []
    opened = False
    for at, token in enumerate(found):
        made.append(token)
        bracket = ">" if opened else "<"
        parts = [t for t in made[-5:] if not t.isspace()][-3:]
        joins = parts == [bracket] * 3 and (not opened or _is_call(found, at + 1))
        if joins:
            kept = ""
            for _ in range(3):
                while made[-1].isspace():
                    kept = made.pop() + kept
                made.pop()
            made.append(3 * bracket)
            made += ["\n" * kept.count("\n")] if "\n" in kept else []
            opened = not opened
    return made


def _is_call(found: Sequence[str], at: int) -> bool:
    at = skip_blank(found, at)
    return found[at : at + 1] == ["("]


def is_blank(token: str) -> bool:
    """Return whether a token is white space or a comment."""
    return token.isspace() or token.startswith(("//", "/*"))


def skip_blank(found: Sequence[str], at: int) -> int:
    """Return the first place from `at` on that is no blank; the length where there is none."""
    while at < len(found) and is_blank(found[at]):
        at += 1
    return at


def line_breaks(found: Sequence[str]) -> str:
    """Return as many line breaks as the tokens hold: what keeps line numbers as they were."""
    return "\n" * sum(token.count("\n") for token in found)


def closing(found: Sequence[str], at: int) -> int:
    """Return the place of the bracket that closes the one at `at`.

    Raises
    ------
    CompileError
        It is not closed.
    """
    depth = 0
    for place in range(at, len(found)):
        if found[place] in _OPENING:
            depth += 1
        elif found[place] in _CLOSING:
            depth -= 1
            if depth == 0:
                return place
    line = 1 + line_breaks(found[:at]).count("\n")
    raise CompileError(f"line {line}: this {found[at]!r} is never closed")


def split(found: Sequence[str], separator: str) -> list[list[str]]:
    """Split at a separator outside of all brackets."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in found:
        depth += (token in _OPENING) - (token in _CLOSING)
        if token == separator and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
