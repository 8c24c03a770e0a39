"""Report of a run: what it was given, its steps, its values, and what a person has to do.

`report_of` collects the texts of a run in a `RunReport`, without secrets. The shell, notebooks and `print` show this
one report. A run that was read from a file has the same report, with texts of its own.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from divebook.analysis.timeline import layout, svg, svg_data_uri
from divebook.engine.bounds import spent_of
from divebook.engine.lifecycle import INTERRUPTED, PAUSED
from divebook.engine.state import awaited_signals
from divebook.errors import ExecutionNotFoundError, with_next_step
from divebook.events import Event
from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, RUNNING, WAITING
from divebook.events.codec import readable
from divebook.events.event import to_datetime
from divebook.events.recorded import Recorded
from divebook.events.rich_output import image_uri
from divebook.projections.activity import Activity, Phase
from divebook.projections.failures import Failure, failures_of, kept_in, summary
from divebook.projections.model_requests import (
    UNKNOWN,
    RequestView,
    ToolCallView,
    answer_blocks,
    output_names,
    requests_in,
    tool_calls_in,
)
from divebook.projections.spans import Span, item_name
from divebook.projections.summary import PROCESS_ENDED, ReadLog, badge_of, badged
from divebook.questions import Question
from divebook.questions.bounds import dollars
from divebook.questions.question import address_of, became, choices_of, example_answer, expected_in_full
from divebook.replay.files import ChangedFiles, KeptFiles
from divebook.report.hints import Hint
from divebook.report.model import (
    Block,
    Card,
    Code,
    Column,
    Facts,
    Line,
    Paragraph,
    Picture,
    Report,
    Section,
    Table,
    Text,
    Values,
    status,
)
from divebook.report.shown import Shown
from divebook.runtime.run import Run, asked_questions
from divebook.stores import ExecutionRecord
from divebook.stores.append import RELAXED
from divebook.stores.registry import store_address
from divebook.text.colours import STATUS_SIGNS
from divebook.text.format import branch_name, in_parts, local_time, plural, price, seconds
from divebook.text.redaction import Redactor, cut, one_line, shared

FIRST_ROWS = 24
"""Number of rows of steps that a report shows unfolded."""
MAX_ROWS = 200
"""Maximum number of rows of an unfolded table."""
MAX_CELL = 120
"""Maximum number of characters of a table cell."""
MAX_ITEM_RESULTS = 20
"""Maximum number of items whose results are in the cell of a step."""
MAX_VALUES = 20
"""Maximum number of variables, questions or answers in a report."""
MAX_IMAGES = 3
MAX_IMAGE = 300_000
"""Maximum number of characters of an image in a report."""
MAX_VALUE = 4000
"""Maximum number of characters of a value."""
MAX_VALUE_BESIDE = 300
"""Maximum number of characters of an input, of a variable beside outputs, and of all values in the text of a run that
has not completed. Its outputs, questions or error then stay visible.
"""
MAX_LINE = 80
"""Maximum number of characters of a list or mapping that is shown in one line."""
MAX_OPEN_VALUES = 1200
"""Maximum number of characters of all values together that are shown unfolded."""
MAX_ERROR = 8000
"""Maximum number of characters of an error or question."""
MAX_FILES = 50
"""Maximum number of changed files of a workspace."""
MAX_DIFFERENCES = 60_000
"""Maximum number of characters of all differences of files."""
MAX_RECORD_FIELDS = 8
"""Maximum number of fields of records that are shown as a table."""
MAX_RECORDS = 50
"""Maximum number of rows of a table of records."""
MAX_RECORD_CELL = 40
"""Maximum number of characters of a cell in a table of records."""
COLUMNS = (
    Column("step", "name"),
    Column("branch", is_optional=True),
    Column("status", is_optional=True),
    Column("duration", is_optional=True),
    Column("output", "long"),
)
TURN_COLUMNS = (
    Column("agent", "name"),
    Column("request", is_optional=True),
    Column("status", is_optional=True),
    Column("duration", is_optional=True),
    Column("what", "long"),
)
# Texts of a budget name the unit behind the amounts.
_UNITS = {"$": "US dollars"}


class ShownValues(NamedTuple):
    """Named values of a run as text, without secrets."""

    title: str
    rows: tuple[tuple[str, str], ...]


class ReportedFailures(NamedTuple):
    """Texts about the failures of a run for its report; empty if nothing has failed."""

    last: Failure | None = None
    """The failure that ended the run; None if the run continued after all failures."""
    other_failures: str = ""
    """One line about all other failures; empty if there are none."""
    kept_results: str = ""
    """Text about the results that a resumed run reuses."""


@dataclass(frozen=True, slots=True, repr=False)
class RunReport(Shown):
    """The texts of a report about an execution."""

    name: str
    id: str
    status: str
    facts: tuple[str, ...]
    spans: tuple[Span, ...]
    phases: tuple[Phase, ...] = field(kw_only=True, default=())
    """Periods in which no call ran. The picture folds long ones."""
    rows: tuple[tuple[str, ...], ...]
    """Rows about the most informative steps, with the columns `COLUMNS`."""
    more_title: str = ""
    more_rows: tuple[tuple[str, ...], ...] = ()
    """Rows about more steps, shown folded; empty if `rows` contains all steps."""
    turns: tuple[tuple[str, ...], ...] = ()
    """Rows about requests and tool calls of agents, with the columns `TURN_COLUMNS`."""
    spreads: tuple[str, ...] = ()
    """Distributions of the results of rows and items, one line for each result column."""
    inputs: ShownValues | None = None
    values: tuple[ShownValues, ...] = ()
    """The declared outputs; of a run without outputs its variables, and the results of its last steps."""
    variables: ShownValues | None = None
    """The variables of a run with outputs, apart from those that are outputs."""
    images: tuple[Picture, ...] = ()
    """Images among the outputs and variables, such as figures."""
    questions: tuple[tuple[str, Hint | None], ...] = ()
    """Open questions, each with the command that answers it."""
    files: tuple[ChangedFiles, ...] = ()
    """Changed files of the workspaces of the execution."""
    signals: tuple[tuple[str, Hint | None], ...] = ()
    """Awaited signals, each with the command that sends it."""
    answers: tuple[tuple[str, str], ...] = ()
    """Closed questions with their answers and the people who answered."""
    error: str = ""
    failures: ReportedFailures = ReportedFailures()
    clean: Redactor = field(default_factory=shared, repr=False)
    next: Hint | None = None
    """Command that continues or shows the run; None if no command is needed."""

    def report(self) -> Report:
        """Return the report. A failed run has a card with its error and the next command; other runs have them at the
        end, where a terminal shows them.
        """
        title = (Text(self.name, "strong"), ": ", status(self.status))
        facts = (Text(self.id, "id"), ", ".join(self.facts))
        return Report(title, facts, tuple(self._blocks()), None if self.failures.last is None else self._card())

    def requests(self) -> Iterator[Block]:
        """Yield the open questions and awaited signals, with the commands that answer and send them."""
        for question, hint in self.questions:
            yield _request("asks: ", question, "to answer: ", hint)
        for signal, hint in self.signals:
            yield _request("waits for ", signal, "to send it: ", hint)

    def without_hints(self) -> RunReport:
        """Return the report without commands, for a run that cannot be continued where the report is read."""
        questions = tuple((question, None) for question, _ in self.questions)
        signals = tuple((signal, None) for signal, _ in self.signals)
        return replace(self, questions=questions, signals=signals, next=None)

    def _blocks(self) -> Iterator[Block]:
        """Yield the parts of the report: inputs, steps and agents, values, files, and last what a person has to do.

        A part is left out if it has nothing to show.
        """
        if self.inputs is not None:
            yield _values_section(self.inputs, MAX_VALUE_BESIDE)
        yield from self._tables()
        if self.spreads:
            yield Paragraph(self.spreads, apart=True)
        if self.spans:
            yield self._picture()
        yield from self._values()
        if self.files:
            changes = tuple(block for each in self.files for block in replace(each, whole=False).report().embedded())
            yield Section(f"changed files ({sum(map(len, self.files))})", changes, is_open=False)
        for question, answer in self.answers:
            yield Paragraph(((Text("asked: ", "strong"), question), ("answered: ", answer)), apart=True)
        yield from self.requests()
        if self.failures.last is None:
            yield from self._end()

    def _values(self) -> Iterator[Block]:
        limit = MAX_VALUE if self.status == COMPLETED else MAX_VALUE_BESIDE
        yield from (_values_section(values, limit) for values in self.values)
        if self.variables is not None:
            yield _values_section(self.variables, MAX_VALUE_BESIDE, is_open=False)
        yield from self.images

    def _tables(self) -> Iterator[Block]:
        """Yield the tables of steps, and of the requests and calls of agents."""
        yield _table(COLUMNS, self.rows)
        if self.more_rows:
            yield Section(self.more_title, (_table(COLUMNS, self.more_rows),), is_open=False, in_text=False)
        if self.turns:
            table = _table(TURN_COLUMNS, self.turns)
            yield Section(_turns_title(self.turns), (table,), is_open=len(self.turns) <= FIRST_ROWS)

    def _end(self) -> Iterator[Block]:
        """Yield the error of a run without a failed step, the failures past which a run continued, and the next
        command.
        """
        if self.error:
            yield Paragraph(_error_lines(self.error), apart=True)
        if self.failures.other_failures:
            yield Paragraph((f"✕ {self.clean.text(self.failures.other_failures)}",), apart=True)
        if self.next is not None:
            yield Paragraph((way_on(self.next),), apart=True)

    def _card(self) -> Card:
        """Return the card of the failure that ended the run: error, meaning, location, arguments, source, traceback,
        reused results and the next command.
        """
        failure = self.failures.last
        assert failure is not None, "only a failed run has a card"  # noqa: S101 - `report` has looked
        clean = self.clean.text
        title, *more = _error_lines(self.error or clean(failure.headline))
        arguments = "\n".join(f"{name} = {text}" for name, text in (failure.arguments or {}).items())
        rows: list[tuple[str, Line | Code]] = [
            ("means", clean(failure.means)),
            ("where", clean(failure.where)),
            ("arguments", Code(clean(arguments)) if arguments else ""),
            (failure.place or "source", self._source(failure)) if failure.source else ("source", failure.place),
            ("also", clean(self.failures.other_failures)),
            ("kept", self.failures.kept_results),
        ]
        blocks: list[Block] = [Paragraph(tuple(more))] if more else []
        blocks.append(Facts(tuple((label, value) for label, value in rows if value)))
        traceback = textwrap.dedent(clean(failure.traceback)).strip("\n")
        if traceback:
            blocks.append(Section("traceback", (Code(traceback),), is_open=False))
        if self.next is not None:
            blocks.append(Facts(((_purpose(self.next), self.next),)))
        return Card(title, tuple(blocks), is_bad=True)

    def _source(self, failure: Failure) -> Code:
        """Return the source lines around a failure. The failed line is marked."""
        numbers = [number for number, _ in failure.source]
        return Code(self.clean.text(failure.lines), numbers.index(failure.line) if failure.line in numbers else None)

    def _picture(self) -> Picture:
        steps = plural(sum(span.kind == "step" for span in self.spans), "step")
        description = f"Timeline of {self.name}: {steps}, {self.status}; the table contains the same information"
        return Picture(lambda: svg_data_uri(svg(layout(self.spans, phases=self.phases), description)), description)


def _values_section(values: ShownValues, most_in_text: int, *, is_open: bool = True) -> Section:
    """Return named values below a title. Long values are folded, so that what follows them stays visible."""
    is_short = sum(len(text) for _, text in values.rows) < MAX_OPEN_VALUES
    return Section(values.title, (Values(values.rows, MAX_VALUE, most_in_text),), is_open=is_open and is_short)


def way_on(hint: Hint) -> Line:
    """Return the line with the next command of a run."""
    return f"{_purpose(hint)}: ", hint


def _purpose(hint: Hint) -> str:
    """Return the label of the next command of a run."""
    return "to show it again" if hint.command == "show" else "to continue"


def _table(columns: tuple[Column, ...], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of steps or of requests, with statuses in their style."""
    place = next(number for number, column in enumerate(columns) if column.title == "status")
    return Table(
        columns,
        tuple(
            # The last word is the status: "✓ completed".
            (*row[:place], Text(row[place], row[place].rpartition(" ")[2]), *row[place + 1 :])
            for row in rows
        ),
    )


def _turns_title(turns: Sequence[Sequence[str]]) -> str:
    requests = sum(bool(row[1]) for row in turns)
    return f"{plural(requests, 'request')} and {plural(len(turns) - requests, 'call')} of agents"


def _request(lead: str, text: str, label: str, hint: Hint | None) -> Paragraph:
    """Return a question or an awaited signal, with the command that answers or sends it."""
    request = (Text(lead, "strong"), text)
    return Paragraph((request,) if hint is None else (request, (label, hint)), apart=True)


def _error_lines(error: str) -> tuple[Line, ...]:
    first, *more = error.split("\n")
    return ((Text("error: ", "bad"), first), *more)


def report_of(
    execution: Run, log: Sequence[Event], clean: Redactor | None = None, damage: Exception | None = None
) -> RunReport:
    """Collect the texts of a report about an execution from its log.

    Secrets are removed (`divebook.text.redaction`): by default the secrets of this run and of the configuration, but
    not those of other runs. `damage` is the error that describes the damage of the log; by default the one that was
    found when the execution was loaded.
    """
    secret_values = {**execution.state.inputs, **execution.state.variables}
    if clean is None:
        clean = shared().fresh()
        clean.learn(secret_values)
        # The shared redactor hides them in everything that this process shows later.
        shared().learn(secret_values)
    # One pass over the log provides the spans, the activity and the distributions.
    read = ReadLog.of(log)
    spans = tuple(clean_span(span, clean) for span in read.shown_spans)
    shown_status = execution.status
    record = _record_of(execution)
    steps = [span for span in spans if span.kind == "step"]
    # A step that started and has not ended counts as running, although its execution waits, is paused or interrupted.
    results = item_results(spans, clean)
    if shown_status in (WAITING, PAUSED, INTERRUPTED):
        steps = [_as_stopped(step, shown_status) for step in steps]
    return RunReport(
        name=one_line(badged(execution.workflow.name, "" if record is None else badge_of(record)), 80),
        id=execution.id,
        status=shown_status,
        facts=tuple(facts_of(execution, read, record)),
        rows=rows_of(steps, FIRST_ROWS, results),
        more_title=more_title(len(steps)),
        # The folded table repeats the rows above, which have gaps.
        more_rows=rows_of(steps, MAX_ROWS, results) if len(steps) > FIRST_ROWS else (),
        turns=turn_rows(spans, clean),
        spreads=tuple(map(clean.text, spreads_of(read))),
        inputs=shown_values("input", execution.state.inputs, clean),
        values=results_of(execution.state.outputs, execution.state.variables, last_outputs(execution), clean),
        variables=_other_variables(execution, clean),
        images=tuple(_images_of({**execution.state.variables, **execution.state.outputs})),
        questions=tuple((clean.text(question), hint) for question, hint in questions_of(execution)),
        answers=tuple((clean.text(question), clean.text(answer)) for question, answer in answers_of(execution, clean)),
        error=clean.text(_error_text(execution, damage or execution.internals.damage)),
        failures=failures_in(execution, read),
        clean=clean,
        signals=tuple(signals_of(execution)),
        files=changed_files_of(execution, log),
        next=_next(execution),
        spans=spans,
        phases=phases_of(read.activity),
    )


def phases_of(activity: Activity) -> tuple[Phase, ...]:
    """Return the periods of a run in which no call ran, also the present one."""
    current = activity.current
    return (*activity.phases, *([] if current is None else [current]))


def _record_of(execution: Run) -> ExecutionRecord | None:
    """Return the summary row of an execution; None if its store has no event of it yet."""
    try:
        return execution.internals.record
    except ExecutionNotFoundError:
        return None


def _as_stopped(step: Span, status: str) -> Span:
    """Replace the status of a running step by the status of its execution, in a copy of the step's span. A report then
    shows the step as waiting, paused or interrupted, like its execution.
    """
    return replace(step, status=status) if step.status == RUNNING else step


def clean_span(span: Span, redactor: Redactor) -> Span:
    """Return a copy of a span (one step, item or call) with the secrets in its error, reason and result replaced."""
    if span.error is None and span.reason is None and not isinstance(span.result, str):
        return span  # most calls of a long run
    texts = {"error": span.error, "reason": span.reason, "result": span.result}
    changed: dict[str, Any] = {}
    for name, text in texts.items():
        if isinstance(text, str):
            # The output of a step is a JSON document, unless the step returned a string.
            clean = redactor.document(text) if name == "result" else redactor.text(text)
            if clean != text:
                changed[name] = clean
    return replace(span, **changed) if changed else span


def _error_text(execution: Run, damage: Exception | None) -> str:
    """Return the text about the error of a failed execution, or about the damage of its log; empty if there
    is neither.
    """
    # A damaged log has no reliable status. Its first events are still valid.
    if damage is not None:
        note = f"the log is damaged; only its first {execution.state.last_sequence} events can be read. "
        return cut(readable(f"{note}{damage}"), MAX_ERROR)
    if execution.status != FAILED:
        return ""
    return with_next_step(cut(readable(execution.error or ""), MAX_ERROR))


def _next(execution: Run) -> Hint | None:
    """Return the command that a report suggests to the person: ``show`` for a running execution, and ``resume`` for a
    stopped or failed one. Return None if nothing is left to do, or if a question must be answered or a signal sent
    first.
    """
    # The commands that answer or send what the execution or a child waits for are shown with the questions and signals.
    waits = not execution.state.is_over and any(
        member.open_questions or awaited_signals(member.state) for member in with_children(execution)
    )
    if execution.internals.damage is not None or waits or execution.state.is_rolled_back:
        return None
    if execution.is_live or (not execution.state.is_over and execution.internals.goes_on_elsewhere):
        return Hint("show", (execution.id,), "refresh", store=store_address(execution.store))
    # Completed, moved and continued runs cannot be resumed.
    if execution.state.is_over and execution.status not in (FAILED, CANCELLED):
        return None
    return Hint("resume", (execution.id,), "resume", store=store_address(execution.store))


def results_of(
    outputs: Mapping[str, Any], variables: Mapping[str, Any], last: Mapping[str, Any], clean: Redactor
) -> tuple[ShownValues, ...]:
    """Return what a run resulted in: its declared outputs; without outputs its variables, and the outputs `last` of
    its last steps.
    """
    # A run that has not ended has no outputs yet, and a workflow may declare none.
    shown = (
        [shown_values("output", outputs, clean)]
        if outputs
        else [shown_values("variable", dict(sorted(variables.items())), clean), shown_values("result", last, clean)]
    )
    return tuple(filter(None, shown))


def _other_variables(execution: Run, clean: Redactor) -> ShownValues | None:
    state = execution.state
    if not state.outputs:
        return None
    further = {name: value for name, value in sorted(state.variables.items()) if name not in state.outputs}
    return shown_values("other variable", further, clean)


def _images_of(values: Mapping[str, Any]) -> Iterator[Picture]:
    """Yield the first images among values, such as figures. Large ones are left out, because each output of a notebook
    repeats them.
    """
    images = ((name, image_uri(value, MAX_IMAGE)) for name, value in values.items())
    shown = [(name, uri) for name, uri in images if uri is not None]
    for name, uri in shown[:MAX_IMAGES]:
        yield Picture(partial(str, uri), one_line(name, 80))


def last_outputs(execution: Run) -> dict[str, str]:
    """Return the output of the last step of each completed branch, by name of the step. Empty outputs are left out. So
    are outputs that a step stores in a variable, because the variables are shown separately.
    """
    storing_steps = {step.name for step in execution.workflow.steps if step.store}
    outputs = {}
    # The output of a path that has split belongs to its children.
    for path in execution.internals.paths.values():
        if path.status != COMPLETED or path.children or path.last_step is None:
            continue
        output = path.step_outputs.get(path.last_step, "")
        if output and path.last_step not in storing_steps:
            outputs[path.last_step] = output
    return outputs


def shown_values(kind: str, values: Mapping[str, Any], clean: Redactor) -> ShownValues | None:
    """Return the first values of a mapping as text, below the title ``3 outputs``; None if there are none."""
    if not values:
        return None
    first = list(values.items())[:MAX_VALUES]
    more = f", the first {MAX_VALUES} of them" if len(values) > MAX_VALUES else ""
    rows = tuple((one_line(name, 60), _value(name, value, clean)) for name, value in first)
    return ShownValues(f"{plural(len(values), kind)}{more}", rows)


def _value(name: str, value: Any, redactor: Redactor) -> str:
    """Return a value of a report as text, with secrets replaced. A list of records becomes a table.

    The name of the variable, and the names of fields, can mark a value as a secret.
    """
    # A value is redacted before it becomes text, because the text of `{"token": ["a"]}` does not show what is secret.
    records = records_of(value)
    if records is None:
        clean = redactor.document(value) if isinstance(value, str) else redactor.under(name, value)
        in_one_line = readable(clean)
        # The text is redacted as well: it has the fields of dataclasses, and a name may also hide small numbers.
        is_short = len(in_one_line) <= MAX_LINE
        return str(redactor.under(name, in_one_line if is_short else readable(clean, indent=2)))
    first = [
        {field_name: redactor.under(field_name, part) for field_name, part in record.items()}
        for record in records[:MAX_RECORDS]
    ]
    # The name of the variable can hide the whole list. Then the result is not a list any more.
    clean = redactor.under(name, first)
    return as_table(clean, len(records)) if isinstance(clean, list) else str(clean)


# --- failures ---------------------------------------------------------------------------------------------------------


def failures_in(execution: Run, log: ReadLog) -> ReportedFailures:
    """Collect the texts about failures in the report of a run. They describe the last failure, the other failures, and
    the results that are reused if the run is resumed.

    For a damaged log there are none; the report shows the damage instead.
    """
    # Most runs have no failure. The search for its cause would read the whole log.
    if execution.internals.damage is not None or not any(span.is_failure for span in log.spans):
        return ReportedFailures()
    last = execution.internals.failure_in(log)
    failures = failures_of(log)
    # A failed run has one last failure. A run that continued past its failures only has a summary of them.
    other_failures = summary(failures) if len(failures) > 1 or last is None else ""
    kept_results = kept_in(log.spans) if execution.status == FAILED else ""
    return ReportedFailures(last, other_failures, kept_results)


# --- rows of steps ---------------------------------------------------------------------------------------------------


ItemResults: TypeAlias = Mapping[tuple[str, str, int], Sequence[str]]
"""Texts about the first results of the items of each visit to a step, by path, step and visit."""


def item_results(spans: Iterable[Span], clean: Redactor) -> ItemResults:
    """Collect the first results of the items of each step with ``Each``, such as ``T-1: login``.

    The output of such a step repeats each whole item above its result, which would fill the cell of a table.
    """
    results: dict[tuple[str, str, int], list[str]] = {}
    for span in spans:
        if span.kind != "item" or not isinstance(span.result, Mapping):
            continue
        texts = results.setdefault((span.path, span.step, span.visit), [])
        if len(texts) < MAX_ITEM_RESULTS:
            text = one_line(clean.document(str(span.result.get("text") or "")), MAX_CELL)
            # An item without a name of its own gets none: its number says no more than the order of the results.
            name = clean.text(item_name(span, lambda _: ""))
            texts.append(f"{name}: {text}" if name and text and name != text else text)
    return results


def rows_of(
    steps: Sequence[Span], limit: int = MAX_ROWS, results: ItemResults | None = None
) -> tuple[tuple[str, ...], ...]:
    """Return the rows of a report's table of steps. At most `limit` steps are shown. For each group of omitted steps, a
    row contains their number. `results` are those of the items.

    Steps that did not complete have priority, then the steps of the last third, then the first steps. The rows are in
    the order of the steps.
    """
    # False sorts before True: first the steps that did not complete, then the last third.
    last = len(steps) - limit // 3
    # `sorted` is stable: within each of the groups the steps keep their order.
    ranked = sorted(range(len(steps)), key=lambda index: (steps[index].status == COMPLETED, index < last))
    selected = sorted(ranked[:limit])
    rows = []
    previous = -1
    # `len(steps)` is one past the last step, and adds the gap at the end.
    for index in [*selected, len(steps)]:
        # -1 is one before the first step, so that a gap at the beginning counts too.
        if index > previous + 1:
            rows.append(_gap(steps[previous + 1 : index]))
        if index < len(steps):
            rows.append(_cells(steps[index], results or {}))
        previous = index
    return tuple(rows)


def _gap(steps: Sequence[Span]) -> tuple[str, ...]:
    counts = Counter(step.status for step in steps)
    statuses = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    return "…", "", statuses, "", f"{plural(len(steps), 'step')} not shown here"


def more_title(count: int) -> str:
    """Return the title of a report's table of steps: "all 12 steps", or "200 of 1,200 steps" if only some are shown."""
    return f"all {count:,} steps" if count <= MAX_ROWS else f"{MAX_ROWS} of {count:,} steps"


def _cells(step: Span, results: ItemResults) -> tuple[str, ...]:
    notes = [f"visit {step.visit}"] if step.visit > 1 else []
    notes += [f"attempt {step.attempts}"] if step.attempts > 1 else []
    # For example ``parse (visit 2, attempt 3)``.
    again = f" ({', '.join(notes)})" if notes else ""
    branch = one_line(branch_name(step.path), 40)
    return one_line(step.step, 60) + again, branch, _status(step.status), _took(step), _outcome(step, results)


def _outcome(step: Span, results: ItemResults) -> str:
    """Return the text of a step's table cell: the number of its items and their first results, or the beginning of its
    result.
    """
    items = plural(step.items, "item") if step.items else ""
    of_items = results.get((step.path, step.step, step.visit), ()) if step.items else ()
    text = one_line(step.headline or " · ".join(filter(None, of_items)) or step.result or "", MAX_CELL)
    return ": ".join(part for part in (items, text) if part)


# --- requests and calls of agents ----------------------------------------------------------------------------------


def turn_rows(spans: Sequence[Span], redactor: Redactor) -> tuple[tuple[str, ...], ...]:
    """Return the rows of a report's table of agents: each model request of an agent that calls tools, followed by its
    tool calls.

    If there are too many rows, the last rows are returned.
    """
    # Calls are grouped by the request that demanded them.
    calls: dict[int, list[ToolCallView]] = {}
    for call in tool_calls_in(spans):
        calls.setdefault(call.view.span.index, []).append(call)
    # A request without a holder is a plain request of an agent without tools. Its step already has a row.
    views = [view for view in requests_in(spans) if view.span.holder >= 0]
    total = sum(1 + len(calls.get(view.span.index, [])) for view in views)
    # The last rows show how the agents ended. Redaction is limited to the shown rows.
    latest: list[tuple[str, ...]] = []
    for view in reversed(views):
        if len(latest) >= MAX_ROWS:
            break
        latest = [*_request_rows(view, calls.get(view.span.index, []), redactor), *latest]
    clean = [tuple(redactor.text(cell) for cell in row) for row in latest[-MAX_ROWS:]]
    omitted = total - len(clean)
    if not omitted:
        return tuple(clean)
    note = f"{plural(omitted, 'row')} not shown here; run.model_calls and run.tool_calls list all"
    return (("…", "", "", "", note), *clean)


def _request_rows(view: RequestView, calls: Sequence[ToolCallView], redactor: Redactor) -> Iterator[tuple[str, ...]]:
    """Yield the row of one model request (cost, cache, answer or error), then a row for each tool call that its
    response requested. Values under the names of secrets are replaced.
    """
    blocks = answer_blocks(view)
    outputs = output_names(view)
    answers = [redactor.document(str(block["text"])) for block in blocks if block.get("type") == "text"]
    # With structured output, the model returns its answer as the arguments of an output tool.
    answers += [readable(redactor.value(block["arguments"])) for block in blocks if block.get("tool") in outputs]
    cost = dollars(view.usage.get("cost", 0))
    facts = [price(cost) if cost else "", "from the cache" if view.cached else "", view.error or " ".join(answers)]
    text = one_line(" ".join(filter(None, facts)), MAX_CELL)
    yield one_line(view.agent, 40), str(view.n), _status(view.status), _took(view.span), text
    for call in calls:
        if call.outcome == UNKNOWN:
            result = " → unknown whether it took effect"
        elif call.result is None:
            result = ""
        else:
            result = f" → {call.outcome}: {_clean_text(call.result, redactor)}"
        text = one_line(f"{call.tool}({_arguments(call, redactor)}){result}", MAX_CELL)
        yield "", "", _status(call.status), _took(call.under_way), text


def _clean_text(value: Any, redactor: Redactor) -> str:
    """Return a value as text with secrets replaced; of a string that is a JSON document also by the names in it."""
    return redactor.document(value) if isinstance(value, str) else readable(redactor.value(value))


def _arguments(call: ToolCallView, redactor: Redactor) -> str:
    # Arguments that are not an object come from a model that violates the schema.
    arguments = call.arguments if isinstance(call.arguments, dict) else {"": call.arguments}
    clean = {name: redactor.under(name, value) for name, value in arguments.items()}
    return one_line(", ".join(f"{name}={readable(value)}" for name, value in clean.items()), MAX_CELL // 2)


def _status(status: str) -> str:
    return f"{STATUS_SIGNS.get(status, '')} {status}"


def _took(span: Span | None) -> str:
    return "" if span is None or span.duration_us is None else seconds(span.duration_us / 1e6)


# --- lists of records as tables --------------------------------------------------------------------------------------


def records_of(value: Any) -> list[Mapping[str, Any]] | None:
    """Return the items of a list if all items are mappings with the same few fields; None for other values.

    >>> records_of([{"bird": "owl"}, {"bird": "wren"}])
    [{'bird': 'owl'}, {'bird': 'wren'}]
    """
    if not isinstance(value, list | tuple) or not value:
        return None
    # A `Recorded` value, such as a tuple or dataclass, is compared by its plain form.
    items = [item.plain() if isinstance(item, Recorded) else item for item in value]
    records = [item for item in items if isinstance(item, Mapping) and item]
    if len(records) != len(items):
        return None
    fields = {name for record in records for name in record}
    return records if len(fields) <= MAX_RECORD_FIELDS else None


def as_table(records: Sequence[Mapping[str, Any]], total: int | None = None) -> str:
    """Return the lines of a table of records with aligned columns. The last line counts the omitted records.

    `total` is the number of all records, if `records` contains only the first records.

    >>> print(as_table([{"bird": "owl", "seen": 2}, {"bird": "wren"}]))
    bird  seen
    owl   2
    wren
    """
    first = records[:MAX_RECORDS]
    # Records may lack fields. The columns follow the order in which fields first occur.
    names = list(dict.fromkeys(name for record in first for name in record))
    table = [[one_line(str(name), MAX_RECORD_CELL) for name in names]]
    for record in first:
        cells = [readable(record[name]) if name in record else "" for name in names]
        table.append([one_line(cell, MAX_RECORD_CELL) for cell in cells])
    widths = [max(len(row[column]) for row in table) for column in range(len(names))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    omitted = (len(records) if total is None else total) - MAX_RECORDS
    if omitted > 0:
        lines.append(f"... {omitted:,} more")
    return "\n".join(lines)


# --- facts, questions and answers of a run ---------------------------------------------------------------------------


def facts_of(execution: Run, log: ReadLog, record: ExecutionRecord | None) -> Iterable[str]:
    """Yield the key facts of a report as texts: start, working and waiting time, number of model calls and tokens, and
    how much of each budget is spent.
    """
    if execution.status == INTERRUPTED:
        yield PROCESS_ENDED
    blocked_reason = execution.internals.held_up
    if blocked_reason is not None:
        yield blocked_reason
    if execution.started_at:
        yield f"started {local_time(execution.started_at)}"
        yield from log.activity.times
    usage = execution.state.own_usage
    if usage.requests:
        yield f"{plural(usage.requests, 'model call')}, {plural(usage.input_tokens + usage.output_tokens, 'token')}"
    if usage.cost:
        yield price(dollars(usage.cost))
    yield from _budget(execution)
    if record is not None and record.durability == RELAXED:
        yield "durability: relaxed"


def spreads_of(log: ReadLog) -> Iterable[str]:
    """Yield one text for each result column of the steps that process many items. The text contains the distribution of
    the column's values: ``label: praise 812, blame 164``.
    """
    # Counting is postponed until the report is made, because it reads all rows.
    log.spreads.count()
    latest = log.spreads.latest(log.activity.progress)
    for step, spreads in latest.items():
        prefix = f"{one_line(step, MAX_CELL)}: " if len(latest) > 1 else ""
        yield from (f"{prefix}{spread.words}" for spread in spreads)


def changed_files_of(execution: Run, log: Sequence[Event]) -> tuple[ChangedFiles, ...]:
    """Return the changed files of each workspace of an execution, with their differences. At most `MAX_FILES` files and
    `MAX_DIFFERENCES` characters of differences are returned for each workspace.
    """
    changes = []
    for name, workspace in sorted(execution.state.workspaces.items()):
        # Equal digests mean that the files are as at the start, for example because a change was reverted.
        if workspace.tree != workspace.first:
            files = KeptFiles(execution.store, log, name)
            # `most` limits the number of compared files, `within` the length of the differences.
            changes.append(files.changed(whole=False, most=MAX_FILES).within(MAX_DIFFERENCES))
    return tuple(changes)


def _budget(execution: Run) -> Iterable[str]:
    """Yield a text about each limit in the budget of an execution, which also contains the amount spent so far: ``3 of
    100 requests``.
    """
    for spent in spent_of(execution.state):
        # Times have their own formats: ``12 s of 1 h``.
        if spent.unit == "s":
            yield f"{seconds(float(spent.amount))} of {_span(float(spent.limit))}"
        else:
            amount = round(spent.amount, 1) if isinstance(spent.amount, float) else spent.amount
            yield f"{_amount(amount)} of {_amount(spent.limit)} {_UNITS.get(spent.unit, spent.name)}"


def _span(limit: float) -> str:
    """Return a time limit (a span of seconds) of a budget as text: ``1 h``, ``2.5 s``."""
    return in_parts(int(limit)) if limit.is_integer() else seconds(limit)


def _amount(value: float | Decimal) -> str:
    """Return a number as text with thousands separators and without trailing zeros: ``100,000``, ``1.4``."""
    # 1.50 -> "1.5"   2.0 -> "2"   100000 -> "100,000"
    return f"{value:,f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"


def with_children(execution: Run) -> Iterator[Run]:
    """Yield an execution, and the running executions for which it waits: its children, their children, and so on."""
    yield execution
    for child in execution.children:
        yield from with_children(child)


def questions_of(execution: Run) -> Iterable[tuple[str, Hint]]:
    """Yield a text about each open question of an execution and of its children, with the command that answers it."""
    # The questions of an ended run cannot be answered before it is resumed.
    if execution.state.is_over:
        return
    family = [(member, question) for member in with_children(execution) for question in member.open_questions]
    for member, question in family[:MAX_VALUES]:
        expected = one_line(expected_in_full(question), MAX_ERROR)
        # The description of most kinds has their choices already.
        further = [choice for choice in choices_of(question) if choice not in expected]
        choices = f"; choices: {one_line(', '.join(choices_of(question)), MAX_ERROR)}" if further else ""
        until = "" if question.expires_at is None else f", until {local_time(question.expires_at)}"
        text = f"{one_line(question.question, MAX_ERROR)} ({question.kind}: {expected}{choices}{until})"
        yield _of_child(execution, member, text), _answer_hint(execution, member, question)


def _answer_hint(execution: Run, member: Run, question: Question) -> Hint:
    """Return the command that answers a question of an execution or of a child of it."""
    words = (address_of(member.id, question), example_answer(question))
    choices = choices_of(question)
    # With several choices the person chooses: the first one may repeat a payment.
    arguments = (question.id, choices[0] if len(choices) == 1 else ...)
    return Hint("answer", words, "answer", arguments, _member_id(execution, member), store_address(execution.store))


def _member_id(execution: Run, member: Run) -> str:
    return "" if member.id == execution.id else member.id


def signals_of(execution: Run) -> Iterable[tuple[str, Hint]]:
    """Yield a text about each signal that an execution or one of its children waits for, with the command that sends
    it.
    """
    # The state of an ended run may still contain the waits at which it ended.
    if execution.state.is_over:
        return
    family = [(member, awaited) for member in with_children(execution) for awaited in awaited_signals(member.state)]
    for member, awaited in family[:MAX_VALUES]:
        words = (member.id, awaited.name)
        member_id = _member_id(execution, member)
        hint = Hint("signal", words, "signal", (awaited.name,), member_id, store_address(execution.store))
        yield _of_child(execution, member, str(awaited)), hint


def _of_child(execution: Run, member: Run, text: str) -> str:
    return text if member.id == execution.id else f"{text} in {member.id}"


def settled_text(words: str, by: str | None, at_us: int | None) -> str:
    """Return one line about a closed question with its answer, the person and the time. If it was not answered, the
    line states that it expired or was withdrawn.
    """
    at = "" if at_us is None else f" at {local_time(to_datetime(at_us))}"
    return one_line(words, 120) + (f" (by {one_line(by, 60)}{at})" if by else "")


def answers_of(execution: Run, clean: Redactor) -> Iterable[tuple[str, str]]:
    """Yield a text about each of an execution's latest closed questions (answered, expired or withdrawn), with the
    answer, the person and the time.
    """
    closed = [question for question in asked_questions(execution) if not question.is_open]
    # The id makes the order unique if several questions were closed at the same moment.
    closed.sort(key=lambda question: (question.settled_us or question.raised_us, question.id))
    for question in closed[-MAX_VALUES:]:
        words = became(question.status, clean.documents(question.response))
        yield one_line(question.question, MAX_CELL), settled_text(words, question.answered_by, question.settled_us)
