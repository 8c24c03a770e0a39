"""URLs as they may be shown and kept: without their passwords."""

from __future__ import annotations

import re

HIDDEN = "***"
_PASSWORD = re.compile(r"(://[^/?#:@]*:)[^/?#]*(@)|([?&](?:ssl)?password=)[^&#]*()")


def without_password(url: str) -> str:
    """Return a URL as it may be shown and kept.

    Examples
    --------
    >>> without_password("postgresql://ann:secret@host/db")
    'postgresql://ann:***@host/db'
    """
    return _PASSWORD.sub(lambda found: f"{found[1] or found[3]}{HIDDEN}{found[2] or ''}", url)
