"""Whether a value is what a rule of approvals says: read narrowly where the rule allows, widely where it does not.

A value of a rule is a text, in which ``*`` stands for any characters but ``/`` and ``**`` for any; or any other value,
which stands for itself; or ``{equals: value}``, for a text with ``*`` in it that stands for itself.
"""

from __future__ import annotations

import functools
import posixpath
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

from divebook.text.wildcards import Item, Repeated, WildcardMatcher

EQUALS = "equals"
LONGEST = 10_000
"""Characters of the longest text that a pattern allows."""
_FORMS: Final = frozenset("./\\:@#?%* ")
"""Characters that give texts, paths and addresses their form; what only resembles them may be read as them."""
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that nobody sees."""
_TRUE, _FALSE = frozenset({"true", "1", "yes", "y", "on", "t"}), frozenset({"false", "0", "no", "n", "off", "f"})
_MOST_LAYERS = 4
_MOST_BITS = 10_000
"""Of a whole number that can be read."""
_DOTS: Final = "\u3002"
"""What names of hosts take for a dot, beside what unicode does."""
_BY_NUMBER = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*://)(?:[^/?#]*@)?([^/?#@]*?)\.?(?::[0-9]*)?([/?#].*)?")
"""An address: how it is reached, the name of its host without user, last dot and port, and the rest."""


def exactly(value: Any) -> Any:
    """Return what a rule says where it means this value and no other.

    >>> exactly("a.txt"), exactly("*.txt")
    ('a.txt', {'equals': '*.txt'})
    """
    return {EQUALS: value} if _is_pattern(value) or _is_exact(value) else value


def _is_pattern(wanted: Any) -> bool:
    return isinstance(wanted, str) and "*" in wanted


def _is_exact(wanted: Any) -> bool:
    return isinstance(wanted, Mapping) and set(wanted) == {EQUALS}


def is_allowed_by(wanted: Any, value: Any) -> bool:
    """Return whether a rule that allows names this value: type, capitals and unicode form count.

    A text that could be read in two ways matches no pattern: one with ``..`` in it, with characters that nobody sees,
    with a backslash, with a space at an end, or not in its composed unicode form.
    """
    if _is_exact(wanted):
        return is_same(wanted[EQUALS], value)
    if not _is_pattern(wanted):
        return is_same(wanted, value)
    if not isinstance(value, str) or (seen := _plainly(value)) is None:
        return False
    fits = _matcher(wanted).matches
    return fits(value) and (seen == value or fits(seen))


def is_same(wanted: Any, value: Any) -> bool:
    """Return whether two values are equal, and of the same types all through: ``1`` is neither ``True`` nor ``1.0``."""
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return wanted.keys() == value.keys() and all(is_same(wanted[key], value[key]) for key in wanted)
    if isinstance(wanted, list | tuple) and isinstance(value, list | tuple):
        return len(wanted) == len(value) and all(map(is_same, wanted, value))
    return type(wanted) is type(value) and bool(wanted == value)


def _plainly(text: str) -> str | None:
    """Return a text without percent signs for characters; None if it could be read in other ways as well."""
    seen = None if len(text) > LONGEST else _unquoted(text)
    if seen is None or text != text.strip() or not unicodedata.is_normalized("NFC", seen):
        return None
    if "\\" in seen or any(map(_is_doubtful, seen)):
        return None
    return None if any(part and not part.strip(". ") for part in seen.split("/")) else seen


def _unquoted(text: str) -> str | None:
    """Return a text without percent signs for characters, in however many layers; None if there is no end of them."""
    for _ in range(_MOST_LAYERS):
        found = _once_unquoted(text)
        if found == text:
            return text
        text = found
    return None


def _once_unquoted(text: str) -> str:
    return _BY_NUMBER.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace"), text)


def _is_doubtful(character: str) -> bool:
    """Return whether nobody sees a character, or it may be read as one that gives texts their form."""
    if character.isascii():
        return not character.isprintable()
    return _is_unseen(character) or bool(_FORMS & set(unicodedata.normalize("NFKC", character)))


def _is_any(_character: str) -> bool:
    return True


def _is_in_part(character: str) -> bool:
    return character != "/"


def _is_in_host(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "-.")


_ANY, _IN_PART, _IN_HOST = Repeated(_is_any), Repeated(_is_in_part), Repeated(_is_in_host)
"""Wildcards: for any characters, those of one part of a path, those of a host's name."""


@functools.lru_cache(maxsize=256)
def _matcher(pattern: str) -> WildcardMatcher:
    """Return the matcher of a pattern; in the host of an address ``*`` stands for its letters only."""
    scheme, colon, rest = pattern.partition("://")
    if not colon:
        return WildcardMatcher(_wildcards(pattern, _ANY, _IN_PART))
    host, slash, path = rest.partition("/")
    within = _wildcards(host, _IN_HOST, _IN_HOST) if slash or host.strip("*") else _wildcards(host, _ANY, _IN_HOST)
    start = [*_wildcards(scheme, _IN_HOST, _IN_HOST), *colon, *within, *slash]
    return WildcardMatcher([*start, *_wildcards(path, _ANY, _IN_PART)])


def _wildcards(pattern: str, double: Repeated, single: Repeated) -> list[Item]:
    items: list[Item] = []
    for index, piece in enumerate(pattern.split("**")):
        items += [double] if index else []
        items += [single if character == "*" else character for character in piece]
    return items


def is_met_by(wanted: Any, value: Any) -> bool:
    """Return whether a rule that asks or denies is about this value, in any way in which it could be meant.

    What stands in a list or in a mapping counts too, unless the rule says a list or a mapping itself.
    """
    plain = wanted[EQUALS] if (is_exact := _is_exact(wanted)) else wanted
    if isinstance(plain, list | tuple):
        return all(is_met_by(item, value) for item in plain)
    if isinstance(value, list | tuple):
        return any(is_met_by(wanted, item) for item in value)
    if isinstance(plain, Mapping):
        return isinstance(value, Mapping) and are_met_by(plain, value)
    if isinstance(value, Mapping):
        return any(is_met_by(wanted, item) for item in value.values())
    if plain is None or value is None:
        return plain is value
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return True  # nobody can read it, and no rule can be said not to mean it
    if isinstance(plain, bool):
        return _worded(value) in (_TRUE if plain else _FALSE)
    said = _worded(plain)
    pieces = [said] if is_exact else said.split("*")
    # A path from somewhere else may end in what is wanted.
    tail = ["", f"/{pieces[0]}", *pieces[1:]]
    may_end = not said.startswith(("/", "~", "*"))
    return any(
        _is_made_of(pieces, reading) or (may_end and reading.startswith(("/", "~")) and _is_made_of(tail, reading))
        for reading in _readings(value)
    )


def are_met_by(wanted: Mapping[str, Any], values: Mapping[Any, Any]) -> bool:
    """Return whether what stands under each name is meant; some readers take names as alike that differ in capitals."""
    read = [(_worded(name), value) for name, value in values.items()]
    names = [(_worded(name), said) for name, said in wanted.items()]
    return all(any(name == here and is_met_by(said, value) for here, value in read) for name, said in names)


def _worded(value: Any, between: str = " ") -> str:
    """Return a value as a text without regard to capitals, unicode form, what nobody sees, and spaces around it.

    `between` stands for ends of lines and tabs, which some readers take for spaces and others leave out.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", str(value)).casefold())
    there = set(folded)  # a text may be long: each character is looked at once
    table = {ord(c): between for c in there if c.isspace() and c != " "}
    table |= {ord(c): "" for c in there if ord(c) not in table and _is_unseen(c)}
    table |= dict.fromkeys(map(ord, _DOTS), ".")
    return folded.translate(table).strip()


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN


def _readings(value: Any) -> Iterator[str]:
    """Return the ways in which a value can be read: as it stands, without quotes, as a path, as an address."""
    for text in {_worded(value): None, _worded(value, ""): None}:
        yield text
        plain = _worded(_unquoted(text) or _once_unquoted(text), "").strip("'\"` ")
        yield plain
        yield from _paths(plain)
        yield from _addresses(plain)


def _paths(text: str) -> Iterator[str]:
    """Return a text as a path without detours."""
    path = posixpath.normpath("/".join(part.strip() for part in text.replace("\\", "/").split("/")))
    yield path[1:] if path.startswith("//") else path  # POSIX leaves two there, and means what one means
    if path.startswith("../"):
        yield "/" + path.replace("../", "")


def _addresses(text: str) -> Iterator[str]:
    """Return an address without the user, port and last dot of its host, which lead to the same place."""
    found = _ADDRESS.fullmatch(text.replace("\\", "/"))
    if found is None:
        return
    scheme, host, rest = found.groups("")
    path, mark, query = rest.partition("?")
    place = posixpath.normpath(path) if path else ""
    for ending in ("", "/") if place in ("", "/") else (place,):  # an address without a path has the path /
        yield f"{scheme}{host}{ending}{mark}{query}"
    if scheme == "file://":
        yield from _paths(path)


def _is_made_of(pieces: list[str], text: str) -> bool:
    """Return whether the text consists of the pieces with anything between them."""
    if len(pieces) == 1:
        return text == pieces[0]
    first, *inner, last = pieces
    if not (text.startswith(first) and text.endswith(last) and len(text) >= len(first) + len(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in inner:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True
