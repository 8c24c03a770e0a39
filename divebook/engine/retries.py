"""Decisions after a failure: another attempt, a `Catch` policy, or the failure of the step. Pure functions.

An error and its causes are described by a `Fault`. `retry_delay` and `catching` compare it with the policies of a step.
An error that is read from the log after a crash has the same description as the error that was raised, because the
chain of causes is cut at the first error that the log can restore.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divebook.definitions.step import STAGE, Catch, Retry, Step
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

MOST_TEXT = 20_000
"""Longest stored error message, in characters."""

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
"""Errors that another attempt would raise again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Description of an error for retry and catch policies: its classes, message, typed reason, item of `Each` and line
    of code. A policy compares them to decide whether it applies.
    """

    message: str
    kind: str
    """Class of the root cause."""
    names: frozenset[str]
    """Names of the classes of all errors in the chain, and of their base classes."""
    hopeless: bool = False
    """True if another attempt would fail in the same way; see `HOPELESS`."""
    retry_after: float = 0.0
    """Seconds to wait before another attempt, as the error requests."""
    reason: str | None = None
    """Typed reason, if it has one."""
    called: str = ""
    """Function made with ``@step`` that raised it in a workflow function."""
    item: ItemFailedError | None = None
    """Item of `Each` that failed."""
    head: str = ""
    """Class and message of the cause, without the errors around it."""
    place: str = ""
    """Text that names the line that raised it."""
    tool: ToolError | None = None
    """Error of an agent's tool, if a tool raised it."""

    @classmethod
    def of(
        cls,
        error: BaseException,
        message: str,
        clean: Callable[[str], str] = str,
        place: Mapping[str, Any] | None = None,
    ) -> Fault:
        """Create the description of an error, which retry and catch policies use, from the error and its causes.

        `place` is where it was raised. It is used if the error does not have its place.
        """
        # Names come only from the links that a log restores (`recorded`), so that policies match them in the same way
        # after a crash. Example: `StepError` caused by `OperationError` caused by `ConnectionError`. A resumed run has
        # the first two, and the recorded names of the second one include "ConnectionError".
        chain = chain_of(error)
        recorded = recorded_chain(error)
        source = telling(error)
        names = {name for link in recorded for name in names_of(link)}
        # Any class may have this attribute, with any value, so only numbers count.
        pauses = [getattr(link, "retry_after", None) for link in chain]
        is_blocked = any(isinstance(link, OperationError) and link.is_blocked for link in chain)
        hopeless = is_blocked or any(isinstance(link, HOPELESS) for link in chain)
        reason = next((link.reason for link in chain if isinstance(link, BoundExceededError)), None)
        wait = float(max((pause for pause in pauses if isinstance(pause, int | float)), default=0))
        called = next((link.called for link in chain if isinstance(link, OperationError)), "")
        item = next((link for link in chain if isinstance(link, ItemFailedError)), None)
        # An error from the log is built without the constructor of its class, so its attributes may be missing.
        tool = source if isinstance(source, ToolError) and {"agent", "tool", "cause"} <= vars(source).keys() else None
        head = _head(source, clean) if tool is None else tool.cause
        raised_at = (source.raised_at if isinstance(source, DivebookError) else None) or place or {}
        where = str(raised_at.get("label", ""))
        return cls(
            message,
            names_of(recorded[-1])[0],
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
        """Number of the item of `Each` that failed; None if no item did."""
        return None if self.item is None else self.item.index

    def matches(self, errors: Sequence[str]) -> bool:
        """Return whether a policy applies to the error. `errors` are the class names and parts of messages that the
        policy lists. A policy with an empty list always applies.
        """
        return not errors or any(entry in self.names or entry in self.message for entry in errors)

    def to_data(self, step: str, attempts: int) -> dict[str, Any]:
        """Return the description of the error as a dict, which `Catch.store` stores in a variable. If an item of `Each`
        failed, it includes `iteration` and `item`.
        """
        data = {"type": self.kind, "message": self.message, "step": step, "attempts": attempts}
        return data if self.item is None else {**data, "iteration": self.item.index, "item": self.item.item}

    def shown(self, step: Step) -> str:
        """Return the error as text for people: class, message, and in parentheses the step or call, the item and the
        line.

        For a pipeline it is the message only, which names the stage; the steps of a pipeline are internal.
        """
        if step.type == STAGE:
            return self.head
        # The parts that apply are joined: "ValueError: no (step price, rows[3])", or "ValueError: no (step price)".
        item = (
            ""
            if self.item is None or step.each is None
            else step.each.item_name(self.item.index, self.item.key, step.name)
        )
        tool = "" if self.tool is None else f"tool {self.tool.tool} of agent {self.tool.agent}"
        where = ", ".join(filter(None, [f"step {self.called or step.name}", tool, item, self.place]))
        return f"{self.head} ({where}){'' if self.tool is None else f': {self.tool.advice}'}"


def text_of(error: BaseException, clean: Callable[[str], str] = str) -> str:
    """Return the message of an error for the log: valid Unicode, at most `MOST_TEXT` characters.

    `clean` redacts it before it is cut (`divebook.runtime.errors`).
    """
    try:
        text = str(error) or type(error).__name__
    except Exception as second:  # noqa: BLE001 - `__str__` of a user's class may raise anything
        text = f"{type(error).__name__}, whose message cannot be read: {type(second).__name__}"
    # `str(KeyError("x"))` is only "'x'", which becomes "KeyError: 'x'". An error from the log has this form already.
    if isinstance(error, KeyError):
        key = error.args[0] if error.args else ""
        head = f"{names_of(error)[0]}: "
        is_from_log = isinstance(key, str) and key.startswith(head)
        text = key if is_from_log else f"{head}{text}"
    text = clean(as_unicode(text))
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}... ({len(text) - MOST_TEXT:,} more characters)"


def names_of(error: BaseException) -> tuple[str, ...]:
    """Return the names of an error's class and its base classes. For an error from the log, these are the recorded
    names.

    For an error of a script or a tool, the names of the error that the script or the tool raised come first.
    """
    # Example: a function raised `ConnectionError`, and a log restored it as `OperationError`. The result is
    # ("ConnectionError", "OSError", "Exception"), which is also the result for the error itself.
    recorded = error.error_names if isinstance(error, OperationError) else ()
    names = tuple(base.__name__ for base in type(error).__mro__ if base not in (object, BaseException))
    if isinstance(error, ScriptError) and error.raised:
        names = (error.raised, *names)
    if isinstance(error, ToolError):
        names = (*error.names, *names)
    return recorded or names or (BaseException.__name__,)  # the last for a plain BaseException


def recorded_chain(error: BaseException) -> list[BaseException]:
    """Return an error and its causes, outermost first. The list ends at the first error of an operation or script,
    because the log keeps no further causes.

    The same policies therefore apply to an error that was raised and to one that is read from the log after a crash
    (test_an_error_is_the_same_after_a_crash).
    """
    chain = chain_of(error)
    # [StepError, OperationError, ConnectionError] -> [StepError, OperationError].
    ends = (number for number, link in enumerate(chain, 1) if isinstance(link, DivebookError) and _is_source(link))
    return chain[: next(ends, len(chain))]


def telling(error: BaseException) -> BaseException:
    """Return the error that tells people most, out of an error and its causes. It is the inner error of a call or
    script if divebook has raised its own error around it. For a failed item of `Each` it is the cause. For others it is
    the outer error.

    Errors that divebook raises around other errors contain more information, for example which model is unusable.
    """
    last = recorded_chain(error)[-1]
    if isinstance(error, DivebookError) and isinstance(last, DivebookError) and _is_source(last):
        return last
    return error.__cause__ if isinstance(error, ItemFailedError) and error.__cause__ is not None else error


def _is_source(link: DivebookError) -> bool:
    """Return whether an error was raised by an operation or a script, so that the log can restore it."""
    return isinstance(link, ScriptError) or (isinstance(link, OperationError) and bool(link.error_names))


def _head(source: BaseException, clean: Callable[[str], str]) -> str:
    text = failure_text(source, clean)
    name = names_of(source)[0]
    return f"{name}: {text}" if isinstance(source, ScriptError) and not text.startswith(name) else text


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an error and its causes, outermost first. Of an exception group, only the first error is followed."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    # User code can build a cycle of causes, so each error is visited once.
    while link is not None and link not in chain:
        chain.append(link)
        link = link.exceptions[0] if isinstance(link, BaseExceptionGroup) else link.__cause__
    return chain


def failure_text(error: BaseException, clean: Callable[[str], str] = str) -> str:
    """Return the message of an error, preceded by its class name. The name is left out for errors of divebook, and if
    the message begins with it already.
    """
    if isinstance(error, BaseExceptionGroup):
        return failure_text(error.exceptions[0], clean)
    text = text_of(error, clean)
    names = names_of(error)
    has_name = DivebookError.__name__ in names or text.startswith(names[0])
    return text if has_name else f"{names[0]}: {text}"


def retry_delay(policy: Retry | None, failures: int, failure: Fault, chance: float) -> float | None:
    """Return the seconds to wait before another attempt after a failure. Return None if the retry policy allows no
    other attempt.

    Parameters
    ----------
    failures
        Number of failures in this visit of the step, including this one.
    chance
        Random number from 0 to 1 for the jitter.
    """
    # `failures` includes this one: with attempts=3, the third failure is the last.
    if policy is None or failures >= policy.attempts or failure.hopeless or not failure.matches(policy.errors):
        return None
    # An error can request a longer pause, for example by the header Retry-After of a provider.
    return max(pause_after(policy, failures, chance), failure.retry_after)


def pause_after(policy: Retry, failures: int, chance: float) -> float:
    """Return the pause in seconds of a retry policy after `failures` failed attempts, with its jitter. `chance` is a
    random number from 0 to 1.
    """
    delay = policy.delay(failures)
    return delay + delay * policy.jitter * chance


def catching(step: Step, failure: Fault) -> Catch | None:
    """Return the first `Catch` policy of a step that applies to a failure. Return None if no policy does."""
    return next((policy for policy in step.catch if failure.matches(policy.errors)), None)
