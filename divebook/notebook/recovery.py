"""Executions that were interrupted when a kernel ended: list them, and resume them if the settings say ``auto``.

``%load_ext divebook`` imports this module. It therefore imports the store and the session only in the functions that
need them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from divebook.errors import DivebookError, NeedsPersonError
from divebook.notebook.commands import print_answer
from divebook.report.hints import advised, show_advice

if TYPE_CHECKING:  # loading the extension must be quick
    from divebook.config.answers import Recovered
    from divebook.notebook.session import Session
    from divebook.stores import EventStore, ExecutionRecord

MAX_LINES = 5
"""Maximum number of executions that are listed one by one after an automatic recovery."""
MAX_LISTED = 50
"""Number of executions on one page of the list of interrupted ones."""
# The following names are copies.
# `tests/notebook/test_recovery.py::test_the_names_are_those_of_the_modules_that_own_them` compares them with the
# originals.
STORE_VARIABLE = "DIVEBOOK_STORE"
STORE_FILE = ".divebook/executions.db"
RECOVER_VARIABLE = "DIVEBOOK_RECOVER"
"""These names equal those in `divebook.stores.registry` and `divebook.config.answers`, which would load SQLite and the
engine.
"""


def print_interrupted() -> None:
    """Print which executions in the default store were interrupted; print nothing if there are none, or if the setting
    is ``off``.

    If the file of the store does not exist, nothing happens.
    """
    # Without a file there are no runs, and opening the store would create one.
    if os.environ.get(RECOVER_VARIABLE) == "off" or not _store_exists():
        return
    try:
        lines = _lines_on_load()
    # Loading the extension must not fail because of a damaged store.
    except DivebookError as error:
        lines = [f"the search for interrupted runs failed: {error}"]
    for line in lines:
        print_answer(line)


def existing_store() -> EventStore | None:
    """Open the default store; return None if its file does not exist."""
    from divebook.stores import open_store

    return open_store() if _store_exists() else None


def _store_exists() -> bool:
    """Return whether the default store already exists as a file, or is a URL, so that reading it creates nothing."""
    address = os.environ.get(STORE_VARIABLE) or STORE_FILE
    # An address with ``://`` names a server, on which reading creates no file.
    return "://" in address or Path(address).expanduser().is_file()


def _lines_on_load() -> list[str]:
    from divebook.events.catalog import RUNNING
    from divebook.stores import open_store

    # Reading orphans needs no session. Most loads end here and stay quick.
    orphans = open_store().orphans()
    if not orphans:
        return []
    from divebook.config.answers import AUTO, recovery_mode

    # At this moment no cell has defined anything yet, so only the environment variable can contain ``auto``.
    if recovery_mode() != AUTO:
        return [_count_line(len(orphans), are_running=all(record.status == RUNNING for record in orphans))]
    from divebook.notebook.session import current_session

    recovered = current_session().recover_by_itself()
    lines = _recovered_lines(recovered)
    if recovered.waiting and len(recovered.resumed) <= MAX_LINES:  # otherwise the one line contains the number
        lines.append(_count_line(recovered.waiting))
    return lines


def _count_line(count: int, *, are_running: bool = True) -> str:
    # One that waited, and whose answer or time has come since, was not interrupted.
    interrupted = "was interrupted" if count == 1 else "were interrupted"
    verb = interrupted if are_running else "can continue"
    return f"{count:,} run{'' if count == 1 else 's'} {verb}: {advised('recover')}"


def lines_after_defining(session: Session) -> list[str]:
    """Resume the interrupted executions whose definitions are now complete, after a cell has added definitions. Return
    lines of text about them, which the cell prints. Do nothing and return an empty list unless the settings contain
    ``Recover: auto``.
    """
    from divebook.config.answers import AUTO, recovery_mode

    if recovery_mode(session.environment.internals.registry.config) != AUTO:
        return []
    return _recovered_lines(session.recover_by_itself())


def _recovered_lines(recovered: Recovered) -> list[str]:
    """Return one line for each interrupted execution that was resumed automatically, and for each one that needs a
    person's decision.

    If there are many executions, return one line with their numbers.
    """
    count = len(recovered.resumed)
    # Most refusals name an agent or action that a later cell may define. They are not printed.
    needs_person = [str(error) for _, error in recovered.refused if type(error) is NeedsPersonError]
    # The limit on resumed runs also decides about the form: with many of them, a single line has all numbers.
    if count <= MAX_LINES:
        lines = resumed_lines(recovered)
        if len(needs_person) <= MAX_LINES:
            return [*lines, *needs_person]
        return [
            *lines,
            f"{len(needs_person)} interrupted runs can only be resumed by a person; to list them: {advised('recover')}",
        ]
    line = f"resumed {count:,} runs; to list them: {advised('runs', 'divebook.runs()')}"
    if recovered.waiting:
        person = f" ({len(needs_person)} can only be resumed by a person)" if needs_person else ""
        line += f"; {recovered.waiting:,} interrupted runs remain{person}; to list them: {advised('recover')}"
    return [line]


def lines_after_recovering(recovered: Recovered) -> list[str]:
    """Return the lines that ``%dive recover`` prints: the executions that it has resumed, and those that it could not
    resume. Of many executions, only the first ones are listed, followed by the number of the others.
    """
    # Unlike after an automatic recovery, each refusal is printed: the person has asked for exactly these executions.
    lines = [*_first(resumed_lines(recovered), "resumed"), *_first(refused_lines(recovered), "not resumed")]
    return lines or ["nothing to recover"]


def _first(lines: list[str], kind: str) -> list[str]:
    if len(lines) <= MAX_LISTED:
        return lines
    return [*lines[:MAX_LISTED], f"and {len(lines) - MAX_LISTED:,} more {kind}"]


def resumed_lines(recovered: Recovered) -> list[str]:
    """Return one line for each execution that was resumed, with the command that shows it."""
    from divebook.text.redaction import one_line

    return [
        f"resumed {run.id} of {one_line(run.workflow.name, 40)}: {show_advice(run.id)}" for run in recovered.resumed
    ]


def refused_lines(recovered: Recovered) -> list[str]:
    """Return a line with the reason for each execution that cannot be resumed."""
    from divebook.text.redaction import one_line

    return [
        f"{record.execution_id} was not resumed: {one_line(str(error), 400)}" for record, error in recovered.refused
    ]


def listing(store: EventStore, records: Sequence[ExecutionRecord], page: int = 1) -> str:
    """Return one page of the list of interrupted executions of a store as text, the newest first, with the commands
    that resume them.
    """
    from divebook.projections.summary import Overview
    from divebook.text.format import local_time
    from divebook.text.redaction import one_line

    statuses = Overview(store).statuses(records)
    lines = [
        f"  {record.execution_id}  {one_line(record.workflow_name, 40)}  {statuses[record.execution_id]}  "
        f"{local_time(record.started_at)}"
        # Pages count from 1.
        for record in records[(page - 1) * MAX_LISTED : page * MAX_LISTED]
    ]
    if not lines:
        # Records without lines mean that the page number is too high.
        return f"there is no page {page}" if records else "nothing to recover"
    pages = math.ceil(len(records) / MAX_LISTED)
    more = (
        [f"  page {page} of {pages} ({len(records):,} runs); to show page N: {advised('recover --page N')}"]
        if pages > 1
        else []
    )
    to_continue = f"to resume one run: {advised('recover ID')}; to resume all: {advised('recover --all')}"
    return "\n".join(["interrupted runs", *lines, *more, to_continue])
