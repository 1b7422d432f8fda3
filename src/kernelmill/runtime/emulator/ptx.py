r"""The table of inline PTX: what is recognised, and the function of ptx.hpp that stands for it.

A row is a regular expression over the instruction text without white space, in which labels and
predicates may have any name. Operands keep their order. What is in no row is taken instruction by
instruction (`ptx_lines.py`), or refused by its line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kernelmill.errors import NotImplementedHere
from kernelmill.runtime.emulator.ptx_lines import by_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["is_ptx", "translate"]

_SHARED: Final = r"(?:\.shared(?:::cta|::cluster)?)"
_AT: Final = r"\[%(?:\d+)(?:\+0)?\]"
_SCOPE: Final = r"(?:\.(?:cta|cluster|gpu|sys))?"
_SPACE: Final = r"(?:\.global|\.shared(?:::cta)?)?"
_CACHE: Final = r"(?:\.(?:cs|cg|ca|cv|wb|wt|lu|nc|L1::\w+|L2::\w+))*"
_ORDER: Final = r"(?:\.(?P<order>volatile|relaxed|acquire|release|weak))?"
_UPDATE_ORDER: Final = r"(?:\.(?:relaxed|acquire|release|acq_rel))?"
_UPDATE: Final = rf"(?:red|atom){_UPDATE_ORDER}"
_DONE: Final = r"\.(?P<op>or|and|xor|add|min|max|exch|inc|dec)\.(?P<type>[busf](?:32|64))"
_OPERATION: Final = rf"{_SCOPE}{_SPACE}{_DONE}"
_HINT: Final = r"(?:\.L2::cache_hint)?"
_VALUE: Final = r"(?:%\d+|\d+)"
# Words for the order of an access, and the template argument of `load` and `store`.
_ORDERS: Final = {
    "": 0, "weak": 0, "volatile": 1, "relaxed": 1, "acquire": 2, "release": 2,
}  # fmt: skip
_WAIT: Final = (
    r"mbarrier\.(?:try|test)_wait\.parity(?:\.(?:acquire|relaxed)\.c(?:ta|luster))?"
    + _SHARED
    + r"\.b64"
)

# The text, the function, and which named groups are its template arguments; a `~` stands for the
# namespace.
_ROWS: Final[tuple[tuple[str, str], ...]] = (
    (rf"mbarrier\.init{_SHARED}\.b64{_AT},%\d+;", "transaction_init"),
    (rf"mbarrier\.inval{_SHARED}\.b64{_AT};", "transaction_end"),
    (rf"mbarrier\.arrive(?:\.release\.cta)?{_SHARED}\.b64_,{_AT};", "transaction_arrive"),
    (
        rf"\{{\.reg\.b64(?P<s>\w+);mbarrier\.arrive(?:\.release\.cta)?{_SHARED}\.b64(?P=s),{_AT};\}}",
        "transaction_arrive",
    ),
    (
        rf"mbarrier\.arrive\.expect_tx(?:\.release\.cta)?{_SHARED}\.b64_,{_AT},%\d+;",
        "transaction_arrive_and_expect",
    ),
    (
        rf"mbarrier\.expect_tx(?:\.relaxed\.cta)?{_SHARED}\.b64{_AT},%\d+;",
        "transaction_expect",
    ),
    (
        (
            rf"\{{\.reg\.pred(?P<p>\w+);(?P<again>\w+)(?:%=)?:{_WAIT}(?P=p),\[%0\],%1(?:,{_VALUE})?;"
            r"@(?P=p)bra(?:\.uni)?(?P<end>\w+)(?:%=)?;bra(?:\.uni)?(?P=again)(?:%=)?;"
            r"(?P=end)(?:%=)?:\}"
        ),
        "transaction_wait",
    ),
    (
        (
            rf"\{{\.reg\.pred(?P<p>\w+);(?P<again>\w+)(?:%=)?:{_WAIT}(?P=p),\[%0\],%1(?:,{_VALUE})?;"
            r"@!(?P=p)bra(?:\.uni)?(?P=again)(?:%=)?;\}"
        ),
        "transaction_wait",
    ),
    (
        (
            rf"\{{\.reg\.pred(?P<p>\w+);{_WAIT}(?P=p),\[%1\],%2(?:,{_VALUE})?;"
            r"selp\.[bu]32%0,1,0,(?P=p);\}"
        ),
        "transaction_try",
    ),
    (
        (
            r"cp\.async\.bulk\.shared::(?:cluster|cta)\.global\.mbarrier::complete_tx::bytes"
            rf"{_HINT}{_AT},{_AT},%\d+,{_AT}(?:,%\d+)?;"
        ),
        "bulk_to_shared",
    ),
    (
        rf"cp\.async\.bulk\.global\.shared::cta\.bulk_group{_HINT}{_AT},{_AT},%\d+(?:,%\d+)?;",
        "bulk_to_global",
    ),
    (r"cp\.async\.bulk\.commit_group;", "commit_bulk"),
    (rf"cp\.async\.bulk\.wait_group{_VALUE};", "wait_bulk"),
    (rf"cp\.async\.bulk\.wait_group\.read{_VALUE};", "wait_bulk_read"),
    (
        rf"cp\.async\.c[ag]{_SHARED}\.global{_CACHE}{_HINT}{_AT},{_AT},(?P<bytes>\d+)(?:,%\d+)?;",
        "copy<{bytes}>",
    ),
    (
        rf"cp\.async\.c[ag]{_SHARED}\.global{_CACHE}{_HINT}{_AT},{_AT},%\d+(?:,%\d+)?;",
        "copy_sized",
    ),
    (r"cp\.async\.commit_group;", "commit_small"),
    (r"cp\.async\.wait_all;", "wait_all_small"),
    (rf"cp\.async\.wait_group{_VALUE};", "wait_small"),
    (r"fence\.proxy\.async\.shared[\w:{},]*;", "fence_proxy<1>"),
    (r"fence\.proxy\.async(?:\.global)?;", "fence_proxy<2>"),
    (r"fence\.mbarrier_init\.[\w.:]*;", "fence_proxy<0>"),
    (rf"setmaxnreg\.[\w.]+{_VALUE};", "nothing"),
    (r"griddepcontrol\.\w+;", "nothing"),
    (rf"prefetch(?:u)?(?:\.global)?\.L\w+{_AT};", "nothing"),
    (r"fence(?:\.acq_rel|\.sc)?\.(?:cluster|gpu|sys);", "fence<1>"),
    (r"fence(?:\.acq_rel|\.sc)?\.cta;", "fence<0>"),
    (r"membar\.(?:gl|sys);", "fence<1>"),
    (r"membar\.cta;", "fence<0>"),
    (r"createpolicy\.[\w.:]+%0,[\d.]+;", "policy"),
    (rf"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?{_VALUE}(?:,{_VALUE})?;", "barrier_sync"),
    (rf"(?:bar|barrier)(?:\.cta)?\.arrive(?:\.aligned)?{_VALUE},{_VALUE};", "barrier_arrive"),
    (r"nanosleep\.u32%0;", "sleep"),
    (r"mov\.u32%0,%?%laneid;", "lane"),
    (r"mov\.u64%0,%?%clock64;", "clock"),
    (r"mov\.u64%0,%?%globaltimer;", "clock"),
    (r"trap;", "trap"),
    (
        (
            rf"\{{\.reg\.b128(?P<r>\w+);ld(?:\.(?P<order>\w+))?{_SCOPE}{_SPACE}\.b128(?P=r),\[%2\];"
            r"mov\.b128\{%0,%1\},(?P=r);\}"
        ),
        "load_both<{order}>",
    ),
    (
        (
            rf"\{{\.reg\.b128(?P<r>\w+);mov\.b128(?P=r),\{{%1,%2\}};st(?:\.(?P<order>\w+))?{_SCOPE}"
            rf"{_SPACE}\.b128\[%0\],(?P=r);\}}"
        ),
        "store_both<{order}>",
    ),
    (rf"ld{_SPACE}{_CACHE}\.v4\.[busf]32\{{%0,%1,%2,%3\}},\[%4\];", "load_four"),
    (rf"st{_SPACE}{_CACHE}\.v4\.[busf]32\[%0\],\{{%1,%2,%3,%4\}};", "store_four"),
    (rf"ld{_SPACE}{_CACHE}\.v2\.[busf](?:32|64)\{{%0,%1\}},\[%2\];", "load_two"),
    (rf"st{_SPACE}{_CACHE}\.v2\.[busf](?:32|64)\[%0\],\{{%1,%2\}};", "store_two"),
    (
        rf"ld{_ORDER}{_SCOPE}{_SPACE}{_CACHE}\.[busf](?P<bits>\d+)%0,\[%1\];",
        "load<{bits}, {order}>",
    ),
    (
        rf"st{_ORDER}{_SCOPE}{_SPACE}{_CACHE}\.[busf](?P<bits>\d+)\[%0\],%1;",
        "store<{bits}, {order}>",
    ),
    (rf"{_UPDATE}{_OPERATION}\[%0\],%1;", "update<~{type}, ~op_{op}>"),
    (rf"atom{_UPDATE_ORDER}{_OPERATION}%0,\[%1\],%2;", "fetch<~{type}, ~op_{op}>"),
    (
        rf"atom{_UPDATE_ORDER}{_SCOPE}{_SPACE}\.cas\.(?P<type>b(?:32|64))%0,\[%1\],%2,%3;",
        "exchange_if<~{type}>",
    ),
    (r"mapa(?:\.shared::cluster)?\.u32%0,%1,%2;", "same_block"),
)
_TABLE: Final = tuple((re.compile(text), function) for text, function in _ROWS)
# Functions whose arguments may be numbers in the text.
_NUMBERED: Final = ("barrier_", "wait_bulk", "wait_small")
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# An instruction with a type, a space or a form, as all but a few of PTX have.
_TYPED: Final = re.compile(r"(?<![\w.%])[a-z][a-z0-9_]*(?:\.[A-Za-z0-9_]+)+")
_NUMBERS: Final = re.compile(r"%(\d+)|(\d+)")


def is_ptx(text: str) -> bool:
    """Return whether an instruction text is PTX; host code may hold instructions of the host."""
    key = "".join(_COMMENT.sub("", text).split())
    if not key or any(pattern.fullmatch(key) for pattern, _ in _TABLE):
        return True
    return bool(_TYPED.search(text))


def translate(text: str, operands: Sequence[str], line: int) -> str:
    """Return the call that stands for an instruction.

    Parameters
    ----------
    text
        The instruction text, as it stands in the string.
    operands
        The C++ expressions of its outputs, then inputs.
    line
        Where it stands, for the refusal.

    Raises
    ------
    NotImplementedHere
        It is not in the table.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.ptx import translate
    >>> translate("fence.acq_rel.gpu;", (), 1)
    'km_emu::ptx::fence<1>()'
    """
    bare = _COMMENT.sub("", text)
    key = "".join(bare.split())
    if not key:
        return "km_emu::ptx::nothing()"
    call = _call(key, operands) or by_lines(bare, operands, _call)
    if call is not None:
        return call
    shown = " ".join(text.split())
    raise NotImplementedHere(
        f"line {line}: the emulator does not know this PTX: {shown}",
        hint="docs/how-to/test-kernels-without-a-gpu.md lists what it knows; "
        "`#ifdef __KERNELMILL_EMULATOR__` keeps another form for it",
    )


def _call(key: str, operands: Sequence[str]) -> str | None:
    """Return the call by the table, for a text without white space."""
    for pattern, function in _TABLE:
        match = pattern.fullmatch(key)
        if match is None:
            continue
        groups = {name: value or "" for name, value in match.groupdict().items()}
        if "order" in groups:
            groups["order"] = str(_ORDERS[groups["order"]])
        given = list(operands)
        if function.startswith(_NUMBERED):
            given = _literals(key, operands)
        name = function.format(**groups).replace("~", "km_emu::ptx::")
        return f"km_emu::ptx::{name}({', '.join(given)})"
    return None


def _literals(key: str, operands: Sequence[str]) -> list[str]:
    """Return the arguments of a barrier or wait, which may be numbers in the text."""
    body = re.split(r"sync|arrive", key, maxsplit=1)[1]
    return [operands[int(n)] if n else literal for n, literal in _NUMBERS.findall(body)]
