"""Names under which secrets are kept: of variables, keys, headers and options."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise


def listed(text: str) -> tuple[str, ...]:
    """Return the words of a table."""
    return tuple(text.split())


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PASSWORDS = ("password", "passwd", "passphrase", "passcode", "passwort", "pwd")
_WORDS = frozenset(
    listed(
        """
    secret secrets credential credentials creds authorization cookie cookies bearer apikey apikeys jwt mnemonic
    dsn otp totp pw passwords
        """
    )
)
_LAST = frozenset(["token", "pass", "authtoken", "cred"])
"""Words that make a name secret where they end it: ``token_count`` is a number."""
_ENDINGS = (
    *_PASSWORDS,
    *listed(
        """
    apikey accesskey secretkey privatekey sshkey signingkey authkey token secret sessionid sessid credentials
    connectionstring
        """
    ),
)
"""The same, written without anything between: ``PGPASSWORD``, ``accesstoken``."""
_PAIRS = frozenset(
    (kind, last)
    for kinds, lasts in (
        (
            "api access private secret signing encryption auth master ssh account shared storage deploy hmac license",
            "key keys",
        ),
        ("session", "id key cookie"),
        ("connection", "string"),
        ("seed recovery", "phrase"),
        ("recovery backup", "code codes"),
    )
    for kind in kinds.split()
    for last in lasts.split()
)
_HARMLESS_LAST = frozenset(
    listed(
        """
    count counts limit limits length len min max policy policies hint field fields label name names type types
    url uri path file dir folder usage reset required enabled disabled expires expiry expiration at ttl age rate
    size format method scheme version manager provider error errors status consent banner rotation strength
    template prompt message description title id
        """
    )
)
"""Words that, at the end of a name, make it say something about a secret, and hold none."""


@lru_cache(8192)
def looks_secret(name: str) -> bool:
    """Tell whether a name is one under which secrets are kept; counts of tokens are not.

    >>> names = ("api_key", "apiToken", "X-Auth-Token", "PGPASSWORD", "max_tokens", "key", "passage", "token_type")
    >>> [name for name in names if looks_secret(name)]
    ['api_key', 'apiToken', 'X-Auth-Token', 'PGPASSWORD']
    """
    words = _words(name)
    if not words:
        return False
    if words[-1] in _HARMLESS_LAST and words[-2:] not in (["session", "id"], ["key", "id"]):
        return False
    if not _WORDS.isdisjoint(words) or words[-1] in _LAST or any(word.endswith(_ENDINGS) for word in words):
        return True
    return any(pair in _PAIRS for pair in pairwise(words))


def is_password(name: str) -> bool:
    """Tell whether a name is one of passwords, which may be plain words and numbers."""
    return any(word.endswith(_PASSWORDS) or word in ("pass", "pw", "otp", "totp") for word in _words(name))


def _words(name: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(name[-200:])]
    while words and words[-1].isdigit():  # TOKEN_2
        words.pop()
    return words
