"""Calls that returned, but whose result the log cannot hold: a UUID, a set, an open file, a value that is too large.

Such a call took effect. To make it again on resume could pay twice, so its end is an outcome of its own: it failed, and
its result was lost (`divebook.events.catalog.OperationFailed.lost`). A person is asked before it is made again
(`tests/execution/test_lost_results.py`). What can be kept of the result is kept for that question.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from divebook.errors import DivebookError
from divebook.text.redaction import shared
from divebook.text.shown import as_unicode

LOST = "__divebook_lost__"
"""Attribute of an error that was raised after the call had returned, also in another process: its result, described."""
FIELDS = {"type", "text", "digest"}
MOST_TEXT = 2_000
"""Characters of a result that are kept."""
MOST_OF_LONG = 100_000
"""Characters or bytes of a long string of which the description is made."""
ADVICE = "The call itself returned: resuming asks what its result was, and does not call again unasked"


def described(result: object) -> dict[str, str]:
    """Return what is kept of a result: its ``type``, its ``text`` without secrets, and the SHA-256 of that text."""
    kind = type(result)
    try:
        text = repr(result[:MOST_OF_LONG] if isinstance(result, str | bytes) else result)
    except BaseException as error:  # noqa: BLE001 - a person's class may raise anything when its repr is made
        text = f"<{kind.__name__}, whose repr raised {type(error).__name__}>"
    text = shared().text(as_unicode(text))
    digest = sha256(text.encode()).hexdigest()
    shown = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}... ({len(text) - MOST_TEXT:,} more characters)"
    return {"type": as_unicode(f"{kind.__module__}.{kind.__qualname__}"), "text": shown, "digest": digest}


def mark_lost(error: BaseException, result: object) -> None:
    """Note in an error that it was raised after the call had returned, and what that returned."""
    setattr(error, LOST, described(result))


def lost_in(error: BaseException) -> Mapping[str, str] | None:
    """Return the description of the result that `mark_lost` has noted, in the error or in one that it was raised from.

    One that was made up by a person's code, of other types, is none.
    """
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            return None
        lost = vars(link).get(LOST)
        if isinstance(lost, dict) and lost.keys() == FIELDS and all(isinstance(part, str) for part in lost.values()):
            return lost
        link = link.__cause__
    return None


def add_advice(error: BaseException) -> None:
    """Add to the message of one of divebook's errors what a resumption does."""
    if isinstance(error, DivebookError) and error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}. {ADVICE}", *error.args[1:])


def told_of(lost: Mapping[str, Any]) -> str:
    """Return what a person who is asked is told of the result."""
    return f"it returned {lost.get('text')} ({lost.get('type')}), which could not be recorded"
