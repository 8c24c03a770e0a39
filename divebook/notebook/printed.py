"""What magics print: their answers, without secrets and control characters."""

from __future__ import annotations

import sys

from divebook.text.redaction import shared
from divebook.text.shown import visible


def tell(text: str) -> None:
    """Print an answer."""
    sys.stdout.write(visible(shared().text(text)) + "\n")
