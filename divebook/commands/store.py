"""Commands of the shell about stores: ``check``, ``backup``, ``copy``, ``gc``, ``export``, ``import``."""

from __future__ import annotations

import io
import os
import shlex
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from divebook.commands.command import SHELL, STORES, Invocation, ParameterError, command, option, word
from divebook.commands.parameters import RunId
from divebook.errors import SetupError, StoreError
from divebook.report.hints import advised
from divebook.report.shown import Shown
from divebook.text.format import in_shell, parse_duration, plural, size
from divebook.text.ranges import COUNT_OR_ZERO

if TYPE_CHECKING:
    from divebook.report.model import Report
    from divebook.stores import EventStore
    from divebook.stores.maintenance import CheckReport

STREAM = "-"
"""Name of a file that means standard input or output."""


def existing_store(location: str | None) -> EventStore:
    """Open an existing store; raise `StoreError` if there is none. Commands that only read use this, because they must
    not create a store.
    """
    from divebook.stores import open_store
    from divebook.stores.registry import DEFAULT, VARIABLE, path_of

    # A store on a server has no path that could be checked here.
    place = location or os.environ.get(VARIABLE) or str(DEFAULT)
    return open_store(place if path_of(place) is None else existing_path(location))


def existing_path(location: str | None) -> Path:
    """Return the path of an existing store file without opening it. Raise `StoreError` if the file does not exist, or
    if the store is not a file.
    """
    from divebook.stores.registry import DEFAULT, VARIABLE, path_of
    from divebook.text.passwords import for_command, without_password

    place = location or os.environ.get(VARIABLE) or str(DEFAULT)
    path = path_of(place)
    if path is None:
        copying = in_shell("copy", [for_command(place), "FILE"])
        raise StoreError(f"{without_password(place)} is not a file; copy the store into a file: {copying}")
    path = path.expanduser()
    if not path.exists():
        raise StoreError(
            f"there is no store at {path}; create it with `{advised('run FILE')}`, or name another store with --store"
        )
    return path


# --- check -----------------------------------------------------------------------------------------------------------


class DamageData(TypedDict):
    """One damage of a store as JSON. `run_id` is null for damage of the store itself."""

    run_id: str | None
    sequence: int | None
    text: str


class CheckData(TypedDict):
    """Result of ``check`` as JSON."""

    ok: bool
    executions: int
    damages: list[DamageData]


def check_data(report: CheckReport) -> CheckData:
    """Return the damages of a store as plain data."""
    return {
        "ok": report.ok,
        "executions": len(report.executions),
        "damages": [
            {"run_id": damage.execution_id, "sequence": damage.sequence, "text": damage.text}
            for damage in report.all_damages()
        ],
    }


@command(
    "check",
    STORES,
    example="check",
    no_python="Not available in Python; run the command in a shell.",
    interfaces=[SHELL],
    data=check_data,
    exit_code=lambda report: int(not report.ok),
    shell_help="The exit code is 1 if anything is damaged.",
)
def check(call: Invocation) -> CheckReport:
    """Verify all events, checksums and references in a store.

    The output lists all damage, and the events that can still be read. The store is not changed.
    """
    from divebook.engine.evolve import fold
    from divebook.stores.maintenance import check as check_store

    # Each log is also folded, since events that are sound by themselves may contradict each other.
    return check_store(existing_store(call.store), fold=lambda events: fold(events[0].execution_id, events))


# --- backup, copy, gc ------------------------------------------------------------------------------------------------


class BackupData(TypedDict):
    """Result of ``backup`` as JSON."""

    path: str
    bytes: int


@dataclass(frozen=True, repr=False)
class Backup(Shown):
    """A copy of a store file."""

    path: Path
    bytes: int

    def report(self) -> Report:
        """Return one line with the path and the size."""
        from divebook.report.model import Report

        return Report(f"{self.path}: {size(self.bytes)}")


def backup_data(backup: Backup) -> BackupData:
    """Return the copy of a store file as plain data."""
    return {"path": str(backup.path), "bytes": backup.bytes}


@command(
    "backup",
    STORES,
    example="backup backups/monday.db",
    no_python="Not available in Python; run the command in a shell.",
    interfaces=[SHELL],
    data=backup_data,
)
def backup(
    call: Invocation,
    destination: Annotated[Path, word("FILE|FOLDER", "New file, or folder for the new file.", completes="file")],
) -> Backup:
    """Copy the store into a new file, also while it is in use.

    The copy has every event that was acknowledged before the copy began. Copying the file itself is safe only while no
    process writes.
    """
    from divebook.stores.sqlite import back_up

    # `back_up` copies the file through SQLite, while other processes may write to it.
    path = back_up(existing_path(call.store), destination.expanduser())
    call.print_note(f"to verify it: {advised(f'check --store {shlex.quote(str(path))}')}")
    return Backup(path, path.stat().st_size)


class CopyData(TypedDict):
    """Result of ``copy`` as JSON."""

    target: str
    executions: int
    events: int
    messages: int
    already: int
    unended: int


@dataclass(frozen=True, repr=False)
class StoreCopy(Shown):
    """Numbers of executions, events and messages that were copied from one store into another."""

    target: str
    executions: int
    events: int
    messages: int
    already: int
    unended: int

    def report(self) -> Report:
        """Return one line with the store and all numbers."""
        from divebook.report.model import Report

        already = f", {plural(self.already, 'execution')} already in the target" if self.already else ""
        return Report(
            f"{self.target}: {plural(self.executions, 'execution')}, {plural(self.events, 'event')}, "
            f"{plural(self.messages, 'message')}{already}; all compared with the source"
        )


def copy_data(copied: StoreCopy) -> CopyData:
    """Return what was copied from one store into another as plain data."""
    return {
        "target": copied.target,
        "executions": copied.executions,
        "events": copied.events,
        "messages": copied.messages,
        "already": copied.already,
        "unended": copied.unended,
    }


@command(
    "copy",
    STORES,
    example="copy .divebook/executions.db postgresql://me@host/runs",
    no_python="Not available in Python; run the command in a shell.",
    interfaces=[SHELL],
    data=copy_data,
    has_store=False,
)
def copy(
    call: Invocation,
    source: Annotated[str, word("FROM", "Source store: a path, or postgresql://user@host/database.", completes="file")],
    target: Annotated[str, word("TO", "Target store. A missing file or missing tables are created.", completes="file")],
) -> StoreCopy:
    """Copy a store into another one, and compare both by hashes.

    All runs and messages are copied. Then the copy is read and compared with the source. No process may drive a run
    during the copy. If a copy was interrupted, run the same command again. Unfinished runs could be resumed in both
    stores: use only one of them.
    """
    from divebook.stores import open_store
    from divebook.stores.transfer import copy as copy_store

    source_store = existing_store(source)
    target_store = open_store(target)
    report = copy_store(source_store, target_store)
    if report.unended:
        call.print_note(
            f"{plural(report.unended, 'execution')} not ended; resume these runs in only one of the two stores",
            "yellow",
        )
    return StoreCopy(
        str(target_store.location), report.executions, report.events, report.messages, report.already, report.unended
    )


class CollectionData(TypedDict):
    """Result of ``gc`` as JSON. With ``--dry-run`` it says what would be deleted."""

    dry_run: bool
    executions: int
    events: int
    values: int
    value_bytes: int
    checkpoints: int
    folders: int
    cached_responses: int


@dataclass(frozen=True, repr=False)
class Collection(Shown):
    """Numbers of executions and values that were deleted from a store, or would be."""

    dry_run: bool
    executions: int
    events: int
    values: int
    value_bytes: int
    checkpoints: int
    folders: int
    cached_responses: int

    def report(self) -> Report:
        """Return one line with all numbers."""
        from divebook.report.model import Report

        text = (
            f"{'would delete' if self.dry_run else 'deleted'} {plural(self.executions, 'execution')} with "
            f"{plural(self.events, 'event')}, {plural(self.values, 'large value')} ({size(self.value_bytes)}) and "
            f"the checkpoints of {plural(self.checkpoints, 'kept execution')}"
        )
        if self.folders:
            text += f", and the workspaces of {plural(self.folders, 'deleted execution')}"
        if self.cached_responses:
            text += f", and {plural(self.cached_responses, 'expired model response')}"
        return Report(text)


def collection_data(collection: Collection) -> CollectionData:
    """Return what was deleted from a store as plain data."""
    return {
        "dry_run": collection.dry_run,
        "executions": collection.executions,
        "events": collection.events,
        "values": collection.values,
        "value_bytes": collection.value_bytes,
        "checkpoints": collection.checkpoints,
        "folders": collection.folders,
        "cached_responses": collection.cached_responses,
    }


@command(
    "gc",
    STORES,
    example="gc --older-than 30d --dry-run",
    no_python="Not available in Python; run the command in a shell.",
    interfaces=[SHELL],
    data=collection_data,
)
def gc(
    call: Invocation,
    *,
    older_than: Annotated[
        str | None,
        option(
            "--older-than", metavar="DURATION", help="Delete runs that ended longer ago than this, such as 30d or 12h."
        ),
    ] = None,
    keep_last: Annotated[
        int | None,
        option("--keep-last", allowed=COUNT_OR_ZERO, help="Keep the newest N runs of each workflow."),
    ] = None,
    status: Annotated[
        list[str] | None,
        option(
            "--status",
            "-s",
            metavar="STATUS",
            help="Delete only runs that have ended with this status, such as completed. May be repeated.",
            completes="status",
        ),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", help="Only print the numbers; delete nothing.")] = False,
) -> Collection:
    """Delete old runs and unused large values.

    Without --older-than and --keep-last, no run is deleted. Failed and cancelled runs are deleted too, although they
    could be resumed. To delete only completed runs, use --status completed.
    """
    from divebook.agents.cache import cache_of
    from divebook.engine.lifecycle import TERMINAL
    from divebook.environments.settings import drop_folders
    from divebook.stores.maintenance import gc as collect

    age = None if older_than is None else _age(older_than)
    store = existing_store(call.store)
    # Executions first: values and folders that only they used are then unused.
    report = collect(store, older_than=age, keep_last=keep_last, statuses=status or TERMINAL, dry_run=dry_run)
    folders = drop_folders(store, dry_run=dry_run)
    # `prune` has no dry run.
    cached = 0 if dry_run else cache_of(store).prune()
    return Collection(
        dry_run,
        len(report.executions),
        report.events,
        report.blobs,
        report.blob_bytes,
        report.checkpoints,
        folders,
        cached,
    )


def _age(text: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        parameter = option("--older-than", help="")
        raise ParameterError(parameter, f"must be a duration such as 30d, 12h or 90m, not {text!r}") from error


# --- export, import --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exported:
    """A run that was written to a file, or its log as text for stdout."""

    execution_id: str
    events: int
    file: str | None = None
    """The file that was written; None: `text` is the log."""
    text: str | None = None
    damage: Exception | None = None
    last_sequence: int | None = None
    """Number of the last event of a damaged log."""


class ExportData(TypedDict):
    """Result of ``export`` as JSON: the number of events in the file. Only a damaged log has the key `damage`."""

    id: str
    events: int
    file: str
    damage: NotRequired[str]


def export_data(exported: Exported) -> ExportData:
    """Return an exported run as plain data. Raise `SetupError` if it was written to stdout."""
    # The log on stdout is JSON already, and is printed with its secrets, which other JSON is not.
    if exported.file is None:
        raise SetupError("--json needs a FILE, because it reports the written file; name a FILE")
    data: ExportData = {"id": exported.execution_id, "events": exported.events, "file": exported.file}
    if exported.damage is not None:
        data["damage"] = str(exported.damage)
    return data


def exit_code_of_exported(exported: Exported) -> int:
    """Return 1 for a damaged log, else 0."""
    return 0 if exported.damage is None else 1


@command(
    "export",
    STORES,
    example="export exec_01k8 audit.jsonl",
    python="run.export",
    interfaces=[SHELL],
    data=export_data,
    exit_code=exit_code_of_exported,
    reports_damage=True,
)
def export(
    call: Invocation,
    run: RunId,
    file: Annotated[str, word("FILE", "File to write; - for stdout.", completes="file")] = STREAM,
    *,
    force: Annotated[bool, option("--force", "-f", help="Overwrite an existing file.")] = False,
    move: Annotated[
        bool, option("--move", help="End the run in this store. It continues where FILE is imported.")
    ] = False,
) -> Exported:
    """Write a run to a file: as a page, a notebook or JSON lines.

    The suffix of FILE selects the format: .html is a page for any browser, .ipynb a notebook about the run, and any
    other suffix the log as JSON lines. Pages and notebooks contain no secrets, and can be imported like a log. A run
    that has not ended becomes a read-only snapshot where its file is imported, unless it is moved (--move). If the log
    is damaged, the readable events are written, and the exit code is 1.
    """
    from divebook.stores import transfer as jsonl
    from divebook.stores.embedded import may_embed_log

    if may_embed_log(file):
        return _export_shown(call, run, file, overwrite=force, move=move)
    if move:
        return _export_moving(call, run, file, overwrite=force)
    store = existing_store(call.store)
    whole_id = store.resolve(run)
    text = None
    if file != STREAM:
        count, damage = jsonl.export_sound(store, whole_id, file, overwrite=force)
        call.print_note(f"wrote {count} events of {whole_id} to {file}")
        _note_unended(call, store.record(whole_id).status)
    else:
        # The log is collected first, because stdout is text and needs control characters escaped.
        buffer = io.BytesIO()
        count, damage = jsonl.export_sound(store, whole_id, buffer)
        text = buffer.getvalue().decode()
    last = None if damage is None else store.record(whole_id).last_sequence
    return Exported(whole_id, count, None if file == STREAM else file, text, damage, last)


def _export_shown(call: Invocation, name: str, file: str, *, overwrite: bool, move: bool) -> Exported:
    from divebook.stores.embedded import NOTEBOOK

    if move:
        # A moved execution ends here, so that its log must be complete, with secrets: pages and notebooks have none.
        raise SetupError(
            "--move needs a file of JSON lines (NAME.jsonl): a run cannot continue from a page or a notebook"
        )
    run = call.run(name)
    if file.lower().endswith(NOTEBOOK):
        run.to_notebook(file, overwrite=overwrite)
    else:
        run.to_html(file, overwrite=overwrite)
    count = run.state.last_sequence
    call.print_note(f"wrote {count} events of {run.id} to {file}")
    _note_unended(call, run.status)
    return Exported(run.id, count, file)


def _export_moving(call: Invocation, name: str, file: str, *, overwrite: bool) -> Exported:
    if file == STREAM:
        raise SetupError(
            "--move needs a FILE, because the log must be on disk before the run ends in this store; name a FILE"
        )
    run = call.run(name)
    count = run.export(file, overwrite=overwrite, move=True)
    call.print_note(
        f"moved {run.id} to {file} ({count} events): the run continues in the store that imports the file; import the "
        "file only once"
    )
    return Exported(run.id, count, file)


def _note_unended(call: Invocation, status: str) -> None:
    from divebook.engine.lifecycle import TERMINAL

    if status not in TERMINAL:
        call.print_note(
            f"the run has not ended ({status}). An import of the file will therefore be a "
            "read-only snapshot, which cannot be resumed. To move the run, use --move",
            "yellow",
        )


class ImportData(TypedDict):
    """Result of ``import`` as JSON: the id of the run."""

    id: str


def import_data(execution_id: str) -> ImportData:
    """Return the id of an imported run as plain data."""
    return {"id": execution_id}


@command(
    "import",
    STORES,
    example="import audit.jsonl --rename",
    python="environment.open",
    interfaces=[SHELL],
    data=import_data,
    makes_store=True,
)
def import_file(
    call: Invocation,
    file: Annotated[
        str,
        word("FILE", "Exported file (- for JSON lines on stdin), message history, or trace.", completes="file"),
    ],
    *,
    rename: Annotated[bool, option("--rename", help="Give the run a new id.")] = False,
    as_fork: Annotated[bool, option("--as-fork", help="Continue the log as a new run, a fork.")] = False,
) -> str:
    """Import an exported log and print its id.

    Either the whole log is imported, or nothing. A run that has not ended becomes a read-only snapshot, which cannot be
    resumed. A message history of pydantic-ai, or an OpenTelemetry trace with the GenAI conventions, becomes a run with
    the turns of its agents.
    """
    from divebook.agents import imports as imported
    from divebook.stores import open_store
    from divebook.stores import transfer as jsonl

    log = imported.read(sys.stdin.buffer if file == STREAM else file)
    # The store is opened, and created if necessary, only after the file was read without an error.
    execution_id = jsonl.import_(log, lambda: open_store(call.store), rename=rename, as_fork=as_fork)
    for caveat in jsonl.caveats(log, as_fork=as_fork):
        call.print_note(caveat, "yellow")
    return execution_id
