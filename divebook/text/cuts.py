"""Texts that are shown in part: what is cut loses its secrets first; half of one shows no sign."""

from __future__ import annotations

from collections.abc import Callable

from divebook.text.redaction import shared
from divebook.text.shown import visible

TEXT_BEHIND_CUT = 400
"""Characters after a cut that are looked at: what ends behind it may begin before it."""


def cut(text: str, limit: int) -> str:
    """Return the text, shortened to about `limit` characters with a count of what is missing.

    >>> cut("abcdefgh", 5)
    'abcde… (3 more characters)'
    """
    missing = len(text) - limit
    if missing <= 0:
        return text
    kept = shared().text(text[: limit + TEXT_BEHIND_CUT])[:limit]
    return f"{kept}… ({missing:,} more character{'s' if missing > 1 else ''})"


def head_and_tail(text: str, most: int, clean: Callable[[str], str] = str) -> str:
    r"""Return the text, of a long one its beginning and its end; `clean` takes secrets out before they are cut.

    >>> head_and_tail("a" * 50 + "z" * 50, 20)
    'aaaaaaaaaa\n... 80 characters left out; the whole is in the log ...\nzzzzzzzzzz'
    """
    if len(text) <= most:
        return text
    half = most // 2
    head = clean(text[: half + TEXT_BEHIND_CUT])[:half]
    tail = clean(text[-half - TEXT_BEHIND_CUT :])[-half:]
    return f"{head}\n... {len(text) - 2 * half:,} characters left out; the whole is in the log ...\n{tail}"


def one_line(text: str, width: int) -> str:
    r"""Return the text on one line, at most `width` characters of it.

    >>> one_line("first line\nsecond", 14)
    'first line se…'
    """
    flat = " ".join(text[: width + TEXT_BEHIND_CUT].split())
    flat = flat if len(flat) <= width else shared().text(flat)
    return visible(flat if len(flat) <= width else f"{flat[: width - 1]}…")
