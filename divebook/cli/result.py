"""An execution on stdout, for people or as JSON, and the exit code it means."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import asdict
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from divebook.cli.options import awaited_signals_of
from divebook.cli.output import (
    as_json,
    columns,
    console,
    note,
    one_line,
    pairs,
    say,
    secrets,
    section,
    shown,
    status_text,
    write,
)
from divebook.engine.bounds import NANODOLLARS
from divebook.engine.state import PathState, Usage
from divebook.errors import StoreError
from divebook.events import Event, catalog
from divebook.events.codec import event_to_dict
from divebook.projections.activity import activity_of
from divebook.projections.failures import summary
from divebook.projections.formatter import Formatter, Formatting
from divebook.projections.spans import Span
from divebook.runtime.execution import Execution
from divebook.runtime.loop import ENGINE
from divebook.store import EventStore
from divebook.store.append import RELAXED
from divebook.text.format import (
    between,
    branch_name,
    json_time,
    local_clock,
    local_time,
    local_zone,
    plural,
    price,
    seconds,
    visible,
)
from divebook.workflow.definition import hidden_in

EXIT_CODES = {catalog.COMPLETED: 0, catalog.FAILED: 1, catalog.WAITING: 3, catalog.CANCELLED: 130}
_CELL = 120


def print_result(execution: Execution, *, json: bool) -> int:
    """Print how a run ended; return the exit code."""
    secrets.learn(execution.state.inputs, execution.state.variables)
    if json:
        write(as_json(facts(execution), indent=2))
    else:
        _print_heading(execution)
        section("outputs", pairs(execution.state.outputs))
        if not execution.workflow.outputs:
            section("variables", pairs(_variables(execution)))
            section("output of the last step", pairs(last_outputs(execution)))
        section("questions", _questions(execution))
        section("waits for", _signals(execution))
        _print_error(execution)
    return EXIT_CODES.get(execution.status, 1)


def print_details(execution: Execution, *, json: bool, events: bool, damage: Exception | None = None) -> None:
    """Print all there is to know of an execution."""
    secrets.learn(execution.state.inputs, execution.state.variables)
    if json:
        history = {"events": [event_to_dict(event) for event in execution.history()]} if events else {}
        paths = [path.to_dict() for path in execution.paths.values()]
        fault = {"damage": str(damage)} if damage is not None else {}
        write(as_json({**facts(execution), "paths": paths, **history, **fault}, indent=2))
        return
    _print_heading(execution)
    section("inputs", pairs(execution.state.inputs))
    section("outputs", pairs(execution.state.outputs))
    section("variables", pairs(_variables(execution)))
    section("usage", _usage(execution.usage))
    say(Text("branches", "bold"))
    columns(
        ("branch", "status", "step", "took"),
        [_path_cells(path, hidden_in(execution.workflow)) for path in execution.paths.values()],
    )
    section("questions", _questions(execution))
    section("waits for", _signals(execution))
    _print_error(execution)
    if events:
        _print_events(execution)


def _usage(usage: Usage) -> list[tuple[str, str]]:
    """Return what models consumed, in words; empty where none was asked."""
    told = {name.replace("_", " "): f"{value:,}" for name, value in usage.to_dict().items()}
    return [*(told | ({"cost": price(usage.cost / NANODOLLARS)} if usage.cost else {})).items()]


def _path_cells(path: PathState, hidden: Container[str]) -> tuple[Text | str, ...]:
    took = between(path.started_at, path.ended_at)
    step = "" if path.current_step in hidden else path.current_step
    return branch_name(path.id) or path.id, status_text(path.status), one_line(step), took


def facts(execution: Execution) -> dict[str, Any]:
    """Return what ``--json`` prints of an execution."""
    return {
        "id": execution.id,
        "workflow": execution.workflow.name,
        "status": execution.status,
        "error": execution.error,
        "failure": None if (failure := execution.failure) is None else asdict(failure),
        "inputs": dict(execution.state.inputs),
        "outputs": dict(execution.state.outputs),
        "variables": _variables(execution),
        "last_output": last_outputs(execution),
        "usage": execution.usage.to_dict(),
        "durability": _durability(execution),
        "signals": [awaited.name for awaited in awaited_signals_of(execution)],
        "questions": {question.id: question.question for question in execution.interrupts},
        "started_at": json_time(execution.started_at),
        "ended_at": json_time(execution.ended_at),
    }


def _variables(execution: Execution) -> dict[str, Any]:
    """Return the variables in their recorded form, which is shown without being opened."""
    return dict(sorted(execution.state.variables.items()))


def _print_heading(execution: Execution) -> None:
    took = _times(execution)
    say(status_text(execution.status), one_line(execution.workflow.name), execution.id, took)
    started = local_time(execution.started_at)
    if started and not took:
        say(f"started {started}")
    if _durability(execution) == RELAXED:
        say("durability: relaxed")


def _times(execution: Execution) -> str:
    """Return how long it took; where it waited for people, or rested, that apart, for which its log is read."""
    if execution.started_at is not None and execution.state.paused_us and execution.damage is None:
        return ", ".join(activity_of(execution.history()).times)
    return between(execution.started_at, execution.ended_at)


def _durability(execution: Execution) -> str:
    return execution.store.record(execution.id).durability


def _print_error(execution: Execution) -> None:
    if execution.error and execution.status == catalog.FAILED:
        note(f"error: {execution.error}", "bold red")
        with suppress(StoreError):  # of a damaged log its beginning is shown
            failure = execution.failure
            failures = execution.failures
            told = [] if failure is None else failure.details.splitlines()
            for line in [*told, *([summary(failures)] if len(failures) > 1 else [])]:
                note(f"  {line}")


def last_outputs(execution: Execution) -> dict[str, str]:
    """Return what the last step of each path put out, by step, where it is stored in no variable."""
    stored = {step.name for step in execution.workflow.steps if step.store}
    ends = [path for path in execution.paths.values() if path.status == catalog.COMPLETED and not path.children]
    told = {path.last_step: path.step_outputs.get(path.last_step, "") for path in ends if path.last_step is not None}
    return {step: text for step, text in told.items() if text and step not in stored}


def _signals(execution: Execution) -> list[tuple[str, str]]:
    return [(one_line(awaited.step), str(awaited)) for awaited in awaited_signals_of(execution)]


def _questions(execution: Execution) -> list[tuple[str, str]]:
    return [(question.id, visible(question.question)) for question in execution.interrupts]


def _print_events(execution: Execution) -> None:
    say(Text("events", "bold"))
    events = execution.history()
    rows = [_event_cells(event) for event in events]
    time = f"time ({local_zone(events[0].timestamp)})" if events else "time"
    columns(("#", time, "path", "step", "type", "data"), rows, whole=("#", time, "type"))


def _event_cells(event: Event) -> tuple[str, ...]:
    time = local_clock(event.timestamp)
    data = one_line(shown(event.data.to_data()), _CELL)
    return str(event.sequence), time, event.path, one_line(event.step, 40), event.event_type, data


# The rows that progress shows: what runs are doing, step by step.


KEPT = 200
"""Finished steps that are remembered; of older ones only the number."""


class Board:
    """The steps of all executions that it is given."""

    def __init__(self) -> None:
        self.finished: deque[Span] = deque(maxlen=KEPT)
        self.count = 0
        """Steps finished so far."""
        self.running: dict[int, Span] = {}
        """By identity, oldest first."""

    def take(self, span: Span) -> None:
        """Take in a step that has just begun or ended."""
        if span.ended_us is None:
            self.running[id(span)] = span
            return
        self.running.pop(id(span), None)
        self.finished.append(span)
        self.count += 1

    def latest(self, limit: int) -> list[Span]:
        """Return at most `limit` rows: running ones before finished ones, shown in the order in which they began."""
        running = list(self.running.values())[:limit]
        room = limit - len(running)
        done = list(self.finished)[-room:] if room else []
        return sorted((*done, *running), key=lambda span: span.started_us)


# Progress on stderr while an execution runs: a live list in a terminal, plain lines elsewhere, or nothing.
#
# The first two are formatters: they hear of steps on the engine's thread, and only put them into a queue there. Let
# them watch a store before the execution is started, and nothing is missed.


_REDRAWS_PER_SECOND = 8
_MOST_ROWS = 20


class Progress:
    """Shows nothing but what the workflow prints; base of those that show more."""

    def __init__(self, screen: Console) -> None:
        self.screen = screen

    def watch(self, store: EventStore) -> None:
        """Hear of what is appended to a store from now on; call it once, before the execution is started."""

    def print(self, text: str) -> None:
        """Print what the workflow prints; may be called from any thread."""
        self.screen.print(Text(visible(secrets.text(text))), soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show the rest and stop."""


class _Watching(Progress, Formatter, ABC):
    def __init__(self, screen: Console) -> None:
        super().__init__(screen)
        self._unsubscribe: Callable[[], None] = lambda: None
        self._held_up: Callable[[], str | None] = lambda: None

    def watch(self, store: EventStore) -> None:
        self._held_up = lambda: ENGINE.held_up(store)
        self._unsubscribe = store.subscribe(Formatting(self))

    def step_started(self, step: Span) -> None:
        self._show(step)

    def step_output(self, step: Span, output: str) -> None:  # noqa: ARG002 - the result is printed at the end
        self._show(step)

    def step_error(self, step: Span, error: str) -> None:  # noqa: ARG002 - the step has it
        self._show(step)

    @abstractmethod
    def _show(self, step: Span) -> None:
        """Take in a step that has begun or ended; on the engine's thread."""


class LineProgress(_Watching):
    """A line when a step begins and one when it ends."""

    def __init__(self, screen: Console) -> None:
        super().__init__(screen)
        self._lines: SimpleQueue[Text | None] = SimpleQueue()

    def _show(self, step: Span) -> None:
        self._lines.put(_line(step))

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._print_lines, name="divebook-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unsubscribe()
        self._lines.put(None)
        self._thread.join()

    def _print_lines(self) -> None:
        while (line := self._lines.get()) is not None:
            self.screen.print(line, soft_wrap=True)


class LiveProgress(_Watching):
    """A list that redraws itself."""

    def __init__(self, screen: Console) -> None:
        super().__init__(screen)
        self.board = Board()
        self._moved: SimpleQueue[Span] = SimpleQueue()

    def _show(self, step: Span) -> None:
        self._moved.put(step)

    def __enter__(self) -> Self:
        self._live = Live(
            console=self.screen,
            get_renderable=self._draw,
            refresh_per_second=_REDRAWS_PER_SECOND,
            redirect_stdout=False,
        )
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unsubscribe()
        self._live.stop()

    def _draw(self) -> RenderableType:
        self._take_in()
        now = time.time_ns() // 1000
        rows = self.board.latest(max(3, min(_MOST_ROWS, self.screen.height - 3)))
        table = Table.grid(padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*_cells(row, now))
        unseen = self.board.count + len(self.board.running) - len(rows)
        notes = [f"and {unseen} more steps"] if unseen > 0 else []
        if (held_up := self._held_up()) is not None:
            notes.append(one_line(held_up, self.screen.width))
        if not notes:
            return table
        return Group(table, Text("\n".join(notes), "dim")) if rows else Text(notes[0], "dim")

    def _take_in(self) -> None:
        try:
            while True:
                self.board.take(self._moved.get_nowait())
        except Empty:
            return


def make_progress(*, quiet: bool) -> Progress:
    """Return the progress that suits stderr."""
    screen = console(error=True)
    if quiet:
        return Progress(screen)
    return LiveProgress(screen) if screen.is_terminal else LineProgress(screen)


def _cells(row: Span, now: int) -> tuple[Text, ...]:
    return (
        status_text(row.shown_status),
        Text(row.path),
        Text(one_line(row.step, 60)),
        Text(_detail(row)),
        _took(row, now),
    )


def _took(row: Span, now: int) -> Text:
    return Text(seconds(max(0, (row.ended_us or now) - row.started_us) / 1_000_000), "dim")


def _detail(row: Span) -> str:
    return one_line(row.error, 100) if row.error else plural(row.items, "item") if row.items else ""


def _line(row: Span) -> Text:
    parts = (status_text(row.shown_status), Text(row.path), Text(one_line(row.step)), Text(_detail(row)))
    ended = () if row.ended_us is None else (_took(row, row.ended_us),)
    return Text("  ").join(part for part in (*parts, *ended) if part.plain)
