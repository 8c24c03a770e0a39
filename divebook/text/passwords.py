"""URLs as they may be shown, kept and suggested: without their passwords.

A URL whose parts are not where they should be is mostly one with a password that was not written as ``%XX``. Of such a
one nothing is shown from where its password may begin, and no store opens it
(test_no_password_is_shown_however_a_url_is_mistyped).
"""

from __future__ import annotations

import re

from divebook.text.secret_values import HIDDEN as REDACTED

HIDDEN = "***"
_HOST = r"(?:\[[\w.:%]*\]|[\w.%~-]*)(?::\d{1,5})?"
_PLAIN = re.compile(
    rf"[a-z][a-z0-9+.-]*://(?:[^/?#@\s]*@)?{_HOST}(?:,{_HOST})*(?:/[^/?#@\s]*)?(?:\?(?:[\w.-]+=[^&#@\s]*(?:&|$))*)?",
    re.IGNORECASE,
)
_BEGINNING = re.compile(r"[a-z][a-z0-9+.-]*://[^:/?#@\s]*", re.IGNORECASE)
_SECRET = r"(?:\w*password|oauth_client_secret|scram_\w+_key)="  # noqa: S105 - names of libpq's settings
_SETTING = (
    r"(?:application_name|channel_binding|client_encoding|connect_timeout|dbname|fallback_application_name|gss\w+|host"
    r"|hostaddr|keepalives\w*|krb\w+|load_balance_hosts|m(?:ax|in)_protocol_version|oauth_\w+|options|passfile|port"
    r"|replication|require\w+|schema|scram_\w+|service\w*|ssl\w+|target_session_attrs|tcp_user_timeout|user)="
)
"""Names of settings, libpq's and ours: what follows a password there as another one is a part of it."""
_POSTGRES = re.compile(r"postgres(?:ql)?://", re.IGNORECASE)


def _hidden(given: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what finds passwords, and what finds them with what names them; `given` is one in a query."""
    return (
        re.compile(rf"(://[^/?#:@]*:)[^/?#@]*(?=@)|([?&]{_SECRET}){given}", re.IGNORECASE),
        re.compile(rf"(://[^/?#:@]*):[^/?#@]*(?=@)|([?&]){_SECRET}{given}&?", re.IGNORECASE),
    )


_OF_ANY = _hidden(r"[^&#]*")
_OF_POSTGRES = _hidden(rf"(?:(?!&{_SETTING}|&\w*password=)[^#])*")
_HIDING = rf"(?:{re.escape(HIDDEN)}|{re.escape(REDACTED)})"
_UNKNOWN = re.compile(rf":{_HIDING}@|={_HIDING}(?=&|$)")
_KEYS = r"(?:host|hostaddr|port|dbname|user|password|passfile|service|sslmode|connect_timeout|options)"
_OF_LIBPQ = re.compile(
    rf"(?:^|\s)(?:ssl)?password\s*=|^\s*{_KEYS}\s*=\s*\S+\s+{_KEYS}\s*=|^\s*dbname\s*=|^\s*postgres(?:ql)?:(?!//)",
    re.IGNORECASE,
)


def is_plain(url: str) -> bool:
    """Return whether each part of a URL is where it should be, so that its password is where it seems to be."""
    return _PLAIN.fullmatch(url) is not None


def without_password(url: str) -> str:
    """Return a URL as it may be shown and kept.

    Examples
    --------
    >>> without_password("postgresql://ann:secret@host/db")
    'postgresql://ann:***@host/db'
    >>> without_password("postgresql://ann:se/cret@host/db")
    'postgresql://ann:***'
    """
    if is_plain(url):
        return _passwords(url)[0].sub(lambda found: f"{found[1] or found[2]}{HIDDEN}", url)
    return cut_short(url) if "://" in url or names_database(url) else url


def cut_short(url: str) -> str:
    """Return of a URL that is none what cannot be a part of its password."""
    beginning = _BEGINNING.match(url)
    return f"{beginning[0]}:{HIDDEN}" if beginning else HIDDEN


def for_command(location: str) -> str:
    """Return a store's location as a command can be given it, which finds the password where it is kept.

    Examples
    --------
    >>> for_command("postgresql://ann:***@host/db?schema=runs")
    'postgresql://ann@host/db?schema=runs'
    """
    if not is_plain(location):
        return location
    return _passwords(location)[1].sub(lambda found: found[1] or found[2], location).rstrip("?&")


def _passwords(url: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return _OF_POSTGRES if _POSTGRES.match(url) else _OF_ANY


def is_hidden(url: str) -> bool:
    """Return whether a URL was copied from where its password is not shown."""
    return _UNKNOWN.search(url) is not None


def names_database(location: str) -> bool:
    """Return whether a location, by its form the path of a file, means a database: ``host=h password=p``, say."""
    return _OF_LIBPQ.search(location) is not None
