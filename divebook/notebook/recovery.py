"""Telling of interrupted executions when the extension is loaded, and taking them up where that is wished for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from divebook.errors import DivebookError, NeedsPersonError
from divebook.notebook.printed import tell

if TYPE_CHECKING:  # loading the extension must be quick
    from divebook.config.recovery import Recovered
    from divebook.notebook.session import Session
    from divebook.store import EventStore, ExecutionRecord

MOST_LINES, MOST_LISTED = 5, 50
STORE_VARIABLE = "DIVEBOOK_STORE"
STORE_FILE = ".divebook/executions.db"
RECOVER_VARIABLE = "DIVEBOOK_RECOVER"
"""As in `divebook.store.registry` and `divebook.config.recovery`, which would load SQLite and the engine."""


def tell_on_load() -> None:
    """Print a line if the usual store has interrupted executions; look at nothing if there is no such file."""
    if os.environ.get(RECOVER_VARIABLE) == "off" or not _is_there():
        return
    try:
        lines = _lines_on_load()
    except DivebookError as error:
        lines = [f"interrupted executions cannot be looked for: {error}"]
    for line in lines:
        tell(line)


def existing_store() -> EventStore | None:
    """Return the usual store, or None if there is no such file."""
    from divebook.store import open_store

    return open_store() if _is_there() else None


def _is_there() -> bool:
    return Path(os.environ.get(STORE_VARIABLE) or STORE_FILE).expanduser().is_file()


def _lines_on_load() -> list[str]:
    from divebook.store import open_store

    orphans = open_store().orphans()
    if not orphans:
        return []
    from divebook.config.recovery import AUTO, way_to_recover

    if way_to_recover() != AUTO:
        return [_interrupted(len(orphans))]
    from divebook.notebook.session import current_session

    recovered = current_session().recover_by_itself()
    waiting = len(recovered.refused) + recovered.left
    return [*_taken_up(recovered), *([_interrupted(waiting)] if waiting else [])]


def _interrupted(count: int) -> str:
    return f"{'1 execution was' if count == 1 else f'{count} executions were'} interrupted: %dive recover"


def lines_after_defining(session: Session) -> list[str]:
    """Take up what new definitions have made possible, if the settings say so; return what to print of it."""
    from divebook.config.recovery import AUTO, way_to_recover

    if way_to_recover(session.environment.config) != AUTO:
        return []
    return _taken_up(session.recover_by_itself())


def _taken_up(recovered: Recovered) -> list[str]:
    """Return a line for each execution that goes on by itself, or one for all where they are many."""
    count = len(recovered.resumed)
    lines = [f"resumed {count} executions: %dive runs"] if count > MOST_LINES else resumed_lines(recovered)
    return [*lines, *(str(error) for _, error in recovered.refused if type(error) is NeedsPersonError)][:MOST_LISTED]


def resumed_lines(recovered: Recovered) -> list[str]:
    """Return a line for each execution that goes on."""
    from divebook.text.shown import one_line

    return [f"resumed {run.id} of {one_line(run.workflow.name, 40)}: %dive show {run.id}" for run in recovered.resumed]


def refused_lines(recovered: Recovered) -> list[str]:
    """Return a line for each execution that cannot go on, with the reason."""
    from divebook.text.shown import one_line

    return [f"{record.execution_id} stays as it is: {one_line(str(error), 400)}" for record, error in recovered.refused]


def listing(records: Sequence[ExecutionRecord]) -> str:
    """Return the interrupted executions as text, the newest ones where they are many, and how to go on."""
    from divebook.text.shown import one_line
    from divebook.text.times import local_time

    lines = [
        f"  {found.execution_id}  {one_line(found.workflow_name, 40)}  {found.status}  {local_time(found.started_at)}"
        for found in records[:MOST_LISTED]
    ]
    if not lines:
        return "nothing to recover"
    more = [f"  and {len(records) - MOST_LISTED:,} older ones"] if len(records) > MOST_LISTED else []
    return "\n".join(["interrupted", *lines, *more, "to go on: %dive recover ID, or %dive recover --all"])
