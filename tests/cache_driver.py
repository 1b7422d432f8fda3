"""Processes for the tests of the cache: they race, are killed, fill disks and hold libraries.

Run as `python -m cache_driver <verb> <directory> ...`; the result is one line of JSON. Processes
are forked here, where there is one thread, and not in the test runner.
"""

import dataclasses
import errno
import json
import os
import random
import shutil  # noqa: F401 - before `os` is changed: it looks at it when imported
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

from kernelmill.cache import Bundle, Cache, EntryPoint, Image, digest
from kernelmill.cache.disk import STORE

TESTS = Path(__file__).parent
CAP = 1 << 30


def run(
    *arguments: object, prefix: tuple[str, ...] = (), killed: bool = False, **environment: str
) -> dict:
    """Run a verb of this module in a new process and return what it says."""
    command = [*prefix, sys.executable, "-W", "error", "-m", "cache_driver", *map(str, arguments)]
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if killed else 0), done.stderr
    return json.loads(done.stdout)


def bundle(number: int = 0, size: int = 50_000) -> Bundle:
    """Return a bundle whose every byte follows from `number`."""
    data = random.Random(number).randbytes(size)
    return Bundle(
        images=(Image("cpu", "so", data),),
        entries=(EntryPoint("km_kernel", {"threads": number}),),
        signature="f32(f32)",
        source=f"int f() {{ return {number}; }}\n" * 20,
    )


def key(number: int = 0) -> str:
    return digest(number=number)


def whole(found: Bundle | None, number: int, size: int = 50_000) -> bool:
    """Return whether `found` is `bundle(number, size)`, in memory and in its file."""
    if found is None or found != _keyed(bundle(number, size), key(number)):
        return False
    return all(image.path.read_bytes() == image.data for image in found.images)


def _keyed(made: Bundle, name: str) -> Bundle:
    return dataclasses.replace(made, key=name)


def leftovers(root: Path) -> list[str]:
    """Return what is in the store beside entries and the sum of their sizes."""
    store = root / STORE
    return sorted(
        f"{place}/{path.name}" for place in ("tmp", "locks") for path in (store / place).iterdir()
    )


def forked(work) -> int:
    """Run `work()` in a forked process; return its number."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


# ---------------------------------------------------------------------------------- verbs


def race(root: Path, processes: int, locks: str) -> dict:
    """Let processes ask for one key at the same moment; count builds and right answers."""
    if locks == "none":
        _no_locks()
    log = root / "log"
    root.mkdir()
    start = time.monotonic() + 0.3

    def build(_: Path) -> Bundle:
        with log.open("a") as file:
            file.write("built\n")
        time.sleep(0.1)
        return bundle(7)

    def ask() -> None:
        cache = Cache(root / "cache", CAP)
        time.sleep(max(0.0, start - time.monotonic()))
        found = cache.get_or_build(key(7), build)
        with log.open("a") as file:
            file.write("right\n" if whole(found, 7) else "wrong\n")

    children = [forked(ask) for _ in range(processes)]
    statuses = [os.waitpid(child, 0)[1] for child in children]
    words = log.read_text().split()
    return {
        "failed": sum(status != 0 for status in statuses),
        **{word: words.count(word) for word in ("built", "right", "wrong")},
        "leftovers": leftovers(root / "cache"),
    }


def _no_locks() -> None:
    """Behave as a file system without locks."""
    import fcntl

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = refuse


def crowd(root: Path, processes: int, keys: int) -> dict:
    """Let processes build and read different keys far above the cap, evicting each other's."""

    def work(seed: int) -> None:
        cache = Cache(root, 10 * 60_000, grace=0.0)
        rng = random.Random(seed)
        for _ in range(40):
            number = rng.randrange(keys)
            found = cache.get_or_build(key(number), lambda _, n=number: bundle(n))
            assert found == _keyed(bundle(number), key(number))

    children = [forked(lambda seed=seed: work(seed)) for seed in range(processes)]
    statuses = [os.waitpid(child, 0)[1] for child in children]
    last = Cache(root, 10 * 60_000, grace=0.0)
    last.get_or_build(key(-1), lambda _: bundle(-1))
    info = last.info()
    return {
        "failed": sum(status != 0 for status in statuses),
        "bytes": info.bytes,
        "leftovers": leftovers(root),
    }


_CALLS = (
    "open",
    "write",
    "fsync",
    "mkdir",
    "rename",
    "unlink",
    "utime",
    "pwrite",
    "close",
    "rmdir",
)


def _kill_at(point: int, counter: list[int]) -> None:
    """Make this process die at its `point`-th system call of a write: before it, or half done."""

    def wrap(name):
        real = getattr(os, name)

        def call(*arguments, **options):
            counter[0] += 1
            if counter[0] - 1 == point // 2:
                try:
                    if point % 2 and name in {"write", "pwrite"}:
                        half = memoryview(arguments[1])[: len(arguments[1]) // 2]
                        real(arguments[0], half, *arguments[2:])
                    elif point % 2:
                        real(*arguments, **options)
                finally:
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in _CALLS:
        setattr(os, name, wrap(name))


def kill_points(root: Path) -> dict:
    """Kill a writer at each of its system calls, before and after; see what is left of each."""
    counter = [0]
    reader, writer = os.pipe()

    Cache(root, CAP).get_or_build(key(-2), lambda _: bundle(-2))  # the directories are there

    def count() -> None:
        _kill_at(-1, counter)
        Cache(root, CAP).get_or_build(key(0), lambda _: bundle(0))
        os.write(writer, f"{counter[0]}\n".encode())

    os.waitpid(forked(count), 0)
    points = 2 * int(os.read(reader, 100))
    outcome = {"points": points, "killed": 0, "whole": 0, "absent": 0, "half": 0, "mended": 0}
    for point in range(points):
        number = point + 1

        def die(point=point, number=number) -> None:
            _kill_at(point, [0])
            Cache(root, CAP).get_or_build(key(number), lambda _: bundle(number))

        status = os.waitpid(forked(die), 0)[1]
        outcome["killed"] += os.WIFSIGNALED(status)
        found = Cache(root, CAP).get(key(number))  # a warning would be an error
        outcome["absent" if found is None else "whole" if whole(found, number) else "half"] += 1
        again = Cache(root, CAP, lock_timeout=600.0).get_or_build(
            key(number), lambda _, n=number: bundle(n)
        )
        outcome["mended"] += whole(again, number)
    Cache(root, CAP).get_or_build(key(-1), lambda _: bundle(-1))  # a new process sweeps
    return {**outcome, "leftovers": leftovers(root)}


def kill_times(root: Path, kills: int, seed: int) -> dict:
    """Kill a process that writes entry after entry, at random times within one of the first few."""
    rng = random.Random(seed)
    size = 1_000_000

    def writing(place: Path) -> tuple[int, int]:
        """Start such a process; a byte comes through the pipe whenever it begins an entry."""
        reader, writer = os.pipe()

        def build(number: int) -> Bundle:
            os.write(writer, b".")
            return bundle(number, size)

        def work() -> None:
            cache = Cache(place, CAP)
            for number in range(1000):
                cache.get_or_build(key(number), lambda _, n=number: build(n))

        child = forked(work)
        os.close(writer)
        return child, reader

    def kill(child: int, reader: int) -> bool:
        os.kill(child, signal.SIGKILL)
        os.close(reader)
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])

    undisturbed = writing(root.with_name("undisturbed"))
    os.read(undisturbed[1], 1)
    start = time.monotonic()
    os.read(undisturbed[1], 1)
    an_entry = time.monotonic() - start  # on this machine, as busy as it is
    kill(*undisturbed)
    outcome = {"killed": 0, "finished": 0, "whole": 0, "half": 0}
    for _ in range(kills):
        before = rng.randrange(3)  # so many entries are finished when the last one is begun
        child, reader = writing(root)
        for _ in range(before + 1):
            os.read(reader, 1)
        time.sleep(rng.uniform(0.0, an_entry))
        outcome["killed"] += kill(child, reader)
        outcome["finished"] += before
    cache = Cache(root, CAP)
    for number in range(1000):
        found = cache.get(key(number))
        if found is not None:
            outcome["whole" if whole(found, number, size) else "half"] += 1
    Cache(root, CAP).get_or_build(key(-1), lambda _: bundle(-1))
    return {**outcome, "leftovers": leftovers(root)}


def full(root: Path) -> dict:
    """Build on a disk that is too small, with a compiler that says only that it failed."""
    cache = Cache(root, CAP)

    def compiler(directory: Path) -> Bundle:
        try:
            (directory / "kernel.so").write_bytes(bytes(300_000))
        except OSError:
            raise RuntimeError("compiler: cannot write kernel.so") from None
        return bundle(1, 300_000)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = cache.get_or_build(key(1), compiler)
        second = cache.get_or_build(key(2), lambda _: bundle(2, 300_000))
    return {
        "right": [whole(first, 1, 300_000), whole(second, 2, 300_000)],
        "again": whole(cache.get(key(1)), 1, 300_000),
        "inside": [str(found.images[0].path).startswith(str(root)) for found in (first, second)],
        "private": str(cache.info().private or ""),
        "warnings": [str(warning.message) for warning in caught],
        "left": sorted(path.name for path in root.rglob("*") if path.is_file()),
    }


def private(root: Path, end: str) -> dict:
    """Use a cache that cannot be written, fork a child that ends, and say where things are."""
    warnings.simplefilter("ignore")
    cache = Cache(root, CAP)
    found = cache.get_or_build(key(1), lambda _: bundle(1))
    place = cache.info().private

    def child() -> None:
        import atexit

        assert cache.info().private is None, "a child does not own its parent's directory"
        own = cache.get_or_build(key(1), lambda _: bundle(1))
        assert whole(own, 1)
        assert own.images[0].path != found.images[0].path
        atexit._run_exitfuncs()
        assert not own.images[0].path.exists()

    status = os.waitpid(forked(child), 0)[1]
    answer = {"child": status, "private": str(place), "right": whole(found, 1)}
    if end == "killed":
        print(json.dumps(answer), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return answer


def inherited(root: Path) -> dict:
    """Let a lock go while a child that was forked under it lives; another process waits for it."""
    from kernelmill.cache.lock import hold

    root.mkdir()
    alive, release = os.pipe()
    answer, waiter = os.pipe()

    def wait() -> None:
        start = time.monotonic()
        os.write(waiter, b"begun")
        with hold(root / "a.lock", 60.0) as held:
            os.write(waiter, json.dumps([held, time.monotonic() - start]).encode())

    with hold(root / "a.lock", 1.0) as first:
        children = [forked(wait), forked(lambda: os.read(alive, 1))]
        os.read(answer, 100)
        time.sleep(0.2)
    held, seconds = json.loads(os.read(answer, 100))
    os.write(release, b"x")
    for child in children:
        os.waitpid(child, 0)
    return {"held": [first, held], "seconds": seconds}


def first(root: Path) -> dict:
    """Time the first look-up of a process, and what came before it, in seconds of its processor."""
    start = time.process_time()
    found = Cache(root, CAP).get(key(1))
    return {"seconds": time.process_time() - start, "start": start, "found": found is not None}


VERBS = {
    "race": (race, int, str),
    "crowd": (crowd, int, int),
    "kill_points": (kill_points,),
    "kill_times": (kill_times, int, int),
    "full": (full,),
    "private": (private, str),
    "inherited": (inherited,),
    "first": (first,),
}

if __name__ == "__main__":
    verb, *converters = VERBS[sys.argv[1]]
    arguments = [convert(text) for convert, text in zip(converters, sys.argv[3:], strict=True)]
    print(json.dumps(verb(Path(sys.argv[2]), *arguments)))
