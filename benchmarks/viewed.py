"""Logs for the browser to look at, without an engine: a long one that is over, and one that grows at a steady rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from divebook.events import Event, catalog
from divebook.projections.failures import ItemNames
from divebook.widgets.feed import Feed
from divebook.widgets.protocol import Graph, Header
from divebook.widgets.publisher import Publisher
from divebook.widgets.source import Source
from divebook.widgets.views import Handlers, LiveView

PATHS = 20
EVENTS_PER_STEP = 4


class Log:
    """Steps with one model call each, on several paths, and a view of them.

    Parameters
    ----------
    length
        How many events there are from the start.
    """

    def __init__(self, length: int = 0) -> None:
        self._facts = _facts()
        self._began = _now() - length * 1000
        self._events: list[Event] = []
        self._listeners: list[Callable[[Sequence[Event]], None]] = []
        self.grow(length)
        source = Source(
            self._header,
            list,
            Graph(steps=[], edges=[]),
            self._read,
            lambda: len(self._events),
            self._subscribe,
            lambda _: lambda: None,
            lambda _: [],
            lambda _at, _since: [],
            str,
            ItemNames(lambda span: span.name, {}),
        )
        self.publisher = Publisher(Feed(source))

    def view(self) -> LiveView:
        """Return a new view of it."""
        return LiveView(self.publisher, Handlers(lambda _id, _response: None, *[lambda: None] * 3))

    def grow(self, count: int, at: int | None = None) -> None:
        """Append events that were recorded at one moment, or a millisecond apart."""
        first = len(self._events)
        news = [
            Event(f"event_{number}", "exec_1", number + 1, at or self._began + number * 1000, *next(self._facts))
            for number in range(first, first + count)
        ]
        self._events += news
        for listener in self._listeners:
            listener(news)

    def grow_steadily(self, rate: int, seconds: float) -> float:
        """Append so many events a second from a thread; return the share of a core that showing them took."""
        self.publisher.post(lambda: None, urgent=True)
        before, started = self._publisher_seconds(), time.monotonic()
        sent = 0
        pause = threading.Event()
        while (passed := time.monotonic() - started) < seconds:
            due = int(passed * rate) - sent
            if due:
                self.grow(due, _now())
                sent += due
            pause.wait(0.005)
        return (self._publisher_seconds() - before) / (time.monotonic() - started)

    def _publisher_seconds(self) -> float:
        thread = self.publisher._thread  # noqa: SLF001 - nobody else needs to know it
        assert thread is not None
        assert thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))

    def _read(self, after: int, limit: int) -> list[Event]:
        return self._events[after : after + limit]

    def _subscribe(self, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _header(self) -> Header:
        return Header(
            execution_id="exec_1",
            workflow="benchmark",
            badge="",
            status="running",
            live=True,
            error="",
            started_us=self._began,
            ended_us=None,
            now_us=_now(),
            model_calls=0,
            input_tokens=0,
            output_tokens=0,
            cost=None,
            tool_calls=0,
            spenders=[],
            doing="worked",
            since_us=None,
            worked_us=0,
            waited_us=0,
            paused_us=0,
            stretches=[],
            progress=[],
            gauges=[],
            durability="memory",
            commands=[],
            failed=0,
            ways=[],
            workspaces=0,
            waits="",
            dashboards=[],
        )


def _now() -> int:
    return time.time_ns() // 1000


def _facts() -> Iterator[tuple[catalog.Payload, str, str]]:
    """Yield payload, path and step of one event after the other."""
    number = 0
    while True:
        for path in range(PATHS):
            place, operation = (f"main-{path}", f"step {number % 50}"), f"op_{number}_{path}"
            parameters = {"agent": "writer", "prompt": "Write a line."}
            yield catalog.StepStarted("prompt"), *place
            yield catalog.OperationStarted(operation, "agent_response", parameters), *place
            yield catalog.OperationCompleted(operation, "agent_response", 5, "a line", {"input_tokens": 3}), *place
            yield catalog.StepCompleted("a line"), *place
        number += 1
