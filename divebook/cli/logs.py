"""``divebook export`` and ``divebook import``: executions as files of JSON lines."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from divebook.cli.options import ExecutionId, Store
from divebook.errors import StoreError

STREAM = "-"


def export(
    execution_id: ExecutionId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - for stdout.")] = STREAM,
    store: Store = None,
    *,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite a file that is there.")] = False,
) -> None:
    """Write the log of an execution as JSON lines.

    Of a damaged log the sound beginning is written, with exit code 1.
    """
    from divebook.cli.project import existing_store
    from divebook.cli.refusal import ending_damaged
    from divebook.cli.screen import DAMAGED, note, note_damage
    from divebook.cli.text import json_escaped
    from divebook.store import jsonl

    events = existing_store(store)
    whole_id = events.resolve(execution_id)
    with ending_damaged():
        if file != STREAM:
            count, damage = jsonl.export_sound(events, whole_id, file, overwrite=force)
            note(f"wrote {count} events of {whole_id} to {file}")
        else:
            buffer = io.BytesIO()
            count, damage = jsonl.export_sound(events, whole_id, buffer)
            sys.stdout.write(json_escaped(buffer.getvalue().decode()))
        if damage is not None:
            note_damage(count, events.record(whole_id).last_sequence, damage)
            raise typer.Exit(DAMAGED)


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines, as export writes them; - for stdin.")],
    store: Store = None,
    *,
    rename: Annotated[bool, typer.Option("--rename", help="Give it a new id.")] = False,
) -> None:
    """Take in an exported log and print its id.

    Either the whole log arrives or nothing.
    """
    from divebook.cli.screen import write
    from divebook.store import jsonl, open_store

    if "\0" in file:
        raise StoreError(f"{file!r} is no path of a file; name one that export has written")
    source = sys.stdin.buffer if file == STREAM else file
    write(jsonl.import_(source, lambda: open_store(store), rename=rename))
