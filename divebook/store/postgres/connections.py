"""The connections of a process to its server: one that writes, and a few that read, made when they are needed."""

from __future__ import annotations

import functools
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from divebook.errors import ConnectionLostError, NewerStoreError, ReadOnlyStoreError
from divebook.keyboard import KEYBOARD
from divebook.store.postgres.addresses import DatabaseAddress
from divebook.store.postgres.arrays import BinaryArray, numbers_in
from divebook.store.postgres.faults import outage, refusal, translated
from divebook.store.postgres.schema import MIGRATIONS, PRESENT_FORMAT, named, raised_format

if TYPE_CHECKING:
    import psycopg
    from psycopg.adapt import Dumper

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
        with KEYBOARD.kept_back(), self._places:  # one that comes here could take a place for ever
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
            free, self._free = self._free, {}
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
        self._link, self._connections = link, connections

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
