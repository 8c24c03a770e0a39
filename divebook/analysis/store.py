"""DataFrames and Arrow tables of many executions, or of a whole store.

A log that cannot be read does not affect the others. `Frames.damaged` contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, get_args

import pandas as pd

from divebook.analysis import agents, lists, log
from divebook.analysis.agents import ModelSum, sums_by_model
from divebook.analysis.columns import (
    CONSUMED,
    COUNT,
    MOMENT,
    TEXT,
    Column,
    Columns,
    UserColumn,
    documented,
    frame,
    inferred_column,
)
from divebook.analysis.log import EventTable
from divebook.engine.evolve import fold
from divebook.engine.lifecycle import SHOWN_STATUSES, unknown_status
from divebook.engine.state import ExecutionState
from divebook.errors import NotFoundError, SetupError, StoreError
from divebook.events import Event
from divebook.events.catalog import ORIGINS, UNCOUNTED, ExecutionForked
from divebook.events.recorded import opened
from divebook.projections.log_frames import Framed
from divebook.projections.summary import Overview, records_with
from divebook.runtime.forks import folded
from divebook.stores import EventStore, ExecutionRecord
from divebook.stores.follow import chain_of
from divebook.text.arguments import plain_seconds, require
from divebook.text.format import plural
from divebook.text.ranges import COUNT_OR_ZERO

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Frames(Framed):
    """DataFrames of many executions, with `execution_id` as first column. Each DataFrame is made when it is first
    accessed.

    Parameters
    ----------
    store
        The store of the logs.
    records
        The records of the executions.
    columns
        Additional columns by name. Each value is a path: ``{"label": "outputs.label"}`` for `executions` (paths start
        with ``inputs``, ``outputs`` or ``variables``; ``*`` stands for each entry of a list or mapping, as in
        ``variables.rows.*.score``), or for another kind of frame, whose name comes first: ``{"query":
        "operations.parameters.query"}``.
    with_trials
        True if `usage` and `costs` include what-ifs and trials.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:", workflows=[Workflow("w", [Step("s", script="1 + 1", store="n")])])
    >>> _ = [environment.start("w").wait() for _ in range(2)]
    >>> frames = Frames(environment.store, environment.store.records(workflow="w"), {"sum": "variables.n"})
    >>> frames.steps.groupby("step").size().to_dict(), frames.executions["sum"].tolist()
    ({'s': 2}, [2, 2])
    >>> frames.arrow("steps").column_names[:3]
    ['execution_id', 'step', 'type']
    """

    store: EventStore
    records: Sequence[ExecutionRecord]
    columns: Mapping[str, str] = field(default_factory=dict)
    with_trials: bool = False
    damaged: dict[str, str] = field(default_factory=dict, init=False, compare=False)
    """Reasons why logs could not be read, by execution id, for the frames that were built so far. `executions` reads
    all logs.
    """
    _frames: dict[str, pd.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._user_columns(EXECUTIONS)  # raises an error for a wrong path at once

    @property
    def executions(self) -> pd.DataFrame:
        """One row per execution: `divebook.analysis.lists.runs_frame`, and the columns that the user added."""
        return self._frame(EXECUTIONS)

    @property
    def runs(self) -> pd.DataFrame:
        """The same DataFrame as `executions`."""
        return self.executions

    @property
    def paths(self) -> pd.DataFrame:
        """One row per path: `divebook.analysis.log.paths_frame`."""
        return self._frame("paths")

    @property
    def questions(self) -> pd.DataFrame:
        """One row per question: `divebook.analysis.lists.questions_frame`."""
        return self._frame("questions")

    @property
    def variables(self) -> pd.DataFrame:
        """One row per event that changed variables: `divebook.analysis.store.variables_frame`."""
        return self._frame(VARIABLES)

    @property
    def usage(self) -> pd.DataFrame:
        """One row per execution, agent and model with the consumption (tokens and cost):
        `divebook.analysis.store.usage_frame`.

        A fork does not include the consumption of its source. What-ifs and trials are omitted, unless
        ``where={"origin": ...}`` selects them.
        """
        return self._frame(USAGE)

    def __repr__(self) -> str:
        count = plural(len(self.records), "execution")
        return f"<Frames of {count} in {self.store.location}: {', '.join(ALL_KINDS)}, costs()>"

    # --- for other libraries -----------------------------------------------------------------------------------------

    def arrow(self, kind: str) -> pa.Table:
        """Return the DataFrame of a kind (such as ``events``) as an Arrow table, which DuckDB and polars accept.

        ``duckdb.sql("SELECT ... FROM events")`` finds it in the variable ``events``. ``polars.from_arrow`` copies no
        data. The types are those of `divebook.analysis.log.TYPES`.
        """
        return self.reader(kind).read_all()

    def to_arrow(self) -> dict[str, pa.Table]:
        """Return the DataFrames of all kinds as Arrow tables, by kind (such as ``events``)."""
        return {kind: self.arrow(kind) for kind in ALL_KINDS}

    def reader(self, kind: str) -> pa.RecordBatchReader:
        """Return the DataFrame of a kind in Arrow batches, so that at most one log is in memory at a time.

        `executions`, `variables` and frames with user columns are made as a whole.
        """
        import pyarrow as pa

        from divebook.analysis.log import ID as ID_FIELD
        from divebook.analysis.log import schema_of, table_of

        if kind not in ALL_KINDS:
            raise NotFoundError("frame", kind, ALL_KINDS)
        # The data determines the columns of these frames, so that the frame is needed as a whole.
        if kind not in KINDS or self._user_columns(kind):
            fixed_columns = {EXECUTIONS: lists.RUN_COLUMNS, VARIABLES: VARIABLE_COLUMNS}.get(kind)
            columns = {**ID, **KINDS[kind].columns} if fixed_columns is None else fixed_columns
            whole = self._frame(kind)
            # The types of user columns are those that the values have; fixed columns keep their declared type even if
            # they are empty.
            types = table_of(whole.drop(columns=[*columns])).schema
            return table_of(whole, pa.schema([*schema_of(columns), *types])).to_reader(BATCH)
        schema = pa.schema([ID_FIELD, *schema_of(KINDS[kind].columns)])
        return pa.RecordBatchReader.from_batches(schema, self._batches(kind, schema))

    def _batches(self, kind: str, schema: Any) -> Iterator[Any]:
        from divebook.analysis.log import events_table, table_of, with_execution_id

        # The id is added to each table later, so the inner schema lacks it.
        inner = schema.remove(0)
        for logged in self._logs(kind):
            table = self._read(
                logged,
                # Events become a table without a frame in between; the other kinds are frames first.
                lambda one: (
                    events_table(log.EVENT_COLUMNS, EventTable(one.events.pages()), inner)
                    if kind == EVENTS
                    else table_of(KINDS[kind].make(one), inner)
                ),
            )
            if table is not None and len(table):
                yield from with_execution_id(logged.record.execution_id, table).cast(schema).to_batches(BATCH)

    # --- construction ------------------------------------------------------------------------------------------------

    def _frame(self, kind: str) -> pd.DataFrame:
        if kind not in self._frames:
            self._frames[kind] = self._build(kind)
        return self._frames[kind]

    def _build(self, kind: str) -> pd.DataFrame:
        if kind == EXECUTIONS:
            runs = lists.runs_frame(self.records, self.store)
            for execution_id, damage in zip(runs["execution_id"], runs["damage"], strict=True):
                if not pd.isna(damage):
                    self.damaged[execution_id] = damage
            return self._with_user_columns(kind, runs)
        if kind == VARIABLES:
            return variables_frame(row for logged in self._logs(kind) for row in self._variables_then(logged))
        if kind in KINDS:
            return self._with_user_columns(kind, self._together(kind, KINDS[kind].make))
        # "costs by agent" -> "agent".
        by = next(by for by in get_args(agents.By) if kind == f"costs by {by}")
        return self._together(kind, lambda one: _costs(one.events, by))

    def _variables_then(self, logged: Logged) -> list[VariablesThen]:
        name = logged.record.execution_id
        return self._read(logged, lambda one: [*variables_by_event(name, one.events)]) or []

    def _logs(self, kind: str) -> Iterator[Logged]:
        # What-ifs and trials are experiments, whose cost would be counted together with that of the runs they examine.
        leaves_out = (kind == USAGE or kind.startswith("costs")) and not self.with_trials
        for record in self.records:
            if not (leaves_out and record.origin in UNCOUNTED):
                yield Logged(self.store, record)

    def _read(self, logged: Logged, make: Callable[[Logged], Any]) -> Any:
        """Call the function `make` with one execution and its log, and return the result. If the log cannot be read,
        return None and store the reason in `damaged`.
        """
        try:
            return make(logged)
        except StoreError as error:
            self.damaged[logged.record.execution_id] = str(error)
            return None

    def _together(self, kind: str, make: Make) -> pd.DataFrame:
        frames = []
        for logged in self._logs(kind):
            one = self._read(logged, make)
            if one is not None and len(one):
                one.insert(0, "execution_id", pd.Series([logged.record.execution_id] * len(one), dtype=TEXT))
                frames.append(one)
        if not frames:
            empty = KINDS[kind].columns if kind in KINDS else agents.COST_COLUMNS
            return pd.DataFrame({name: pd.Series([], dtype=column.dtype) for name, column in {**ID, **empty}.items()})
        together: pd.DataFrame = pd.concat(frames, ignore_index=True)
        return together

    def _user_columns(self, kind: str) -> list[UserColumn]:
        """Return the columns that the user added to the DataFrame of a kind (the argument `columns` of this object).

        The path of a column starts with a part of the state (for `executions`), or with the name of a kind of frame and
        one of its columns. In the second case, the column of the frame becomes the root:
        ``operations.parameters.query`` has the root ``parameters``. All paths are checked, so that an error is raised
        even for a frame that is never made.
        """
        columns = []
        for name, path in self.columns.items():
            column = UserColumn.of(name, path)
            # The default: paths such as ``outputs.label`` belong to `executions`.
            of = EXECUTIONS
            roots = tuple(OF_STATE)
            if column.root not in OF_STATE:
                of = column.root
                roots = tuple(KINDS[column.root].columns) if column.root in KINDS else ()
                if not roots or not column.parts:
                    raise SetupError(
                        f"columns: {path!r} must start with inputs, outputs or variables, or with a frame and one of "
                        f"its columns, such as 'operations.result': frames are {', '.join(KINDS)}"
                    )
                # ``operations.parameters.query``: the frame is `operations`, the column `parameters`, and the path
                # inside it `query`.
                first, *rest = column.parts
                column = UserColumn(name, getattr(first, "name", "*"), tuple(rest))
            if column.root not in roots:
                raise NotFoundError(f"column of {of}", column.root, roots)
            if of == kind:
                columns.append(column)
        return columns

    def _with_user_columns(self, kind: str, table: pd.DataFrame) -> pd.DataFrame:
        for column in self._user_columns(kind):
            if column.name in table:
                raise SetupError(f"columns: {kind} already has a column {column.name!r}; choose another name")
            # For executions the values are in the states, for other frames in the column of the frame.
            values = (
                self._values(column) if kind == EXECUTIONS else [column.value_in(value) for value in table[column.root]]
            )
            table[column.name] = inferred_column(values)
        return table

    def _values(self, column: UserColumn) -> list[Any]:
        """Return the values of a column that the user added to `executions`: one per execution, read from its state."""

        def value_of(logged: Logged) -> Any:
            return column.value_in(dict(getattr(folded(self.store, logged.record.execution_id), column.root)))

        return [self._read(Logged(self.store, record), value_of) for record in self.records]


# --- selection of executions by ``where=`` ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Filter of executions. Each field is one value or a list of accepted values; None accepts all values.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:", workflows=[Workflow("w", [Step("s", script="1")])])
    >>> _ = [environment.start("w", tags=[tag]).wait() for tag in ("baseline", "other")]
    >>> chosen = Selection.of({"status": ["completed", "failed"], "tag": "baseline"})
    >>> [record.tags for record in chosen.records(environment.store)]
    [('baseline',)]
    """

    ids: Collection[str] | str | None = None
    """Ids, or prefixes of ids."""
    chain: str | None = None
    """Id, or prefix, of an execution of a chain, in which each execution continues as the next one."""
    status: Collection[str] | str | None = None
    workflow: Collection[str] | str | None = None
    tag: Collection[str] | str | None = None
    """Executions that have one of the tags."""
    origin: Collection[str] | str | None = None
    """``run``, ``fork``, ``what-if``, ``trial``, ``child`` ..."""
    parent: Collection[str] | str | None = None
    notebook: Collection[str] | str | None = None
    cell: Collection[str] | str | None = None
    text: str | None = None
    """Text in the id, the workflow's name, a tag, the note or the error; case is ignored."""
    since: datetime | date | timedelta | str | None = None
    """Start time or later: a time, a day, a string in ISO form, or a duration before now such as ``"1d"``. A time
    without a zone is in this machine's time zone."""
    until: datetime | date | timedelta | str | None = None
    """Start time before this one, in the same forms."""

    @classmethod
    def of(cls, where: Mapping[str, Any] | None) -> Self:
        """Create the selection from a mapping of filters, such as the option ``where``; None selects all executions.

        Raises
        ------
        NotFoundError
            A field, status or origin does not exist.
        SetupError
            A time is invalid, or a value is not a string.
        """
        options = dict(where or {})
        names = [entry.name for entry in fields(cls)]
        for name in options.keys() - {*names}:
            raise NotFoundError("filter", str(name), names)
        for name in ("since", "until"):
            options[name] = _moment(name, options.get(name))
        selection = cls(**options)
        for status in _values("status", selection.status) or ():
            if status not in SHOWN_STATUSES:
                raise unknown_status(status, SHOWN_STATUSES)
        for origin in _values("origin", selection.origin) or ():
            if origin not in ORIGINS:
                raise NotFoundError("origin", origin, ORIGINS)
        for name in ("text", "chain"):
            if not isinstance(getattr(selection, name), str | None):
                raise SetupError(f"where: {name} must be a string, not {getattr(selection, name)!r}")
        return selection

    def records(self, store: EventStore, limit: int = 0) -> list[ExecutionRecord]:
        """Return the records of the selected executions, newest first; `limit` 0 returns all.

        Raises
        ------
        ExecutionNotFoundError
            One of the `ids` does not exist.
        """
        ids = _values("ids", self.ids)
        parts = ("status", "workflow", "tag", "origin", "parent", "notebook", "cell")
        criteria = {name: values for name in parts if (values := _values(name, getattr(self, name))) is not None}
        # The store filters by one value per field; `_fits` applies the rest.
        single: dict[str, Any] = {name: values[0] for name, values in criteria.items() if len(values) == 1}
        if self.chain is not None:
            chain = chain_of(store, store.resolve(self.chain))
            # Ids and a chain together: the ids that are in the chain.
            ids = tuple(chain) if ids is None else tuple(name for name in map(store.resolve, ids) if name in chain)
        if ids is not None:
            records = [store.record(name) for name in dict.fromkeys(map(store.resolve, ids))]
        else:  # one value is asked of the store, which has indexes for it
            records = records_with(store, **single)
        # The store has recorded other statuses than people see.
        statuses = criteria.pop("status", None)
        fitting = [record for record in records if self._fits(record, criteria)]
        if statuses is not None:
            shown = Overview(store).statuses(fitting)
            fitting = [record for record in fitting if shown[record.execution_id] in statuses]
        return fitting[:limit] if limit else fitting

    def _fits(self, record: ExecutionRecord, criteria: Mapping[str, tuple[str, ...]]) -> bool:
        # Tags and the workflow have other names in a record.
        fields_of_record = criteria.keys() - {"tag", "workflow"}
        values_of_record: dict[str, tuple[str, ...]] = {name: (getattr(record, name),) for name in fields_of_record}
        values_of_record |= {"tag": record.tags, "workflow": (record.workflow_name,)}
        if any(set(values).isdisjoint(values_of_record[name]) for name, values in criteria.items()):
            return False
        # An execution in a queue has not started; its creation counts then.
        began = record.started_at or record.created_at
        if isinstance(self.since, datetime) and began < self.since:
            return False
        if isinstance(self.until, datetime) and began >= self.until:
            return False
        texts = (record.execution_id, record.workflow_name, *record.tags, record.note or "", record.error or "")
        return self.text is None or self.text.casefold() in "\n".join(texts).casefold()


def _values(name: str, value: Any) -> tuple[str, ...] | None:
    """Return the values that a field of `Selection` accepts, as a tuple of strings; None if the field accepts all
    values.
    """
    if value is None or isinstance(value, str):
        return None if value is None else (value,)
    values = tuple(value) if isinstance(value, Collection) else (value,)
    for text in values:
        if not isinstance(text, str):
            raise SetupError(f"where: {name} must be a string or a list of strings, not {value!r}")
    return values


def _moment(name: str, value: Any) -> datetime | None:
    """Return the time that a filter means: a time, or a duration before the present."""
    moment = value
    if isinstance(value, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(value)
    seconds = plain_seconds(moment)
    # `plain_seconds` converts durations and returns anything else unchanged.
    if seconds is not moment:
        with suppress(OverflowError):  # a duration that reaches back to before the year 1
            moment = datetime.now(UTC) - timedelta(seconds=seconds)
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001 - on this machine's clock
    if value is not None and not isinstance(moment, datetime):
        raise SetupError(
            f"where: {name} must be a date such as '2026-01-31', a time such as '2026-01-31T12:00', or a duration "
            f"before now such as '1d', not {value!r}"
        )
    # A time without a zone is local time.
    return None if moment is None else moment.astimezone(UTC)


# --- frames of variables and of usage ---------------------------------------------------------------------------------


VARIABLE_COLUMNS: Columns = {
    "execution_id": Column(TEXT, "``exec_...``"),
    "sequence": Column(COUNT, "number of the event that changed a variable", "event.sequence"),
    "timestamp": Column(MOMENT, "time of the recording", "event.timestamp"),
    "path": Column(TEXT, "path that changed the variable", lambda row: row.event.path or None),
    "step": Column(TEXT, "step that changed the variable", lambda row: row.event.step or None),
}
"""Columns of `variables_frame` before the columns of the variables."""


class VariablesThen(NamedTuple):
    """Variables of an execution after one event that changed a variable."""

    execution_id: str
    event: Event
    variables: Mapping[str, Any]


def variables_by_event(execution_id: str, events: Iterable[Event]) -> Iterator[VariablesThen]:
    """Yield the variables of an execution after each event that changed at least one of them, oldest event first."""
    state = ExecutionState(execution_id)
    for event in events:
        before = state.variables
        # The fold of one event after the other shares unchanged parts, so that identity shows a change.
        state = fold(execution_id, (event,), state)
        if state.variables is not before:
            yield VariablesThen(execution_id, event, state.variables)


@documented(VARIABLE_COLUMNS)
def variables_frame(rows: Iterable[VariablesThen]) -> pd.DataFrame:
    """Return one row per event that changed variables, with one column per variable for its value after the event.

    The columns of variables are sorted by name and have the dtype ``object``. If a variable has the name of another
    column, its column is named ``variables.NAME``. The value is None while the variable does not exist.
    """
    rows_of_events = list(rows)
    names = sorted({name for row in rows_of_events for name in row.variables})
    frame_of_events = frame(VARIABLE_COLUMNS, rows_of_events)
    shown = {id(row.variables): opened(dict(row.variables), lenient=True) for row in rows_of_events}
    values = {
        column_of(name): pd.Series([shown[id(row.variables)].get(name) for row in rows_of_events], dtype="object")
        for name in names
    }
    return pd.concat([frame_of_events, pd.DataFrame(values, index=frame_of_events.index)], axis=1)


def column_of(variable: str) -> str:
    """Return the name of the DataFrame column for a workflow variable."""
    return f"variables.{variable}" if variable in VARIABLE_COLUMNS else variable


def forked_at(events: Iterable[Event]) -> int:
    """Return the number of the last fork event in a log; 0 for a log without forks. Earlier events are shared with the
    execution that was forked.
    """
    return max((event.sequence for event in events if isinstance(event.data, ExecutionForked)), default=0)


class _Consumption(NamedTuple):
    """Data for one row of `usage_frame`: an execution, and the tokens and cost of one model used by one of its
    agents.
    """

    record: ExecutionRecord
    total: ModelSum

    @property
    def usage(self) -> Mapping[str, int]:
        return self.total.usage


USAGE_COLUMNS: Columns = {
    "execution_id": Column(TEXT, "``exec_...``", "record.execution_id"),
    "workflow": Column(TEXT, "name of the workflow", lambda row: row.record.workflow_name or None),
    "origin": Column(TEXT, "origin: ``run``, ``fork``, ``child``, ``import`` ...", "record.origin"),
    "agent": Column(TEXT, "agent that made the requests", lambda row: row.total.agent or None),
    "model": Column(TEXT, "requested model", lambda row: row.total.model or None),
    "requests": Column(COUNT, "number of requests", "total.requests"),
    "cached": Column(COUNT, "answers from a cache, without cost", "total.cached"),
    **CONSUMED,
}


@documented(USAGE_COLUMNS)
def usage_frame(logs: Iterable[tuple[ExecutionRecord, Sequence[Event]]]) -> pd.DataFrame:
    """Return one row per execution, agent and model with the consumption (tokens and cost) of that model by that agent.

    A fork does not include the consumption of its source.
    """
    rows = [
        _Consumption(record, total) for record, events in logs for total in sums_by_model(events, forked_at(events))
    ]
    return frame(USAGE_COLUMNS, rows)


EXECUTIONS = "executions"
EVENTS = "events"
VARIABLES = "variables"
USAGE = "usage"
OF_STATE: Sequence[str] = ("inputs", "outputs", "variables")
"""Parts of the state that user columns of executions refer to."""
BATCH = 65_536
"""Number of rows in an Arrow batch."""


@dataclass(frozen=True)
class Logged:
    """One execution of a store and its events. The functions that make DataFrames of a log get this object."""

    store: EventStore
    record: ExecutionRecord

    @property
    def events(self) -> Any:
        """Events of the execution's log, read from the store on each access."""
        return self.store.history(self.record.execution_id)


Make: TypeAlias = Callable[[Logged], pd.DataFrame]


class TableKind(NamedTuple):
    """Definition of one kind of DataFrame (such as ``steps``): its columns except the id of the execution, and the
    function that makes it for one execution.
    """

    columns: Columns
    make: Make


def _of_events(columns: Columns, make: Callable[[Any], pd.DataFrame]) -> TableKind:
    return TableKind(columns, lambda logged: make(logged.events))


def _costs(events: Any, by: agents.By) -> pd.DataFrame:
    return agents.costs_frame(events, by, forked_at(events))


def _paths(logged: Logged) -> pd.DataFrame:
    state = folded(logged.store, logged.record.execution_id)
    return log.paths_frame(sorted(state.paths.values(), key=lambda path: path.number))


def _questions(logged: Logged) -> pd.DataFrame:
    name = logged.record.execution_id
    questions = folded(logged.store, name).interrupts.values()
    return lists.questions_frame([(name, question) for question in questions]).drop(columns="execution_id")


# The frame of all executions has the id as its own first column.
_QUESTIONS = {name: column for name, column in lists.QUESTION_COLUMNS.items() if name != "execution_id"}
_USAGE = {name: column for name, column in USAGE_COLUMNS.items() if name != "execution_id"}
KINDS: Mapping[str, TableKind] = {
    EVENTS: _of_events(log.EVENT_COLUMNS, log.events_frame),
    "operations": _of_events(log.OPERATION_COLUMNS, log.operations_frame),
    "model_calls": _of_events(agents.MODEL_CALL_COLUMNS, agents.model_calls_frame),
    "messages": _of_events(agents.MESSAGE_COLUMNS, agents.messages_frame),
    "tool_calls": _of_events(agents.TOOL_CALL_COLUMNS, agents.tool_calls_frame),
    "steps": _of_events(log.STEP_COLUMNS, log.steps_frame),
    "items": _of_events(log.ITEM_COLUMNS, log.items_frame),
    "paths": TableKind(log.PATH_COLUMNS, _paths),
    "questions": TableKind(_QUESTIONS, _questions),
    USAGE: TableKind(
        _USAGE,
        lambda one: usage_frame([(one.record, one.events)]).drop(columns="execution_id"),
    ),
}
"""Kinds of frames with fixed columns that are made for one execution after the other."""
ALL_KINDS = (EXECUTIONS, *KINDS, VARIABLES)
ID: Columns = {"execution_id": Column(TEXT, "``exec_...``")}


def frames_of(
    store: EventStore,
    where: Mapping[str, Any] | None,
    columns: Mapping[str, str] | None,
    limit: int,
    filters: Mapping[str, Any],
) -> Frames:
    """Return the DataFrames of the executions of a store that the filters `where` and `filters` select; see
    `divebook.frames`.
    """
    require(where, "where", "a mapping such as {'tag': 'baseline'}", fits=isinstance(where, Mapping))
    require(columns, "columns", "a mapping such as {'n': 'variables.n'}", fits=isinstance(columns, Mapping))
    require(limit, "limit", f"{COUNT_OR_ZERO}; 0 for all", fits=COUNT_OR_ZERO.fits(limit))
    selection = Selection.of({**(where or {}), **filters})
    # Trials and what-ifs are left out of totals unless the filter asks for an origin.
    return Frames(store, selection.records(store, limit or 0), columns or {}, selection.origin is not None)
