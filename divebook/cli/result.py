"""Printed result of an execution (text or JSON) with its exit code, and progress on stderr while the execution runs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from divebook.cli.output import (
    as_json,
    columns,
    console,
    note,
    note_damage,
    one_line,
    pairs,
    print_report,
    say,
    secrets,
    section,
    shown,
    status_text,
    write,
)
from divebook.commands.command import FORMAT
from divebook.commands.inspection import (
    RunQuery,
    ShownRun,
    awaited_signals_of,
    execution_data,
    last_outputs,
    recorded_variables,
)
from divebook.definitions.definition import hidden_in
from divebook.engine.bounds import NANODOLLARS
from divebook.engine.state import PathState, Usage
from divebook.errors import StoreError
from divebook.events import Event, catalog
from divebook.projections.activity import activity_of
from divebook.projections.failures import summary
from divebook.projections.run_columns import run_table
from divebook.projections.spans import Span, Steps
from divebook.replay.files import ChangedFiles
from divebook.replay.provenance import Provenance
from divebook.report.model import Line, Report
from divebook.report.model import Text as ReportText
from divebook.runtime.forks import recorded_opening
from divebook.runtime.loop import ENGINE
from divebook.runtime.run import Run
from divebook.stores import EventStore
from divebook.stores.append import RELAXED
from divebook.text.format import (
    between,
    branch_name,
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
        write(as_json({"divebook": FORMAT, **execution_data(execution)}, indent=2))
    else:
        _print_heading(execution)
        section("outputs", pairs(execution.state.outputs))
        # A workflow without outputs has its results in variables, or only in the text of its last step.
        if not execution.workflow.outputs:
            section("variables", pairs(recorded_variables(execution)))
            section("output of the last step", pairs(last_outputs(execution)))
        section("questions", _questions(execution))
        section("waits for", _signals(execution))
        _print_error(execution)
    return EXIT_CODES.get(execution.status, 1)


def _print_details(shown_run: ShownRun, _values: Mapping[str, Any]) -> None:
    """Print status, inputs, outputs, variables, usage, branches and questions of a run; its events if asked for."""
    execution = shown_run.execution
    _print_heading(execution)
    section("inputs", pairs(execution.state.inputs))
    section("outputs", pairs(execution.state.outputs))
    section("variables", pairs(recorded_variables(execution)))
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
    if shown_run.shows_events:
        _print_events(execution)


def _usage(usage: Usage) -> list[tuple[str, str]]:
    """Return the token counts and the cost of the model calls of an execution as pairs of name and value for `section`;
    empty if no model was called.
    """
    rows = {name.replace("_", " "): f"{value:,}" for name, value in usage.to_dict().items()}
    if usage.cost:
        rows["cost"] = price(usage.cost / NANODOLLARS)
    return list(rows.items())


def _path_cells(path: PathState, hidden: Container[str]) -> tuple[Line, ...]:
    took = between(path.started_at, path.ended_at)
    step = "" if path.current_step in hidden else path.current_step
    return branch_name(path.id) or path.id, ReportText(path.status, path.status), one_line(step), took


def _print_heading(execution: Run) -> None:
    took = _times(execution)
    say(status_text(execution.status), one_line(execution.workflow.name), execution.id, took)
    started = local_time(execution.started_at)
    if started and not took:
        say(f"started {started}")
    if execution.store.record(execution.id).durability == RELAXED:
        say("durability: relaxed")


def _times(execution: Run) -> str:
    """Return the duration of an execution as text. If the execution was paused, working and waiting time are shown
    separately, for which the log is read.
    """
    # The log is only read if the state says that there was a pause.
    if execution.started_at is not None and execution.state.paused_us and execution.damage is None:
        return ", ".join(activity_of(execution.history()).times)
    return between(execution.started_at, execution.ended_at)


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


# --- printers of commands --------------------------------------------------------------------------------------------


def learn_secrets(result: object) -> None:
    """Find the secrets in the values of the runs that a result shows, so that they are replaced in all output."""
    if isinstance(result, ShownRun):
        secrets.learn(result.execution.state.inputs, result.execution.state.variables)
    if isinstance(result, RunQuery):
        # Of a list, only errors can repeat an input. Logs of the other runs are not read for their secrets.
        for record in result.records:
            if record.error:
                _learn_inputs(result.environment.store, record.execution_id)


def _learn_inputs(store: EventStore, execution_id: str) -> None:
    with suppress(StoreError):  # a damaged log has none that could be shown
        secrets.learn(recorded_opening(execution_id, store).inputs)


def note_damage_of(result: object) -> None:
    """Print on stderr how much of a damaged run can be read; nothing for other results."""
    if not isinstance(result, ShownRun) or result.damage is None:
        return
    execution = result.execution
    # A damaged file does not say how many events it had.
    last = None if result.is_file else execution.store.record(execution.id).last_sequence
    note_damage(execution.state.last_sequence, last, result.damage)


def _print_runs(query: RunQuery, _values: Mapping[str, Any]) -> None:
    records = query.records
    if not records:
        note("no runs" + (" of that kind" if query.filters else " yet"))
        return
    print_report(Report(blocks=(run_table(query.lines(records), "shell"),)))
    # Runs with relaxed durability could lose their last events in a power failure.
    relaxed = [record.execution_id for record in records if record.durability == RELAXED]
    if relaxed:
        note(f"relaxed durability: {', '.join(relaxed)}", "yellow")


def _print_provenance(provenance: Provenance, values: Mapping[str, Any]) -> None:
    write(secrets.text(str(provenance) if values["form"] == "text" else provenance.graph))


def _print_patch(changes: ChangedFiles, _values: Mapping[str, Any]) -> None:
    # Without the list of files, so that the output is a patch and nothing else.
    write(secrets.text(changes.patch or changes.head))


def _print_nothing(_result: object, _values: Mapping[str, Any]) -> None:
    """Print nothing: the command has printed a note."""


PRINTERS: dict[str, Callable[[Any, Mapping[str, Any]], None]] = {
    "runs": _print_runs,
    "show": _print_details,
    "open": _print_details,
    "why": _print_provenance,
    "diff": _print_patch,
    "to-test": _print_nothing,
}
"""Printers of the commands whose results are not printed as their text, by name of the command."""


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
