"""What a provider says of batches, as this can be used: what passes, what is lost, what can be read of results."""

from __future__ import annotations

import json

from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models.batch import BatchResult

from divebook.text.redaction import shared

_REFUSED = range(400, 500)
"""What a provider answers that has made nothing of a request."""
TOO_MANY = 429
_HIDDEN = (403, 404, 405)
"""What a provider answers to a key that may not list batches, or a server that has no list of them."""
_LOST = (404, 410)
"""What a provider answers that does not have something any more; 401 and 403 are of the key, which can be set right."""
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)
"""What clients raise where an answer is none of the provider's."""
JOB_ERROR = "BatchJobError"
"""The class of errors of a batch that has ended without results, which its library keeps to itself."""
AGAIN = "retry_failed() asks again, and what was paid for is paid for twice"


def result_in(line: str) -> BatchResult | None:
    """Return what a line of OpenAI's results says of a request, if it can be read."""
    try:
        told = json.loads(line)
        name, answered = told["custom_id"], told.get("response") or {"status_code": 500, "body": told.get("error")}
        is_right = 200 <= answered["status_code"] < 300
    except UNREADABLE:
        return None
    body = json.dumps(answered["body"] if is_right else answered)
    return BatchResult(custom_id=str(name), status="succeeded" if is_right else "errored", body=body)


def is_hidden(error: ModelAPIError) -> bool:
    """Whether the provider does not list batches, to this key or at all."""
    return isinstance(error, ModelHTTPError) and error.status_code in _HIDDEN


def is_lost(error: ModelAPIError) -> bool:
    """Whether the provider does not have what was asked for any more."""
    return isinstance(error, ModelHTTPError) and error.status_code in _LOST


def told_of(error: Exception) -> str:
    """Return an error in a line."""
    return shared().text(f"{type(error).__name__}: {' '.join(str(error).split())}")[:200]


def passes(error: ModelAPIError) -> bool:
    """Whether a later request may succeed where this one failed."""
    return not isinstance(error, ModelHTTPError) or error.status_code in (408, 429) or error.status_code not in _REFUSED
