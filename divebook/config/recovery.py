"""Taking up executions that were interrupted: their process has died, or they slept past their time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from divebook.environment import Environment
from divebook.errors import DivebookError, ExecutionError, NotFoundError
from divebook.execution.execution import Execution
from divebook.store import ExecutionRecord
from divebook.workflow.definition import Config
from divebook.workflow.resources import RECOVERIES

VARIABLE = "DIVEBOOK_RECOVER"
ASK, AUTO, OFF = RECOVERIES
MOST_AT_ONCE = 50
"""How many are resumed automatically at a time."""
MOST_REFUSED = 10
"""How many are looked at, for each one that is resumed at most."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery: which executions were resumed, and which were not."""

    resumed: tuple[Execution, ...] = ()
    refused: tuple[tuple[ExecutionRecord, DivebookError], ...] = ()
    """Those that cannot go on here, and why: an agent or action is missing, or another process was quicker."""
    left: int = 0
    """How many were not looked at."""

    @property
    def waiting(self) -> int:
        """How many do not go on."""
        return len(self.refused) + self.left


def way_to_recover(config: Config | None = None) -> str:
    """Return ``ask``, ``auto`` or ``off``: what the variable ``DIVEBOOK_RECOVER`` says, else the settings, else ask.

    Raises
    ------
    NotFoundError
        The variable has another value.
    """
    said = os.environ.get(VARIABLE) or (config.recover if config is not None else "") or ASK
    if said not in RECOVERIES:
        raise NotFoundError("way to recover", said, RECOVERIES, f"{VARIABLE} cannot be {said!r}")
    return said


def take_up(environment: Environment, records: Sequence[ExecutionRecord]) -> Recovered:
    """Resume executions as far as their definitions allow it; they go on at once, and are not waited for."""
    return _each(records, environment.resume, len(records))


def take_up_by_itself(environment: Environment, records: Sequence[ExecutionRecord]) -> Recovered:
    """Resume executions automatically; one that makes no progress is left to a person."""
    return _each(records, environment.recover, MOST_AT_ONCE)


def _each(records: Sequence[ExecutionRecord], resume: Callable[[str], Execution], most: int) -> Recovered:
    resumed: list[Execution] = []
    refused: list[tuple[ExecutionRecord, DivebookError]] = []
    for record in records[: most * MOST_REFUSED]:
        if len(resumed) == most:
            break
        try:
            resumed.append(resume(record.execution_id))
        except DivebookError as error:
            refused.append((record, error))
    return Recovered(tuple(resumed), tuple(refused), len(records) - len(resumed) - len(refused))


def interrupted(environment: Environment, execution_id: str | None = None) -> list[ExecutionRecord]:
    """Return the executions that can be recovered: all, or the one whose id begins so.

    Raises
    ------
    ExecutionNotFoundError
        There is none of that id.
    ExecutionError
        It is not interrupted.
    """
    records = environment.recoverable()
    if execution_id is None:
        return records
    whole_id = environment.store.resolve(execution_id)
    chosen = [record for record in records if record.execution_id == whole_id]
    if not chosen:
        status = environment.store.record(whole_id).status
        raise ExecutionError(f"execution {whole_id} is {status}, but not interrupted; to go on all the same, resume it")
    return chosen
