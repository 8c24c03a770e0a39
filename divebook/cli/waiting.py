"""Waiting for an execution in the shell, until it ends, or the last one as which it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from divebook.cli.interrupts import Interrupts
from divebook.cli.text import secrets
from divebook.errors import ConcurrentAppendError, FencedError

if TYPE_CHECKING:
    from divebook.cli.progress import Progress
    from divebook.config.answers import Answers
    from divebook.environment import Environment
    from divebook.execution.execution import Execution


def finish(
    start: Callable[[], Execution], environment: Environment, progress: Progress, answers: Answers | None = None
) -> tuple[Execution, bool]:
    """Start an execution, wait for its end or that of the last one it goes on as; return whether Ctrl-C was pressed."""
    progress.watch(environment.store)
    with Interrupts(progress.print) as interrupts:
        execution = start()
        while True:
            interrupts.guard(execution)
            secrets.learn(execution.state.inputs, execution.state.variables)
            try:
                if execution.was_driven or execution.state.is_over:  # else another process drives it
                    execution = execution.wait() if answers is None else _answered(execution, answers, progress)
            except (ConcurrentAppendError, FencedError):
                if environment.store.record(execution.id).ended_at is None:
                    raise
                execution = _as_recorded(environment, execution)  # another process cancelled it
            following = execution.successor
            if following is None:
                return execution, bool(interrupts.count)
            execution = following


def _answered(execution: Execution, answers: Answers, progress: Progress) -> Execution:
    settled = answers.settle(execution)
    for key in answers.unused:
        progress.print(f"the answer for {key!r} was not needed: no question of that name was asked")
    return settled


def _as_recorded(environment: Environment, execution: Execution) -> Execution:
    from divebook.environment import Environment

    return Environment(store=environment.store).execution(execution.id)
