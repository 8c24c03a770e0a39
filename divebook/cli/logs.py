"""``divebook export`` and ``divebook import``: executions as files of JSON lines."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from divebook.cli.options import ExecutionId, Store

STREAM = "-"


def export(
    execution_id: ExecutionId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - for stdout.")] = STREAM,
    store: Store = None,
) -> None:
    """Write the log of an execution as JSON lines."""
    from divebook.cli.project import existing_store
    from divebook.cli.screen import note
    from divebook.cli.text import json_escaped
    from divebook.store import jsonl

    events = existing_store(store)
    whole_id = events.resolve(execution_id)
    if file != STREAM:
        count = jsonl.export(events, whole_id, file)
        note(f"wrote {count} events of {whole_id} to {file}")
        return
    buffer = io.BytesIO()
    jsonl.export(events, whole_id, buffer)
    sys.stdout.write(json_escaped(buffer.getvalue().decode()))


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

    source = sys.stdin.buffer if file == STREAM else file
    write(jsonl.import_(source, open_store(store), rename=rename))
