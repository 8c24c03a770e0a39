"""Values made short enough to be sent to a browser: long texts cut, and what is too much left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from divebook.errors import UnstorableValueError
from divebook.events.codec import encode
from divebook.text.cuts import cut

MAX_TEXT = 20_000
"""Characters of one text."""
LEAST_TEXT, COST_OF_VALUE = 200, 8


def is_short(value: Any, characters: int) -> bool:
    """Return whether plain JSON is so short that no `Budget` of so many characters would cut anything of it.

    To encode it takes a fraction of the time of a walk through it, and most of what a log holds is short.
    """
    try:
        return len(encode(value)) * COST_OF_VALUE <= characters
    except UnstorableValueError:
        return False


class Budget:
    """How many characters may still be sent; `text` is the most of one text."""

    def __init__(self, characters: int, text: int = MAX_TEXT) -> None:
        self._left, self._text = characters, text

    def plain(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return stored values as JSON, shortened."""
        shortened = self.shortened(json.loads(encode(dict(values))))
        return {str(key): value for key, value in shortened.items()}

    def shortened(self, value: Any) -> Any:
        """Return plain JSON with its long texts cut, and the rest of what is too much left out."""
        match value:
            case str():
                text = cut(value, max(min(self._text, self._left), LEAST_TEXT))
                self._left -= len(text)
                return text
            case list():
                parts = [self.shortened(part) for part in value if self._left > 0]
                missing = len(value) - len(parts)
                return [*parts, f"… ({missing:,} more)"] if missing else parts
            case dict():
                kept = {key: self.shortened(part) for key, part in value.items() if self._left > 0}
                missing = len(value) - len(kept)
                return kept | {"…": f"({missing:,} more)"} if missing else kept
        self._left -= COST_OF_VALUE
        return value
