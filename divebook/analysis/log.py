"""DataFrames of one log: one row per event, operation, item, path or visit to a step, with fixed columns.

`divebook.analysis.agents` has messages and calls of agents. An empty frame has the same columns and dtypes as a full
one. `divebook.analysis.columns` describes missing values.
"""

from __future__ import annotations

import json as json_json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from itertools import chain, islice
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.extensions import ExtensionArray, ExtensionDtype
from pandas.api.indexers import check_array_indexer
from pandas.io.formats.printing import pprint_thing  # type: ignore[import-not-found]  # not in the stubs
from pyarrow import json

from divebook.analysis.columns import (
    ANYTHING,
    CONSUMED,
    COUNT,
    MOMENT,
    MONEY,
    NONE,
    NUMBER,
    ROW,
    SPAN,
    TEXT,
    TIMES,
    Column,
    Columns,
    chunked,
    coded,
    coded_are,
    documented,
    flags,
    frame,
    frame_of_table,
    joined,
    known_numbers,
    latest,
    none,
    or_missing,
    running_count,
    since,
    taken_rows,
    utc,
    whole,
    whole_column,
)
from divebook.engine.state import PathState
from divebook.errors import UnstorableValueError
from divebook.events import Event
from divebook.events.catalog import PAYLOADS
from divebook.events.codec import TAGGED, decode_payload, encode_shown
from divebook.events.upcast import FORM
from divebook.events.values import normalize
from divebook.projections.spans import spans_of
from divebook.questions.bounds import dollars
from divebook.stores.history import History
from divebook.stores.pages import EventPage, Numbers, content_of, places_of


class EventTable:
    """Table of the events of one log, with methods that compute one DataFrame column each for all rows."""

    def __init__(self, pages: Iterable[EventPage]) -> None:
        heads: dict[str, list[Any]] = {name: [] for name in ("sequences", "recorded_at", "types", "paths", "steps")}
        field_parts: dict[str, list[Any]] = {name: [] for name in KINDS}
        packed = []
        # One list of parts per column is filled page by page, so that only the needed columns of a page stay in memory,
        # and its payloads compressed.
        for page, fields_of_page in _with_fields(pages):
            for name, column in heads.items():
                column.append(getattr(page, name))
            for name, parts in field_parts.items():
                parts.append(fields_of_page.get(name, len(page.sequences)))
            packed.append(PackedPayloads.of(page))
        self.payloads = Payloads.of(packed)
        # Taken out of the lists, so that the parts of a column go as soon as it is whole.
        self.sequences, self.recorded_at = (joined(heads.pop(name)) for name in ("sequences", "recorded_at"))
        self._types, self._paths, self._steps = (coded(heads.pop(name)) for name in ("types", "paths", "steps"))
        columns = {name: chunked(field_parts.pop(name), KINDS[name], len(self)) for name in [*field_parts]}
        self._texts = {name: columns[name] for name in TEXTS}
        self._names = {name: coded(columns.pop(name).chunks) for name in (*NAMES, ERROR_TYPE, *GIVEN_NAMES)}
        self._numbers = {name: known_numbers(columns.pop(name)) for name in NUMBERS}
        self._spent = flags(columns.pop(SPENT))
        # Arrow keeps freed memory for later use; the parts of the columns are not needed any more.
        pa.default_memory_pool().release_unused()
        self._rows = np.arange(len(self), dtype=ROW)
        # Types and paths are few, so that each event has the index of its text only. Comparisons then compare integers.
        self._kinds: list[str] = self._types.dictionary.to_pylist()
        self._kind = self._types.indices.to_numpy()
        self._path = self._paths.indices.to_numpy()
        self._has_items = "iteration_started" in self._kinds

    def __len__(self) -> int:
        return len(self.sequences)

    def data(self) -> Any:
        """Return the column of event payloads: an array of dicts for a short log, a compressed `Payloads` array for a
        long one.
        """
        return self.payloads if len(self) > PACKED_EVENTS else np.asarray(self.payloads)

    def _text_column(self, texts: Any) -> Any:
        """Convert an Arrow array of strings to a pandas string column."""
        if texts.null_count == len(texts):
            texts = self._nothing
        elif isinstance(texts, pa.DictionaryArray):
            texts = texts.dictionary.cast(pa.large_string()).take(texts.indices)
        dtype: Any = pd.StringDtype(na_value=np.nan)
        return dtype.__from_arrow__(texts)

    @cached_property
    def _nothing(self) -> Any:
        """String array in which every value is missing, as long as the table. All text columns without values use this
        one array, to save memory.
        """
        return pa.nulls(len(self), pa.large_string())

    def _are(self, *kinds: str) -> Numbers:
        """Return a boolean array with one element per event: True if the type of the event is one of `kinds`."""
        # Each of the few types is compared once; the index of each event selects the result.
        matches: Numbers = np.array([kind in kinds for kind in self._kinds], dtype=bool)[self._kind]
        return matches

    # --- subjects of events: the row in which the subject started, or NONE -------------------------------------------

    @cached_property
    def _operation(self) -> Numbers:
        """Integers, one for each event, that stand for operations: events of the same operation have equal integers.
        The value is `NONE` for an event without an operation.
        """
        if self._texts["operation_id"].null_count == len(self):
            return none(len(self))
        coded = self._texts["operation_id"].dictionary_encode()
        numbers: Numbers = (
            pa.chunked_array([part.indices for part in coded.chunks], pa.int32()).fill_null(NONE).to_numpy()
        )
        return numbers

    @cached_property
    def _call(self) -> Numbers:
        """Row numbers, one for each event: the row in which the operation of the event first started. The value is
        `NONE` for an event without an operation, or before that start.
        """
        # Backwards, so that of several starts of an operation the first one is written last, and stays.
        starts = np.flatnonzero(self._are("operation_started"))[::-1]
        first = np.full(self._operation.max(initial=NONE) + 2, len(self), dtype=ROW)  # the last stands for NONE
        first[self._operation[starts]] = starts
        # Events without an operation have the index NONE (-1), which is the last element.
        first[NONE] = len(self)
        row = first[self._operation]
        # An event before the start of its operation (a question, in a log that was cut) does not belong to it.
        return np.where(row <= self._rows, row, NONE)

    @cached_property
    def _step(self) -> Numbers:
        """Row numbers, one for each event: the row in which the current step of the event's path started. The value is
        `NONE` if the path has not started a step by then.
        """
        # A caught failure ends the step of its path: later events of the path belong to no step until the next one
        # starts.
        row = latest(self._path, self._are("step_started", "step_caught"))
        return np.where((row >= 0) & self._are("step_started")[row], row, NONE)

    @cached_property
    def _item_key(self) -> Numbers:
        """Integers, one for each event, that stand for items: events with the same path and item index have equal
        integers. The value is `NONE` for an event without an item index.
        """
        index, has_index = self._numbers["iteration_index"]
        if not has_index.any():
            return none(len(self))
        keys = np.full(len(self), NONE, dtype=ROW)
        # Pairs of path and item index become numbers: (0, 4), (0, 5), (1, 4) -> 0, 1, 2.
        places = np.stack([self._path[has_index], index[has_index]])
        keys[has_index] = np.unique(places, axis=1, return_inverse=True)[1].reshape(-1)
        return keys

    @cached_property
    def _item_start(self) -> Numbers:
        """Row numbers, one for each event: the row in which the item of the event started last. An item is identified
        by its path and index.
        """
        row = latest(self._item_key, self._are("iteration_started"))
        return np.where(self._item_key == NONE, NONE, row) if self._has_items else row

    @cached_property
    def _item_times(self) -> tuple[Numbers, Numbers]:
        """Two arrays, with one number for each event that starts an item of `Each`. The first one has the row in which
        the same item first started. The second one has how often the item has started so far.

        The starts are sorted by item key. Consecutive starts belong to the same item if key, step and visit are equal.
        """
        if not self._has_items:
            return none(len(self)), none(len(self))
        starts = np.flatnonzero(self._are("iteration_started"))
        # The sort is stable, so that the starts of one item stay in their order.
        starts = starts[np.argsort(self._item_key[starts], kind="stable")]
        visits, has_visit = self._numbers["visit"]
        visit = np.where((self._step >= 0) & has_visit[self._step], visits[self._step], 1)
        # `same[i]`: start i + 1 belongs to the same item as start i.
        same = np.ones(len(starts) - 1, dtype=bool)
        for column in (self._item_key, self._steps.indices.to_numpy(), visit):
            same &= column[starts[1:]] == column[starts[:-1]]
        place = np.arange(len(starts))
        # For each start, the place of the first start of its item. Example: same = [T, F, T] gives head = 0 0 2 2.
        head = np.maximum.accumulate(np.where(np.concatenate([[True], ~same]), place, 0))
        first = np.full(len(self), NONE)
        time = np.zeros(len(self), dtype=np.int64)
        first[starts] = starts[head]
        time[starts] = place - head + 1
        return first, time

    def _item_of(self, rows: Numbers) -> Numbers:
        """Return for each row in `rows` the number of the row in which its item first started. The result is an array,
        with `NONE` for a row without an item.
        """
        if not self._has_items:
            return none(len(rows))
        # From the latest start of the item to its first one, which identifies it.
        starts = np.where(rows == NONE, NONE, self._item_start[rows])
        return np.where(starts == NONE, NONE, self._item_times[0][starts])

    @cached_property
    def _is_of_item(self) -> Numbers:
        has_index = self._numbers["iteration_index"][1]
        # The event of an operation inside an item is about the operation, and a `step_failed` about the step.
        matches: Numbers = has_index & ~self._are("step_failed") & (self._call == NONE)
        return matches

    @cached_property
    def _item(self) -> Numbers:
        """Row numbers, one for each event: the row in which the item of the event first started. The value is `NONE`
        for an event that is not about an item.
        """
        return self._item_of(np.where(self._is_of_item, self._rows, NONE))

    @cached_property
    def _visit(self) -> Numbers:
        """For each event, the number of the row in which its step started. The number is `NONE` for events about an
        operation or an item, which have rows of their own.
        """
        has_step = coded_are(self._steps, lambda name: name != "")
        return np.where((self._call == NONE) & ~self._is_of_item & has_step, self._step, NONE)

    # --- columns -----------------------------------------------------------------------------------------------------

    def types(self) -> Any:
        """Return the column with the type of each event."""
        return self._text_column(self._types)

    def paths(self) -> Any:
        """Return the column with the path id of each event; missing for events without a path."""
        return self._text_column(or_missing(self._paths))

    def steps(self) -> Any:
        """Return the column with the step name of each event; missing for events without a step."""
        return self._text_column(or_missing(self._steps))

    def payload_texts(self, name: str) -> Any:
        """Return the values of one text field of the event payloads as a column of the DataFrame."""
        return self._text_column(self._texts[name] if name in self._texts else self._names[name])

    def parameter_texts(self, name: str) -> Any:
        """Return a column with one parameter of operations. An event that belongs to an operation has the value with
        which the operation started; other events have a missing value.
        """
        return self._text_column(taken_rows(self._names[name], self._call))

    def names(self) -> Any:
        """Return the column with the name of the function or agent that the event's operation calls, or the name of an
        event that a user emitted.
        """
        names = self._names["name"]
        has_name = coded_are(names, bool)
        # An event of a user has a name of its own; the events of an operation have the name with which it started.
        return self._text_column(taken_rows(names, np.where(has_name, self._rows, self._call)))

    def iterations(self) -> Any:
        """Return the column with the index of the item of `Each` to which each event belongs."""
        index, has_index = self._numbers["iteration_index"]
        of_call = self._call != NONE
        # The index is in the event that started the operation, and not in its later events.
        place = np.where(of_call, self._call, self._rows)
        return whole(index[place], has_index[place] & (of_call | (self._visit == NONE)))

    def items(self) -> Any:
        """Return the column with the item of `Each` to which each event belongs. Each item is decoded only once."""
        # An operation belongs to the item in which it started.
        of_call = np.where(self._call == NONE, NONE, self._item_of(self._call))
        starts = np.where(self._item == NONE, of_call, self._item)
        values = np.full(len(self), None, dtype=object)
        # Many events share few items, so that each item is decoded once and then distributed.
        rows, place = np.unique(starts[starts >= 0], return_inverse=True)
        items = np.empty(len(rows), dtype=object)
        for number, row in enumerate(rows.tolist()):
            items[number] = self.payloads[row].get("item")
        values[starts >= 0] = items[place]
        return values

    def attempts(self) -> Any:
        """Return the column with attempt numbers: how often the call, item or step that an event is about has started
        so far.
        """
        starts = self._are("operation_started")
        retried = self._are("step_retried")
        index = self._numbers["iteration_index"][1]
        # Starts of the operation so far, and the attempts with other ids before it.
        of_calls = running_count(self._operation, starts) + self._retries_before_calls(starts, retried)[self._call]
        # Starts of the item so far, and its retries since then.
        of_items = self._item_times[1][self._item_start] + since(self._item_key, retried & index, self._item)
        # Retries of the step itself (without an item index), and its starts after resumptions.
        of_steps = 1 + since(self._path, retried & ~index, self._step) + self._resumptions()
        # The first subject that an event has counts, as in `Spans.subject`.
        subjects = [self._call != NONE, self._item != NONE, self._visit != NONE]
        return whole(np.select(subjects, [of_calls, of_items, of_steps], 0), np.logical_or.reduce(subjects))

    def _retries_before_calls(self, starts: Numbers, retried: Numbers) -> Numbers:
        """Return an array of counts. For each event that starts an operation, it has the number of earlier attempts at
        this operation that failed.

        Only paths with retries are read event by event. `open_` counts the failed attempts in the current step of each
        path by item, or by key of the call.
        """
        failed = np.zeros(len(self), dtype=np.int64)
        # This loop decodes payloads, so that paths without a retry are skipped: usually all.
        concerned = np.isin(self._path, self._path[retried])
        relevant = concerned & (starts | retried | self._are("step_started"))
        open_: dict[int, dict[Any, int]] = {}
        for row in np.flatnonzero(relevant).tolist():
            path = int(self._path[row])
            kind = self._kinds[self._kind[row]]
            if kind == "step_started":
                open_[path] = {}
            elif kind == "step_retried":
                data = self.payloads[row]
                slot = data.get("key")
                open_.setdefault(path, {})[data.get("iteration_index") if slot is None else slot] = data["attempt"]
            elif open_.get(path) and self._call[row] == row:
                data = self.payloads[row]
                key = data.get("key")
                index = data.get("iteration_index")
                attempts = open_[path]
                # The same rule as in `Spans._operation_started`: "fetch@2" -> "fetch".
                slot = key.partition("@")[0] if isinstance(key, str) else index
                failed[row] = attempts.get(slot, attempts.get(index, 0))
        return failed

    def _resumptions(self) -> Numbers:
        """Return an array of counts. For each event, it has how often the current step of the event's path was
        restarted by a resumption of the execution.

        Only the events that start, end or resume steps are read. `current` has the state of the current step of each
        path. If a resumption restarts a step, the count increases for all later rows of that step.
        """
        times = np.zeros(len(self), dtype=np.int64)
        if "execution_resumed" not in self._kinds:
            return times
        current: dict[int, _Step] = {}
        # Only these few events are visited one by one.
        for row in np.flatnonzero(self._are(*_CHANGING, *_STOPPING, "execution_resumed")).tolist():
            path = int(self._path[row])
            kind = self._kinds[self._kind[row]]
            if kind == "step_started":
                current[path] = _Step(row)
            elif kind == "step_caught":
                current.pop(path, None)
            elif kind == "execution_resumed":
                # A resumption continues all paths, and has no path of its own.
                for step in current.values():
                    if step.update_after_resume():
                        # All later rows of this visit have one attempt more.
                        times[row:][self._step[row:] == step.row] += 1
            else:
                # The end of the execution stops the steps of all paths.
                affected = list(current.values())
                if kind not in _STOPPING:
                    affected = [current[path]] if path in current else []
                for step in affected:
                    step.take(kind)
        return times

    def durations(self) -> Any:
        """Return the column of durations: for an event that ends an operation, item, step or path, the time since the
        start of that.
        """
        durations_us = np.full(len(self), np.timedelta64("NaT", "us"))
        # An operation records its own duration, in nanoseconds.
        ends = self._are("operation_completed", "operation_failed")
        durations_us[ends] = np.rint(self._numbers["duration"][0][ends] / 1000).astype("m8[us]")
        spans = [kind.rpartition("_") for kind in self._kinds]
        outer = np.array([subject in ("execution", "path") for subject, _, _ in spans], dtype=bool)[self._kind]
        ended = np.array([change in _ENDS for _, _, change in spans], dtype=bool)[self._kind]
        # Other events end an item or a visit, whose start has the time.
        starts = np.where(self._item == NONE, self._visit, self._item)
        inner = ended & ~outer & ~ends & (starts != NONE)
        durations_us[inner] = (self.recorded_at[inner] - self.recorded_at[starts[inner]]).astype("m8[us]")
        # The duration of a path or an execution reaches from its start event to its end event. Events of the execution
        # have an empty path, which has a number like all others.
        bounds = outer & (ended | np.array([change == "started" for _, _, change in spans], dtype=bool)[self._kind])
        first = np.full(len(self._paths.dictionary) + 1, NONE)
        # Backwards, so that the first event of each path remains.
        rows = np.flatnonzero(bounds)[::-1]
        first[self._path[rows]] = rows
        whole = outer & ended
        durations_us[whole] = (self.recorded_at[whole] - self.recorded_at[first[self._path[whole]]]).astype("m8[us]")
        return durations_us

    @cached_property
    def _usages(self) -> Mapping[int, Mapping[str, Any]]:
        """Consumption (tokens and cost) of operations. The keys are the numbers of the rows with the events that record
        the consumption.
        """
        completed = latest(self._operation, self._are("operation_completed"))
        usages: dict[int, Mapping[str, Any]] = {}
        ends = self._are("operation_completed", "operation_failed") & self._spent & (self._call != NONE)
        # `SPENT` only says that a payload has a usage; these few payloads are decoded.
        for row in np.flatnonzero(ends).tolist():
            usage = self.payloads[row]["usage"]
            # The price is part of the response and not of the usage.
            result = self.payloads[int(completed[row])].get("result") if completed[row] != NONE else None
            price = result.get("cost_nanodollars") if isinstance(result, dict) else None
            if usage:
                usages[row] = usage if price is None else {"cost": price, **usage}
        return usages

    @cached_property
    def _consumed(self) -> tuple[Numbers, Numbers]:
        """Two arrays about consumption (tokens and cost). The first one is True for each event that ends an operation
        whose consumption is known. The second one has, for each event, the number of the row that records this
        consumption.
        """
        has_usage = np.zeros(len(self), dtype=bool)
        has_usage[list(self._usages)] = True
        ends = self._are("operation_completed", "operation_failed") & (self._call != NONE)
        # An end without a usage has the consumption that an earlier end of the same operation recorded.
        rows = latest(self._operation, has_usage) if self._usages else np.full(len(self), NONE)
        return ends & (rows != NONE), rows

    def tokens(self, name: str) -> Any:
        """Return the column for one kind of tokens, such as ``input_tokens``. Only events that end an operation have a
        value.
        """
        which, rows = self._consumed
        counts = np.zeros(len(self), dtype=np.int64)
        counts[which] = [self._usages[row].get(name, 0) for row in rows[which].tolist()]
        return whole(counts, which)

    def costs(self) -> Numbers:
        """Return the column of costs in dollars. Only events that end an operation with a known price have a value."""
        which, rows = self._consumed
        costs = np.full(len(self), np.nan)
        prices = (self._usages[row].get("cost") for row in rows[which].tolist())
        costs[which] = [np.nan if cost is None else dollars(cost) for cost in prices]
        return costs


# --- fields of payloads that columns need, read by Arrow without a dict for each payload ------------------------------


TEXTS = ("operation_id", "error", "trace")
"""Texts that differ from event to event."""
NAMES = ("operation_type", "name")
"""Texts that repeat."""
NUMBERS = ("iteration_index", "duration", "visit")
LISTED = "error_names"
SPENT = "usage"
GIVEN = "parameters"
GIVEN_NAMES = ("agent", "model")
ERROR_TYPE = "error_type"
KINDS = {
    **dict.fromkeys(TEXTS, pa.large_string()),
    **dict.fromkeys((*NAMES, ERROR_TYPE, *GIVEN_NAMES), pa.dictionary(pa.int32(), pa.string())),
    **dict.fromkeys(NUMBERS, pa.int64()),
    SPENT: pa.bool_(),
}
"""The fields that are read from payloads, with the Arrow type of their column."""
_READ = {
    **dict.fromkeys(TEXTS, pa.large_string()),
    **dict.fromkeys(NAMES, pa.string()),
    **dict.fromkeys(NUMBERS, pa.int64()),
    LISTED: pa.list_(pa.string()),
    SPENT: pa.struct([]),
    GIVEN: pa.struct([(name, pa.string()) for name in GIVEN_NAMES]),
}
"""The same fields with the types that Arrow's JSON reader uses."""


def fields_of(page: EventPage) -> dict[str, Any]:
    """Extract from each event payload in a page the fields that the DataFrames need. Return one Arrow array per field,
    with null where a payload lacks the field.

    The fields are `TEXTS`, `NAMES`, `NUMBERS`, ``error_type`` (the first of the error's class names), ``usage`` (True
    if the payload has one), and `GIVEN_NAMES` of the parameters.

    Raises
    ------
    CorruptStoreError, NewerStoreError
        A payload cannot be read.
    """
    kinds = [PAYLOADS[kind] for kind in page.types.dictionary.to_pylist()]
    # A page without a type that has one of these fields is not parsed at all.
    fields_of_page = {name: kind for name, kind in _READ.items() if any(name in each.field_names for each in kinds)}
    if not fields_of_page:
        return {}
    columns = _read(page, fields_of_page)
    if columns is None:
        columns = _decoded(page)
    return {name: _as_column(values, KINDS[name]) for name, values in columns.items()}


def _as_column(values: Any, kind: Any) -> Any:
    return values.dictionary_encode() if pa.types.is_dictionary(kind) else values.cast(kind)


def _read(page: EventPage, kinds: Mapping[str, Any]) -> dict[str, Any] | None:
    """Parse the fields of all event payloads in a page with one call of Arrow's JSON reader. Return None if this is
    impossible, because a payload has an outdated format or an unexpected type.
    """
    lines = page.lines()
    parse = json.ParseOptions(
        explicit_schema=pa.schema([*kinds.items(), (FORM, pa.int64())]), unexpected_field_behavior="ignore"
    )
    try:
        # One block, because a payload must not be split between two blocks, and therefore no threads.
        options = json.ReadOptions(block_size=lines.size + 1, use_threads=False)
        table = json.read_json(pa.BufferReader(lines), options, parse)
    except pa.ArrowInvalid:
        return None
    # A line could hold several values, and a payload with `FORM` has an older form: both are read by `_decoded`.
    if len(table) != len(page.types) or table[FORM].null_count < len(table):
        return None
    columns = {name: _declared(page, name, table[name].combine_chunks()) for name in kinds}
    if LISTED in columns:
        columns[ERROR_TYPE] = _first(columns.pop(LISTED))
    if GIVEN in columns:
        parameters = columns.pop(GIVEN)
        columns |= {name: pc.struct_field(parameters, name) for name in GIVEN_NAMES}
    if SPENT in columns:
        # An empty struct type: only whether the field is there matters.
        columns[SPENT] = columns[SPENT].is_valid()
    return columns


def _declared(page: EventPage, name: str, values: Any) -> Any:
    """Remove the values of a payload field from events whose type does not declare the field, because they have another
    meaning there. For other events without a value, insert the default of their own type.
    """
    # The same name has another meaning in another type: `name` of an operation, and of an event of a user.
    kinds = [PAYLOADS[kind] for kind in page.types.dictionary.to_pylist()]
    has = np.array([name in kind.field_names for kind in kinds], dtype=bool)[page.types.indices]
    if values.null_count < len(values) and not has.all():
        foreign = values.is_valid().to_numpy(zero_copy_only=False) & ~has
        if foreign.any():
            values = pc.if_else(pa.array(~foreign), values, pa.scalar(None, values.type))
    # Fields with their default are not in the payload.
    for number, kind in enumerate(kinds):
        default = next((entry.default for entry in fields(kind) if entry.name == name), None)
        if default is not None and default is not MISSING:
            unsaid = (page.types.indices.to_numpy() == number) & values.is_null().to_numpy(zero_copy_only=False)
            if unsaid.any():
                values = pc.if_else(pa.array(unsaid), pa.scalar(default, values.type), values)
    return values


def _first(lists: Any) -> Any:
    """Return an array with the first element of each list in an Arrow array of lists; null for an empty list."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    if not lengths.any():
        return pa.nulls(len(lists), pa.string())
    # In the flattened array, the first element of each list is at the sum of the lengths before it.
    begins = np.cumsum(lengths) - lengths
    return lists.flatten().take(pa.array(begins, mask=lengths == 0))


def _decoded(page: EventPage) -> dict[str, Any]:
    """Return the same payload fields as `_read`, but decode each payload separately. This is slower, but it also reads
    payloads in outdated formats.
    """
    payloads = zip(page.types.to_pylist(), page.payloads.to_pylist(), strict=True)
    payload_data: list[Mapping[str, Any]] = [decode_payload(kind, raw).to_data() for kind, raw in payloads]
    parameters = [each.get(GIVEN) or {} for each in payload_data]
    return {
        **{
            name: pa.array([each.get(name) for each in payload_data], _READ[name])
            for name in (*TEXTS, *NAMES, *NUMBERS)
        },
        ERROR_TYPE: pa.array([next(iter(each.get(LISTED) or ()), None) for each in payload_data], pa.string()),
        SPENT: pa.array([SPENT in each for each in payload_data]),
        # Of actions these may be anything: texts, as a column of texts makes of it.
        **{
            name: pa.array(pd.Series([each.get(name) for each in parameters], dtype="str"), pa.string())
            for name in GIVEN_NAMES
        },
    }


# --- a column of payloads that are decoded on access ------------------------------------------------------------------
#
# Compressed payloads of a long log need little memory. For pandas the column is an extension array of dicts.
# ``frame["data"].astype(object)`` converts it to an array of numpy.


_CODEC = "lz4"
_MISSING = -1
_MARKS = (TAGGED, f'"{FORM}":'.encode())
"""Bytes in payloads whose decoded form differs from the stored one."""


class PayloadDtype(ExtensionDtype):
    """Pandas dtype of a column of event payloads (dicts)."""

    name = "payload"
    type: ClassVar[Any] = object
    na_value = None

    @classmethod
    def construct_array_type(cls) -> Any:
        """Return the class of pandas arrays (`Payloads`) that hold values of this dtype."""
        return Payloads


@dataclass(frozen=True, slots=True)
class PackedPayloads:
    """Compressed event payloads of one page (a consecutive part) of a log."""

    types: Any
    begins: Numbers
    content: bytes

    @classmethod
    def of(cls, page: EventPage) -> PackedPayloads:
        """Return the event payloads of one page in compressed form."""
        begins = places_of(page.payloads)
        # Positions count from the beginning of the page, whose content may be a slice of a larger buffer.
        return cls(page.types, begins - begins[0], pa.compress(content_of(page.payloads), codec=_CODEC, asbytes=True))

    @property
    def count(self) -> int:
        """Number of event payloads in the page."""
        return len(self.types)

    def texts(self) -> Any:
        """Return the payloads as an Arrow array of JSON texts, as they are stored. A payload in an outdated format is
        decoded and converted to JSON again.
        """
        # Arrow arrays of variable length are an array of offsets and one of bytes, so that no text is copied.
        places = pa.py_buffer(self.begins.astype(np.int64))
        content = self._content()
        texts = pa.LargeBinaryArray.from_buffers(pa.large_binary(), self.count, [None, places, pa.py_buffer(content)])
        # Most pages have no such payload, and a search in the bytes of the page is quicker than one in each text.
        if any(mark in content for mark in _MARKS):
            has_other_form = pc.or_(*[pc.match_substring(texts, mark) for mark in _MARKS])
            decoded = self.opened()
            decoded_texts = [encode_shown(decoded(place)) for place in np.flatnonzero(has_other_form).tolist()]
            texts = pc.replace_with_mask(texts, has_other_form, pa.array(decoded_texts, pa.large_binary()))
        return texts.cast(pa.large_string())

    def _content(self) -> bytes:
        content: bytes = pa.decompress(self.content, int(self.begins[-1]), codec=_CODEC, asbytes=True)
        return content

    def opened(self) -> Callable[[int], Any]:
        """Return a function that decodes the payload at an index of the page. The page is decompressed once, before the
        function is returned.
        """
        content = self._content()
        types = self.types.to_pylist()

        def decoded(place: int) -> dict[str, Any]:
            raw = content[self.begins[place] : self.begins[place + 1]]
            return decode_payload(types[place], raw).to_data()

        return decoded


@dataclass(frozen=True, slots=True)
class _Values:
    """Event payloads that a user has assigned to cells of a payload column. They replace the recorded payloads in that
    DataFrame, not in the log.
    """

    values: Sequence[Any]

    @property
    def count(self) -> int:
        return len(self.values)

    def opened(self) -> Callable[[int], Any]:
        return self.values.__getitem__


class PayloadSource:
    """Storage for the event payloads of a DataFrame column. If a part of the column is copied to a new column, both use
    the same storage.
    """

    def __init__(self, parts: Sequence[PackedPayloads | _Values]) -> None:
        self.parts = tuple(parts)
        self._ends = np.cumsum([part.count for part in parts], dtype=np.int64)
        # The part that was read last, decompressed. Rows are usually read in order, so that each part is decompressed
        # once.
        self._open: tuple[int, Callable[[int], Any]] | None = None

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, place: int) -> Any:
        number = int(np.searchsorted(self._ends, place, side="right"))
        opened_part = self._open
        if opened_part is None or opened_part[0] != number:
            self._open = opened_part = number, self.parts[number].opened()
        # `_ends[number] - count` is the place where the part begins.
        return opened_part[1](place - int(self._ends[number]) + self.parts[number].count)

    def __reduce__(self) -> Any:
        # An open part is a function, which cannot be pickled; it is opened again when needed.
        return PayloadSource, (self.parts,)


class Payloads(ExtensionArray):
    """Pandas extension array of event payloads: dicts that are decoded on each access.

    Parameters
    ----------
    source
        Storage that returns the value at an index.
    places
        The index of each value in `source`; -1 for a missing value.
    """

    def __init__(self, source: PayloadSource, places: Numbers) -> None:
        self.source = source
        self.places = places

    @classmethod
    def of(cls, parts: Sequence[PackedPayloads]) -> Payloads:
        """Join the compressed payloads of all pages of a log to one array."""
        source = PayloadSource(parts)
        return cls(source, np.arange(len(source)))

    # --- interface of pandas' extension arrays ---------------------------------------------------------------------

    dtype = PayloadDtype()

    @classmethod
    def _from_sequence(cls, scalars: Iterable[Any], *, dtype: Any = None, copy: bool = False) -> Payloads:  # noqa: ARG003 - pandas' own
        values = list(scalars)
        return cls(PayloadSource([_Values(values)]), np.arange(len(values)))

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[Payloads]) -> Payloads:
        parts: list[PackedPayloads | _Values] = []
        places = []
        length = 0
        for each in to_concat:
            # Sources are put one behind the other, so that places of later ones move up.
            places.append(np.where(each.places == _MISSING, _MISSING, each.places + length))
            parts += each.source.parts
            length += len(each.source)
        return cls(PayloadSource(parts), np.concatenate(places) if places else np.arange(0))

    def texts(self) -> Any:
        """Return the payloads as an Arrow array of JSON texts, without creating a dict for each payload."""
        whole = [part for part in self.source.parts if isinstance(part, PackedPayloads)]
        # The whole column in its original order: texts are taken as they are stored.
        if len(whole) == len(self.source.parts) and np.array_equal(self.places, np.arange(len(self.source))):
            return pa.chunked_array([part.texts() for part in whole], pa.large_string())
        return pa.array([None if each is None else encode_shown(each).decode() for each in self], pa.large_string())

    @property
    def nbytes(self) -> int:
        """Size of the compressed payloads and of the indexes, in bytes."""
        packed = [part for part in self.source.parts if isinstance(part, PackedPayloads)]
        return int(self.places.nbytes + sum(len(part.content) + part.begins.nbytes for part in packed))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, int | np.integer):
            return self._at(int(self.places[item]))
        return Payloads(self.source, self.places[check_array_indexer(self, item)])

    def _at(self, place: int) -> Any:
        return None if place == _MISSING else self.source[place]

    def __setitem__(self, key: Any, value: Any) -> None:
        places = self.places[check_array_indexer(self, key)]
        # One payload for all selected rows, or one for each.
        alone = isinstance(value, dict) or value is None or np.ndim(places) == 0
        values = [value] if alone else list(value)
        begins = len(self.source)
        # New payloads are added to a new source, because other columns may share the present one.
        self.source = PayloadSource([*self.source.parts, _Values(values)])
        self.places[check_array_indexer(self, key)] = begins if alone else begins + np.arange(len(values))

    def __iter__(self) -> Any:
        return map(self._at, self.places.tolist())

    __hash__ = None  # type: ignore[assignment]  # as of every array

    def __eq__(self, other: object) -> Any:
        values = other if isinstance(other, Payloads | np.ndarray | list | pd.Series) else [other] * len(self)
        return np.array([value == expected for value, expected in zip(self, values, strict=True)], dtype=bool)

    def isna(self) -> Any:
        """Return a boolean array that is True for each missing payload, without decoding the others."""
        return self.places == _MISSING

    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> Payloads:
        """Return the payloads at some indexes as a new array. With `allow_fill`, the index -1 stands for a missing
        value.
        """
        rows = np.asarray(indices, dtype=np.int64)
        if not allow_fill:
            return Payloads(self.source, self.places.take(rows))
        if (rows < _MISSING).any():
            raise ValueError(f"places must not be below -1, got {rows.min()}")
        if not pd.isna(fill_value):
            raise ValueError(f"missing values in a column of payloads are None; fill_value cannot be {fill_value!r}")
        # The index -1 would take the last element; 0 is taken in its place and replaced below.
        places = self.places.take(np.maximum(rows, 0)) if len(self) else np.full(len(rows), _MISSING)
        return Payloads(self.source, np.where(rows == _MISSING, _MISSING, places))

    def copy(self) -> Payloads:
        """Return a copy of the array that shares the compressed payloads with it."""
        return Payloads(self.source, self.places.copy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:  # noqa: FBT001 - numpy's own
        values = np.empty(len(self), dtype=object)
        values[:] = list(self)
        return values

    def __arrow_array__(self, type: Any = None) -> Any:
        return pa.array(list(self), type)

    def _formatter(self, boxed: bool = False) -> Callable[[Any], str]:  # noqa: FBT001, FBT002 - pandas' own
        return pprint_thing if boxed else repr


# --- a log as columns: the subjects of all events, computed at once ---------------------------------------------------
#
# The result for each event equals that of `divebook.projections.spans.Spans.subject`, which works event by event.
# tests/analysis/test_event_table.py compares both.
#
# The subject of an event (an operation, an item or a step) is identified by the row of the event that started it. For
# example, for the rows 0 step_started, 1 iteration_started (index 0), 2 operation_started (op), 3 operation_completed
# (op), 4 iteration_completed (index 0), 5 step_completed, the columns are: operation -1 -1 2 2 -1 -1, item -1 1 -1 -1 1
# -1, step 0 -1 -1 -1 -1 0. Values of the starting event are then taken by row.


PACKED_EVENTS = 10_000
"""Events above which payloads are decoded on access.

Their dicts would take several times as long as all other columns, and gigabytes for a million events.
"""
_ENDS = ("completed", "failed", "cancelled")
_CHANGING = ("step_started", "step_completed", "step_failed", "step_caught", "path_failed", "path_cancelled")
_STOPPING = ("execution_completed", "execution_failed", "execution_cancelled")
_RUNS = "running"
_STOPPED = "stopped"
_DONE = "completed"


@dataclass
class _Step:
    """Status of the step in which a path currently is. It is needed to count how often a resumption has restarted the
    step.
    """

    row: int
    status: str = _RUNS
    has_output: bool = False

    def take(self, kind: str) -> None:
        """Update the status of the step after a later event of the same path; `kind` is the type of that event."""
        if kind == "step_completed":
            self.status = _DONE
            self.has_output = True
        elif kind == "step_failed" or self.status == _RUNS:
            self.status = _STOPPED

    def update_after_resume(self) -> bool:
        """Update the status of the step after the execution was resumed. Return True if the step starts again, because
        it had stopped without output.
        """
        again = self.status == _STOPPED and not self.has_output
        if self.status == _STOPPED:
            self.status = _RUNS if again else _DONE
        return again


def _with_fields(pages: Iterable[EventPage]) -> Iterator[tuple[EventPage, dict[str, Any]]]:
    """Yield each page of events with the fields of its payloads. A separate thread extracts the fields while the store
    reads the next page.
    """
    pages = iter(pages)
    first = [*islice(pages, 2)]
    if len(first) < 2:  # most logs: a thread for one page takes longer than it spares
        yield from ((page, fields_of(page)) for page in first)
        return
    latest: tuple[EventPage, Future[dict[str, Any]]] | None = None
    with ThreadPoolExecutor(1, "divebook-fields") as reader:
        for page in chain(first, pages):
            if latest is not None:
                yield latest[0], latest[1].result()
            latest = page, reader.submit(fields_of, page)
    if latest is not None:
        yield latest[0], latest[1].result()


FAILED: Columns = {
    "error_type": Column(TEXT, "class of the error"),
    "error": Column(TEXT, "error message"),
    "traceback": Column(TEXT, "place of the error in user code", "trace"),
}


def _payload_texts(name: str) -> Callable[[EventTable], Any]:
    return lambda table: table.payload_texts(name)


def _consumed(name: str) -> Callable[[EventTable], Any]:
    return lambda table: table.costs() if name == "cost" else table.tokens(name)


EVENT_COLUMNS: Columns = {
    "sequence": Column(COUNT, "number of the event: 1, 2, 3 ... without gaps", lambda table: table.sequences),
    "timestamp": Column(MOMENT, "time of the recording", lambda table: utc(table.recorded_at)),
    "type": Column(TEXT, "``step_started``, ``operation_completed`` ...", EventTable.types),
    "name": Column(TEXT, "name of the called function, or of a custom event", EventTable.names),
    "path": Column(TEXT, "path, such as ``main-1-2``", EventTable.paths),
    "step": Column(TEXT, "step of the workflow", EventTable.steps),
    "iteration": Column(NUMBER, "index of the item of `Each`", EventTable.iterations),
    "item": Column(ANYTHING, "item", EventTable.items),
    "operation_id": Column(TEXT, "id of the operation", _payload_texts("operation_id")),
    "operation_type": Column(TEXT, "``agent_response``, ``action_execution`` ...", _payload_texts("operation_type")),
    "agent": Column(TEXT, "agent of a model call", lambda table: table.parameter_texts("agent")),
    "model": Column(TEXT, "model that was called", lambda table: table.parameter_texts("model")),
    "attempts": Column(NUMBER, "number of attempts at the step or call so far", EventTable.attempts),
    "duration": Column(
        SPAN, "for ``*_completed``, ``*_failed``, ``*_cancelled``: time since the start", EventTable.durations
    ),
    **{name: column._replace(value=_consumed(name)) for name, column in CONSUMED.items()},
    "error_type": Column(TEXT, "class of the error of an operation", _payload_texts("error_type")),
    "error": Column(TEXT, "error message", _payload_texts("error")),
    "traceback": Column(TEXT, "place of the error in user code", _payload_texts("trace")),
    "data": Column(ANYTHING, "payload of the event, a dict", EventTable.data),
}


@documented(EVENT_COLUMNS)
def events_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per event, oldest first.

    Tokens and costs are in the rows that end model calls, so that they can be summed.

    The frame is built column by column. For a history (`Run.history`), no event objects are created. Above 10,000
    events the column `data` has the dtype `payload`: its dicts are decoded on access, and
    ``frame["data"].astype(object)`` decodes all of them.
    """
    return frame_of_table(
        EVENT_COLUMNS, EventTable(events.pages() if isinstance(events, History) else [EventPage.of([*events])])
    )


OPERATION_COLUMNS: Columns = {
    "operation_id": Column(TEXT, "id of the operation: equal for the same place in every execution of the workflow"),
    "type": Column(TEXT, "``agent_response``, ``action_execution``, ``script_execution`` ..."),
    "name": Column(TEXT, "name of the called action, agent, signal ...", "called"),
    "agent": Column(TEXT, "agent of a model call"),
    "model": Column(TEXT, "model that was called"),
    "path": Column(TEXT, "path"),
    "step": Column(TEXT, "step"),
    "visit": Column(COUNT, "number of the path's visit to the step, from 1"),
    "iteration": Column(NUMBER, "index of the item of `Each`"),
    "item": Column(ANYTHING, "item"),
    "status": Column(
        TEXT, "``running``, ``completed``, ``failed``, ``cancelled``; ``waiting``: a person is asked for the outcome"
    ),
    "attempts": Column(COUNT, "number of the attempt; each recorded attempt has a row"),
    **TIMES,
    **CONSUMED,
    **FAILED,
    "parameters": Column(
        ANYTHING,
        "parameters of the operation, a dict",
        lambda span: None if span.parameters is None else dict(span.parameters),
    ),
    "result": Column(ANYTHING, "result of the operation"),
}


@documented(OPERATION_COLUMNS)
def operations_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per operation (model call, action, script ...), in the order in which they started.

    Pauses before further attempts are omitted: `attempts` counts the attempts, and the events contain the pauses.
    """
    return frame(
        OPERATION_COLUMNS, (span for span in spans_of(events) if span.kind == "operation" and not span.is_pause)
    )


ITEM_COLUMNS: Columns = {
    "step": Column(TEXT, "step"),
    "path": Column(TEXT, "path"),
    "visit": Column(COUNT, "number of the path's visit to the step, from 1"),
    "iteration": Column(COUNT, "index of the item"),
    "key": Column(TEXT, "key of the item, if the items of `Each` are a mapping", "item_key"),
    "item": Column(ANYTHING, "item"),
    "status": Column(TEXT, "``running``, ``completed``, ``failed``, ``cancelled``"),
    "attempts": Column(COUNT, "number of starts"),
    **TIMES,
    **CONSUMED,
    **FAILED,
    "result": Column(ANYTHING, "result"),
}


@documented(ITEM_COLUMNS)
def items_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per item of `Each`, in the order in which the items started."""
    return frame(ITEM_COLUMNS, (span for span in spans_of(events) if span.kind == "item"))


STEP_COLUMNS: Columns = {
    "step": Column(TEXT, "name of the step"),
    "type": Column(TEXT, "``prompt``, ``action``, ``script``, ``wait`` ..."),
    "agent": Column(TEXT, "agent of the first model call"),
    "model": Column(TEXT, "model of the first model call"),
    "path": Column(TEXT, "path that entered the step"),
    "visit": Column(COUNT, "number of the path's visit to the step, from 1"),
    "status": Column(TEXT, "``running``, ``completed``, ``failed``, ``cancelled``"),
    "attempts": Column(COUNT, "number of starts"),
    "items": Column(COUNT, "number of completed items of `Each`"),
    **TIMES,
    **CONSUMED,
    "output": Column(TEXT, "result as text", "result"),
    **FAILED,
    "error": Column(TEXT, "reason of the failure or cancellation"),
}


@documented(STEP_COLUMNS)
def steps_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per visit to a step, in the order in which the visits started."""
    return frame(STEP_COLUMNS, (span for span in spans_of(events) if span.kind == "step"))


PATH_COLUMNS: Columns = {
    "path": Column(TEXT, "id of the path", "id"),
    "parent": Column(TEXT, "id of the path from which it branched off"),
    "status": Column(TEXT, "``running``, ``completed``, ``failed``, ``cancelled`` ..."),
    "step": Column(TEXT, "current or last step", "current_step"),
    **TIMES,
    "error": Column(TEXT, "reason of the failure or cancellation"),
}


@documented(PATH_COLUMNS)
def paths_frame(paths: Iterable[PathState]) -> pd.DataFrame:
    """Return one row per path of an execution."""
    return frame(PATH_COLUMNS, paths)


# --- frames as Arrow tables for DuckDB, polars and other libraries: a fixed type for each dtype -----------------------
#
# A column of arbitrary values (`ANYTHING`) becomes a column of JSON texts. Dates and bytes are texts, and frames and
# similar values are short descriptions. The JSON of events is that of the log, without a dict for each event.


TYPES: Mapping[str, Any] = {
    TEXT: pa.large_string(),
    COUNT: pa.int64(),
    NUMBER: pa.int64(),
    ANYTHING: pa.large_string(),
    MOMENT: pa.timestamp("us", "UTC"),
    SPAN: pa.duration("us"),
    MONEY: pa.float64(),
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "Int64": pa.int64(),
    "Float64": pa.float64(),
}
"""Arrow type by dtype of a column."""
ID = pa.field("execution_id", TYPES[TEXT])


def schema_of(columns: Columns) -> Any:
    """Return the Arrow schema (names and types of columns) for a DataFrame that has the given columns."""
    return pa.schema([(name, TYPES[column.dtype]) for name, column in columns.items()])


def table_of(frame: pd.DataFrame, schema: Any = None) -> Any:
    """Convert a DataFrame to an Arrow table. Without a schema, the dtypes of the DataFrame determine the types."""
    fields_of_table = schema or pa.schema([(name, TYPES[str(frame[name].dtype)]) for name in frame])
    return pa.table([_column(frame[field.name], field.type) for field in fields_of_table], schema=fields_of_table)


def events_table(columns: Columns, table: EventTable, schema: Any) -> Any:
    """Return the events of a log as an Arrow table, without a DataFrame in between."""
    # For a short log, making a DataFrame would take as long as everything else.
    arrays = [
        table.payloads.texts()
        if name == "data"
        else _column(whole_column(column, name, table), schema.field(name).type)
        for name, column in columns.items()
    ]
    return pa.table(arrays, schema=schema)


def with_execution_id(execution_id: str, table: Any) -> Any:
    """Return a copy of an Arrow table with an additional first column `execution_id`, which has the same id in all
    rows.
    """
    # One text and a repeated index, so that the id is stored once until the cast.
    ids = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), len(table)), pa.array([execution_id]))
    return table.add_column(0, ID, ids.cast(ID.type))


def _column(values: Any, kind: Any) -> Any:
    """Convert an array or a Series to an Arrow array of the given type."""
    if values.dtype == "object":
        return _json(values)
    if isinstance(values, pd.Series) and isinstance(values.array, Payloads):
        return values.array.texts()
    array = pa.array(values, from_pandas=True)
    return array if array.type == kind else array.cast(kind)


def _json(values: Iterable[Any]) -> Any:
    return pa.array([None if value is None else _text_of(value) for value in values], TYPES[ANYTHING])


def _text_of(value: Any) -> str:
    """Return a value as JSON text. If the value contains an object that cannot be recorded, return its ``str`` as a
    JSON string.
    """
    try:
        return encode_shown(normalize(value)).decode()
    except UnstorableValueError:
        return json_json.dumps(str(value))
