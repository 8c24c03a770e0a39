"""Lines of a text as git, editors and people count them: a line feed ends one, and nothing else does."""

from __future__ import annotations

from io import StringIO


def lines_in(text: str) -> list[str]:
    r"""Return the lines of a text with their ends.

    `str.splitlines` ends lines at form feeds and other marks too, so that numbers differ from those of other programs.

    >>> lines_in("a\x0cb\r\n\u2028c")
    ['a\x0cb\r\n', '\u2028c']
    """
    return StringIO(text).readlines()
