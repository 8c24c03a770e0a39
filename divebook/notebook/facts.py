"""What a report says of a run in words: when, how long, what it has spent; what it asks, and who answered what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from divebook.engine.bounds import spent_of
from divebook.engine.waiting import awaited_signals
from divebook.events import Event
from divebook.execution.execution import Execution
from divebook.history.read_log import ReadLog
from divebook.notebook.listing import answer_line, settled_text, signal_line
from divebook.notebook.rows import MAX_CELL
from divebook.questions.wording import became, wanted_in_full
from divebook.replay.changed_files import ChangedFiles
from divebook.replay.kept_files import KeptFiles
from divebook.text.cuts import one_line
from divebook.text.durations import in_parts, seconds
from divebook.text.shown import plural
from divebook.text.times import local_time

MAX_VALUES, MAX_ERROR = 20, 8000
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
