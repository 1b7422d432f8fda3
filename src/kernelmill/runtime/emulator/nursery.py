"""The process in which launches are looked at: it forks a child for each, with the arrays shared.

It reads the folder of a job from a line of its input, and answers with the status that the child
ended with. It is left alone at the end of its input.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn, cast

from kernelmill.runtime.emulator.arguments import Packed
from kernelmill.runtime.emulator.build import load_runtime
from kernelmill.runtime.emulator.launches import STARTER, record_of
from kernelmill.runtime.emulator.schedule import Order, Schedule

__all__ = ["prepare_runtime"]


def prepare_runtime(
    path: str, report: Path, symbols: Any, checks: Any
) -> ctypes.CDLL:  # Any: from JSON
    """Load the runtime that looks on; tell it where reports go and which arrays there are."""
    runtime = load_runtime(Path(path))
    runtime.km_emu_check_output(str(report).encode(), int(checks["strict"]), checks["initcheck"])
    for shared, at, nbytes, name in symbols:
        runtime.km_emu_check_symbol(
            int(shared), ctypes.c_uint64(at), ctypes.c_uint64(nbytes), name.encode()
        )
    return runtime


def run(folder: Path) -> None:
    """Run the job in a folder."""
    job = json.loads((folder / "job.json").read_text())
    runtime = prepare_runtime(job["runtime"], folder / "reports", job["symbols"], job["checks"])
    with (folder / "memory").open("rb+") as file:
        memory = mmap.mmap(file.fileno(), 0)
    base = ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))
    for offset, nbytes, name in job["arrays"]:
        at, size = ctypes.c_void_p(base + offset), ctypes.c_uint64(nbytes)
        runtime.km_emu_check_array(at, size, name.encode())
    values = [bytearray.fromhex(value) for value in job["values"]]
    for argument, at, offset in job["pointers"]:
        values[argument][at : at + 8] = (base + offset).to_bytes(8, "little")
    status = _launch(job, values)
    (folder / "result.json").write_text(json.dumps(status))


def _launch(job: Any, values: list[bytearray]) -> tuple[int, str]:  # Any: from JSON
    order, seed, blocks, patience = job["schedule"]
    record = record_of(
        tuple(job["grid"]),
        tuple(job["block"]),
        job["shared"],
        cooperative=job["cooperative"],
        schedule=Schedule(cast("Order", order), seed, blocks, patience),
    )
    packed = Packed([bytes(value) for value in values], {})
    pointers = (ctypes.c_void_p * max(1, len(values)))(*packed.addresses)
    library = ctypes.CDLL(job["library"])
    entry = ctypes.cast(library[f"km_emu_kernel_{job['number']}"], ctypes.c_void_p).value
    assert entry is not None
    STARTER(entry)(ctypes.byref(record), pointers)
    return int(record.status), record.message.decode(errors="replace")


def _child(folder: Path) -> NoReturn:
    """Be the child: what is written goes to the folder."""
    status = 1
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            file = os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(file, number)
        run(folder)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(status)


def serve() -> None:
    """Fork a child for each line of the input, one after the other."""
    running = 0

    def end(*_: object) -> NoReturn:
        if running:
            os.kill(running, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    for line in sys.stdin:
        running = os.fork() or _child(Path(line.rstrip("\n")))
        _, status = os.waitpid(running, 0)
        running = 0
        code = os.waitstatus_to_exitcode(status)
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
