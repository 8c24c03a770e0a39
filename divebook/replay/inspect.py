"""Inspection of a run: its critical path, time by kind, retries and costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from divebook.events import Event, catalog
from divebook.projections.log_frames import FramedLog
from divebook.projections.summary import PathPart, ReadLog, Spent, critical_path
from divebook.report.model import Column, Report, Shares, Table, Text
from divebook.report.shown import Shown
from divebook.text.format import between, branch_name, plural, price, seconds
from divebook.text.redaction import Redactor, one_line, shared

if TYPE_CHECKING:
    import pandas as pd


# --- times, retries and costs, read from a log ------------------------------------------------------------------------


class Retried(NamedTuple):
    """Failed attempt at a call or a step that was followed by another attempt."""

    sequence: int
    """Number of the event that recorded the failure."""
    path: str
    step: str
    item: int | None
    call: str | None
    """Key of the call that was repeated, if the step makes several calls."""
    attempt: int
    error: str
    delay: timedelta
    """Pause before the next attempt."""


def _failure(data: catalog.StepRetried) -> tuple[int, str, float]:
    return data.attempt, data.error, data.delay


class Inspection(Shown, FramedLog):
    """Waiting times, retries and costs of a run, as a report and as DataFrames.

    `Run.inspect` and ``%dive inspect`` return an inspection.

    Examples
    --------
    >>> from datetime import timedelta
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:", workflows=[Workflow("sum", [Step("add", script="1 + 1")])])
    >>> inspection = environment.start("sum").wait().inspect()
    >>> sorted(inspection.spent), sum(inspection.spent.values(), timedelta()) == inspection.duration
    (['overhead', 'scripts'], True)
    """

    def __init__(self, log: Sequence[Event]) -> None:
        self.log = ReadLog.of(log)

    def _log(self) -> ReadLog:
        return self.log

    @cached_property
    def parts(self) -> list[PathPart]:
        """Parts of the critical path of the run, oldest first. Their durations add up to the duration of the run."""
        return critical_path(self.log)

    @property
    def duration(self) -> timedelta:
        """Duration of the run, up to the last event if the run has not ended."""
        return sum((part.duration for part in self.parts), timedelta())

    @cached_property
    def spent(self) -> dict[Spent, timedelta]:
        """Total time of the critical path for each kind of activity (model calls, waiting, ...), the longest first."""
        # The parts do not overlap, so that the sums add up to the duration of the run.
        spent: defaultdict[Spent, timedelta] = defaultdict(timedelta)
        for part in self.parts:
            spent[part.spent] += part.duration
        return dict(sorted(spent.items(), key=lambda entry: entry[1], reverse=True))

    @property
    def shares(self) -> dict[Spent, float]:
        """Share of each kind of activity in the duration of the run, from 0 to 1, the largest first."""
        # A run without length has one kind of activity at most, without a share.
        return {kind: took / (self.duration or timedelta.max) for kind, took in self.spent.items()}

    @cached_property
    def retried(self) -> list[Retried]:
        """Failed attempts in the run that were followed by another attempt."""
        return [
            Retried(
                event.sequence,
                event.path,
                event.step,
                data.iteration_index,
                data.key,
                data.attempt,
                data.error,
                timedelta(seconds=data.delay),
            )
            for event in self.log
            # Only attempts that were followed by another one have this event. The last, final failure is that of the
            # step.
            if isinstance(data := event.data, catalog.StepRetried)
        ]

    @property
    def critical_path(self) -> pd.DataFrame:
        """One row per part of the critical path: `divebook.analysis.lists.parts_frame`."""
        return self._frame_of_result("critical path")

    @property
    def times(self) -> pd.DataFrame:
        """One row per kind of activity (model calls, waiting, ...) along the critical path:
        `divebook.analysis.lists.times_frame`.
        """
        return self._frame_of_result("times")

    @property
    def retries(self) -> pd.DataFrame:
        """One row per failed attempt that was followed by another attempt: `divebook.analysis.lists.retries_frame`."""
        return self._frame_of_result("retries")

    def _frame_of_result(self, kind: str) -> pd.DataFrame:
        # The analysis is a higher layer and imports pandas, so that it is loaded when it is first used.
        from divebook.analysis.lists import frame_of

        return frame_of(kind, self)

    def report(self) -> Report:
        """Return the times, retries and costs as tables."""
        # Kinds that are not in `_COLOURS`, such as overhead, have the colour of cancelled steps.
        shares = tuple((kind, share, _COLOURS.get(kind, "cancelled")) for kind, share in self.shares.items())
        return Report(Text(_headline(self), "strong"), blocks=(Shares(shares), *_tables(self)))


# --- the tables of the report ----------------------------------------------------------------------------------------


MOST_PARTS = 20
MOST_RETRIES = 10
MOST_COSTS = 10
WIDTH = 60
_BY: tuple[Literal["agent", "model", "step"], ...] = ("agent", "model", "step")
_COLOURS = {"model": "model", "tools": "tool", "actions": "action", "scripts": "script", "people": "running"}
"""Colours of kinds of time, as in the timeline; the table below says the same."""


def _headline(inspection: Inspection) -> str:
    first = inspection.log[0].data if inspection.log else None
    name = first.workflow_name if isinstance(first, catalog.ExecutionStarted) else "run"
    verb = "took" if inspection.log and inspection.log.activity.is_over else "has taken"
    return f"{one_line(name, WIDTH)} {verb} {seconds(inspection.duration.total_seconds())}"


def _tables(inspection: Inspection) -> Iterator[Table]:
    # The redactor learns the inputs of this run, so it is a copy of the shared one.
    redactor = shared().fresh()
    if inspection.log and isinstance(inspection.log[0].data, catalog.ExecutionStarted):
        redactor.learn(inspection.log[0].data.inputs)
    shares = inspection.shares
    times = tuple(
        (kind, seconds(took.total_seconds()), f"{shares[kind]:.0%}") for kind, took in inspection.spent.items()
    )
    yield _table("time along the critical path", ("what", "took", "share"), times)
    yield _parts(inspection)
    if inspection.retried:
        yield _retries(inspection, redactor)
    for by in _BY:
        rows = _costs(inspection, by)
        if rows:
            yield _table(f"cost by {by}", (by, "requests", "tokens", "cost"), rows)


def _table(title: str, columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Table:
    return Table(tuple(map(Column, columns)), tuple(rows), title)


def _parts(inspection: Inspection) -> Table:
    """Return the table of the longest parts of a run's critical path, in chronological order."""
    parts = inspection.parts
    # The inner sort selects the longest parts, the outer one restores their order in time.
    longest = sorted(sorted(range(len(parts)), key=lambda place: -parts[place].duration)[:MOST_PARTS])
    rows = [_part(parts[place], parts[0].started_at) for place in longest]
    note = f": the {MOST_PARTS} longest of {plural(len(parts), 'part')}" if len(parts) > MOST_PARTS else ""
    return _table(f"activities on the critical path{note}", ("after", "took", "what", "step"), rows)


def _part(part: PathPart, began: datetime) -> tuple[str, ...]:
    item = "" if part.item is None else f"[{part.item}]"
    branch = branch_name(part.path)
    place = ", ".join(filter(None, [one_line(f"{part.step}{item}", WIDTH), branch]))
    what = f"{part.spent} {one_line(part.called, WIDTH)}".strip()
    return between(began, part.started_at), seconds(part.duration.total_seconds()), what, place


def _retries(inspection: Inspection, redactor: Redactor) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            f"{one_line(tried.step, WIDTH)}{'' if tried.item is None else f'[{tried.item}]'}",
            str(tried.attempt),
            seconds(tried.delay.total_seconds()),
            one_line(redactor.text(tried.error), WIDTH),
        )
        for tried in inspection.retried[:MOST_RETRIES]
    ]
    omitted = len(inspection.retried) - len(rows)
    more = f": the first {len(rows)} of {len(inspection.retried):,}" if omitted else ""
    return _table(f"retried calls{more}", ("step", "attempt", "pause", "error"), rows)


def _costs(inspection: Inspection, by: Literal["agent", "model", "step"]) -> list[tuple[str, ...]]:
    """Return the table rows with the highest costs of a run by agent, model or step
    (`divebook.analysis.agents.costs_frame`).
    """
    # Requests without recorded usage have no tokens (NaN), and count as 0.
    rows = inspection.costs(by).fillna({"input_tokens": 0, "output_tokens": 0}).head(MOST_COSTS).to_dict("records")
    return [
        (
            one_line(row["name"], WIDTH) or "-",
            f"{row['requests']:,}",
            f"{row['input_tokens'] + row['output_tokens']:,}",
            # The comparison is False for NaN, so that a missing price is reported and not added.
            price(row["cost"]) if row["cost"] >= 0 else "unknown",
        )
        for row in rows
        # A row may have tool calls only.
        if row["requests"]
    ]
