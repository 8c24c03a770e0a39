"""Long texts, each once, and plain data in which their numbers stand in their place.

A text of a run stands in up to five of its events, and deflate looks back 32 KiB only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

LONG_TEXT = 24
"""Characters from which on a text stands in the list of texts."""
MARK, LITERAL = "\x7f", "'"
"""What begins the number of a text, and what follows the mark where a text begins with it itself."""
_BORDER = re.compile(r"(\n|^#+ [^\n:]{1,60}: )", re.MULTILINE)


class LongTexts:
    """Long texts, each once; those that begin alike stand together, since deflate finds them there.

    A text of several lines is a list of its pieces: what a model wrote stands once more in a document of all answers
    (test_a_document_of_all_answers_costs_little).

    Parameters
    ----------
    value
        Plain data with the texts in it.
    known
        LongTexts that are listed elsewhere, to whose end these are added.
    """

    def __init__(self, value: Any, known: LongTexts | None = None) -> None:
        alike: dict[str, list[str]] = {}
        self._places: dict[str, int] = {} if known is None else known.places()
        first, seen = len(self._places), set(self._places)
        for text in _texts_in(value):
            for piece in (*_pieces(text), text):
                if len(piece) >= LONG_TEXT and piece not in seen:
                    seen.add(piece)
                    alike.setdefault(piece[:LONG_TEXT], []).append(piece)
        ordered = [text for texts in alike.values() for text in sorted(texts, key=len)]
        self._places |= {text: first + number for number, text in enumerate(ordered)}
        self.listed: list[Any] = [pieces if (pieces := self._pieced(text)) else text for text in ordered]
        """What the part has: a text, or a list of what makes it."""

    def places(self) -> dict[str, int]:
        """Return the numbers of the texts."""
        return {**self._places}

    def without(self, value: Any) -> Any:
        """Return plain data in which the number of a text stands where the text was."""
        if isinstance(value, str):
            return self._short(value)
        if isinstance(value, list):
            return [self.without(part) for part in value]
        return {name: self.without(part) for name, part in value.items()} if isinstance(value, dict) else value

    def _pieced(self, text: str) -> list[str]:
        return [self._short(piece) for piece in _pieces(text)]

    def _short(self, text: str) -> str:
        if len(text) < LONG_TEXT:
            return f"{MARK}{LITERAL}{text}" if text.startswith(MARK) else text
        return f"{MARK}{self._places[text]}"


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= LONG_TEXT:
            yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(part)


def _pieces(text: str) -> list[str]:
    """Return the lines of a text, their ends and the names of headings by themselves; nothing for a single line."""
    return [piece for piece in _BORDER.split(text) if piece] if "\n" in text else []


def whole_texts(listed: Sequence[Any], known: Sequence[str] = ()) -> list[str]:
    """Return listed texts, which follow those that are known, as they were; raises what `with_texts` does."""
    found: list[Any] = [*known, *listed]
    return ["".join(with_texts(text, found)) if isinstance(text, list) else str(text) for text in found]


def with_texts(value: Any, texts: Sequence[str]) -> Any:
    """Return plain data with the texts whose numbers it has; raises IndexError, TypeError or ValueError."""
    if isinstance(value, str) and value.startswith(MARK):
        return value[2:] if value.startswith(LITERAL, 1) else texts[int(value[1:])]
    if isinstance(value, list):
        return [with_texts(part, texts) for part in value]
    return {name: with_texts(part, texts) for name, part in value.items()} if isinstance(value, dict) else value
