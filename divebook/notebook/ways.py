"""What can be done about a run that has failed, and what that comes to.

Where something is defined otherwise by now, it goes on as ``resume(definition="new")`` does: as a new run, after a plan
that a person confirms. Else the run itself is taken up again (`tests/notebook/test_ways.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from divebook.errors import ExecutionError, LeaseHeldError, StoreError
from divebook.events.catalog import COMPLETED, FAILED
from divebook.mending import NEW
from divebook.widgets.protocol.failures import Way
from divebook.widgets.protocol.run import Header

if TYPE_CHECKING:
    from divebook.environment import Environment
    from divebook.execution.execution import Execution
    from divebook.history.failures import Failure
    from divebook.mending import GivenDefinition

FIX, AGAIN, REPLAY = "Fix and continue from here", "Run again", "Open replay here"


class Steered(Protocol):
    """What a view asks of a run."""

    @property
    def execution(self) -> Execution:
        """The execution itself."""

    def answer(self, interrupt_id: str, response: Any) -> Any:
        """Answer one of its questions."""

    def pause(self) -> Any:
        """Let nothing more begin."""

    def resume(self, *, definition: GivenDefinition | None = None) -> Any:
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
        self._environment, self._execution = environment, execution
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
    state, found = execution.state, environment.workflows.get(execution.state.workflow_name, execution.workflow)
    before, now = state.code, environment.code_of(found)
    labels = sorted(label for label in before.keys() | now.keys() if before.get(label) != now.get(label))
    return [*(["the definition"] if found.fingerprint != state.fingerprint else []), *labels]


def plan_of(run: Steered) -> str:
    """Return what continuing would reuse and do; nothing where that is the run itself, which needs no confirmation."""
    if not redefined_of(run.environment, run.execution):
        return ""
    return "\n".join(run.environment.resume(run.execution.id, definition=NEW, plan=True).lines)


def go_on(run: Steered) -> None:
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
