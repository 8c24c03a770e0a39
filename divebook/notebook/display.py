"""A run as people see it without a kernel: as HTML that survives sanitisers, and as text for terminals.

Front ends drop ``<style>``, ``<svg>`` and ``<script>`` from what they do not trust, and some drop every style: so the
table comes first and says all, styling is inline and names no background, and the timeline is an image. Whatever a
model, script or user wrote is escaped, cut, and freed of control characters (`divebook.text.shown`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from divebook.analysis.timeline import layout, svg, svg_data_uri
from divebook.engine.waiting import awaited_signals
from divebook.events import Event
from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, PENDING, RUNNING, WAITING
from divebook.events.readable import readable
from divebook.execution.execution import Execution
from divebook.history.read_log import ReadLog
from divebook.history.spans import Span
from divebook.notebook.facts import (
    MAX_ERROR,
    MAX_VALUES,
    answers_of,
    changed_files_of,
    facts_of,
    questions_of,
    signals_of,
    spreads_of,
)
from divebook.notebook.failed import WhatFailed, card, failed_of, text_lines
from divebook.notebook.record_tables import MOST_ROWS, as_table, records_of
from divebook.notebook.rows import (
    COLUMNS,
    FIRST_ROWS,
    MAX_ROWS,
    SIGNS,
    TURN_COLUMNS,
    more_title,
    rows_of,
    turn_rows,
)
from divebook.replay.changed_files import ChangedFiles
from divebook.text.colours import LIGHT
from divebook.text.cuts import cut, one_line
from divebook.text.redaction import Redactor, shared
from divebook.text.shown import AS_TEXT, plural

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
    step, outcome = _breakable(cells[0], LONGEST_NAME), _breakable(cells[-1])
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
