"""A log as a table: what the rows of a frame of events are, worked out for all of them at once.

It says for columns what `divebook.history.spans.Spans.subject` says event by event; tests/analysis/test_event_table.py
holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from divebook.analysis.fields import ERROR_TYPE, GIVEN_NAMES, KINDS, NAMES, NUMBERS, SPENT, TEXTS, fields_of
from divebook.analysis.grouped import NONE, ROW, counted, latest, none, since
from divebook.analysis.parts import chunked, coded, coded_are, flags, joined, known_numbers, or_missing, taken, whole
from divebook.analysis.payloads import PackedPayloads, Payloads
from divebook.engine.bounds import NANODOLLARS
from divebook.store.pages import EventPage, Numbers

PACKED_EVENTS = 10_000
"""Events above which the payloads of a log are decoded when they are looked at: their dicts would take several times as
long as all other columns, and those of a million events gigabytes."""
_ENDS = ("completed", "failed", "cancelled")
_CHANGING = ("step_started", "step_completed", "step_failed", "step_caught", "path_failed", "path_cancelled")
_STOPPING = ("execution_completed", "execution_failed", "execution_cancelled")
_RUNS, _STOPPED, _DONE = "running", "stopped", "completed"


@dataclass
class _Step:
    """The step that a path is in."""

    row: int
    status: str = _RUNS
    has_output: bool = False

    def take(self, kind: str) -> None:
        """Let an event have its effect."""
        if kind == "step_completed":
            self.status, self.has_output = _DONE, True
        elif kind == "step_failed" or self.status == _RUNS:
            self.status = _STOPPED

    def goes_on(self) -> bool:
        """Let a resumption have its effect; return whether it is begun again."""
        again = self.status == _STOPPED and not self.has_output
        if self.status == _STOPPED:
            self.status = _RUNS if again else _DONE
        return again


class EventTable:
    """Events of one log, with what each is about."""

    def __init__(self, pages: Iterable[EventPage]) -> None:
        heads: dict[str, list[Any]] = {name: [] for name in ("sequences", "recorded_at", "types", "paths", "steps")}
        said: dict[str, list[Any]] = {name: [] for name in KINDS}
        packed = []
        for page, found in _with_fields(pages):
            for name, column in heads.items():
                column.append(getattr(page, name))
            for name, parts in said.items():
                parts.append(found.get(name, len(page.sequences)))
            packed.append(PackedPayloads.of(page))
        self.payloads = Payloads.of(packed)
        # Taken out of the lists, so that the parts of a column go as soon as it is whole.
        self.sequences, self.recorded_at = (joined(heads.pop(name)) for name in ("sequences", "recorded_at"))
        self._types, self._paths, self._steps = (coded(heads.pop(name)) for name in ("types", "paths", "steps"))
        columns = {name: chunked(said.pop(name), KINDS[name], len(self)) for name in [*said]}
        self._texts = {name: columns[name] for name in TEXTS}
        self._names = {name: coded(columns.pop(name).chunks) for name in (*NAMES, ERROR_TYPE, *GIVEN_NAMES)}
        self._numbers = {name: known_numbers(columns.pop(name)) for name in NUMBERS}
        self._spent = flags(columns.pop(SPENT))
        pa.default_memory_pool().release_unused()
        self._rows = np.arange(len(self), dtype=ROW)
        self._kinds: list[str] = self._types.dictionary.to_pylist()
        self._kind = self._types.indices.to_numpy()
        self._path = self._paths.indices.to_numpy()
        self._has_items = "iteration_started" in self._kinds

    def __len__(self) -> int:
        return len(self.sequences)

    def data(self) -> Any:
        """Return the payloads: an array of dicts, as long as it takes little room."""
        return self.payloads if len(self) > PACKED_EVENTS else np.asarray(self.payloads)

    def _shown(self, texts: Any) -> Any:
        """Return texts as a column of pandas."""
        if texts.null_count == len(texts):
            texts = self._nothing
        elif isinstance(texts, pa.DictionaryArray):
            texts = texts.dictionary.cast(pa.large_string()).take(texts.indices)
        dtype: Any = pd.StringDtype(na_value=np.nan)
        return dtype.__from_arrow__(texts)

    @cached_property
    def _nothing(self) -> Any:
        """Return as many missing texts, of which there is one array for all columns."""
        return pa.nulls(len(self), pa.large_string())

    def _are(self, *kinds: str) -> Numbers:
        """Return which events are of one of these types."""
        found: Numbers = np.array([kind in kinds for kind in self._kinds], dtype=bool)[self._kind]
        return found

    # --- what events are about: the row in which it began, or NONE ---------------------------------------------------

    @cached_property
    def _operation(self) -> Numbers:
        """Return their operations as numbers, equal for equal ids; NONE without one."""
        if self._texts["operation_id"].null_count == len(self):
            return none(len(self))
        coded = self._texts["operation_id"].dictionary_encode()
        numbers: Numbers = (
            pa.chunked_array([part.indices for part in coded.chunks], pa.int32()).fill_null(NONE).to_numpy()
        )
        return numbers

    @cached_property
    def _call(self) -> Numbers:
        """Return where the operation of each event began, if it had begun by then."""
        begun = np.flatnonzero(self._are("operation_started"))[::-1]
        first = np.full(self._operation.max(initial=NONE) + 2, len(self), dtype=ROW)  # the last stands for NONE
        first[self._operation[begun]] = begun
        first[NONE] = len(self)
        found = first[self._operation]
        return np.where(found <= self._rows, found, NONE)

    @cached_property
    def _step(self) -> Numbers:
        """Return where the step began that the path of each event is in, or was in last."""
        found = latest(self._path, self._are("step_started", "step_caught"))
        return np.where((found >= 0) & self._are("step_started")[found], found, NONE)

    @cached_property
    def _item_key(self) -> Numbers:
        """Return a number for path and index of each event; NONE without an index."""
        index, given = self._numbers["iteration_index"]
        if not given.any():
            return none(len(self))
        keys = np.full(len(self), NONE, dtype=ROW)
        places = np.stack([self._path[given], index[given]])
        keys[given] = np.unique(places, axis=1, return_inverse=True)[1].reshape(-1)
        return keys

    @cached_property
    def _begun_item(self) -> Numbers:
        """Return where the item with the path and index of each event was begun last."""
        found = latest(self._item_key, self._are("iteration_started"))
        return np.where(self._item_key == NONE, NONE, found) if self._has_items else found

    @cached_property
    def _item_times(self) -> tuple[Numbers, Numbers]:
        """Return, of the beginnings of items, where each began first, and which time it is."""
        if not self._has_items:
            return none(len(self)), none(len(self))
        begun = np.flatnonzero(self._are("iteration_started"))
        begun = begun[np.argsort(self._item_key[begun], kind="stable")]
        visits, said = self._numbers["visit"]
        visit = np.where((self._step >= 0) & said[self._step], visits[self._step], 1)
        same = np.ones(len(begun) - 1, dtype=bool)
        for column in (self._item_key, self._steps.indices.to_numpy(), visit):
            same &= column[begun[1:]] == column[begun[:-1]]
        place = np.arange(len(begun))
        head = np.maximum.accumulate(np.where(np.concatenate([[True], ~same]), place, 0))
        first, time = np.full(len(self), NONE), np.zeros(len(self), dtype=np.int64)
        first[begun], time[begun] = begun[head], place - head + 1
        return first, time

    def _item_of(self, rows: Numbers) -> Numbers:
        """Return where the items first began that are under way, or were last, at some rows; NONE for NONE."""
        if not self._has_items:
            return none(len(rows))
        begun = np.where(rows == NONE, NONE, self._begun_item[rows])
        return np.where(begun == NONE, NONE, self._item_times[0][begun])

    @cached_property
    def _is_of_item(self) -> Numbers:
        given = self._numbers["iteration_index"][1]
        found: Numbers = given & ~self._are("step_failed") & (self._call == NONE)
        return found

    @cached_property
    def _item(self) -> Numbers:
        """Return where the item began that each event is about."""
        return self._item_of(np.where(self._is_of_item, self._rows, NONE))

    @cached_property
    def _visit(self) -> Numbers:
        """Return where the step began that each event is about."""
        has_step = coded_are(self._steps, lambda name: name != "")
        return np.where((self._call == NONE) & ~self._is_of_item & has_step, self._step, NONE)

    # --- columns -----------------------------------------------------------------------------------------------------

    def types(self) -> Any:
        """Return names of types."""
        return self._shown(self._types)

    def paths(self) -> Any:
        """Return paths; missing where there is none."""
        return self._shown(or_missing(self._paths))

    def steps(self) -> Any:
        """Return steps, likewise."""
        return self._shown(or_missing(self._steps))

    def said(self, name: str) -> Any:
        """Return texts that the payloads hold under a name."""
        return self._shown(self._texts[name] if name in self._texts else self._names[name])

    def given(self, name: str) -> Any:
        """Return texts among the parameters with which the operation of each event began."""
        return self._shown(taken(self._names[name], self._call))

    def names(self) -> Any:
        """Return what operations call, and how a person's own events are named."""
        own = self._names["name"]
        given = coded_are(own, bool)
        return self._shown(taken(own, np.where(given, self._rows, self._call)))

    def iterations(self) -> Any:
        """Return the indexes of items."""
        index, given = self._numbers["iteration_index"]
        of_call = self._call != NONE
        place = np.where(of_call, self._call, self._rows)
        return whole(index[place], given[place] & (of_call | (self._visit == NONE)))

    def items(self) -> Any:
        """Return the items, each decoded once."""
        of_call = np.where(self._call == NONE, NONE, self._item_of(self._call))
        begun = np.where(self._item == NONE, of_call, self._item)
        values = np.full(len(self), None, dtype=object)
        rows, place = np.unique(begun[begun >= 0], return_inverse=True)
        found = np.empty(len(rows), dtype=object)
        for number, row in enumerate(rows.tolist()):
            found[number] = self.payloads[row].get("item")
        values[begun >= 0] = found[place]
        return values

    def attempts(self) -> Any:
        """Return how often what each event is about had been begun."""
        begun = self._are("operation_started")
        retried, index = self._are("step_retried"), self._numbers["iteration_index"][1]
        of_calls = counted(self._operation, begun) + self._retries_before_calls(begun, retried)[self._call]
        of_items = self._item_times[1][self._begun_item] + since(self._item_key, retried & index, self._item)
        of_steps = 1 + since(self._path, retried & ~index, self._step) + self._resumptions()
        known = [self._call != NONE, self._item != NONE, self._visit != NONE]
        return whole(np.select(known, [of_calls, of_items, of_steps], 0), np.logical_or.reduce(known))

    def _retries_before_calls(self, begun: Numbers, retried: Numbers) -> Numbers:
        """Return, of beginnings of operations, which attempts at them had failed by then."""
        failed = np.zeros(len(self), dtype=np.int64)
        concerned = np.isin(self._path, self._path[retried])
        wanted = concerned & (begun | retried | self._are("step_started"))
        open_: dict[int, dict[Any, int]] = {}
        for row in np.flatnonzero(wanted).tolist():
            path, kind = int(self._path[row]), self._kinds[self._kind[row]]
            if kind == "step_started":
                open_[path] = {}
            elif kind == "step_retried":
                data = self.payloads[row]
                slot = data.get("key")
                open_.setdefault(path, {})[data.get("iteration_index") if slot is None else slot] = data["attempt"]
            elif open_.get(path) and self._call[row] == row:
                data = self.payloads[row]
                key, index = data.get("key"), data.get("iteration_index")
                tried = open_[path]
                failed[row] = tried.get(key.partition("@")[0] if isinstance(key, str) else index, tried.get(index, 0))
        return failed

    def _resumptions(self) -> Numbers:
        """Return how often the step that each path is in was begun again by a resumption of the execution."""
        times = np.zeros(len(self), dtype=np.int64)
        if "execution_resumed" not in self._kinds:
            return times
        current: dict[int, _Step] = {}
        for row in np.flatnonzero(self._are(*_CHANGING, *_STOPPING, "execution_resumed")).tolist():
            path, kind = int(self._path[row]), self._kinds[self._kind[row]]
            if kind == "step_started":
                current[path] = _Step(row)
            elif kind == "step_caught":
                current.pop(path, None)
            elif kind == "execution_resumed":
                for step in current.values():
                    if step.goes_on():
                        times[row:][self._step[row:] == step.row] += 1
            else:
                for step in current.values() if kind in _STOPPING else [step for step in [current.get(path)] if step]:
                    step.take(kind)
        return times

    def durations(self) -> Any:
        """Return the times since the start of what events end; missing where they end nothing."""
        took = np.full(len(self), np.timedelta64("NaT", "us"))
        ends = self._are("operation_completed", "operation_failed")
        took[ends] = np.rint(self._numbers["duration"][0][ends] / 1000).astype("m8[us]")
        spans = [kind.rpartition("_") for kind in self._kinds]
        outer = np.array([subject in ("execution", "path") for subject, _, _ in spans], dtype=bool)[self._kind]
        ended = np.array([change in _ENDS for _, _, change in spans], dtype=bool)[self._kind]
        begun = np.where(self._item == NONE, self._visit, self._item)
        inner = ended & ~outer & ~ends & (begun != NONE)
        took[inner] = (self.recorded_at[inner] - self.recorded_at[begun[inner]]).astype("m8[us]")
        counted = outer & (ended | np.array([change == "started" for _, _, change in spans], dtype=bool)[self._kind])
        first = np.full(len(self._paths.dictionary) + 1, NONE)
        rows = np.flatnonzero(counted)[::-1]
        first[self._path[rows]] = rows
        whole = outer & ended
        took[whole] = (self.recorded_at[whole] - self.recorded_at[first[self._path[whole]]]).astype("m8[us]")
        return took

    @cached_property
    def _usages(self) -> Mapping[int, Mapping[str, Any]]:
        """Return what operations consumed, by the rows that say so."""
        completed = latest(self._operation, self._are("operation_completed"))
        found: dict[int, Mapping[str, Any]] = {}
        ends = self._are("operation_completed", "operation_failed") & self._spent & (self._call != NONE)
        for row in np.flatnonzero(ends).tolist():
            usage = self.payloads[row]["usage"]
            result = self.payloads[int(completed[row])].get("result") if completed[row] != NONE else None
            known = result.get("cost_nanodollars") if isinstance(result, dict) else None
            if usage:
                found[row] = usage if known is None else {"cost": known, **usage}
        return found

    @cached_property
    def _consumed(self) -> tuple[Numbers, Numbers]:
        """Return which events are ends of operations that consumed something, and the rows that say what."""
        says = np.zeros(len(self), dtype=bool)
        says[list(self._usages)] = True
        ends = self._are("operation_completed", "operation_failed") & (self._call != NONE)
        rows = latest(self._operation, says) if self._usages else np.full(len(self), NONE)
        return ends & (rows != NONE), rows

    def tokens(self, name: str) -> Any:
        """Return how many of some tokens ends of operations say."""
        which, rows = self._consumed
        counts = np.zeros(len(self), dtype=np.int64)
        counts[which] = [self._usages[row].get(name, 0) for row in rows[which].tolist()]
        return whole(counts, which)

    def costs(self) -> Numbers:
        """Return dollars, where they are known."""
        which, rows = self._consumed
        costs = np.full(len(self), np.nan)
        found = (self._usages[row].get("cost") for row in rows[which].tolist())
        costs[which] = [np.nan if cost is None else cost / NANODOLLARS for cost in found]
        return costs


def _with_fields(pages: Iterable[EventPage]) -> Iterator[tuple[EventPage, dict[str, Any]]]:
    """Give each page with what its payloads say, which is read while the store reads the next one."""
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
