"""Text and data of models, users and logs as they may be shown: what a reader sees is what is there.

Control characters could move a cursor, change colours or reorder what is read; here they become visible escapes.
"""

from __future__ import annotations

import re

_CONTROLS = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"
_REORDERING = "\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff"
_TEN_CENTS = 0.1
AS_TEXT = "mathjax_ignore tex2jax_ignore"
"""The class of HTML in which pages look for no formulas: else one begins and ends with an amount in dollars
(`tests/notebook/test_looking.py`)."""
UNSAFE = re.compile(f"[{_CONTROLS}{_REORDERING}]")


def visible(text: str) -> str:
    r"""Return the text with control characters and direction marks spelled out; line ends and tabs stay.

    >>> visible("a\x1b[31mb\u202ec")
    'a\\x1b[31mb\\u202ec'
    """
    return UNSAFE.sub(_spelled, text.replace("\r\n", "\n"))


def _spelled(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def as_unicode(text: str) -> str:
    r"""Return the text as UTF-8 can hold it: half of a surrogate pair is spelled out.

    >>> as_unicode("a\ud800")
    'a\\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode()


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


def branch_name(path_id: str) -> str:
    """Return what people call a path: nothing for the one that a run begins with.

    >>> branch_name("main"), branch_name("main-1"), branch_name("main-1-2"), branch_name("rollback-3")
    ('', 'branch 1', 'branch 1.2', 'rollback 3')
    """
    kind, _, numbers = path_id.partition("-")
    named = "rollback" if kind == "rollback" else "branch"
    return f"{named} {numbers.replace('-', '.')}" if numbers else ""


def price(dollars: float) -> str:
    """Return a cost: cents where they tell enough.

    >>> price(0.00412), price(1.956), price(0)
    ('$0.0041', '$1.96', '$0.00')
    """
    return f"${dollars:.4f}" if 0 < dollars < _TEN_CENTS else f"${dollars:,.2f}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "model call"), plural(1200, "token")
    ('1 model call', '1,200 tokens')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
