"""What a person wants, carried out once: an intent is sent again until it is acknowledged, and may come many times.

The thread on which messages arrive only hands over: a kernel may call back on its main thread, between two lines of a
cell.
"""

from __future__ import annotations

import contextvars
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from divebook.errors import DivebookError, KeptError, SetupError
from divebook.widgets.protocol.files import TakingOver
from divebook.widgets.protocol.questions import AnswerGiven
from divebook.widgets.protocol.runs import RunsWish
from divebook.widgets.protocol.views import Ack, Steering

REMEMBERED = 1000
"""Intents whose outcome is still known."""


Intent: TypeAlias = AnswerGiven | Steering | RunsWish | TakingOver


def _refuse() -> NoReturn:
    raise SetupError("this view takes answers only")


def _refuse_wish(wish: RunsWish) -> None:
    raise SetupError(f"this view shows no list of executions, of which it could {wish['command']} some")


def _refuse_files(wish: TakingOver) -> str:
    raise SetupError(f"this view takes no files over: %dive apply does, with {', '.join(wish['paths'])}")


@dataclass(frozen=True, slots=True)
class Handlers:
    """What is called for each intent, on a thread of its own; an error of divebook becomes a refusal."""

    answer: Callable[[str, Any], object]
    """Takes the question's id and the response; a `KeptError` says that it was taken, and what stands in its way."""
    pause: Callable[[], object] = _refuse
    resume: Callable[[], object] = _refuse
    cancel: Callable[[], object] = _refuse
    plan: Callable[[], str] = field(default=_refuse, kw_only=True)
    """Says what `fix` would do, where a person is to confirm that; makes no call."""
    fix: Callable[[], object] = field(default=_refuse, kw_only=True)
    """Goes on after a failure, with what is defined now."""
    again: Callable[[], object] = field(default=_refuse, kw_only=True)
    """Begins a new run like one that has failed."""
    wish: Callable[[RunsWish], object] = field(default=_refuse_wish, kw_only=True)
    take_over: Callable[[TakingOver], str] = field(default=_refuse_files, kw_only=True)
    """Writes changed files into the folder that they are a copy of; says what became of them."""


class Intents:
    """Carries out intents, one after the other, on a thread of its own, and acknowledges them, from any thread."""

    def __init__(
        self, handlers: Handlers, acknowledge: Callable[[Ack], None], executor: Executor | None = None
    ) -> None:
        self._handlers, self._acknowledge = handlers, acknowledge
        self._executor = executor or ThreadPoolExecutor(1, "divebook-intents")
        self._outcomes: OrderedDict[str, Ack | None] = OrderedDict()

    def take(self, intent: Intent) -> None:
        """Carry out an intent that is new; acknowledge again one that is done."""
        identity = intent["id"]
        if identity not in self._outcomes:
            self._remember(identity, None)
            context = contextvars.copy_context()
            self._executor.submit(context.run, self._carry_out, intent)
            return
        outcome = self._outcomes[identity]
        if outcome is not None:
            self._acknowledge(outcome)

    def _remember(self, identity: str, outcome: Ack | None) -> None:
        self._outcomes[identity] = outcome
        while len(self._outcomes) > REMEMBERED:
            self._outcomes.popitem(last=False)

    def _carry_out(self, intent: Intent) -> None:
        try:
            said = self._call(intent)
        except KeptError as kept:
            outcome = Ack(type="ack", id=intent["id"], accepted=True, text=str(kept))
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the person who asked must hear of it
            told = str(error) if isinstance(error, DivebookError) else f"{type(error).__name__}: {error}"
            outcome = Ack(type="ack", id=intent["id"], accepted=False, text=told)
        else:
            outcome = Ack(type="ack", id=intent["id"], accepted=True, text=said)
        self._remember(intent["id"], outcome)
        self._acknowledge(outcome)

    def _call(self, intent: Intent) -> str:
        """Do it; return what is to be said of it."""
        if intent["type"] == "answer":
            self._handlers.answer(intent["interrupt_id"], intent["response"])
        elif intent["type"] == "wish":
            self._handlers.wish(intent)
        elif intent["type"] == "take_over":
            return self._handlers.take_over(intent)
        elif intent["command"] == "plan":
            return self._handlers.plan()
        else:
            getattr(self._handlers, intent["command"])()
        return ""
