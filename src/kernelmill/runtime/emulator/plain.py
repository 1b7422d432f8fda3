"""Kernels whose threads have nothing to do with each other, as functions that can be vectorised.

Such a kernel is written a second time, with `threadIdx` and its like as parameters instead of
variables of the OS thread. Only what is certain is taken: a body of scalars, arrays, control flow
and functions of mathematics. How such functions are run is in `thread.hpp`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kernelmill.runtime.emulator.rewrite import kernel_macros
from kernelmill.runtime.emulator.tokens import closing, is_blank, skip_blank, split, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

__all__ = ["plain_forms"]

_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
_MACRO: Final = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)(.*)$", re.MULTILINE)
_NUMBER: Final = re.compile(r"[ \t]+[\d.][\w.]*[ \t]*(?://.*)?")
_SIZED: Final = frozenset(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64))
_SCALARS: Final = _SIZED | {
    *("bool", "char", "short", "int", "long", "unsigned", "signed", "float", "double"),
    *("size_t", "ptrdiff_t"),
}
_VECTORS: Final = frozenset(
    f"{scalar}{count}"
    for scalar in ("char", "uchar", "short", "ushort", "int", "uint", "float", "double")
    for count in (2, 3, 4)
)
_TYPES: Final = _SCALARS | _VECTORS
_CONTROL: Final = frozenset(
    ("if", "else", "for", "while", "do", "return", "break", "continue", "true", "false", "sizeof")
)
_QUALIFIERS: Final = frozenset(("const", "__restrict__", "__restrict"))
_CASTS: Final = frozenset(("static_cast", "reinterpret_cast", "const_cast"))
_PLACES: Final = frozenset(("threadIdx", "blockIdx", "blockDim", "gridDim"))
_ROOTS: Final = (
    *("sqrt", "rsqrt", "cbrt", "exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan", "tanh"),
    *("erf", "fabs", "floor", "ceil", "fmin", "fmax", "fma", "pow"),
)
_MATH: Final = frozenset(f"{name}{kind}" for name in _ROOTS for kind in ("", "f"))
_FUNCTIONS: Final = _MATH | {"min", "max", "abs", "__ldg"} | {f"make_{v}" for v in _VECTORS}
_KNOWN: Final = _TYPES | _CONTROL | _QUALIFIERS | _CASTS | _PLACES | _FUNCTIONS
_ASSIGNMENTS: Final = frozenset(f"{sign}=" for sign in ("+", "-", "*", "/", "%", "&", "|", "^"))
_OPERATORS: Final = (
    frozenset("+-*/%&|^!~=?<>")
    | _ASSIGNMENTS
    | {"++", "--", "<<", ">>", "<<=", ">>=", "<=", ">=", "==", "!=", "&&", "||", "->"}
)
_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
# What may stand before a bracket that is not that of a call.
_NO_CALLEE: Final = _OPERATORS | frozenset(":,;{}([") | _CONTROL


def plain_forms(text: str, others: Iterable[str] = ()) -> dict[str, str]:
    """Return a function for each kernel of a text that can be one, by the name of the kernel.

    Parameters
    ----------
    text
        CUDA C++.
    others
        What it includes: names that are macros there are macros in the text.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.plain import plain_forms
    >>> plain_forms("__global__ void k(int* x) { x[threadIdx.x] = 1; }")["k"].rpartition(")")[2]
    ' { x [ threadIdx . x ] = 1 ; }'
    """
    found = _words(text)
    macros = _macros([text, *others])
    marks = {"__global__"} | kernel_macros("\n".join([text, *others]))
    forms: dict[str, list[str]] = {}
    for name, parameters, body in _kernels(found, marks):
        made = ""
        if _is_certain(parameters, body, macros):
            taken = ", ".join(_PARAMETERS + ([_joined(parameters)] if parameters else []))
            made = f"{_HEAD} void km_emu_plain_{name}({taken}) {_joined(body)}"
        forms.setdefault(name, []).append(made)
    return {name: made[0] for name, made in forms.items() if len(made) == 1 and made[0]}


_HEAD: Final = "static inline __attribute__((always_inline))"
_PARAMETERS: Final = [
    "const uint3 threadIdx",
    "const uint3 blockIdx",
    "const dim3 blockDim",
    "const dim3 gridDim",
]


def _words(text: str) -> list[str]:
    """Cut a text into tokens without blanks, operators of several characters in one."""
    words: list[str] = []
    joins = False
    for token in tokens(text):
        if joins and words[-1] + token in _OPERATORS:
            words[-1] += token
        elif not is_blank(token):
            words.append(token)
        joins = bool(words) and not is_blank(token)
    return words


def _joined(part: Sequence[str]) -> str:
    return " ".join(part)


def _macros(texts: Iterable[str]) -> dict[str, bool]:
    """Return the names of macros, and whether each is one number throughout."""
    found: dict[str, bool] = {}
    for text in texts:
        for name, value in _MACRO.findall(text):
            found[name] = name not in found and bool(_NUMBER.fullmatch(value))
    return found


def _kernels(
    found: Sequence[str], marks: AbstractSet[str]
) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    """Yield name, parameters and body of each kernel outside of namespaces that is no template."""
    depth = 0
    for at, word in enumerate(found):
        linkage = found[at - 2 : at] == ["extern", '"C"']
        depth += (word == "{" and not linkage) - (word == "}")
        if word not in marks or depth > 0 or ">" in found[max(0, at - 3) : at]:
            continue
        opened = at + 1
        while opened < len(found) and found[opened] not in ("(", ";", "{"):
            opened += 1
        if found[opened : opened + 1] != ["("] or found[opened - 2 : opened - 1] != ["void"]:
            continue  # an attribute in between, or a macro
        end = closing(found, opened)
        body = skip_blank(found, end + 1)
        if found[body : body + 1] == ["{"]:
            name = found[opened - 1]
            yield name, found[opened + 1 : end], found[body : closing(found, body) + 1]


def _is_certain(parameters: Sequence[str], body: Sequence[str], macros: dict[str, bool]) -> bool:
    """Return whether all that a kernel names is known not to look at the running thread."""
    names = set()
    for part in split(parameters, ","):
        if not part:
            continue
        *type_, name = part
        if not _IDENTIFIER.fullmatch(name) or name in _KNOWN:
            return False
        if not all(t in _TYPES | _QUALIFIERS or t == "*" for t in type_):
            return False
        names.add(name)
    return _Body(names, macros).is_certain(body)


class _Body:
    """The names that a body declares, as it is read."""

    def __init__(self, names: set[str], macros: dict[str, bool]) -> None:
        self._names = names
        self._macros = macros
        self._depth = 0
        # How deep in brackets the declaration stands that is being read, if one is.
        self._declaring: int | None = None

    def is_certain(self, body: Sequence[str]) -> bool:
        return all(self._accepts(body, at) for at in range(len(body)))

    def _accepts(self, body: Sequence[str], at: int) -> bool:
        word = body[at]
        if _IDENTIFIER.fullmatch(word):
            return self._is_known(body, at)
        self._depth += (word in _OPENING) - (word in _CLOSING)
        if word in (";", "{", "}"):
            self._declaring = None
        if word == "(":
            return self._opens(body, at)
        return word not in ("#", "\\", "::", "->") and '"' not in word and word[0] != "'"

    def _is_known(self, body: Sequence[str], at: int) -> bool:
        word, before = body[at], body[at - 1]
        if not self._macros.get(word, True):
            return False
        if word in _TYPES | _QUALIFIERS and before in (";", "{", "}", "("):
            self._declaring = self._depth
        if word in _KNOWN or before == "." or word in self._names or word in self._macros:
            return True
        if self._is_declared(body, at):
            self._names.add(word)
            return True
        return False

    def _is_declared(self, body: Sequence[str], at: int) -> bool:
        """Return whether a name stands where a declaration has one: behind its type, or a comma."""
        start = at - 1
        while body[start] in ("*", "&") or body[start] in _QUALIFIERS:
            start -= 1
        if self._declaring is None:
            return False
        return body[start] in _TYPES or (body[start] == "," and self._depth == self._declaring)

    @staticmethod
    def _opens(body: Sequence[str], at: int) -> bool:
        """Return whether a bracket is no call, or one of what is known."""
        before = body[at - 1]
        if before in _NO_CALLEE or before in _FUNCTIONS or before in _TYPES:
            return True
        if before == ")":  # a cast as in C
            start = at - 2
            while start and body[start] in _TYPES | _QUALIFIERS | {"*"}:
                start -= 1
            return body[start] == "(" and start < at - 2
        return False
