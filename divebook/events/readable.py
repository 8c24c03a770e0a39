"""Recorded values as people read them, and as JSON for other programs."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from divebook.errors import DivebookError
from divebook.events.codec import encode_shown
from divebook.events.recorded import Recorded
from divebook.events.values import normalize
from divebook.text.shown import visible


def readable(value: Any, *, indent: int | None = None) -> str:
    """Return a value for people: a text as it is, a frame or the like in a few words, anything else as JSON.

    >>> readable({"big": 10**30, "small": [1]})
    '{"big": 1000000000000000000000000000000, "small": [1]}'
    """
    if isinstance(value, str):
        return visible(value)
    if type(value) is int:
        return str(value)
    data = json.loads(encode_shown(normalize(value)))
    return visible(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=indent))


def json_form(value: Any) -> Any:
    """Return a value as JSON that any program reads, by one rule for every place where divebook gives results away.

    Dates, times, decimals, fractions, paths, UUIDs and addresses become strings, a timedelta an ISO 8601 duration
    (``PT90S``); bytes become base64; NaN and infinities null; a tuple or set becomes a list; a key of a mapping becomes
    a string; a dataclass, pydantic model or named tuple becomes an object, an enum its value; a frame becomes a list of
    records. A value without such a form, such as a frame that is too large for a list, becomes a string that describes
    it.

    >>> json_form({1: (float("nan"), b"a", Decimal("0.10"))})
    {'1': [None, 'YQ==', '0.10']}
    """
    return _json_form(normalize(value))


def _json_form(value: Any) -> Any:
    match value:
        case Recorded():
            try:
                return _json_form(value.plain())
            except (ValueError, DivebookError):
                return value.summary()
        case float():
            return float(value) if math.isfinite(value) else None
        case bytes():
            return base64.b64encode(value).decode()
        case timedelta():
            return _duration(value)
        case date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case dict():
            return {_json_key(key): _json_form(item) for key, item in value.items()}
        case list() | tuple():
            return [_json_form(item) for item in value]
    return value if value is None or isinstance(value, str | int) else str(value)


def _duration(value: timedelta) -> str:
    microseconds = abs(value) // timedelta(microseconds=1)
    seconds = f"{microseconds // 10**6}.{microseconds % 10**6:06}".rstrip("0").rstrip(".")
    return f"{'-' if value < timedelta() else ''}PT{seconds}S"


def _json_key(key: Any) -> str:
    form = _json_form(key)
    return form if isinstance(form, str) else json.dumps(form)
