"""What can be done about a run that has failed, what each way takes from the log, and what it is likely to cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from divebook.errors import StoreError
from divebook.events.catalog import FAILED
from divebook.text.shown import plural
from divebook.widgets.protocol.failures import Way
from divebook.widgets.protocol.run import Header

if TYPE_CHECKING:
    from divebook.environment import Environment
    from divebook.execution.execution import Execution
    from divebook.history.failures import Failure

FIX, AGAIN, REPLAY = "Fix and continue from here", "Run again", "Open replay here"


class Ways:
    """The ways on from the failure of one run; its failure is read once for each end.

    Functions are compared with those that the run used last, so that an edit is seen as soon as its cell has run.
    """

    def __init__(self, environment: Environment, execution: Callable[[], Execution]) -> None:
        self._environment, self._execution = environment, execution
        self._known: tuple[int, Failure | None] = 0, None

    def of(self, header: Header, kept: str) -> list[Way]:
        """Return them; there are none for a run that has not failed, or goes on."""
        execution = self._execution()
        if execution.is_live or execution.status != FAILED:
            return []
        failure = self._failure(execution)
        return [self._fix(execution, failure, header, kept), _again(header), _replay()]

    def _failure(self, execution: Execution) -> Failure | None:
        last = execution.state.last_sequence
        if self._known[0] != last:
            try:
                self._known = last, execution.failure
            except StoreError:  # damaged, which the view says
                self._known = last, None
        return self._known[1]

    def _fix(self, execution: Execution, failure: Failure | None, header: Header, kept: str) -> Way:
        changed = _changed(execution.state.code, self._environment.code_of(execution.workflow))
        told, ready = _advice(failure, changed)
        left = [(one["failed"], one["total"] - one["done"], one["done"], one["left_us"]) for one in header["progress"]]
        failed, remaining, done, left_us = next((one for one in left if one[1] > 0), (0, 0, 0, None))
        live = _live(failure, failed, remaining)
        cost = header["cost"] * remaining / done if header["cost"] is not None and done else None
        return Way(name="fix", label=FIX, told=told, reused=kept, live=live, cost=cost, took_us=left_us, ready=ready)


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the functions that are others now, by kind and name."""
    return sorted(label for label in before.keys() | now.keys() if before.get(label) != now.get(label))


def _advice(failure: Failure | None, changed: list[str]) -> tuple[str, bool]:
    """Return what continuing does, and whether it can do any good by now."""
    if changed:
        return f"Continuing uses {', '.join(changed)} as now defined.", True
    if failure is None or not failure.place:
        return "Continuing makes what failed again.", True
    if not failure.traceback:
        return f"The run keeps the definition it began with: mend {failure.place}, then run it again.", False
    called = failure.called or failure.step
    return f"{called} is as it was, and would fail again: edit {failure.place}, and run that cell first.", False


def _live(failure: Failure | None, failed: int, remaining: int) -> str:
    """Return what is made again or begun."""
    what = (failure.called or failure.step) if failure is not None else "what failed"
    if not remaining:
        return f"{what}, then what follows"
    new = remaining - failed
    return f"{what} of {plural(max(failed, 1), 'item')}" + (f", then {plural(new, 'item')}" if new > 0 else "")


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
