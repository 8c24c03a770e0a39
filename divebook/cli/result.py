"""Printed results of commands, as text or JSON.

Modules are loaded when a printer needs them, because each command of the shell loads this one.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divebook.cli.options import description, file_of, ways_on
from divebook.cli.output import (
    as_json,
    columns,
    in_shell_with,
    json_escaped,
    note_damage,
    one_line,
    print_note,
    print_report,
    say,
    secrets,
    section,
    shown,
    status_text,
    styled,
    write,
)
from divebook.commands.command import EXIT_CODES, FORMAT
from divebook.commands.control import BulkResults, Inbox, Rules
from divebook.commands.definitions import Converted, Diagnosis, Keys
from divebook.commands.inspection import (
    RunQuery,
    ShownRun,
    awaited_signals_of,
    execution_data,
)
from divebook.commands.queues import Interrupted, Queue
from divebook.commands.serving import Schedules, start_command
from divebook.commands.store import Exported
from divebook.text.format import in_shell, local_clock, local_time, local_zone, plural, visible

if TYPE_CHECKING:
    from divebook.analysis.lists import QueueLine
    from divebook.analysis.run_report import RunReport
    from divebook.events import Event
    from divebook.replay.files import ChangedFiles
    from divebook.replay.provenance import Provenance
    from divebook.replay.resume_changed import ResumePlan
    from divebook.runtime.run import Run
    from divebook.stores.maintenance import CheckReport

_CELL = 120


def print_result(execution: Run, again: Sequence[str], *, json: bool) -> int:
    """Print the result of a run on stdout as text or JSON, and return the exit code for the run's status.

    `again` contains the options of the present command that the printed commands repeat.
    """
    from divebook.analysis.run_report import way_on
    from divebook.report.hints import worded
    from divebook.report.model import Paragraph, Report

    # Before anything is printed: an error may repeat an input.
    secrets.learn(execution.state.inputs, execution.state.variables)
    report = _report_of(execution)
    with worded(in_shell_with(again)):
        if json:
            write(as_json({"divebook": FORMAT, **execution_data(execution)}, indent=2))
            # A program reads the data, and the person who started it what is to do next.
            next_command = () if report.next is None else (Paragraph((way_on(report.next),)),)
            print_report(Report(blocks=(*report.requests(), *next_command)), error=True)
        else:
            print_report(report.report())
    return EXIT_CODES.get(execution.status, 1)


def _print_details(shown_run: ShownRun, _values: Mapping[str, Any]) -> None:
    """Print the report of a run, and its events if asked for."""
    from divebook.report.hints import worded

    execution = shown_run.execution
    store = [] if shown_run.store is None else ["--store", shown_run.store]
    # A file is only named where the log alone is not enough.
    with worded(in_shell_with([*file_of(execution, execution.environment), *store])):
        print_report(_report_of(execution, shown_run.damage).report())
    if shown_run.shows_events:
        _print_events(execution)


def _report_of(execution: Run, damage: Exception | None = None) -> RunReport:
    """Return the report of a run: the one that `print` and notebooks show."""
    from divebook.analysis.run_report import report_of

    report = report_of(execution, execution.history(), secrets.redactor, damage)
    # A store in memory ends with the process, so that no command could continue the run.
    return report if execution.store.keeps else report.without_hints()


def _print_events(execution: Run) -> None:
    say(styled("events", "bold"))
    events = execution.history()
    rows = [_event_cells(event) for event in events]
    # The zone of the first event, in the title once.
    time = f"time ({local_zone(events[0].timestamp)})" if events else "time"
    columns(("#", time, "path", "step", "type", "data"), rows, whole=("#", time, "type"))


def _event_cells(event: Event) -> tuple[str, ...]:
    time = local_clock(event.timestamp)
    data = one_line(shown(event.data.to_data()), _CELL)
    return str(event.sequence), time, event.path, one_line(event.step, 40), event.event_type, data


# --- printers of commands --------------------------------------------------------------------------------------------


def note_problems_of(result: object) -> None:
    """Print on stderr what models still need; nothing for other results."""
    if isinstance(result, Diagnosis):
        for row in result.rows:
            if row["hint"]:
                print_note(f"{row['model']}: {row['hint']}", "yellow")
            for problem in row["problems"]:
                print_note(problem, "red")


def _print_runs(query: RunQuery, _values: Mapping[str, Any]) -> None:
    from divebook.projections.run_columns import run_table
    from divebook.projections.summary import no_runs_note
    from divebook.report.model import Report
    from divebook.stores.append import RELAXED

    records = query.records
    if not records:
        print_note(no_runs_note(query.event_store, query.filters))
        return
    print_report(Report(blocks=(run_table(query.lines(records), "shell"),)))
    total = query.total(records)
    if total > len(records):
        print_note(f"{len(records):,} of {total:,} runs; to list all runs: divebook runs --limit 0")
    # Runs with relaxed durability could lose their last events in a power failure.
    relaxed = [record.execution_id for record in records if record.durability == RELAXED]
    if relaxed:
        print_note(f"relaxed durability: {', '.join(relaxed)}", "yellow")


def _print_patch(changes: ChangedFiles, _values: Mapping[str, Any]) -> None:
    # Without the list of files, so that the output is a patch and nothing else.
    write(secrets.text(changes.patch or changes.head))


def _print_bulk_results(results: BulkResults, _values: Mapping[str, Any]) -> None:
    # The run that is named alone is shown without the status before.
    for row in results.rows:
        say(status_text(row.status or "failed"), row.execution_id, results.error_of(row) or "")


def _print_resumed(result: BulkResults | ResumePlan, values: Mapping[str, Any]) -> None:
    """Print the results of several runs, or what the resumption of one run would reuse and do."""
    if isinstance(result, BulkResults):
        _print_bulk_results(result, values)
        return
    for line in result.lines:
        say(line)


def _print_inbox(inbox: Inbox, _values: Mapping[str, Any]) -> None:
    from divebook.projections.summary import badge_of

    # The printed commands repeat the store.
    again = [] if inbox.store is None else ["--store", inbox.store]
    has_commands = False
    for run in inbox.executions:
        # The label names a what-if or a trial as such.
        label = f"{badge_of(run.internals.record)} {run.id}".lstrip()
        for question in run.open_questions:
            for line in description(label, question):
                say(line)
        for awaited in awaited_signals_of(run):
            say(f"{awaited}  {run.id}, step {awaited.step}")
        # A file is only named where the log alone is not enough.
        for line in ways_on(run, [*file_of(run, inbox.environment), *again]):
            has_commands = True
            print_note(line, "yellow")
    if not has_commands:
        print_note("no open questions, and no run waits for a signal")


def _print_rules(rules: Rules, values: Mapping[str, Any]) -> None:
    # After a rule is revoked, the note says so.
    if values["revoke"] is None:
        print_report(rules.report(), error=not rules.rules)


def _print_check(report: CheckReport, _values: Mapping[str, Any]) -> None:
    events = sum(entry.events for entry in report.executions)
    say(
        f"{plural(len(report.executions), 'execution')}, {plural(events, 'event')}, "
        f"{plural(report.orphan_blobs, 'unused large value')}"
    )
    for damage in report.all_damages():
        # Damage of the store itself belongs to no execution.
        place = " ".join(str(part) for part in (damage.execution_id, damage.sequence) if part is not None)
        print_note(visible(f"{place or 'store'}: {damage.text}"), "bold red")
    for entry in report.executions:
        if entry.damages:
            print_note(
                f"{entry.execution_id}: the first {entry.readable} of {entry.events} events can be read", "yellow"
            )
    say("sound" if report.ok else "damaged")


def _print_exported(exported: Exported, _values: Mapping[str, Any]) -> None:
    # Control characters are all inside JSON strings.
    if exported.text is not None:
        sys.stdout.write(json_escaped(exported.text))
    if exported.damage is not None:
        note_damage(exported.events, exported.last_sequence, exported.damage)


def _print_converted(converted: Converted, _values: Mapping[str, Any]) -> None:
    # The text goes to stdout, unless a file has it.
    if converted.file is None:
        write(converted.text)


def _print_schedules(schedules: Schedules, values: Mapping[str, Any]) -> None:
    for line in schedules.lines:
        say(line)
    if values["start"]:
        return
    if not schedules.due:
        say("no schedule is active; add Schedules: [{Name: ..., Cron: ..., Workflow: ...}]")
        return
    rows = ([one.schedule, one.workflow, local_time(one.at)] for one in schedules.due)
    columns(("schedule", "workflow", "due"), rows)
    start = start_command(schedules.file)
    place = shlex.quote(str(Path.cwd()))
    section(
        "to start the runs when they are due",
        [
            ("cron", f"* * * * * cd {place} && {start}"),
            ("systemd", f"systemd-run --user --on-calendar=minutely --working-directory={place} {start}"),
        ],
    )


def _print_keys(keys: Keys, values: Mapping[str, Any]) -> None:
    from divebook.definitions.schema import page, schema_text

    if values["markdown"]:
        write(page())
    elif values["schema"]:
        write(schema_text().removesuffix("\n"))
    else:
        print_report(keys.report())


def _print_enqueued(run: Run, _values: Mapping[str, Any]) -> None:
    say(run.id)


def _print_queue(queue: Queue, _values: Mapping[str, Any]) -> None:
    if queue.waiting:
        titles = ("queue", "priority", "id", "workflow", "status", "due", "key", "workers")
        columns(titles, map(_queue_cells, queue.waiting))
    else:
        say("no runs in queues")
    # Reasons only for runs that no worker can run.
    for line in queue.waiting:
        if line.workers:
            continue
        for name, reason in line.reasons.items():
            say(f"{line.execution_id}: worker {name} cannot run it: {reason}")
    if queue.withheld:
        say("these runs are not started by workers:")
        rows = ([line.queue, line.execution_id, line.workflow, line.why or ""] for line in queue.withheld)
        columns(("queue", "id", "workflow", "why"), rows)
        say("to resume one: divebook resume RUN -d FILE")
    for text in queue.worker_lines:
        say(text)


def _queue_cells(line: QueueLine) -> tuple[str, ...]:
    attempts = f", {plural(line.attempts, 'attempt')}" if line.attempts else ""
    due = "" if line.due is None else local_time(line.due)
    cells = (line.queue, str(line.priority), line.execution_id, line.workflow)
    return (*cells, f"{line.status}{attempts}", due, line.key or "", line.able_workers)


PAGE = 50
"""Number of rows on one page of the list of interrupted runs."""


def _print_interrupted(interrupted: Interrupted, _values: Mapping[str, Any]) -> None:
    from divebook.projections.summary import Overview
    from divebook.report.model import Text

    records = interrupted.records
    if not records:
        print_note("nothing to recover")
        return
    page = interrupted.page
    statuses = Overview(interrupted.environment.store).statuses(records)
    rows = [
        (
            record.execution_id,
            one_line(record.workflow_name, 40),
            Text(statuses[record.execution_id], statuses[record.execution_id]),
            local_time(record.started_at),
        )
        # Page 1 has the rows 0 to 49.
        for record in records[(page - 1) * PAGE : page * PAGE]
    ]
    columns(("id", "workflow", "status", "started"), rows, whole=("id",))
    if len(records) > PAGE:
        print_note(f"page {page} of {-(-len(records) // PAGE)}, {len(records):,} executions: divebook recover --page N")
    newest = interrupted.environment.run_of(records[0].execution_id)
    file = [] if interrupted.definitions is None else ["-d", str(interrupted.definitions)]
    again = [
        *(file or file_of(newest, interrupted.environment)),
        *(["--store", interrupted.store] if interrupted.store else []),
    ]
    one = in_shell("recover", [newest.id], again)
    print_note(f"to continue: {one}, or all of them: {in_shell('recover', [], ['--all', *again])}", "yellow")


def _print_provenance(provenance: Provenance, values: Mapping[str, Any]) -> None:
    if values["form"] == "text":
        print_report(provenance.report())
    else:
        write(secrets.text(provenance.graph))


def _print_nothing(_result: object, _values: Mapping[str, Any]) -> None:
    """Print nothing: the command has printed a note."""


PRINTERS: dict[str, Callable[[Any, Mapping[str, Any]], None]] = {
    "runs": _print_runs,
    "show": _print_details,
    "open": _print_details,
    "why": _print_provenance,
    "to-test": _print_nothing,
    "cancel": _print_bulk_results,
    "annotate": _print_bulk_results,
    "resume": _print_resumed,
    "diff": _print_patch,
    "keys": _print_keys,
    "check": _print_check,
    "export": _print_exported,
    "convert": _print_converted,
    "schedule": _print_schedules,
    "enqueue": _print_enqueued,
    "queue": _print_queue,
    "recover": _print_interrupted,
    "inbox": _print_inbox,
    "rules": _print_rules,
}
"""Printers of the commands of which the shell prints more, or less, than the report, by name of the command."""
