"""Members of libstdc++ that go into a kernel because older systems lack them, and need nothing new.

`pins/` has what can be compiled anew from headers; these are objects of the compiler's own archive.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.toolchain.host import HostCompiler
    from kernelmill.toolchain.run import RunResult

__all__ = ["taken_along"]

# By how a symbol begins: `std::to_chars` of floating-point numbers, GLIBCXX_3.4.29. Its member asks
# the C library alone, for functions that are in all.
_MEMBERS: Final = {b"_ZSt8to_charsPcS_": "floating_to_chars.o"}


def taken_along(
    objects: Sequence[Path],
    host: HostCompiler,
    work: Path,
    run: Callable[[Sequence[str], str], RunResult],
) -> list[str]:
    """Return the paths of the members that objects ask for, put into `work`.

    Parameters
    ----------
    objects
        What will be linked.
    host
        The compiler, whose archive they are in; none are taken where it has no such archive.
    work
        A directory.
    run
        Runs a command; the text says what could not be done where it fails.
    """
    texts = [path.read_bytes() for path in objects]
    wanted = [name for symbol, name in _MEMBERS.items() if any(symbol in text for text in texts)]
    if not wanted or host.kind == "zig":
        return []
    what = "the compiler was not asked for its archive:"
    archive = Path(run([*host.command, "-print-file-name=libstdc++.a"], what).output.strip())
    if not archive.is_absolute():  # it says the name again where there is none
        return []
    present = run(["ar", "t", str(archive)], "the archive was not read:").output.split()
    found = [name for name in wanted if name in present]
    if found:
        run(["ar", "x", "--output", str(work), str(archive), *found], "nothing was taken along:")
    return [str(work / name) for name in found]
