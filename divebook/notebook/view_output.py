"""Outputs of cells that contain a view of a run: the live view while its kernel runs, and the saved form (text and HTML
that need no kernel) afterwards.

The saved form consists of text, table, timeline and recording.

A page with divebook's JupyterLab extension hosts views: one output contains both the view and its saved form. The page
shows the view while the kernel knows it, and the saved form afterwards, also in untrusted notebooks
(``widgets/src/lab/host.ts``; `tests/browser/test_kept.py`). Nothing changes in the page when a run ends.

Other pages would show "model not found" instead. For these pages `ViewOutput` replaces the view by the saved form as
soon as the view has no more use. If the cell ends before that, the saved form is a second output below the view. This
output contains a style by which JupyterLab and Notebook 7 show only one of both: the view while it exists, the saved
form afterwards (`tests/browser/test_saved.py`). A page that removes styles, as it does in untrusted notebooks, shows no
view.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from divebook.widgets.views import HOSTED_VIEW

if TYPE_CHECKING:
    from divebook.widgets.views import FollowingView
from collections.abc import Callable

from divebook.replay.replayer import LogWalk, positions_of
from divebook.runtime.run import Run
from divebook.widgets.protocol import GoTo
from divebook.widgets.source import source_of
from divebook.widgets.stepping import SteppedLog
from divebook.widgets.views import ReplayPictures, ReplayView

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
NOTHING = {"text/plain": ""}
_OUTPUT = ".jp-OutputArea-child"
_BELOW = ".jp-OutputArea-child:has(.divebook-below)"
# The first selector hides an output whose view is gone, if a saved form follows. The second one hides the saved form
# while an output above it contains a view.
_SHOW_ONE_OF_BOTH = (
    f"<style>{_OUTPUT}:has(> .jupyter-widgets):not(:has(> .jupyter-widgets > *)):has(~ {_OUTPUT} .divebook-below),"
    f"{_OUTPUT}:has(.divebook) ~ {_BELOW} {{ display: none }}</style>"
)
MAX_IDLE_VIEWS = 30
"""Maximum number of views that stay open although no page shows them. A notebook that is opened again then finds
them.
"""


class ViewOutput:
    """Output of the current cell with a live view of a run and its saved form (text and HTML for pages without a
    kernel).

    Parameters
    ----------
    view
        The view.
    bundle
        The saved form by MIME type, until `save` replaces it.
    place
        Display handle of an existing output to replace; by default a new output is displayed.
    """

    def __init__(self, view: FollowingView, bundle: Mapping[str, Any], place: Any = None) -> None:
        self.view = view
        self._bundle = dict(bundle)
        self._lock = threading.RLock()
        self._below: Any = None
        # The lock is held until the output exists. The publisher's thread may report hosting before that.
        with self._lock:
            # The first output has both, because it is not known yet whether the page hosts views.
            data = {**self._bundle, **view_data(view.model_id)}
            if place is not None:
                place.update(data, raw=True)
            self._live = display_bundle(data) if place is None else place
            view.when_hosted(self._on_hosted)

    @property
    def is_kept(self) -> bool:
        """True if the live view and its saved form (text and HTML) are in the same output. This requires a page with
        divebook's JupyterLab extension, which shows the saved form when the kernel has ended.

        A page reports this shortly after its first message. After one page has reported so, all pages of the kernel are
        assumed to do so.
        """
        # `host_views` is None until the first report, which counts as no.
        return self.view.is_hosted or bool(PAGES.host_views)

    @property
    def is_lasting(self) -> bool:
        """True if an output for the saved form (text and HTML for pages without a kernel) already exists. In this case
        `save` only replaces its content, without any visible change of the page.
        """
        return self.is_kept or self._below is not None

    def save(self, bundle: Mapping[str, Any]) -> None:
        """Replace the saved form (text and HTML) of the view. If the page cannot show it in the same output as the live
        view, put it into a second output below.
        """
        with self._lock:
            self._bundle = dict(bundle)
            # A page that hosts views shows the saved form only when the view is gone, so the update changes nothing
            # visible.
            if self.is_kept:
                self._update()
            # The first output then has only the view, and the saved form moves to an output below it.
            elif self._below is None:
                self._live.update({**NOTHING, **view_data(self.view.model_id)}, raw=True)
                self._below = display_bundle(below_a_view(bundle))
            else:
                self._below.update(below_a_view(bundle), raw=True)

    def end(self, bundle: Mapping[str, Any]) -> bool:
        """Store the final saved form (text and HTML) in the output. Return True if the live view stays open, because
        pages that are opened later can show it. Return False if the saved form has replaced the view.
        """
        with self._lock:
            # The last form is stored before any update, since `_on_hosted` may write it again.
            self._bundle = dict(bundle)
            if self.is_kept:
                self._update()
                PAGES.add_idle_view(self.view)
                return True
            self._live.update(self._bundle, raw=True)
            if self._below is not None:
                # The saved form now stands in the first output. A second copy below would be shown twice.
                self._below.update(NOTHING, raw=True)
        self.view.retire()
        return False

    def _update(self) -> None:
        """Update the output that contains both the saved form of the view and the references to the live view.

        A page that hosts the view needs no widget reference in this output.
        """
        references = view_data(self.view.model_id)
        if self.view.is_hosted:
            del references[WIDGET_VIEW]
        self._live.update({**self._bundle, **references}, raw=True)

    def _on_hosted(self) -> None:
        PAGES.on_hosting()
        with self._lock:
            self._update()
            # The second output was written before the page reported. Its content is now in the first one.
            if self._below is not None:
                self._below.update(NOTHING, raw=True)


class Pages:
    """State of the pages that are connected to this kernel. It records whether a page can show a live view and its
    saved form in the same output, and which views stay open without a page.

    A page that does so hosts views. Idle views are kept open for pages that are opened later.
    """

    def __init__(self) -> None:
        self.host_views: bool | None = None
        """None until the first page has reported whether it hosts views, or until a cell ends without a report."""
        self._idle_views: deque[FollowingView] = deque()

    def on_hosting(self) -> None:
        """Record that a page can show a live view and its saved form (text and HTML) in the same output. It is assumed
        that all pages of this kernel can.
        """
        # Pages of one kernel are usually windows of the same JupyterLab, so that one report stands for all.
        self.host_views = True

    def add_idle_view(self, view: FollowingView) -> None:
        """Keep a view open for pages that are opened later; close the oldest views above `MAX_IDLE_VIEWS`."""
        # A view that ends several times, after resumptions, is kept once.
        if view not in self._idle_views:
            self._idle_views.append(view)
        while len(self._idle_views) > MAX_IDLE_VIEWS:
            self._idle_views.popleft().retire()


PAGES = Pages()


def view_data(model_id: str) -> dict[str, Any]:
    """Return two references to a live view, by MIME type, with which a page finds the view in the kernel. Pages with
    divebook's JupyterLab extension use the first one, all others use the second one.
    """
    reference = {"version_major": 2, "version_minor": 0, "model_id": model_id}
    return {HOSTED_VIEW: {"model_id": model_id}, WIDGET_VIEW: reference}


def below_a_view(bundle: Mapping[str, Any]) -> dict[str, Any]:
    """Add a style to the saved form (text and HTML) of a view, and return the result for a second output below the
    view. The style hides this output while the page shows the live view.
    """
    return {**bundle, "text/html": f"{_SHOW_ONE_OF_BOTH}<div class='divebook-below'>{bundle['text/html']}</div>"}


def display_bundle(bundle: dict[str, Any]) -> Any:
    """Display data by MIME type; return the display handle, by which the output can be updated."""
    from IPython.display import display

    return display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]


# --- replays: the value of a cell ---


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

    def __init__(self, execution: Run, name: str, saved: Callable[[], dict[str, Any]], *, moves: bool = True) -> None:
        # The positions of the log are shared between the widget and the methods of `LogWalk`.
        self._positions = positions_of(execution)
        self._workflow = execution.workflow
        # `source_of` is called for each query, so that a growing log is read up to its end.
        pictures = ReplayPictures.of(lambda: source_of(execution))
        super().__init__(
            SteppedLog(self._positions, execution.history),
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


def replay_in_front_end(run: Run) -> RunReplay | None:
    """Return a replay of a run as a widget; None if this program has no front end."""
    from IPython.core.getipython import get_ipython

    from divebook.notebook.shell_state import shows_widgets

    if get_ipython() is None and "marimo" not in sys.modules:
        return None
    # `static_bundle` is passed as a function, because it is needed only when the replay is displayed.
    return RunReplay(run, f"{run.workflow.name} {run.id}", run.internals.static_bundle, moves=shows_widgets())


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
    # With NotImplementedError, IPython displays the MIME bundle, which contains the saved form.
    if PAGES.host_views or not shows_widgets:
        raise NotImplementedError
    display_bundle({**NOTHING, **view_data(view.model_id)})
    # The order matters: the page shows the replay first, and gets the events before this thread computes the saved
    # form.
    wait_for_page()
    display_bundle(below_a_view(view.lasting_bundle()))
