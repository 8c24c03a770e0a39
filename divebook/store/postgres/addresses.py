"""From the URL of a database to what libpq is given, and to what may be shown of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from divebook.errors import SetupError
from divebook.store.passwords import HIDDEN, without_password
from divebook.store.postgres.schema import SCHEMA

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_SETTINGS = {
    "connect_timeout": "10",
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Where the URL does not say: a server that is gone is to be noticed."""
_known: dict[str, DatabaseAddress] = {}
"""By their location: those of this process, with their passwords."""


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Where a store is."""

    location: str
    """The URL without its password."""
    schema: str
    conninfo: str
    """What libpq is given, with the password."""

    @classmethod
    def of(cls, url: str) -> Self | DatabaseAddress:
        """Return what a URL means; a location that was opened before in this process has its password.

        In another process libpq looks for it in ``PGPASSWORD`` and ``~/.pgpass``.

        Raises
        ------
        SetupError
            It is none that libpq understands.
        """
        shown = without_password(url)
        if shown == url and HIDDEN in url and url in _known:
            return _known[url]
        from psycopg.conninfo import make_conninfo

        base, _, query = url.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        schema = dict(pairs).get("schema", SCHEMA)
        if not _NAME.fullmatch(schema):
            raise SetupError(
                f"schema {schema!r} of {shown} cannot be used; write a name of small letters, digits and _"
            )
        rest = urlencode([pair for pair in pairs if pair[0] != "schema"])
        base = base.replace(f":{HIDDEN}@", "@")
        given = _understood(f"{base}?{rest}" if rest else base, shown)
        found = cls(shown, schema, make_conninfo("", **{**_SETTINGS, "application_name": "divebook", **given}))
        _known[shown] = found
        return found


def _understood(url: str, shown: str) -> dict[str, Any]:
    """Return what libpq takes a URL for."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        # An @ in a password would make its end the name of a host, which errors show.
        if urlsplit(url).netloc.count("@") <= 1:
            return conninfo_to_dict(url)
    except (psycopg.Error, ValueError):  # which may hold a part of the password
        pass
    raise SetupError(
        f"{shown} is no URL of a database; write postgresql://user:password@host:port/database, and other "
        "characters than letters and digits in a password as %XX"
    )
