"""What follows a failed step: another attempt, a Catch, or its failure for good; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divebook.errors import (
    ApprovalDeniedError,
    BoundExceededError,
    DefinitionError,
    DivebookError,
    DivergenceError,
    InterruptExpiredError,
    ItemFailedError,
    NotFoundError,
    OperationError,
    ScriptError,
    ScriptSyntaxError,
    StoreError,
    TemplateError,
    ToolError,
    UndefinedVariableError,
    UnopenableValueError,
    UnstorableValueError,
    UnusableEngineError,
)
from divebook.text.format import as_unicode
from divebook.workflow.step import STAGE, Catch, Retry, Step

MOST_TEXT = 20_000
"""Characters of an error's message that are kept."""

HOPELESS = (
    ApprovalDeniedError,
    BoundExceededError,
    DefinitionError,
    DivergenceError,
    InterruptExpiredError,
    NotFoundError,
    ScriptSyntaxError,
    StoreError,
    TemplateError,
    UndefinedVariableError,
    UnopenableValueError,
    UnstorableValueError,
    UnusableEngineError,
)
"""Errors that another attempt would meet again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error with all that a policy may ask of it."""

    message: str
    kind: str
    """Class of the error that started it."""
    names: frozenset[str]
    """Names of the classes of every error in the chain, and of their bases."""
    hopeless: bool = False
    retry_after: float = 0.0
    """Seconds to wait that the error itself asks for."""
    reason: str | None = None
    """The typed reason, where there is one."""
    called: str = ""
    """The function made with ``@step`` that raised it, in a workflow function."""
    item: ItemFailedError | None = None
    """Which item of `Each` failed."""
    head: str = ""
    """Class and message of what went wrong, without what was wrapped around it."""
    place: str = ""
    """The line that raised it, in words."""
    tool: ToolError | None = None
    """Of what a tool of an agent raised: which one."""

    @classmethod
    def of(
        cls,
        error: BaseException,
        message: str,
        clean: Callable[[str], str] = str,
        place: Mapping[str, Any] | None = None,
    ) -> Fault:
        """Describe an error and its causes; `place` is where it was raised, if the error does not know that."""
        chain = chain_of(error)
        told = told_chain(error)
        source = telling(error)
        names = {name for link in told for name in names_of(link)}
        asked = [value for link in chain if isinstance(value := getattr(link, "retry_after", None), int | float)]
        hopeless = any(isinstance(link, HOPELESS) for link in chain)
        reason = next((link.reason for link in chain if isinstance(link, BoundExceededError)), None)
        wait = float(max(asked, default=0))
        called = next((link.called for link in chain if isinstance(link, OperationError)), "")
        item = next((link for link in chain if isinstance(link, ItemFailedError)), None)
        tool = source if isinstance(source, ToolError) and {"agent", "tool", "cause"} <= vars(source).keys() else None
        head = _head(source, clean) if tool is None else tool.cause
        known = (source.raised_at if isinstance(source, DivebookError) else None) or place or {}
        where = str(known.get("label", ""))
        return cls(
            message,
            names_of(told[-1])[0],
            frozenset(names),
            hopeless,
            wait,
            reason,
            called,
            item,
            head,
            where,
            tool,
        )

    @property
    def index(self) -> int | None:
        """Number of the item of `Each` that failed."""
        return None if self.item is None else self.item.index

    def matches(self, errors: Sequence[str]) -> bool:
        """Whether a policy with these names or parts of messages applies."""
        return not errors or any(entry in self.names or entry in self.message for entry in errors)

    def to_data(self, step: str, attempts: int) -> dict[str, Any]:
        """Return the error as what `Catch.store` keeps; `iteration` and `item` where an item of `Each` failed."""
        found = {"type": self.kind, "message": self.message, "step": step, "attempts": attempts}
        return found if self.item is None else {**found, "iteration": self.item.index, "item": self.item.item}

    def shown(self, step: Step) -> str:
        """Return class and message, and what failed: the step or the call, the item, and the line.

        A step of a pipeline is not named: its message names the stage, and people do not know the other steps.
        """
        if step.type == STAGE:
            return self.head
        item = (
            ""
            if self.item is None or step.each is None
            else step.each.item_name(self.item.index, self.item.key, step.name)
        )
        tool = "" if self.tool is None else f"tool {self.tool.tool} of agent {self.tool.agent}"
        where = ", ".join(filter(None, [f"step {self.called or step.name}", tool, item, self.place]))
        return f"{self.head} ({where}){'' if self.tool is None else f': {self.tool.advice}'}"


def text_of(error: BaseException, clean: Callable[[str], str] = str) -> str:
    """Return an error's message as a log can hold it: valid Unicode, and of a length that people read.

    Before it is cut, `clean` leaves out what no log is to hold (`divebook.runtime.errors`).
    """
    try:
        text = str(error) or type(error).__name__
    except Exception as second:  # noqa: BLE001 - a person's class, or a value that has no text, says it of itself
        text = f"{type(error).__name__}, whose text cannot be had: {type(second).__name__}"
    if isinstance(error, KeyError):  # whose own text is nothing but the key
        said = error.args[0] if error.args else ""
        head = f"{names_of(error)[0]}: "
        text = said if isinstance(said, str) and said.startswith(head) else f"{head}{text}"  # the former from a log
    text = clean(as_unicode(text))
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}... ({len(text) - MOST_TEXT:,} more characters)"


def names_of(error: BaseException) -> tuple[str, ...]:
    """Return the class of an error and those it derives from; of one that comes from the log, as they were recorded.

    In front of those of a script's error, or a tool's, stands what the script or the tool raised.
    """
    recorded = error.error_names if isinstance(error, OperationError) else ()
    names = tuple(base.__name__ for base in type(error).__mro__ if base not in (object, BaseException))
    if isinstance(error, ScriptError) and error.raised:
        names = (error.raised, *names)
    if isinstance(error, ToolError):
        names = (*error.names, *names)
    return recorded or names or (BaseException.__name__,)  # BaseException itself, raised as it is


def told_chain(error: BaseException) -> list[BaseException]:
    """Return an error and what it was raised from, as far as the log tells: down to what an operation or script raised.

    So the same policies apply, and the same is kept of it, whether it is met live or read from the log after a crash
    (test_an_error_is_the_same_after_a_crash).
    """
    chain = chain_of(error)
    known = (number for number, link in enumerate(chain, 1) if isinstance(link, DivebookError) and _is_source(link))
    return chain[: next(known, len(chain))]


def telling(error: BaseException) -> BaseException:
    """Return which of an error and its causes says what went wrong: what a call or a script raised, if one did.

    What divebook has put around any other error says more than that: which model cannot be used, say.
    """
    last = told_chain(error)[-1]
    if isinstance(error, DivebookError) and isinstance(last, DivebookError) and _is_source(last):
        return last
    return error.__cause__ if isinstance(error, ItemFailedError) and error.__cause__ is not None else error


def _is_source(link: DivebookError) -> bool:
    """Return whether a call or a script raised it, as the log tells."""
    return isinstance(link, ScriptError) or (isinstance(link, OperationError) and bool(link.error_names))


def _head(source: BaseException, clean: Callable[[str], str]) -> str:
    text = failure_text(source, clean)
    name = names_of(source)[0]
    return f"{name}: {text}" if isinstance(source, ScriptError) and not text.startswith(name) else text


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an error and what it was raised from, the first of each group."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.exceptions[0] if isinstance(link, BaseExceptionGroup) else link.__cause__
    return chain


def failure_text(error: BaseException, clean: Callable[[str], str] = str) -> str:
    """Return the message of an error, with the class of those that are not ours."""
    if isinstance(error, BaseExceptionGroup):
        return failure_text(error.exceptions[0], clean)
    text = text_of(error, clean)
    names = names_of(error)
    has_name = DivebookError.__name__ in names or text.startswith(names[0])
    return text if has_name else f"{names[0]}: {text}"


def retry_delay(policy: Retry | None, failures: int, failure: Fault, chance: float) -> float | None:
    """Return the seconds to wait before a step or call is tried again, or None if it is not.

    Parameters
    ----------
    failures
        How often it has failed in this visit of the step, this time included.
    chance
        A number from 0 to 1, for the jitter.
    """
    if policy is None or failures >= policy.attempts or failure.hopeless or not failure.matches(policy.errors):
        return None
    delay = policy.delay(failures)
    return max(delay + delay * policy.jitter * chance, failure.retry_after)


def catching(step: Step, failure: Fault) -> Catch | None:
    """Return the first policy of the step that catches the failure."""
    return next((policy for policy in step.catch if failure.matches(policy.errors)), None)
