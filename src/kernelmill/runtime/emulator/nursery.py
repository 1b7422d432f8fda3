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
from dataclasses import dataclass
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


class Room:
    """Memory of a child that is there before its job, as large as the last job's."""

    def __init__(self, number: int, size: int) -> None:
        self._kept = _mapped(number, size) if size else None

    def of(self, folder: Path, number: int, size: int) -> mmap.mmap:
        """Return what holds the arrays of a job; number and size are what it says of them."""
        if number < 0:
            with (folder / "memory").open("rb+") as file:
                return _mapped(file.fileno(), size)
        if self._kept is None or len(self._kept) < size:
            self._kept = _mapped(number, size)
        return self._kept


def _mapped(number: int, size: int) -> mmap.mmap:
    """Map a file, all pages at once."""
    return mmap.mmap(number, size, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))


def run(folder: Path, room: Room) -> None:
    """Run the job in a folder."""
    job = json.loads((folder / "job.json").read_text())
    runtime = prepare_runtime(job["runtime"], folder / "reports", job["symbols"], job["checks"])
    memory = room.of(folder, *job["memory"])
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
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


@dataclass(slots=True)
class _Child:
    """A child that waits for a folder: its number, and the pipes for that and for its end."""

    number: int
    orders: int
    done: int

    def run(self, line: str) -> int | None:
        """Have it run; return its status, or None where it will soon end with 0."""
        os.write(self.orders, line.encode())
        os.close(self.orders)
        said = os.read(self.done, 1)
        os.close(self.done)
        return None if said else self.wait()

    def wait(self) -> int:
        """Return the status that it ended with."""
        return os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])


def _be_child(orders: int, done: int, room: Room) -> NoReturn:
    """Wait for a folder and run its job; what is written goes there."""
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
        run(folder, room)
        os.write(done, b".")  # nobody waits until all its memory is given back
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(status)


def _ready_child(runtime: ctypes.CDLL, kept: int, size: int) -> _Child:
    """Fork a child that makes itself ready for a job of that size and waits for its folder."""
    theirs, orders = os.pipe()
    done, mine = os.pipe()
    number = os.fork()
    if number:
        os.close(theirs)
        os.close(mine)
        return _Child(number, orders, done)
    os.close(orders)
    os.close(done)
    if size:
        runtime.km_emu_check_soon(ctypes.c_uint64(size))
    _be_child(theirs, mine, Room(kept, size))


def serve(path: Path, kept: int) -> None:
    """Have a child run for each line of the input, one after the other.

    `path` is that of the runtime, `kept` the descriptor of memory that is kept for all jobs.
    """
    runtime = load_runtime(path)
    native()
    child: _Child | None = _ready_child(runtime, kept, 0)

    def end(*_: object) -> NoReturn:
        if child is not None:
            os.kill(child.number, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    for line in sys.stdin:
        size, _, folder = line.partition(" ")
        assert child is not None
        status = child.run(folder)
        last, child = child, None
        sys.stdout.write(f"{status or 0}\n")
        sys.stdout.flush()
        if status is None:
            last.wait()
        child = _ready_child(runtime, kept, int(size))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
