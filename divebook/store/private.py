"""Files that only their owner may read: stores and what lies beside them, exports."""

from __future__ import annotations

import os

FILE, FOLDER = 0o600, 0o700


def opener(path: str, flags: int) -> int:
    """Open a file for `open`; one that is new belongs to its owner only."""
    return os.open(path, flags, FILE)
