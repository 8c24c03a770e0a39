"""A live view of a run as a widget: what its buttons and forms do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from divebook.engine.waiting import awaited_signals
from divebook.errors import ExecutionError
from divebook.events.catalog import WAITING
from divebook.widgets.intents import Handlers
from divebook.widgets.publisher import publisher_of

if TYPE_CHECKING:
    from divebook.execution.execution import Execution
    from divebook.widgets.live import LiveView


class Steered(Protocol):
    """What a view asks of a run."""

    @property
    def execution(self) -> Execution:
        """The execution itself."""

    def answer(self, interrupt_id: str, response: Any) -> Any:
        """Answer one of its questions."""

    def pause(self) -> Any:
        """Let nothing more begin."""

    def resume(self) -> Any:
        """Take it up again."""

    def cancel(self) -> Any:
        """Stop it."""


def view_of(run: Steered) -> LiveView:
    """Return a live view of a run, as a widget of its own."""
    from divebook.widgets.live import LiveView

    return LiveView(publisher_of(run.execution), _handlers(run))


def _handlers(run: Steered) -> Handlers:
    def resume() -> None:
        _require_more_than_an_answer(run.execution)
        run.resume()

    return Handlers(run.answer, run.pause, resume, run.cancel)


def _require_more_than_an_answer(execution: Execution) -> None:
    """Refuse to take up what would come to rest at once: only an answer or a signal helps it on."""
    state = execution.state
    if state.status != WAITING or state.paused is not None or execution.store.has_untaken(execution.id):
        return
    signals = [str(awaited) for awaited in awaited_signals(state) if awaited.until_us is None]
    waits = "an answer" if execution.interrupts else signals[0] if signals else ""
    if waits:
        raise ExecutionError(f"it waits for {waits}, and nothing else can go on before that has come")
