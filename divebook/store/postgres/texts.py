r"""Texts as Postgres takes them: without NUL, which it refuses in every text and in JSON.

Lists, ids and prefixes stay what they are, since each character is written by itself.
"""

from __future__ import annotations

import re
from typing import overload

_ESCAPED = re.compile(r"\\([0\\])")


@overload
def escaped(text: str) -> str: ...
@overload
def escaped(text: None) -> None: ...
def escaped(text: str | None) -> str | None:
    r"""Return a text without NUL.

    Examples
    --------
    >>> escaped("a\0b"), escaped("plain")
    ('a\\0b', 'plain')
    """
    if text is None or ("\0" not in text and "\\" not in text):
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


@overload
def unescaped(text: str) -> str: ...
@overload
def unescaped(text: None) -> None: ...
def unescaped(text: str | None) -> str | None:
    """Undo `escaped`."""
    if text is None or "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else "\\", text)
