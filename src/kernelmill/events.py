"""The one hook: what kernelmill did (compile, cache, launch, copy, sync, fallback), and for whom.

Modules that do such work emit events; a profiler, an audit or a test subscribes. Nothing is
measured, stored or printed here.

An emitter pays one attribute look-up when nobody listens::

    if events.active:
        events.emit("launch", "reduce", device="cpu", seconds=t, bytes=n)

**A listener that raises stops the call that emitted**: its exception reaches the user at once, as
raised, and listeners that subscribed later do not see that event. So a listener can forbid: one
that raises on "fallback" turns every fallback into an error. The price is on the emitter: it emits
when its own state is whole again, and never while it holds a lock.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["KINDS", "Event", "Kind", "active", "caller", "emit", "listen", "subscribe"]

Kind = Literal["compile", "cache_hit", "cache_miss", "launch", "copy", "sync", "fallback"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

# Read it as `events.active`: `from kernelmill.events import active` would copy today's value.
active: bool = False

# Frames that stand between a user and the emitter: ours, and the wrappers of the standard library
# that our decorators and context managers run through.
_NOT_THE_CALLER: Final = frozenset({"kernelmill", "contextlib", "functools"})


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that was done.

    Parameters
    ----------
    kind
        One of `KINDS`.
    name
        What it was done to: an algorithm, an operator, a kernel or a cache key.
    device
        Where: "cpu", "cuda:0"; of a copy, where it went.
    source
        Where a copy came from.
    seconds
        How long the host was busy with it, or waited for it.
    bytes
        Bytes read and written by a launch, moved by a copy, or in the image of a compile or hit.
    flops
        Operations of a launch by its cost model.
    reason
        Why: of a miss, a sync or a fallback.
    end
        `time.perf_counter()` when it was over; it began at `end - seconds`.
    thread
        `threading.get_ident()` of the thread that did it.
    file, line
        The first frame outside kernelmill; "" and 0 where a thread of ours had no such caller.
    """

    kind: Kind
    name: str
    device: str = ""
    source: str = ""
    seconds: float = 0.0
    bytes: int = 0
    flops: int = 0
    reason: str = ""
    end: float = 0.0
    thread: int = 0
    file: str = ""
    line: int = 0


class _Subscription:
    """One call of `subscribe`; an object of its own, so that one callback can subscribe twice."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[Event], object]) -> None:
        self.callback = callback


class _Delivery(threading.local):
    """Whether this thread is inside a listener."""

    running: bool = False


_lock = threading.Lock()
_subscriptions: tuple[_Subscription, ...] = ()  # replaced, never changed: readers take no lock
_delivery = _Delivery()


def subscribe(callback: Callable[[Event], object]) -> Callable[[], None]:
    """Call `callback(event)` for each event from now on, in the thread that emits it.

    Parameters
    ----------
    callback
        May be called by several threads at once. What it raises reaches the code that emitted.
        Events that it causes itself are not delivered to anybody.

    Returns
    -------
    unsubscribe
        Ends it; to call it again does nothing. A thread that was already delivering an event may
        still call the callback once.

    Examples
    --------
    >>> from kernelmill import events
    >>> unsubscribe = events.subscribe(lambda event: print(event.kind, event.name))
    >>> events.emit("sync", "stream")
    sync stream
    >>> unsubscribe()
    >>> events.active
    False
    """
    subscription = _Subscription(callback)
    _replace(added=subscription)

    def unsubscribe() -> None:
        _replace(removed=subscription)

    return unsubscribe


@contextmanager
def listen(*kinds: Kind) -> Iterator[list[Event]]:
    """Collect the events of all threads inside a `with` block into a list.

    Parameters
    ----------
    *kinds
        Only these kinds; none given means all.

    Raises
    ------
    ValueError
        A kind that does not exist.

    Examples
    --------
    >>> from kernelmill import events
    >>> with events.listen("fallback") as seen:
    ...     events.emit("launch", "reduce", device="cpu")
    ...     events.emit("fallback", "sort", device="cpu", reason="no GPU")
    >>> [(event.name, event.reason) for event in seen]
    [('sort', 'no GPU')]
    """
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"there is no event kind {kind!r}; kinds: {', '.join(KINDS)}")
    seen: list[Event] = []

    def collect(event: Event) -> None:
        if not kinds or event.kind in kinds:
            seen.append(event)

    unsubscribe = subscribe(collect)
    try:
        yield seen
    finally:
        unsubscribe()


def emit(
    kind: Kind,
    name: str,
    *,
    device: str = "",
    source: str = "",
    seconds: float = 0.0,
    bytes: int = 0,  # noqa: A002 - the field's name
    flops: int = 0,
    reason: str = "",
) -> None:
    """Tell all listeners; does nothing when there are none. For the arguments see `Event`.

    Raises whatever a listener raises.
    """
    if not active or _delivery.running:
        return
    end = time.perf_counter()
    file, line = caller()
    event = Event(
        kind=kind,
        name=name,
        device=device,
        source=source,
        seconds=seconds,
        bytes=bytes,
        flops=flops,
        reason=reason,
        end=end,
        thread=threading.get_ident(),
        file=file,
        line=line,
    )
    _delivery.running = True
    try:
        for subscription in _subscriptions:
            subscription.callback(event)
    finally:
        _delivery.running = False


def _replace(*, added: _Subscription | None = None, removed: _Subscription | None = None) -> None:
    global active, _subscriptions  # noqa: PLW0603 - the registry
    with _lock:
        kept = tuple(s for s in _subscriptions if s is not removed)
        _subscriptions = kept if added is None else (*kept, added)
        active = bool(_subscriptions)


def caller() -> tuple[str, int]:
    """Return file and line of the first frame outside kernelmill, or ("", 0) if there is none."""
    # `inspect.stack` would read sources: a millisecond.
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        if module.partition(".")[0] not in _NOT_THE_CALLER:
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0
