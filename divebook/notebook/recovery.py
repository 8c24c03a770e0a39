"""Telling of interrupted executions when the extension is loaded, and taking them up where that is wished for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from divebook.errors import DivebookError, NeedsPersonError
from divebook.notebook.commands import tell

if TYPE_CHECKING:  # loading the extension must be quick
    from divebook.config.answers import Recovered
    from divebook.notebook.session import Session
    from divebook.store import EventStore, ExecutionRecord

MOST_LINES = 5
MOST_LISTED = 50
STORE_VARIABLE = "DIVEBOOK_STORE"
STORE_FILE = ".divebook/executions.db"
RECOVER_VARIABLE = "DIVEBOOK_RECOVER"
"""As in `divebook.store.registry` and `divebook.config.answers`, which would load SQLite and the engine."""


def tell_on_load() -> None:
    """Print a line if the usual store has interrupted executions; look at nothing if there is no such file."""
    if os.environ.get(RECOVER_VARIABLE) == "off" or not _is_there():
        return
    try:
        lines = _lines_on_load()
    except DivebookError as error:
        lines = [f"interrupted runs cannot be looked for: {error}"]
    for line in lines:
        tell(line)


def existing_store() -> EventStore | None:
    """Return the usual store, or None if it is a file that is not there."""
    from divebook.store import open_store

    return open_store() if _is_there() else None


def _is_there() -> bool:
    named = os.environ.get(STORE_VARIABLE) or STORE_FILE
    return "://" in named or Path(named).expanduser().is_file()


def _lines_on_load() -> list[str]:
    from divebook.store import open_store

    orphans = open_store().orphans()
    if not orphans:
        return []
    from divebook.config.answers import AUTO, way_to_recover

    if way_to_recover() != AUTO:
        return [_interrupted(len(orphans))]
    from divebook.notebook.session import current_session

    recovered = current_session().recover_by_itself()
    lines = _taken_up(recovered)
    is_told = len(recovered.resumed) > MOST_LINES
    return lines if is_told or not recovered.waiting else [*lines, _interrupted(recovered.waiting)]


def _interrupted(count: int) -> str:
    return f"{'1 run was' if count == 1 else f'{count:,} runs were'} interrupted: %dive recover"


def lines_after_defining(session: Session) -> list[str]:
    """Take up what new definitions have made possible, if the settings say so; return what to print of it."""
    from divebook.config.answers import AUTO, way_to_recover

    if way_to_recover(session.environment.config) != AUTO:
        return []
    return _taken_up(session.recover_by_itself())


def _taken_up(recovered: Recovered) -> list[str]:
    """Return a line for each execution that goes on by itself, or needs a person; one for all where they are many."""
    count = len(recovered.resumed)
    needy = [str(error) for _, error in recovered.refused if type(error) is NeedsPersonError]
    if count <= MOST_LINES:
        many = f"{len(needy)} interrupted runs need a person: %dive recover"
        return [*resumed_lines(recovered), *(needy if len(needy) <= MOST_LINES else [many])]
    person = f", {len(needy)} of them need a person" if needy else ""
    left = f"; {recovered.waiting:,} are left{person}: %dive recover" if recovered.waiting else ""
    return [f"resumed {count:,} runs: %dive runs{left}"]


def lines_after_recovering(recovered: Recovered) -> list[str]:
    """Return what came of taking up what somebody asked for: the first of each kind, and how many more there are."""
    kinds = ("resumed", resumed_lines(recovered)), ("not resumed", refused_lines(recovered))
    return [line for kind, lines in kinds for line in _first(lines, kind)] or ["nothing to recover"]


def _first(lines: list[str], kind: str) -> list[str]:
    more = [f"and {len(lines) - MOST_LISTED:,} more {kind}"] if len(lines) > MOST_LISTED else []
    return [*lines[:MOST_LISTED], *more]


def resumed_lines(recovered: Recovered) -> list[str]:
    """Return a line for each execution that goes on."""
    from divebook.text.redaction import one_line

    return [f"resumed {run.id} of {one_line(run.workflow.name, 40)}: %dive show {run.id}" for run in recovered.resumed]


def refused_lines(recovered: Recovered) -> list[str]:
    """Return a line for each execution that cannot go on, with the reason."""
    from divebook.text.redaction import one_line

    return [
        f"{record.execution_id} was not resumed: {one_line(str(error), 400)}" for record, error in recovered.refused
    ]


def listing(records: Sequence[ExecutionRecord], page: int = 1) -> str:
    """Return a page of the interrupted executions as text, the newest ones first, and how to go on."""
    from divebook.text.format import local_time
    from divebook.text.redaction import one_line

    lines = [
        f"  {found.execution_id}  {one_line(found.workflow_name, 40)}  {found.status}  {local_time(found.started_at)}"
        for found in records[(page - 1) * MOST_LISTED : page * MOST_LISTED]
    ]
    if not lines:
        return f"there is no page {page}" if records else "nothing to recover"
    pages = -(-len(records) // MOST_LISTED)
    more = [f"  page {page} of {pages}, {len(records):,} runs: %dive recover --page N"] if pages > 1 else []
    return "\n".join(["interrupted", *lines, *more, "to go on: %dive recover ID, or %dive recover --all"])
