"""``divebook recover``: executions that were interrupted, listed or resumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divebook.cli.interrupts import INTERRUPTED, Interrupts
from divebook.cli.options import Actions, Code, Json, Store, within
from divebook.cli.screen import columns, note, say, status_text, write
from divebook.cli.text import as_json, one_line
from divebook.errors import DivebookError
from divebook.text.ranges import COUNT
from divebook.text.times import local_time

if TYPE_CHECKING:
    from divebook.environment import Environment
    from divebook.store import ExecutionRecord

FAILED, WAITING = 1, 3
PAGE = 50


def recover(
    execution_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Resume this one; the beginning of its id is enough.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Resume all of them, one after the other.")] = False,
    page: Annotated[int, typer.Option("--page", callback=within(COUNT), help="Which page of a long list.")] = 1,
    definitions: Annotated[
        Path | None,
        typer.Option("--definitions", "-d", metavar="FILE|FOLDER", help="The agents that the workflows need."),
    ] = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List executions whose process has died, or resume them.

    Exit code 1 if one failed or cannot go on, 3 if one waits.
    """
    from divebook.cli.project import existing_store, open_environment, take_in
    from divebook.config.recovery import interrupted

    existing_store(store)
    environment = open_environment(store, actions or (), note)
    if definitions is not None:
        take_in(environment, definitions, code=code)
    records = interrupted(environment, execution_id)
    if every or execution_id is not None:
        raise typer.Exit(_worst([_take_up(environment, record) for record in records]))
    _list(records, page, json=json)


def _worst(codes: Sequence[int]) -> int:
    if set(codes) <= {0, WAITING}:
        return max(codes, default=0)
    return FAILED


def _list(records: Sequence[ExecutionRecord], page: int, *, json: bool) -> None:

    if json:
        write(as_json([{"id": found.execution_id, "workflow": found.workflow_name} for found in records], indent=2))
    elif records:
        rows = [
            (
                found.execution_id,
                one_line(found.workflow_name, 40),
                status_text(found.status),
                local_time(found.started_at),
            )
            for found in records[(page - 1) * PAGE : page * PAGE]
        ]
        columns(("id", "workflow", "status", "started"), rows, whole=("id",))
        if len(records) > PAGE:
            note(f"page {page} of {-(-len(records) // PAGE)}, {len(records):,} executions: divebook recover --page N")
        note("to go on: divebook recover ID, or divebook recover --all, or divebook resume ID FILE", "yellow")
    else:
        note("nothing to recover")


def _take_up(environment: Environment, record: ExecutionRecord) -> int:
    """Resume one execution and wait for its end; return the exit code that it means."""
    from divebook.cli.result import EXIT_CODES

    try:
        with Interrupts(note) as interrupts:
            execution = environment.resume(record.execution_id)
            interrupts.guard(execution)
            execution.wait()
    except DivebookError as error:
        note(f"{record.execution_id} was not resumed: {one_line(str(error))}", "bold red")
        return FAILED
    say(status_text(execution.status), one_line(execution.workflow.name), execution.id)
    if interrupts.count:
        raise typer.Exit(INTERRUPTED)
    return EXIT_CODES.get(execution.status, FAILED)
