"""What somebody asks for that is no text, and so in no store: a file's name or an argument with bytes of its own."""

from __future__ import annotations

from divebook.errors import StoreError


def no_text(error: UnicodeEncodeError) -> StoreError:
    """Return the error for who asks for it: nothing is wrong with the store."""
    return StoreError(
        f"{error.object!a} cannot be looked up: it has half a character ({error.object[error.start]!a}), which no text "
        "in a store has. Check where it comes from"
    )
