"""Secrets, and how they are kept out of what is shown and saved.

Hidden is, in this order: what stands under a name that looks secret (`looks_secret`); every known secret wherever it
occurs in a text; and what looks like a credential by its form (keys of well-known services, tokens behind ``Bearer``,
passwords in addresses, private keys, ``api_key=...``). Known are the values of environment variables whose names look
secret, what a configuration sends under such names, and whatever the same log holds under them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

HIDDEN = "[redacted]"
LEAST_SECRET = 8
"""Characters below which a value is hidden only where it stands under its name: it would occur by chance."""
MAX_KNOWN = 500
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset(
    [
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "secrets",
        "credential",
        "credentials",
        "authorization",
        "cookie",
        "bearer",
        "apikey",
        "jwt",
    ]
)
_KINDS_OF_KEY = frozenset(["api", "access", "private", "secret", "signing", "encryption", "auth", "master"])
_NAMES = r"(?:api[_-]?key|access[_-]?key|passw(?:or)?d|passphrase|secret|authorization|token)"


class _Form(NamedTuple):
    """What a credential looks like. Texts may be long and hostile: no pattern may look twice at what it has passed."""

    hints: tuple[str, ...]
    """In lower case; a text without any of them has no such credential, and is searched for them much faster."""
    pattern: re.Pattern[str]
    replacement: str


_FORMS = (
    _Form(("bearer", "basic"), re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    _Form(
        ("private key-----",),
        re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
        HIDDEN,
    ),
    _Form(("sk-", "sk_", "pk-", "pk_", "rk-", "rk_"), re.compile(r"\b(?:sk|pk|rk)[-_][\w-]{16,}"), HIDDEN),
    _Form(
        ("gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_", "glpat-"),
        re.compile(r"\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"),
        HIDDEN,
    ),
    _Form(
        ("xox", "akia", "aiza", "hf_"),
        re.compile(r"\bxox[abpors]-[\w-]{10,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bhf_\w{20,}"),
        HIDDEN,
    ),
    _Form(("eyj",), re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]+"), HIDDEN),
    _Form(("://",), re.compile(r"(\w://[^\s/:@]*+:)[^\s/@]++@"), rf"\1{HIDDEN}@"),
    _Form(
        ("key", "passw", "passphrase", "secret", "authorization", "token"),
        re.compile(
            rf"""(?i)({_NAMES}\\?["']?\s*+[:=]\s*+)(\\?["'])?((?!\[redacted|bearer |basic |\$)[^\s"'\\,;&}}]{{6,}})"""
        ),
        rf"\1\2{HIDDEN}",
    ),
)


@lru_cache(maxsize=4096)  # the same few names stand in every event of a log
def looks_secret(name: str) -> bool:
    """Tell whether a name is one under which secrets are kept; counts of tokens are not.

    >>> [name for name in ("api_key", "apiToken", "X-Auth-Token", "max_tokens", "key", "passage") if looks_secret(name)]
    ['api_key', 'apiToken', 'X-Auth-Token']
    """
    words = [word.lower() for word in _WORD.findall(name[:200])]
    if not _SECRET_WORDS.isdisjoint(words) or words[-1:] == ["token"]:
        return True
    return any(kind in _KINDS_OF_KEY and key in ("key", "keys") for kind, key in pairwise(words))


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
        if len(bare) >= LEAST_SECRET and bare != HIDDEN and len(self._known) < MAX_KNOWN:
            self._known.add(bare)
            self._pattern = None

    def text(self, text: str) -> str:
        """Return a text without the secrets in it."""
        if self._known and self._pattern is None:
            longest_first = sorted(self._known, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        if self._pattern is not None:
            text = self._pattern.sub(HIDDEN, text)
        lower = text.lower()
        for form in _FORMS:
            if any(hint in lower for hint in form.hints):
                text = form.pattern.sub(form.replacement, text)
        return text

    def under(self, name: str, value: Any) -> Any:
        """Return plain data that stands under a name, without the secrets in it."""
        if looks_secret(name) and value is not None and not isinstance(value, bool | int | float):
            return HIDDEN
        return self.value(value)

    def value(self, value: Any) -> Any:
        """Return plain data without the secrets in it."""
        match value:
            case str():
                return self.text(value)
            case {"key": str(name), "value": inner} | {"name": str(name), "value": inner}:
                return {**{key: self.under(key, part) for key, part in value.items()}, "value": self.under(name, inner)}
            case dict():
                return {key: self.under(str(key), part) for key, part in value.items()}
            case [str(name), str(inner)]:
                return [self.text(name), self.under(name, inner)]
            case list():
                return [self.value(part) for part in value]
        return value


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
