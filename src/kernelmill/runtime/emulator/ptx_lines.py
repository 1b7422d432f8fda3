r"""Inline PTX without loops, instruction by instruction: registers, predicates, arithmetic.

Each instruction becomes a call of a function of ptx_numbers.hpp, named in the tables below; what
is in none of them is looked up in that of `ptx.py`. Labels and branches have no form here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["by_lines"]

_SPACE: Final = "km_emu::ptx::"
# Types as ptx.hpp and ptx_numbers.hpp name them; those of registers hold their bits.
_TYPE: Final = r"(?P<t>[busf](?:8|16|32|64)|f16|bf16|f16x2|bf16x2)"
_WHOLE: Final = r"(?P<t>[us](?:16|32|64))"
_NUMBERS: Final = r"[us](?:8|16|32|64)|f(?:16|32|64)|bf16"
_REGISTERS: Final = {
    "pred": "bool", "b8": "~u8", "u8": "~u8", "s8": "~s8", "b16": "~u16", "u16": "~u16",
    "s16": "~s16", "f16": "~u16", "bf16": "~u16", "b32": "~u32", "u32": "~u32", "s32": "~s32",
    "f32": "~f32", "f16x2": "~u32", "bf16x2": "~u32", "b64": "~u64", "u64": "~u64", "s64": "~s64",
    "f64": "~f64",
}  # fmt: skip
_CACHED: Final = r"(?:\.rn)?(?:\.ftz)?(?P<sat>\.sat)?"
_APPROXIMATE: Final = r"(?:\.(?:approx|full|rn))?(?:\.ftz)?"

# The opcode; the function, with its template arguments, that takes the operands in their order. A
# `~` stands for the namespace.
_ROWS: Final[tuple[tuple[str, str], ...]] = (
    (rf"(?P<op>add|sub)\.cc\.{_WHOLE}", "{op}_carry<~{t}, 0, 1>"),
    (rf"(?P<op>add|sub)c\.cc\.{_WHOLE}", "{op}_carry<~{t}, 1, 1>"),
    (rf"(?P<op>add|sub)c\.{_WHOLE}", "{op}_carry<~{t}, 1, 0>"),
    (rf"mad\.(?P<half>lo|hi)\.cc\.{_WHOLE}", "mad_carry<~{t}, ~{half}_part, 0, 1>"),
    (rf"madc\.(?P<half>lo|hi)\.cc\.{_WHOLE}", "mad_carry<~{t}, ~{half}_part, 1, 1>"),
    (rf"madc\.(?P<half>lo|hi)\.{_WHOLE}", "mad_carry<~{t}, ~{half}_part, 1, 0>"),
    (r"(?P<op>add|sub)\.sat\.s32", "compute<~do_{op}_sat, ~s32>"),
    (rf"(?P<op>add|sub|div|rem|min|max)\.{_WHOLE}", "compute<~do_{op}, ~{t}>"),
    (rf"mul\.(?P<half>lo|hi)\.{_WHOLE}", "compute<~do_mul_{half}, ~{t}>"),
    (rf"mad\.(?P<half>lo|hi)\.{_WHOLE}", "compute<~do_mad_{half}, ~{t}>"),
    (r"mul\.wide\.(?P<t>[us](?:16|32))", "compute_wide<~do_mul_lo, ~{t}>"),
    (r"mad\.wide\.(?P<t>[us](?:16|32))", "mad_wide<~{t}>"),
    (r"mul24\.lo\.(?P<t>[us]32)", "compute<~do_mul24, ~{t}>"),
    (r"mad24\.lo\.(?P<t>[us]32)", "compute<~do_mad24, ~{t}>"),
    (rf"sad\.{_WHOLE}", "compute<~do_sad, ~{t}>"),
    (rf"(?P<op>abs|neg)\.{_WHOLE}", "compute<~do_{op}, ~{t}>"),
    (r"(?P<op>popc|clz)\.b(?P<bits>32|64)", "counted<~do_{op}, ~u{bits}>"),
    (r"bfind\.(?P<t>[us](?:32|64))", "counted<~do_bfind, ~{t}>"),
    (r"bfind\.shiftamt\.(?P<t>[us](?:32|64))", "counted<~do_bfind_shift, ~{t}>"),
    (r"brev\.b(?P<bits>32|64)", "compute<~do_brev, ~u{bits}>"),
    (r"bfe\.(?P<t>[us](?:32|64))", "field<~{t}>"),
    (r"bfi\.b(?P<bits>32|64)", "insert<~u{bits}>"),
    (r"bmsk\.(?P<how>clamp|wrap)\.b32", "bit_mask<~{how}>"),
    (r"(?P<op>and|or|xor)\.b(?P<bits>16|32|64)", "compute<~do_{op}, ~u{bits}>"),
    (r"(?P<op>not|cnot)\.b(?P<bits>16|32|64)", "compute<~do_{op}, ~u{bits}>"),
    (r"(?P<op>and|or|xor|not|mov)\.pred", "predicate_{op}"),
    (r"(?P<op>shl|shr)\.b(?P<bits>16|32|64)", "shift<~do_{op}, ~u{bits}>"),
    (rf"(?P<op>shr|shl)\.{_WHOLE}", "shift<~do_{op}, ~{t}>"),
    (r"shf\.(?P<side>l|r)\.(?P<how>wrap|clamp)\.b32", "funnel_{side}<~{how}>"),
    (r"lop3\.b32", "logic3"),
    (r"prmt\.b32", "permute_bytes"),
    (r"dp4a\.(?P<t>[us]32)\.(?P<other>[us]32)", "dot4<~{t}, ~{other}>"),
    (
        rf"(?P<op>add|sub|mul|fma){_CACHED}\.(?P<t>f32|f64|f16|bf16|f16x2|bf16x2)",
        "compute<~do_{op}{sat}, ~{t}>",
    ),
    (r"mad\.rn(?:\.ftz)?\.(?P<t>f32|f64)", "compute<~do_fma, ~{t}>"),
    (
        r"(?P<op>min|max)(?:\.ftz)?(?P<nan>\.NaN)?\.(?P<t>f32|f64|f16|bf16|f16x2|bf16x2)",
        "compute<~do_{op}{nan}, ~{t}>",
    ),
    (r"(?P<op>abs|neg)(?:\.ftz)?\.(?P<t>f32|f64|f16|bf16|f16x2|bf16x2)", "compute<~do_{op}, ~{t}>"),
    (r"copysign\.(?P<t>f32|f64)", "compute<~do_copysign, ~{t}>"),
    (rf"(?P<op>div){_APPROXIMATE}\.(?P<t>f32|f64)", "compute<~do_{op}, ~{t}>"),
    (
        rf"(?P<op>rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh){_APPROXIMATE}\.(?P<t>f32|f64|f16|f16x2|bf16|bf16x2)",
        "compute<~do_{op}, ~{t}>",
    ),
    (
        r"setp\.(?P<cmp>[a-z]+)(?:\.ftz)?\.(?P<t>[busf](?:16|32|64))",
        "compare<~do_{cmp}, ~{t}>",
    ),
    (
        r"setp\.(?P<cmp>[a-z]+)\.(?P<op>and|or|xor)(?:\.ftz)?\.(?P<t>[busf](?:16|32|64))",
        "compare_and<~do_{cmp}, ~{t}, ~do_{op}>",
    ),
    (
        r"set\.(?P<cmp>[a-z]+)(?:\.ftz)?\.(?P<to>[us]32|f32)\.(?P<t>[busf](?:16|32|64))",
        "compare_to<~do_{cmp}, ~{t}, ~{to}>",
    ),
    (rf"selp\.{_TYPE}", "select"),
    (rf"slct(?:\.ftz)?\.{_TYPE}\.(?P<by>s32|f32)", "select_by<~{by}>"),
    (rf"mov\.{_TYPE}", "move"),
    (
        rf"cvt(?:\.(?P<how>rn|rni|rzi|rmi|rpi))?(?:\.ftz)?(?P<sat>\.sat)?\.(?P<to>{_NUMBERS})\.(?P<t>{_NUMBERS})",
        "convert<~{to}, ~{t}, ~by_{how}, {sat}>",
    ),
    (r"cvt\.rn(?:\.satfinite)?\.(?P<to>f16|bf16)x2\.f32", "convert_two<~{to}>"),
    (r"cvta\.to\.shared\.u(?:32|64)", "to_shared"),
    (r"cvta\.shared\.u(?:32|64)", "from_shared"),
    (r"cvta(?:\.to)?\.(?:global|local|const|param)\.u64", "move"),
    (r"shfl\.sync\.(?P<op>up|down|bfly|idx)\.b32", "shuffle<~shuffle_{op}>"),
    (r"vote\.sync\.(?P<op>all|any|uni|ballot)\.(?:pred|b32)", "vote_{op}"),
    (r"match\.(?P<op>any|all)\.sync\.b(?P<bits>32|64)", "match_{op}<~u{bits}>"),
    (
        r"redux\.sync\.(?P<op>add|min|max|and|or|xor)\.(?P<t>[bus]32)",
        "reduce_lanes<~do_{op}, ~{t}>",
    ),
    (r"elect\.sync", "elect"),
    (r"activemask\.b32", "active_lanes"),
    (r"nanosleep\.u32", "sleep"),
)
_TABLE: Final = tuple((re.compile(text), function) for text, function in _ROWS)
# Registers that say where a thread is.
_SPECIAL: Final = {
    "laneid": "km_emu::ptx::lane_here()",
    "warpid": "(KM_EMU_RANK / 32)",
    "nwarpid": "64u",
    "smid": "0u",
    "nsmid": "4u",
    "gridid": "1ull",
    "lanemask_eq": "(1u << KM_EMU_LANE)",
    "lanemask_lt": "((1u << KM_EMU_LANE) - 1)",
    "lanemask_le": "((2u << KM_EMU_LANE) - 1)",
    "lanemask_gt": "~((2u << KM_EMU_LANE) - 1)",
    "lanemask_ge": "~((1u << KM_EMU_LANE) - 1)",
    "clock": "(unsigned)km_emu_clock()",
    "clock64": "(unsigned long long)km_emu_clock()",
    "globaltimer": "(unsigned long long)km_emu_clock()",
    "globaltimer_lo": "(unsigned)km_emu_clock()",
    "cluster_ctarank": "0u",
    "cluster_nctarank": "1u",
    **{f"tid.{axis}": f"(unsigned)threadIdx.{axis}" for axis in "xyz"},
    **{f"ntid.{axis}": f"(unsigned)blockDim.{axis}" for axis in "xyz"},
    **{f"ctaid.{axis}": f"(unsigned)blockIdx.{axis}" for axis in "xyz"},
    **{f"nctaid.{axis}": f"(unsigned)gridDim.{axis}" for axis in "xyz"},
}
_DECLARED: Final = re.compile(r"\.reg\s+(?:\.v\d\s+)?\.(\w+)\s+(.+)", re.DOTALL)
_GUARD: Final = re.compile(r"@(!?)\s*(%{0,2}[A-Za-z_$][\w$]*)\s*(.*)", re.DOTALL)
_OPCODE: Final = re.compile(r"([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?(?:0[xX][\da-fA-F]+|\d+)U?")
_FLOAT_BITS: Final = re.compile(r"0([fFdD])([\da-fA-F]+)")
_ADDRESS: Final = re.compile(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+))?\s*\]")
_OPERAND: Final = re.compile(r"%(\d+)")
_NAME: Final = re.compile(r"%{0,2}([A-Za-z_$][\w$.]*)")


class _UnknownError(Exception):
    """An instruction has no form here."""


@dataclass(slots=True)
class _Lines:
    operands: Sequence[str]
    lookup: Callable[[str, Sequence[str]], str | None]
    scopes: list[dict[str, str]] = field(default_factory=lambda: [{}])
    count: int = 0

    # --------------------------------------------------------------------------- operands

    def declare(self, type_: str, names: str) -> str:
        """Return the variables that stand for registers."""
        if type_ not in _REGISTERS:
            raise _UnknownError(type_)
        cpp = _REGISTERS[type_].replace("~", _SPACE)
        made = []
        for part in names.split(","):
            name, _, several = part.strip().lstrip("%").partition("<")
            number = several.rstrip("> ")
            whole = [f"{name}{i}" for i in range(int(number))] if number else [name]
            for each in whole:
                self.count += 1
                self.scopes[-1][each] = f"km_r{self.count}"
                made.append(f"{cpp} km_r{self.count} = {{}};")
        return " ".join(made)

    def value(self, text: str) -> str:
        """Return the expression of an operand."""
        text = text.strip()
        if text.startswith("!"):
            return f"!{self.value(text[1:])}"
        if found := _OPERAND.fullmatch(text):
            if int(found[1]) >= len(self.operands):
                raise _UnknownError(text)
            return self.operands[int(found[1])]
        return self._register(text) or _literal(text)

    def _register(self, text: str) -> str:
        """Return the variable of a register, or what stands for a special one; "" for neither."""
        found = _NAME.fullmatch(text)
        if found is None:
            return ""
        for scope in reversed(self.scopes):
            if found[1] in scope:
                return scope[found[1]]
        return _SPECIAL.get(found[1], "") if text.startswith("%") else ""

    def sink(self) -> tuple[str, str]:
        """Return what declares a variable for a result that nobody asks for, and its name."""
        self.count += 1
        return f"{_SPACE}u64 km_r{self.count}; ", f"km_r{self.count}"

    # ------------------------------------------------------------------------ instructions

    def instruction(self, text: str) -> str:
        """Return the statement for one instruction, guarded or not."""
        if found := _GUARD.fullmatch(text):
            test = f"{'!' * bool(found[1])}{self.value(found[2])}"
            return f"if ({test}) {{ {self.instruction(found[3])} }}"
        found = _OPCODE.fullmatch(text)
        if found is None:
            raise _UnknownError(text)
        opcode, operands = found[1], _separated(found[2])
        if opcode.startswith("mov.") and any(o.startswith("{") for o in operands[:2]):
            return self._move_parts(operands)
        for pattern, function in _TABLE:
            match = pattern.fullmatch(opcode)
            if match is not None and not any("[" in o for o in operands):
                return self._call(function, match, operands)
        return self._looked_up(opcode, operands)

    def _call(self, function: str, match: re.Match[str], operands: Sequence[str]) -> str:
        groups = {name: value or "" for name, value in match.groupdict().items()}
        if function.startswith("convert<"):
            groups["sat"] = "true" if groups["sat"] else "false"
        else:
            groups["sat"] = "_sat" if groups.get("sat") else ""
        groups["nan"] = "_nan" if groups.get("nan") else ""
        given, more = [], ""
        for place, operand in enumerate(operands):
            first, bar, second = operand.partition("|") if place == 0 else (operand, "", "")
            declared, name = self.sink() if first.strip() == "_" else ("", self.value(first))
            more += declared
            given.append(name)
            if bar:
                given.append(self.value(second))
                groups["two"] = "_two"
        name = function.format(**groups).replace("~", _SPACE)
        if "two" in groups:
            base, angle, rest = name.partition("<")
            name = f"{base}_two{angle}{rest}"
        return f"{more}{_SPACE}{name}({', '.join(given)});"

    def _move_parts(self, operands: Sequence[str]) -> str:
        """Return the form of `mov` that joins parts of a word, or cuts it."""
        to, source = operands
        parts = [p.strip() for p in (to if to.startswith("{") else source).strip("{} ").split(",")]
        both = [self.sink() if p == "_" else ("", self.value(p)) for p in parts]
        declared, values = "".join(d for d, _ in both), [name for _, name in both]
        if to.startswith("{"):
            return f"{declared}{_SPACE}cut({', '.join([self.value(source), *values])});"
        return f"{_SPACE}join({', '.join([self.value(to), *values])});"

    def _looked_up(self, opcode: str, operands: Sequence[str]) -> str:
        """Return the form by the table of whole texts, in which operands are numbered."""
        for numbers_stay in (True, False):
            given: list[str] = []

            def number(text: str, given: list[str] = given, stays: bool = numbers_stay) -> str:  # noqa: FBT001
                text = text.strip()
                if stays and _NUMBER.fullmatch(text):
                    return text
                if found := _ADDRESS.fullmatch(text):
                    base = self.value(found[1])
                    given.append(f"{_SPACE}beyond({base}, {found[2]})" if found[2] else base)
                    return f"[%{len(given) - 1}]"
                if text.startswith("{"):
                    return f"{{{','.join(number(p) for p in text.strip('{} ').split(','))}}}"
                if text in ("_", "") or text.startswith("["):
                    return text
                given.append(self.value(text))
                return f"%{len(given) - 1}"

            key = f"{opcode}{','.join(number(o) for o in operands)};"
            call = self.lookup(key.replace(" ", ""), given)
            if call is not None:
                return f"{call};"
        raise _UnknownError(opcode)


def _literal(text: str) -> str:
    """Return a number as C++ spells it."""
    if _NUMBER.fullmatch(text):
        return f"{text.rstrip('U').lstrip('+')}{'u' * text.endswith('U')}"
    if found := _FLOAT_BITS.fullmatch(text):
        word, suffix = ("float", "u") if found[1] in "fF" else ("double", "ull")
        return f"__builtin_bit_cast({word}, 0x{found[2]}{suffix})"
    try:
        return repr(float(text))
    except ValueError:
        raise _UnknownError(text) from None


def by_lines(
    text: str, operands: Sequence[str], lookup: Callable[[str, Sequence[str]], str | None]
) -> str | None:
    """Return the statements that stand for an instruction text; None where one has no form.

    Parameters
    ----------
    text
        The text without comments.
    operands
        The C++ expressions of its operands.
    lookup
        What returns the call for an instruction of the table of whole texts, or None.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.ptx_lines import by_lines
    >>> by_lines("add.u32 %0, %1, 5;", ["(r)", "(a)"], lambda key, given: None)
    '({ km_emu::ptx::compute<km_emu::ptx::do_add, km_emu::ptx::u32>((r), (a), 5); })'
    """
    lines = _Lines(operands, lookup)
    made = []
    try:
        for part in _statements(text):
            if part == "{":
                lines.scopes.append({})
                made.append(part)
            elif part == "}":
                lines.scopes.pop()
                made.append(part)
            elif found := _DECLARED.fullmatch(part):
                made.append(lines.declare(found[1], found[2]))
            else:
                made.append(lines.instruction(part))
    except _UnknownError:
        return None
    return f"({{ {' '.join(made)} }})"


def _statements(text: str) -> list[str]:
    """Cut a text into instructions, declarations and the braces of scopes."""
    made: list[str] = []
    at = ""
    for letter in text:
        if letter in "{}" and not at.strip():
            made.append(letter)
            at = ""
        elif letter == ";":
            made.append(at.strip())
            at = ""
        else:
            at += letter
    if at.strip():
        made.append(at.strip())
    return [part for part in made if part]


def _separated(text: str) -> list[str]:
    """Split operands at commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
