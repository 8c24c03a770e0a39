"""Progress on stderr while an execution runs: a live list in a terminal, plain lines elsewhere, or nothing.

The first two are formatters: they hear of steps on the engine's thread, and only put them into a queue there. Let them
watch a store before the execution is started, and nothing is missed.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from divebook.cli.board import Board
from divebook.cli.screen import console, status_text
from divebook.cli.text import one_line, secrets
from divebook.execution.engine_thread import ENGINE
from divebook.history.formatter import Formatter, Formatting
from divebook.history.spans import Span
from divebook.store import EventStore
from divebook.text.durations import seconds
from divebook.text.shown import plural, visible

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
