"""Text and data of models, users and logs as they may be shown: what a reader sees is what is there.

Control characters could move a cursor, change colours or reorder what is read; here they become visible escapes.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from divebook.events.codec import encode_shown
from divebook.events.values import normalize

_CONTROLS = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"
_REORDERING = "\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff"
UNSAFE = re.compile(f"[{_CONTROLS}{_REORDERING}]")
_TEXT_BEHIND_CUT = 400


def visible(text: str) -> str:
    r"""Return the text with control characters and direction marks spelled out; line ends and tabs stay.

    >>> visible("a\x1b[31mb\u202ec")
    'a\\x1b[31mb\\u202ec'
    """
    return UNSAFE.sub(_spelled, text.replace("\r\n", "\n"))


def _spelled(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def cut(text: str, limit: int) -> str:
    """Return the text, shortened to about `limit` characters with a count of what is missing.

    >>> cut("abcdefgh", 5)
    'abcde… (3 more characters)'
    """
    missing = len(text) - limit
    if missing <= 0:
        return text
    return f"{text[:limit]}… ({missing:,} more character{'s' if missing > 1 else ''})"


def one_line(text: str, width: int) -> str:
    r"""Return the text on one line, at most `width` characters of it.

    >>> one_line("first line\nsecond", 14)
    'first line se…'
    """
    flat = " ".join(text[: width + _TEXT_BEHIND_CUT].split())
    return visible(flat if len(flat) <= width else f"{flat[: width - 1]}…")


def value_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value for people: a text as it is, a frame or the like in a few words, anything else as JSON.

    >>> value_text({"big": 10**30, "small": [1]})
    '{"big": 1000000000000000000000000000000, "small": [1]}'
    """
    if isinstance(value, str):
        return visible(value)
    data = json.loads(encode_shown(normalize(value)))
    return visible(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=indent))


def seconds(value: float) -> str:
    """Return a duration in the unit that suits it.

    >>> seconds(0.0042), seconds(3.21), seconds(75), seconds(7300)
    ('4 ms', '3.2 s', '1 min 15 s', '2 h 01 min')
    """
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(count: int) -> str:
    """Return a number of bytes in the unit that suits it.

    >>> size(812), size(1_240), size(3_400_000), size(999_960)
    ('812 B', '1.2 kB', '3.4 MB', '1.0 MB')
    """
    if count < 1000:
        return f"{count} B"
    value, units = count / 1000, ["kB", "MB", "GB", "TB"]
    while value >= 999.95 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.1f} {units[0]}"


def local_time(moment: datetime | None) -> str:
    """Return a time as people read it, on their own clock."""
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "model call"), plural(1200, "token")
    ('1 model call', '1,200 tokens')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
