"""Recorded values in place of what people are shown of them, where an answer gives arguments back.

A card shows a date as text and a frame as a few words. Who answers with other arguments sends all of them, so that the
unchanged ones come back in that form. For the arguments ``{"day": date(2026, 1, 2), "n": 1}`` the answer
``{"day": "2026-01-02", "n": 5}`` means ``{"day": date(2026, 1, 2), "n": 5}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from itertools import zip_longest
from typing import Any

from divebook.events.codec import encode_shown

_PLAIN = frozenset({str, int, float, bool, type(None), list, dict})
_READERS: tuple[tuple[type, Callable[[str], Any]], ...] = (
    (datetime, datetime.fromisoformat),
    (date, date.fromisoformat),
    (Decimal, Decimal),
)
"""Types whose text can be edited, and what reads it; a datetime is a date too."""


def with_originals(answer: Any, recorded: Any) -> Any:
    """Return a part of an answer with the recorded values that it repeats in the form in which they are shown.

    A text in place of a date, a datetime or a decimal is read as one.
    """
    if isinstance(answer, Mapping) and type(recorded) is dict:
        return {name: with_originals(value, recorded.get(name)) for name, value in answer.items()}
    if isinstance(answer, list) and isinstance(recorded, list):
        pairs = zip_longest(answer, recorded[: len(answer)])
        return [with_originals(value, original) for value, original in pairs]
    if type(recorded) in _PLAIN:
        return answer
    forms = [json.loads(encode_shown(recorded, tagged=tagged)) for tagged in (False, True)]
    if answer in (*forms, str(recorded)):
        return recorded
    reader = next((read for kind, read in _READERS if isinstance(recorded, kind)), None)
    if reader is None or not isinstance(answer, str):
        return answer
    try:
        return reader(answer)
    except (ValueError, InvalidOperation):
        return answer
