"""The host C++ compiler: found, identified, run. No kernel text is made here and none is cached.

`host` finds and identifies, `flags` and `cpu` say what to compile with and for, `compile` makes
libraries, `diagnostics` reads what compilers print, `run` runs one command. What runs a process is
imported when it is first asked for: a call that is answered from the cache starts none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from kernelmill.toolchain.cpu import Cpu, host_cpu, missing_features
from kernelmill.toolchain.flags import Kind, Language, compile_flags, link_flags
from kernelmill.toolchain.host import (
    HostCompiler,
    Rejection,
    find_host_compiler,
    survey_host_compilers,
    toolchain_identity,
)

if TYPE_CHECKING:
    from kernelmill.toolchain.compile import (
        CompileRequest,
        CompileResult,
        compile_many,
        compile_shared,
    )
    from kernelmill.toolchain.diagnostics import Diagnostic, parse_log

__all__ = [
    "CompileRequest",
    "CompileResult",
    "Cpu",
    "Diagnostic",
    "HostCompiler",
    "Kind",
    "Language",
    "Rejection",
    "compile_flags",
    "compile_many",
    "compile_shared",
    "find_host_compiler",
    "host_cpu",
    "link_flags",
    "missing_features",
    "parse_log",
    "survey_host_compilers",
    "toolchain_identity",
]

_LATE: Final = {
    "CompileRequest": "compile",
    "CompileResult": "compile",
    "Diagnostic": "diagnostics",
    "compile_many": "compile",
    "compile_shared": "compile",
    "parse_log": "diagnostics",
}


def __getattr__(name: str) -> object:
    """Import what runs processes at its first use."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    globals()[name] = value
    return value
