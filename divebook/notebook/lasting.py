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
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from divebook.environment.variants import NEW
from divebook.errors import ExecutionError, LeaseHeldError, StoreError
from divebook.events.catalog import COMPLETED, FAILED
from divebook.replay.replayer import LogWalk, positions_of
from divebook.runtime.execution import Execution
from divebook.widgets.protocol import GoTo, Header, Way
from divebook.widgets.publisher import Publisher, publisher_of
from divebook.widgets.source import awaited_from_outside, source_of
from divebook.widgets.stepping import SteppedLog
from divebook.widgets.views import HOSTED_VIEW, Handlers, Pictured, ReplayView

if TYPE_CHECKING:
    from divebook.environment.environment import Environment
    from divebook.environment.variants import DefinitionLike
    from divebook.projections.failures import Failure
    from divebook.widgets.feed import Feed
    from divebook.widgets.protocol import TakingOver
    from divebook.widgets.views import FollowingView, LiveView


WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
NOTHING = {"text/plain": ""}
_OUTPUT = ".jp-OutputArea-child"
_BELOW = ".jp-OutputArea-child:has(.divebook-below)"
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
        self.view = view
        self._bundle = dict(bundle)
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


# What can be done about a run that has failed, and what that comes to.
#
# Where something is defined otherwise by now, it goes on as ``resume(definition="new")`` does: as a new run, after a
# plan that a person confirms. Else the run itself is taken up again (`tests/notebook/test_ways.py`).


FIX = "Fix and continue from here"
AGAIN = "Run again"
REPLAY = "Open replay here"


class ControllableRun(Protocol):
    """What a view asks of a run."""

    @property
    def execution(self) -> Execution:
        """The execution itself."""

    def answer(self, interrupt_id: str, response: Any) -> Any:
        """Answer one of its questions."""

    def pause(self) -> Any:
        """Let nothing more begin."""

    def resume(self, *, definition: DefinitionLike | None = None) -> Any:
        """Take it up again, or be a new run from now on that goes on with another definition."""

    def cancel(self) -> Any:
        """Stop it."""

    def again(self) -> Any:
        """Be a new run from now on."""

    @property
    def environment(self) -> Environment:
        """Where it runs."""


class Ways:
    """The ways on from the failure of one run; its failure is read once for each end."""

    def __init__(self, environment: Environment, execution: Callable[[], Execution]) -> None:
        self._environment = environment
        self._execution = execution
        self._known: tuple[int, Failure | None] = 0, None

    def of(self, header: Header, kept: str) -> list[Way]:
        """Return them; there are none for a run that has not failed, or goes on."""
        execution = self._execution()
        if execution.is_live or execution.status != FAILED:
            return []
        failure = self._failure(execution)
        return [self._fix(execution, failure, kept), _again(header), _replay()]

    def _failure(self, execution: Execution) -> Failure | None:
        last = execution.state.last_sequence
        if self._known[0] != last:
            try:
                self._known = last, execution.failure
            except StoreError:  # damaged, which the view says
                self._known = last, None
        return self._known[1]

    def _fix(self, execution: Execution, failure: Failure | None, kept: str) -> Way:
        told, ready = _advice(failure, redefined_of(self._environment, execution))
        return Way(name="fix", label=FIX, told=told, reused=kept, live="", cost=None, took_us=None, ready=ready)


def redefined_of(environment: Environment, execution: Execution) -> list[str]:
    """Return what of an execution is defined otherwise than when it ran last: its definition, and functions.

    It is seen as soon as the cell with the edit has run.
    """
    state = execution.state
    found = environment.workflows.get(execution.state.workflow_name, execution.workflow)
    before = state.code
    now = environment.code_of(found)
    labels = sorted(label for label in before.keys() | now.keys() if before.get(label) != now.get(label))
    return [*(["the definition"] if found.fingerprint != state.fingerprint else []), *labels]


def plan_of(run: ControllableRun) -> str:
    """Return what continuing would reuse and do; nothing where that is the run itself, which needs no confirmation."""
    if not redefined_of(run.environment, run.execution):
        return ""
    return "\n".join(run.environment.resume(run.execution.id, definition=NEW, plan=True).lines)


def go_on(run: ControllableRun) -> None:
    """Continue a run that has failed, which somebody else may do at the same time: it is done once."""
    try:
        run.resume(definition=NEW if redefined_of(run.environment, run.execution) else None)
    except LeaseHeldError as held:
        who = f"{held.name or 'another process'} (process {held.pid} on {held.host})"
        raise ExecutionError(
            f"It goes on in {who} already, and is not run twice. Run the cell again to see it"
        ) from held
    except ExecutionError:
        if run.execution.refresh().status != COMPLETED:  # another kernel has brought it to its end
            raise


def _advice(failure: Failure | None, changed: list[str]) -> tuple[str, bool]:
    """Return what continuing does, and whether it can do any good by now."""
    if changed:
        return f"Continuing uses {', '.join(changed)} as now defined, and says first what that comes to.", True
    is_computed = failure is not None and (failure.traceback or not failure.called)
    if failure is None or not failure.place or not is_computed:
        return "Continuing makes what failed again.", True
    called = failure.called or failure.step
    return f"{called} is as it was, and would fail again: edit {failure.place}, and run that cell first.", False


def _again(header: Header) -> Way:
    return Way(
        name="again",
        label=AGAIN,
        told="Begins a new run with the same inputs, and with definition and functions as they are now.",
        reused="",
        live="all of it",
        cost=header["cost"],
        took_us=header["worked_us"],
        ready=True,
    )


def _replay() -> Way:
    return Way(
        name="replay",
        label=REPLAY,
        told="Shows the state at the event that failed.",
        reused="",
        live="",
        cost=None,
        took_us=None,
        ready=True,
    )


# A live view of a run as a widget: what its buttons and forms do.


def view_of(run: ControllableRun) -> LiveView:
    """Return a live view of a run, as a widget of its own."""
    from divebook.widgets.views import LiveView

    view = LiveView(follow_run(run), _handlers(run, lambda: view.follow(follow_run(run))))
    return view


def follow_run(run: ControllableRun) -> Publisher[Feed]:
    """Return the publisher of a run as it is now."""
    return publisher_of(run.execution, Ways(run.environment, lambda: run.execution).of)


def _handlers(run: ControllableRun, moved: Callable[[], None]) -> Handlers:

    def again() -> None:
        run.again()
        moved()

    def fix() -> None:
        before = run.execution
        go_on(run)
        if run.execution.id != before.id:
            moved()

    def resume() -> None:
        if waits := awaited_from_outside(run.execution):
            raise ExecutionError(waits)
        run.resume()

    def take_over(wish: TakingOver) -> str:
        kept = run.environment.files(run.execution.id, wish["workspace"])
        return kept.apply(paths=wish["paths"], until=wish["at"]).told(kept.source)

    plan = partial(plan_of, run)
    return Handlers(run.answer, run.pause, resume, run.cancel, plan=plan, fix=fix, again=again, take_over=take_over)
