"""A run as people see it without a kernel: as HTML that survives sanitisers, and as text for terminals.

Front ends drop ``<style>``, ``<svg>`` and ``<script>`` from what they do not trust, and some drop every style: so the
table comes first and says all, styling is inline and names no background, and the timeline is an image. Whatever a
model, script or user wrote is escaped, cut, and freed of control characters (`divebook.text.format`).
"""

from __future__ import annotations

import html
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from IPython.core.error import UsageError

from divebook.analysis.timeline import layout, svg, svg_data_uri
from divebook.engine.bounds import NANODOLLARS, spent_of
from divebook.engine.state import AwaitedSignal, awaited_signals, waits_for
from divebook.environment.environment import Environment
from divebook.errors import DefinitionError, DivebookError, Place, Problem, SetupError
from divebook.events import Event
from divebook.events.catalog import CANCELLED, COMPLETED, ENQUEUED, FAILED, PENDING, RUNNING, WAITING
from divebook.events.codec import readable
from divebook.events.event import to_datetime
from divebook.events.recorded import Recorded
from divebook.projections.failures import Failure, failures_of, kept_in, summary
from divebook.projections.requests import (
    UNKNOWN,
    RequestView,
    ToolCallView,
    answered,
    output_names,
    requests_in,
    tool_calls_in,
)
from divebook.projections.spans import Span
from divebook.projections.summary import ReadLog, badge_of
from divebook.questions import Question
from divebook.questions.question import address_of, became, example_answer, wanted_in_full
from divebook.replay.files import ChangedFiles, KeptFiles
from divebook.runtime.execution import Execution
from divebook.steps.approval_policy import rule_in_words
from divebook.store import EventStore
from divebook.text.colours import LIGHT
from divebook.text.format import (
    AS_TEXT,
    branch_name,
    in_notebook,
    in_parts,
    in_shell,
    local_time,
    plural,
    price,
    seconds,
    visible,
)
from divebook.text.redaction import Redactor, cut, one_line, shared
from divebook.workflow.definition import InputDefinition, Workflow, is_pipeline, visible_steps
from divebook.workflow.table import nearest_position

# Why a run has failed, in its report: as text for terminals, and as a card of HTML that survives sanitisers.


PRE = "white-space:pre-wrap;overflow-wrap:anywhere;margin:2px 0 6px 0;padding:0;background:none;color:inherit"
_CARD = f"border-left:4px solid {LIGHT['bad']};padding:4px 0 4px 12px;margin:0 0 10px 0"
_ROW = "margin:2px 0;overflow-wrap:anywhere"


class WhatFailed(NamedTuple):
    """What a report says of failures; nothing is said where nothing has failed."""

    failure: Failure | None = None
    """What ended the run."""
    others: str = ""
    """The others in a line, as far as they are many or the run went on."""
    kept: str = ""


def failed_of(execution: Execution, log: ReadLog) -> WhatFailed:
    """Return what has failed in a run."""
    if execution.damage is not None or not any(span.is_failure for span in log.spans):  # the report says the damage
        return WhatFailed()
    failure = execution.failure_in(log)
    failures = failures_of(log)
    kept = kept_in(log.spans) if execution.status == FAILED else ""
    return WhatFailed(failure, summary(failures) if len(failures) > 1 or failure is None else "", kept)


def text_lines(failed: WhatFailed, redactor: Redactor) -> Iterator[str]:
    """Yield the lines that follow the error in a text."""
    if failed.failure is not None:
        yield from (f"  {line}" for line in redactor.text(failed.failure.details).splitlines())
    if failed.others:
        yield f"  {redactor.text(failed.others)}"
    if failed.kept:
        yield f"  kept: {failed.kept}"


def card(failed: WhatFailed, hint: str, redactor: Redactor) -> str:
    """Return what failed as HTML: what, where, with which arguments, the line, the calls, what is kept, the way on."""
    if failed.failure is None:
        return f'<p style="margin:6px 0">✕ {_escape_failure(redactor.text(failed.others))}</p>' if failed.others else ""
    shown = failed.failure
    given = "\n".join(f"{name} = {text}" for name, text in (shown.arguments or {}).items())
    rows = [
        ("Means", f" {_escape_failure(redactor.text(shown.means))}"),
        ("Where", f" {_escape_failure(redactor.text(shown.where))}"),
        ("Arguments", _pre(redactor.text(given)) if given else ""),
        (shown.place or "Source", _lines(shown, redactor) if shown.source else ""),
        ("Also", f" {_escape_failure(redactor.text(failed.others))}"),
        ("Kept", f" {_escape_failure(failed.kept)}"),
    ]
    # not a table: front ends give the rows of tables grounds of their own
    body = "".join(
        f'<div style="{_ROW}"><strong>{_escape_failure(word)}</strong>{said}</div>'
        for word, said in rows
        if said.strip()
    )
    title = f'<div style="font-weight:bold">✕ {_escape_failure(redactor.text(shown.headline))}</div>'
    return f'<div style="{_CARD}">{title}{body}{_traceback(redactor.text(shown.traceback))}{hint}</div>'


def _lines(shown: Failure, redactor: Redactor) -> str:
    """Return the lines around the place; its own stands out."""
    told = zip(redactor.text(shown.lines).splitlines(), shown.source, strict=True)
    lines = "\n".join(
        f"<strong>{_escape_failure(text)}</strong>" if n == shown.line else _escape_failure(text)
        for text, (n, _) in told
    )
    return f'<pre style="{PRE}">{lines}</pre>'


def _traceback(text: str) -> str:
    summary_ = '<summary style="cursor:pointer;display:list-item">Traceback</summary>'
    return f'<details style="margin:4px 0">{summary_}{_pre(text)}</details>' if text else ""


def _pre(text: str) -> str:
    return f'<pre style="{PRE}">{_escape_failure(text)}</pre>'


def _escape_failure(text: str) -> str:
    return html.escape(text)


# Rows of the tables of a run, as plain texts: its steps, and what its agents asked and called.


MAX_ROWS, FIRST_ROWS = 200, 24
"""Rows that a table shows when unfolded, and at once."""
MAX_CELL = 120
SIGNS = {COMPLETED: "✓", FAILED: "✕", CANCELLED: "◼", RUNNING: "▸", WAITING: "…", PENDING: "…", ENQUEUED: "…"}
SIGNS |= {"paused": "‖"}
COLUMNS = ("step", "branch", "status", "duration", "output")
TURN_COLUMNS = ("agent", "request", "status", "duration", "what")


def rows_of(steps: Sequence[Span], limit: int = MAX_ROWS) -> tuple[tuple[str, ...], ...]:
    """Return rows for some steps: what did not complete, the last ones, the first ones; gaps are counted."""
    last = len(steps) - limit // 3
    ranked = sorted(range(len(steps)), key=lambda index: (steps[index].status == COMPLETED, index < last))
    shown = sorted(ranked[:limit])
    rows = []
    previous = -1
    for index in [*shown, len(steps)]:
        if index > previous + 1:
            rows.append(_gap(steps[previous + 1 : index]))
        if index < len(steps):
            rows.append(_cells(steps[index]))
        previous = index
    return tuple(rows)


def _gap(steps: Sequence[Span]) -> tuple[str, ...]:
    counts = Counter(step.status for step in steps)
    told = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    return "…", "", told, "", f"{plural(len(steps), 'step')} not shown here"


def more_title(count: int) -> str:
    """Return what stands above the rows of all steps."""
    return f"all {count:,} steps" if count <= MAX_ROWS else f"{MAX_ROWS} of {count:,} steps"


def _cells(step: Span) -> tuple[str, ...]:
    notes = [f"visit {step.visit}"] if step.visit > 1 else []
    notes += [f"attempt {step.attempts}"] if step.attempts > 1 else []
    again = f" ({', '.join(notes)})" if notes else ""
    branch = one_line(branch_name(step.path), 40)
    return one_line(step.step, 60) + again, branch, _status(step.status), _took(step), _outcome(step)


def _outcome(step: Span) -> str:
    told = [plural(step.items, "item")] if step.items else []
    text = one_line(step.headline or step.result or "", MAX_CELL)
    return ": ".join([*told, text] if text else told)


# --- what agents asked and called ----------------------------------------------------------------------------------


def turn_rows(spans: Sequence[Span], redactor: Redactor) -> tuple[tuple[str, ...], ...]:
    """Return rows for the requests of agents that call tools, each with its calls; of very many the last."""
    calls: dict[int, list[ToolCallView]] = {}
    for call in tool_calls_in(spans):
        calls.setdefault(call.view.span.index, []).append(call)
    views = [view for view in requests_in(spans) if view.span.holder >= 0]
    rows = [row for view in views for row in _request_rows(view, calls.get(view.span.index, []))]
    clean = [tuple(redactor.text(cell) for cell in row) for row in rows[-MAX_ROWS:]]
    left = len(rows) - len(clean)
    gap = [("…", "", "", "", f"{plural(left, 'row')} not shown here; run.model_calls and run.tool_calls have all")]
    return tuple(gap * bool(left) + clean)


def _request_rows(view: RequestView, calls: Sequence[ToolCallView]) -> Iterator[tuple[str, ...]]:
    blocks = answered(view)
    outputs = output_names(view)
    said = [str(block["text"]) for block in blocks if block.get("type") == "text"]
    said += [readable(block["arguments"]) for block in blocks if block.get("tool") in outputs]
    cost = view.usage.get("cost", 0) / NANODOLLARS
    facts = [price(cost) if cost else "", "from the cache" if view.cached else "", view.error or " ".join(said)]
    told = one_line(" ".join(filter(None, facts)), MAX_CELL)
    yield one_line(view.agent, 40), str(view.n), _status(view.status), _took(view.span), told
    for call in calls:
        what = f"{call.tool}({_arguments(call)})"
        came = "" if call.result is None else f" → {call.outcome}: {readable(call.result)}"
        came = " → it is not known whether it took effect" if call.outcome == UNKNOWN else came
        yield "", "", _status(call.status), _took(call.under_way), one_line(f"{what}{came}", MAX_CELL)


def _arguments(call: ToolCallView) -> str:
    given = call.arguments if isinstance(call.arguments, dict) else {"": call.arguments}
    return one_line(", ".join(f"{name}={readable(value)}" for name, value in given.items()), MAX_CELL // 2)


def _status(status: str) -> str:
    return f"{SIGNS.get(status, '')} {status}"


def _took(span: Span | None) -> str:
    return "" if span is None or span.duration_us is None else seconds(span.duration_us / 1e6)


# Lists of records as tables: values of the same few fields, an item a row, as agents may give them.


MOST_COLUMNS = 8
MOST_ROWS = 50
WIDTH = 40


def records_of(value: Any) -> list[Mapping[str, Any]] | None:
    """Return the items of a list as mappings of a few fields; None where it is no list of records.

    >>> records_of([{"bird": "owl"}, {"bird": "wren"}])
    [{'bird': 'owl'}, {'bird': 'wren'}]
    """
    if not isinstance(value, list | tuple) or not value:
        return None
    items = [item.plain() if isinstance(item, Recorded) else item for item in value]
    found = [item for item in items if isinstance(item, Mapping) and item]
    few = len({name for item in found for name in item}) <= MOST_COLUMNS
    return found if few and len(found) == len(items) else None


def as_table(records: Sequence[Mapping[str, Any]], total: int | None = None) -> str:
    """Return records as lines of aligned columns, with what is left out said in the last one.

    `total` says how many there are in all, where `records` are only the first of them.

    >>> print(as_table([{"bird": "owl", "seen": 2}, {"bird": "wren"}]))
    bird  seen
    owl   2
    wren
    """
    shown = records[:MOST_ROWS]
    names = list(dict.fromkeys(name for record in shown for name in record))
    rows = [[one_line(readable(record[name]), WIDTH) if name in record else "" for name in names] for record in shown]
    table = [[one_line(str(name), WIDTH) for name in names], *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(names))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    left = (len(records) if total is None else total) - MOST_ROWS
    return "\n".join([*lines, f"... {left:,} more"] if left > 0 else lines)


# Errors as a reader of a notebook wants them: what is wrong, where in the cell, what to do; no traceback.


Positions: TypeAlias = Mapping[Place, tuple[int, int]]

MAX_PROBLEMS = 12
CARD_WIDTH = 110


@contextmanager
def located(line: tuple[int, str] | None) -> Iterator[None]:
    """Say in errors which line of the cell they are about, by its number and text, where it has several."""
    try:
        yield
    except UsageError as error:
        where = "" if line is None else f"cell line {line[0]}: "
        raise UsageError(shared().text(f"{where}{error}")) from None
    except DivebookError as error:
        if line is not None and not hasattr(error, "_render_traceback_"):
            name = type(error).__name__
            told = card_html(error)[0].removeprefix(f"{name}: ")
            show_as(error, [f"{name}: cell line {line[0]}: {told}", f"    {one_line(line[1], CARD_WIDTH)}"])
        raise


@contextmanager
def short_errors(cell: Sequence[str] = (), positions: Positions | None = None) -> Iterator[None]:
    """Let our own errors appear as a card instead of a traceback; they are raised on, so that the cell fails.

    Parameters
    ----------
    cell
        The lines of the cell, if problems are to be pointed at in it.
    positions
        Where in it the parts of a definition stand, for errors that know only which part they are about.
    """
    try:
        yield
    except DivebookError as error:
        if not hasattr(error, "_render_traceback_"):
            show_as(error, card_html(error, cell, positions))
        raise


def show_as(error: BaseException, lines: Sequence[str]) -> None:
    """Have IPython show an error as these lines, without secrets."""
    error.__dict__["_render_traceback_"] = lambda: [shared().text(line) for line in lines]


def card_html(error: DivebookError, cell: Sequence[str] = (), positions: Positions | None = None) -> list[str]:
    """Return an error as lines of text."""
    kind = type(error).__name__
    if isinstance(error, SetupError) and error.place and positions:
        problem = Problem(str(error)).at(*nearest_position(error.place, positions))
        return [f"{kind}: {problem_text(problem)}", *_pointer(problem, cell)]
    if not (isinstance(error, DefinitionError) and cell):
        return [f"{kind}: {visible(str(error))}"]
    problems = error.problems[:MAX_PROBLEMS]
    if len(error.problems) == 1:
        return [f"{kind}: {problem_text(problems[0])}", *_pointer(problems[0], cell)]
    lines = [f"{kind}: {len(error.problems)} problems in this cell; nothing was defined"]
    for problem in problems:
        lines += [f"  {problem_text(problem)}", *_pointer(problem, cell)]
    more = len(error.problems) - len(problems)
    return [*lines, f"  ... and {more} more"] if more else lines


def problem_text(problem: Problem) -> str:
    """Return a problem of a cell as one line: ``cell line 3, column 5: unknown key 'Promt' (...)``."""
    where = f"cell line {problem.line}, column {problem.column}: " if problem.line else ""
    hint = f" ({problem.hint})" if problem.hint else ""
    return visible(f"{where}{problem.message}{hint}")


def _pointer(problem: Problem, cell: Sequence[str]) -> list[str]:
    """Return the line of the cell with a mark below the column; nothing if the line is unknown or too long."""
    if not 1 <= problem.line <= len(cell):
        return []
    line = cell[problem.line - 1]
    if not line.strip() or len(line) > CARD_WIDTH or one_line(line, CARD_WIDTH) != " ".join(line.split()):
        return []
    return [f"    {line}", f"    {' ' * (problem.column - 1)}^"]


# What a session holds, as text.


LISTING_WIDTH = 96


def contents(environment: Environment) -> str:
    """Return the workflows, agents and actions of an environment."""
    workflows = [_workflow_line(workflow) for workflow in environment.workflows.values()]
    agents = [f"{one_line(agent.name, 40)}  {agent.model_name}" for agent in environment.agents.values()]
    actions = textwrap.wrap(", ".join(environment.actions), LISTING_WIDTH)
    return "\n".join([*_section("workflows", workflows), *_section("agents", agents), *_section("actions", actions)])


def questions(environment: Environment, store: str | None = None) -> str:
    """Return the questions that wait for an answer, and how to give it in a session that names this store."""
    asked = ["\n    ".join(lines) for lines in open_questions(environment, store)]
    return "\n".join(_section("questions", asked or ["none"]))


def open_questions(environment: Environment, store: str | None = None) -> list[list[str]]:
    """Return the lines of each question that waits for an answer, newest execution first."""
    asked = [(environment.store.record(found), found, question) for found, question in environment.interrupts()]
    return [list(question_lines(found, question, store, badge_of(record))) for record, found, question in asked]


def rules(environment: Environment, revoked: str | None = None) -> str:
    """Return the rules that people made when they approved calls, after one of them was revoked if one is named."""
    if revoked is not None:
        environment.revoke(revoked)
    held = [f"{rule.rule_id}  {rule_in_words(rule, name)}" for name, rule in environment.rules()]
    return "\n".join(_section("rules", [one_line(shared().text(line), 400) for line in held] or ["none"]))


def question_lines(execution_id: str, question: Question, store: str | None = None, badge: str = "") -> Iterable[str]:
    """Yield the lines of one question: who asks, what, what fits, until when, and what to type."""
    who = f"{badge} {execution_id}".lstrip()
    yield f"{question.id}  {question.kind}  ({who}, step {one_line(question.step, 40)})"
    yield one_line(shared().text(question.question), 200)
    if question.message:
        yield one_line(shared().text(question.message), 200)
    until = "" if question.expires_at is None else f", until {local_time(question.expires_at)}"
    yield f"answer with {one_line(wanted_in_full(question), 400)}{until}"
    yield f"to answer: {answer_line(execution_id, question, store)}"


def answer_line(execution_id: str, question: Question, store: str | None = None) -> str:
    """Return the magic that answers a question."""
    words = [address_of(execution_id, question), example_answer(question)]
    return in_notebook("answer", words, [] if store is None else ["--store", store])


def settled_text(words: str, by: str | None, at_us: int | None) -> str:
    """Return on one line what became of a question, who answered it, and when."""
    at = "" if at_us is None else f" at {local_time(to_datetime(at_us))}"
    return one_line(words, 120) + (f" (by {one_line(by, 60)}{at})" if by else "")


def signal_line(execution_id: str, awaited: AwaitedSignal, store: str | None = None) -> str:
    """Return the magic that sends a signal."""
    return in_notebook("signal", [execution_id, awaited.name], [] if store is None else ["--store", store])


def waiting_lines(execution: Execution) -> list[str]:
    """Return a line for each thing that an execution waits for, with the magic that gives it."""
    state = execution.state
    if state.paused is not None:
        resume = in_notebook("resume", [execution.id])
        return [f"{execution.id} is paused. Run the cell again to continue, or: {resume}"]
    lines = [
        *(
            f"an answer to {one_line(asked.question, 80)!r}: {answer_line(execution.id, asked)}"
            for asked in execution.interrupts
        ),
        *(f"{awaited}: {signal_line(execution.id, awaited)}" for awaited in awaited_signals(state)),
    ]
    return [f"{execution.id} waits for {line}" for line in lines or waits_for(state, ()) or ["a time"]]


def ways_on(execution: Execution) -> list[str]:
    """Return what an execution waits for, and the commands that give it, here and in a shell."""
    store = execution.store
    lines = []
    for question in execution.interrupts:
        lines += ["waits for an answer:", *(f"  {line}" for line in question_lines(execution.id, question))]
        words = [address_of(execution.id, question), example_answer(question)]
        lines += _also_in_shell("answer", words, store)
    for awaited in awaited_signals(execution.state):
        lines += [f"waits for {awaited}:", f"  to send it: {signal_line(execution.id, awaited)}"]
        lines += _also_in_shell("signal", [execution.id, awaited.name], store)
    return lines


def _also_in_shell(verb: str, words: Sequence[str], store: EventStore) -> list[str]:
    return [f"  or in a shell: {in_shell(verb, words, ['--store', store.location])}"] if store.shared else []


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines or ["none yet"])]


def _workflow_line(workflow: Workflow) -> str:
    inputs = ", ".join(map(_input_text, workflow.inputs))
    steps = plural(len(visible_steps(workflow)), "stage" if is_pipeline(workflow) else "step")
    about = f"  {one_line(workflow.description, 60)}" if workflow.description else ""
    return f"{one_line(workflow.name, 40)}({inputs})  {steps}{about}"


def _input_text(definition: InputDefinition) -> str:
    if definition.has_default:
        return f"{definition.name}={one_line(repr(definition.default), 20)}"
    return f"{definition.name}=None" if definition.required is False else definition.name


# What a report says of a run in words: when, how long, what it has spent; what it asks, and who answered what.


MAX_VALUES = 20
MAX_ERROR = 8000
MAX_FILES, MAX_DIFFERENCES = 50, 60_000
"""Changed files of a workspace, and characters of their differences."""
_UNITS = {"$": "US dollars"}


def facts_of(execution: Execution, log: ReadLog) -> Iterable[str]:
    """Yield when it began, how long it worked and waited, and what it has spent."""
    if (held_up := execution.held_up) is not None:
        yield held_up
    if execution.started_at:
        yield f"started {local_time(execution.started_at)}"
        yield from log.course.times
    usage = execution.usage
    yield f"{plural(usage.requests, 'model call')}, {plural(usage.input_tokens + usage.output_tokens, 'token')}"
    yield from _budget(execution)


def spreads_of(log: ReadLog) -> Iterable[str]:
    """Yield what the rows and items of the latest steps gave, column by column: ``label: praise 812, blame 164``."""
    log.spreads.count()
    latest = log.spreads.latest(log.course.progress)
    for step, spreads in latest.items():
        of_step = f"{one_line(step, MAX_CELL)}: " if len(latest) > 1 else ""
        yield from (f"{of_step}{spread.words}" for spread in spreads)


def changed_files_of(execution: Execution, log: Sequence[Event]) -> tuple[ChangedFiles, ...]:
    """Return what has changed in each of its workspaces, within bounds; nothing of those where nothing has."""
    held = sorted(execution.state.workspaces.items())
    names = [name for name, workspace in held if workspace.tree != workspace.first]
    kept = [KeptFiles(execution.store, log, name) for name in names]
    return tuple(each.changed(whole=False, most=MAX_FILES).within(MAX_DIFFERENCES) for each in kept)


def _budget(execution: Execution) -> Iterable[str]:
    """Yield each bound with what is spent of it."""
    for spent in spent_of(execution.state):
        if spent.unit == "s":
            yield f"{seconds(float(spent.amount))} of {_span(float(spent.limit))}"
        else:
            amount = round(spent.amount, 1) if isinstance(spent.amount, float) else spent.amount
            yield f"{_amount(amount)} of {_amount(spent.limit)} {_UNITS.get(spent.unit, spent.name)}"


def _span(limit: float) -> str:
    """Return a bound of time: ``1 h``, ``2.5 s``."""
    return in_parts(int(limit)) if limit.is_integer() else seconds(limit)


def _amount(value: float | Decimal) -> str:
    """Return a number as people write it: ``100,000``, ``3,600``, ``1.4``."""
    return f"{value:,f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"


def questions_of(execution: Execution) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield what it waits for people to answer, and the ways to do that."""
    for asked in execution.interrupts[:MAX_VALUES]:
        choices = (asked.data or {}).get("choices")
        told = one_line(" or ".join(map(repr, choices)), MAX_CELL) if choices else "..."
        wanted = one_line(wanted_in_full(asked), MAX_ERROR)
        until = "" if asked.expires_at is None else f", until {local_time(asked.expires_at)}"
        question = f"{one_line(asked.question, MAX_ERROR)} ({asked.kind}: {wanted}{until})"
        yield question, (answer_line(execution.id, asked), f"run.answer({asked.id!r}, {told})")


def signals_of(execution: Execution) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield the signals that it waits for, and the ways to send them."""
    for awaited in [] if execution.state.is_over else awaited_signals(execution.state)[:MAX_VALUES]:
        yield str(awaited), (signal_line(execution.id, awaited), f"run.signal({awaited.name!r})")


def answers_of(execution: Execution) -> Iterable[tuple[str, str]]:
    """Yield the latest answers: the question, what was answered, and by whom."""
    settled = [found for found in execution.asked.values() if not found.is_open]
    latest = sorted(settled, key=lambda found: (found.settled_us or found.raised_us, found.id))[-MAX_VALUES:]
    for found in latest:
        words = became(found.status, found.response)
        yield one_line(found.question, MAX_CELL), settled_text(words, found.answered_by, found.settled_us)


MAX_VALUE = 4000
MAX_ASIDE = 300
"""Characters of a value in the text of a run that is not over, or failed: what it asks, or says, is to be seen."""
OPEN_BELOW = 1200
"""Values with fewer characters than this in all are shown unfolded."""


@dataclass(frozen=True, slots=True)
class Report:
    """What is shown of an execution, as plain texts."""

    name: str
    id: str
    status: str
    facts: tuple[str, ...]
    spans: tuple[Span, ...]
    rows: tuple[tuple[str, ...], ...]
    """Cells under `COLUMNS`, of the most telling steps."""
    more_title: str = ""
    more_rows: tuple[tuple[str, ...], ...] = ()
    """The same of more steps, if there are many; shown folded."""
    turns: tuple[tuple[str, ...], ...] = ()
    """Cells under `TURN_COLUMNS`: what agents asked and called."""
    spreads: tuple[str, ...] = ()
    """What the rows and items of its steps gave, a line for each column."""
    values_title: str = ""
    values: tuple[tuple[str, str], ...] = ()
    questions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What it waits for people to answer, and the ways to do that."""
    files: tuple[ChangedFiles, ...] = ()
    """What has changed in its workspaces."""
    signals: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Signals that it waits for, and the ways to send them."""
    answers: tuple[tuple[str, str], ...] = ()
    """Questions with their answers, and who gave them."""
    error: str = ""
    failed: WhatFailed = WhatFailed()
    clean: Redactor = field(default_factory=shared, repr=False)
    next: str = ""
    """What to type in order to go on; empty if there is nothing to do."""


def report_of(execution: Execution, log: Sequence[Event]) -> Report:
    """Read off an execution and its log what is shown of it, without secrets (`divebook.text.redaction`)."""
    redactor = shared().fresh()
    redactor.learn({**execution.state.inputs, **execution.state.variables})
    shared().learn({**execution.state.inputs, **execution.state.variables})
    read = ReadLog.of(log)
    spans = tuple(clean_span(span, redactor) for span in read.shown_spans)
    status = execution.state.shown_status
    steps = [_resting(span, status) if execution.status == WAITING else span for span in spans if span.kind == "step"]
    values_title, values = _values(execution, redactor)
    return Report(
        name=one_line(execution.workflow.name, 80),
        id=execution.id,
        status=status,
        facts=tuple(facts_of(execution, read)),
        rows=rows_of(steps, FIRST_ROWS),
        more_title=more_title(len(steps)),
        more_rows=rows_of(steps, MAX_ROWS) if len(steps) > FIRST_ROWS else (),
        turns=turn_rows(spans, redactor),
        spreads=tuple(map(redactor.text, spreads_of(read))),
        values_title=values_title,
        values=values,
        questions=tuple((redactor.text(question), ways) for question, ways in questions_of(execution)),
        answers=tuple((redactor.text(asked), redactor.text(told)) for asked, told in answers_of(execution)),
        error=redactor.text(_error_text(execution)),
        failed=failed_of(execution, read),
        clean=redactor,
        signals=tuple(signals_of(execution)),
        files=changed_files_of(execution, log),
        next=_next(execution),
        spans=spans,
    )


def _resting(step: Span, status: str) -> Span:
    """Return a step of an execution that waits or is paused: what is open in it does not run."""
    return replace(step, status=status) if step.status == RUNNING else step


def clean_span(span: Span, redactor: Redactor) -> Span:
    """Return a span without the secrets in what is shown of it."""
    if span.error is None and span.reason is None and not isinstance(span.result, str):
        return span  # most calls of a long run
    told = {"error": span.error, "reason": span.reason, "result": span.result}
    clean: dict[str, Any] = {name: redactor.text(text) for name, text in told.items() if isinstance(text, str)}
    return span if all(told[name] == text for name, text in clean.items()) else replace(span, **clean)


def _error_text(execution: Execution) -> str:
    if execution.damage is not None:
        shown = f"the log is damaged; this is what its first {execution.state.last_sequence} events say. "
        return cut(readable(f"{shown}{execution.damage}"), MAX_ERROR)
    return cut(readable(execution.error or ""), MAX_ERROR) if execution.status == FAILED else ""


def _next(execution: Execution) -> str:
    waits = not execution.state.is_over and (execution.interrupts or awaited_signals(execution.state))
    if execution.damage is not None or waits or execution.state.is_rolled_back:
        return ""
    if execution.is_live or (not execution.state.is_over and execution.goes_on_elsewhere):
        return f"%dive show {execution.id}"
    is_final = execution.state.is_over and execution.status not in (FAILED, CANCELLED)
    return "" if is_final else f"%dive resume {execution.id}"


def _values(execution: Execution, redactor: Redactor) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the outputs, or the variables where the workflow declares no outputs, with a title."""
    declared: Mapping[str, Any] = execution.state.outputs
    kind, values = ("output", declared) if declared else ("variable", dict(sorted(execution.state.variables.items())))
    if not values:
        return "", ()
    first = list(values.items())[:MAX_VALUES]
    more = f", the first {MAX_VALUES} of them" if len(values) > MAX_VALUES else ""
    shown = tuple((one_line(name, 60), _value(name, value, redactor)) for name, value in first)
    return f"{plural(len(values), kind)}{more}", shown


def _value(name: str, value: Any, redactor: Redactor) -> str:
    records = records_of(value)
    if records is None:
        return str(redactor.under(name, readable(value, indent=2)))
    first = [{key: redactor.under(key, part) for key, part in each.items()} for each in records[:MOST_ROWS]]
    hidden = redactor.under(name, first)
    return as_table(hidden, len(records)) if isinstance(hidden, list) else str(hidden)


# --- text ----------------------------------------------------------------------------------------------------------


def as_text(report: Report) -> str:
    """Return a run as text for a terminal."""
    lines = [f"{report.name}: {SIGNS.get(report.status, '')} {report.status}", f"  {report.id}"]
    lines += [f"  {', '.join(report.facts)}", "", *_text_table(COLUMNS, report.rows), *_text_of_items(report)]
    if report.values:
        limit = MAX_VALUE if report.status == COMPLETED else MAX_ASIDE
        lines += ["", f"{report.values_title}:", *_text_values(report.values, limit)]
    for changed in report.files:
        lines += ["", *str(replace(changed, whole=False)).splitlines()]
    for question, answer in report.answers:
        lines += ["", f"asked: {question}", f"answered: {answer}"]
    for question, ways in report.questions:
        lines += ["", f"asks: {question}", f"to answer: {' or '.join(ways)}"]
    for signal, ways in report.signals:
        lines += ["", f"waits for {signal}", f"to send it: {' or '.join(ways)}"]
    if report.error:
        lines += ["", f"error: {report.error}"]
    if report.failed.failure is None and report.failed.others:
        lines += [""]
    lines += text_lines(report.failed, report.clean)
    if report.next:
        lines += ["", f"{_purpose(report)}: {report.next}"]
    return "\n".join(line.rstrip() for line in lines)


def _text_of_items(report: Report) -> Iterable[str]:
    """Yield what agents asked and called, and what rows and items gave."""
    if report.turns:
        yield from ("", f"{_turns_title(report)}:", *_text_table(TURN_COLUMNS, report.turns))
    if report.spreads:
        yield from ("", *(f"  {words}" for words in report.spreads))


def _turns_title(report: Report) -> str:
    requests = sum(bool(row[1]) for row in report.turns)
    return f"{plural(requests, 'request')} and {plural(len(report.turns) - requests, 'call')} of agents"


def _told(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return a table without the columns in which no row says anything."""
    last = len(columns) - 1
    told = [index for index in range(len(columns)) if index in (0, last) or any(row[index] for row in rows)]
    return [[row[index] for index in told] for row in (columns, *rows)]


def _text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    table = _told(columns, rows)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]) - 1)]
    return [
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in table
    ]


def _text_values(values: Iterable[tuple[str, str]], limit: int) -> Iterable[str]:
    for name, whole in values:
        text = cut(whole, limit)
        if "\n" in text:
            yield f"  {name} ="
            yield from (f"    {line}" for line in text.splitlines())
        else:
            yield f"  {name} = {text}"


def _purpose(report: Report) -> str:
    return "to look again" if report.status in (RUNNING, WAITING, PENDING) and "show" in report.next else "to go on"


# --- HTML ----------------------------------------------------------------------------------------------------------

LONGEST, LONGEST_NAME = 30, 16
"""Characters of a word, and of a step's name, after which they may be broken."""
_LINE = f"border:0;border-bottom:1px solid {LIGHT['rule']}"
_CELL = f"text-align:left;vertical-align:top;padding:3px 10px 3px 0;overflow-wrap:anywhere;min-width:7em;{_LINE}"
_NARROW = f"text-align:left;vertical-align:top;padding:3px 10px 3px 0;white-space:nowrap;{_LINE}"
_WRAPPED = "white-space:pre-wrap;overflow-wrap:anywhere;word-break:normal"
_PRE = f"{_WRAPPED};margin:2px 0 8px 0;padding:0;background:none;color:inherit"


def as_html(report: Report) -> str:
    """Return a run as HTML with inline styles only."""
    parts = [card(report.failed, _hint(report) if report.failed.failure else "", report.clean)]
    parts += [_table(report.rows, caption=_caption(report)), _more(report), _turns(report)]
    parts += [*(f'<p style="margin:6px 0">{_breakable(words)}</p>' for words in report.spreads), _picture(report)]
    parts += [_details(report), _files(report)]
    parts += [_asked(report), *([] if report.failed.failure else [_error(report), _hint(report)])]
    return f'<div class="{AS_TEXT}" style="max-width:1000px;color:inherit">{"".join(parts)}</div>'


def _turns(report: Report) -> str:
    if not report.turns:
        return ""
    table = _table(report.turns, TURN_COLUMNS)
    return _folded(_turns_title(report), table, is_open=len(report.turns) <= FIRST_ROWS)


def _table(rows: Sequence[Sequence[str]], columns: Sequence[str] = COLUMNS, caption: str = "") -> str:
    names, *shown = _told(columns, rows)
    head = "".join(f'<th scope="col" style="{_NARROW}">{name}</th>' for name in names)
    return (
        '<table style="border-collapse:collapse;margin:0;width:100%;table-layout:auto;color:inherit">'
        f"{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(map(_table_row, shown))}</tbody></table>"
    )


def _files(report: Report) -> str:
    if not report.files:
        return ""
    total = sum(len(changed) for changed in report.files)
    return _folded(f"Changed files ({total})", "".join(each._repr_html_() for each in report.files), is_open=False)


def _more(report: Report) -> str:
    return _folded(report.more_title, _table(report.more_rows), is_open=False) if report.more_rows else ""


def _caption(report: Report) -> str:
    sign = SIGNS.get(report.status, "")
    return (
        '<caption style="caption-side:top;text-align:left;padding:2px 0 6px 0;color:inherit">'
        f"<strong>{_safe(report.name)}</strong> &nbsp;<strong>{sign} {_safe(report.status)}</strong><br>"
        f"{' · '.join(map(_safe, report.facts))} · <code>{_safe(report.id)}</code></caption>"
    )


def _table_row(cells: Sequence[str]) -> str:
    between = "".join(f'<td style="{_NARROW}">{_safe(cell)}</td>' for cell in cells[1:-1])
    step = _breakable(cells[0], LONGEST_NAME)
    outcome = _breakable(cells[-1])
    return (
        f'<tr><th scope="row" style="{_CELL};font-weight:normal">{step}</th>{between}'
        f'<td dir="auto" style="{_CELL}">{outcome}</td></tr>'
    )


def _breakable(text: str, longest: int = LONGEST) -> str:
    """Return a text whose long words may be broken: untrusted notebooks lose styles that say so."""
    pieces = re.findall(rf"\S{{1,{longest}}}(?=\S)|.", text, re.DOTALL)
    return "".join(f"{_safe(piece)}<wbr>" if len(piece) == longest else _safe(piece) for piece in pieces)


def _picture(report: Report) -> str:
    if not report.spans:
        return ""
    steps = plural(sum(span.kind == "step" for span in report.spans), "step")
    alt = f"Timeline of {report.name}: {steps}, {report.status}; the table says the same in words"
    uri = svg_data_uri(svg(layout(report.spans), alt))
    return f'<img alt="{_safe(alt)}" src="{uri}" style="display:block;max-width:100%;height:auto;margin:10px 0">'


def _details(report: Report) -> str:
    if not report.values:
        return ""
    is_short = sum(len(text) for _, text in report.values) < OPEN_BELOW
    body = "".join(
        f'<div><code>{_safe(name)}</code></div><pre dir="auto" style="{_PRE}">{_safe(cut(text, MAX_VALUE))}</pre>'
        for name, text in report.values
    )
    return _folded(report.values_title, body, is_open=is_short)


def _asked(report: Report) -> str:
    answered = "".join(
        f'<p style="margin:6px 0"><strong>Asked:</strong> {_safe(question)}<br>Answered: {_safe(answer)}</p>'
        for question, answer in report.answers
    )
    asked = [("Asks:", question, "To answer", ways) for question, ways in report.questions]
    asked += [("Waits for", signal, "To send it", ways) for signal, ways in report.signals]
    return answered + "".join(
        f'<p style="margin:6px 0"><strong>{lead}</strong> {_safe(what)}<br>'
        f"{act}: {' or '.join(f'<code>{_safe(way)}</code>' for way in ways)}</p>"
        for lead, what, act, ways in asked
    )


def _error(report: Report) -> str:
    return _folded("Error", f'<pre style="{_PRE}">{_safe(report.error)}</pre>', is_open=True) if report.error else ""


def _folded(title: str, body: str, *, is_open: bool) -> str:
    state = " open" if is_open else ""
    summary = f'<summary style="cursor:pointer;display:list-item"><strong>{_safe(title)}</strong></summary>'
    return f'<details{state} style="margin:4px 0">{summary}<div style="padding:4px 0 0 16px">{body}</div></details>'


def _hint(report: Report) -> str:
    if not report.next:
        return ""
    return f'<p style="margin:6px 0">{_purpose(report).capitalize()}: <code>{_safe(report.next)}</code></p>'


def _safe(text: str) -> str:
    return html.escape(text)
