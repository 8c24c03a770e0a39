"""Secrets, and how they are kept out of what is shown and saved: one set of rules for terminal, notebook and pages.

Hidden is, in this order: what stands under a name that looks secret (`looks_secret`), in data as well as in texts
(``api_key=...``, ``"password": "..."``, ``--token ...``, headers); every known secret wherever it occurs; and what
looks like a credential by its form (`divebook.text.secret_forms`, tokens after ``Bearer``, passwords in addresses).
Known are the values of environment variables whose names look secret, what a configuration sends under such names, and
whatever the same log holds under them.

A path is no secret: it says where something is. Plain words are not taken for secrets unless a name says that they
are, so that prose, code, hashes and identifiers stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from divebook.text.known_secrets import (
    BARE,
    LEAST_SECRET,
    KnownSecrets,
    encoded_forms_of,
    forms_of,
    parts_of,
    secrets_in,
    secrets_of_environment,
)
from divebook.text.secret_forms import ESCAPED, MARKED, SHAPED
from divebook.text.secret_names import is_password, looks_secret
from divebook.text.secret_values import HIDDEN, assigned, is_path, is_plain, is_telling, is_word, named_at

MAX_SEEN = 2_000
"""Forms of secrets that are kept of runs which were shown; those that are named are all kept."""
MAX_REMEMBERED = 200
"""Characters up to which a text that comes again is not looked at again."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]++=*+")
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
        self._seen, self._named = KnownSecrets(), KnownSecrets()
        self._said: set[str] = set()
        for secret in known:
            self._see(secret)
        for secret in secrets_of_environment():
            self._see(secret)
            if not is_plain(secret) and not is_telling(secret):  # a word such as "postgres" is in many a result
                self.know(secret)

    def fresh(self, known: Iterable[str] = ()) -> Redactor:
        """Return one that has learned from no run; what was named it knows."""
        made = Redactor(known)
        made._named.add(self._named)
        return made

    def learn(self, value: Any) -> None:
        """Take note of the secrets in plain data: they are hidden from then on wherever something is shown."""
        for secret in secrets_in(value):
            self._see(secret)

    def know(self, secret: str) -> None:
        """Take note of one secret, whatever it looks like: from then on nothing shows it, and no agent's log has it."""
        if secret in self._said:  # each call that uses it says so again
            return
        for part in (secret.strip(), *parts_of(secret)):
            if len(part) >= LEAST_SECRET and not is_word(part) and not is_path(part):
                self._named.add(forms_of(part) | encoded_forms_of(part))
        self._said.add(secret)

    def know_all(self, value: Any) -> None:
        """Take note of the secrets that a configuration holds under their names, as `know` does of one."""
        for secret in secrets_in(value):
            self.know(secret)

    def _see(self, secret: str) -> None:
        bare = secret.strip()
        if len(bare) >= LEAST_SECRET and not is_telling(bare) and len(self._seen) < MAX_SEEN:
            self._seen.add(forms_of(bare))

    def text(self, text: str) -> str:
        """Return a text without the secrets in it."""
        if len(text) < LEAST_SECRET and "=" not in text and ":" not in text:
            return text
        text = self._seen.hidden(self._named.hidden(text))
        return _remembered(text) if len(text) <= MAX_REMEMBERED else _without_forms(text)

    def without_named(self, value: Any) -> Any:
        """Return plain data without the secrets that are named or sent to providers; what only looks like one stays."""
        return _everywhere(value, self._named.hidden)

    def without_certain(self, value: Any) -> Any:
        """Return plain data without the secrets that are named, and without what is a credential by its own form.

        For what is stored, and not only shown: what stands under the name of a secret stays, such as the token of the
        next page, and no run that was shown meanwhile changes anything.
        """
        return _everywhere(value, self._certain)

    def _certain(self, text: str) -> str:
        text = self._named.hidden(text)
        is_data = len(text) > MAX_REMEMBERED and _BASE64.fullmatch(text) is not None  # of an image, say
        return text if is_data or len(text) < LEAST_SECRET else _without_marks(text)

    def settled(self, text: str) -> int:
        """Return how much of a text that still grows may be shown: its end may be half of a secret.

        Held back are its last word, the beginning of any secret that is known, and a line from a secret's name on.
        """
        end = len(text) if not text or text[-1].isspace() else len(text) - len(text.rsplit(None, 1)[-1])
        named = named_at(text, text.rfind("\n") + 1)
        end = end if named is None else min(end, named)
        end = self._seen.settled(text, self._named.settled(text, end))
        return self._named.settled(text, end)  # which may be within one of these now

    def settled_of_named(self, text: str) -> int:
        """Return how much of a text that still grows may be shown after `without_named`."""
        return self._named.settled(text, len(text))

    def under(self, name: str, value: Any) -> Any:
        """Return plain data that stands under a name, without the secrets in it."""
        if value is None or isinstance(value, bool | float) or not looks_secret(name):
            return self.value(value)
        if isinstance(value, str) and is_path(value):
            return self.text(value)
        if isinstance(value, int):
            return HIDDEN if is_password(name) and value >= 1000 else value
        return HIDDEN

    def value(self, value: Any) -> Any:
        """Return plain data without the secrets in it."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, BARE):
            return value
        match value:
            case {"key": str(name), "value": inner} | {"name": str(name), "value": inner}:
                return {**{key: self.under(key, part) for key, part in value.items()}, "value": self.under(name, inner)}
            case dict():
                return {self._key(key): self.under(str(key), part) for key, part in value.items()}
            case [str(name), str(inner)]:
                return [self.text(name), self.under(name, inner)]
            case list() if any(isinstance(part, str | list | dict) or hasattr(part, "inside") for part in value):
                return [self.value(part) for part in value]
            case _ if hasattr(value, "inside") and value.inside() is not None:  # a recorded tuple or dataclass
                return value.parts(self.value)
        return value

    def _key(self, key: Any) -> Any:
        return self.text(key) if isinstance(key, str) and len(key) >= LEAST_SECRET else key


@cache
def shared() -> Redactor:
    """Return the redactor of this process, which knows the secrets of all runs that were shown in it."""
    return Redactor()


# --- credentials by their form ---------------------------------------------------------------------------------------


def _everywhere(value: Any, change: Callable[[str], str]) -> Any:
    """Return plain data in which each text, also of a name, is changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_everywhere(name, change): _everywhere(part, change) for name, part in value.items()}
    return [_everywhere(part, change) for part in value] if isinstance(value, list) else value


def _without_forms(text: str) -> str:
    """Return a text without what its form, or a name in it, gives away."""
    return assigned(_without_marks(text))


def _without_marks(text: str) -> str:
    """Return a text without what has the form of a credential."""
    # Most texts hold no sign of a credential: one search spares them some hundred patterns
    # (test_no_rule_that_is_tried_meets_where_no_sign_does, test_most_texts_are_searched_once).
    if _signs().search("\n" + text):
        lower = text.lower()
        for rule in _rules():
            if any(hint in lower for hint in rule.hints):
                text = rule.pattern.sub(rule.replacement, text)
    return text


_remembered = lru_cache(8192)(_without_forms)


class _Rule(NamedTuple):
    hints: tuple[str, ...]
    """In lower case; where none of them is in a text, the pattern is not tried."""
    signs: tuple[str, ...]
    """Patterns: where the rule's own meets, one of them does, where no letter or digit of ASCII comes before."""
    pattern: re.Pattern[str]
    replacement: Callable[[re.Match[str]], str] | str


@cache
def _rules() -> tuple[_Rule, ...]:
    """Return the rules in the order in which they are tried; compiled when something is first shown."""
    return tuple(_table())


@cache
def _signs() -> re.Pattern[str]:
    """Return one pattern that meets wherever any rule does, so that most texts are looked at once and no more.

    What begins alike stands together: a branch is left at its first character.
    """
    alike: dict[str, list[str]] = {}
    for sign in (sign for rule in _rules() for sign in rule.signs):
        first = re.match(r"\w", sign)
        alike.setdefault(first[0] if first else "", []).append(sign[1:] if first else sign)
    return re.compile(
        r"(?:[^A-Za-z0-9]|\\[bfnrt])(?:"
        + "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in alike.items())
        + ")"
    )


def _table() -> Iterator[_Rule]:
    for hints, sign, pattern in SHAPED:
        yield _Rule(hints, (sign,), re.compile(pattern), HIDDEN)
    for marks, follows, least in MARKED:
        starts = [re.escape(mark) for mark in marks.split()]
        pattern = rf"(?:(?<![A-Za-z0-9])|{ESCAPED})({'|'.join(starts)})({follows}{{{least},}}+)"
        signs = tuple(f"{start}{follows}{{{least}}}" for start in starts)
        yield _Rule(tuple(marks.lower().split()), signs, re.compile(pattern), _marked)
    for hints, sign, pattern, replacement in _IN_CONTEXT:
        yield _Rule(hints, (sign,), re.compile(pattern), replacement)


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


_IN_CONTEXT: tuple[tuple[tuple[str, ...], str, str, Callable[[re.Match[str]], str] | str], ...] = (
    (("</",), "(?<=<)/", r"(<([\w:.-]{2,60}+)(?:\s[^<>\n]{1,200}+)?>)([^<>\n]{3,400}+)(?=</)", _element),
    (
        ("bearer", "basic"),
        r"(?i:bearer|basic)[ \t]{1,4}[\w.~+/=-]{8}",
        r"(?i)\b(bearer|basic)([ \t]{1,4}+)([\w.~+/=-]{8,}+)",
        _scheme,
    ),
    (("://",), "(?<=:)//", r"(\w://[^\s/:@]{0,200}+:)(?:[^\s/?#@\[]{1,400}+@)++", rf"\1{HIDDEN}@"),
    (("://",), "(?<=:)//", r"(\w://)([^\s/:@]{16,400}+)(?=@)", _user),
    (
        ("login",),
        r"(?i:login)\s",
        r"(?i)(\blogin\s{1,8}+\S{1,80}+\s{1,8}+password\s{1,8}+)\S{3,400}+",
        rf"\1{HIDDEN}",
    ),
    (
        ("curl",),
        "(?<=-)u(?:ser)? ",
        r"((?:(?<=-u )|(?<=--user ))[\"']?[^\s:\"']{1,80}+:)[^\s\"']{3,400}+",
        rf"\1{HIDDEN}",
    ),
    (
        ("identified by", "password '"),
        "(?i:identified by|password) '",
        r"(?i)(\b(?:identified by|password) ')[^'\n]{3,200}+",
        rf"\1{HIDDEN}",
    ),
)
"""Hints, a sign, a pattern and what is put there, for what only its surroundings give away."""
