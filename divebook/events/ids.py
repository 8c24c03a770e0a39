"""Identifiers in TypeID form: a prefix, an underscore, and a UUIDv7 as 26 characters of Crockford base32.

The clock and the chance they need come from outside, so that this module stays pure.
"""

from __future__ import annotations

import functools

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's, of five bits a letter."""
PAIRS = tuple(high + low for high in ALPHABET for low in ALPHABET)
"""Every two letters, in order: what ten bits are written as."""
_NUMBERS = {pair: number for number, pair in enumerate(PAIRS)}


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
    low = 0x7 << 76 | (chance >> 62 & 0xFFF) << 64 | 0x2 << 62 | chance & 0x3FFF_FFFF_FFFF_FFFF
    letters = "".join([PAIRS[low >> shift & 0x3FF] for shift in (70, 60, 50, 40, 30, 20, 10, 0)])
    return f"{prefix}_{_time_letters(milliseconds & 0xFFFF_FFFF_FFFF)}{letters}"


def successor(identifier: str, places: int) -> str:
    """Return the identifier so many places after another; its last two letters count, and must not overflow.

    Raises
    ------
    ValueError
        The identifier does not end with two such letters, or there are not so many places after it.

    Examples
    --------
    >>> successor("event_01k0000000e0000000000000zz"[:-2] + "0z", 1)[-2:]
    '10'
    """
    number = _NUMBERS.get(identifier[-2:], len(PAIRS)) + places
    if number >= len(PAIRS):
        raise ValueError(f"there is no identifier {places} places after {identifier!r}")
    return identifier[:-2] + PAIRS[number]


def place_of(identifier: str) -> tuple[str | tuple[str], int]:
    """Return what an identifier has in common with its successors, and its place among them.

    One that has no successors is in a tuple, at place 0, so that it is not taken for the beginning of another.

    Examples
    --------
    >>> place_of("event_01k0000000e00000000000000z")
    ('event_01k0000000e0000000000000', 31)
    """
    place = _NUMBERS.get(identifier[-2:])
    return ((identifier,), 0) if place is None else (identifier[:-2], place)


@functools.lru_cache(maxsize=4)
def _time_letters(milliseconds: int) -> str:
    """Return the first ten letters, which all identifiers of one millisecond share."""
    return "".join([PAIRS[milliseconds >> shift & 0x3FF] for shift in (40, 30, 20, 10, 0)])
