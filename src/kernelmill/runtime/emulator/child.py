"""The process in which a program runs: loads it, sets the schedule, calls its `main`."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import cast

from kernelmill.runtime.emulator.build import load_runtime
from kernelmill.runtime.emulator.launches import LaunchRecord, record_of
from kernelmill.runtime.emulator.nursery import prepare_runtime
from kernelmill.runtime.emulator.schedule import Order, Schedule


def main(arguments: list[str]) -> None:
    """Run a program to its end; does not return."""
    settings = json.loads(Path(arguments[0]).read_text())
    order, seed, blocks, patience = settings["schedule"]
    schedule = Schedule(cast("Order", order), seed, blocks, patience)
    if "report" in settings:
        report = Path(settings["report"])
        path, symbols = settings["runtime"], settings["symbols"]
        runtime = prepare_runtime(path, report, symbols, settings["checks"])
    else:
        runtime = load_runtime(Path(settings["runtime"]))
    runtime.km_emu_defaults.restype = ctypes.POINTER(LaunchRecord)
    record = record_of((1, 1, 1), (1, 1, 1), 0, cooperative=False, schedule=schedule)
    ctypes.memmove(runtime.km_emu_defaults(), ctypes.byref(record), ctypes.sizeof(record))
    try:
        program = ctypes.CDLL(settings["library"])
        entry = program.main
    except (OSError, AttributeError) as error:
        missing = str(error).rpartition("undefined symbol: ")[2]
        sys.exit(
            f"kernelmill emulator: {arguments[1]} cannot be run: it defines no `{missing}`; "
            "further files of a program are named by --with"
        )
    words = [word.encode() for word in arguments[1:]]
    status = entry(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))
    ctypes.CDLL(None).exit(status)  # as the end of `main` does: streams are flushed


if __name__ == "__main__":
    main(sys.argv[1:])
