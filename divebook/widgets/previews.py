"""What an operation was given and what came of it in one short line, however large the values are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from divebook.engine.operations import AGENT_RESPONSE, CACHED_RESPONSE, NAMED_BY
from divebook.events.readable import readable
from divebook.history.spans import Span
from divebook.text.cuts import TEXT_BEHIND_CUT, one_line

PREVIEW_WIDTH = 100
_LOOKED_AT = PREVIEW_WIDTH + TEXT_BEHIND_CUT
"""Characters that are written down: those behind the cut show whether it goes through a secret."""
_ANSWERS = (AGENT_RESPONSE, CACHED_RESPONSE)
_MAX_BITS = 256
"""Longer whole numbers are told by their length: to write down their digits takes long."""
_GIVEN = ("params", "arguments", "script", "prompt", "content")
"""Parameters that alone say what was asked for, the most telling first."""


def given_of(span: Span) -> str:
    """Return the arguments of an operation; empty for all else."""
    given = span.parameters
    if span.kind != "operation" or not given:
        return ""
    telling = next((given[key] for key in _GIVEN if given.get(key)), None)
    if telling is not None:
        return preview(telling)
    naming = NAMED_BY.get(span.type)
    return preview({key: value for key, value in given.items() if key != naming and not _is_empty(value)})


def came_of(operation_type: str, result: Any) -> str:
    """Return what came of an operation; of a model's answer its text."""
    parts = result.get("parts") if operation_type in _ANSWERS and isinstance(result, Mapping) else None
    texts = (part["content"] for part in parts or () if part.get("part_kind") == "text")
    return preview(next(texts, result))


def preview(value: Any) -> str:
    """Return a value on one line: a text as it is, all else as the beginning of its JSON.

    >>> preview({"category": "billing", "rows": list(range(1000))})[:60]
    '{"category": "billing", "rows": [0, 1, 2, 3, 4, 5, 6, 7, 8, '
    >>> preview("x" * 10_000_000)[-3:]
    'xx…'
    """
    if _is_empty(value):
        return ""
    pieces = [value[:_LOOKED_AT]] if isinstance(value, str) else _begun(_pieces(value))
    return one_line("".join(pieces), PREVIEW_WIDTH)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping | list | tuple) and not value)


def _begun(pieces: Iterator[str]) -> Iterator[str]:
    """Yield pieces of a text until there are enough."""
    length = 0
    for piece in pieces:
        yield piece
        length += len(piece)
        if length > _LOOKED_AT:
            return


def _pieces(value: Any) -> Iterator[str]:
    """Yield the JSON of a value piece by piece, no more of a long text than is looked at."""
    if isinstance(value, str):
        yield json.dumps(value[:_LOOKED_AT], ensure_ascii=False)
    elif isinstance(value, Mapping):
        yield from _listed(
            "{}", ((f"{json.dumps(str(key), ensure_ascii=False)}: ", part) for key, part in value.items())
        )
    elif isinstance(value, list | tuple):
        yield from _listed("[]", (("", part) for part in value))
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        yield f"a number of {value.bit_length():,} bits"
    else:
        yield readable(value)


def _listed(brackets: str, parts: Iterable[tuple[str, Any]]) -> Iterator[str]:
    yield brackets[0]
    for place, (name, part) in enumerate(parts):
        yield f", {name}" if place else name
        yield from _pieces(part)
    yield brackets[1]
