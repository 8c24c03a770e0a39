"""The live view of a run in one cell: what is saved of it is brought up to date while it goes on, and lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from divebook.engine.lifecycle import TERMINAL
from divebook.events.catalog import COMPLETED
from divebook.notebook.lasting import PAGES, LastingOutput, view_of
from divebook.notebook.run import Run
from divebook.widgets.feed import Feed
from divebook.widgets.protocol import Delta
from divebook.widgets.publisher import Publisher, publisher_of
from divebook.widgets.recording import MAX_EVENTS

REST = 20
"""How many times as long as saving took nothing is saved again while a run goes on."""


class LiveOutput:
    """The output of one run in one cell, for front ends that show widgets."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._publisher: Publisher[Feed] = publisher_of(run.execution)
        self.view = view_of(run)
        self._lock = threading.Lock()
        self._ended_with = 0
        self._standing: tuple[str, bool] | None = None
        self._rests_until = 0.0
        self._owes = False
        self._output = LastingOutput(self.view, run.static_bundle(with_data=False))
        self._detach: Callable[[], None] = self._publisher.add(self._look, self._catch_up)
        self.view.when_moved(self._follow)

    @property
    def is_watched(self) -> bool:
        """Whether a browser shows the view, and its messages arrive."""
        return self.view.greeted.is_set()

    @property
    def may_be_hosted(self) -> bool:
        """Whether it is still to be seen what the pages of this kernel do with views."""
        return PAGES.host is None and not self.view.is_hosted

    def leave(self) -> None:
        """End the cell: what it shows from now on must be understood without a kernel.

        Of a long run that takes seconds: where a page shows the view, the cell does not wait for it
        (``python -m benchmarks.ending``).
        """
        if PAGES.host is None and self.is_watched:
            PAGES.host = self.view.is_hosted
        state = self.run.refresh().execution.state
        finish = self._end if state.is_over else self._save
        may_wait = self._output.is_kept or (self.is_watched and state.is_over)
        if may_wait and state.last_sequence > MAX_EVENTS:
            self._publisher.post(finish, urgent=False)
        else:
            finish()

    def _follow(self, publisher: Publisher[Feed]) -> None:
        """Save what is shown in the same place from now on: another run, that the page has begun."""
        self._detach()
        self._publisher = publisher
        self._standing = None
        self._ended_with = 0
        self._detach = publisher.add(self._look, self._catch_up)

    def _look(self, delta: Delta) -> int:
        """Hear of every frame, on the publisher's thread."""
        standing = delta["header"]["status"], delta["header"]["live"]
        before = self._standing
        self._standing = standing
        if standing == before:
            return 0
        self._owes = not standing[1] and standing[0] not in TERMINAL
        if standing[0] in TERMINAL and not standing[1]:
            self._end()
        self._catch_up()
        return 0

    def _catch_up(self) -> None:
        """Save how the run stands, once nothing is in the way; also with each heartbeat of the publisher."""
        if self._owes and self._output.is_lasting and time.monotonic() >= self._rests_until:
            self._owes = False
            self._save()

    def _save(self) -> None:
        """Save how the run stands: of two threads that do so the later one has the newer state."""
        with self._lock:
            began = time.monotonic()
            self._output.save(self.run.refresh().static_bundle())
            self._rests_until = time.monotonic() + REST * (time.monotonic() - began)

    def _end(self) -> None:
        """Show what lasts, once for each end: a failed run can be taken up from the page."""
        with self._lock:
            last = self.run.refresh().execution.state.last_sequence
            if last == self._ended_with:
                return
            stays = self._output.end(self.run.static_bundle())
            self._ended_with = last
        if not stays or self.run.status == COMPLETED:
            self._detach()
