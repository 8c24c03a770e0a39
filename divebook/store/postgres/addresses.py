"""From the URL of a database to what libpq is given, and to what may be shown of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote

from divebook.errors import SetupError
from divebook.store.postgres.schema import SCHEMA
from divebook.text.passwords import cut_short, for_command, is_hidden, is_plain, without_password

_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_SETTINGS = {
    "connect_timeout": "10",
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Where the URL does not say: a server that is gone is to be noticed."""
_ALWAYS = {"client_encoding": "UTF8"}
"""What the URL does not change: arrays are written in it."""
_known: dict[str, DatabaseAddress] = {}
"""By their location without a password: those that this process has opened, with it."""


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Where a store is."""

    location: str
    """The URL without its password."""
    schema: str
    conninfo: str = field(repr=False)
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
        bare = for_command(url)
        if is_hidden(url) or url == bare:  # as a suggested command names it
            if bare in _known:
                return _known[bare]
            url = bare
        from psycopg.conninfo import make_conninfo

        base, _, query = url.partition("?")
        settings = [piece for piece in query.split("&") if piece]
        schemas = [unquote(piece[7:]) for piece in settings if piece.startswith("schema=")]
        rest = "&".join(piece for piece in settings if not piece.startswith("schema="))
        given = _understood(url, f"{base}?{rest}" if rest else base)
        schema = schemas[-1] if schemas else SCHEMA
        if not _NAME.fullmatch(schema):
            raise SetupError(
                f"schema {schema!r} of {shown} cannot be used; write a name of small letters, digits and _ that does "
                "not begin with pg_"
            )
        named = {**_SETTINGS, "application_name": "divebook", **given, **_ALWAYS}
        return cls(shown, schema, make_conninfo("", **named))

    def remember(self) -> None:
        """Have its location open it again in this process: its password is the right one.

        (test_a_password_that_was_mistyped_does_not_take_the_place_of_the_right_one)
        """
        _known[for_command(self.location)] = self


def _understood(url: str, rest: str) -> dict[str, Any]:
    """Return what libpq takes a URL for, without what is ours."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        # An @ in a password would make its end the name of a host, which errors show.
        if is_plain(url):
            return conninfo_to_dict(rest)
    except (psycopg.Error, ValueError):  # which may hold a part of the password
        pass
    raise SetupError(
        f"{cut_short(url)} is no URL of a database; write postgresql://user:password@host:port/database?setting=value, "
        "and in a password, or a value, each character but letters and digits as %XX: / as %2F, @ as %40, # as %23, "
        "? as %3F, a space as %20. Or leave the password to PGPASSWORD or ~/.pgpass"
    )
