"""Which executions of a store frames are of: what ``where=`` may say, and which lines of the store fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from typing import Any, Self

from divebook.engine.lifecycle import STATUSES
from divebook.errors import NotFoundError, SetupError
from divebook.events.catalog import ORIGINS
from divebook.store import EventStore, ExecutionRecord
from divebook.store.chains import chain_of

_KNOWN = {"status": STATUSES, "origin": ORIGINS}


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What executions have in common; each part may be one value or a list of those that fit, None fits all.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:", workflows=[Workflow("w", [Step("s", script="1")])])
    >>> _ = [environment.start("w", tags=[tag]).wait() for tag in ("baseline", "other")]
    >>> chosen = Selection.of({"status": ["completed", "failed"], "tag": "baseline"})
    >>> [record.tags for record in chosen.records(environment.store)]
    [('baseline',)]
    """

    ids: Collection[str] | str | None = None
    """Ids, or the beginnings of some."""
    chain: str | None = None
    """The id, or its beginning, of an execution of a chain: those of which one went on as the next."""
    status: Collection[str] | str | None = None
    workflow: Collection[str] | str | None = None
    tag: Collection[str] | str | None = None
    """Those that have one of the tags."""
    origin: Collection[str] | str | None = None
    """``run``, ``fork``, ``what-if``, ``trial``, ``child`` ..."""
    parent: Collection[str] | str | None = None
    notebook: Collection[str] | str | None = None
    cell: Collection[str] | str | None = None
    text: str | None = None
    """What stands in the id, the workflow's name, a tag, the note or the error, in any case."""
    since: datetime | date | str | None = None
    """Those that began then or later: a time, a day, or one in ISO form; without a zone on this machine's clock."""
    until: datetime | date | str | None = None
    """Those that began before then."""

    @classmethod
    def of(cls, where: Mapping[str, Any] | None) -> Self:
        """Return what a mapping says.

        Raises
        ------
        NotFoundError
            A part, a status or an origin that there is not.
        SetupError
            A time that cannot be read, or texts that are none.
        """
        given = dict(where or {})
        names = [entry.name for entry in fields(cls)]
        for name in given.keys() - {*names}:
            raise NotFoundError("filter", str(name), names)
        for name in ("since", "until"):
            given[name] = _moment(name, given.get(name))
        selection = cls(**given)
        for name, known in _KNOWN.items():
            for value in _values(name, getattr(selection, name)) or ():
                if value not in known:
                    raise NotFoundError(name, value, known)
        for name in ("text", "chain"):
            if not isinstance(getattr(selection, name), str | None):
                raise SetupError(f"where: {name} must be a text, not {getattr(selection, name)!r}")
        return selection

    def records(self, store: EventStore, limit: int = 0) -> list[ExecutionRecord]:
        """Return the lines of the executions that fit, newest first; `limit` 0 returns all.

        Raises
        ------
        ExecutionNotFoundError
            One of the `ids` is of no execution.
        """
        ids = _values("ids", self.ids)
        parts = ("status", "workflow", "tag", "origin", "parent", "notebook", "cell")
        asked = {name: values for name in parts if (values := _values(name, getattr(self, name))) is not None}
        single: dict[str, Any] = {name: values[0] for name, values in asked.items() if len(values) == 1}
        if self.chain is not None:
            chain = chain_of(store, store.resolve(self.chain))
            ids = tuple(chain) if ids is None else tuple(name for name in map(store.resolve, ids) if name in chain)
        if ids is not None:
            found = [store.record(name) for name in dict.fromkeys(map(store.resolve, ids))]
        else:  # one value is asked of the store, which has indexes for it
            found = store.records(**single)
        fitting = [record for record in found if self._fits(record, asked)]
        return fitting[:limit] if limit else fitting

    def _fits(self, record: ExecutionRecord, asked: Mapping[str, tuple[str, ...]]) -> bool:
        plain = asked.keys() - {"tag", "workflow"}
        own: dict[str, tuple[str, ...]] = {name: (getattr(record, name),) for name in plain}
        own |= {"tag": record.tags, "workflow": (record.workflow_name,)}
        if any(set(values).isdisjoint(own[name]) for name, values in asked.items()):
            return False
        began = record.started_at or record.created_at
        if isinstance(self.since, datetime) and began < self.since:
            return False
        if isinstance(self.until, datetime) and began >= self.until:
            return False
        said = (record.execution_id, record.workflow_name, *record.tags, record.note or "", record.error or "")
        return self.text is None or self.text.casefold() in "\n".join(said).casefold()


def _values(name: str, given: Any) -> tuple[str, ...] | None:
    """Return what fits, each as a text; None for everything."""
    if given is None or isinstance(given, str):
        return None if given is None else (given,)
    values = tuple(given) if isinstance(given, Collection) else (given,)
    for value in values:
        if not isinstance(value, str):
            raise SetupError(f"where: {name} must be a text or a list of texts, not {given!r}")
    return values


def _moment(name: str, given: Any) -> datetime | None:
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise SetupError(f"where: {name} must be a time such as '2026-01-31T12:00', not {given!r}") from None
    if isinstance(given, date) and not isinstance(given, datetime):
        given = datetime(given.year, given.month, given.day)  # noqa: DTZ001 - on this machine's clock
    if given is not None and not isinstance(given, datetime):
        raise SetupError(f"where: {name} must be a time such as '2026-01-31T12:00', not {given!r}")
    return None if given is None else given.astimezone(UTC)
