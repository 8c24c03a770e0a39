"""Which executions of a list fit what is asked for, and what comes near where none does."""

from __future__ import annotations

import re
from collections.abc import Iterable

from divebook.errors import nearest
from divebook.events.event import to_microseconds
from divebook.execution.overview import RunLine
from divebook.store import ExecutionRecord
from divebook.widgets.protocol.runs import RunsQuery

DAY_US = 86_400_000_000
_WORD = re.compile(r"\w{3,}")


def fits(line: RunLine, query: RunsQuery, now_us: int) -> bool:
    """Return whether an execution fits all that is asked for but its status."""
    record = line.record
    return (
        query["workflow"] in ("", record.workflow_name)
        and query["tag"] in ("", *record.tags)
        and (not query["days"] or is_within(record, query["days"], now_us))
        and all(word in text_of(line) for word in query["text"].lower().split())
    )


def is_within(record: ExecutionRecord, days: int, now_us: int) -> bool:
    """Return whether an execution began in the last so many days."""
    return to_microseconds(record.created_at) >= now_us - days * DAY_US


def text_of(line: RunLine) -> str:
    """Return what is searched: its name, id, tags, note, error and inputs."""
    record, summary = line.record, line.summary
    parts = (record.workflow_name, record.execution_id, *record.tags, record.note, record.error)
    return " ".join(filter(None, (*parts, summary and summary.given, line.about))).lower()


def near(lines: Iterable[RunLine], query: RunsQuery) -> str:
    """Return the word of some execution that is most like the text of a query; empty where none is."""
    words = {word for line in lines for word in _WORD.findall(text_of(line))}
    return nearest(query["text"].lower().strip(), words) or ""


def rank(line: RunLine, query: RunsQuery, now_us: int) -> tuple[float, int]:
    """Return what a list is sorted by, the highest first."""
    began = to_microseconds(line.record.created_at)
    if query["by"] == "cost":
        return (-1.0 if line.cost is None else line.cost, began)
    if query["by"] == "worked":
        worked = line.worked_us(now_us)
        return (-1.0 if worked is None else worked, began)
    return (0.0, began)


def as_code(query: RunsQuery, store: str | None) -> str:
    """Return the code that gives the list as a frame.

    >>> as_code({"type": "list", "view": "", "text": "", "workflow": "label", "tag": "", "status": "failed",
    ...          "days": 0, "by": "began", "limit": 50}, None)
    "divebook.runs(status='failed', workflow='label').frame()"
    """
    given = {"status": query["status"], "workflow": query["workflow"], "tag": query["tag"], "store": store}
    return f"divebook.runs({', '.join(f'{name}={value!r}' for name, value in given.items() if value)}).frame()"
