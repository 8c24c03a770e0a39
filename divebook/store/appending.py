"""What comes of batches that are appended: at once, in a moment or later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from divebook.errors import InvalidEventError, StoreError

Refusal: TypeAlias = StoreError | InvalidEventError
"""Why a batch was not appended."""


class Appending(NamedTuple):
    """Batches that are appended while somebody waits a moment for it."""

    finish: Callable[[], list[Refusal | None]]
    """Returns what has come of them, and appends them where that has not begun; takes its time."""
    answers: Sequence[Exception | None] | None = None
    """What has come of them, if it took no longer."""
    is_begun: bool = False
    """Whether they are on their way."""
