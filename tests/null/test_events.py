"""The hook: delivery, the caller's line, threads, listeners that raise, and what it costs."""

import contextlib
import doctest
import functools
import inspect
import threading
import time
import types

import pytest

from kernelmill import events
from kernelmill.events import Event


@pytest.fixture(autouse=True)
def nobody_is_left():
    assert not events.active
    yield
    assert not events.active, "a test left a listener"


def here() -> int:
    """Return the line number of the caller."""
    return inspect.currentframe().f_back.f_lineno


def test_an_event_carries_what_was_emitted_and_the_callers_line():
    before = time.perf_counter()
    with events.listen() as seen:
        events.emit(
            "copy",
            "x",
            device="cuda:0",
            source="cpu",
            seconds=0.5,
            bytes=80,
            flops=7,
            reason="asked",
        )
        line = here() - 1
    (event,) = seen
    assert before <= event.end <= time.perf_counter()
    assert event == Event(
        kind="copy",
        name="x",
        device="cuda:0",
        source="cpu",
        seconds=0.5,
        bytes=80,
        flops=7,
        reason="asked",
        end=event.end,
        thread=threading.get_ident(),
        file=__file__,
        line=event.line,
    )
    assert line - 10 <= event.line <= line  # Python 3.11 reports a line inside the call


def inside_kernelmill(name, source):
    """Return the namespace of a module of the package, made from source."""
    module = types.ModuleType(name)
    exec(compile(source, f"/lib/{name}.py", "exec"), module.__dict__)
    return module


def test_the_caller_is_the_first_frame_outside_kernelmill():
    deep = inside_kernelmill(
        "kernelmill.algorithms.plan",
        "import contextlib, functools\n"
        "from kernelmill import events\n"
        "@contextlib.contextmanager\n"
        "def block():\n"
        "    events.emit('sync', 'block')\n"
        "    yield\n"
        "def with_block():\n"
        "    with block(): pass\n"
        "@functools.singledispatch\n"
        "def direct(x):\n"
        "    with_block()\n",
    )
    with events.listen() as seen:
        deep.direct(1)
        line = here() - 1
        functools.partial(deep.with_block)()
        deep.__name__ = "kernelmill_of_somebody_else"
        deep.with_block()
    assert [(event.file, event.line) for event in seen[:2]] == [
        (__file__, line),
        (__file__, line + 2),
    ]
    assert seen[2].file == "/lib/kernelmill.algorithms.plan.py"


def test_no_caller_outside_is_said_so(monkeypatch):
    class Everything:
        def __contains__(self, name):
            return True

    monkeypatch.setattr(events, "_NOT_THE_CALLER", Everything())
    with events.listen() as seen:
        events.emit("sync", "x")
    assert (seen[0].file, seen[0].line) == ("", 0)


def test_the_caller_is_looked_for_only_when_somebody_listens(monkeypatch):
    monkeypatch.setattr(events, "caller", lambda: pytest.fail("nobody asked"))
    events.emit("sync", "x")


def test_listen_filters_by_kind():
    with events.listen() as everything, events.listen("sync", "copy") as some:
        for kind in events.KINDS:
            events.emit(kind, "x")
    assert [event.kind for event in everything] == list(events.KINDS)
    assert [event.kind for event in some] == ["copy", "sync"]
    with pytest.raises(ValueError) as caught:
        events.listen("sink").__enter__()
    assert str(caught.value) == (
        "there is no event kind 'sink'; kinds: compile, cache_hit, cache_miss, launch, copy, "
        "sync, fallback"
    )


def test_active_follows_the_listeners_and_unsubscribe_is_idempotent():
    first = events.subscribe(print)
    second = events.subscribe(print)
    assert events.active
    first()
    first()
    assert events.active, "ending one subscription twice must not end the other"
    second()
    assert not events.active


def test_one_callback_can_subscribe_twice():
    seen = []
    first, second = events.subscribe(seen.append), events.subscribe(seen.append)
    events.emit("sync", "x")
    first()
    events.emit("sync", "y")
    second()
    assert [event.name for event in seen] == ["x", "x", "y"]


def test_what_a_listener_raises_reaches_the_emitter():
    class NotHereError(Exception):
        pass

    def forbid(event):
        if event.kind == "fallback":
            raise NotHereError(event.reason)

    with events.listen() as before, contextlib.ExitStack() as stack:
        stack.callback(events.subscribe(forbid))
        after = stack.enter_context(events.listen())
        events.emit("launch", "x")
        with pytest.raises(NotHereError, match="no compiler"):
            events.emit("fallback", "x", reason="no compiler")
        events.emit("sync", "x")
    assert [event.kind for event in before] == ["launch", "fallback", "sync"]
    assert [event.kind for event in after] == ["launch", "sync"]


def test_events_caused_by_a_listener_are_not_delivered():
    seen = []

    def loud(event):
        seen.append(event.name)
        events.emit("launch", f"because of {event.name}")

    unsubscribe = events.subscribe(loud)
    events.emit("launch", "x")
    events.emit("launch", "y")
    unsubscribe()
    assert seen == ["x", "y"]


def test_a_listener_can_end_itself():
    seen = []

    def once(event):
        seen.append(event.name)
        unsubscribe()

    unsubscribe = events.subscribe(once)
    with events.listen() as all_of_them:
        events.emit("launch", "x")
        events.emit("launch", "y")
    assert seen == ["x"]
    assert len(all_of_them) == 2


def test_threads_emit_and_subscribe_at_the_same_time():
    threads, rounds = 8, 400
    barrier = threading.Barrier(threads)
    mine = []

    def work(number):
        barrier.wait()
        for i in range(rounds):
            with events.listen() as seen:
                events.emit("launch", f"{number}.{i}")
            names = [e.name for e in seen if e.thread == threading.get_ident()]
            mine.append(names == [f"{number}.{i}"])

    with events.listen() as seen:
        pool = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
    assert mine == [True] * (threads * rounds)
    assert sorted(e.name for e in seen) == sorted(
        f"{n}.{i}" for n in range(threads) for i in range(rounds)
    )


def test_nobody_listening_costs_less_than_two_calls_of_nothing():
    def guarded(rounds):
        for _ in range(rounds):
            if events.active:
                events.emit("launch", "x", device="cpu", seconds=0.0, bytes=8)

    def nothing():
        pass

    def called(rounds):
        for _ in range(rounds):
            nothing()
            nothing()

    def empty(rounds):
        for _ in range(rounds):
            pass

    def seconds(work, rounds=10_000):
        start = time.perf_counter()
        work(rounds)
        return (time.perf_counter() - start) / rounds

    works = guarded, called, empty
    rows = [[seconds(work) for work in works] for _ in range(30)]
    guard, calls, loop = (min(column) for column in zip(*rows, strict=True))
    assert guard - loop < calls - loop  # a quarter of it on a quiet machine


def test_the_examples_run():
    assert doctest.testmod(events).failed == 0
