"""What lists ask of a store file: which executions there are, what their rows say, and what is kept beside those."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from divebook.store.base import EventStore
from divebook.store.durability import RELAXED, Durability
from divebook.store.execution_row import sound
from divebook.store.leases import Moment
from divebook.store.log import MAX_CANDIDATES
from divebook.store.records import ExecutionRecord, RecordFilter
from divebook.store.sqlite import leases, lists, questions, summaries
from divebook.store.sqlite.compact import EventTypes
from divebook.store.sqlite.connections import Readers
from divebook.store.sqlite.faults import translated
from divebook.store.sqlite.reach import load_record
from divebook.store.sqlite.transactions import Transaction, at_one_moment
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
        with translated(self.location), at_one_moment(self._readers.get()) as connection:
            rows = connection.execute(statement, asked).fetchall()
            return sound(rows, lambda row: load_record(connection, self._types, row), self._warned)

    def _orphans(self, moment: Moment) -> list[ExecutionRecord]:
        with translated(self.location), at_one_moment(self._readers.get()) as connection:
            rows = connection.execute(lists.ORPHANS, {"now": moment.wall}).fetchall()

            def load(row: tuple[Any, ...]) -> ExecutionRecord | None:
                is_left = leases.is_left(row[0], row[lists.WIDTH :], moment)
                return load_record(connection, self._types, row[: lists.WIDTH]) if is_left else None

            return sound(rows, load, self._warned)

    def _asking(self, question_id: str | None) -> list[tuple[str, str]]:
        with translated(self.location):
            return questions.load_open(self._readers.get(), question_id)

    def _candidates(self, prefix: str) -> list[str]:
        with translated(self.location):
            rows = self._readers.get().execute(lists.CANDIDATES, (prefix, prefix, MAX_CANDIDATES + 1)).fetchall()
        return [execution_id for (execution_id,) in rows]

    # --- beside the rows ----------------------------------------------------------------------------------------------

    def _put_summaries(self, kept: Mapping[str, StoredSummary]) -> None:
        with self._transaction(RELAXED) as cursor:
            summaries.put(cursor, kept)

    def _summaries(self, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
        with translated(self.location):
            return summaries.load(self._readers.get(), execution_ids)
