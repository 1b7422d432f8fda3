"""The flags that kernels are compiled with, as tables. Nothing is run here.

`-ffp-contract=off` keeps host results equal to NumPy's and to the device's;
no flag here lets a compiler reorder or drop floating-point work (docs/explanation/host-compilers.md
has the reason for each flag).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from kernelmill.errors import ConfigError
from kernelmill.toolchain.cpu import Cpu, host_cpu

__all__ = ["FAMILIES", "SUFFIX", "Family", "Kind", "Language", "compile_flags", "link_flags"]

Kind = Literal["gcc", "clang", "zig"]
Language = Literal["c++", "c"]

COMMON: Final = (
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-fvisibility=hidden",
    "-shared",
    "-fPIC",
)
LANGUAGES: Final[dict[Language, tuple[str, ...]]] = {
    "c++": ("-std=c++17", "-fno-exceptions", "-fno-rtti"),
    "c": ("-std=c11",),
}
SUFFIX: Final[dict[Language, str]] = {"c++": ".cpp", "c": ".c"}

# -pipe saves g++ a file and 5-10 ms. --as-needed leaves out the C++ library that the driver adds
# and that header-free code does not use; -z defs turns a missing function into a link error that
# names it, in place of a failure to load.
_LINK: Final = ("-Wl,--as-needed", "-Wl,-z,defs")


@dataclass(frozen=True, slots=True)
class Family:
    """One row a compiler family.

    `march` has a placeholder for the name of the instruction set, `separator` is what the family
    writes in place of `-` in that name. `lean` are link flags that are tried first and left out
    when the link needs the compiler's own runtime after all.
    """

    flags: tuple[str, ...] = ()
    link: tuple[str, ...] = _LINK
    lean: tuple[str, ...] = ()
    separator: str = "-"


FAMILIES: Final[dict[Kind, Family]] = {
    "gcc": Family(flags=("-pipe",)),
    # Without -nostdlib++, clang++ does not link where libstdc++-dev is not installed.
    "clang": Family(link=("-nostdlib++", *_LINK)),
    # `zig c++` would build libc++ first, and zig turns UBSan on when it is not told otherwise.
    # -rtlib=none: zig compiles its runtime library once for each instruction set, 3-4 s and 47 MB,
    # and hardly any kernel needs a function of it.
    "zig": Family(
        flags=("-fno-sanitize=undefined", "-Wno-unused-command-line-argument"),
        link=("-nostdlib++", *_LINK),
        lean=("-rtlib=none",),
        separator="_",
    ),
}

# How an architecture spells "this processor" and a named instruction set.
_MARCH: Final[dict[str, tuple[str, str]]] = {
    "x86_64": ("-march=native", "-march={}"),
    "aarch64": ("-mcpu=native", "-march={}"),
}
_MARCH_ELSEWHERE: Final = ("-march=native", "-march={}")
_MARCH_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", re.ASCII)

# g++ and clang++ keep to 256 bits for many of these when not told to use all 512.
_WIDE: Final = ("-mprefer-vector-width=512",)
_AVX512_NAMES: Final = frozenset(
    {
        "x86-64-v4",
        "skylake-avx512",
        "cascadelake",
        "cooperlake",
        "cannonlake",
        "icelake-client",
        "icelake-server",
        "rocketlake",
        "tigerlake",
        "sapphirerapids",
        "emeraldrapids",
        "graniterapids",
        "znver4",
        "znver5",
    }
)


def compile_flags(
    kind: Kind, march: str, *, language: Language = "c++", cpu: Cpu | None = None
) -> tuple[str, ...]:
    """Return the flags that come before the source file.

    Parameters
    ----------
    kind, language
        The compiler family and the language of the source.
    march
        `native`, a level (`x86-64-v2`, `x86-64-v3`, `x86-64-v4`) or another name that the compiler
        knows; always spelled with `-`, also for zig.
    cpu
        The processor that `native` stands for; this one by default.

    Raises
    ------
    ConfigError
        `march` is not a name.

    Examples
    --------
    >>> from kernelmill.toolchain import compile_flags
    >>> "-ffp-contract=off" in compile_flags("gcc", "native")
    True
    """
    if not _MARCH_NAME.fullmatch(march):
        raise ConfigError(
            f"march={march!r} cannot be used; accepted: letters, digits and any of _.+-",
            hint="set KERNELMILL_MARCH to a name such as native or x86-64-v3",
        )
    cpu = cpu or host_cpu()
    family = FAMILIES[kind]
    native, named = _MARCH.get(cpu.machine, _MARCH_ELSEWHERE)
    name = march.replace("-", family.separator)
    chosen = native if march == "native" else named.format(name)
    wide = _WIDE if _has_avx512(march, cpu) else ()
    return (*LANGUAGES[language], *COMMON, chosen, *wide, *family.flags)


def link_flags(kind: Kind, *, lean: bool = True) -> tuple[str, ...]:
    """Return the flags of the link; `lean=False` brings in the compiler's own runtime library.

    `-lm` is not among them: it stands after the source file (`compile.py`).
    """
    family = FAMILIES[kind]
    return (*family.link, *(family.lean if lean else ()))


def _has_avx512(march: str, cpu: Cpu) -> bool:
    if cpu.machine != "x86_64":
        return False
    return "avx512f" in cpu.features if march == "native" else march in _AVX512_NAMES
