"""Calls of kernels by `<<<>>>`: what stands before it, and the arguments of `km_emu::launch`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kernelmill.runtime.emulator.tokens import is_blank, split, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["call_by_reference", "call_of", "callee_of"]

_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
_NULLS: Final = frozenset(("0", "NULL", "nullptr"))


def call_of(name: str, given: str) -> str:
    """Return the arguments of `km_emu::launch` for a call: what a thread does, and with what.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.calls import call_of
    >>> call_of("k<int>", "x")
    '[=](auto&... a_) { k<int>(km_emu::passed(a_)...); }, x'
    """
    parts = ["".join(part).strip() for part in split(tokens(given), ",")]
    if any(part.startswith("{") for part in parts):
        # Braces have no type to deduce, so the arguments are evaluated in every thread.
        return f"[=] {{ {name}({given}); }}"
    if any(part in _NULLS for part in parts) and "..." not in given:
        # A null pointer is one only as a literal, so it stands in the call itself.
        names = {i: f"a{i}_" for i, part in enumerate(parts) if part not in _NULLS}
        taken = ", ".join(f"auto& {n}" for n in names.values())
        passed = {i: f"km_emu::passed({n})" for i, n in names.items()}
        inner = ", ".join(passed.get(i, part) for i, part in enumerate(parts))
        rest = "".join(f", {parts[i]}" for i in names)
        breaks = "\n" * (given.count("\n") - rest.count("\n"))
        return f"[=]({taken}) {{ {name}({inner}); }}{rest}{breaks}"
    return f"[=](auto&... a_) {{ {name}(km_emu::passed(a_)...); }}" + (
        f", {given}" if given.strip() else given
    )


def call_by_reference(name: str, given: str, references: Sequence[bool]) -> str:
    """Return the same for a kernel of which some parameters are references.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.calls import call_by_reference
    >>> call_by_reference("k", "*x", [True])
    '[=](auto& a0_) { k(*a0_); }, km_emu::place_of(*x)'
    """
    parts = ["".join(part).strip() for part in split(tokens(given), ",")]
    if len(parts) != len(references) or any(p.startswith("{") or "..." in p for p in parts):
        return f"[&] {{ {name}({given}); }}"
    names = [f"a{i}_" for i in range(len(parts))]
    inner = ", ".join(
        f"*{n}" if is_one else f"km_emu::passed({n})"
        for n, is_one in zip(names, references, strict=True)
    )
    rest = "".join(
        f", km_emu::place_of({part})" if is_one else f", {part}"
        for part, is_one in zip(parts, references, strict=True)
    )
    breaks = "\n" * (given.count("\n") - rest.count("\n"))
    taken = ", ".join(f"auto& {n}" for n in names)
    return f"[=]({taken}) {{ {name}({inner}); }}{rest}{breaks}"


def callee_of(out: Sequence[str]) -> tuple[int, int]:
    """Return where the callee stands at the end: `name`, `space::name<T>`, `(expression)`."""
    at = len(out)
    while at and is_blank(out[at - 1]):
        at -= 1
    past = at
    if at and out[at - 1] in (">", ")", "]"):
        at = _opening(out, at)
        while at and is_blank(out[at - 1]):
            at -= 1
    words = ("return", "else", "do")
    while at:
        pasted = _pasted(out, at)
        if pasted is not None:
            at = pasted
        elif (_IDENTIFIER.fullmatch(out[at - 1]) and out[at - 1] not in words) or (
            out[at - 1] in ("::", ".", "->")
        ):
            at -= 1
        else:
            break
    return at, past


def _pasted(out: Sequence[str], at: int) -> int | None:
    """Return the end of what a `##` joins to the name that begins at `at`; None for no `##`."""
    while at and is_blank(out[at - 1]):
        at -= 1
    if list(out[max(at - 2, 0) : at]) != ["#", "#"]:
        return None
    at -= 2
    while at and is_blank(out[at - 1]):
        at -= 1
    return at


def _opening(out: Sequence[str], at: int) -> int:
    """Return the place of the bracket that the one before `at` closes."""
    angled = out[at - 1] == ">"
    ends, begins = ((">",), ("<",)) if angled else ((")", "]"), ("(", "["))
    depth = 0
    while at:
        at -= 1
        depth += (out[at] in ends) - (out[at] in begins)
        if depth == 0:
            break
    return at
