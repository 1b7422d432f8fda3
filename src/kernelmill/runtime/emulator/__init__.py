"""The emulator: CUDA C++ on the CPU. Lanes are fibres, blocks run on the threads of the CPU.

`km.Device("emulator")` makes it current; then NumPy arrays are its memory. Importing this compiles
nothing. The device language is in the `.hpp` files beside this one, `runtime.cpp` runs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kernelmill.runtime.emulator.backend import EmulatorBackend
    from kernelmill.runtime.emulator.program import EmulatedCode, EmulatedKernel, compile_emulated
    from kernelmill.runtime.emulator.programs import ProgramRun, run_program
    from kernelmill.runtime.emulator.reports import Report, SanitizerError
    from kernelmill.runtime.emulator.sanitizer import Sanitizer, current_sanitizer, sanitized
    from kernelmill.runtime.emulator.schedule import Schedule, current_schedule, scheduled
    from kernelmill.runtime.emulator.templates import emulator_headers

__all__ = [
    "EmulatedCode",
    "EmulatedKernel",
    "EmulatorBackend",
    "ProgramRun",
    "Report",
    "Sanitizer",
    "SanitizerError",
    "Schedule",
    "compile_emulated",
    "current_sanitizer",
    "current_schedule",
    "emulator_headers",
    "run_program",
    "sanitized",
    "scheduled",
]

_HOMES: Final = {
    "backend": ("EmulatorBackend",),
    "program": ("EmulatedCode", "EmulatedKernel", "compile_emulated"),
    "programs": ("ProgramRun", "run_program"),
    "reports": ("Report", "SanitizerError"),
    "sanitizer": ("Sanitizer", "current_sanitizer", "sanitized"),
    "schedule": ("Schedule", "current_schedule", "scheduled"),
    "templates": ("emulator_headers",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a name from its home at its first use."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
