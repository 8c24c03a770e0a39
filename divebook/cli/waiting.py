"""Waiting for an execution in the shell, until it ends, or the last one as which it goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from divebook.cli.interrupts import Interrupts
from divebook.cli.text import secrets
from divebook.errors import ConcurrentAppendError, FencedError
from divebook.events.catalog import WAITING
from divebook.keyboard import interruptible_wait

if TYPE_CHECKING:
    from divebook.cli.progress import Progress
    from divebook.config.answers import Answers
    from divebook.environment import Environment
    from divebook.execution.execution import Execution


LONGEST = 1.0
"""Seconds after which a waiting execution is looked at again without news."""


def finish(
    start: Callable[[], Execution],
    environment: Environment,
    progress: Progress,
    answers: Answers | None = None,
    *,
    waits: bool | None = False,
) -> tuple[Execution, bool]:
    """Start an execution, wait for its end or that of the last one it goes on as; return whether Ctrl-C was pressed.

    Parameters
    ----------
    waits
        Whether to wait until questions with a default expire; None: only where no terminal can ask a person, and not
        for a question that is asked during a call.
    """
    progress.watch(environment.store)
    with Interrupts(progress.print) as interrupts:
        execution = start()
        while True:
            interrupts.guard(execution)
            secrets.learn(execution.state.inputs, execution.state.variables)
            try:
                if execution.was_driven or execution.state.is_over:  # else another process drives it
                    execution = execution.wait() if answers is None else answers.settle(execution)
            except (ConcurrentAppendError, FencedError):
                if environment.store.record(execution.id).ended_at is None:
                    raise
                execution = _as_recorded(environment, execution)  # another process cancelled it
            if _continues_alone(execution, waits=waits):
                _wait_for_news(execution)
                continue
            following = execution.successor
            if following is None:
                for key in () if answers is None else answers.unused:
                    progress.print(f"the answer for {key!r} was not needed: no question of that name was asked")
                return execution, bool(interrupts.count)
            execution = following


def with_children(execution: Execution) -> Iterator[Execution]:
    """Yield an execution, and the executions that it waits for."""
    yield execution
    for child in execution.children:
        yield from with_children(child)


def has_terminal() -> bool:
    """Return whether a person can type answers to this process."""
    return sys.stdin.isatty()


def _continues_alone(execution: Execution, *, waits: bool | None) -> bool:
    """Return whether an execution that waits continues without a person.

    A question with a default expires, of the execution or of one that it waits for, or such a one is still at work.
    """
    from divebook.execution.elsewhere import stands_still

    if waits is False or (waits is None and has_terminal()):
        return False
    if execution.status != WAITING or execution.state.paused is not None or not execution.was_driven:
        return False
    asking = [each for each in with_children(execution) if waits or not each.is_blocked]
    questions = [question for each in asking for question in each.interrupts]
    if any(question.expires_us is not None and question.default is not None for question in questions):
        return True
    return not stands_still(execution.refresh().state, execution.store)


def _wait_for_news(execution: Execution) -> None:
    """Return when an execution that waits, or one that it waits for, has something new in its log."""
    news, store = threading.Event(), execution.store
    ends = [store.on_news(news.set), store.subscribe(lambda _name, _events: news.set())]
    before = _positions(execution)
    try:
        while _positions(execution) == before:
            interruptible_wait(news, LONGEST)
            news.clear()
    finally:
        for end in ends:
            end()


def _positions(execution: Execution) -> dict[str, int]:
    """Return the number of the last event of an execution and of those that it waits for, by id."""
    return {each.id: each.refresh().state.last_sequence for each in with_children(execution)}


def _as_recorded(environment: Environment, execution: Execution) -> Execution:
    from divebook.environment import Environment

    return Environment(store=environment.store).execution(execution.id)
