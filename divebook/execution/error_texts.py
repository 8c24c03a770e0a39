"""The message of an error as the log keeps it: without secrets, which those who raise it put into it without a thought.

So a log holds none that only an error has told, and code that catches an error meets the same text live and on replay.
"""

from __future__ import annotations

from divebook.engine.retries import failure_text, text_of
from divebook.text.redaction import shared


def clean_text(error: BaseException) -> str:
    """Return an error's message without secrets, as a log can hold it."""
    return text_of(error, shared().text)


def clean_failure(error: BaseException) -> str:
    """Return the same, with the class of an error that is not ours."""
    return failure_text(error, shared().text)
