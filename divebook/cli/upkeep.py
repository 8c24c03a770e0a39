"""``divebook check``, ``backup`` and ``gc``: is a store sound, and how is it copied and emptied."""

from __future__ import annotations

import shlex
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from divebook.cli.options import Json, Store, within
from divebook.cli.screen import DAMAGED, note, say, write
from divebook.cli.text import as_json
from divebook.text.durations import parse_duration
from divebook.text.ranges import COUNT_OR_ZERO
from divebook.text.shown import plural, size, visible


def check(store: Store = None, *, json: Json = False) -> None:
    """Verify every event, sum and reference.

    Says what is damaged and what can still be read; changes nothing. Exit code 1 if anything is damaged.
    """
    from divebook.cli.project import existing_store
    from divebook.engine.evolve import fold
    from divebook.store.check import check as check_store

    report = check_store(existing_store(store), fold=lambda events: fold(events[0].execution_id, events))
    damages = report.all_damages()
    if json:
        found = [{"execution": d.execution_id, "sequence": d.sequence, "text": d.text} for d in damages]
        write(as_json({"ok": report.ok, "executions": len(report.executions), "damages": found}, indent=2))
    else:
        events = sum(entry.events for entry in report.executions)
        say(
            f"{plural(len(report.executions), 'execution')}, {plural(events, 'event')}, "
            f"{plural(report.orphan_blobs, 'unused large value')}"
        )
        for damage in damages:
            place = " ".join(str(part) for part in (damage.execution_id, damage.sequence) if part is not None)
            note(visible(f"{place or 'store'}: {damage.text}"), "bold red")
        for entry in report.executions:
            if entry.damages:
                note(f"{entry.execution_id}: the first {entry.readable} of {entry.events} events can be read", "yellow")
        say("sound" if report.ok else "damaged")
    if not report.ok:
        raise typer.Exit(DAMAGED)


def backup(
    destination: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="A new file, or a folder to put it in.")],
    store: Store = None,
) -> None:
    """Copy the store into a new file while others write to it.

    The copy has every event acknowledged before it began. To copy the file itself is safe only while no process writes.
    """
    from divebook.cli.project import existing_path
    from divebook.store.sqlite import back_up

    written = back_up(existing_path(store), destination.expanduser())
    say(f"{written}: {size(written.stat().st_size)}")
    note(f"to verify it: divebook check --store {shlex.quote(str(written))}")


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A store: a path, or postgresql://user@host/database.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Another one; what it lacks is made.")],
) -> None:
    """Copy a store into another one, compared by hashes.

    All executions and messages are copied, and read again. No process may drive an execution meanwhile. A copy that
    broke off is taken up by the same command. What has not ended could go on in both stores: use one of them only.
    """
    from divebook.cli.project import existing_store
    from divebook.store import open_store
    from divebook.store.copying import copy as copy_store

    found, there = existing_store(source), open_store(target)
    report = copy_store(found, there)
    known = f", {plural(report.already, 'execution')} there already" if report.already else ""
    say(
        f"{there.location}: {plural(report.executions, 'execution')}, {plural(report.events, 'event')}, "
        f"{plural(report.messages, 'message')}{known}; all compared"
    )
    if report.unended:
        note(f"{plural(report.unended, 'execution')} not ended: go on in one of the two stores only", "yellow")


def gc(
    store: Store = None,
    *,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="DURATION", help="Delete what ended longer ago: 30d, 12h.")
    ] = None,
    keep_last: Annotated[
        int | None,
        typer.Option(
            "--keep-last", metavar="N", callback=within(COUNT_OR_ZERO), help="Keep the newest N of each workflow."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> None:
    """Delete old executions and unused large values.

    Without --older-than and --keep-last no execution is deleted.
    """
    from divebook.agents.cache import cache_of
    from divebook.cli.project import existing_store
    from divebook.lending import drop_folders
    from divebook.store.retention import gc as collect

    age, opened = None if older_than is None else _age(older_than), existing_store(store)
    report = collect(opened, older_than=age, keep_last=keep_last, dry_run=dry_run)
    folders = drop_folders(opened, dry_run=dry_run)
    cached = 0 if dry_run else cache_of(opened).prune()
    verb = "would delete" if dry_run else "deleted"
    say(
        f"{verb} {plural(len(report.executions), 'execution')} with {plural(report.events, 'event')}, "
        f"{plural(report.blobs, 'large value')} ({size(report.blob_bytes)}) and "
        f"{plural(report.checkpoints, 'checkpoint')}"
        f"{f', and the files of {folders} that are gone' if folders else ''}"
        f"{f', and {cached} responses of models that are not used again' if cached else ''}"
    )


def _age(text: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{text!r} is not a duration; write 30d, 12h or 90m") from error
