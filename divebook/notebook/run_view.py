"""Live view of a run as a widget: the functions of its buttons and forms, and the recovery options after a failure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from divebook.environment.variants import NEW
from divebook.errors import ExecutionError, LeaseHeldError, StoreError
from divebook.events.catalog import COMPLETED, FAILED
from divebook.runtime.execution import Execution
from divebook.widgets.protocol import Header, Way
from divebook.widgets.publisher import Publisher, publisher_of
from divebook.widgets.source import awaited_from_outside
from divebook.widgets.views import Handlers

if TYPE_CHECKING:
    from divebook.environment.environment import Environment
    from divebook.environment.variants import DefinitionLike
    from divebook.projections.failures import Failure
    from divebook.widgets.feed import Feed
    from divebook.widgets.protocol import TakingOver
    from divebook.widgets.views import LiveView


def view_of(run: ControllableRun) -> LiveView:
    """Return a new live view of a run as a widget.

    If a button starts a new run, the view then shows the new run.
    """
    from divebook.widgets.views import LiveView

    # The handlers need the view and the view needs the handlers. The function reads `view` only when a button is
    # pressed.
    view = LiveView(follow_run(run), _handlers(run, lambda: view.follow(follow_run(run))))
    return view


def follow_run(run: ControllableRun) -> Publisher[Feed]:
    """Return the publisher that sends the changes of a run to its live views. After a failure it also sends the
    recovery options, such as running again.
    """
    # A function and not an execution, because a button can replace the execution of the run.
    options = RecoveryOptions(run.environment, lambda: run.execution)
    # The publisher calls `of` again and again: an edit of a function appends no event.
    return publisher_of(run.execution, options.of)


def _handlers(run: ControllableRun, on_new_execution: Callable[[], None]) -> Handlers:
    """Return the functions that the buttons and forms of a run's view call. Their errors are shown in the view.

    Parameters
    ----------
    on_new_execution
        Called after a button has started another execution in place of the present one.
    """

    def again() -> None:
        run.again()
        on_new_execution()

    def fix() -> None:
        # `continue_failed` starts a new execution only if something was edited.
        before = run.execution
        continue_failed(run)
        if run.execution.id != before.id:
            on_new_execution()

    def resume() -> None:
        reason = awaited_from_outside(run.execution)
        # Resuming a run that needs an answer would do nothing. The view shows the reason instead.
        if reason:
            raise ExecutionError(reason)
        run.resume()

    def take_over(message: TakingOver) -> str:
        files = run.environment.files(run.execution.id, message["workspace"])
        # Only changes up to the event that the person saw are applied.
        applied = files.apply(paths=message["paths"], until=message["at"])
        return applied.told(files.source)

    # The plan is made when the person presses the button, with the definitions of that moment.
    plan = partial(plan_of, run)
    return Handlers(run.answer, run.pause, resume, run.cancel, plan=plan, fix=fix, again=again, take_over=take_over)


# --- recovery options of a failed run --------------------------------------------------------------------------------
#
# If the definition or a function has changed since the run, continuing works like ``resume(definition="new")``: as a
# new run, after a plan that a person confirms. Otherwise the run itself is resumed (`tests/notebook/test_ways.py`).

FIX = "Fix and continue from here"
AGAIN = "Run again"
REPLAY = "Open replay here"


class ControllableRun(Protocol):
    """Interface of a run that a person can control with the buttons of its live view."""

    @property
    def execution(self) -> Execution:
        """The current execution of the run. It changes when a button starts a new execution."""

    def answer(self, interrupt_id: str, response: Any) -> Any:
        """Answer a question of the run."""

    def pause(self) -> Any:
        """Pause the run: no more steps start until it is resumed."""

    def resume(self, *, definition: DefinitionLike | None = None) -> Any:
        """Resume the execution; with a definition, continue as a new execution."""

    def cancel(self) -> Any:
        """Cancel the execution."""

    def again(self) -> Any:
        """Start a new execution with the same inputs."""

    @property
    def environment(self) -> Environment:
        """The environment that runs the execution."""


class RecoveryOptions:
    """Provider of the recovery options that a view shows after a run has failed: fix and continue, run again, replay.

    The failure is read from the log once for each end of the run.
    """

    def __init__(self, environment: Environment, execution: Callable[[], Execution]) -> None:
        self._environment = environment
        self._execution = execution
        self._failure: Failure | None = None
        self._failure_read_at = 0
        """Sequence number of the last event when the failure was read; 0 before."""

    def of(self, header: Header, kept_results: str) -> list[Way]:
        """Return the recovery options of the run; an empty list if the run has not failed or is running.

        Parameters
        ----------
        header
            Cost and duration of the run, shown with "Run again".
        kept_results
            Text that describes what continuing reuses.
        """
        execution = self._execution()
        # Only a failed run has these options. A cancelled one has the command ``resume``.
        if execution.is_live or execution.status != FAILED:
            return []
        failure = self._read_failure(execution)
        return [self._fix(execution, failure, kept_results), _run_again(header), _replay()]

    def _read_failure(self, execution: Execution) -> Failure | None:
        last = execution.state.last_sequence
        # The number of events identifies the end: a run that was continued and failed again has more events.
        if self._failure_read_at != last:
            try:
                self._failure = execution.failure
            except StoreError:  # the log is damaged, and the view shows that
                self._failure = None
            self._failure_read_at = last
        return self._failure

    def _fix(self, execution: Execution, failure: Failure | None, kept_results: str) -> Way:
        # Compared at each call and not cached, since any cell may edit a definition.
        text, is_ready = _advice(failure, changed_definitions(self._environment, execution))
        return Way(
            name="fix", label=FIX, told=text, reused=kept_results, live="", cost=None, took_us=None, ready=is_ready
        )


def changed_definitions(environment: Environment, execution: Execution) -> list[str]:
    """Compare the definition and the Python functions of an execution with those in the environment now. Return the
    names of those that were edited: ``the definition`` for the workflow, and the names of the functions.

    An edit counts as soon as its cell has run.
    """
    state = execution.state
    # A workflow that this kernel has not defined is compared with itself, so that its definition counts as unchanged.
    workflow = environment.workflows.get(state.workflow_name, execution.workflow)
    before = state.code
    now = environment.code_of(workflow)
    # A function that exists only before or only now differs too.
    functions = sorted(label for label in before.keys() | now.keys() if before.get(label) != now.get(label))
    if workflow.fingerprint != state.fingerprint:
        return ["the definition", *functions]
    return functions


def plan_of(run: ControllableRun) -> str:
    """Return the text that a person must confirm before a failed run continues with edited definitions. It lists the
    results that are reused and the calls that are made again. If nothing was edited, return an empty text.
    """
    if not changed_definitions(run.environment, run.execution):
        # Without changes, a person need not confirm the recovery.
        return ""
    return "\n".join(run.environment.resume(run.execution.id, definition=NEW, plan=True).lines)


def continue_failed(run: ControllableRun) -> None:
    """Resume a failed run. If its definition or functions were edited, it continues with the edited ones.

    Another process may do the same at this moment. The lease ensures that only one process runs it.

    Raises
    ------
    ExecutionError
        Another process runs it already.
    """
    try:
        run.resume(definition=NEW if changed_definitions(run.environment, run.execution) else None)
    # Another process holds the lease, so this one cannot drive the run. The message names that process.
    except LeaseHeldError as held:
        who = f"{held.name or 'another process'} (process {held.pid} on {held.host})"
        raise ExecutionError(f"It runs in {who} already, and is not run twice. Run the cell again to see it") from held
    except ExecutionError:
        # Two pages of one kernel, or two kernels, may continue the run at the same moment. The later one gets an error,
        # but its purpose is achieved (`tests/notebook/test_ways.py`).
        if run.execution.refresh().status != COMPLETED:  # another kernel has completed it
            raise


def _advice(failure: Failure | None, changed: list[str]) -> tuple[str, bool]:
    """Return the text of the recovery option "Fix and continue", and whether continuing can succeed now.

    It cannot succeed while the failed function is unchanged. A failed model or tool call may succeed without a change.
    """
    if changed:
        return f"Continuing uses {', '.join(changed)} as now defined, and first shows what that changes.", True
    # The error was raised in the person's own function and not in a model, a tool or a server.
    is_own_code = failure is not None and (failure.traceback or not failure.called)
    # Without a known place, no line can be edited.
    if failure is None or not failure.place or not is_own_code:
        return "Continue retries the failed call.", True
    function = failure.called or failure.step
    return f"{function} is as it was, and would fail again: edit {failure.place}, and run that cell first.", False


def _run_again(header: Header) -> Way:
    return Way(
        name="again",
        label=AGAIN,
        told="Starts a new run with the same inputs, and with definition and functions as they are now.",
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
