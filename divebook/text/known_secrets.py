"""Secrets that are known by their value: where they are found in data, and the forms in which they turn up in texts.

A value that a definition names (``env://KEY``), or that is sent to a provider, may be anything. So it is looked for as
it is and as programs write it: escaped, wrapped, in an address, in base64 as in the header of a name and password, and
by those of its lines and fields that would do alone.
"""

from __future__ import annotations

import json
import os
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from divebook.text.secret_names import looks_secret
from divebook.text.secret_values import HIDDEN, is_plain

LEAST_SECRET = 8
"""Characters below which a value is hidden only where it stands under its name: it would occur by chance."""
_LEAST_ENCODED = 12
"""Characters from which a value is looked for in base64 as well."""
_LEAST_LINE = 16
"""Characters from which a line of a value is a secret by itself, if it is not words."""
_MOST_PARTS = 200
"""Lines and fields of one value, such as a file of credentials, that are looked for by themselves."""
_FOLDERS = ("PWD", "OLDPWD")
BARE = (str, int, float, type(None))
"""Values without parts, of which a log has more than of all others: they are passed over quickly."""


class KnownSecrets:
    """Texts that are found wherever they occur, the longest first; threads may add some while others look."""

    def __init__(self) -> None:
        self._texts: tuple[str, ...] = ()
        self._adding = threading.Lock()

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, texts: Iterable[str]) -> None:
        """Take more of them."""
        with self._adding:
            self._texts = tuple(sorted({*self._texts, *texts}, key=len, reverse=True))

    def settled(self, text: str, end: int) -> int:
        """Return how much of a text that still grows, up to an end, holds no part of one that goes on behind it."""
        for secret in self._texts:
            place = text.find(secret[0], max(0, len(text) - len(secret) + 1))
            while 0 <= place < end:
                if secret.startswith(text[place:]):
                    end = place
                place = text.find(secret[0], place + 1)
        while cut := [
            place for each in self._texts if 0 <= (place := text.find(each, max(0, end - len(each) + 1))) < end
        ]:
            end = min(cut)  # nor does it end within a whole one
        return end

    def hidden(self, text: str) -> str:
        """Return a text without them."""
        for secret in self._texts:  # one pattern of all would be tried branch by branch at each character
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return text


def forms_of(secret: str) -> set[str]:
    """Return a secret as it is, on one line, inside JSON, and inside an address.

    >>> sorted(forms_of("p@ss word/1"))
    ['p%40ss%20word%2F1', 'p%40ss%20word/1', 'p%40ss+word%2F1', 'p@ss word/1']
    """
    bare = secret.strip()
    escaped = {json.dumps(bare)[1:-1], json.dumps(bare, ensure_ascii=False)[1:-1], repr(bare)[1:-1]}
    return {bare, " ".join(bare.split()), *escaped, quote(bare, safe=""), quote(bare), quote_plus(bare)}


def encoded_forms_of(secret: str) -> set[str]:
    """Return what a secret becomes inside base64, whatever stands before and after it.

    >>> b64encode(b"ann:hunter2-hunter2").decode() in "Basic YW5uOmh1bnRlcjItaHVudGVyMg=="
    True
    >>> any(form in "Basic YW5uOmh1bnRlcjItaHVudGVyMg==" for form in encoded_forms_of("hunter2-hunter2"))
    True
    """
    data = secret.strip().encode("utf-8", "surrogatepass")
    if len(data) < _LEAST_ENCODED:
        return set()
    found = set()
    for before in range(3):  # characters that stand for bytes of the secret alone, for each place in a group of three
        whole = b64encode(bytes(before) + data).decode()
        end = len(whole) - (0 if (before + len(data)) % 3 == 0 else 4)
        middle = whole[(0, 2, 3)[before] : end]
        found |= {middle, middle.replace("+", "-").replace("/", "_")}
    return found


def parts_of(secret: str) -> Iterator[str]:
    """Yield what would do alone of a value of several lines or fields: lines of a key, fields of a file of credentials.

    >>> list(parts_of('{"user": "ann", "private_key": "k7d0-99-a1b2"}'))
    ['k7d0-99-a1b2']
    """
    try:
        held = json.loads(secret) if secret.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        held = None
    found = [*secrets_in(held)] if held is not None else []
    for text in [secret, *found]:
        lines = text.splitlines()
        found += [line.strip() for line in lines if len(lines) > 1 and len(line.strip()) >= _LEAST_LINE]
    yield from [part for part in found if len(part) >= LEAST_SECRET and not is_plain(part.strip("-"))][:_MOST_PARTS]


def secrets_in(value: Any) -> Iterator[str]:
    """Yield the texts in plain data that stand under the name of a secret."""
    for name, inner in named_parts(value):
        if name and looks_secret(name):
            yield from _texts_in(inner)
        elif not isinstance(inner, BARE):
            yield from secrets_in(inner)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for _, inner in named_parts(value):
        yield from _texts_in(inner)


def named_parts(value: Any) -> Iterable[tuple[str, Any]]:
    """Return the parts of plain data, each with the name it stands under, or an empty one."""
    match value:
        case {"key": str(name), "value": inner} | {"name": str(name), "value": inner}:
            rest = [(str(key), part) for key, part in value.items() if key != "value"]
            return [(name, inner), *rest]
        case Mapping():
            return [(str(key), part) for key, part in value.items()]
        case [str(name), str(inner)]:
            return [(name, inner)]
        case list() | tuple():
            return [("", part) for part in value]
        case _ if hasattr(
            value, "inside"
        ):  # the recorded form of a tuple or dataclass, which is defined above this layer
            return named_parts(value.inside())
    return []


def secrets_of_environment() -> Iterator[str]:
    """Yield what the environment variables say under names of secrets, but for the names of places on this disk.

    PWD, which every shell sets, would hide the folder in each path that is shown
    (test_places_on_the_disk_that_the_environment_names_are_no_secrets).
    """
    for name, value in os.environ.items():
        if looks_secret(name) and name not in _FOLDERS and not (value.startswith(os.sep) and os.access(value, os.F_OK)):
            yield value
