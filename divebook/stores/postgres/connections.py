"""Connections of this process to a Postgres server: one that writes, and a few that read, opened when needed.

This file also has the meaning of URLs (`DatabaseAddress`), the store's errors for those of Postgres (`translate`), and
the forms in which arrays and strings are sent.
"""

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
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar, overload
from urllib.parse import unquote

from divebook.errors import (
    ConnectionLostError,
    CorruptStoreError,
    ReadOnlyStoreError,
    SetupError,
    StoreBusyError,
    StoreError,
)
from divebook.interrupts import INTERRUPTS
from divebook.stores.encoding import unencodable_error
from divebook.stores.postgres.schema import KNOWN_FORMAT, MIGRATIONS, PRESENT_FORMAT, SCHEMA, named, raised_format
from divebook.stores.sql import Dialect
from divebook.text.passwords import cut_short, for_command, is_hidden, is_plain, without_password

if TYPE_CHECKING:
    import psycopg
    from psycopg.adapt import Dumper


T = TypeVar("T")
_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_SETTINGS = {
    "connect_timeout": "10",
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Defaults for libpq parameters that the URL lacks. With them, this process detects that a server is gone."""
_ALWAYS = {"client_encoding": "UTF8"}
"""libpq parameters that a URL cannot change, because arrays are encoded in UTF-8."""
_opened_addresses: dict[str, DatabaseAddress] = {}
"""Address with password of each store that this process has opened, by location without password."""
# Numbers of the server's built-in types.
BOOLEAN = 16
BYTEA = 17
BIGINT = 20
INTEGER = 23
TEXT = 25
_EMPTY = struct.Struct(">iiI")
_WIDTHS = {BOOLEAN: (1, "?"), BIGINT: (8, "q"), INTEGER: (4, "i")}
_LOST = ("08", "57P")  # the connection; the server is shut down, or starts
_READ_ONLY = "25006"
# The keys are beginnings of SQLSTATE codes. The first match counts, so "XX001" precedes "XX".
_FAULTS: tuple[tuple[str, type[StoreError], str], ...] = (
    (_READ_ONLY, ReadOnlyStoreError, "{0} is read-only: {1}. Use the address of a server that accepts writes"),
    ("28", StoreError, "{0} refuses the user: {1}. Check the user and the password"),
    ("3D", StoreError, "{0}: {1}. Create the database, or use another one"),
    ("40", StoreBusyError, "{0} is busy: {1}. Nothing was written; try again"),
    ("42501", ReadOnlyStoreError, "{0}: {1}. Grant the user the permissions for that schema, or use another schema"),
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
    ("XX", StoreBusyError, "{0} had an internal error: {1}. Nothing was written; see the server's log"),
)
_STATEMENTS = "not allowed in statement pooling mode"
_OTHER_MODES = "Set pool_mode = transaction"
_REFUSED: tuple[tuple[str, str], ...] = (
    (
        r"authentication failed|no password|pg_hba\.conf|role .* (does not exist|is not perm)|no such user|certificate",
        "{0} refuses the user: {1}. Check the user and the password, in the URL, PGPASSWORD or ~/.pgpass",
    ),
    (r"database .* does not exist|no such database", "{0}: {1}. Create the database, or use another one"),
    (r"permission denied for database", "{0}: {1}. Grant the user CONNECT, or use another database"),
    (
        r"\bSSL\b",
        "{0} and this process have different TLS settings: {1}. Set sslmode=... in the URL to a mode of the server",
    ),
    (r"invalid .*(value|number|option)|bad value|unrecognized|unsupported", "{0}: {1}. Correct that part of the URL"),
)
"""Patterns of connection errors that waiting cannot help, each with the text of divebook's error.

These messages have no code. In another language than English they are not recognized, and the error states that the
server is out of reach.
"""
_TEMPORARY = re.compile(
    r"refused|timed out|timeout expired|starting up|shutting down|in recovery|No such file|unreachable|reset by|resolve"
    r"|read-only|closed the connection|terminat|too many|remaining connection"
)
Link: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
Rows: TypeAlias = list[tuple[Any, ...]]
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
_BINARY = [1]
"""Code for the binary format of parameters and results."""
_BOOLEANS = (b"\0", b"\1")
"""False and True in Postgres's binary format."""
READERS = 4
"""Maximum number of reading connections at the same time. A server has about a hundred for all processes."""
IDLE_SECONDS = 60.0
"""Seconds without use after which a reading connection is closed when this process next uses the server."""
_poll = getattr(select, "poll", None)
"""`select.poll` if the system has it, because `select.select` refuses the high descriptors of processes with a thousand
open files."""
_ESCAPED = re.compile(r"\\([0\\])")


class Connections:
    """Connections of one store to its Postgres server.

    The connections prepare no statements and change no settings beyond a transaction, since a pool such as PgBouncer
    may give each transaction another session of the server.
    """

    def __init__(self, address: DatabaseAddress) -> None:
        self.address = address
        self._reader_slots = threading.Semaphore(READERS)
        self._idle_readers: dict[Link, float] = {}
        """Monotonic time of the last use of each reading connection that is not in use."""
        self._was_open = False
        """True if a connection to this server has succeeded before."""
        self.may_write = False
        """True if this user could write to the server before. A later refusal is then treated as an outage."""
        self._writer: Link | None = None
        self.unanswered: Callable[[], None] | None = None
        """Function that waits for the answer to a sent statement and processes the answer; None without such a
        statement."""
        self._lock = threading.Lock()
        self._closed = False

    def connect(self) -> Link:
        """Open a new connection to the server."""
        import psycopg

        with translated(self.address.location):
            try:
                link = psycopg.connect(self.address.conninfo, autocommit=True)
            except psycopg.Error as error:
                if self._was_open:  # a temporary refusal, as in the middle of a failover
                    raise
                raise refusal(error, self.address.location) from error
            self._was_open = True
            # None turns prepared statements off (see the class).
            link.prepare_threshold = None
            link.adapters.register_dumper(BinaryArray, _array_dumper())
            return link

    @contextmanager
    def opened(self) -> Iterator[Link]:
        """Open a connection for the `with` block, and close it after the block. Errors of Postgres are raised as errors
        of divebook.
        """
        with translated(self.address.location), self.connect() as link:
            yield link

    def statement(self, text: str) -> str:
        """Return an SQL statement with the schema of this store in place of the default schema ``divebook``."""
        return named(text, self.address.schema)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, statement: str, values: Values = ()) -> Rows:
        """Execute a statement on a reading connection and return its rows; retry once after a lost connection."""
        try:
            with self._reader() as link:
                return self._execute(link, statement, values)
        # The other idle connections were probably lost as well. A read has no effect, so it can be repeated.
        except ConnectionLostError:
            self._close_idle_readers()
            with self._reader() as link:
                return self._execute(link, statement, values)

    @contextmanager
    def _reader(self) -> Iterator[Link]:
        # An interrupt between acquiring a slot and releasing it could lose the slot for ever.
        with INTERRUPTS.deferred(), self._reader_slots:
            with self._lock:
                link = self._idle_readers.popitem()[0] if self._idle_readers else None
            # The server, or a pool before it, may have closed the connection while it was idle.
            if link is not None and not _is_idle(link):
                link.close()
                link = None
            link = link or self.connect()
            try:
                yield link
            finally:
                self._put_back(link)

    def _put_back(self, link: Link) -> None:
        with self._lock:
            is_reusable = not self._closed and _is_idle(link)
            if is_reusable:
                self._idle_readers[link] = time.monotonic()
        if not is_reusable:
            link.close()
        self.close_idle()

    def close_idle(self) -> None:
        """Close the reading connections that were not used for `IDLE_SECONDS`. Other processes may need these database
        sessions.
        """
        with self._lock:
            until = time.monotonic() - IDLE_SECONDS
            # The connections are closed outside of the lock, so that other threads do not wait for that.
            idle = [link for link, since in self._idle_readers.items() if since < until]
            for link in idle:
                del self._idle_readers[link]
        for link in idle:
            link.close()

    def _close_idle_readers(self) -> None:
        with self._lock:
            free = self._idle_readers
            self._idle_readers = {}
        for link in free:
            link.close()

    # --- writing. The caller holds the store's lock ------------------------------------------------------------------

    def send(self, statement: str, values: Sequence[BinaryArray | bool]) -> SentStatement:
        """Send a statement that writes, with the values of its parameters ``$1``, ``$2``, and so on. Do not wait for
        the answer.
        """
        # A boolean is the only parameter that is not an array.
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
        """Wait for the answer to the statement that `send` has sent, and process it. If it was processed already, do
        nothing. Call this before a write.
        """
        if self.unanswered is not None:
            self.unanswered()

    def can_send(self) -> bool:
        """Return True if a statement can be sent without waiting: the writing connection is open and idle."""
        return self.unanswered is None and self._writer is not None and _is_idle(self._writer)

    def write(self, statement: str, values: Values = ()) -> Rows:
        """Execute one writing statement in a transaction of its own; return its rows.

        Raises
        ------
        NewerStoreError
            The statement has the condition `schema.KNOWN_FORMAT` or the end `schema.IN_KNOWN_FORMAT`, and a newer
            divebook has raised the format since the store was opened.
        """
        with self._writing() as link, translated(self.address.location):
            cursor = self._send(link, statement, values)
            rows = cursor.fetchall() if cursor.description else []
        self.may_write = True
        # The condition is part of the statement, so that a statement that changed rows needs no further round trip.
        if not cursor.rowcount:
            self.check_format(self.read)
        return rows

    @contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[SendStatement]:
        """Run the `with` block in one transaction. Yield the function with which the block executes statements.

        Raises
        ------
        NewerStoreError
            The transaction `writes`, and a newer divebook has raised the format since the store was opened.
        """
        with self._writing() as link, translated(self.address.location), link.transaction():

            def execute(statement: str, values: Values = ()) -> Rows:
                return self._execute(link, statement, values)

            # Checked within the transaction: a newer divebook cannot raise the format between the check and the write.
            if writes:
                self.check_format(execute)
            yield execute
        self.may_write = True

    def check_format(self, execute: SendStatement) -> None:
        """Raise NewerStoreError if a newer divebook has migrated the store's tables while this process had the store
        open.
        """
        ((version,),) = execute(PRESENT_FORMAT)
        if version > len(MIGRATIONS):
            raise raised_format(self.address.location, version)

    @contextmanager
    def _writing(self) -> Iterator[Link]:
        self.settle()
        if self._writer is None or not _is_idle(self._writer):
            self._close_writer()
            self._writer = self.connect()
        with self.connection_errors_handled():
            yield self._writer

    @contextmanager
    def connection_errors_handled(self) -> Iterator[None]:
        """Close the affected connections if the `with` block fails because the connection was lost or the server became
        read-only. The error is raised.
        """
        try:
            yield
        except ConnectionLostError:
            self._close_writer()
            raise
        except ReadOnlyStoreError as error:
            self._close_writer()  # another server may have replaced this one
            self._close_idle_readers()
            temporary = outage(error, self.address.location) if self.may_write else None
            if temporary is not None:
                raise temporary from error
            raise

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _execute(self, link: Link, statement: str, values: Values) -> Rows:
        with translated(self.address.location):
            cursor = self._send(link, statement, values)
            return cursor.fetchall() if cursor.description else []

    def _send(self, link: Link, statement: str, values: Values) -> psycopg.Cursor[tuple[Any, ...]]:
        return link.execute(self.statement(statement).encode(), values or None, binary=True)

    def close(self) -> None:
        """Close all connections."""
        self.settle()
        self._close_writer()
        with self._lock:
            self._closed = True
        self._close_idle_readers()


class SentStatement:
    """Statement that was sent to the server on the writing connection, and whose answer has not been processed.

    The methods need the store's lock.
    """

    def __init__(self, link: Link, connections: Connections) -> None:
        self._link = link
        self._connections = connections

    def has_answer(self, seconds: float | None = None) -> bool:
        """Wait for the answer for at most `seconds` (None: without limit). Return True if the answer has arrived."""
        connection = self._link.pgconn
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._connections.connection_errors_handled(), translated(self._connections.address.location):
            while True:
                # A large statement may not fit into the send buffer. Reading meanwhile prevents that both sides wait
                # for each other.
                is_sent = not connection.flush()
                if is_sent and not connection.is_busy():
                    return True
                remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not ready([self._link], remaining, writable=not is_sent):
                    return False
                connection.consume_input()

    def numbers(self) -> list[int]:
        """Wait for the answer to the statement, and return the integers of the array in the answer's only row."""
        from psycopg import errors, pq

        self.has_answer()
        connection = self._link.pgconn
        with self._connections.connection_errors_handled(), translated(self._connections.address.location):
            answer = connection.get_result()
            # libpq accepts the next statement only after all results were fetched, including the None at their end.
            while connection.get_result() is not None:
                pass
            if answer is None:
                raise errors.OperationalError("the server has not answered")
            if answer.status != pq.ExecStatus.TUPLES_OK:
                raise errors.error_from_result(answer)
        if not answer.ntuples:
            self._connections.check_format(self._connections.read)
        self._connections.may_write = True
        return numbers_in(answer.get_value(0, 0))


class SendStatement(Protocol):
    """Interface of a function that executes a statement in one round trip and returns its rows."""

    def __call__(self, statement: str, values: Values = ()) -> Rows:
        """Execute a statement and return its rows, in one round trip."""
        ...


DIALECT = Dialect(
    prefix="divebook.",
    parameter="%s",
    known_format=KNOWN_FORMAT,
    cross_join="JOIN",
    in_list="= ANY(%s)",
    binary='"C"',
)


class PostgresSession:
    """Reads and writes of a database; a `divebook.stores.sql.SqlSession`. Strings are escaped as `escaped` does."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def read(self, statement: str, values: Sequence[Any], decode: Callable[..., T]) -> list[T]:
        """Execute a statement that reads. Return for each row what `decode` returns for its columns."""
        rows = self._connections.read(DIALECT.text(statement), _parameters(values))
        with translated(self._connections.address.location):
            return [decode(*unescaped_row(row)) for row in rows]

    def write(self, statement: str, values: Sequence[Any], *, is_relaxed: bool = False) -> Rows:
        """Execute a statement that writes in a transaction of its own; return its rows."""
        del is_relaxed  # see `SqlSession`
        return self._connections.write(DIALECT.text(statement), _parameters(values))


def _parameters(values: Sequence[Any]) -> list[Any]:
    """Return the parameters of a statement with escaped strings, also in lists."""
    parameters: list[Any] = []
    for value in values:
        if isinstance(value, list):
            parameters.append([escaped(text) for text in value])
        else:
            parameters.append(escaped(value) if isinstance(value, str) else value)
    return parameters


def ready(
    sources: Sequence[socket.socket | Link], seconds: float | None, *, writable: bool = False
) -> list[socket.socket | Link]:
    """Wait until one of several sockets or connections is readable (or writable, if `writable`), at most `seconds`.
    Return those that are.
    """
    if _poll is None:
        readable, can_write, _ = select.select(sources, sources if writable else [], [], seconds)
        return [source for source in sources if source in readable or source in can_write]
    poller = _poll()
    for source in sources:
        poller.register(source, select.POLLIN | (select.POLLOUT if writable else 0))
    descriptors = {number for number, _ in poller.poll(None if seconds is None else seconds * 1000)}
    return [source for source in sources if source.fileno() in descriptors]


def _is_idle(link: Link) -> bool:
    """Return True if a connection is open and can execute a statement at once: it runs no other statement or
    transaction.

    An idle connection that is readable was closed by the server.
    """
    return not (link.closed or link.info.transaction_status or ready([link], 0))


@functools.cache
def _array_dumper() -> type[Dumper]:
    """Return the class by which psycopg sends a `BinaryArray` unchanged. The type of the array is stated by a cast in
    the SQL statement.
    """
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class ArrayDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: BinaryArray) -> bytes:
            return obj.content

    return ArrayDumper


# --- addresses of databases ---


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Database and schema of a store, and how libpq connects to them."""

    location: str
    """URL of the store without its password."""
    schema: str
    conninfo: str = field(repr=False)
    """Connection string for libpq, with the password."""

    @classmethod
    def of(cls, url: str) -> Self | DatabaseAddress:
        """Parse the URL of a database and return its address.

        A location without a password that this process has opened before gets its password.

        In another process libpq reads the password from ``PGPASSWORD`` or ``~/.pgpass``.

        Raises
        ------
        SetupError
            libpq does not understand the URL.
        """
        shown = without_password(url)
        location = for_command(url)
        if is_hidden(url) or url == location:  # a location as errors and suggested commands print it
            if location in _opened_addresses:
                return _opened_addresses[location]
            url = location
        from psycopg.conninfo import make_conninfo

        base_url, _, query = url.partition("?")
        settings = [piece for piece in query.split("&") if piece]
        # `schema` is a parameter of divebook, which libpq does not know.
        schemas = [unquote(piece[7:]) for piece in settings if piece.startswith("schema=")]
        other_settings = "&".join(piece for piece in settings if not piece.startswith("schema="))
        settings_of_url = _parse_with_libpq(url, f"{base_url}?{other_settings}" if other_settings else base_url)
        schema = schemas[-1] if schemas else SCHEMA
        if not _NAME.fullmatch(schema):
            raise SetupError(
                f"schema {schema!r} of {shown} cannot be used; use a name of lowercase letters, digits and _ that "
                "does not begin with pg_"
            )
        conninfo = {**_SETTINGS, "application_name": "divebook", **settings_of_url, **_ALWAYS}
        return cls(shown, schema, make_conninfo("", **conninfo))

    def remember(self) -> None:
        """Remember this address with its password for this process, so that the location of the store can be opened
        again without it.

        Call this after a successful connection.

        (test_a_password_that_was_mistyped_does_not_take_the_place_of_the_right_one)
        """
        _opened_addresses[for_command(self.location)] = self


def _parse_with_libpq(url: str, rest: str) -> dict[str, Any]:
    """Return the connection parameters in the URL of a database, as libpq (the client library of Postgres) parses them.
    `rest` is the URL without divebook's own parameters.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        # After an unescaped @ in a password, its end would be taken for the name of a host, which errors show.
        if is_plain(url):
            return conninfo_to_dict(rest)
    except (psycopg.Error, ValueError):  # which may hold a part of the password
        pass
    raise SetupError(
        f"{cut_short(url)} is not a database URL; write "
        "postgresql://user:password@host:port/database?setting=value. In the password and in values, write each "
        "character except letters and digits as %XX: / as %2F, @ as %40, # as %23, ? as %3F, a space as %20. The "
        "password can also be in PGPASSWORD or ~/.pgpass"
    )


# --- errors ---


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Convert each error of Postgres, or of the decoding of its data, inside the `with` block to an error of divebook,
    and raise that one.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise translate(error, location) from error
    except UnicodeEncodeError as error:
        raise unencodable_error(error) from error
    # Decoders raise these for bytes and numbers that a store never writes.
    except (ValueError, TypeError, ArithmeticError) as error:
        raise CorruptStoreError(f"{location} is damaged: {type(error).__name__}: {error}. Restore a backup") from error


def translate(error: psycopg.Error, location: str) -> StoreError:
    """Return the error of divebook (a `StoreError`) that corresponds to an error of Postgres."""
    import psycopg

    code = error.sqlstate or ""
    message = _message_of(error)
    if _STATEMENTS in message:
        return StoreError(
            f"{location} is a connection pool that uses another session for each statement: {message}. {_OTHER_MODES}"
        )
    for beginning, kind, text in _FAULTS:
        if code.startswith(beginning):
            return kind(text.format(location, message))
    # libpq reports a broken connection without a code.
    if code.startswith(_LOST) or (not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)):
        return ConnectionLostError(
            f"{location} cannot be reached: {message}. Check the server; waiting runs continue when it is back"
        )
    return StoreError(f"{location}: {message}")


def refusal(error: psycopg.Error, location: str) -> StoreError:
    """Return the error of divebook for the failure of the first connection to a database.

    The error is not a ConnectionLostError if waiting cannot help, as after a wrong password.
    """
    message = _message_of(error)
    if not error.sqlstate and not _TEMPORARY.search(message):
        for pattern, text in _REFUSED:
            if re.search(pattern, message):
                return StoreError(text.format(location, message))
    return translate(error, location)


def outage(error: ReadOnlyStoreError, location: str) -> StoreBusyError | None:
    """Return the error for a server that can no longer be written to, such as the standby of another server.

    Return None if the server is writable, and only this user may not write.
    """
    import psycopg

    cause = error.__cause__
    if not isinstance(cause, psycopg.Error) or cause.sqlstate != _READ_ONLY:
        return None
    message = _message_of(cause)
    return StoreBusyError(
        f"nothing can be written to {location} at present: {message}. Waiting runs continue when it, or a server that "
        "replaces it, is writable again"
    )


def _message_of(error: psycopg.Error) -> str:
    """Return the message of an error of Postgres or libpq as one line, without the text of the failed statement."""
    parts = [error.diag.message_primary or str(error), error.diag.message_detail or ""]
    return " ".join(" ".join(parts).split())


# --- arrays ---
# Columns of a statement in the binary form of the server's arrays. psycopg examines each element of a list to find its
# type, which takes longer than the rest of a commit takes here (``python -m benchmarks.servers``). The types of these
# columns are known, and none of them contains NULL.


class BinaryArray:
    """One-dimensional array in Postgres's binary format, ready to be sent as the parameter of a statement."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content


def array_of(kind: int, column: Sequence[Any]) -> BinaryArray:
    """Convert a column of values to a binary array; `kind` is the number of the type of the values in Postgres."""
    if not column:
        return BinaryArray(_EMPTY.pack(0, 0, kind))
    if kind == TEXT:
        column = [text.encode() for text in column]
    return _numbers(kind, column) if kind in _WIDTHS else _contents(kind, column)


def numbers_in(content: bytes | None) -> list[int]:
    """Return the integers in a binary Postgres array of bigint, which contains no NULL; an empty list if the array
    itself is NULL (None).
    """
    if content is None or len(content) == _EMPTY.size:
        return []
    (length,) = struct.unpack_from(">i", content, _EMPTY.size)
    # Length and lower bound of the dimension follow the header, then each number behind its size in bytes: 8, n1, 8,
    # n2, ...
    return list(struct.unpack_from(">" + "iq" * length, content, _EMPTY.size + 8)[1::2])


def _numbers(kind: int, column: Sequence[int]) -> BinaryArray:
    width, _ = _WIDTHS[kind]
    count = len(column)
    # Each number follows its size in bytes: [8, n1, 8, n2, ...].
    numbers = [width] * (2 * count)
    numbers[1::2] = column
    return BinaryArray(_layout(kind, count).pack(1, 0, kind, count, 1, *numbers))


def _contents(kind: int, column: Sequence[bytes]) -> BinaryArray:
    # The header states one dimension, no NULL, the type of the items, their number, and the lower bound 1.
    parts = [struct.pack(">iiIii", 1, 0, kind, len(column), 1)]
    for content in column:
        parts += (len(content).to_bytes(4, "big"), content)
    return BinaryArray(b"".join(parts))


@functools.lru_cache(maxsize=256)
def _layout(kind: int, count: int) -> struct.Struct:
    """Return the `struct` format of a Postgres array in binary form: the array's header, then `count` numbers of the
    type `kind`.
    """
    return struct.Struct(">iiIii" + f"i{_WIDTHS[kind][1]}" * count)


# --- strings ---
# Postgres refuses NUL in every string and in JSON, so it is written as an escape sequence. The escaped form of a prefix
# is a prefix of the escaped string, since each character is escaped by itself.


@overload
def escaped(text: str) -> str: ...
@overload
def escaped(text: None) -> None: ...
def escaped(text: str | None) -> str | None:
    r"""Return a string in which NUL, which Postgres does not accept, and the backslash are escaped; None for None.

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
    """Return the original of a string that `escaped` returned; None for None."""
    if text is None or "\\" not in text:
        return text
    return _ESCAPED.sub(lambda match: "\0" if match[1] == "0" else "\\", text)


def unescaped_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with the originals of its strings."""
    return tuple(unescaped(value) if isinstance(value, str) else value for value in row)
