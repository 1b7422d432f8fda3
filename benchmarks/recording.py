"""A run as it goes on: each row is in the results file before the next one begins.

What ends a run early, a signal or a time that is up, costs the row it is at; which rows are older
then is said. What a results file is, is in `results.py`.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

import results
from harness import Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

__all__ = ["Recorder", "Stopped", "stopped_by_signals"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """The run was told to end by a signal; no peer's handling of errors may take it for its own."""

    def __init__(self, number: int) -> None:
        """Keep the number of the signal."""
        super().__init__(signal.Signals(number).name)
        self.status: int = 128 + number


def _stop(number: int, _: FrameType | None) -> NoReturn:
    for name in _SIGNALS:  # the next one ends the process at once
        signal.signal(name, signal.SIG_DFL)
    raise Stopped(number)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise `Stopped` where the process is told to end, so that what it began is finished."""
    before = {number: signal.signal(number, _stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Recorder:
    """The results of a run, in a file where one is kept.

    Raises ValueError where the file is of another machine.
    """

    def __init__(self, target: Path | None, machine: results.Data) -> None:
        """Read what the file holds."""
        self.target = target
        old = results.read(target) if target is not None and target.exists() else None
        self._start = self.data = results.merge(old, machine, {})
        self._machine = machine
        self._family = ""
        self._stamp: results.Data = {}
        self._rows: list[Row] = []
        self._wrong: list[tuple[str, str, int]] = []

    def begin(self, family: str, stamped: results.Data) -> None:
        """Take rows of a family from now on."""
        self._family, self._stamp = family, stamped
        self._rows, self._wrong = [], []
        self._start = self.data

    def older(self) -> list[Row]:
        """Return the rows of the family that stand in the file and are not measured yet."""
        old = self._start["families"].get(self._family)
        new = {row.key for row in self._rows}
        found = [r for group in ([] if old is None else results.groups(old)) for r in group["rows"]]
        return [row for row in map(Row.from_json, found) if row.key not in new]

    def add(self, row: Row) -> None:
        """Keep a row, in the place of one of the same name, type and size."""
        self._rows = [*(kept for kept in self._rows if kept.key != row.key), row]
        self._keep(partial=True)

    def wrong(self, made: Any) -> None:  # Any: a case, or what makes one
        """Forget the older rows of what gave a wrong result."""
        self._wrong.append((made.name, made.dtype, made.elements))
        self._keep(partial=True)

    def end(self, stamped: results.Data, *, whole: bool) -> None:
        """End a family; where it is `whole`, nothing older of it is kept."""
        self._stamp = stamped
        self._keep(partial=not whole)

    def _keep(self, *, partial: bool) -> None:
        start = self._start["families"]
        family = results.joined(
            start.get(self._family), self._rows, self._stamp, partial=partial, wrong=self._is_wrong
        )
        others = {name: found for name, found in start.items() if name != self._family}
        new = others if family is None else {**others, self._family: family}
        self.data = results.merge({**self._start, "families": {}}, self._machine, new)
        if self.target is not None:
            results.write(self.target, self.data)

    def _is_wrong(self, row: Row) -> bool:
        return any(
            (row.case == name or row.case.startswith(f"{name}, "))
            and row.dtype == dtype
            and elements in (0, row.elements)
            for name, dtype, elements in self._wrong
        )
