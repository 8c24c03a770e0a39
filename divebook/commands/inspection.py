"""Commands that look into recorded runs: ``runs``, ``count``, ``stats``, ``show``, ``open``, ``compare``, ``why``,
``inspect``, ``verify``, ``to-test``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict, cast

from divebook.commands.command import LOOK, NOTEBOOK, SHELL, Fields, Invocation, command, option, with_times, word
from divebook.commands.parameters import (
    AtEvent,
    Force,
    OfWorkflow,
    Origin,
    RunId,
    RunIds,
    RunOrNewest,
    WithStatus,
)
from divebook.errors import DivebookError, NotFoundError, SetupError, StoreError
from divebook.report.hints import advised
from divebook.report.shown import Shown
from divebook.text.format import json_time
from divebook.text.ranges import COUNT_OR_ZERO

if TYPE_CHECKING:
    from divebook.engine.state import PathState
    from divebook.projections.compare import Pair, Row
    from divebook.projections.comparison import Comparison
    from divebook.projections.summary import RunLine
    from divebook.replay.inspect import Inspection
    from divebook.replay.provenance import Provenance
    from divebook.replay.verify import Verification
    from divebook.report.model import Report
    from divebook.runtime.run import Run
    from divebook.stores import EventStore, ExecutionRecord


# --- runs: the list ------------------------------------------------------------------------------------------------


class RunData(TypedDict):
    """One line of the list of runs as JSON. Times are ISO 8601, `cost` is in dollars."""

    id: str
    workflow: str
    status: str
    error: str | None
    started_at: str | None
    ended_at: str | None
    worked_seconds: float | None
    cost: float | None
    questions: int
    events: int
    bytes: int
    durability: str
    key: str | None
    origin: str
    parent: str | None
    tags: list[str]
    note: str | None
    notebook: str | None
    cell: str | None


class RunsData(TypedDict):
    """Result of ``runs`` as JSON. `total` is the number of runs that match, of which ``--limit`` may leave some out."""

    runs: list[RunData]
    total: int


@dataclass(frozen=True)
class RunQuery:
    """The runs of a store that have some properties, newest first. `records` reads them."""

    event_store: EventStore
    filters: Mapping[str, str]
    limit: int

    @property
    def records(self) -> list[ExecutionRecord]:
        """The summary rows of the runs."""
        from divebook.projections.summary import records_with

        filters: dict[str, Any] = dict(self.filters)
        return records_with(self.event_store, limit=self.limit, **filters)

    def total(self, records: list[ExecutionRecord]) -> int:
        """Return the number of runs with the properties, of which `records` are the first."""
        # Only a list that is as long as its limit can leave runs out.
        is_cut = self.limit > 0 and len(records) >= self.limit
        return len(replace(self, limit=0).records) if is_cut else len(records)

    def lines(self, records: list[ExecutionRecord]) -> list[RunLine]:
        """Return the lines of the list for summary rows."""
        from divebook.projections.summary import Overview

        return list(Overview(self.event_store).lines(records))


def run_data(line: RunLine) -> RunData:
    """Return one line of the list of runs as plain data."""
    from divebook.projections.run_columns import worked_seconds
    from divebook.questions.bounds import dollars

    record = line.record
    return {
        "id": record.execution_id,
        "workflow": record.workflow_name,
        "status": line.status,
        "error": record.error,
        "started_at": json_time(record.started_at),
        "ended_at": json_time(record.ended_at),
        "worked_seconds": worked_seconds(line),
        "cost": dollars(line.cost),
        "questions": line.questions,
        "events": record.last_sequence,
        "bytes": record.size,
        "durability": record.durability,
        "key": record.key,
        "origin": record.origin,
        "parent": record.parent,
        "tags": list(record.tags),
        "note": record.note,
        "notebook": record.notebook,
        "cell": record.cell,
    }


def runs_data(query: RunQuery) -> RunsData:
    """Return a list of runs as plain data."""
    records = query.records
    return {"runs": [run_data(line) for line in query.lines(records)], "total": query.total(records)}


@command(
    "runs",
    LOOK,
    example="runs --status failed --limit 5",
    python="divebook.runs",
    data=runs_data,
    notebook_help="The list shows the cost of each run, and the error of a failed run. Runs can be opened, resumed, "
    "cancelled and tagged there, and the inbox is shown next to the list. `runs = %dive runs` assigns the list to a "
    "variable: `runs.frame()` is a DataFrame, and `runs[0]` the newest run.",
)
def runs(
    call: Invocation,
    *,
    status: WithStatus = None,
    workflow: OfWorkflow = None,
    tag: Annotated[
        str | None, option("--tag", "-t", metavar="TAG", help="Only runs with this tag.", completes="tag")
    ] = None,
    origin: Annotated[
        Origin | None, option("--origin", metavar="ORIGIN", help="Only runs with this origin.", completes="origin")
    ] = None,
    notebook: Annotated[
        str | None, option("--notebook", metavar="PATH", help="Only runs that this notebook started.")
    ] = None,
    limit: Annotated[
        int | None,
        option(
            "--limit",
            "-n",
            allowed=COUNT_OR_ZERO,
            help="Maximum number of runs; 0 for all. Default: 20 in a shell, all in a notebook.",
        ),
    ] = None,
) -> RunQuery:
    """List runs, newest first."""
    filters = {"status": status, "workflow": workflow, "tag": tag, "origin": origin, "notebook": notebook}
    if limit is None:
        limit = 20 if call.interface == SHELL else 0
    query = RunQuery(call.event_store, {name: value for name, value in filters.items() if value is not None}, limit)
    if call.interface == SHELL:
        _learn_inputs(call, query)
    return query


def _learn_inputs(call: Invocation, query: RunQuery) -> None:
    """Find the secrets in the inputs of failed runs, because an error can repeat an input."""
    # The logs of other runs are not read for their secrets.
    failed = [record.execution_id for record in query.records if record.error]
    if not failed:
        return
    from divebook.runtime.forks import recorded_opening

    for execution_id in failed:
        # A damaged log has no inputs that could be shown.
        with suppress(StoreError):
            call.learn(recorded_opening(execution_id, query.event_store).inputs)


# --- count -----------------------------------------------------------------------------------------------------------


class CountData(TypedDict):
    """Result of ``count`` as JSON: the number of runs by status, and of all runs."""

    runs: dict[str, int]
    total: int


@dataclass(frozen=True, repr=False)
class RunCount(Shown):
    """Number of runs of each status, the most frequent first."""

    by_status: dict[str, int]

    def report(self) -> Report:
        """Return one line with all numbers."""
        from divebook.report.model import Report, Text, joined

        counts = [(f"{count:,} ", Text(status, status)) for status, count in self.by_status.items()]
        return Report(joined(", ", counts) or "no runs yet")


def count_data(count: RunCount) -> CountData:
    """Return the number of runs by status as plain data."""
    return {"runs": count.by_status, "total": sum(count.by_status.values())}


@command(
    "count",
    LOOK,
    example="count --workflow audit",
    no_python="`divebook.runs().frame()` has the status of each run.",
    data=count_data,
)
def count(call: Invocation, *, workflow: OfWorkflow = None) -> RunCount:
    """Count the runs of a store by status."""
    from divebook.projections.summary import Overview

    statuses = Overview(call.event_store).statuses(call.event_store.records(workflow=workflow))
    return RunCount(dict(Counter(statuses.values()).most_common()))


# --- stats -----------------------------------------------------------------------------------------------------------


class WorkflowStatsData(TypedDict):
    """Numbers of the runs of one workflow as JSON. `cost` is in dollars."""

    workflow: str
    runs: int
    by_status: dict[str, int]
    median_seconds: float | None
    longest_seconds: float | None
    cost: float


class StatsData(TypedDict):
    """Result of ``stats`` as JSON."""

    workflows: list[WorkflowStatsData]


@dataclass(frozen=True, repr=False)
class Stats(Shown):
    """Number, status, duration and cost of runs, by workflow, the most frequent workflow first."""

    rows: list[WorkflowStatsData]

    def report(self) -> Report:
        """Return a table with a row for each workflow."""
        from divebook.report.model import Column, Report, Table
        from divebook.text.format import price, seconds

        titles = ("workflow", "runs", "status", "median", "longest", "cost")
        rows = [
            (
                row["workflow"],
                f"{row['runs']:,}",
                ", ".join(f"{count:,} {status}" for status, count in row["by_status"].items()),
                "" if row["median_seconds"] is None else seconds(row["median_seconds"]),
                "" if row["longest_seconds"] is None else seconds(row["longest_seconds"]),
                price(row["cost"]),
            )
            for row in self.rows
        ]
        columns = tuple(Column(title, "name" if title == "workflow" else "short") for title in titles)
        return Report("" if rows else "no runs yet", blocks=(Table(columns, tuple(rows)),) if rows else ())


def stats_data(stats: Stats) -> StatsData:
    """Return the numbers of runs by workflow as plain data."""
    return {"workflows": stats.rows}


@command(
    "stats",
    LOOK,
    example="stats --workflow audit",
    no_python='`divebook.frames().executions.groupby("workflow")` groups the runs by workflow.',
    data=stats_data,
)
def stats(
    call: Invocation,
    *,
    workflow: OfWorkflow = None,
    tag: Annotated[
        str | None, option("--tag", "-t", metavar="TAG", help="Only runs with this tag.", completes="tag")
    ] = None,
) -> Stats:
    """Show number, statuses, durations and cost of runs by workflow.

    What-ifs and trials are left out. The durations are those of completed runs, without the time that they waited.
    """
    from divebook.projections.run_columns import worked_seconds

    filters = {"workflow": workflow, "tag": tag}
    query = RunQuery(call.event_store, {key: value for key, value in filters.items() if value is not None}, 0)
    lines_by_workflow: dict[str, list[RunLine]] = {}
    for line in query.lines(query.records):
        if line.is_counted:
            lines_by_workflow.setdefault(line.record.workflow_name, []).append(line)
    rows = [_workflow_stats(name, lines, worked_seconds) for name, lines in lines_by_workflow.items()]
    return Stats(sorted(rows, key=lambda row: (-row["runs"], row["workflow"])))


def _workflow_stats(
    workflow: str, lines: list[RunLine], seconds_of: Callable[[RunLine], float | None]
) -> WorkflowStatsData:
    from statistics import median

    from divebook.events.catalog import COMPLETED
    from divebook.questions.bounds import dollars

    # A run that failed at once, or still waits, says nothing about the duration of the workflow.
    durations = [seconds_of(line) for line in lines if line.record.status == COMPLETED]
    values = [duration for duration in durations if duration is not None]
    return {
        "workflow": workflow,
        "runs": len(lines),
        "by_status": dict(Counter(line.status for line in lines).most_common()),
        "median_seconds": median(values) if values else None,
        "longest_seconds": max(values, default=None),
        "cost": dollars(sum(line.cost or 0 for line in lines)),
    }


# --- show, open: one run ---------------------------------------------------------------------------------------------


FailureData: TypeAlias = Annotated[dict[str, Any], Fields("divebook.projections.failures:Failure")]


class PathData(TypedDict):
    """A path (branch) of a run as JSON. Empty fields are left out."""

    id: str
    status: str
    current_step: NotRequired[str]
    started_at: NotRequired[str]
    ended_at: NotRequired[str]
    error_message: NotRequired[str]
    step_outputs: dict[str, str]


class EventData(TypedDict):
    """An event of a log as JSON. The keys of `data` depend on the type of the event."""

    id: str
    execution_id: str
    sequence: int
    timestamp: str
    event_type: str
    path: NotRequired[str]
    step: NotRequired[str]
    data: dict[str, Any]


class UsageData(TypedDict):
    """Consumption of the model calls of a run as JSON. `cost` is in dollars."""

    requests: int
    input_tokens: int
    output_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int
    cost: float


class ExecutionData(TypedDict):
    """A run as JSON: status, values, usage and questions. Times are ISO 8601."""

    id: str
    workflow: str
    status: str
    error: str | None
    failure: FailureData | None
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    variables: dict[str, Any]
    last_output: dict[str, str]
    usage: UsageData
    durability: str
    signals: list[str]
    questions: dict[str, str]
    started_at: str | None
    ended_at: str | None


class ShownRunData(ExecutionData):
    """Result of ``show`` and ``open`` as JSON."""

    paths: list[PathData]
    events: NotRequired[list[EventData]]
    damage: NotRequired[str]


@dataclass(frozen=True)
class ShownRun:
    """A run that a person looks at."""

    execution: Run
    shows_events: bool = False
    damage: Exception | None = None
    """The error that describes the damage of its log; only the readable events are shown."""
    is_file: bool = False
    """True if the run was read from an exported file, False if it is in a store."""
    store: str | None = None
    """Store of the run, if the command names one."""


def execution_data(execution: Run) -> ExecutionData:
    """Return status, values, usage and questions of a run as plain data."""
    from divebook.analysis.run_report import last_outputs

    failure = execution.failure
    return {
        "id": execution.id,
        "workflow": execution.workflow.name,
        "status": execution.status,
        "error": execution.error,
        "failure": None if failure is None else with_times(asdict(failure)),
        "inputs": dict(execution.state.inputs),
        "outputs": dict(execution.state.outputs),
        "variables": recorded_variables(execution),
        "last_output": last_outputs(execution),
        "usage": cast("UsageData", execution.usage._asdict()),
        "durability": execution.store.record(execution.id).durability,
        "signals": [awaited.name for awaited in awaited_signals_of(execution)],
        "questions": {question.id: question.question for question in execution.open_questions},
        "started_at": json_time(execution.started_at),
        "ended_at": json_time(execution.ended_at),
    }


def recorded_variables(execution: Run) -> dict[str, Any]:
    """Return the variables of a run by name, as they are recorded. They are not converted to instances of user classes,
    so that no user code is imported to show them.
    """
    return dict(sorted(execution.state.variables.items()))


def awaited_signals_of(execution: Run) -> list[Any]:
    """Return the signals from outside that a run waits for; an empty list if it has ended."""
    from divebook.engine.state import awaited_signals

    return [] if execution.state.is_over else awaited_signals(execution.state)


def _path_data(path: PathState) -> PathData:
    data = path.to_dict()
    # `to_dict` has the names and times of other programs that read it. All commands have the same.
    times = (("start_time", "started_at", path.started_at), ("end_time", "ended_at", path.ended_at))
    for other_name, name, moment in times:
        if data.pop(other_name, None) is not None:
            data[name] = json_time(moment)
    return cast("PathData", data)


def shown_run_data(shown: ShownRun) -> ShownRunData:
    """Return a run with its paths, and its events if they were asked for, as plain data."""
    from divebook.events.codec import event_to_dict

    execution = shown.execution
    data: ShownRunData = {
        **execution_data(execution),  # type: ignore[typeddict-item]  # mypy does not narrow the unpacked keys
        "paths": [_path_data(path) for path in execution.internals.paths.values()],
    }
    if shown.shows_events:
        data["events"] = [cast("EventData", event_to_dict(event)) for event in execution.history()]
    # Only a damaged log has the key "damage".
    if shown.damage is not None:
        data["damage"] = str(shown.damage)
    return data


Events = Annotated[bool, option("--events", "-e", help="Also show all events of the log.", interfaces=[SHELL])]


def is_file(name: str) -> bool:
    """Return whether a text is the name of an exported file. An id never ends like one, so the ending decides."""
    from divebook.stores.embedded import may_embed_log

    return name.endswith((".jsonl", ".json")) or may_embed_log(name)


def exit_code_of_shown(shown: ShownRun) -> int:
    """Return 1 for a damaged run, else 0."""
    return 0 if shown.damage is None else 1


@command(
    "show",
    LOOK,
    example="show exec_01k8 --events",
    python="divebook.show",
    data=shown_run_data,
    exit_code=exit_code_of_shown,
    reports_damage=True,
    shell_help="RUN can also be an exported file, as for `divebook open`. If the log is damaged, the readable events "
    "are shown, and the exit code is 1.",
    notebook_help="The view is live while the run is running, in this process or another one.",
)
def show(call: Invocation, run: RunId, *, events: Events = False) -> ShownRun:
    """Show the status and the values of a run."""
    if call.interface == SHELL and is_file(run):
        return run_in_file(call, run, events=events)
    execution = call.run(run)
    call.learn(execution.state.inputs, execution.state.variables)
    return ShownRun(execution, events, execution.internals.damage, store=call.store)


def run_in_file(call: Invocation, file: str, *, events: bool = False) -> ShownRun:
    """Return the run of an exported file, loaded into a new store in memory. Of a damaged file, only the sound events
    are loaded.
    """
    from divebook.environments.environment import Environment
    from divebook.stores import MemoryStore
    from divebook.stores import transfer as jsonl

    log, damage = jsonl.read_sound(file)
    if not log.events:
        raise damage or StoreError(f"{file} contains no events")
    environment = Environment(store=MemoryStore())
    execution_id = log.events[0].execution_id
    environment.store.append(execution_id, log.events, 0)
    execution = environment.run_of(execution_id)
    call.learn(execution.state.inputs, execution.state.variables)
    # The damage of the file was found while it was read; that of a log is found by the execution.
    return ShownRun(execution, events, damage or execution.internals.damage, is_file=True)


@command(
    "open",
    LOOK,
    example="open run.html",
    python="environment.open",
    data=shown_run_data,
    exit_code=exit_code_of_shown,
    has_store=False,
    shell_help="If the file is damaged outside its log, the run is shown, and the exit code is 1.",
    notebook_help="The file can also be a saved notebook: `runs = %dive open old.ipynb` returns its runs, with "
    "`runs[0].replay()` and `runs[0].events`. Without FILE, the last saved version of this notebook is opened. "
    "Code in the file is not run.",
)
def open_file(
    call: Invocation,
    file: Annotated[
        str | None, word("FILE", "Exported file: NAME.html, NAME.ipynb or NAME.jsonl.", completes="file")
    ] = None,
    run: Annotated[
        str | None,
        word(
            "RUN",
            "One run of a saved notebook: its id, or the first characters of the id. Default: all runs.",
            interfaces=[NOTEBOOK],
        ),
    ] = None,
    *,
    events: Events = False,
) -> ShownRun:
    """Show the run in an exported file.

    FILE was written by `run.to_html`, `run.to_notebook` or `divebook export`. No store is needed or changed.
    """
    if file is None or run is not None:
        raise SetupError("name the exported file of a run: NAME.html, NAME.ipynb or NAME.jsonl")
    if not is_file(file):
        raise SetupError(f"{file} is not an exported file; name a file that ends with .html, .ipynb or .jsonl")
    return run_in_file(call, file, events=events)


# --- compare ---------------------------------------------------------------------------------------------------------


class DifferenceData(TypedDict):
    """One difference between two runs as JSON."""

    difference: str
    kind: str
    place: str
    facet: str | None
    text: str
    a: str
    event_a: int | None
    b: str
    event_b: int | None


class ComparisonData(TypedDict):
    """Result of ``compare`` as JSON."""

    same: bool
    differences: list[DifferenceData]


def comparison_data(comparison: Comparison) -> ComparisonData:
    """Return the differences between runs as plain data."""
    return {
        "same": comparison.is_same,
        "differences": [_difference_data(pair, row) for pair in comparison.pairs for row in pair.differences],
    }


def _difference_data(pair: Pair, row: Row) -> DifferenceData:
    from divebook.projections.compare import describe

    return {
        "difference": row.difference,
        "kind": row.present.kind,
        "place": row.place,
        "facet": row.facet,
        "text": describe(row),
        "a": pair.a.id,
        "event_a": row.event_of(row.a),
        "b": pair.b.id,
        "event_b": row.event_of(row.b),
    }


@command(
    "compare",
    LOOK,
    example="compare exec_01k8 exec_01k9",
    python="divebook.compare",
    data=comparison_data,
    exit_code=lambda comparison: 0 if comparison.is_same else 1,
    shell_help="The exit code is 1 if the runs differ.",
    notebook_help="`c = %dive compare ID ID` assigns the comparison to a variable: `c.first` is the first difference, "
    "`c.frame()` a DataFrame.",
)
def compare(
    call: Invocation,
    runs: RunIds,
    *,
    gold: Annotated[
        str | None,
        option(
            "--gold",
            metavar="FIELD",
            help="Field of the items of `Each` that contains the correct result. The correct results of each run are "
            "counted.",
        ),
    ] = None,
) -> Comparison:
    """Compare runs of one workflow side by side.

    The output begins with a summary and the first difference. Each step and call is marked as the same, changed, added
    or removed. The first run is compared with each of the other runs.
    """
    if len(runs) < 2:
        raise SetupError(f"name two or more runs; {advised('runs')} lists all runs")
    from divebook.runtime.run import compared

    comparison = compared(call.environment, *runs)
    return comparison if gold is None else comparison.judge(gold)


# --- why, inspect ----------------------------------------------------------------------------------------------------


class OriginData(TypedDict):
    """One cause of a value as JSON."""

    depth: int
    kind: str
    name: str
    event: int
    path: str
    step: str
    item: int | None
    value: Any


class ProvenanceData(TypedDict):
    """Result of ``why`` as JSON. `graph` is a flow chart in Mermaid's language."""

    name: str
    at: int
    text: str
    origins: list[OriginData]
    graph: str


def provenance_data(provenance: Provenance) -> ProvenanceData:
    """Return the provenance of a value as plain data."""
    return {
        "name": provenance.name,
        "at": provenance.at,
        "text": str(provenance),
        "origins": [
            {
                "depth": depth,
                "kind": origin.kind,
                "name": origin.name,
                "event": origin.sequence,
                "path": origin.path,
                "step": origin.step,
                "item": origin.item,
                "value": provenance.value(origin),
            }
            for number, depth in provenance.depths.items()
            for origin in (provenance.origin(number),)
        ],
        "graph": provenance.graph,
    }


@command(
    "why",
    LOOK,
    example="why total exec_01k8",
    python="run.why",
    data=provenance_data,
    notebook_help="`w = %dive why total` assigns the result to a variable: `w.frame()` is a DataFrame, `w.graph` a "
    "flow chart for Mermaid.",
)
def why(
    call: Invocation,
    name: Annotated[str, word("NAME", "Name of the variable; inputs.NAME for an input, state for all variables.")],
    run: RunOrNewest = None,
    *,
    at: AtEvent = None,
    row: Annotated[
        int | None,
        option(
            "--row", allowed=COUNT_OR_ZERO, help="Row N, counted from 0, of a list or frame with a row for each item."
        ),
    ] = None,
    column: Annotated[str | None, option("--column", metavar="NAME", help="Column of the row in --row.")] = None,
    form: Annotated[  # noqa: ARG001 - the shell prints the form
        Literal["text", "mermaid"],
        option(
            "--form",
            metavar="text|mermaid",
            help="Form of the output: text, or a flow chart for Mermaid.",
            interfaces=[SHELL],
        ),
    ] = "text",
) -> Provenance:
    """Show the origin of the value of a variable.

    The output lists the events, steps, calls, variables, inputs and choices that led to the value, back to the start.
    """
    provenance: Provenance = call.run(run).why(name, at, row=row, column=column)
    return provenance


class InspectionData(TypedDict):
    """Result of ``inspect`` as JSON. `seconds_by_kind` adds up to `seconds`."""

    seconds: float
    seconds_by_kind: dict[str, float]
    critical_path: list[Annotated[dict[str, Any], Fields("divebook.projections.summary:PathPart")]]
    retries: list[Annotated[dict[str, Any], Fields("divebook.replay.inspect:Retried")]]
    text: str


def inspection_data(inspection: Inspection) -> InspectionData:
    """Return what a run waited for and spent as plain data."""
    return {
        "seconds": inspection.duration.total_seconds(),
        "seconds_by_kind": {str(kind): spent.total_seconds() for kind, spent in inspection.spent.items()},
        "critical_path": [with_times(part._asdict()) for part in inspection.parts],
        "retries": [with_times(retry._asdict()) for retry in inspection.retried],
        "text": str(inspection),
    }


@command(
    "inspect",
    LOOK,
    example="inspect exec_01k8",
    python="run.inspect",
    data=inspection_data,
    notebook_help="`i = %dive inspect` assigns the result to a variable. `i.critical_path`, `i.times`, `i.retries` and "
    '`i.costs("step")` are DataFrames.',
)
def inspect(call: Invocation, run: RunOrNewest = None) -> Inspection:
    """Show the times and the costs of a run.

    The output has the critical path, the time by kind, the retries, and the costs by agent, model and step.
    """
    return call.run(run).inspect()


# --- verify, to-test -------------------------------------------------------------------------------------------------


class VerificationData(TypedDict):
    """The verification of one run as JSON."""

    id: str
    workflow: str
    outcome: str
    events: int
    compared: int
    answered: dict[str, int]
    divergence: str | None
    unchecked: list[str]


class VerificationsData(TypedDict):
    """Result of ``verify`` as JSON."""

    equal: bool
    runs: list[VerificationData]


@dataclass(frozen=True, repr=False)
class Unverified(Shown):
    """A run that could not be verified, with the reason."""

    run_id: str
    workflow: str
    reason: str
    equal = False

    def report(self) -> Report:
        """Return the reason, which may have several lines."""
        from divebook.report.model import Items, Report, Text

        first, *more = self.reason.splitlines()
        title = (Text(self.run_id, "id"), f": not checked: {first}")
        return Report(title, blocks=(Items(tuple(more)),))


@dataclass(frozen=True, repr=False)
class Verifications(Shown):
    """Verifications of all runs of a store."""

    results: list[Verification | Unverified]

    @property
    def equal(self) -> bool:
        """True if every run was verified, and none differs."""
        return all(result.equal for result in self.results)

    def report(self) -> Report:
        """Return the reports of all runs below each other."""
        from divebook.report.model import Report

        return Report(blocks=tuple(block for result in self.results for block in result.report().embedded()))


def verification_data(result: Verification | Verifications) -> VerificationsData:
    """Return the verification of one run or of several as plain data."""
    results = result.results if isinstance(result, Verifications) else [result]
    return {"equal": result.equal, "runs": [_verification_data(each) for each in results]}


def _verification_data(result: Verification | Unverified) -> VerificationData:
    if isinstance(result, Unverified):
        reasons = [result.reason]
        return {
            "id": result.run_id,
            "workflow": result.workflow,
            "outcome": "not checked",
            "events": 0,
            "compared": 0,
            "answered": {},
            "divergence": None,
            "unchecked": reasons,
        }
    return {
        "id": result.run_id,
        "workflow": result.workflow,
        "outcome": result.outcome,
        "events": result.events,
        "compared": result.compared,
        "answered": dict(result.answered),
        "divergence": None if result.divergence is None else str(result.divergence),
        "unchecked": list(result.unchecked),
    }


@command(
    "verify",
    LOOK,
    example="verify exec_01k8",
    python="run.verify",
    data=verification_data,
    exit_code=lambda result: 0 if result.equal else 1,
    needs_definitions=True,
    shell_help="By default the definition in the log is checked; with --definitions, the definition with the same "
    "name in that file. The exit code is 1 if a run differs or cannot be checked.",
    notebook_help="`v = %dive verify` assigns the result to a variable, with `v.equal`, `v.divergence`, `v.unchecked` "
    "and `v.answered`.",
)
def verify(
    call: Invocation,
    run: RunOrNewest = None,
    *,
    every: Annotated[bool, option("--all", help="Verify all runs of the store.")] = False,
    definition: Annotated[
        Literal["new"] | None,
        option(
            "--definition",
            metavar="new",
            help="Check the current definition of the workflow, in place of the definition in the log.",
            interfaces=[NOTEBOOK],
        ),
    ] = None,
) -> Verification | Verifications:
    """Check that the definition of a run still reproduces its log.

    No external call is made. For the first difference, the output names the event, step and line, and the expected and
    the actual value.
    """
    if not every:
        return _verify(call, run, is_new=definition is not None)
    if run is not None:
        raise SetupError("name a run, or use --all to verify all runs of the store, but not both")
    results: list[Verification | Unverified] = []
    # One run that cannot be checked does not end the command, and counts as a difference.
    for record in call.environment.store.records():
        try:
            results.append(_verify(call, record.execution_id, is_new=definition is not None))
        except DivebookError as error:
            results.append(Unverified(record.execution_id, record.workflow_name, str(error)))
    return Verifications(results)


def _verify(call: Invocation, name: str | None, *, is_new: bool) -> Verification:
    run = call.run(name, with_definitions=True)
    if call.definitions is None and not is_new:
        return run.verify()
    workflow = run.workflow.name
    environment = call.environment
    # A file need not define the workflow of every run; a person who says "new" expects it.
    workflows = environment.definitions.workflows
    definition = environment.internals.registry.workflow(workflow) if is_new else workflows.get(workflow)
    return run.verify(definition)


def _require_defined(call: Invocation, workflow: str, file: Path) -> None:
    """Raise `NotFoundError` unless the file of definitions that a call names defines a workflow."""
    names = call.environment.definitions.workflows
    if workflow not in names:
        message = (
            f"{file} does not define {workflow}, the workflow of the run; it defines {', '.join(names) or 'none'}. "
            "Name a run of one of these workflows, or omit --definitions to test the definition in the log"
        )
        raise NotFoundError("workflow", workflow, names, message=message)


class TestFileData(TypedDict):
    """Result of ``to-test`` as JSON."""

    test: str


def test_file_data(file: Path) -> TestFileData:
    """Return the path of a written test as plain data."""
    return {"test": str(file)}


@command(
    "to-test",
    LOOK,
    example="to-test exec_01k8",
    python="run.to_test",
    data=test_file_data,
    needs_definitions=True,
    shell_help="The test reads the definition from the file in --definitions, otherwise from a copy of the definition "
    "in the log. Without a run, the newest run of a workflow in that file is used.",
    notebook_help="Run the test with `!python -m pytest test_sum.py`.",
)
def to_test(
    call: Invocation,
    run: RunOrNewest = None,
    *,
    to: Annotated[
        Path | None,
        option(
            "--to",
            metavar="FILE",
            help="File for the test. Default: test_NAME.py, with the name of the workflow.",
            completes="file",
        ),
    ] = None,
    force: Force = False,
) -> Path:
    """Write a run as a test for pytest, with its log in a second file.

    The test needs neither an API key nor a network. It fails at the first difference from the log, and names event,
    step and line. Secrets are left out.
    """
    import shlex

    from divebook.export.pytest import write_test
    from divebook.runtime.run import sent_secrets

    recorded = call.run(run, with_definitions=True)
    if call.definitions is not None:
        _require_defined(call, recorded.workflow.name, call.definitions)
    # The test reads YAML files and notebooks again. Instead of a Python file, it reads the copy of the definition in
    # the log.
    file = call.definitions
    read_from = None if file is None or file.suffix == ".py" else file
    test = write_test(
        call.environment,
        recorded,
        to,
        definitions=read_from,
        overwrite=force,
        known_secrets=sent_secrets(call.environment.internals.registry.config),
    )
    call.print_note(f"wrote {test} and its log; to run the test: python -m pytest {shlex.quote(str(test))}")
    return test
