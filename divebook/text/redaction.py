"""Secrets, and how they are kept out of what is shown and saved: one set of rules for terminal, notebook and pages.

Hidden is, in this order: what stands under a name that looks secret (`looks_secret`), in data as well as in texts
(``api_key=...``, ``"password": "..."``, ``--token ...``, headers); every known secret wherever it occurs; and what
looks like a credential by its form (`divebook.text.secret_forms`, tokens after ``Bearer``, passwords in addresses).
Known are the values of environment variables whose names look secret, what a configuration sends under such names, and
whatever the same log holds under them.

Plain words are not taken for secrets unless a name says that they are, so that prose, code, hashes and identifiers stay
as they are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import cache
from typing import Any
from urllib.parse import quote

from divebook.text.secret_forms import MARKED, SHAPED
from divebook.text.secret_names import is_password, looks_secret
from divebook.text.secret_values import HIDDEN, assigned, is_plain, is_telling

LEAST_SECRET = 8
"""Characters below which a value is hidden only where it stands under its name: it would occur by chance."""
MAX_KNOWN = 500
_IN_BASE64 = re.compile(r"[A-Za-z0-9+/]{40}")


class Redactor:
    """Hides secrets in plain data.

    Parameters
    ----------
    known
        Secrets to hide wherever they occur, besides those of the environment variables.

    Examples
    --------
    >>> redactor = Redactor(["correct horse"])
    >>> redactor.value({"password": "x", "prompt": "say correct horse", "max_tokens": 3})
    {'password': '[redacted]', 'prompt': 'say [redacted]', 'max_tokens': 3}
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._tried: tuple[_Rule, ...] | None = None
        """The rules that are tried; None for all."""
        for secret in (*known, *(value for name, value in os.environ.items() if looks_secret(name))):
            self._keep(secret)

    def learn(self, value: Any) -> None:
        """Take note of the secrets in plain data: they are hidden from then on."""
        for name, inner in _named(value):
            if looks_secret(name):
                self._keep_all(inner)
            else:
                self.learn(inner)

    def _keep_all(self, value: Any) -> None:
        if isinstance(value, str):
            self._keep(value)
        for _, inner in _named(value):
            self._keep_all(inner)

    def _keep(self, secret: str) -> None:
        bare = secret.strip()
        if len(bare) < LEAST_SECRET or is_telling(bare) or len(self._known) >= MAX_KNOWN or bare in self._known:
            return
        # as it is, on one line, inside JSON, and inside an address
        self._known |= {bare, " ".join(bare.split()), json.dumps(bare)[1:-1], quote(bare, safe="")}
        self._pattern = None

    def text(self, text: str) -> str:
        """Return a text without the secrets in it."""
        if len(text) < LEAST_SECRET and "=" not in text and ":" not in text:
            return text
        if self._known and self._pattern is None:
            longest_first = sorted(self._known, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        if self._pattern is not None:
            text = self._pattern.sub(HIDDEN, text)
        lower = text.lower()
        for hints, pattern, replacement in _rules() if self._tried is None else self._tried:
            if any(hint in lower for hint in hints):
                text = pattern.sub(replacement, text)
        return assigned(text, lower)

    def within(self, whole: str) -> Redactor:
        """Return a redactor for the parts of a text, such as a log as JSON: it tries only rules that may match there.

        Of a hundred rules few have their hints in one log; to look for them in each of its texts takes seconds.
        """
        lower, narrowed = whole.lower(), copy(self)
        narrowed._tried = tuple(  # noqa: SLF001 - a copy of its own
            rule for rule in _rules() if any(hint in lower for hint in rule[0])
        )
        return narrowed

    def under(self, name: str, value: Any) -> Any:
        """Return plain data that stands under a name, without the secrets in it."""
        if value is None or isinstance(value, bool | float) or not looks_secret(name):
            return self.value(value)
        if isinstance(value, int):
            return HIDDEN if is_password(name) and value >= 1000 else value
        return HIDDEN

    def value(self, value: Any) -> Any:
        """Return plain data without the secrets in it."""
        match value:
            case str():
                return self.text(value)
            case {"key": str(name), "value": inner} | {"name": str(name), "value": inner}:
                return {**{key: self.under(key, part) for key, part in value.items()}, "value": self.under(name, inner)}
            case dict():
                return {self._key(key): self.under(str(key), part) for key, part in value.items()}
            case [str(name), str(inner)]:
                return [self.text(name), self.under(name, inner)]
            case list() if any(isinstance(part, str | list | dict) for part in value):
                return [self.value(part) for part in value]
        return value

    def _key(self, key: Any) -> Any:
        return self.text(key) if isinstance(key, str) and len(key) >= LEAST_SECRET else key


@cache
def shared() -> Redactor:
    """Return the redactor of this process, which knows the secrets of all runs that were shown in it."""
    return Redactor()


def _named(value: Any) -> Iterable[tuple[str, Any]]:
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
    return []


# --- credentials by their form ---------------------------------------------------------------------------------------

_Rule = tuple[tuple[str, ...], re.Pattern[str], "Callable[[re.Match[str]], str] | str"]


@cache
def _rules() -> tuple[_Rule, ...]:
    """Return the patterns in the order in which they are tried; compiled when something is first shown."""
    return tuple(_table())


def _table() -> Iterator[_Rule]:
    for hints, pattern in SHAPED:
        yield hints, re.compile(pattern), HIDDEN
    for marks, follows, least in MARKED:
        starts = marks.split()
        mark = "|".join(map(re.escape, starts))
        pattern = rf"(?<![A-Za-z0-9])({mark})({follows}{{{least},}}+)"
        yield tuple(start.lower() for start in starts), re.compile(pattern), _marked
    yield ("</",), re.compile(r"(<([\w:.-]{2,60}+)(?:\s[^<>\n]{1,200}+)?>)([^<>\n]{3,400}+)(?=</)"), _element
    yield ("bearer", "basic"), re.compile(r"(?i)\b(bearer|basic)([ \t]{1,4}+)([\w.~+/=-]{8,}+)"), _scheme
    yield ("://",), re.compile(r"(\w://[^\s/:@]{0,200}+:)(?:[^\s/?#@\[]{1,400}+@)++"), rf"\1{HIDDEN}@"
    yield ("://",), re.compile(r"(\w://)([^\s/:@]{16,400}+)(?=@)"), _user
    yield ("login",), re.compile(r"(?i)(\blogin\s{1,8}+\S{1,80}+\s{1,8}+password\s{1,8}+)\S{3,400}+"), rf"\1{HIDDEN}"
    yield ("curl",), re.compile(r"((?:(?<=-u )|(?<=--user ))[\"']?[^\s:\"']{1,80}+:)[^\s\"']{3,400}+"), rf"\1{HIDDEN}"
    yield (
        ("identified by", "password '"),
        re.compile(r"(?i)(\b(?:identified by|password) ')[^'\n]{3,200}+"),
        rf"\1{HIDDEN}",
    )


def _marked(match: re.Match[str]) -> str:
    """Hide what follows a mark, unless it is plain words (``sk-learn-contrib``) or the inside of encoded data."""
    start = match.start()
    inside = start >= 40 and _IN_BASE64.fullmatch(match.string, start - 40, start)
    return match[0] if inside or is_plain(match[2]) else HIDDEN


def _scheme(match: re.Match[str]) -> str:
    return match[0] if is_plain(match[3]) else f"{match[1]}{match[2]}{HIDDEN}"


def _user(match: re.Match[str]) -> str:
    return match[0] if is_plain(match[2]) else f"{match[1]}{HIDDEN}"


def _element(match: re.Match[str]) -> str:
    return f"{match[1]}{HIDDEN}" if looks_secret(match[2]) and not is_telling(match[3]) else match[0]
