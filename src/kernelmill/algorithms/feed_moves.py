"""Arrays inside iterators to the device on which a call runs, and what was written back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelmill.algorithms import iterators, sequences
from kernelmill.algorithms.moves import Moved, moved

__all__ = ["moved_feeds", "zipped"]


def zipped(part: Any) -> Any:
    """Return a tuple as a zip; whatever else as it is."""
    return iterators.zip(*part) if type(part) is tuple else part


def moved_feeds(inputs: tuple[Any, ...], out: Any, name: str, *, partly: bool = False) -> Moved:
    """Do what `moves.moved` does for arrays and for those inside iterators.

    Parameters
    ----------
    inputs, out
        As the user gave them.
    name
        What error texts call the inputs.
    partly
        Whether some elements of the outputs may stay as they are; with iterators they always may.
    """
    given = [a for part in inputs for a in sequences.arrays_of(zipped(part))]
    outs = out if type(out) is tuple else () if out is None else (out,)
    if not any(map(sequences.is_iterator, (*map(zipped, inputs), *outs))):
        return moved(inputs, out, name, partly=partly)
    targets = tuple(a for part in outs for a in sequences.arrays_of(part))
    call = moved(tuple(given), targets or None, name, partly=True)
    sent, rooms = iter(call.inputs), iter(call.out or ())
    made = tuple(sequences.with_arrays(zipped(part), sent) for part in inputs)
    kept = tuple(sequences.with_arrays(part, rooms) for part in outs)
    if not call.returns:
        return Moved(made, out)
    back = kept if type(out) is tuple else kept[0] if kept else None
    if out is None:
        return Moved(made, None, returns=True)
    return _Scattered(made, back, returns=True, targets=targets, rooms=call.out, user=out)


@dataclass(frozen=True, slots=True)
class _Scattered(Moved):
    """Arguments whose results go back through the arrays inside iterators."""

    rooms: tuple[Any, ...] = ()
    user: Any = None

    def back(self, result: Any) -> Any:
        """Copy what was written to the arrays of the host; the user gets what was given."""
        del result
        if self.rooms:  # nothing is written where all is discarded
            Moved(self.inputs, self.rooms, returns=True, targets=self.targets).back(self.rooms)
        return self.user
