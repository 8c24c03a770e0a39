"""Progress of executions on stderr while a command waits for them.

A terminal shows a live list, other streams plain lines, ``--quiet`` nothing. `StepListener` is called on the engine's
thread and only puts steps into a queue. If it watches the store before the execution starts, it misses no step.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from divebook.cli.output import console, one_line, secrets, status_text
from divebook.events import Event
from divebook.projections.spans import Span, Steps
from divebook.runtime.loop import ENGINE
from divebook.stores import EventStore
from divebook.text.format import plural, seconds, visible

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
