"""The line of one execution in a list of executions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self

from divebook.events.catalog import BOOK, RUN, ExecutionAnnotated, ExecutionForked, ExecutionStarted
from divebook.store.durability import Durability


class Beginning(NamedTuple):
    """What an execution began with, as far as lists show it or search for it; tags and note may become others."""

    workflow_name: str
    fingerprint: str | None = None
    key: str | None = None
    origin: str = RUN
    parent: str | None = None
    tags: tuple[str, ...] = ()
    note: str | None = None
    notebook: str | None = None
    cell: str | None = None
    opened: int = 1
    """The number of the event that says so: the first one, or the latest at which it was forked."""

    @classmethod
    def of(cls, opening: ExecutionStarted | ExecutionForked, sequence: int) -> Self:
        """Return it as an opening says, the event of that number."""
        facts = {name: getattr(opening, name) for name in cls._fields[:-1]}
        return cls(**{**facts, "origin": opening.came_from, "tags": tuple(opening.tags or ())}, opened=sequence)

    def annotated(self, said: Iterable[ExecutionAnnotated]) -> Self:
        """Return it with the tags and the note that people have given the execution since."""
        tags, note = self.tags, self.note
        for fact in said:
            removed = {*(fact.untagged or ())}
            tags = tuple(tag for tag in dict.fromkeys([*tags, *(fact.tags or ())]) if tag not in removed)
            note = note if fact.note is None else fact.note or None
        return self._replace(tags=tags, note=note)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which executions a list holds; None stands for all."""

    status: str | None = None
    workflow: str | None = None
    tag: str | None = None
    origin: str | None = None
    parent: str | None = None
    notebook: str | None = None
    cell: str | None = None
    key: str | None = None
    with_books: bool = False
    """Whether books are listed, which no person has started: see `divebook.steps.books`."""

    def __contains__(self, found: tuple[str, Beginning]) -> bool:
        """Return whether the list holds an execution of that status and beginning."""
        status, beginning = found
        if beginning.origin == BOOK and not self.with_books:
            return False
        own = (status, beginning.workflow_name, beginning.origin, beginning.parent, beginning.notebook, beginning.cell)
        asked = (self.status, self.workflow, self.origin, self.parent, self.notebook, self.cell)
        if self.key not in (None, beginning.key):
            return False
        return self.tag in (None, *beginning.tags) and all(map(_fits, asked, own))


def _fits(asked: str | None, own: str | None) -> bool:
    return asked in (None, own)


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """One line of a list of executions, derived from the events as they were appended."""

    execution_id: str
    workflow_name: str
    fingerprint: str | None
    status: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    last_sequence: int
    error: str | None
    size: int
    """Bytes of payload as they are written; a large value that occurs several times counts once."""
    wake_at: datetime | None
    """When it has something to do by itself, while it waits."""
    taken: int
    """Number of the last message that is in its log."""
    durability: Durability
    """What it was begun with."""
    key: str | None = None
    """The start key that is its alone."""
    origin: str = RUN
    """How it came about, one of `divebook.events.catalog.ORIGINS`."""
    parent: str | None = None
    """The execution it came from."""
    tags: tuple[str, ...] = ()
    note: str | None = None
    notebook: str | None = None
    cell: str | None = None
    opened: int = 1
    """The number of its newest opening (`divebook.events.catalog.ExecutionForked`)."""

    def is_due(self, moment: datetime) -> bool:
        """Return whether it has something to do by itself at a moment."""
        return self.wake_at is not None and self.wake_at <= moment
