"""The process in which launches are looked at: it forks a child for each, with the arrays shared.

It reads the folder of a job from a line of its input, and answers with the status that the child
ended with; the next child is made ready meanwhile. It ends at the end of its input.
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
from kernelmill.runtime.native import native

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
    memory = _memory(folder, *job["memory"])
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for offset, nbytes, name in job["arrays"]:
        at, size = ctypes.c_void_p(base + offset), ctypes.c_uint64(nbytes)
        runtime.km_emu_check_array(at, size, name.encode())
    values = [bytearray.fromhex(value) for value in job["values"]]
    for argument, at, offset in job["pointers"]:
        values[argument][at : at + 8] = (base + offset).to_bytes(8, "little")
    status = _launch(job, values)
    (folder / "result.json").write_text(json.dumps(status))


def _memory(folder: Path, number: int, size: int) -> mmap.mmap:
    """Map what holds the arrays, all pages at once."""
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    if number >= 0:
        return mmap.mmap(number, size, flags=flags)
    with (folder / "memory").open("rb+") as file:
        return mmap.mmap(file.fileno(), size, flags=flags)


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


def _child(orders: int) -> NoReturn:
    """Be the child: wait for the folder; what is written goes there."""
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with os.fdopen(orders) as lines:
            line = lines.readline().rstrip("\n")
        if not line:
            os._exit(0)  # the nursery has ended
        folder = Path(line)
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


def _ready_child() -> tuple[int, int]:
    """Fork a child that waits for a folder; return its number and where to write that."""
    reading, writing = os.pipe()
    number = os.fork()
    if not number:
        os.close(writing)
        _child(reading)
    os.close(reading)
    return number, writing


def serve(runtime: Path) -> None:
    """Have a child run for each line of the input, one after the other."""
    load_runtime(runtime)
    native()
    running, orders = _ready_child()

    def end(*_: object) -> NoReturn:
        if running:
            os.kill(running, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    for line in sys.stdin:
        os.write(orders, line.encode())
        os.close(orders)
        _, status = os.waitpid(running, 0)
        running = 0
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
        running, orders = _ready_child()
    os.kill(running, signal.SIGKILL)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
