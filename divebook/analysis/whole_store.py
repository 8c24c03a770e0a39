"""The frames of many executions, or of a whole store: as DataFrames, and as Arrow tables for DuckDB and polars.

A log that cannot be read does not hold up the others: `Frames.damaged` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

import pandas as pd

from divebook.analysis import agent_frames, frames, listings, state_frames
from divebook.analysis.columns import TEXT, Column, Columns
from divebook.analysis.event_table import EventTable
from divebook.analysis.own_columns import OwnColumn, settled
from divebook.errors import NotFoundError, SetupError, StoreError
from divebook.events.catalog import UNCOUNTED
from divebook.execution.register import folded
from divebook.history.framed import Framed
from divebook.store import EventStore, ExecutionRecord
from divebook.text.shown import plural

if TYPE_CHECKING:
    import pyarrow as pa

EXECUTIONS, EVENTS, VARIABLES, USAGE = "executions", "events", "variables", "usage"
OF_STATE: Sequence[str] = ("inputs", "outputs", "variables")
"""What own columns of executions are taken from."""
BATCH = 65_536
"""Rows of a batch."""


@dataclass(frozen=True)
class Logged:
    """One execution of a store, of whose log frames are made."""

    store: EventStore
    record: ExecutionRecord

    @property
    def events(self) -> Any:
        """Its events, read when they are looked at."""
        return self.store.history(self.record.execution_id)


Make: TypeAlias = Callable[[Logged], pd.DataFrame]


class TableKind(NamedTuple):
    """A kind of frame: its columns without the execution's id, and how it is made of one execution."""

    columns: Columns
    make: Make


def _of_events(columns: Columns, make: Callable[[Any], pd.DataFrame]) -> TableKind:
    return TableKind(columns, lambda logged: make(logged.events))


def _costs(events: Any, by: agent_frames.By) -> pd.DataFrame:
    return agent_frames.costs_frame(events, by, state_frames.forked_at(events))


def _paths(logged: Logged) -> pd.DataFrame:
    state = folded(logged.store, logged.record.execution_id)
    return frames.paths_frame(sorted(state.paths.values(), key=lambda path: path.number))


def _questions(logged: Logged) -> pd.DataFrame:
    name = logged.record.execution_id
    asked = folded(logged.store, name).interrupts.values()
    return listings.questions_frame([(name, question) for question in asked]).drop(columns="execution_id")


_QUESTIONS = {name: column for name, column in listings.QUESTION_COLUMNS.items() if name != "execution_id"}
_USAGE = {name: column for name, column in state_frames.USAGE_COLUMNS.items() if name != "execution_id"}
KINDS: Mapping[str, TableKind] = {
    EVENTS: _of_events(frames.EVENT_COLUMNS, frames.events_frame),
    "operations": _of_events(frames.OPERATION_COLUMNS, frames.operations_frame),
    "model_calls": _of_events(agent_frames.MODEL_CALL_COLUMNS, agent_frames.model_calls_frame),
    "messages": _of_events(agent_frames.MESSAGE_COLUMNS, agent_frames.messages_frame),
    "tool_calls": _of_events(agent_frames.TOOL_CALL_COLUMNS, agent_frames.tool_calls_frame),
    "steps": _of_events(frames.STEP_COLUMNS, frames.steps_frame),
    "items": _of_events(frames.ITEM_COLUMNS, frames.items_frame),
    "paths": TableKind(frames.PATH_COLUMNS, _paths),
    "questions": TableKind(_QUESTIONS, _questions),
    USAGE: TableKind(
        _USAGE,
        lambda one: state_frames.usage_frame([(one.record, one.events)]).drop(columns="execution_id"),
    ),
}
"""The kinds whose columns are fixed, and that are made execution by execution."""
ALL_KINDS = (EXECUTIONS, *KINDS, VARIABLES)
ID: Columns = {"execution_id": Column(TEXT, "``exec_...``")}


@dataclass(frozen=True)
class Frames(Framed):
    """The frames of many executions, each made when it is first asked for: those of one, with `execution_id` in front.

    Parameters
    ----------
    store
        Where their logs are.
    records
        Which executions.
    columns
        Columns of a person's own, by path: ``{"label": "outputs.label"}`` of `executions` (``inputs``, ``outputs``,
        ``variables``, with ``*`` for every entry of a list or mapping, as in ``variables.rows.*.score``), or of
        another kind, whose name comes first then: ``{"query": "operations.parameters.query"}``.
    with_trials
        Whether `usage` and `costs` count what-ifs and trials.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:", workflows=[Workflow("w", [Step("s", script="1 + 1", store="n")])])
    >>> _ = [environment.start("w").wait() for _ in range(2)]
    >>> made = Frames(environment.store, environment.executions(workflow="w"), {"sum": "variables.n"})
    >>> made.steps.groupby("step").size().to_dict(), made.executions["sum"].tolist()
    ({'s': 2}, [2, 2])
    >>> made.arrow("steps").column_names[:3]
    ['execution_id', 'step', 'type']
    """

    store: EventStore
    records: Sequence[ExecutionRecord]
    columns: Mapping[str, str] = field(default_factory=dict)
    with_trials: bool = False
    damaged: dict[str, str] = field(default_factory=dict, init=False, compare=False)
    """By id: why the log of an execution could not be read, as far as frames were made; `executions` has them all."""
    _made: dict[str, pd.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._own(EXECUTIONS)  # so that a wrong path is told at once

    @property
    def executions(self) -> pd.DataFrame:
        """One row per execution: `divebook.analysis.listings.runs_frame`, and own columns."""
        return self._frame(EXECUTIONS)

    @property
    def runs(self) -> pd.DataFrame:
        """The same as `executions`."""
        return self.executions

    @property
    def paths(self) -> pd.DataFrame:
        """One row per path: `divebook.analysis.frames.paths_frame`."""
        return self._frame("paths")

    @property
    def questions(self) -> pd.DataFrame:
        """One row per question: `divebook.analysis.listings.questions_frame`."""
        return self._frame("questions")

    @property
    def variables(self) -> pd.DataFrame:
        """One row per event that changed variables, wide: `divebook.analysis.state_frames.variables_frame`."""
        return self._frame(VARIABLES)

    @property
    def usage(self) -> pd.DataFrame:
        """One row per execution, agent and model, with what was consumed: `divebook.analysis.state_frames.usage_frame`.

        A fork's are what it did itself. What-ifs and trials are left out, unless they were asked for by
        ``where={"origin": ...}``.
        """
        return self._frame(USAGE)

    def __repr__(self) -> str:
        count = plural(len(self.records), "execution")
        return f"<Frames of {count} in {self.store.location}: {', '.join(ALL_KINDS)}, costs()>"

    # --- for other libraries -----------------------------------------------------------------------------------------

    def arrow(self, kind: str) -> pa.Table:
        """Return one of the frames as an Arrow table, which DuckDB and polars take as it is.

        ``duckdb.sql("SELECT ... FROM events")`` finds it in the variable ``events``, ``polars.from_arrow`` copies
        nothing. The types are those of `divebook.analysis.arrow_tables.TYPES`.
        """
        return self.reader(kind).read_all()

    def to_arrow(self) -> dict[str, pa.Table]:
        """Return all frames as Arrow tables, by kind."""
        return {kind: self.arrow(kind) for kind in ALL_KINDS}

    def reader(self, kind: str) -> pa.RecordBatchReader:
        """Return one of the frames in batches: no more than one log is in memory at a time.

        `executions`, `variables` and frames with own columns are made as a whole.
        """
        import pyarrow as pa

        from divebook.analysis.arrow_tables import ID as ID_FIELD
        from divebook.analysis.arrow_tables import schema_of, table_of

        if kind not in ALL_KINDS:
            raise NotFoundError("frame", kind, ALL_KINDS)
        if kind not in KINDS or self._own(kind):
            known = {EXECUTIONS: listings.RUN_COLUMNS, VARIABLES: state_frames.VARIABLE_COLUMNS}.get(kind)
            columns = {**ID, **KINDS[kind].columns} if known is None else known
            whole = self._frame(kind)
            types = table_of(whole.drop(columns=[*columns])).schema
            return table_of(whole, pa.schema([*schema_of(columns), *types])).to_reader(BATCH)
        schema = pa.schema([ID_FIELD, *schema_of(KINDS[kind].columns)])
        return pa.RecordBatchReader.from_batches(schema, self._batches(kind, schema))

    def _batches(self, kind: str, schema: Any) -> Iterator[Any]:
        from divebook.analysis.arrow_tables import events_table, named, table_of

        inner = schema.remove(0)
        for logged in self._logs(kind):
            table = self._read(
                logged,
                lambda one: (
                    events_table(frames.EVENT_COLUMNS, EventTable(one.events.pages()), inner)
                    if kind == EVENTS
                    else table_of(KINDS[kind].make(one), inner)
                ),
            )
            if table is not None and len(table):
                yield from named(logged.record.execution_id, table).cast(schema).to_batches(BATCH)

    # --- how they are made -------------------------------------------------------------------------------------------

    def _frame(self, kind: str) -> pd.DataFrame:
        if kind not in self._made:
            self._made[kind] = self._whole(kind)
        return self._made[kind]

    def _whole(self, kind: str) -> pd.DataFrame:
        if kind == EXECUTIONS:
            made = listings.runs_frame(self.records, self.store)
            for execution_id, damage in zip(made["execution_id"], made["damage"], strict=True):
                if not pd.isna(damage):
                    self.damaged[execution_id] = damage
            return self._with_own(kind, made)
        if kind == VARIABLES:
            return state_frames.variables_frame(row for logged in self._logs(kind) for row in self._stood(logged))
        if kind in KINDS:
            return self._with_own(kind, self._together(kind, KINDS[kind].make))
        by = next(by for by in get_args(agent_frames.By) if kind == f"costs by {by}")
        return self._together(kind, lambda one: _costs(one.events, by))

    def _stood(self, logged: Logged) -> list[state_frames.VariablesThen]:
        name = logged.record.execution_id
        return self._read(logged, lambda one: [*state_frames.standings(name, one.events)]) or []

    def _logs(self, kind: str) -> Iterator[Logged]:
        leaves_out = (kind == USAGE or kind.startswith("costs")) and not self.with_trials
        for record in self.records:
            if not (leaves_out and record.origin in UNCOUNTED):
                yield Logged(self.store, record)

    def _read(self, logged: Logged, make: Callable[[Logged], Any]) -> Any:
        """Return what is made of a log; None where it cannot be read, which is noted."""
        try:
            return make(logged)
        except StoreError as error:
            self.damaged[logged.record.execution_id] = str(error)
            return None

    def _together(self, kind: str, make: Make) -> pd.DataFrame:
        made = []
        for logged in self._logs(kind):
            one = self._read(logged, make)
            if one is not None and len(one):
                one.insert(0, "execution_id", pd.Series([logged.record.execution_id] * len(one), dtype=TEXT))
                made.append(one)
        if not made:
            empty = KINDS[kind].columns if kind in KINDS else agent_frames.COST_COLUMNS
            return pd.DataFrame({name: pd.Series([], dtype=column.dtype) for name, column in {**ID, **empty}.items()})
        together: pd.DataFrame = pd.concat(made, ignore_index=True)
        return together

    def _own(self, kind: str) -> list[OwnColumn]:
        """Return the columns that a person added to a kind, each with the column that it is taken from."""
        found = []
        for name, path in self.columns.items():
            own = OwnColumn.of(name, path)
            of, known = EXECUTIONS, tuple(OF_STATE)
            if own.root not in OF_STATE:
                of, known = own.root, tuple(KINDS[own.root].columns) if own.root in KINDS else ()
                if not known or not own.parts:
                    raise SetupError(
                        f"columns: {path!r} must begin with inputs, outputs or variables, or with a frame and one of "
                        f"its columns, such as 'operations.result': frames are {', '.join(KINDS)}"
                    )
                first, *rest = own.parts
                own = OwnColumn(name, getattr(first, "name", "*"), tuple(rest))
            if own.root not in known:
                raise NotFoundError(f"column of {of}", own.root, known)
            if of == kind:
                found.append(own)
        return found

    def _with_own(self, kind: str, made: pd.DataFrame) -> pd.DataFrame:
        for own in self._own(kind):
            if own.name in made:
                raise SetupError(f"columns: {kind} has a column {own.name!r} already; choose another name")
            values = self._values(own) if kind == EXECUTIONS else [own.found(value) for value in made[own.root]]
            made[own.name] = settled(values)
        return made

    def _values(self, own: OwnColumn) -> list[Any]:
        """Return what is found in the state of each execution."""

        def found(logged: Logged) -> Any:
            return own.found(dict(getattr(folded(self.store, logged.record.execution_id), own.root)))

        return [self._read(Logged(self.store, record), found) for record in self.records]
