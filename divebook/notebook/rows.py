"""Rows of the tables of a run, as plain texts: its steps, and what its agents asked and called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from divebook.engine.bounds import NANODOLLARS
from divebook.events.catalog import CANCELLED, COMPLETED, ENQUEUED, FAILED, PENDING, RUNNING, WAITING
from divebook.events.readable import readable
from divebook.history.requests import RequestView, requests_in
from divebook.history.spans import Span
from divebook.history.tool_calls import UNKNOWN, ToolCallView, answered, output_names, tool_calls_in
from divebook.text.cuts import one_line
from divebook.text.durations import seconds
from divebook.text.redaction import Redactor
from divebook.text.shown import branch_name, plural, price

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
    rows, previous = [], -1
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
    blocks, outputs = answered(view), output_names(view)
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
