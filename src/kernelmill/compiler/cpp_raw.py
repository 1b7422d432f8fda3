"""Prints raw operators: the text of the user, and the member function that calls it.

What a raw operator is, is in `raw.py`; all other functions are printed by `cpp_body.py`.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from kernelmill.compiler.cpp_types import Names, type_spelling
from kernelmill.compiler.raw import IMAGE_ALONE
from kernelmill.errors import NotImplementedHere, OperatorError
from kernelmill.toolchain.attached import attach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.compiler import ir
    from kernelmill.compiler.dialects import Dialect
    from kernelmill.compiler.raw import Raw

__all__ = ["print_raw", "raw_text"]

# What texts for both sides mark their functions with; a host compiler reads it over.
_MARKS: Final = ("__device__", "__host__", "__forceinline__", "__noinline__")
# CUDA's atomic functions, which host/cuda_atomics.hpp has for the host.
_ATOMIC: Final = re.compile(
    r"\batomic(Add|Sub|Min|Max|And|Or|Xor|Exch|CAS|Inc|Dec)(_block|_system)?\b"
)
_DIGITS: Final = 12
_ALIGNMENT: Final = 16  # of the state of an operator that is called by pointer


def raw_text(function: ir.Function, raw: Raw, dialect: Dialect) -> str:
    """Return what stands before the functor, once however often it is printed.

    Raises
    ------
    NotImplementedHere
        It is LTO-IR, and the text is for the host.
    OperatorError
        It is for a device, and its functions are not marked so.
    """
    _check(raw, on_cuda=dialect.name.startswith("cuda"))
    key = _key(raw)
    guard = f"KM_RAW_{key.upper()}"
    body = _declared(function, raw) if raw.image else _defined(raw, key, dialect)
    return f"#ifndef {guard}\n#define {guard}\n{body}#endif\n\n"


def print_raw(function: ir.Function, raw: Raw, dialect: Dialect, spelled: str) -> list[str]:
    """Return the lines of the member function `spelled`, which calls the user's."""
    names = Names()
    params = [(names.take(name), type_) for name, type_ in function.params]
    first = len(params) - len(raw.pointers)
    given = []
    for place, (name, _) in enumerate(params):
        element = raw.pointers[place - first] if place >= first else None
        pointed = f"({type_spelling(element)}*)" if element is not None else ""
        given.append(f"{pointed}{name}")
    called = f"::{raw.symbol}" if raw.image else f"::raw_{_key(raw)}::{raw.symbol}"
    declared = ", ".join(f"{type_spelling(type_)} {name}" for name, type_ in params)
    result = type_spelling(function.result)
    head = f"{dialect.function} {result} {spelled}({declared}) const {{"
    if not raw.by_pointer:
        return [head, f"  return {called}({', '.join(given)});", "}"]
    made = names.take("result")
    arguments = given[: len(given) - raw.words]
    places = ", ".join(f"&{name}" for name in (*arguments, made))
    held: list[str] = []
    if raw.words:
        state = names.take("state")
        words = ", ".join(given[len(arguments) :])
        held = [f"  alignas({_ALIGNMENT}) u64 {state}[{raw.words}] = {{{words}}};"]
        places = f"{state}, {places}"
    return [head, *held, f"  {result} {made};", f"  {called}({places});", f"  return {made};", "}"]


def _key(raw: Raw) -> str:
    code = raw.text.encode() + raw.image + b"".join(raw.linked)
    return sha256(code + raw.symbol.encode()).hexdigest()[:_DIGITS]


def _check(raw: Raw, *, on_cuda: bool) -> None:
    name = raw.symbol
    if raw.image and not on_cuda:
        raise NotImplementedHere(
            IMAGE_ALONE.format(symbol=name),
            hint="give its C++ text for other devices: km.RawOp(cpp=…)",
        )
    if on_cuda and not raw.image and "__device__" not in raw.text and "KM_INL" not in raw.text:
        raise OperatorError(
            f"the C++ text of the raw operator {name} has no function that is marked `__device__`",
            hint="write `__device__` before each function; the CPU reads over it",
        )


def _defined(raw: Raw, key: str, dialect: Dialect) -> str:
    """Return the text in a namespace of its own; what it includes stands before it."""
    lines = raw.text.splitlines()
    included = [line for line in lines if line.lstrip().startswith("#include")]
    rest = "\n".join("" if line in included else line for line in lines)
    head = "".join(f"{line}\n" for line in included)
    on_host = not dialect.name.startswith("cuda")
    before = "".join(f"#define {m}\n" for m in _MARKS if m in rest) if on_host else ""
    after = "".join(f"#undef {m}\n" for m in _MARKS if m in rest) if on_host else ""
    opened = ""
    if on_host and _ATOMIC.search(rest):
        head += '#include "cuda_atomics.hpp"\n'
        opened = "using namespace km::cuda_atomics;\n"
    return (
        f"{head}{before}namespace raw_{key} {{\n{opened}"
        f'#line 1 "{raw.symbol}.cpp"\n{rest}\n}}  // namespace raw_{key}\n{after}'
    )


def _declared(function: ir.Function, raw: Raw) -> str:
    images = enumerate(raw.linked)
    carried = attach(raw.symbol, raw.image)
    carried += "".join(attach(f"{raw.symbol}_{i}", image) for i, image in images)
    if raw.by_pointer:
        count = len(function.params) - raw.words + bool(raw.words)
        places = ", ".join(["void*"] * (count + 1))
        return f'{carried}extern "C" __device__ void {raw.symbol}({places});\n'
    types: list[str] = [type_spelling(t, qualified=True) for _, t in function.params]
    first = len(types) - len(raw.pointers)
    for place, element in enumerate(raw.pointers):
        if element is not None:
            types[first + place] = f"{type_spelling(element, qualified=True)}*"
    result = type_spelling(function.result, qualified=True)
    return f'{carried}extern "C" __device__ {result} {raw.symbol}({_listed(types)});\n'


def _listed(types: Sequence[str]) -> str:
    return ", ".join(types)
