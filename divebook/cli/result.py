"""Printed result of an execution (text or JSON) with its exit code, and progress on stderr while the execution runs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Sequence
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
from divebook.definitions.definition import hidden_in
from divebook.engine.bounds import NANODOLLARS
from divebook.engine.state import PathState, Usage
from divebook.errors import StoreError
from divebook.events import Event, catalog
from divebook.events.codec import event_to_dict
from divebook.projections.activity import activity_of
from divebook.projections.failures import summary
from divebook.projections.spans import Span, Steps
from divebook.runtime.loop import ENGINE
from divebook.runtime.run import Run
from divebook.stores import EventStore
from divebook.stores.append import RELAXED
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

# A status without an entry, such as "moved", has the code 1.
EXIT_CODES = {catalog.COMPLETED: 0, catalog.FAILED: 1, catalog.WAITING: 3, catalog.CANCELLED: 130}
_CELL = 120


def print_result(execution: Run, *, json: bool) -> int:
    """Print the result of a run on stdout as text or JSON, and return the exit code for the run's status."""
    # Before anything is printed: an error may repeat an input.
    secrets.learn(execution.state.inputs, execution.state.variables)
    if json:
        write(as_json(facts(execution), indent=2))
    else:
        _print_heading(execution)
        section("outputs", pairs(execution.state.outputs))
        # A workflow without outputs has its results in variables, or only in the text of its last step.
        if not execution.workflow.outputs:
            section("variables", pairs(_variables(execution)))
            section("output of the last step", pairs(last_outputs(execution)))
        section("questions", _questions(execution))
        section("waits for", _signals(execution))
        _print_error(execution)
    return EXIT_CODES.get(execution.status, 1)


def print_details(execution: Run, *, json: bool, events: bool, damage: Exception | None = None) -> None:
    """Print status, inputs, outputs, variables, usage, branches and questions of an execution; optionally its events.

    Parameters
    ----------
    events
        Whether to print its events too.
    damage
        The error of a damaged log, for JSON.
    """
    secrets.learn(execution.state.inputs, execution.state.variables)
    if json:
        history = {"events": [event_to_dict(event) for event in execution.history()]} if events else {}
        paths = [path.to_dict() for path in execution.paths.values()]
        # Only a damaged log has the key "damage".
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
        # The internal steps of a pipeline are not shown.
        ("branch", "status", "step", "took"),
        [_path_cells(path, hidden_in(execution.workflow)) for path in execution.paths.values()],
    )
    section("questions", _questions(execution))
    section("waits for", _signals(execution))
    _print_error(execution)
    if events:
        _print_events(execution)


def _usage(usage: Usage) -> list[tuple[str, str]]:
    """Return the token counts and the cost of the model calls of an execution as pairs of name and value for `section`;
    empty if no model was called.
    """
    rows = {name.replace("_", " "): f"{value:,}" for name, value in usage.to_dict().items()}
    if usage.cost:
        rows["cost"] = price(usage.cost / NANODOLLARS)
    return list(rows.items())


def _path_cells(path: PathState, hidden: Container[str]) -> tuple[Text | str, ...]:
    took = between(path.started_at, path.ended_at)
    step = "" if path.current_step in hidden else path.current_step
    return branch_name(path.id) or path.id, status_text(path.status), one_line(step), took


def facts(execution: Run) -> dict[str, Any]:
    """Return status, values, usage and questions of an execution as the dictionary that ``--json`` prints."""
    failure = execution.failure
    return {
        "id": execution.id,
        "workflow": execution.workflow.name,
        "status": execution.status,
        "error": execution.error,
        "failure": None if failure is None else asdict(failure),
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


def _variables(execution: Run) -> dict[str, Any]:
    """Return the variables of an execution by name, as they are recorded. They are not converted to instances of user
    classes, so that no user code is imported to show them.
    """
    return dict(sorted(execution.state.variables.items()))


def _print_heading(execution: Run) -> None:
    took = _times(execution)
    say(status_text(execution.status), one_line(execution.workflow.name), execution.id, took)
    started = local_time(execution.started_at)
    if started and not took:
        say(f"started {started}")
    if _durability(execution) == RELAXED:
        say("durability: relaxed")


def _times(execution: Run) -> str:
    """Return the duration of an execution as text. If the execution was paused, working and waiting time are shown
    separately, for which the log is read.
    """
    # The log is only read if the state says that there was a pause.
    if execution.started_at is not None and execution.state.paused_us and execution.damage is None:
        return ", ".join(activity_of(execution.history()).times)
    return between(execution.started_at, execution.ended_at)


def _durability(execution: Run) -> str:
    return execution.store.record(execution.id).durability


def _print_error(execution: Run) -> None:
    if execution.error and execution.status == catalog.FAILED:
        note(f"error: {execution.error}", "bold red")
        with suppress(StoreError):  # a damaged log: the sound part was printed before
            failure = execution.failure
            failures = execution.failures
            # The headline of the failure is part of the error above.
            lines = [] if failure is None else failure.details.splitlines()
            if len(failures) > 1:
                lines.append(summary(failures))
            for line in lines:
                note(f"  {line}")


def last_outputs(execution: Run) -> dict[str, str]:
    """Return the output of the last step of each completed branch, by name of the step. Empty outputs are left out. So
    are outputs that a step stores in a variable, because the variables are printed separately.
    """
    storing_steps = {step.name for step in execution.workflow.steps if step.store}
    outputs = {}
    # The output of a path that has split belongs to its children.
    for path in execution.paths.values():
        if path.status != catalog.COMPLETED or path.children or path.last_step is None:
            continue
        output = path.step_outputs.get(path.last_step, "")
        if output and path.last_step not in storing_steps:
            outputs[path.last_step] = output
    return outputs


def _signals(execution: Run) -> list[tuple[str, str]]:
    return [(one_line(awaited.step), str(awaited)) for awaited in awaited_signals_of(execution)]


def _questions(execution: Run) -> list[tuple[str, str]]:
    return [(question.id, visible(question.question)) for question in execution.interrupts]


def _print_events(execution: Run) -> None:
    say(Text("events", "bold"))
    events = execution.history()
    rows = [_event_cells(event) for event in events]
    # The zone of the first event, in the title once.
    time = f"time ({local_zone(events[0].timestamp)})" if events else "time"
    columns(("#", time, "path", "step", "type", "data"), rows, whole=("#", time, "type"))


def _event_cells(event: Event) -> tuple[str, ...]:
    time = local_clock(event.timestamp)
    data = one_line(shown(event.data.to_data()), _CELL)
    return str(event.sequence), time, event.path, one_line(event.step, 40), event.event_type, data


# --- progress on stderr while an execution runs ----------------------------------------------------------------------
#
# A terminal shows a live list, other streams plain lines, ``--quiet`` nothing. `StepListener` is called on the engine's
# thread and only puts steps into a queue. If it watches the store before the execution starts, it misses no step.

MAX_FINISHED = 200
"""Number of finished steps that the live list keeps. Older finished steps are only counted."""
_REDRAWS_PER_SECOND = 8
_MAX_ROWS = 20


class Board:
    """Steps that the live progress display shows: the running and the recently finished steps of all executions."""

    def __init__(self) -> None:
        self.finished: deque[Span] = deque(maxlen=MAX_FINISHED)
        self.count = 0
        """Number of all finished steps."""
        # A step that starts again is another span with the same name, so that names are no keys.
        self.running: dict[int, Span] = {}
        """Running steps by ``id()`` of their span, oldest first."""

    def update(self, span: Span) -> None:
        """Add a step that has started to the running steps, or move a step that has ended to the finished steps."""
        # An ended step may have started before this command watched.
        if span.ended_us is None:
            self.running[id(span)] = span
            return
        self.running.pop(id(span), None)
        self.finished.append(span)
        self.count += 1

    def latest(self, limit: int) -> list[Span]:
        """Return at most `limit` steps for display, ordered by start time: the running steps, and the latest finished
        steps if there is room.
        """
        # Running steps have priority over finished ones.
        running = list(self.running.values())[:limit]
        free_rows = limit - len(running)
        # `[-0:]` would be the whole list.
        finished = list(self.finished)[-free_rows:] if free_rows else []
        return sorted((*finished, *running), key=lambda span: span.started_us)


class Progress:
    """Output of a command while executions run. This base class (``--quiet``) prints only the text that workflows
    print; subclasses also show steps.
    """

    def __init__(self, screen: Console) -> None:
        self.screen = screen

    def watch(self, store: EventStore) -> None:
        """Start to show the steps that executions record in a store; with ``--quiet``, no steps are shown. Call this
        once, before the execution starts, so that no step is missed.
        """

    def print(self, text: str) -> None:
        """Print text of a workflow on stderr. Any thread may call this."""
        # Text of a workflow may contain markup of rich and control characters.
        self.screen.print(Text(visible(secrets.text(text))), soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing steps, after printing the steps that have already been recorded."""


class LiveProgress(Progress):
    """Progress output for a terminal: a list of running and recently finished steps, redrawn in place."""

    def __init__(self, screen: Console) -> None:
        super().__init__(screen)
        self.board = Board()
        # The engine's thread puts steps into the queue, and the thread that draws takes them out.
        self._changed_steps: SimpleQueue[Span] = SimpleQueue()
        self._unsubscribe: Callable[[], None] = lambda: None
        # Replaced by `watch`; drawing may begin before.
        self._blocked_reason: Callable[[], str | None] = lambda: None

    def watch(self, store: EventStore) -> None:
        """Start to show the steps that executions record in a store. While the engine cannot write to the store, also
        show the reason.
        """
        self._blocked_reason = lambda: ENGINE.held_up(store)
        # A listener is called on the engine's thread, which must not wait for the terminal.
        self._unsubscribe = store.subscribe(StepListener(self._changed_steps.put))

    def __enter__(self) -> Self:
        self._live = Live(
            console=self.screen,
            get_renderable=self._draw,
            refresh_per_second=_REDRAWS_PER_SECOND,
            # stdout is for results, and is often a pipe.
            redirect_stdout=False,
        )
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # In this order: a step that was recorded before is still drawn by the last refresh of `stop`.
        self._unsubscribe()
        self._live.stop()

    def _draw(self) -> RenderableType:
        self._update_board()
        now = time.time_ns() // 1000
        # Three lines are left for notes and the prompt of the shell.
        rows = self.board.latest(max(3, min(_MAX_ROWS, self.screen.height - 3)))
        table = Table.grid(padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*_cells(row, now))
        notes = []
        # Finished steps that are not on the board any more are only counted.
        hidden_rows = self.board.count + len(self.board.running) - len(rows)
        if hidden_rows > 0:
            notes.append(f"and {hidden_rows} more steps")
        blocked_reason = self._blocked_reason()
        if blocked_reason is not None:
            notes.append(one_line(blocked_reason, self.screen.width))
        if not notes:
            return table
        if not rows:
            return Text(notes[0], "dim")
        return Group(table, Text("\n".join(notes), "dim"))

    def _update_board(self) -> None:
        """Update the board of displayed steps with all step changes that the engine's thread has put into the queue."""
        try:
            while True:
                self.board.update(self._changed_steps.get_nowait())
        except Empty:
            return


class StepListener:
    """Store listener that calls a function for each step that starts or ends. It runs on the engine's thread."""

    def __init__(self, on_step: Callable[[Span], None]) -> None:
        self._on_step = on_step
        self._steps = Steps()

    def __call__(self, _execution_id: str, events: Sequence[Event]) -> None:
        """Receive the new events of an execution, and call the listener's function with each step that these events
        start or end.
        """
        for event in events:
            step = self._steps.see(event)
            if step is not None:
                self._on_step(step)


class LineProgress(Progress):
    """Progress output for files and pipes: one line for each step that starts or ends."""

    def __init__(self, screen: Console) -> None:
        super().__init__(screen)
        # None ends the thread.
        self._lines: SimpleQueue[Text | None] = SimpleQueue()
        self._unsubscribe: Callable[[], None] = lambda: None

    def watch(self, store: EventStore) -> None:
        """Start to print a line for each step that an execution records in a store."""
        self._unsubscribe = store.subscribe(StepListener(self._add_line))

    def _add_line(self, step: Span) -> None:
        self._lines.put(_line(step))

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._print_lines, name="divebook-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unsubscribe()
        # The end mark comes after all lines of recorded steps, which are therefore printed.
        self._lines.put(None)
        self._thread.join()

    def _print_lines(self) -> None:
        while (line := self._lines.get()) is not None:
            self.screen.print(line, soft_wrap=True)


def make_progress(*, quiet: bool) -> Progress:
    """Return the progress output: a live list in a terminal, plain lines otherwise, no steps with `quiet`."""
    # Progress is on stderr, so that stdout has the result only.
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
    # The clock may have been set back since the start.
    return Text(seconds(max(0, (row.ended_us or now) - row.started_us) / 1_000_000), "dim")


def _detail(row: Span) -> str:
    """Return the text beside a step in the progress output: its error, else the number of its items; empty if it has
    neither.
    """
    if row.error:
        return one_line(row.error, 100)
    return plural(row.items, "item") if row.items else ""


def _line(row: Span) -> Text:
    parts = (status_text(row.shown_status), Text(row.path), Text(one_line(row.step)), Text(_detail(row)))
    ended = () if row.ended_us is None else (_took(row, row.ended_us),)
    # An empty part would leave two gaps.
    return Text("  ").join(part for part in (*parts, *ended) if part.plain)
