"""What is asked of all executions of a store file: which there are, what is kept beside their rows, and queues."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from divebook.store.base import EventStore
from divebook.store.durability import RELAXED, Durability
from divebook.store.execution_row import sound
from divebook.store.leases import Lease, Moment
from divebook.store.log import MAX_CANDIDATES
from divebook.store.owner import Owner
from divebook.store.queues import Claim, QueuedExecution, WorkerRecord
from divebook.store.records import ExecutionRecord, RecordFilter
from divebook.store.sqlite import leases, lists, questions, queues, summaries
from divebook.store.sqlite.compact import EventTypes
from divebook.store.sqlite.connections import Readers
from divebook.store.sqlite.faults import translated
from divebook.store.sqlite.reach import load_record
from divebook.store.sqlite.transactions import Transaction
from divebook.store.sqlite.whereabouts import Log
from divebook.store.sqlite.writing import OpenLogs
from divebook.store.summaries import StoredSummary


class SqliteListing(EventStore):
    """The part of a store on a file that lists executions."""

    _types: EventTypes
    _warned: set[str]
    _readers: Readers
    _logs: OpenLogs

    @abstractmethod
    def _transaction(self, durability: Durability | None = None) -> Transaction: ...

    @abstractmethod
    def _find(self, connection: Any, execution_id: str) -> Log: ...

    def _records(self, wanted: RecordFilter, limit: int, offset: int) -> list[ExecutionRecord]:
        return self._listed(*lists.fitting(wanted, limit, offset))

    def _unended(self) -> list[ExecutionRecord]:
        return self._listed(lists.UNENDED, {})

    def _listed(self, statement: str, asked: Mapping[str, Any]) -> list[ExecutionRecord]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            rows = connection.execute(statement, asked).fetchall()
            return sound(rows, lambda row: load_record(connection, self._types, row), self._warned)

    def _orphans(self, moment: Moment) -> list[ExecutionRecord]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            rows = connection.execute(lists.ORPHANS, {"now": moment.wall}).fetchall()

            def load(row: tuple[Any, ...]) -> ExecutionRecord | None:
                is_left = leases.is_left(row[0], row[lists.WIDTH :], moment)
                return load_record(connection, self._types, row[: lists.WIDTH]) if is_left else None

            return sound(rows, load, self._warned)

    def _descendants(self, execution_id: str) -> int:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return int(connection.execute(lists.DESCENDANTS, {"parent": execution_id}).fetchone()[0])

    def _asking(self, question_id: str | None) -> list[tuple[str, str]]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return questions.load_open(connection, question_id)

    def _candidates(self, prefix: str) -> list[str]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            rows = connection.execute(lists.CANDIDATES, (prefix, prefix, MAX_CANDIDATES + 1)).fetchall()
        return [execution_id for (execution_id,) in rows]

    # --- queues -------------------------------------------------------------------------------------------------------

    def _claim(self, wanted: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            if not any(queues.to_do(connection, wanted, moment)):
                return []  # most look in vain, and need not wait for those who write
        with self._transaction(RELAXED) as cursor:
            found = list(itertools.islice(queues.to_do(cursor, wanted, moment), wanted.limit))
            self._logs.forget(found)  # their tokens are others
            return [leases.put_next(cursor, self._find(cursor, name), owner, until) for name in found]

    def _queued(self, *, withheld: bool) -> list[QueuedExecution]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return queues.load(connection, withheld=withheld)

    def _seen_to(self, schedule: str, moment: int) -> int:
        with translated(self.location), self._readers.at_one_moment() as connection:
            known = queues.seen_to(connection, schedule)
        if known is None:
            with self._transaction() as cursor:
                if (known := queues.seen_to(cursor, schedule)) is None:
                    queues.see_to(cursor, schedule, moment)
        return moment if known is None else known

    def _see_to(self, schedule: str, moment: int) -> None:
        with self._transaction() as cursor:
            queues.see_to(cursor, schedule, moment)

    def _withhold(self, execution_id: str) -> None:
        with self._transaction() as cursor:
            queues.withhold_one(cursor, execution_id)

    def _announce(self, worker: WorkerRecord, until: int, forgotten: int) -> None:
        with self._transaction(RELAXED) as cursor:
            queues.announce(cursor, worker, until, forgotten)

    def _retire(self, worker_id: str) -> None:
        with self._transaction(RELAXED) as cursor:
            queues.retire(cursor, worker_id)

    def _workers(self) -> list[WorkerRecord]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return queues.load_workers(connection)

    # --- beside the rows ----------------------------------------------------------------------------------------------

    def _put_summaries(self, kept: Mapping[str, StoredSummary]) -> None:
        with self._transaction(RELAXED) as cursor:
            summaries.put(cursor, kept)

    def _summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
        with translated(self.location), self._readers.at_one_moment() as connection:
            return summaries.load(connection, execution_ids)
