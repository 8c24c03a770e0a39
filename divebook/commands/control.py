"""Commands that change recorded runs or answer for people: ``cancel``, ``tag``, ``annotate``, ``inbox``, ``rules``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, cast

from divebook.commands.command import CHANGE, PEOPLE, Invocation, command, option, with_times, word
from divebook.commands.parameters import By, DryRun, OfWorkflow, OptionalRunIds, RunId, WithStatus
from divebook.errors import ConcurrentAppendError, SetupError, StoreError
from divebook.report.shown import Shown

if TYPE_CHECKING:
    from divebook.config.answers import BulkResult
    from divebook.engine.approvals import StandingRule
    from divebook.environments.environment import Environment
    from divebook.questions import Question
    from divebook.report.model import Report
    from divebook.runtime.run import Run


# --- several runs at once: cancel, annotate --------------------------------------------------------------------------


class BulkResultData(TypedDict):
    """Result of a bulk operation for one run as JSON."""

    id: str
    before: str
    status: str
    new_id: str | None
    error: str | None


class BulkResultsData(TypedDict):
    """Result of ``cancel`` and ``annotate`` as JSON."""

    runs: list[BulkResultData]


@dataclass(frozen=True)
class BulkResults:
    """Results of one operation on several runs."""

    rows: Sequence[BulkResult]
    environment: Environment
    execution: Run | None = None
    """The run, if the operation was on a single one that was named."""

    @property
    def has_errors(self) -> bool:
        """True if the operation failed on any run."""
        return any(row.error is not None for row in self.rows)

    def error_of(self, row: BulkResult) -> str | None:
        """Return the error of the operation on a run, or else the error with which the run has failed."""
        from divebook.events.catalog import FAILED

        if row.error is not None:
            return str(row.error)
        return self.environment.run_of(row.new_id or row.execution_id).error if row.status == FAILED else None


def bulk_data(results: BulkResults) -> BulkResultsData:
    """Return the results of an operation on several runs as plain data."""
    return {
        "runs": [
            {
                "id": row.execution_id,
                "before": row.before,
                "status": row.status,
                "new_id": row.new_id or None,
                "error": results.error_of(row),
            }
            for row in results.rows
        ]
    }


def _chosen(
    call: Invocation,
    runs: Sequence[str] | None,
    status: str | None,
    workflow: str | None,
    tagged: str | None,
    *,
    tag_option: str,
    only_unended: bool,
) -> list[str]:
    """Return the ids of the runs that a call names or selects by status, workflow or tag. Raise `SetupError` if it does
    both or neither.
    """
    from divebook.engine.lifecycle import TERMINAL
    from divebook.projections.summary import records_with

    if bool(runs) == bool(status or workflow or tagged):
        raise SetupError(f"name runs, or select them with --status, --workflow or {tag_option}")
    # Runs that are named are all tried, so that one which has ended is reported.
    if runs:
        return list(runs)
    records = records_with(call.environment.store, status, workflow=workflow, tag=tagged)
    return [record.execution_id for record in records if not (only_unended and record.status in TERMINAL)]


_ATTEMPTS = 20


def _cancelled(run: Run) -> Run:
    """Cancel a run, wait for its end, and return it. Retry a few times if the process that drives the run appends an
    event at the same moment.
    """
    # The last attempt is outside of the loop, and raises its error.
    for _ in range(_ATTEMPTS - 1):
        try:
            return run.cancel().wait()
        except ConcurrentAppendError:
            continue
    return run.cancel().wait()


@command(
    "cancel",
    CHANGE,
    example="cancel exec_01k8",
    python="run.cancel",
    data=bulk_data,
    exit_code=lambda results: int(results.has_errors),
)
def cancel(
    call: Invocation,
    runs: OptionalRunIds = None,
    *,
    status: WithStatus = None,
    workflow: OfWorkflow = None,
    tagged: Annotated[
        str | None, option("--tag", "-t", metavar="TAG", help="Only runs with this tag.", completes="tag")
    ] = None,
    dry_run: DryRun = False,
) -> BulkResults:
    """Cancel runs. They can be resumed.

    Name the runs, or use the options to select runs that have not ended. A run that another process drives stops before
    its next step. Runs that cannot be cancelled are reported; the others are cancelled.
    """
    from divebook.config.answers import BulkResult, handle_each

    environment = call.environment
    chosen = _chosen(call, runs, status, workflow, tagged, tag_option="--tag", only_unended=True)
    # The error of a single run is that of the command.
    if len(chosen) == 1 and runs and not dry_run:
        execution = call.run(chosen[0])
        before = execution.status
        execution = _cancelled(execution)
        return BulkResults([BulkResult(execution.id, before, execution.status)], environment, execution)
    return BulkResults(handle_each(environment, chosen, _cancelled, dry_run=dry_run), environment)


@command(
    "annotate",
    CHANGE,
    example="annotate exec_01k8 --note 'read twice' --label quality=good",
    python="run.annotate",
    data=bulk_data,
    exit_code=lambda results: int(results.has_errors),
)
def annotate(
    call: Invocation,
    runs: OptionalRunIds = None,
    *,
    text: Annotated[
        str | None, option("--note", "-n", metavar="TEXT", help="Note on the run. '' removes the note.")
    ] = None,
    labels: Annotated[
        list[str] | None,
        option(
            "--label",
            "-l",
            metavar="NAME=VALUE",
            help="Label with a value in YAML; null removes the label. May be repeated.",
        ),
    ] = None,
    tags: Annotated[
        list[str] | None, option("--tag", "-t", metavar="TAG", help="Tag to add. May be repeated.", completes="tag")
    ] = None,
    untag: Annotated[
        list[str] | None,
        option("--untag", "-u", metavar="TAG", help="Tag to remove. May be repeated.", completes="tag"),
    ] = None,
    status: WithStatus = None,
    workflow: OfWorkflow = None,
    tagged: Annotated[
        str | None, option("--tagged", metavar="TAG", help="Only runs with this tag.", completes="tag")
    ] = None,
    dry_run: DryRun = False,
) -> BulkResults:
    """Set the note, labels and tags of runs.

    Name the runs, or select them with the options. The annotation is an event in the log of each run; a run that has
    ended can be annotated as well. Runs that cannot be annotated are reported; the others are annotated.
    """
    from divebook.config.answers import annotating, handle_each

    # `annotating` checks all options first, so that a mistake changes no run.
    verb = annotating(note=text, labels=labels or (), tags=tags or (), untag=untag or ())
    chosen = _chosen(call, runs, status, workflow, tagged, tag_option="--tagged", only_unended=False)
    return BulkResults(handle_each(call.environment, chosen, verb, dry_run=dry_run), call.environment)


# --- tag -------------------------------------------------------------------------------------------------------------


class TagsData(TypedDict):
    """Result of ``tag`` as JSON."""

    id: str
    tags: list[str]


@dataclass(frozen=True, repr=False)
class RunTags(Shown):
    """The tags of a run."""

    execution_id: str
    tags: tuple[str, ...]

    def report(self) -> Report:
        """Return one line with the tags and the id of the run."""
        from divebook.report.model import Report, Text
        from divebook.text.redaction import one_line, shared

        tags = one_line(shared().text(", ".join(self.tags)), 400) or "no tags"
        return Report((f"{tags}  ", Text(self.execution_id, "id")))


def tags_data(result: RunTags) -> TagsData:
    """Return the tags of a run as plain data."""
    return {"id": result.execution_id, "tags": list(result.tags)}


@command("tag", CHANGE, example="tag exec_01k8 baseline", python="run.tag", data=tags_data)
def tag(
    call: Invocation,
    run: RunId,
    tags: Annotated[list[str] | None, word("TAG", "Tags to add.", completes="tag")] = None,
    *,
    remove: Annotated[
        list[str] | None,
        option("--remove", "-r", metavar="TAG", help="Tag to remove. May be repeated.", completes="tag"),
    ] = None,
) -> RunTags:
    """Add tags to a run, or remove them.

    Without tags, the tags of the run are shown. `runs --tag TAG` finds runs by tag. Tags are events in the log; a run
    that has ended can be tagged as well.
    """
    environment = call.environment
    record = environment.store.record(environment.store.resolve(run))
    if tags or remove:
        record = call.run(run).annotate(tags=tags or (), untag=remove or ()).internals.record
    return RunTags(record.execution_id, tuple(record.tags))


# --- inbox -----------------------------------------------------------------------------------------------------------


class QuestionData(TypedDict):
    """An open question as JSON, with the id of its run and its address for `answer`. Its data, schema, default and
    response have the form that the workflow gives them.
    """

    run_id: str
    question_id: str
    address: str
    kind: str
    question: str
    path: str
    step: str
    message: str | None
    data: dict[str, Any] | None
    schema: dict[str, Any] | None
    operation_id: str | None
    raised_at: str
    expires_at: str | None
    default: dict[str, Any] | None
    optional: bool
    status: str
    response: Any
    answered_by: str | None
    settled_at: str | None
    waiting: list[str]


class QuestionsData(TypedDict):
    """Result of ``inbox`` as JSON: the open questions, each with the id of its run and its address for `answer`."""

    questions: list[QuestionData]


@dataclass(frozen=True)
class Inbox:
    """Everything in a store that waits for a person."""

    environment: Environment
    store: str | None
    executions: list[Run]
    """The runs that have not ended and whose logs can be read."""


def inbox_data(inbox: Inbox) -> QuestionsData:
    """Return the open questions as plain data."""
    return {
        "questions": [
            _question_data(execution.id, question)
            for execution in inbox.executions
            for question in execution.open_questions
        ]
    }


def _question_data(execution_id: str, question: Question) -> QuestionData:
    from divebook.questions.question import address_of

    names = {"run_id": execution_id, "question_id": question.id, "address": address_of(execution_id, question)}
    details = with_times(question._asdict())
    del details["id"]
    return cast("QuestionData", {**names, **details})


@command(
    "inbox",
    PEOPLE,
    example="inbox",
    python="divebook.inbox",
    data=inbox_data,
    notebook_help="The questions are shown as cards that can be answered in place, or as text with commands.",
)
def inbox(call: Invocation) -> Inbox:
    """List open questions, and the signals that runs wait for."""
    executions = list(_readable(call))
    call.learn(*(execution.state.inputs for execution in executions))
    return Inbox(call.environment, call.store, executions)


def _readable(call: Invocation) -> Iterator[Run]:
    """Yield the runs of a store that have not ended. If the log of a run is damaged, print a note and skip the run."""
    # One damaged log must not hide the questions of the others.
    for record in call.environment.store.unended():
        try:
            execution = call.environment.run_of(record.execution_id)
            damage = execution.internals.damage
        # The first read of a log may raise, or only note the damage.
        except StoreError as error:
            damage = error
            execution = None
        if execution is not None and damage is None:
            yield execution
        else:
            call.print_note(f"run {record.execution_id} is not listed: {damage}", "bold red")


# --- rules -----------------------------------------------------------------------------------------------------------


class RuleData(TypedDict):
    """An approval rule as JSON. `run_id` is null for a rule that holds in all runs."""

    run_id: str | None
    rule_id: str
    outcome: str
    tool: str
    kind: str
    agent: str | None
    server: str | None
    arguments: dict[str, Any] | None
    scope: str
    expires_at: str | None
    question: str | None
    by: str | None
    added_at: str


class RulesData(TypedDict):
    """Result of ``rules`` as JSON."""

    rules: list[RuleData]


@dataclass(frozen=True, repr=False)
class Rules(Shown):
    """The valid approval rules that people have made."""

    rules: Sequence[tuple[str | None, StandingRule]]

    def report(self) -> Report:
        """Return a line for each rule: its id, and the calls for which it holds."""
        from divebook.environments.registry import rule_in_words
        from divebook.report.model import Paragraph, Report, Text
        from divebook.text.redaction import one_line, shared

        # A rule contains arguments of the approved call, which can contain secrets.
        texts = [(rule.rule_id, shared().text(rule_in_words(rule, name))) for name, rule in self.rules]
        lines = [(Text(rule_id, "id"), f"  {one_line(text, 400)}") for rule_id, text in texts]
        return Report(blocks=(Paragraph(tuple(lines or ["no rules: each call that needs approval asks a person"])),))


def rules_data(rules: Rules) -> RulesData:
    """Return approval rules as plain data."""
    return {"rules": [cast("RuleData", {"run_id": name, **with_times(rule._asdict())}) for name, rule in rules.rules]}


@command(
    "rules",
    PEOPLE,
    example="rules --revoke rule_0c5a1b2d3e4f5a6b",
    no_python="`environment.rules` lists them, and `environment.rules.revoke(id)` revokes one.",
    data=rules_data,
)
def rules(
    call: Invocation,
    *,
    revoke: Annotated[str | None, option("--revoke", metavar="ID", help="Id of the rule to revoke.")] = None,
    by: By = None,
) -> Rules:
    """List approval rules that people created, or revoke one.

    A revoked rule has no effect on later calls.
    """
    # Revoked first, so that the list shows the rules that are left.
    if revoke is not None:
        call.environment.rules.revoke(revoke, by)
        call.print_note(f"{revoke} is revoked")
    return Rules(call.environment.rules)
