"""The connections of a process to its server: one that writes, and a few that read, made when they are needed."""

from __future__ import annotations

import functools
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, overload
from urllib.parse import unquote

from divebook.errors import (
    ConnectionLostError,
    CorruptStoreError,
    NewerStoreError,
    ReadOnlyStoreError,
    SetupError,
    StoreBusyError,
    StoreError,
)
from divebook.interrupts import INTERRUPTS
from divebook.store.codec import no_text
from divebook.store.postgres.schema import MIGRATIONS, PRESENT_FORMAT, SCHEMA, named, raised_format
from divebook.text.passwords import cut_short, for_command, is_hidden, is_plain, without_password

if TYPE_CHECKING:
    import psycopg
    from psycopg.adapt import Dumper


# From the URL of a database to what libpq is given, and to what may be shown of it.


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


# Columns of a statement as the arrays that the server reads, in its binary form.
#
# psycopg looks at each element of a list to find its type, which takes longer than the rest of a commit takes here
# (``python -m benchmarks.servers``). The types of these are known, and none of them holds NULL.


BOOLEAN, BYTEA, BIGINT, TEXT, INTEGER = 16, 17, 20, 25, 23
"""Numbers of the server's own types."""
_EMPTY = struct.Struct(">iiI")
_WIDTHS = {BOOLEAN: (1, "?"), BIGINT: (8, "q"), INTEGER: (4, "i")}


class BinaryArray:
    """An array of one dimension as it is sent; `divebook.store.postgres.connections` says so to psycopg."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content


def array_of(kind: int, column: Sequence[Any]) -> BinaryArray:
    """Return a column of values of one type as an array."""
    if not column:
        return BinaryArray(_EMPTY.pack(0, 0, kind))
    if kind == TEXT:
        column = [text.encode() for text in column]
    return _numbers(kind, column) if kind in _WIDTHS else _contents(kind, column)


def _numbers(kind: int, column: Sequence[int]) -> BinaryArray:
    width, _ = _WIDTHS[kind]
    count = len(column)
    told = [width] * (2 * count)
    told[1::2] = column
    return BinaryArray(_layout(kind, count).pack(1, 0, kind, count, 1, *told))


def _contents(kind: int, column: Sequence[bytes]) -> BinaryArray:
    parts = [struct.pack(">iiIii", 1, 0, kind, len(column), 1)]
    for content in column:
        parts += (len(content).to_bytes(4, "big"), content)
    return BinaryArray(b"".join(parts))


def numbers_in(content: bytes | None) -> list[int]:
    """Return what the server gives as an array of bigint, none of which is NULL; nothing for NULL."""
    if content is None or len(content) == _EMPTY.size:
        return []
    (length,) = struct.unpack_from(">i", content, _EMPTY.size)
    return list(struct.unpack_from(">" + "iq" * length, content, _EMPTY.size + 8)[1::2])


@functools.lru_cache(maxsize=256)
def _layout(kind: int, count: int) -> struct.Struct:
    """Return how so many numbers are written: dimensions, no NULL, type, length, first index; each after its width."""
    return struct.Struct(">iiIii" + f"i{_WIDTHS[kind][1]}" * count)


# What Postgres's errors mean to a user of the store, and what to do about them.


_LOST = ("08", "57P")  # the connection; the server is shut down, or starts
_READ_ONLY = "25006"
_FAULTS: tuple[tuple[str, type[StoreError], str], ...] = (
    (_READ_ONLY, ReadOnlyStoreError, "nothing can be written to {0}: {1}. Name the server that may be written to"),
    ("28", StoreError, "{0} refuses the user: {1}. Check the user and the password"),
    ("3D", StoreError, "{0}: {1}. Create the database, or name another one"),
    ("40", StoreBusyError, "{0} is busy: {1}. Nothing was written; try again"),
    ("42501", ReadOnlyStoreError, "{0}: {1}. Grant the user what it needs in that schema, or name another schema"),
    ("53", StoreBusyError, "{0} has no room: {1}. Nothing was written; free some space or connections"),
    (
        "55P03",
        StoreBusyError,
        "{0} is locked by another session (see pg_stat_activity): {1}. Nothing was written",
    ),
    ("57014", StoreBusyError, "{0} was interrupted: {1}. Try again"),
    ("58", StoreBusyError, "{0} cannot be read or written: {1}. Nothing was written; check the server's disk"),
    ("XX001", CorruptStoreError, "{0} is damaged: {1}. Restore a backup"),
    ("XX002", CorruptStoreError, "{0} has a damaged index: {1}. REINDEX it, or restore a backup"),
    ("XX", StoreBusyError, "{0} has met an error of its own: {1}. Nothing was written; the server's log says more"),
)
_STATEMENTS = "not allowed in statement pooling mode"
_OTHER_MODES = "Have it do so for each transaction (pool_mode = transaction)"
_REFUSED: tuple[tuple[str, str], ...] = (
    (
        r"authentication failed|no password|pg_hba\.conf|role .* (does not exist|is not perm)|no such user|certificate",
        "{0} refuses the user: {1}. Check the user and the password, in the URL, PGPASSWORD or ~/.pgpass",
    ),
    (r"database .* does not exist|no such database", "{0}: {1}. Create the database, or name another one"),
    (r"permission denied for database", "{0}: {1}. Grant the user CONNECT, or name another database"),
    (r"\bSSL\b", "{0} and this process do not agree about TLS: {1}. Say in the URL what the server has: sslmode=..."),
    (r"invalid .*(value|number|option)|bad value|unrecognized|unsupported", "{0}: {1}. Correct that in the URL"),
)
"""What a server, or libpq, says to a connection that will never be made as it is, and what to do about it.

That has no code, and its words are of one language: in another one the server is told to be out of reach.
"""
_PASSING = re.compile(
    r"refused|timed out|timeout expired|starting up|shutting down|in recovery|No such file|unreachable|reset by|resolve"
    r"|read-only|closed the connection|terminat|too many|remaining connection"
)


def refusal(error: psycopg.Error, location: str) -> StoreError:
    """Return the store's error for a first connection that was not made: one that is refused is waited for in vain."""
    said = _said(error)
    if not error.sqlstate and not _PASSING.search(said):
        for pattern, text in _REFUSED:
            if re.search(pattern, said):
                return StoreError(text.format(location, said))
    return translate(error, location)


def outage(error: ReadOnlyStoreError, location: str) -> StoreBusyError | None:
    """Return what it means that a server which could be written to cannot any more; None if it is the user who may not.

    It has become the standby of another one, or is about to.
    """
    import psycopg

    cause = error.__cause__
    if not isinstance(cause, psycopg.Error) or cause.sqlstate != _READ_ONLY:
        return None
    said = _said(cause)
    return StoreBusyError(
        f"nothing can be written to {location} at present: {said}. What waits goes on once it can be written to again, "
        "or another server in its place"
    )


def translate(error: psycopg.Error, location: str) -> StoreError:
    """Return the store's error for one of Postgres's."""
    import psycopg

    code = error.sqlstate or ""
    said = _said(error)
    if _STATEMENTS in said:
        return StoreError(f"{location} is a pool that gives each statement another session: {said}. {_OTHER_MODES}")
    for beginning, kind, text in _FAULTS:
        if code.startswith(beginning):
            return kind(text.format(location, said))
    if code.startswith(_LOST) or (not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)):
        return ConnectionLostError(f"{location} is out of reach: {said}. Check the server; what waits goes on with it")
    return StoreError(f"{location}: {said}")


def _said(error: psycopg.Error) -> str:
    """Return what a server, or libpq, says, on one line and without the statement, which is ours."""
    parts = [error.diag.message_primary or str(error), error.diag.message_detail or ""]
    return " ".join(" ".join(parts).split())


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Turn what Postgres and the decoders raise inside the block into the store's errors."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise translate(error, location) from error
    except UnicodeEncodeError as error:
        raise no_text(error) from error
    # What decoding raises for bytes and numbers that a store never writes.
    except (ValueError, TypeError, ArithmeticError) as error:
        raise CorruptStoreError(f"{location} is damaged: {type(error).__name__}: {error}. Restore a backup") from error


Link: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
Rows: TypeAlias = list[tuple[Any, ...]]
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
_BINARY, _BOOLEANS = [1], (b"\0", b"\1")
"""The format of what is sent and answered, and truth values in it."""
READERS = 4
"""Connections that read at a time: a server has about a hundred for all of its processes."""
IDLE_SECONDS = 60.0
"""After so long one that reads is closed, where this process does anything at all, and another made when needed."""
_poll = getattr(select, "poll", None)
"""Not `select`, which refuses the descriptors of a process with a thousand open files; on Windows it takes any."""


class SendStatement(Protocol):
    """Sends a statement, in one round trip; returns the rows that it gives."""

    def __call__(self, statement: str, values: Values = ()) -> Rows:
        """Return the rows."""
        ...


class Connections:
    """What this process has open.

    No statement is prepared, and no setting outlasts a transaction: a pool such as PgBouncer's may give each
    transaction another session of the server.
    """

    def __init__(self, address: DatabaseAddress) -> None:
        self.address = address
        self._places = threading.Semaphore(READERS)
        self._free: dict[Link, float] = {}
        """Those that read, and since when they have not."""
        self._was_open = False
        self.may_write = False
        """Whether the server is known to be one that this user can write to: what it refuses then is an outage."""
        self._writer: Link | None = None
        self.unanswered: Callable[[], None] | None = None
        """Takes in the answer to what was sent on it, while that has not come."""
        self._lock = threading.Lock()
        self._closed = False

    def open(self) -> Link:
        """Return a new connection."""
        import psycopg

        with translated(self.address.location):
            try:
                link = psycopg.connect(self.address.conninfo, autocommit=True)
            except psycopg.Error as error:
                if self._was_open:  # it is refused only now, as in the middle of a failover
                    raise
                raise refusal(error, self.address.location) from error
            self._was_open = True
            link.prepare_threshold = None
            link.adapters.register_dumper(BinaryArray, _array_dumper())
            return link

    @contextmanager
    def opened(self) -> Iterator[Link]:
        """Open a connection for a block, whose errors are the store's."""
        with translated(self.address.location), self.open() as link:
            yield link

    def statement(self, text: str) -> str:
        """Return a statement with the names of this store's tables."""
        return named(text, self.address.schema)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, statement: str, values: Values = ()) -> Rows:
        """SendStatement on a connection that reads; one that was lost meanwhile is replaced by another one, once."""
        try:
            with self._reader() as link:
                return self._execute(link, statement, values)
        except ConnectionLostError:
            self._drop_free()
            with self._reader() as link:
                return self._execute(link, statement, values)

    @contextmanager
    def _reader(self) -> Iterator[Link]:
        with INTERRUPTS.deferred(), self._places:  # one that comes here could take a place for ever
            with self._lock:
                link = self._free.popitem()[0] if self._free else None
            if link is not None and not _is_idle(link):
                link.close()
                link = None
            link = link or self.open()
            try:
                yield link
            finally:
                self._put_back(link)

    def _put_back(self, link: Link) -> None:
        with self._lock:
            is_kept = not self._closed and _is_idle(link)
            if is_kept:
                self._free[link] = time.monotonic()
        if not is_kept:
            link.close()
        self.close_idle()

    def close_idle(self) -> None:
        """Close what has not been read with for a while: others may be short of sessions."""
        with self._lock:
            until = time.monotonic() - IDLE_SECONDS
            idle = [link for link, since in self._free.items() if since < until]
            for link in idle:
                del self._free[link]
        for link in idle:
            link.close()

    def _drop_free(self) -> None:
        with self._lock:
            free = self._free
            self._free = {}
        for link in free:
            link.close()

    # --- writing: the store's lock is held ---------------------------------------------------------------------------

    def send(self, statement: str, values: Sequence[BinaryArray | bool]) -> SentStatement:
        """Send a statement whose parameters are ``$1``, ``$2``, and so on; its answer may come later."""
        contents = [value.content if isinstance(value, BinaryArray) else _BOOLEANS[value] for value in values]
        with self._writing() as link, translated(self.address.location):
            link.pgconn.send_query_params(
                self.statement(statement).encode(),
                contents,
                param_formats=_BINARY * len(values),
                result_format=_BINARY[0],
            )
        return SentStatement(link, self)

    def settle(self) -> None:
        """Have the answer taken in of what was sent and is not answered yet, before something else is written."""
        if self.unanswered is not None:
            self.unanswered()

    def can_send(self) -> bool:
        """Return whether something can be sent at once: there is a connection that writes, and it has nothing to do."""
        return self.unanswered is None and self._writer is not None and _is_idle(self._writer)

    def write(self, statement: str, values: Values = ()) -> Rows:
        """Do what one statement says, whole or not at all."""
        with self._writing() as link:
            found = self._execute(link, statement, values)
        self.may_write = True
        return found

    @contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[SendStatement]:
        """Do what several statements say, all or none.

        Raises
        ------
        NewerStoreError
            One that `writes`: a newer divebook has raised the format since the store was opened.
        """
        with self._writing() as link, translated(self.address.location), link.transaction():
            if writes:
                ((version,),) = self._execute(link, PRESENT_FORMAT, ())
                if version > len(MIGRATIONS):
                    raise raised_format(self.address.location, version)
            yield lambda statement, values=(): self._execute(link, statement, values)
        self.may_write = True

    def refused_format(self) -> NewerStoreError:
        """Return the error for a statement that ends with `IN_KNOWN_FORMAT` and was answered with no row."""
        ((version,),) = self.read(PRESENT_FORMAT)
        return raised_format(self.address.location, version)

    @contextmanager
    def _writing(self) -> Iterator[Link]:
        self.settle()
        if self._writer is None or not _is_idle(self._writer):
            self._end_writer()
            self._writer = self.open()
        with self.heeded():
            yield self._writer

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Draw from errors of what is written what they say of the connection, and of the server."""
        try:
            yield
        except ConnectionLostError:
            self._end_writer()
            raise
        except ReadOnlyStoreError as error:
            self._end_writer()  # another server may have taken its place
            self._drop_free()
            if self.may_write and (passing := outage(error, self.address.location)) is not None:
                raise passing from error
            raise

    def _end_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _execute(self, link: Link, statement: str, values: Values) -> Rows:
        with translated(self.address.location):
            cursor = link.execute(self.statement(statement).encode(), values or None, binary=True)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Close all of them."""
        self.settle()
        self._end_writer()
        with self._lock:
            self._closed = True
        self._drop_free()


class SentStatement:
    """A statement on its way to the server, on the connection that writes. The store's lock is held by who asks."""

    def __init__(self, link: Link, connections: Connections) -> None:
        self._link = link
        self._connections = connections

    def has_answer(self, seconds: float | None = None) -> bool:
        """Return whether the answer is there, after so many seconds at most."""
        connection = self._link.pgconn
        until = None if seconds is None else time.monotonic() + seconds
        with self._connections.heeded(), translated(self._connections.address.location):
            while True:
                is_sent = not connection.flush()
                if is_sent and not connection.is_busy():
                    return True
                left = None if until is None else max(0.0, until - time.monotonic())
                if not ready([self._link], left, writable=not is_sent):
                    return False
                connection.consume_input()

    def numbers(self) -> list[int]:
        """Return the one array of numbers that the answer is, once it is there."""
        from psycopg import errors, pq

        self.has_answer()
        connection = self._link.pgconn
        with self._connections.heeded(), translated(self._connections.address.location):
            answer = connection.get_result()
            while connection.get_result() is not None:
                pass
            if answer is None:
                raise errors.OperationalError("the server has not answered")
            if answer.status != pq.ExecStatus.TUPLES_OK:
                raise errors.error_from_result(answer)
        if not answer.ntuples:
            raise self._connections.refused_format()
        self._connections.may_write = True
        return numbers_in(answer.get_value(0, 0))


@functools.cache
def _array_dumper() -> type[Dumper]:
    """Return what hands an array to the library as it is; its type is that of the statement's cast."""
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class ArrayDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: BinaryArray) -> bytes:
            return obj.content

    return ArrayDumper


def ready(
    sources: Sequence[socket.socket | Link], seconds: float | None, *, writable: bool = False
) -> list[socket.socket | Link]:
    """Return of which something can be read, once it can be of one, or after so many seconds; or also be written."""
    if _poll is None:
        readable, able, _ = select.select(sources, sources if writable else [], [], seconds)
        return [source for source in sources if source in readable or source in able]
    poller = _poll()
    for source in sources:
        poller.register(source, select.POLLIN | (select.POLLOUT if writable else 0))
    found = {number for number, _ in poller.poll(None if seconds is None else seconds * 1000)}
    return [source for source in sources if source.fileno() in found]


def _is_idle(link: Link) -> bool:
    """Return whether a statement can be sent; to one that does not wait for an answer, a server sends its end only."""
    return not (link.closed or link.info.transaction_status or ready([link], 0))


# Texts as Postgres takes them: without NUL, which it refuses in every text and in JSON.
#
# Lists, ids and prefixes stay what they are, since each character is written by itself.


_ESCAPED = re.compile(r"\\([0\\])")


@overload
def escaped(text: str) -> str: ...
@overload
def escaped(text: None) -> None: ...
def escaped(text: str | None) -> str | None:
    r"""Return a text without NUL.

    Examples
    --------
    >>> escaped("a\0b"), escaped("plain")
    ('a\\0b', 'plain')
    """
    if text is None or ("\0" not in text and "\\" not in text):
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


@overload
def unescaped(text: str) -> str: ...
@overload
def unescaped(text: None) -> None: ...
def unescaped(text: str | None) -> str | None:
    """Undo `escaped`."""
    if text is None or "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else "\\", text)
