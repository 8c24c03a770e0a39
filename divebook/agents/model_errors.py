"""Errors of model requests: recorded form, and the class that pydantic-ai's code expects.

A failed request raises the same class with the same fields, live and from the log. Fallbacks, hooks and policies
inspect class, status and retry delay. The log has class names and field values (`divebook.runtime.errors`), and both
cases rebuild the error from them (`tests/agents/test_errors_alike.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic_ai import exceptions
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

from divebook.errors import OperationError
from divebook.text.redaction import shared

if TYPE_CHECKING:
    pass
from divebook.agents.conversions import plain_json

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
"""Error categories of HTTP statuses, subclasses before their base classes."""


MOST_BODY = 8_000
"""Maximum number of recorded characters of a provider's error body."""


@contextmanager
def keepable_errors() -> Iterator[None]:
    """Reduce an error of a model, raised inside the block, to data that may be recorded.

    Headers are removed, because they identify accounts.
    """
    try:
        yield
    except ModelAPIError as error:
        make_keepable(error)
        raise


def make_keepable(error: ModelAPIError) -> None:
    """Reduce an error to data that may be recorded; see `keepable_errors`."""
    fields = vars(error)
    for name in [name for name in fields if name.startswith("_")]:
        del fields[name]  # attached by pydantic-ai, valid in this process only
    if "headers" in fields:
        fields["headers"] = None
    body = shared().value(plain_json(error.body, str))
    error.body = body if len(str(body)) <= MOST_BODY else f"{str(body)[:MOST_BODY]}..."
    error.message = shared().text(error.message)
    error.args = (error.message,)


_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError)
"""Errors that adapters of providers raise by accident if a reply lacks an expected part."""


@contextmanager
def readable_replies(model: str) -> Iterator[None]:
    """Raise a clear error if a provider's adapter fails on a malformed reply inside the block.

    Errors from a user's own model are not converted, because their traceback is more useful.

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
    """Convert the recorded error of a request to the class that pydantic-ai's code expects."""
    try:
        yield
    except OperationError as error:
        raised = _as_raised(error)
        if raised is error:  # an error must not become its own cause
            raise
        raise raised from error


def _as_raised(error: OperationError) -> Exception:
    """Return a recorded error; with a status, as an HTTP error of pydantic-ai.

    The class name alone is not enough: pydantic-ai creates the classes of errors with status and category dynamically,
    under the name of the category.
    """
    fields_of_error: Mapping[str, Any] = vars(error)
    if not isinstance(error, ModelAPIError) or not isinstance(fields_of_error.get("status_code"), int):
        return error
    category = next((category for category in CATEGORIES if category in type(error).__mro__), None)
    names = ("status_code", "model_name", "body", "provider_error_code", "provider_error_type", "retry_after")
    arguments: dict[str, Any] = {name: fields_of_error.get(name) for name in names}
    converted = ModelHTTPError.for_category(category, **arguments, in_stream=fields_of_error.get("in_stream") is True)
    converted.message = str(error)
    converted.args = (str(error),)
    return converted
