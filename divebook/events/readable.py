"""Recorded values as people read them."""

from __future__ import annotations

import json
from typing import Any

from divebook.events.codec import encode_shown
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
