"""Widgets that replay a log as the value of a cell: the log of a run in a store, or of a run in a saved notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from divebook.notebook.view_output import NOTHING, PAGES, below_a_view, display_bundle, view_data
from divebook.replay.replayer import LogWalk, positions_of
from divebook.runtime.execution import Execution
from divebook.widgets.protocol import GoTo
from divebook.widgets.source import source_of
from divebook.widgets.stepping import SteppedLog
from divebook.widgets.views import ReplayPictures, ReplayView


class RunReplay(ReplayView, LogWalk):
    """Replay of a run: a widget that also has the methods of `divebook.replay.replayer.Replayer`.

    Widget and methods share one position. If a person moves the replay in the page, the methods continue from there. If
    a method moves the replay, the page shows the new position.

    Parameters
    ----------
    execution
        The execution. Its log may grow.
    name
        Title of the view.
    saved
        Returns the saved form by MIME type, for pages without a kernel.
    moves
        Whether the front end shows widgets.
    """

    def __init__(
        self, execution: Execution, name: str, saved: Callable[[], dict[str, Any]], *, moves: bool = True
    ) -> None:
        self._positions = positions_of(execution)
        self._workflow = execution.workflow
        pictures = ReplayPictures.of(lambda: source_of(execution))
        super().__init__(
            SteppedLog(self._positions),
            name,
            saved,
            pictures=pictures,
            moves=moves,
            on_filled=self._show_position,
            on_position=self._set_position,
        )

    def _ipython_display_(self) -> None:
        display_replay(self, self._let_page_first, shows_widgets=self._moves)

    def _set_position(self, sequence: int) -> None:
        self._position = sequence  # no message: the page that reports the move shows this position already

    def _moved(self) -> None:
        self.send(GoTo(type="go", sequence=self._position))

    def _show_position(self) -> None:
        """Send the current position of the replay to a page that has just loaded all events, if it is not the first
        position.
        """
        if self._position:
            self._moved()


class SavedRunReplay(ReplayView):
    """Replay of a run that a saved notebook or page contains."""

    def _ipython_display_(self) -> None:
        display_replay(self, self._let_page_first, shows_widgets=self._moves)


def display_replay(view: ReplayView, wait_for_page: Callable[[], None], *, shows_widgets: bool) -> None:
    """Display a replay as a live widget, and below it a second output with its saved form for pages without a kernel.

    Parameters
    ----------
    wait_for_page
        Blocks until the page has the events of a long log: saving takes the processor.

    Raises
    ------
    NotImplementedError
        The page hosts views, or the front end shows no widgets. IPython then displays the MIME bundle of the view.
    """
    if PAGES.host_views or not shows_widgets:
        raise NotImplementedError
    display_bundle({**NOTHING, **view_data(view.model_id)})
    wait_for_page()
    display_bundle(below_a_view(view.lasting_bundle()))
