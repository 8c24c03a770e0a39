"""Progress on stderr while an execution runs: a live list in a terminal, plain lines elsewhere, or nothing.

All three hear of events from the store's subscription, in the engine's thread, and only put them into a queue there.
Subscribe before the execution is started and nothing is missed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
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
from divebook.events import Event
from divebook.execution.engine_thread import ENGINE
from divebook.history.spans import Span
from divebook.store import EventStore
from divebook.text.durations import seconds
from divebook.text.shown import visible

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


class _Watching(Progress):
    def __init__(self, screen: Console) -> None:
        super().__init__(screen)
        self.board = Board()
        self._inbox: SimpleQueue[Sequence[Event] | None] = SimpleQueue()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._held_up: Callable[[], str | None] = lambda: None

    def watch(self, store: EventStore) -> None:
        self._held_up = lambda: ENGINE.held_up(store)
        self._unsubscribe = store.subscribe(lambda _, events: self._inbox.put(events))


class LineProgress(_Watching):
    """A line when a step begins and one when it ends."""

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._print_lines, name="divebook-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unsubscribe()
        self._inbox.put(None)
        self._thread.join()

    def _print_lines(self) -> None:
        while (events := self._inbox.get()) is not None:
            for event in events:
                row = self.board.see(event)
                if row is not None:
                    self.screen.print(_line(row), soft_wrap=True)


class LiveProgress(_Watching):
    """A list that redraws itself."""

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
        unseen = self.board.count + len(self.board.open) - len(rows)
        notes = [f"and {unseen} more steps"] if unseen > 0 else []
        if (held_up := self._held_up()) is not None:
            notes.append(one_line(held_up, self.screen.width))
        if not notes:
            return table
        return Group(table, Text("\n".join(notes), "dim")) if rows else Text(notes[0], "dim")

    def _take_in(self) -> None:
        try:
            while events := self._inbox.get_nowait():
                for event in events:
                    self.board.see(event)
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
    return one_line(row.error, 100) if row.error else f"{row.items} items" if row.items else ""


def _line(row: Span) -> Text:
    parts = (status_text(row.shown_status), Text(row.path), Text(one_line(row.step)), Text(_detail(row)))
    ended = () if row.ended_us is None else (_took(row, row.ended_us),)
    return Text("  ").join(part for part in (*parts, *ended) if part.plain)
