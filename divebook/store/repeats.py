"""Values that are written once though the records of a batch hold them several times.

What a step returns is the result of its call, its output and the value of a variable, and then the parameter of another
call. Within a record only the place of the first is written again (`divebook.store.facts`), so that a record can be
read by itself. What several records hold becomes a blob, as large values do (`divebook.store.blobs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from divebook.events.codec import encode
from divebook.events.recorded import TAG, Recorded
from divebook.store.blobs import BLOB_BYTES, MOST_OF_A_CHARACTER, is_large, outsource, reference
from divebook.store.facts import LEAST, Body, encode_facts, joined, places

NOTABLE = 384
"""Bytes of a record's data from which on it may hold something twice that is worth a reference."""
SHARED_BYTES = 512
"""Length of a value that is worth a blob because several records hold it."""
LARGE = b""
"""Stands for data that are not encoded yet, since values are to be put aside first."""


def spare(bodies: Sequence[Sequence[Body]], payloads: list[bytes]) -> dict[bytes, bytes]:
    """Encode the records of a batch anew where they hold long values twice, or large ones; return the blobs."""
    blobs: dict[bytes, bytes] = {}
    notable = [index for index, payload in enumerate(payloads) if payload is LARGE or len(payload) > NOTABLE]
    chosen = {index: _without_repeats(bodies[index]) for index in notable}
    longer = [index for index in notable if payloads[index] is LARGE or len(payloads[index]) > SHARED_BYTES]
    if len(longer) > 1:  # the others have no place for a value of that length
        chosen |= zip(longer, _share([chosen[index] for index in longer], blobs), strict=True)
    for index, body in chosen.items():
        if body is not bodies[index] and payloads[index] is not LARGE:
            payloads[index] = encode_facts(body)
        if payloads[index] is LARGE or len(payloads[index]) > BLOB_BYTES:
            lines, contents = zip(*map(outsource, body), strict=True)
            payloads[index] = joined(lines)
            for found in contents:
                blobs |= found
    return blobs


def _without_repeats(bodies: Sequence[Body]) -> Sequence[Body]:
    """Return the bodies of a record with references in place of values that an earlier one has in full."""
    known: list[tuple[Any, list[Any]]] = []
    shortened: list[Body] | None = None
    for holder, key, place in places(bodies) if len(bodies) > 1 else ():
        value = holder[key]
        for other, where in known:
            if (other is value or (type(value) is str and other == value)) and not _is_short(value):
                shortened = shortened or list(bodies)
                index = place[0]
                shortened[index] = _replaced(shortened[index], place[1:], {TAG: "same", "value": where})
                break
        else:
            known.append((value, place))
    return shortened or bodies


def _is_short(value: Any) -> bool:
    return isinstance(value, dict | list) and len(value) < LEAST and len(encode(value)) < LEAST


def _replaced(value: Any, place: Sequence[Any], by: Any) -> Any:
    """Return a copy of plain data with something else at a place."""
    if not place:
        return by
    copy = value.copy()
    copy[place[0]] = _replaced(value[place[0]], place[1:], by)
    return copy


def _share(bodies: Sequence[Sequence[Body]], blobs: dict[bytes, bytes]) -> list[Sequence[Body]]:
    """Return the bodies of records with references in place of values that stand there more than once.

    Large values are left alone: they become blobs anyway, whose content must not depend on what lies beside them.
    """
    counts = Counter(content for body in bodies for content in _middling(body))
    repeated = {content for content, count in counts.items() if count > 1}
    return [_shared(body, repeated, blobs) for body in bodies] if repeated else list(bodies)


def _middling(value: Any) -> Iterator[bytes]:
    """Give the JSON of every value in a body that is long enough to be worth a reference."""
    parts = value.values() if type(value) is dict else value if type(value) is list else ()
    for part in parts:
        content = _content(part)
        if content is not None:
            yield content
            yield from _middling(part)


def _shared(value: Any, repeated: Collection[bytes], blobs: dict[bytes, bytes]) -> Any:
    """Replace the outermost repeated values."""

    def shared(part: Any) -> Any:
        content = _content(part)
        if content is None:
            return part
        return reference(content, blobs) if content in repeated else _shared(part, repeated, blobs)

    if type(value) is dict:
        return {key: shared(part) for key, part in value.items()}
    return [shared(part) for part in value] if type(value) is list else value


def _content(value: Any) -> bytes | None:
    """Return the JSON of a value that is neither short nor large."""
    if isinstance(value, str | bytes):
        may_be = len(value) * MOST_OF_A_CHARACTER > SHARED_BYTES
    else:
        may_be = isinstance(value, dict | list | Recorded)
    content = encode(value) if may_be and not is_large(value) else b""
    return content if SHARED_BYTES < len(content) <= BLOB_BYTES else None
