"""Identifiers in TypeID form: a prefix, an underscore, and a UUIDv7 as 26 characters of Crockford base32.

The clock and the chance they need come from outside, so that this module stays pure.
"""

from __future__ import annotations

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_RANDOM_BITS = 74


def type_id(prefix: str, milliseconds: int, chance: int) -> str:
    """Return an identifier that sorts by time.

    Parameters
    ----------
    prefix
        ``exec``, ``event``, ...
    milliseconds
        Since 1970; 48 bits of it are used.
    chance
        74 random bits.
    """
    high, low = chance >> 62 & 0xFFF, chance & 0x3FFF_FFFF_FFFF_FFFF
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | 0x7000 << 64 | high << 64 | 0x2 << 62 | low
    return f"{prefix}_{''.join([_PAIRS[value >> shift & 0x3FF] for shift in range(120, -1, -10)])}"
