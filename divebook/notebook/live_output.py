"""Output of a run in a cell: a live view while the kernel runs, and a saved form (text and HTML for pages without a
kernel), which is updated until the run ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from divebook.engine.lifecycle import TERMINAL
from divebook.events.catalog import COMPLETED
from divebook.notebook.run import Run
from divebook.notebook.run_view import view_of
from divebook.notebook.view_output import PAGES, ViewOutput
from divebook.widgets.feed import Feed
from divebook.widgets.protocol import Delta
from divebook.widgets.publisher import Publisher, publisher_of
from divebook.widgets.recording import MAX_EVENTS

SAVE_PAUSE = 20
"""Minimum pause between two saves of a running run, as a multiple of the time that the last save took."""


class LiveOutput:
    """Output of one run in one cell, for front ends that show widgets.

    The publisher's thread calls `_on_delta` and `_save_if_due`, the cell's thread calls `leave`. A lock serializes the
    saves.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        # All views of the execution share one publisher, and thus one reading of its events.
        self._publisher: Publisher[Feed] = publisher_of(run.execution)
        self.view = view_of(run)
        # The lock is held while the state is read and saved. Otherwise a slow save of an old state could overwrite a
        # newer one.
        self._lock = threading.Lock()
        self._saved_end = 0
        """Sequence number of the last event when the end of the run was saved; 0 before. A failed run can be continued
        from the page, and then ends again.
        """
        self._last_status: tuple[str, bool] | None = None
        """Status and liveness of the run in the last delta."""
        self._next_save_at = 0.0
        """Monotonic time before which the run is not saved again."""
        self._is_save_due = False
        # The first output contains no replay data: it would take seconds for a long run, and the run changes at once.
        self._output = ViewOutput(self.view, run.static_bundle(with_data=False))
        # Added after the output exists, because the publisher may call `_on_delta` before `add` returns.
        self._detach: Callable[[], None] = self._publisher.add(self._on_delta, self._save_if_due)
        self.view.when_moved(self._follow)

    @property
    def is_watched(self) -> bool:
        """True if a browser shows the run's view and the kernel receives the browser's messages."""
        return self.view.greeted.is_set()

    @property
    def is_hosting_undecided(self) -> bool:
        """True as long as it is unknown whether the page can show the live view and its saved form (text and HTML for
        pages without a kernel) in the same output. A page reports this after it has loaded; see `view_output.Pages`.
        """
        return PAGES.host_views is None and not self.view.is_hosted

    def leave(self) -> None:
        """Save the run as text and HTML in the output at the end of the cell, so that a page without a kernel can show
        it.

        For a long run this takes seconds. If a page shows the view, the publisher's thread saves the run, and the cell
        does not wait (``python -m benchmarks.ending``).
        """
        # This is the end of the first cell with a view. A page that shows the view has had time to report; later cells
        # then rely on what is known now.
        if PAGES.host_views is None and self.is_watched:
            PAGES.host_views = self.view.is_hosted
        state = self.run.refresh().execution.state
        # At its end a run is saved once for each end, while a running one may be saved many times.
        finish = self._save_end if state.is_over else self._save
        may_wait = self._output.is_kept or (self.is_watched and state.is_over)
        # A page that shows the view needs no saved form yet.
        if may_wait and state.last_sequence > MAX_EVENTS:
            self._publisher.post(finish, urgent=False)
        else:
            finish()

    def _follow(self, publisher: Publisher[Feed]) -> None:
        """Replace the run whose state is saved in this output, because a button in the page has started a new run.
        `publisher` sends the changes of the new run.
        """
        # The old run must not write into this output any more.
        self._detach()
        self._publisher = publisher
        self._last_status = None
        self._saved_end = 0
        self._detach = publisher.add(self._on_delta, self._save_if_due)

    def _on_delta(self, delta: Delta) -> int:
        """Receive a message with changes of the run. If the run has ended since the previous message, save its final
        state in the output; if it has only stopped, save its current state.

        Called for every `Delta`, on the publisher's thread; returns 0, because no message is sent.
        """
        status = delta["header"]["status"]
        is_live = delta["header"]["live"]
        before = self._last_status
        self._last_status = status, is_live
        # A delta is sent for each change of the run. Only a change of status or liveness is worth a save.
        if self._last_status == before:
            return 0
        # Paused or waiting for a person: the run may stay in this state for days, so the notebook should contain it.
        self._is_save_due = not is_live and status not in TERMINAL
        if status in TERMINAL and not is_live:
            self._save_end()
        self._save_if_due()
        return 0

    def _save_if_due(self) -> None:
        """Save the current state of a run that has stopped, but not ended, in the output. If the last save was a short
        time ago, do nothing.

        The publisher calls this method at each heartbeat, so that a postponed save is made later.
        """
        # Without an output for the saved form, saving would insert a second output into the page while the cell runs.
        if self._is_save_due and self._output.is_lasting and time.monotonic() >= self._next_save_at:
            # Reset before the save: a change during it requests another one.
            self._is_save_due = False
            self._save()

    def _save(self) -> None:
        """Save the current state of the run as text, HTML and replay data in the output."""
        with self._lock:
            start = time.monotonic()
            self._output.save(self.run.refresh().static_bundle())
            now = time.monotonic()
            # Saving a long run takes seconds, so the pause grows with the time that saving takes.
            self._next_save_at = now + SAVE_PAUSE * (now - start)

    def _save_end(self) -> None:
        """Save the final state of the run in the output, once each time that the run ends."""
        with self._lock:
            # Under the lock: the publisher's thread and the cell's thread both see the end.
            last = self.run.refresh().execution.state.last_sequence
            # The same last event means that this end is saved already. A resumed run has more events.
            if last == self._saved_end:
                return
            stays = self._output.end(self.run.static_bundle())
            self._saved_end = last
        # A completed run cannot change any more, and a retired view needs no saves.
        if not stays or self.run.status == COMPLETED:
            self._detach()
