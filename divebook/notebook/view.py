"""A live view of a run as a widget: what its buttons and forms do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from divebook.errors import ExecutionError
from divebook.widgets.commands import awaited_from_outside
from divebook.widgets.intents import Handlers
from divebook.widgets.publisher import Publisher, publisher_of

if TYPE_CHECKING:
    from divebook.notebook.ways import Steered
    from divebook.widgets.feed import Feed
    from divebook.widgets.live import LiveView
    from divebook.widgets.protocol.files import TakingOver


def view_of(run: Steered) -> LiveView:
    """Return a live view of a run, as a widget of its own."""
    from divebook.widgets.live import LiveView

    view = LiveView(follow_run(run), _handlers(run, lambda: view.follow(follow_run(run))))
    return view


def follow_run(run: Steered) -> Publisher[Feed]:
    """Return the publisher of a run as it is now."""
    from divebook.notebook.ways import Ways

    return publisher_of(run.execution, Ways(run.environment, lambda: run.execution).of)


def _handlers(run: Steered, moved: Callable[[], None]) -> Handlers:
    from divebook.notebook.ways import go_on, plan_of

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
