"""The output of a run in a notebook: a live view while it runs, and what lasts once it has ended.

The live view is one output, and is replaced by the static form (text, table, picture) as soon as the run has ended,
wherever the kernel is by then: a saved notebook then shows the run to everyone, with no kernel and no trust. If its
cell ends first, the static form of that moment is a second output below, brought up to date at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from divebook.engine.lifecycle import TERMINAL
from divebook.notebook.frontend import FrontEnd
from divebook.notebook.view import view_of
from divebook.widgets.feed import Feed
from divebook.widgets.protocol import Delta
from divebook.widgets.publisher import Publisher, publisher_of

if TYPE_CHECKING:
    from divebook.notebook.run import Run
    from divebook.widgets.live import LiveView

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
NOTHING = {"text/plain": ""}


class LiveOutput:
    """The output of one run in one cell, for front ends that show widgets."""

    def __init__(self, run: Run, front_end: FrontEnd) -> None:
        self.run, self.front_end = run, front_end
        self._publisher: Publisher[Feed] = publisher_of(run.execution)
        self.view: LiveView = view_of(run)
        self._lock = threading.Lock()
        self._is_final = False
        self._static: Any = None
        self._live = display_bundle(self._live_bundle())
        self._detach: Callable[[], None] = self._publisher.add(self._look)

    @property
    def is_watched(self) -> bool:
        """Whether a browser shows the view, and its messages arrive."""
        return self.view.greeted.is_set()

    def leave(self) -> None:
        """End the cell: what it shows from now on must be understood without a kernel."""
        if self.run.refresh().execution.state.is_over:
            self._finish()
            return
        with self._lock:
            if not self._is_final:
                self._static = display_bundle(self.run.static_bundle())

    def _live_bundle(self) -> dict[str, Any]:
        view = {"version_major": 2, "version_minor": 0, "model_id": self.view.model_id}
        return {**self.run.static_bundle(with_data=False), WIDGET_VIEW: view}

    def _look(self, delta: Delta) -> int:
        """Hear of every frame, on the publisher's thread."""
        if delta["header"]["status"] in TERMINAL and not delta["header"]["live"]:
            self._finish()
        return 0

    def _finish(self) -> None:
        """Put what lasts in place of the live view, once."""
        with self._lock:
            if self._is_final:
                return
            self._is_final = True
        self._live.update(self.run.refresh().static_bundle(), raw=True)
        if self._static is not None:
            self._static.update(NOTHING, raw=True)
        self._detach()
        self.view.retire()


def display_bundle(bundle: dict[str, Any]) -> Any:
    """Display data by its types; return the handle that changes it."""
    from IPython.display import display

    return display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
