"""The store in a Postgres database: one connection that writes, with a lock, and a few that read."""

from __future__ import annotations

import math
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from divebook.engine.inbox import Message
from divebook.errors import (
    ConcurrentAppendError,
    ConnectionLostError,
    CorruptStoreError,
    ForkedStoreError,
    ReadOnlyStoreError,
    StoreError,
)
from divebook.events.catalog import Payload
from divebook.events.codec import decode
from divebook.events.event import Record
from divebook.store.append import (
    FULL,
    Appending,
    Batch,
    Durability,
    ExecutionRecord,
    PreparedBatch,
    RecordFilter,
    Refusal,
    sound,
)
from divebook.store.base import EventStore, StoredBlob, StoredLog, StoredSummary, check_reached
from divebook.store.leases import THIS_PROCESS, Claim, Lease, Moment, Owner, QueuedExecution, WorkerRecord
from divebook.store.maintenance import close_when_dropped, weakly
from divebook.store.notifications import Arrivals, NewsListener
from divebook.store.postgres import tables
from divebook.store.postgres.connections import (
    Connections,
    DatabaseAddress,
    Link,
    escaped,
    ready,
    translated,
    unescaped,
)
from divebook.store.postgres.log import (
    RECORD,
    WIDTH,
    FoundLog,
    LogReader,
    LogWriter,
    SentBatches,
    TypeNumbers,
    load_record,
)
from divebook.store.postgres.schema import may_write, migrate
from divebook.text.redaction import logger

# Hearing from the server that something has come: messages, and appends to logs that somebody here follows.
#
# The server tells of every message, and of appends to logs in the table of followers only: to tell of every commit
# would make all of them wait for each other. Behind a pool that gives each transaction another session (PgBouncer's
# usual mode) nothing is ever heard; there the server is asked instead, ever more rarely while nothing has been written.


_log = logger(__name__)
CHANNEL = "divebook"
RENEW, LASTS = 20.0, 60
"""Seconds after which it is said again which logs are followed, and how long that holds."""
PROBE = 2.0
"""Seconds in which the server's word for a trial must have come."""
SOONEST, LATEST = 0.02, 0.2
"""Seconds between two questions where nothing is heard."""
PAUSE = 1.0
"""Seconds after a connection was lost."""
_FOLLOW = """
INSERT INTO divebook.followers (key, follower, until)
SELECT key, %s, clock_timestamp() + make_interval(secs => %s) FROM divebook.executions WHERE id = ANY(%s)
ON CONFLICT (key, follower) DO UPDATE SET until = excluded.until
"""
_LEAVE = "DELETE FROM divebook.followers WHERE follower = %s OR until < clock_timestamp() - interval '1 hour'"
_WRITTEN = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"


class ServerNews:
    """The thread that hears the server, from the first who waits for news until the store is closed."""

    def __init__(self, connections: Connections, arrivals: Arrivals) -> None:
        self._connections = connections
        self._arrivals = arrivals
        self._follower = secrets.token_bytes(16)
        self._followed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ends = False
        self._ear, self._mouth = socket.socketpair()
        self._mouth.settimeout(0)

    def start(self) -> None:
        """Begin to listen, unless that has begun."""
        with self._lock:
            if self._thread is None and not self._ends:
                self._thread = threading.Thread(target=self._run, name="divebook-postgres-news", daemon=True)
                self._thread.start()

    def follow(self, execution_id: str) -> Callable[[], None]:
        """Hear of appends to a log as well; call what is returned to end it."""
        with self._lock:
            self._followed[execution_id] += 1
        self._wake()

        def end() -> None:
            with self._lock:
                self._followed[execution_id] -= 1
                self._followed += Counter()  # without those that nobody follows any more

        return end

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._ends = True
            thread = self._thread
        self._wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(PAUSE)
        self._ear.close()
        self._mouth.close()

    def _wake(self) -> None:
        with suppress(OSError):  # it is full, and so awake
            self._mouth.send(b"!")

    def _run(self) -> None:
        while not self._ends:
            try:
                self._hear()
            except StoreError as error:  # the code that writes says what is wrong
                _log.debug("no news of the store: %s", error)
                self._wait(None, PAUSE)

    def _hear(self) -> None:
        link = self._connections.open()
        location = self._connections.address.location
        try:
            with translated(location):
                link.execute(f"LISTEN {CHANNEL}".encode())
                self._arrivals.add()  # what came before that was not heard
                if self._is_heard(link):
                    self._listen(link)
                else:
                    self._ask(link)
        except ReadOnlyStoreError:
            # A standby tells nobody anything, and who may only read cannot say what is followed
            # (test_who_may_only_read_asks_for_news).
            with translated(location):
                self._ask(link, time.monotonic() + LASTS)
        finally:
            with suppress(StoreError), translated(location):
                link.execute(self._connections.statement(_LEAVE).encode(), (self._follower,))
            link.close()

    def _is_heard(self, link: Link) -> bool:
        # From another connection: a pool gives this one the word that is said in its own transaction.
        self._connections.read("SELECT pg_notify(%s, 'trial')", (CHANNEL,))
        until = time.monotonic() + PROBE
        while not self._ends and (left := until - time.monotonic()) > 0:
            if self._heard(link):
                return True
            self._wait(link, left)
        return False

    def _listen(self, link: Link) -> None:
        said: frozenset[str] = frozenset()
        until = 0.0
        while not self._ends:
            self._connections.close_idle()
            said, until = self._say(link, said, until)
            if self._heard(link):
                self._arrivals.add()
            else:
                self._wait(link, max(0.0, until - time.monotonic()))

    def _say(self, link: Link, said: frozenset[str], until: float) -> tuple[frozenset[str], float]:
        """Tell the server which logs are followed, if that has changed or is about to lapse."""
        with self._lock:
            followed = frozenset(self._followed)
        if followed <= said and time.monotonic() < until:
            return said, until
        if followed:
            names = [escaped(name) for name in followed]
            link.execute(self._connections.statement(_FOLLOW).encode(), (self._follower, LASTS, names))
        self._arrivals.add()  # what was appended before that was not told
        return followed, time.monotonic() + RENEW

    def _ask(self, link: Link, until: float = math.inf) -> None:
        seen = ""
        pause = SOONEST
        while not self._ends and time.monotonic() < until:
            self._connections.close_idle()
            ((written,),) = link.execute(_WRITTEN).fetchall()
            if written != seen:
                seen = written
                pause = SOONEST
                self._arrivals.add()
            self._wait(None, pause)
            pause = min(LATEST, pause * 1.5)

    def _heard(self, link: Link) -> bool:
        """Return whether the server has told of something since, without waiting."""
        return bool([*link.notifies(timeout=0)])

    def _wait(self, link: Link | None, seconds: float) -> None:
        sources: list[socket.socket | Link] = [self._ear] if link is None else [self._ear, link]
        if self._ear in ready(sources, seconds):
            with suppress(OSError):
                self._ear.recv(4096)


T = TypeVar("T")


class PostgresStore(EventStore):
    """Logs in a schema of a Postgres database, shared by threads, processes and machines.

    Parameters
    ----------
    url
        ``postgresql://user:password@host:port/database``, with any parameter of libpq, and ``schema`` for the schema
        that has the tables: ``divebook`` unless given. They are made if need be.
    durability
        How it is written where a batch does not say: ``full``, so that it survives a failure of the server's machine,
        or ``relaxed`` (``synchronous_commit = off``), so that such a failure may take the events of the last second,
        but never leaves a log half written. A transaction with a batch that is to be full is full.

    Raises
    ------
    ConnectionLostError
        The server is out of reach.
    StoreError
        The server lets nobody in like that: the password is wrong, there is no such database, it has no TLS.
    SetupError
        The URL is none.
    CorruptStoreError
        The schema belongs to another program.
    NewerStoreError
        A newer divebook wrote it.
    """

    local = False

    def __init__(self, url: str, *, durability: Durability = FULL) -> None:
        super().__init__()
        address = DatabaseAddress.of(url)
        self.location = address.location
        self.durability: Durability = durability
        self._process = THIS_PROCESS.number
        self._warned: set[str] = set()
        self._connections = Connections(address)
        self._prepare(address)
        self._types = TypeNumbers(self._connections)
        self._reader = LogReader(self._connections, self._types)
        self._logs = LogWriter(self._connections, self._types, self._reader, weakly(self._unknown))
        self._server_news = ServerNews(self._connections, self._arrivals)
        for part in (self._connections, self._server_news):
            close_when_dropped(self, part)

    def _prepare(self, address: DatabaseAddress) -> None:
        with self._connections.opened() as link:
            self._connections.may_write = may_write(link)
            migrate(link, address.schema, self.location)
        address.remember()

    def _check_open(self) -> None:
        super()._check_open()
        if self._process != THIS_PROCESS.number:
            raise ForkedStoreError(
                f"{self.location} was opened by process {self._process}, from which this one was forked, and a "
                "connection does not survive that; open it again here, with open_store or a new Environment"
            )

    def _moment(self, now: int | None) -> Moment:
        if now is not None:
            return Moment(now, None)
        ((wall,),) = self._connections.read(tables.NOW)
        return Moment(wall, None)

    # --- writing -----------------------------------------------------------------------------------------------------

    def append_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """Append as `EventStore.append_all` says; what a lost connection left in doubt is settled."""
        answers = super().append_all(batches)
        # The server may have made the commit in doubt only now, after this process looked for it
        # (test_a_commit_that_the_server_makes_after_all_is_not_made_twice).
        late = [
            place
            for place, batch in enumerate(batches)
            if batch.again and isinstance(answers[place], ConcurrentAppendError)
        ]
        for place, answer in zip(late, super().append_all([batches[place] for place in late]), strict=True):
            answers[place] = answer
        return answers

    def append_in_a_moment(self, batches: Sequence[Batch], seconds: float) -> Appending:
        """Append as `EventStore.append_in_a_moment` says: what only carries on logs is sent at once."""
        self._check_open()
        is_known = all(not batch.expected_sequence or self._is_readable(batch.execution_id) for batch in batches)
        if not batches or not is_known or any(batch.again for batch in batches):  # to check a key asks the server
            return super().append_in_a_moment(batches, seconds)
        checked = [self._prepare_batch(batch) for batch in batches]
        prepared = [entry for entry in checked if isinstance(entry, PreparedBatch)]
        if len(prepared) < len(batches):
            return super().append_in_a_moment(batches, seconds)
        if not self._lock.acquire(blocking=False):
            return Appending(lambda: self._write_and_notify(prepared))
        try:
            sent = self._logs.begin(prepared, self.durability, self._notify)
            if sent is None:
                return Appending(lambda: self._write_and_notify(prepared))
            if sent.is_answered(seconds):
                return Appending(list, self._outcome(sent))
            return Appending(lambda: self._outcome(sent), is_begun=True)
        finally:
            self._lock.release()

    def _outcome(self, sent: SentBatches) -> list[Refusal | None]:
        with self._lock:
            return self._logs.outcome(sent)

    def _write(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        return self._logs.write(batches, self.durability)

    def _delete(self, execution_id: str) -> None:
        with self._connections.transaction() as ask:
            changed = tables.delete(ask, execution_id, self.sealing)
        if not changed:
            raise self._unknown(execution_id)
        self._logs.forget(changed)

    def _cleanup(self, before: int) -> list[str]:
        with self._connections.transaction() as ask:
            ended = tables.ended_before(ask, before)
            changed = [name for execution_id in ended for name in tables.delete(ask, execution_id, self.sealing)]
        self._logs.forget(changed)
        return ended

    # --- leases and checkpoints --------------------------------------------------------------------------------------

    def _acquire(
        self, execution_id: str, owner: Owner, moment: Moment, until: Moment, instead_of: Lease | None
    ) -> Lease:
        try:
            with self._connections.transaction() as ask:
                tables.lock(ask, execution_id)
                found = tables.load_lease(ask, execution_id)
                if found is not None:
                    (held,) = found
                    if held is not None and held.keeps_out(moment, instead_of):
                        raise held.held_error()
                    self._logs.forget((execution_id,))  # its token is another
                    return tables.put_next(ask, execution_id, owner, until)
        except ConnectionLostError:
            (taken,) = tables.load_lease(self._connections.read, execution_id) or (None,)
            if taken is None or (taken.owner, taken.expires_at) != (owner, until.wall):
                raise
            return taken  # it was written, and only the word of that was lost
        raise self._unknown(execution_id)

    def _renew(self, held: Sequence[Lease], until: Moment) -> list[bool]:
        return tables.renew(self._connections.write, held, until)

    def _release(self, lease: Lease) -> None:
        tables.release(self._connections.write, lease)

    def _leases(self) -> list[Lease]:
        return tables.load_leases(self._connections.read)

    def _lease_of(self, execution_id: str) -> Lease | None:
        return self._found(execution_id, tables.load_lease(self._connections.read, execution_id))[0]

    def _put_checkpoint(self, execution_id: str, sequence: int, data: bytes) -> None:
        with self._connections.transaction() as ask:
            tables.lock(ask, execution_id)
            found = ask("SELECT key, last_sequence FROM divebook.executions WHERE id = %s", (escaped(execution_id),))
            if found:
                ((key, last),) = found
                check_reached(execution_id, sequence, last)
                tables.put_checkpoint(ask, key, execution_id, sequence, data)
                return
        raise self._unknown(execution_id)

    def _checkpoint(self, execution_id: str) -> tuple[int, bytes] | None:
        return tables.load_checkpoint(self._connections.read, execution_id)

    def _checkpoints(self) -> list[str]:
        select = "SELECT id FROM divebook.checkpoints JOIN divebook.executions USING (key)"
        return [unescaped(name) for (name,) in self._connections.read(select)]

    def _drop_checkpoints(self, execution_ids: Sequence[str]) -> int:
        drop = """
        DELETE FROM divebook.checkpoints USING divebook.executions
        WHERE checkpoints.key = executions.key AND id = ANY(%s) RETURNING 1
        """
        return len(self._connections.write(drop, ([escaped(name) for name in execution_ids],)))

    # --- messages ----------------------------------------------------------------------------------------------------

    def _post(self, message: Message, payload: bytes) -> Message:
        number = tables.post(self._connections, message, payload)
        if number is None:
            raise self._unknown(message.execution_id)
        kept = tables.load_one(self._connections.read, self.sealing, number)
        return kept or replace(message, payload=decode(self.sealing.open(payload)), number=number)

    def _bring(self, brought: Sequence[tuple[Message, bytes]]) -> None:
        with self._connections.transaction() as ask:
            for message, payload in brought:
                if not tables.insert(ask, message, payload):
                    raise self._unknown(message.execution_id)

    def _inbox(self, execution_id: str, after: int) -> list[Message]:
        found = tables.load_inbox(self._connections.read, self.sealing, execution_id, after)
        return self._found(execution_id, found)

    def _new_messages(self, after: int) -> list[Message]:
        return tables.load_all(self._connections.read, self.sealing, after)

    def on_news(self, listener: NewsListener, execution_id: str | None = None) -> Callable[[], None]:
        """Call ``listener()`` at news, as `EventStore.on_news` says."""
        ends = [super().on_news(listener)]
        if execution_id is not None:
            ends.append(self._server_news.follow(execution_id))

        def leave() -> None:
            for end in ends:
                end()

        return leave

    def _wait_for_news(self, seen: int, seconds: float) -> int:
        self._server_news.start()
        found = super()._wait_for_news(seen, seconds)
        self._check_open()
        return found

    def _last_message(self) -> int:
        return tables.last_number(self._connections.read)

    def _untaken(self) -> set[str]:
        return tables.untaken(self._connections.read)

    def _has_untaken(self, execution_id: str) -> bool:
        return self._found(execution_id, tables.has_untaken(self._connections.read, execution_id))

    def _last_addressee(self, kind: str, key: str) -> str | None:
        return tables.last_addressee(self._connections.read, kind, key)

    # --- queues ------------------------------------------------------------------------------------------------------

    def _claim(self, wanted: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]:
        with self._connections.transaction() as ask:
            found = tables.claim(ask, wanted, owner, moment, until)
        self._logs.forget([lease.execution_id for lease in found])  # their tokens are others
        return found

    def _queued(self, *, withheld: bool) -> list[QueuedExecution]:
        return tables.load(self._connections.read, withheld=withheld)

    def _seen_to(self, schedule: str, moment: int) -> int:
        return tables.seen_to(self._connections.read, self._connections.write, schedule, moment)

    def _see_to(self, schedule: str, moment: int) -> None:
        tables.see_to(self._connections.write, schedule, moment)

    def _withhold(self, execution_id: str) -> None:
        tables.withhold(self._connections.write, execution_id)

    def _announce(self, worker: WorkerRecord, until: int, forgotten: int) -> None:
        tables.announce(self._connections.write, worker, until, forgotten)

    def _retire(self, worker_id: str) -> None:
        tables.retire(self._connections.write, worker_id)

    def _workers(self) -> list[WorkerRecord]:
        return tables.load_workers(self._connections.read)

    # --- lists -------------------------------------------------------------------------------------------------------

    def _record(self, execution_id: str) -> ExecutionRecord:
        rows = self._connections.read(f"{RECORD} WHERE id = %s", (escaped(execution_id),))
        return load_record(self._found(execution_id, rows[0] if rows else None))

    def _records(self, wanted: RecordFilter, limit: int, offset: int) -> list[ExecutionRecord]:
        return sound(self._connections.read(*tables.fitting(wanted, limit, offset)), load_record, self._warned)

    def _unended(self) -> list[ExecutionRecord]:
        return sound(self._connections.read(tables.UNENDED), load_record, self._warned)

    def _orphans(self, moment: Moment) -> list[ExecutionRecord]:
        rows = self._connections.read(tables.ORPHANS, (moment.wall,))
        held = [tables.lease_of(row[0], row[WIDTH:]) for row in rows]
        left = [row[:WIDTH] for row, lease in zip(rows, held, strict=True) if not (lease and lease.keeps_out(moment))]
        return sound(left, load_record, self._warned)

    def _descendants(self, execution_id: str) -> int:
        return tables.descendants(self._connections.read, execution_id)

    def _asking(self, question_id: str | None) -> list[tuple[str, str]]:
        return tables.asking(self._connections.read, question_id)

    def _candidates(self, prefix: str) -> list[str]:
        return tables.candidates(self._connections.read, prefix)

    def _put_summaries(self, kept: Mapping[str, StoredSummary]) -> None:
        tables.put_summaries(self._connections.write, kept)

    def _summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
        return tables.load_summaries(self._connections.read, execution_ids)

    # --- keeping in order --------------------------------------------------------------------------------------------

    def _ids(self) -> list[str]:
        return [unescaped(name) for (name,) in self._connections.read(tables.IDS)]

    def _stored_log(self, execution_id: str) -> StoredLog:
        with self._lock, self._connections.transaction(writes=False) as ask:
            ask("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            found = tables.load_stored(ask, self._types, execution_id)
        return self._found(execution_id, found)

    def _blobs(self, without: Collection[str]) -> list[StoredBlob]:
        return tables.list_blobs(self._connections.read, without)

    def _blob(self, digest: bytes) -> bytes | None:
        return self._reader.blob(digest)

    def _faults(self) -> list[str]:
        return tables.find_kept_faults(self._connections.read)

    def _discard(self, execution_ids: Sequence[str], moment: Moment) -> list[str]:
        with self._connections.transaction() as ask:
            gone = [name for name in execution_ids if tables.is_over(ask, name, moment)]
            changed = [name for execution_id in gone for name in tables.delete(ask, execution_id, self.sealing)]
        self._logs.forget(changed)
        return gone

    def _drop_blobs(self) -> int:
        with self._connections.transaction() as ask:
            return tables.drop_unused(ask)

    def _close(self) -> None:
        self._server_news.close()
        self._connections.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read_records(self, execution_id: str, after: int, last: int) -> list[Record]:
        log = self._found(execution_id, self._reader.find(execution_id, after, last))
        return self._reader.decoded(log, last, self.sealing)

    def _facts(self, execution_id: str, sequences: Sequence[int]) -> dict[int, Payload]:
        wanted = set(sequences)
        facts = dict[int, Payload]()
        looks: list[FoundLog] = self._reader.around(execution_id, sorted(wanted))
        if not looks:
            raise self._unknown(execution_id)
        for sequence, log in zip(sorted(wanted), looks, strict=True):
            for record in self._reader.decoded(log, sequence, self.sealing):
                found = enumerate(record.facts, record.sequence)
                facts |= {number: fact for number, fact in found if number in wanted}
        if missing := wanted - facts.keys():
            raise CorruptStoreError(f"event {min(missing)} of execution {execution_id} is missing")
        return facts

    def _last_sequence(self, execution_id: str) -> int:
        return self._record(execution_id).last_sequence

    def _found(self, execution_id: str, found: T | None) -> T:
        if found is None:
            raise self._unknown(execution_id)
        return found
