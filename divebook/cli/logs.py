"""``divebook export`` and ``divebook import``: executions as files of JSON lines."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from divebook.cli.options import ExecutionId, Store
from divebook.cli.refusal import ending_damaged
from divebook.cli.screen import DAMAGED, note, note_damage, write
from divebook.cli.text import json_escaped
from divebook.engine.lifecycle import TERMINAL
from divebook.errors import SetupError

STREAM = "-"


def export(
    execution_id: ExecutionId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write; - for stdout.")] = STREAM,
    store: Store = None,
    *,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite an existing file.")] = False,
    move: Annotated[
        bool, typer.Option("--move", help="End it in this store; it goes on where FILE is imported.")
    ] = False,
) -> None:
    """Write a run as a page, a notebook or JSON lines.

    The end of FILE says which: .html is a page, which shows it in any browser, .ipynb a notebook that tells of it, all
    else its log as JSON lines. Page and notebook have no secrets in them, and are imported as a log is. An
    execution that has not ended can only be looked at where its file is imported, unless it is moved (--move). Of a
    damaged log the sound beginning is written, with exit code 1.
    """
    from divebook.store.carried import is_carrier

    if is_carrier(file):
        _export_shown(execution_id, file, store, overwrite=force, move=move)
        return
    if move:
        _export_moving(execution_id, file, store, overwrite=force)
        return
    from divebook.cli.project import existing_store
    from divebook.store import jsonl

    events = existing_store(store)
    whole_id = events.resolve(execution_id)
    with ending_damaged():
        if file != STREAM:
            count, damage = jsonl.export_sound(events, whole_id, file, overwrite=force)
            note(f"wrote {count} events of {whole_id} to {file}")
            _note_unended(events.record(whole_id).status)
        else:
            buffer = io.BytesIO()
            count, damage = jsonl.export_sound(events, whole_id, buffer)
            sys.stdout.write(json_escaped(buffer.getvalue().decode()))
        if damage is not None:
            note_damage(count, events.record(whole_id).last_sequence, damage)
            raise typer.Exit(DAMAGED)


def _export_shown(execution_id: str, file: str, store: str | None, *, overwrite: bool, move: bool) -> None:
    from divebook.cli.project import existing_environment
    from divebook.store.carried import NOTEBOOK

    if move:
        raise SetupError("--move needs a file of JSON lines (NAME.jsonl): a page or a notebook is to be looked at")
    execution = existing_environment(store).execution(execution_id)
    if file.lower().endswith(NOTEBOOK):
        execution.to_notebook(file, overwrite=overwrite)
    else:
        execution.to_html(file, overwrite=overwrite)
    note(f"wrote {execution.state.last_sequence} events of {execution.id} to {file}")
    _note_unended(execution.status)


def _export_moving(execution_id: str, file: str, store: str | None, *, overwrite: bool) -> None:
    from divebook.cli.project import existing_environment

    if file == STREAM:
        raise SetupError("--move needs a FILE: the log must be on disk before the execution ends here")
    environment = existing_environment(store)
    moved = environment.store.resolve(execution_id)
    count = environment.export_log(moved, file, overwrite=overwrite, move=True)
    note(f"moved {moved} to {file} ({count} events): it goes on where that is imported; import it once only")


def _note_unended(status: str) -> None:

    if status not in TERMINAL:
        note(f"it has not ended ({status}), so its import is a picture that cannot go on; to move it: --move", "yellow")


def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A file that export wrote (- for JSON lines on stdin), messages or a trace."
        ),
    ],
    store: Store = None,
    *,
    rename: Annotated[bool, typer.Option("--rename", help="Give it a new id.")] = False,
    as_fork: Annotated[bool, typer.Option("--as-fork", help="Go on with it as an execution of its own.")] = False,
) -> None:
    """Import an exported log and print its id.

    Either the whole log arrives or nothing. What has not ended arrives as a picture, which cannot go on. A history of
    messages of pydantic-ai, and a trace of OpenTelemetry with the GenAI conventions, become an execution of turns.
    """
    from divebook.agents import imported
    from divebook.store import jsonl, open_store

    log = imported.read(sys.stdin.buffer if file == STREAM else file)
    write(jsonl.import_(log, lambda: open_store(store), rename=rename, as_fork=as_fork))
    for caveat in jsonl.caveats(log, as_fork=as_fork):
        note(caveat, "yellow")
