"""Subcommands about a store: ``export``, ``import``, ``check``, ``backup``, ``copy``, ``gc``, ``recover``, ..."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divebook.cli.options import Actions, Code, ExecutionId, Json, Store, number_option
from divebook.cli.output import (
    DAMAGED,
    as_json,
    columns,
    ending_damaged,
    json_escaped,
    note,
    note_damage,
    one_line,
    say,
    status_text,
    write,
)
from divebook.cli.run import INTERRUPTED, Interrupts
from divebook.engine.lifecycle import TERMINAL
from divebook.errors import DivebookError, SetupError
from divebook.report.model import Text
from divebook.text.format import local_time, parse_duration, plural, size, visible
from divebook.text.ranges import COUNT, COUNT_OR_ZERO

if TYPE_CHECKING:
    from divebook.agents.models import Examined
    from divebook.environments.environment import Environment
    from divebook.stores import ExecutionRecord


STREAM = "-"


def export(
    execution_id: ExecutionId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write; - for stdout.")] = STREAM,
    store: Store = None,
    *,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite an existing file.")] = False,
    move: Annotated[
        bool, typer.Option("--move", help="End it in this store; it continues where FILE is imported.")
    ] = False,
) -> None:
    """Write a run to a file: as a page, a notebook or JSON lines.

    The suffix of FILE selects the format: .html is a page for any browser, .ipynb a notebook about the run, everything
    else the log as JSON lines. Page and notebook contain no secrets, and can be imported like a log. An execution that
    has not ended becomes a read-only snapshot where its file is imported, unless it is moved (--move). Of a damaged
    log, the readable events are written, with exit code 1.
    """
    from divebook.stores.embedded import may_embed_log

    if may_embed_log(file):
        _export_shown(execution_id, file, store, overwrite=force, move=move)
        return
    if move:
        _export_moving(execution_id, file, store, overwrite=force)
        return
    from divebook.cli.project import existing_store
    from divebook.stores import transfer as jsonl

    events = existing_store(store)
    whole_id = events.resolve(execution_id)
    with ending_damaged():
        if file != STREAM:
            count, damage = jsonl.export_sound(events, whole_id, file, overwrite=force)
            note(f"wrote {count} events of {whole_id} to {file}")
            _note_unended(events.record(whole_id).status)
        else:
            # The log is collected first, because stdout is text and needs control characters escaped. They are all
            # inside JSON strings.
            buffer = io.BytesIO()
            count, damage = jsonl.export_sound(events, whole_id, buffer)
            sys.stdout.write(json_escaped(buffer.getvalue().decode()))
        if damage is not None:
            note_damage(count, events.record(whole_id).last_sequence, damage)
            raise typer.Exit(DAMAGED)


def _export_shown(execution_id: str, file: str, store: str | None, *, overwrite: bool, move: bool) -> None:
    from divebook.cli.project import existing_environment
    from divebook.stores.embedded import NOTEBOOK

    if move:
        # A moved execution ends here, so that its log must be complete, with secrets: pages and notebooks have none.
        raise SetupError("--move needs a file of JSON lines (NAME.jsonl): a page or a notebook is to be looked at")
    execution = existing_environment(store).run_of(execution_id)
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
    count = environment.run_of(moved).export(file, overwrite=overwrite, move=True)
    note(f"moved {moved} to {file} ({count} events): it continues where the file is imported; import it only once")


def _note_unended(status: str) -> None:

    if status not in TERMINAL:
        note(
            f"it has not ended ({status}), so its import is a read-only snapshot, which cannot continue; "
            "to move it: --move",
            "yellow",
        )


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
    as_fork: Annotated[bool, typer.Option("--as-fork", help="Continue it as a new execution, a fork.")] = False,
) -> None:
    """Import an exported log and print its id.

    Either the whole log is imported, or nothing. An execution that has not ended becomes a read-only snapshot, which
    cannot be resumed. A message history of pydantic-ai, and an OpenTelemetry trace with the GenAI conventions, become
    an execution of turns.
    """
    from divebook.agents import imports as imported
    from divebook.stores import open_store
    from divebook.stores import transfer as jsonl

    log = imported.read(sys.stdin.buffer if file == STREAM else file)
    # The store is opened, and created if necessary, only after the file was read without an error.
    write(jsonl.import_(log, lambda: open_store(store), rename=rename, as_fork=as_fork))
    for caveat in jsonl.caveats(log, as_fork=as_fork):
        note(caveat, "yellow")


# ``divebook check``, ``backup`` and ``gc``: is a store sound, and how is it copied and emptied.


def check(store: Store = None, *, json: Json = False) -> None:
    """Verify all events, checksums and references in a store.

    Prints what is damaged and what can still be read; changes nothing. Exit code 1 if anything is damaged.
    """
    from divebook.cli.project import existing_store
    from divebook.engine.evolve import fold
    from divebook.stores.maintenance import check as check_store

    # Each log is also folded, since events that are sound by themselves may contradict each other.
    report = check_store(existing_store(store), fold=lambda events: fold(events[0].execution_id, events))
    damages = report.all_damages()
    if json:
        rows = [{"execution": d.execution_id, "sequence": d.sequence, "text": d.text} for d in damages]
        write(as_json({"ok": report.ok, "executions": len(report.executions), "damages": rows}, indent=2))
    else:
        events = sum(entry.events for entry in report.executions)
        say(
            f"{plural(len(report.executions), 'execution')}, {plural(events, 'event')}, "
            f"{plural(report.orphan_blobs, 'unused large value')}"
        )
        for damage in damages:
            # Damage of the store itself belongs to no execution.
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

    The copy has every event that was acknowledged before the copy began. Copying the file itself is safe only while no
    process writes.
    """
    from divebook.cli.project import existing_path
    from divebook.stores.sqlite import back_up

    # `back_up` copies the file through SQLite, while other processes may write to it.
    path = back_up(existing_path(store), destination.expanduser())
    say(f"{path}: {size(path.stat().st_size)}")
    note(f"to verify it: divebook check --store {shlex.quote(str(path))}")


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A store: a path, or postgresql://user@host/database.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Another one; what it lacks is made.")],
) -> None:
    """Copy a store into another one, and compare both by hashes.

    All executions and messages are copied, and read again. No process may drive an execution meanwhile. If a copy was
    interrupted, run the same command again. Unfinished executions could be resumed in both stores: use only one.
    """
    from divebook.cli.project import existing_store
    from divebook.stores import open_store
    from divebook.stores.transfer import copy as copy_store

    source_store = existing_store(source)
    target_store = open_store(target)
    report = copy_store(source_store, target_store)
    already = f", {plural(report.already, 'execution')} there already" if report.already else ""
    say(
        f"{target_store.location}: {plural(report.executions, 'execution')}, {plural(report.events, 'event')}, "
        f"{plural(report.messages, 'message')}{already}; all compared"
    )
    if report.unended:
        note(f"{plural(report.unended, 'execution')} not ended: resume in one of the two stores only", "yellow")


def gc(
    store: Store = None,
    *,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="DURATION", help="Delete what ended longer ago: 30d, 12h.")
    ] = None,
    keep_last: Annotated[
        int | None,
        number_option("--keep-last", allowed=COUNT_OR_ZERO, help="Keep the newest N of each workflow."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> None:
    """Delete old executions and unused large values.

    Without --older-than and --keep-last no execution is deleted.
    """
    from divebook.agents.cache import cache_of
    from divebook.cli.project import existing_store
    from divebook.environments.settings import drop_folders
    from divebook.stores.maintenance import gc as collect

    age = None if older_than is None else _age(older_than)
    event_store = existing_store(store)
    # Executions first: values and folders that only they used are then unused.
    report = collect(event_store, older_than=age, keep_last=keep_last, dry_run=dry_run)
    folders = drop_folders(event_store, dry_run=dry_run)
    # `prune` has no dry run.
    cached = 0 if dry_run else cache_of(event_store).prune()
    verb = "would delete" if dry_run else "deleted"
    text = (
        f"{verb} {plural(len(report.executions), 'execution')} with {plural(report.events, 'event')}, "
        f"{plural(report.blobs, 'large value')} ({size(report.blob_bytes)}) and "
        f"{plural(report.checkpoints, 'checkpoint')}"
    )
    if folders:
        text += f", and the files of {folders} that are gone"
    if cached:
        text += f", and {cached} responses of models that are not used again"
    say(text)


def _age(text: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{text!r} is not a duration; write 30d, 12h or 90m") from error


# ``divebook recover``: executions that were interrupted, listed or resumed.


FAILED = 1
WAITING = 3
# Rows of one page of the list.
PAGE = 50


def recover(
    execution_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Resume this one; the beginning of its id is enough.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Resume all of them, one after the other.")] = False,
    page: Annotated[int, number_option("--page", allowed=COUNT, help="Which page of a long list.")] = 1,
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

    Exit code 1 if one failed or cannot continue, 3 if one waits.
    """
    from divebook.cli.project import add_definitions, existing_store, open_environment
    from divebook.config.answers import interrupted

    # The store must exist already: `open_environment` would create it.
    existing_store(store)
    environment = open_environment(store, actions or (), note)
    if definitions is not None:
        add_definitions(environment, definitions, code=code)
    records = interrupted(environment, execution_id)
    if every or execution_id is not None:
        # One failure does not keep the others from being resumed.
        raise typer.Exit(_worst([_take_up(environment, record) for record in records]))
    _list(records, page, json=json)


def _worst(codes: Sequence[int]) -> int:
    # 3 (waits) only if nothing is worse.
    if set(codes) <= {0, WAITING}:
        return max(codes, default=0)
    return FAILED


def _list(records: Sequence[ExecutionRecord], page: int, *, json: bool) -> None:

    if json:
        write(as_json([{"id": record.execution_id, "workflow": record.workflow_name} for record in records], indent=2))
    elif records:
        rows = [
            (
                record.execution_id,
                one_line(record.workflow_name, 40),
                Text(record.status, record.status),
                local_time(record.started_at),
            )
            # Page 1 has the rows 0 to 49.
            for record in records[(page - 1) * PAGE : page * PAGE]
        ]
        columns(("id", "workflow", "status", "started"), rows, whole=("id",))
        if len(records) > PAGE:
            note(f"page {page} of {-(-len(records) // PAGE)}, {len(records):,} executions: divebook recover --page N")
        note("to continue: divebook recover ID, or divebook recover --all, or divebook resume ID FILE", "yellow")
    else:
        note("nothing to recover")


def _take_up(environment: Environment, record: ExecutionRecord) -> int:
    """Resume one interrupted execution, wait until it stops, print its status, and return the exit code for the status.
    Return the code for a failure if it cannot be resumed.
    """
    from divebook.cli.result import EXIT_CODES

    try:
        # Each execution has its own handling of Ctrl-C, which cancels only this one.
        with Interrupts(note) as interrupts:
            execution = environment.run_of(record.execution_id).resume()
            interrupts.guard(execution)
            execution.wait()
    except DivebookError as error:
        note(f"{record.execution_id} was not resumed: {one_line(str(error))}", "bold red")
        return FAILED
    say(status_text(execution.status), one_line(execution.workflow.name), execution.id)
    # After Ctrl-C the remaining executions are not resumed.
    if interrupts.count:
        raise typer.Exit(INTERRUPTED)
    return EXIT_CODES.get(execution.status, FAILED)


# ``divebook doctor``: what the agents of a definition, and their models, need before they can be asked.


UNUSABLE = 1
"""Exit code if a model cannot be used, or an agent refers to something that does not exist."""


def doctor(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE|FOLDER]", help="Definitions; without them, every provider's default."),
    ] = None,
    *,
    ping: Annotated[
        bool, typer.Option("--ping", help="Make one small request to each model; it may cost a little.")
    ] = False,
    code: Code = False,
    json: Json = False,
    store: Store = None,
) -> None:
    """Check what each model still needs: a library, a key, a price.

    Also reports names in agents that do not exist; the store is used to look up runs that models replay. Names of keys
    are shown, never their values. Exit code 1 if a model cannot be called, or an agent cannot work.
    """
    from divebook.agents.models import examine

    environment = _environment(file, code=code)
    problems = _problems(environment, store)
    rows = []
    for model, agents in _models(environment, has_file=file is not None).items():
        problems_of_agents = [problems[name] for name in agents if name in problems]
        rows.append(_row(model, agents, examine(model), problems_of_agents, ping=ping))
    if json:
        write(as_json(rows, indent=2))
    elif not rows:
        say("no agents are defined, so no model is needed")
    else:
        titles = ["model", "agents", "library", "key", "price"]
        if ping:
            titles.append("answer")
        # Texts of definitions are cleaned; names of libraries and keys are never cut, so that they can be copied.
        columns(titles, ([one_line(str(row[title])) for title in titles] for row in rows), whole=("library", "key"))
    for row in rows:
        if row["hint"]:
            note(f"{row['model']}: {row['hint']}", "yellow")
        for problem in row["problems"]:
            note(problem, "red")
    _note_plugins()
    if not all(row["usable"] for row in rows):
        raise typer.Exit(UNUSABLE)


def _note_plugins() -> None:
    """Print a line for each plugin of the installed packages: whether it can be loaded, or why not."""
    from divebook.plugins import check_plugins

    for plugin, error in check_plugins():
        note(one_line(error or f"{plugin.label} can be loaded"), "red" if error else "")


def _environment(file: Path | None, *, code: bool) -> Environment:
    from divebook.cli.project import add_definitions
    from divebook.environments.environment import Environment

    # Nothing is run, so that no store is needed.
    environment = Environment(store="memory:")
    if file is not None:
        add_definitions(environment, file, code=code)
    return environment


def _models(environment: Environment, *, has_file: bool) -> dict[str, list[str]]:
    """Return the models that ``divebook doctor`` checks, each with the names of the agents that use it. Without a file
    of definitions, return a default model of each provider.
    """
    from divebook.agents.models import DEFAULT_MODELS

    if not has_file:
        return {f"{provider}:{model}": [] for provider, model in DEFAULT_MODELS.items()}
    models: dict[str, list[str]] = {}
    for agent in environment.agents.values():
        models.setdefault(agent.model_name, []).append(agent.name)
    return models


def _problems(environment: Environment, store: str | None) -> dict[str, str]:
    """Return the error text of each agent whose settings, tools or model are invalid, by name of the agent."""
    from divebook.agents.models import RECORDED
    from divebook.cli.project import existing_store
    from divebook.errors import DivebookError
    from divebook.steps.checks import check_model

    problems: dict[str, str] = {}
    for agent in environment.agents.values():
        try:
            environment.internals.registry.check_agent(agent)
            # A recorded model plays runs of the real store.
            runs = existing_store(store) if agent.model_name.startswith(RECORDED) else environment.store
            check_model(agent.model, f"agent {agent.name}", runs)
        except DivebookError as error:
            problems[agent.name] = str(error)
    return problems


def _row(model: str, agents: list[str], examined: Examined, problems: list[str], *, ping: bool) -> dict[str, Any]:
    key = examined.key
    # The name of the variable that contains the key, and never its value.
    if not key and examined.found_key:
        key = f"{examined.found_key} is set"
    elif not key and not examined.library:
        key = "not needed"
    row = {
        "model": model,
        "agents": ", ".join(agents),
        "library": examined.library or "installed",
        "key": key,
        "price": "known" if examined.has_price else "unknown: max_cost cannot be enforced",
        "hint": examined.hint,
        "problems": problems,
        "usable": examined.is_usable and not problems,
    }
    if ping:
        row["answer"], can_answer = _answer(examined)
        # The answer of the model decides, whatever the checks have said.
        row["usable"] = can_answer and not problems
    return row


def _answer(examined: Examined) -> tuple[str, bool]:
    """Send a test request to a model. Return the text to show (the answer, or the reason why there is none) and whether
    the model answered.
    """
    import anyio

    from divebook.agents.models import ping
    from divebook.agents.scripted import SCRIPTED

    if examined.model == SCRIPTED:
        return "answers offline", True
    if not examined.is_usable:
        return "not asked", False
    try:
        return anyio.run(ping, examined.model) or "an empty answer", True
    except Exception as error:  # noqa: BLE001 - whatever a provider's client raises is what the person wants to read
        return f"{type(error).__name__}: {error}", False
