"""CUDA C++ to C++: only what a host compiler cannot parse is changed, and lines keep their numbers.

`k<<<g, b>>>(x)` becomes a call of `km_emu::launch`, inline PTX a call by the table of `ptx.py`,
`extern __shared__` a pointer, an access through `volatile` one in step (`steps.py`). What a device
function means is in the headers beside this file.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kernelmill.errors import CompileError, NotImplementedHere
from kernelmill.runtime.emulator.calls import call_by_reference, call_of, callee_of
from kernelmill.runtime.emulator.ptx import is_ptx, translate
from kernelmill.runtime.emulator.refusals import REFUSED_WORDS, refusal, unknown_ptx
from kernelmill.runtime.emulator.steps import stepped_places
from kernelmill.runtime.emulator.tokens import (
    closing,
    is_blank,
    joined_launches,
    line_breaks,
    skip_blank,
    split,
    tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["KernelName", "Rewritten", "kernel_macros", "rewrite"]

_ALIGNED: Final = re.compile(r"(?:__align__|alignas)\s*\((?:[^()]|\([^()]*\))*\)")
_MACRO: Final = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.*__global__.*)$", re.MULTILINE)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
# What may stand with its own parentheses between `__global__` and the name of a kernel.
_ATTRIBUTES: Final = frozenset(
    (
        "__launch_bounds__",
        "__cluster_dims__",
        "__maxnreg__",
        "__attribute__",
        "__align__",
        "alignas",
    )
)
_CONDITIONS: Final = {"if": 1, "ifdef": 1, "ifndef": 1, "endif": -1}


@dataclass(frozen=True, slots=True)
class KernelName:
    """A kernel that a text defines: with its namespaces, and whether it is a template.

    `parameters` are their names, "" for those that have none.
    """

    name: str
    template: bool = False
    parameters: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The name without namespaces."""
        return self.name.rpartition("::")[2]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The C++ text and what was seen in it; kernels that are overloaded are not listed.

    `ptx`, `launches` and `spins` say whether there is inline PTX, `<<<>>>`, and `volatile`.
    """

    text: str
    kernels: tuple[KernelName, ...]
    ptx: bool
    launches: bool
    spins: bool


def kernel_macros(text: str) -> frozenset[str]:
    """Return the names of macros that stand for `__global__` and what is around it."""
    return frozenset(name for name, _ in _MACRO.findall(text))


def rewrite(text: str, macros: frozenset[str] = frozenset()) -> Rewritten:
    """Rewrite one file.

    Parameters
    ----------
    text
        CUDA C++.
    macros
        Names that stand for `__global__`, those of the text itself aside.

    Raises
    ------
    CompileError
        A bracket is not closed.
    NotImplementedHere
        There is PTX that is not in the table.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.rewrite import rewrite
    >>> print(rewrite("k<<<1, 32>>>(x);").text)
    km_emu::launch(km_emu::Shape(1, 32), [=](auto&... a_) { k(km_emu::passed(a_)...); }, x);
    """
    writer = _Writer(joined_launches(tokens(text)), macros | kernel_macros(text))
    writer.run()
    made = "".join(writer.out)
    assert made.count("\n") == text.count("\n"), "a line has moved"
    overloaded = {name for name, forms in writer.forms.items() if len(forms) > 1}
    kernels = tuple(k for k in dict.fromkeys(writer.kernels) if k.name not in overloaded)
    return Rewritten(made, kernels, writer.ptx, writer.launches, writer.spins)


@dataclass(slots=True)
class _Scope:
    """A pair of braces: a namespace by its name, "" for `extern "C"`, None for code or a class.

    `device` says whether code in it runs on the device only.
    """

    name: str | None
    device: bool = False


@dataclass(slots=True)
class _Writer:
    found: Sequence[str]
    macros: frozenset[str]
    out: list[str] = field(default_factory=list)
    kernels: list[KernelName] = field(default_factory=list)
    # The parameters of each definition: several mean that a name is overloaded.
    forms: dict[str, set[str]] = field(default_factory=dict)
    scopes: list[_Scope] = field(default_factory=list)
    # Kernels that take references, and so see the host's variables themselves: which of their
    # parameters those are.
    by_reference: dict[str, tuple[bool, ...]] = field(default_factory=dict)
    # Arrays of dynamic shared memory that are declared outside of functions.
    dynamic: set[str] = field(default_factory=set)
    ptx: bool = False
    launches: bool = False
    spins: bool = False
    line: int = 1
    # In a directive of the preprocessor, lines end in a backslash.
    line_end: str = "\n"
    # How many conditions of the preprocessor stand around: what is in them may not count at all.
    conditions: int = 0
    # Where the declaration that is being read began, among the tokens.
    begun: int = 0

    def run(self) -> None:
        at = 0
        stepped = stepped_places(self.found)
        while at < len(self.found):
            word = self.found[at]
            if at in stepped:
                self.out.append(f"km_emu::stepped({word})")
                at += 1
                continue
            handler = _HANDLERS.get(word)
            if handler is None and word in self.macros:
                handler = _Writer.kernel
            after = at + 1 if handler is None else handler(self, at)
            if handler is None:
                self.out.append(word)
            self.line += sum(t.count("\n") for t in self.found[at:after])
            at = after

    # ------------------------------------------------------------------- scopes and kernels

    def preprocessor(self, at: int) -> int:
        """Pass a directive through, but for what a definition of several lines may hold."""
        if self.line_end != "\n":  # in a directive it joins names, or makes a string
            self.out.append("#")
            return at + 1
        after = at
        while after < len(self.found):
            word = self.found[after]
            if "\n" in word and not (after and self.found[after - 1] == "\\"):
                break
            after += 1
        body = self.found[at:after]
        words = [t for t in body[1:] if not is_blank(t)][:1]
        self.conditions += _CONDITIONS.get("".join(words), 0)
        casts = bool(self.dynamic) and "reinterpret_cast" in body
        if casts or "asm" in body or "<<<" in body or "__asm__" in body:
            inner = _Writer(body[1:], frozenset(), line=self.line, line_end="\\\n", conditions=1)
            inner.dynamic = self.dynamic
            inner.run()
            self.out += ["#", *inner.out]
            self.ptx, self.launches = self.ptx or inner.ptx, self.launches or inner.launches
        else:
            self.out += body
        self.begun = after
        return after

    def semicolon(self, at: int) -> int:
        self.out.append(";")
        self.begun = at + 1
        return at + 1

    def open_brace(self, at: int) -> int:
        self.out.append("{")
        head = [t for t in self.found[self.begun : at] if not is_blank(t)]
        if head[:1] == ["namespace"] or head[:2] == ["inline", "namespace"]:
            self.scopes.append(_Scope("".join(head[head.index("namespace") + 1 :])))
        elif head[:1] == ["extern"] and not head[2:]:
            self.scopes.append(_Scope(""))
        else:
            outer = bool(self.scopes) and self.scopes[-1].device
            self.scopes.append(_Scope(None, self._is_device(head, default=outer)))
        self.begun = at + 1
        return at + 1

    def _is_device(self, head: Sequence[str], *, default: bool) -> bool:
        """Return whether what begins with these words is code of the device alone."""
        if "__global__" in head or not self.macros.isdisjoint(head):
            return True
        return default if "__device__" not in head else "__host__" not in head

    def close_brace(self, at: int) -> int:
        self.out.append("}")
        if self.scopes:
            self.scopes.pop()
        self.begun = at + 1
        return at + 1

    def breaks(self, part: Sequence[str]) -> str:
        """Return as many line breaks as the tokens hold."""
        return line_breaks(part).replace("\n", self.line_end)

    @property
    def in_code(self) -> bool:
        return any(scope.name is None for scope in self.scopes)

    def kernel(self, at: int) -> int:
        """Note the kernel whose `__global__` stands here."""
        word = self.found[at]
        before = [t for t in self.found[self.begun : at] if not is_blank(t)]
        explicit = before[-1:] == ["template"]  # an instance may not be `inline`
        self.out.append("" if explicit else word)
        if "inline" in before and word == "__global__":
            self.out[-1] = ""
        found = None if explicit or self.in_code else self._name_after(at + 1)
        if found is not None:
            spaces = [scope.name for scope in self.scopes if scope.name]
            name = "::".join([*spaces, found[0]])
            if "&" in found[2]:
                parts = split(tokens(found[2][1:-1]), ",")
                self.by_reference[found[0]] = tuple("&" in part for part in parts)
                if "template" not in before:  # nobody but the text itself can launch it
                    return at + 1
            self.kernels.append(KernelName(name, "template" in before, found[1]))
            if found[2]:
                self.forms.setdefault(name, set()).add(found[2])
        return at + 1

    def _name_after(self, at: int) -> tuple[str, tuple[str, ...], str] | None:
        """Return the name of the function that is declared here, and those of its parameters.

        And, where it is defined here, their text.
        """
        last = None
        while at < len(self.found):
            word = self.found[at]
            if word in _ATTRIBUTES:
                at = skip_blank(self.found, at + 1)
                at = closing(self.found, at) + 1
                continue
            if word == "(":
                end = closing(self.found, at)
                parameters = split(self.found[at + 1 : end], ",")
                body = skip_blank(self.found, end + 1)
                text = "".join(t for t in self.found[at : end + 1] if not is_blank(t))
                defined = text if self.found[body : body + 1] == ["{"] else ""
                return None if last is None else (last, tuple(map(_parameter, parameters)), defined)
            if word in (";", "{", "}", "="):
                return None
            if _IDENTIFIER.fullmatch(word):
                last = word
            at += 1
        return None

    # ------------------------------------------------------------------- shared memory

    def external(self, at: int) -> int:
        """Make `extern __shared__ T x[]` a pointer."""
        end = at
        while end < len(self.found) and self.found[end] not in (";", "{", "(", "="):
            end += 1
            if end < len(self.found) and self.found[end] == "(" and "[" not in self.found[at:end]:
                end = closing(self.found, end) + 1  # of an alignment
        declared = [t for t in self.found[at + 1 : end] if t != "__shared__"]
        if "__shared__" not in self.found[at:end] or "[" not in declared:
            self.out.append("extern")
            return at + 1
        bracket = declared.index("[")
        name_at = max(i for i in range(bracket) if not is_blank(declared[i]))
        name, rest = declared[name_at], "".join(declared[closing(declared, bracket) + 1 :]).strip()
        type_ = " ".join(_ALIGNED.sub("", "".join(declared[:name_at])).split())
        if not self.in_code:
            self.out.append(f"static km_emu::Dynamic<{type_}> {name}")
            self.dynamic.add(name)
        elif rest:
            self.out.append(f"{type_} (*{name}){rest} = ({type_} (*){rest})KM_EMU_DYNAMIC")
        else:
            self.out.append(f"{type_}* {name} = ({type_}*)KM_EMU_DYNAMIC")
        self.out.append(self.breaks(self.found[at:end]))
        return end

    def shared(self, at: int) -> int:
        """Put `alignas` before it, where C++ wants it."""
        begin = skip_blank(self.found, at + 1)
        if self.found[begin : begin + 1] != ["alignas"]:
            self.out.append("__shared__")
            return at + 1
        end = closing(self.found, skip_blank(self.found, begin + 1)) + 1
        self.out += [*self.found[begin:end], *self.found[at + 1 : begin], " __shared__"]
        return end

    def cast(self, at: int) -> int:
        """Make a pointer of dynamic shared memory, an object here, before it is cast to another."""
        opened = at
        while opened < len(self.found) and self.found[opened] not in ("(", ";", "{"):
            opened += 1
        begin = skip_blank(self.found, opened + 1)
        if self.found[opened : opened + 1] == ["("] and (
            self.found[begin : begin + 1] and self.found[begin] in self.dynamic
        ):
            self.out += [*self.found[at : opened + 1], "+"]
            return opened + 1
        self.out.append(self.found[at])
        return at + 1

    def static(self, at: int) -> int:
        """Drop it beside `__shared__`, which brings its own."""
        end = at
        while end < len(self.found) and self.found[end] not in (";", "{", "(", "=", "["):
            end += 1
        shared = "__shared__" in self.found[self.begun : end]
        self.out.append("" if shared else "static")
        return at + 1

    def volatile(self, at: int) -> int:
        self.out.append(self.found[at])
        self.spins = True
        return at + 1

    def refuse(self, at: int) -> int:
        """Refuse what the emulator has no form for, by its name and line."""
        word = self.found[at]
        if self.conditions <= 0:
            raise refusal(self.line, REFUSED_WORDS[word], word)
        self.out.append(word)  # the compiler will miss it where it counts
        return at + 1

    def noinline(self, at: int) -> int:
        """Spell it as an attribute; as a macro it would break the C++ library's own spelling."""
        inside = "".join(self.out[-3:]).rstrip().endswith("((")
        self.out.append("__noinline__" if inside else "__attribute__((noinline))")
        return at + 1

    # ------------------------------------------------------------------- inline PTX

    def assembly(self, at: int) -> int:
        opened = at + 1
        while self.found[opened] != "(":
            opened += 1
        end = closing(self.found, opened)
        flat: list[str] = []
        for word in self.found[opened + 1 : end]:
            flat += [":", ":"] if word == "::" else [word]  # two empty lists of operands
        parts = split(flat, ":")
        text = "".join(_string(word) for word in parts[0] if word.startswith(('"', "R")))
        if not is_ptx(text):  # an instruction of the host
            self.out.append("".join(self.found[at : end + 1]))
            return end + 1
        operands = [o for part in parts[1:3] for o in map(_operand, split(part, ",")) if o]
        try:
            self.out.append(translate(text, operands, self.line))
        except NotImplementedHere:
            if self.conditions <= 0:
                raise
            self.out.append(unknown_ptx(text))
        self.out.append(self.breaks(self.found[at : end + 1]))
        self.ptx = True
        return end + 1

    # ------------------------------------------------------------------- launches

    def launch(self, at: int) -> int:
        if self.scopes and self.scopes[-1].device:
            raise refusal(self.line, "kernels that launch kernels", "<<<")
        end, depth = at + 1, 0
        while self.found[end] != ">>>" or depth:
            depth += (self.found[end] in "([{") - (self.found[end] in ")]}")
            end += 1
            if end == len(self.found):
                raise CompileError(f"line {self.line}: this <<< has no >>>")
        opened = skip_blank(self.found, end + 1)
        if self.found[opened : opened + 1] != ["("]:
            raise CompileError(f"line {self.line}: after >>> come the arguments of the kernel")
        last = closing(self.found, opened)
        first, past = callee_of(self.out)
        name, between = "".join(self.out[first:past]).strip(), self.breaks(self.out[past:])
        del self.out[first:]
        config = "".join(self.found[at + 1 : end])
        given = self._inner(self.found[opened + 1 : last])
        short = name.partition("<")[0].rpartition("::")[2].strip()
        call = call_of(name, given)
        if short in self.by_reference:
            call = call_by_reference(name, given, self.by_reference[short])
        self.out.append(f"km_emu::launch(km_emu::Shape({config}), {call})")
        self.out.append(between + self.breaks(self.found[end + 1 : opened]))
        self.launches = True
        return last + 1

    def _inner(self, part: Sequence[str]) -> str:
        inner = _Writer(part, frozenset(), line=self.line, line_end=self.line_end)
        inner.run()
        self.launches = self.launches or inner.launches
        return "".join(inner.out)


_HANDLERS: Final[dict[str, Callable[[_Writer, int], int]]] = {
    "#": _Writer.preprocessor,
    ";": _Writer.semicolon,
    "{": _Writer.open_brace,
    "}": _Writer.close_brace,
    "__global__": _Writer.kernel,
    "extern": _Writer.external,
    "__shared__": _Writer.shared,
    "static": _Writer.static,
    "reinterpret_cast": _Writer.cast,
    "__noinline__": _Writer.noinline,
    "asm": _Writer.assembly,
    "__asm": _Writer.assembly,
    "__asm__": _Writer.assembly,
    "<<<": _Writer.launch,
    "volatile": _Writer.volatile,
    **dict.fromkeys(REFUSED_WORDS, _Writer.refuse),
}


def _parameter(part: Sequence[str]) -> str:
    """Return the name of a parameter: the last identifier before a bracket or a default."""
    names = ""
    for word in part:
        if word in ("[", "="):
            break
        if _IDENTIFIER.fullmatch(word):
            names = word
    return names


def _string(word: str) -> str:
    """Return the text of a C++ string literal."""
    if word.startswith("R"):
        return word[word.index("(") + 1 : word.rindex(")")]
    return str(ast.literal_eval(word))


def _operand(part: Sequence[str]) -> str:
    """Return the expression of an operand `"=r"(expression)`."""
    opened = next((i for i, word in enumerate(part) if word == "("), None)
    if opened is None:
        return ""
    body = part[opened + 1 : closing(part, opened)]
    return "(" + "".join(" " if is_blank(t) or t == "\\" else t for t in body).strip() + ")"
