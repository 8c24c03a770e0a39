"""Ids of events as 16 bytes each."""

from __future__ import annotations

from divebook.events.ids import ALPHABET, PAIRS

_PREFIX = "event_"
_LENGTH = len(_PREFIX) + 26
_DIGITS = dict(zip(ALPHABET, "0123456789abcdefghijklmnopqrstuv", strict=True))  # those of int(text, 32)
_TO_DIGITS = "".join(_DIGITS.get(chr(code), "!") for code in range(256)).encode()  # int() refuses "!"
_SHIFTS = tuple(range(120, -1, -10))


def pack_id(event_id: str) -> bytes | str:
    """Return the 16 bytes that stand for ``event_`` and 26 characters; any other text as it is."""
    if len(event_id) != _LENGTH or not event_id.startswith(_PREFIX):
        return event_id
    try:
        return int(event_id[6:].encode().translate(_TO_DIGITS), 32).to_bytes(16, "big")
    except (ValueError, OverflowError):  # not in the alphabet (surrogates: not in UTF-8), or more than 128 bits
        return event_id


def unpack_id(packed: bytes | str) -> str:
    """Undo `pack_id`; what is damaged becomes a text that no event has."""
    if not isinstance(packed, bytes):
        return str(packed)
    value = int.from_bytes(packed, "big")
    return _PREFIX + "".join([PAIRS[value >> shift & 0x3FF] for shift in _SHIFTS])
