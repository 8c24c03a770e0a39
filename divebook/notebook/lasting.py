"""The output of a view in a notebook: the view while its kernel lives, and what lasts once it is gone.

A page that has divebook's extension hosts the view: one output holds the view and what is saved of it (text, table,
picture, recording), and the page shows the one as long as the kernel knows it, and the other from then on, whether the
notebook is trusted or not (``widgets/src/lab/host.ts``; `tests/browser/test_kept.py`). So nothing changes in the page
when a run ends.

Other pages would show "model not found" in place of all that. For them the view is replaced by what is saved as soon
as it is of no more use; if its cell ends first, what is saved is a second output below until then. That one brings a
style, by which JupyterLab and Notebook 7 show one of both: what is below once the view is gone, and the view until then
(`tests/browser/test_saved.py`). A page that drops styles, as it does of notebooks it does not trust, shows no view.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from divebook.execution.execution import Execution
from divebook.replay.replayer import LogWalk, positions_of
from divebook.widgets.following import HOSTED_VIEW
from divebook.widgets.pictured import Pictured
from divebook.widgets.positions import SteppedLog
from divebook.widgets.protocol.replay import GoTo
from divebook.widgets.replay import ReplayView
from divebook.widgets.source import source_of

if TYPE_CHECKING:
    from divebook.widgets.following import FollowingView

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
NOTHING = {"text/plain": ""}
_OUTPUT, _BELOW = ".jp-OutputArea-child", ".jp-OutputArea-child:has(.divebook-below)"
_ONE_OF_BOTH = (
    f"<style>{_OUTPUT}:has(> .jupyter-widgets):not(:has(> .jupyter-widgets > *)):has(~ {_OUTPUT} .divebook-below),"
    f"{_OUTPUT}:has(.divebook) ~ {_BELOW} {{ display: none }}</style>"
)
MOST_KEPT = 30
"""Views that stay although no page shows them, so that a notebook that is opened again finds them."""


class Pages:
    """Whether the pages of this kernel host views, as far as they have said so."""

    def __init__(self) -> None:
        self.host: bool | None = None
        self._kept: deque[FollowingView] = deque()

    def learn(self) -> None:
        """Take it that pages host views."""
        self.host = True

    def keep(self, view: FollowingView) -> None:
        """Leave a view for pages that are opened later, until there are many newer ones."""
        if view not in self._kept:
            self._kept.append(view)
        while len(self._kept) > MOST_KEPT:
            self._kept.popleft().retire()


PAGES = Pages()


class LastingOutput:
    """A view in the present cell, and what is saved of it.

    Parameters
    ----------
    view
        The view.
    bundle
        What is saved, by type, until `save` says something newer.
    place
        An output that it takes the place of; by default it is one of its own.
    """

    def __init__(self, view: FollowingView, bundle: Mapping[str, Any], place: Any = None) -> None:
        self.view, self._bundle = view, dict(bundle)
        self._lock = threading.RLock()
        self._below: Any = None
        with self._lock:
            shown = {**self._bundle, **view_data(view.model_id)}
            if place is not None:
                place.update(shown, raw=True)
            self._live = display_bundle(shown) if place is None else place
            view.when_hosted(self._be_hosted)

    @property
    def is_kept(self) -> bool:
        """Whether the view stays where it is, and the same output holds what is saved.

        A page that hosts views says so a moment after its hello: where one has, it is taken for granted of the next.
        """
        return self.view.is_hosted or bool(PAGES.host)

    @property
    def is_lasting(self) -> bool:
        """Whether what is saved has its place by now, so that `save` changes nothing that is seen."""
        return self.is_kept or self._below is not None

    def save(self, bundle: Mapping[str, Any]) -> None:
        """Bring what is saved up to date; where no page hosts the view, that stands below it."""
        with self._lock:
            self._bundle = dict(bundle)
            if self.is_kept:
                self._update()
            elif self._below is None:
                self._live.update({**NOTHING, **view_data(self.view.model_id)}, raw=True)
                self._below = display_bundle(below_a_view(bundle))
            else:
                self._below.update(below_a_view(bundle), raw=True)

    def end(self, bundle: Mapping[str, Any]) -> bool:
        """Show what lasts; return whether the view stays."""
        with self._lock:
            self._bundle = dict(bundle)
            if self.is_kept:
                self._update()
                PAGES.keep(self.view)
                return True
            self._live.update(self._bundle, raw=True)
            if self._below is not None:
                self._below.update(NOTHING, raw=True)
        self.view.retire()
        return False

    def _update(self) -> None:
        """Put what is saved into the output of the view; a page that hosts it needs no other reference to it."""
        view = view_data(self.view.model_id)
        if self.view.is_hosted:
            del view[WIDGET_VIEW]
        self._live.update({**self._bundle, **view}, raw=True)

    def _be_hosted(self) -> None:
        PAGES.learn()
        with self._lock:
            self._update()
            if self._below is not None:
                self._below.update(NOTHING, raw=True)


class ReplayOutput(ReplayView):
    """A replay that is shown as the value of a cell."""

    def _ipython_display_(self) -> None:
        """Show what is saved below the view, unless the page hosts views or shows none."""
        if PAGES.host or not self._moves:
            raise NotImplementedError
        display_bundle({**NOTHING, **view_data(self.model_id)})
        self._let_page_first()
        display_bundle(below_a_view(self.lasting_bundle()))


class RunReplay(ReplayOutput, LogWalk):
    """A replay of a run: the methods of a `divebook.replay.replayer.Replayer`, and the view.

    Each follows the other: where somebody goes in the page, the methods go on from.
    """

    def __init__(
        self, execution: Execution, name: str, saved: Callable[[], dict[str, Any]], *, moves: bool = True
    ) -> None:
        self._positions = positions_of(execution)
        self._workflow = execution.workflow
        beside = Pictured.of(lambda: source_of(execution))
        super().__init__(SteppedLog(self._positions), name, saved, beside=beside, moves=moves)

    def _stand(self, sequence: int) -> None:
        self._position = sequence  # the page that says so stands there

    def _moved(self) -> None:
        self.send(GoTo(type="go", sequence=self._position))

    def _arrive(self) -> None:
        if self._position:
            self._moved()


def view_data(model_id: str) -> dict[str, Any]:
    """Return what shows a view, by type: for pages that host views, and for others."""
    reference = {"version_major": 2, "version_minor": 0, "model_id": model_id}
    return {HOSTED_VIEW: {"model_id": model_id}, WIDGET_VIEW: reference}


def below_a_view(bundle: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is saved of a view as it stands below that view."""
    return {**bundle, "text/html": f"{_ONE_OF_BOTH}<div class='divebook-below'>{bundle['text/html']}</div>"}


def display_bundle(bundle: dict[str, Any]) -> Any:
    """Display data by its types; return the handle that changes it."""
    from IPython.display import display

    return display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
