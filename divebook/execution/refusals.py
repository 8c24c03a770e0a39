"""What is not done any more with an execution that has ended, and what its owner can do instead."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from divebook.engine.ahead import steps_to_undo
from divebook.engine.lifecycle import FINAL, WAY_ON
from divebook.errors import DefinitionError, ExecutionError, NotFoundError, SetupError
from divebook.events import catalog
from divebook.execution.driver import Driver
from divebook.execution.elsewhere import lease_elsewhere
from divebook.workflow.definition import Workflow


def refuse_final(driver: Driver, when: str = "") -> None:
    """Raise for an execution that cannot go on."""
    if driver.status == catalog.COMPLETED:
        raise ExecutionError(f"execution {driver.id} has {when}completed; start a new one to run the workflow again")
    if driver.state.is_over and driver.state.is_rolled_back:
        raise ExecutionError(
            f"execution {driver.id} has {when}{_end_of(driver)}, and what it had done is rolled back; start a new one"
        )
    if driver.status in FINAL:
        way_on = f"it goes on as {driver.state.continued_as}" if driver.state.continued_as else WAY_ON[driver.status]
        raise ExecutionError(f"execution {driver.id} is {when}{_end_of(driver)}, and cannot go on; {way_on}")


def _end_of(driver: Driver) -> str:
    """Return how an execution ended, as a sentence goes on."""
    return "only a picture of one that had not ended" if driver.status == catalog.PICTURE else driver.status


def refuse_over(driver: Driver, when: str = "already ") -> None:
    """Raise for an execution of which nothing is left to cancel."""
    if driver.state.is_over:
        way_on = f"; {WAY_ON[driver.status]}" if driver.status == catalog.PICTURE else ""
        raise ExecutionError(f"execution {driver.id} is {when}{_end_of(driver)}; there is nothing to cancel{way_on}")


def nothing_to_pause(driver: Driver) -> ExecutionError:
    """Return the error for an execution that this process does not drive, with what can be done instead."""
    held = None if driver.opening is not None else lease_elsewhere(driver)
    if held is not None and not driver.state.is_over:
        owner = held.owner
        return ExecutionError(
            f"execution {driver.id} is driven by {owner.name or 'a process'} (process {owner.pid} on {owner.host}), "
            "and not by this one; pause it there, or cancel it from here and resume it later"
        )
    way_on = "" if driver.state.is_over else "; nothing of it begins before it is started, resumed or answered"
    return ExecutionError(f"execution {driver.id} is {driver.status}, and this process does not drive it{way_on}")


def can_undo(driver: Driver, check: Callable[[Workflow, Container[str], Iterable[str]], None]) -> bool:
    """Return whether this process has what undoes what an execution has done, and is to; else who resumes it does."""
    if driver.state.queue is not None and driver.state.parent is None:  # a child comes before who has started it
        return False
    try:
        check(driver.workflow, steps_to_undo(driver.state), ())
    except (DefinitionError, NotFoundError, SetupError):
        return False
    return True
