"""What a request to a model fails with: an error of one class with the same fields, live and from the log.

Fallbacks, hooks and policies look at the class of an error, at its status, and at how long the provider asks to wait.
The log has the names of classes and what lay in the fields (`divebook.execution.raised`). From that, the same error is
made both times (`tests/agents/test_errors_alike.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic_ai import exceptions
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

from divebook.agents.wire import plainly
from divebook.errors import OperationError
from divebook.text.redaction import shared

CATEGORIES = (
    exceptions.ModelRateLimitError,
    exceptions.ModelQuotaExceededError,
    exceptions.ModelOverloadedError,
    exceptions.ModelUnavailableError,
    exceptions.ModelServerError,
    exceptions.ModelContextWindowExceededError,
    exceptions.ModelAuthenticationError,
    exceptions.ModelNotFoundError,
    exceptions.ModelRequestRejectedError,
)
"""What a status may mean; those that say more come before those that they derive from."""
MOST_BODY = 8_000
"""Characters of a provider's answer that are kept."""


@contextmanager
def keepable_errors() -> Iterator[None]:
    """Leave in an error of a model what the log can keep: no headers, which name accounts, and plain data."""
    try:
        yield
    except ModelAPIError as error:
        make_keepable(error)
        raise


def make_keepable(error: ModelAPIError) -> None:
    """Leave in an error of a model what the log can keep, see `keepable_errors`."""
    fields = vars(error)
    for name in [name for name in fields if name.startswith("_")]:
        del fields[name]  # what pydantic-ai has attached on the way is for the process alone
    if "headers" in fields:
        fields["headers"] = None
    body = shared().value(plainly(error.body, str))
    error.body = body if len(str(body)) <= MOST_BODY else f"{str(body)[:MOST_BODY]}..."
    error.message = shared().text(error.message)
    error.args = (error.message,)


_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError)
"""Errors that the adapters of providers raise by accident when a reply lacks a part that they expect."""


@contextmanager
def readable_replies(model: str) -> Iterator[None]:
    """Raise a clear error where the adapter of a provider stumbles over a reply.

    An error out of a person's own model is left as it is: there its traceback says more.

    Raises
    ------
    UnexpectedModelBehavior
        The reply does not have the expected form.
    """
    try:
        yield
    except _UNREADABLE as error:
        if not _is_from_adapter(error):
            raise
        raise exceptions.UnexpectedModelBehavior(
            f"the reply of {model} cannot be read ({error}). A provider or a filter that withholds an answer sends an "
            "empty list of choices. Try again, or use another Model"
        ) from error


def _is_from_adapter(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return module.startswith("pydantic_ai.models.")


@contextmanager
def errors_as_raised() -> Iterator[None]:
    """Raise what the log has of a failed request as pydantic-ai's code expects it."""
    try:
        yield
    except OperationError as error:
        raised = _as_raised(error)
        if raised is error:  # which must not become its own cause
            raise
        raise raised from error


def _as_raised(error: OperationError) -> Exception:
    """Return a recorded error; one with a status is an error of HTTP.

    The log cannot say it by the class alone: pydantic-ai makes the classes of errors with a status and a category
    inside itself, and gives them the name of the category.
    """
    told: Mapping[str, Any] = vars(error)
    if not isinstance(error, ModelAPIError) or not isinstance(told.get("status_code"), int):
        return error
    category = next((category for category in CATEGORIES if category in type(error).__mro__), None)
    names = ("status_code", "model_name", "body", "provider_error_code", "provider_error_type", "retry_after")
    known: dict[str, Any] = {name: told.get(name) for name in names}
    made = ModelHTTPError.for_category(category, **known, in_stream=told.get("in_stream") is True)
    made.message, made.args = str(error), (str(error),)
    return made
