"""Calls of an action for the rows of a frame: one operation for each range of rows, results recorded in groups.

An operation is recorded before the first row of its range is called. Results are recorded as events (`rows_completed`)
every thousand rows or once a second. A process that dies therefore loses at most a second of rows, however long its
range is. If a call must not be repeated, the ranges are short, and a person is asked about the interrupted range, as
about any other call. Example: 25,000 rows of an idempotent action make three operations (10,000, 10,000 and 5,000
rows). After a kill in the second operation, the next process calls only the rows of that range for which the log has no
``rows_completed``.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from random import random
from typing import Any, TypeAlias
from zlib import crc32

from divebook.definitions.functions import CURRENT, UserFunction
from divebook.definitions.step import Retry
from divebook.engine.operations import ACTION_EXECUTION
from divebook.engine.retries import retry_delay
from divebook.errors import OutcomeUnknownError, StepError
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.events.recorded import opened
from divebook.runtime.calls import compute_for
from divebook.runtime.clock import described, told_of
from divebook.runtime.compute.threads import THREADS, Compute, Task, in_thread
from divebook.runtime.context import StepContext
from divebook.runtime.errors import clean_text, fault_of
from divebook.runtime.step import Outcome

MOST_ROWS = 1_000
"""Number of finished rows that are recorded at once."""
MOST_SECONDS = 1.0
"""Seconds after which finished rows are recorded, even if they are fewer."""
RANGE = 10_000
"""Number of rows in one operation."""
ASKED_RANGE = 100
"""Number of rows in one operation if a call must not be repeated, so that a person is asked about a whole range."""
CHUNK = 100
"""Number of rows in one task of another process."""
MOMENT_SECONDS = 0.005
"""Seconds after which calls on the event loop yield to other tasks."""
RESULT_KEYS = {"rows", "failed"}
"""Keys of the result of a range. The answer of a person about a range has others."""
MOST_NAMED = 20
"""Maximum number of rows that a question lists."""
EXIT_ERRORS = (SystemExit, KeyboardInterrupt, GeneratorExit)
"""Exceptions that would end the process. A row that raises one of them fails. No signal raises them in a call."""
UNKNOWN = f"{OutcomeUnknownError.__name__}: its call started, and a person chose not to repeat it"
LOST_ROW = f"{OutcomeUnknownError.__name__}: the call took effect, and"

Row: TypeAlias = tuple[int, dict[str, Any]]
"""Position and arguments of a call."""
RowResult: TypeAlias = tuple[int, Any, str | None]


async def run_rows(context: StepContext, action: UserFunction, parameters: Mapping[str, Any], frame: Any) -> Outcome:
    """Call an action for each row of a frame, except for rows whose result is in the log. The result of the step states
    the number of rows and of failed rows.

    Raises
    ------
    StepError
        The action takes parameters that the frame does not have, or an action of this kind cannot be called for rows.
    """
    _require_fit(action)
    from divebook.events.arrow.rows import columns_of, count_of

    opened_frame = opened(frame)
    rows = arguments_of(action, columns_of(opened_frame), opened(dict(parameters)), count_of(opened_frame))
    failed = await RowCalls(context, action, rows).run()
    text = f"{len(rows):,} rows" + (f", {failed:,} of which failed" if failed else "")
    return Outcome(text, {"rows": len(rows), "failed": failed})


def _require_fit(action: UserFunction) -> None:
    takes = action.takes
    for hindrance, holds in (
        ("asks for approval of each call", action.approval),
        ("works in a workspace", action.workspace is not None),
        ("makes calls of its own", action.makes_calls),
        ("takes a context or an idempotency key", takes.context or takes.key),
    ):
        if holds:
            raise StepError(f"Rows cannot call {action.kind_and_name}, because it {hindrance}: use Each with Items")


def arguments_of(
    action: UserFunction, columns: Mapping[str, list[Any]], fixed: Mapping[str, Any], count: int
) -> list[Row]:
    """Return for each row of a frame its position and the arguments of its call: values of the columns that are
    parameters of the action, and the fixed parameters of the step.

    A function whose only required parameter is not a column gets the whole row as a dict.

    Parameters
    ----------
    count
        Number of rows of the frame. It cannot be derived from `columns` if the frame has only an index.
    """
    parameters = inspect.signature(action.function).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    names_of_parameters = [
        name for name, each in parameters.items() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    needed = [
        name
        for name in names_of_parameters
        if name not in fixed and parameters[name].default is inspect.Parameter.empty
    ]
    positional_only = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_ONLY]
    if positional_only:
        raise StepError(
            f"{action.kind_and_name} takes {', '.join(positional_only)} by position only, but columns are passed by "
            "name; wrap it in a function whose parameters have the names of the columns"
        )
    missing = [name for name in needed if name not in columns]
    # A function of one parameter, which is not a column, takes the whole row.
    if missing and not takes_any and len(needed) == 1:
        names = list(columns)
        # `zip` of no columns has no rows, although the frame has some.
        all_rows = zip(*columns.values(), strict=True) if columns else [()] * count
        dicts = (dict(zip(names, row, strict=True)) for row in all_rows)
        return [(at, {**fixed, needed[0]: row}) for at, row in enumerate(dicts)]
    unknown_names = [name for name in fixed if name not in names_of_parameters and not takes_any]
    if missing or unknown_names:
        problem = f"takes {', '.join(missing)}" if missing else f"does not take {', '.join(unknown_names)}"
        raise StepError(
            f"{action.kind_and_name} {problem}; the frame has the columns {', '.join(columns) or 'none'}: name the "
            "parameters after the columns"
        )
    # A fixed parameter of the step takes precedence over a column.
    names = [name for name in columns if (takes_any or name in names_of_parameters) and name not in fixed]
    if not names:
        return [(at, dict(fixed)) for at in range(count)]
    selected_rows = zip(*(columns[name] for name in names), strict=True)
    return [(at, {**fixed, **dict(zip(names, row, strict=True))}) for at, row in enumerate(selected_rows)]


class RowCalls:
    """Calls of one step's action for the rows of a frame. Rows whose result is in the log are not called again."""

    def __init__(self, context: StepContext, action: UserFunction, rows: list[Row]) -> None:
        self._context = context
        self._action = action
        self._rows = rows
        assert context.step.each is not None  # noqa: S101 - a step with rows has `Each`
        self._parallel = context.step.each.parallel
        self._compute = compute_for(context, action, {})
        self._loop = asyncio.get_running_loop()
        # Shared by all workers. `popleft` is atomic, also between threads.
        self._waiting: deque[Row] = deque()
        self._ended: list[RowResult] = []
        self._recorded: dict[int, bool] = {}
        """Recorded rows by position; True for a failed one."""
        self._enough = asyncio.Event()
        self._stopped = False

    async def run(self) -> int:
        """Call the action for all rows, one range of rows after the other. Return the number of failed rows."""
        from divebook.events.arrow.rows import failures_by_position

        # Short ranges keep the number of rows small about which a person would be asked.
        size = RANGE if self._action.is_repeatable else ASKED_RANGE
        self._recorded = failures_by_position(list(self._context.items.values()))
        failed = 0
        for first in range(0, len(self._rows), size):
            last = min(first + size, len(self._rows)) - 1
            key = f"rows-{first}"
            parameters = {"action_name": self._action.name, "params": {"first": first, "last": last}}
            call = functools.partial(self._make, key, first, last)
            result = await self._context.operation(
                ACTION_EXECUTION,
                parameters,
                call,
                key=key,
                repeatable=self._action.is_repeatable,
                seen=functools.partial(self._question_note, first, last),
            )
            # An answer of a person about an interrupted range has another form.
            is_ours = isinstance(result, dict) and result.keys() == RESULT_KEYS and result["rows"] == last + 1 - first
            failed += result["failed"] if is_ours else self._mark_unknown(key, first, last)
        return failed

    def _question_note(self, first: int, last: int) -> str:
        """Return a text for the question that a person is asked when a process died while it called a range of rows.
        The text states which rows may have been called, although they have no result.
        """
        open_rows = [at for at in range(first, last + 1) if at not in self._recorded]
        row_list = ", ".join(map(str, open_rows[:MOST_NAMED]))
        if len(open_rows) > MOST_NAMED:
            row_list += f" and {len(open_rows) - MOST_NAMED:,} more"
        ended_count = last + 1 - first - len(open_rows)
        return (
            f" Of its rows {ended_count:,} have ended and are written; {len(open_rows):,} may have been called, or "
            f"not: {row_list}. Retry calls these; done, with null as its result, leaves them without one."
        )

    def _mark_unknown(self, key: str, first: int, last: int) -> int:
        """Record the error "outcome unknown" for each row in a range that has no result, after a person decided not to
        call these rows again. Return the number of all failed rows in the range.
        """
        self._ended = [(at, None, UNKNOWN) for at in range(first, last + 1) if at not in self._recorded]
        self._write(key)
        return self._failures(first, last)

    def _failures(self, first: int, last: int) -> int:
        return sum(self._recorded.get(at, False) for at in range(first, last + 1))

    async def _make(self, key: str, first: int, last: int) -> dict[str, int]:
        """Call the action for those rows of a range that have no result in the log. Return a dict with the size of the
        range and its number of failed rows.
        """
        self._waiting = deque(row for row in self._rows[first : last + 1] if row[0] not in self._recorded)
        token = CURRENT.set(None)  # steps inside are ordinary function calls
        try:
            workers = [asyncio.ensure_future(self._worker()) for _ in range(min(self._parallel, len(self._waiting)))]
        finally:
            CURRENT.reset(token)
        write = functools.partial(self._write, key)
        try:
            # If the step is cancelled, `writing` records the rows that have ended before the step ends.
            with self._context.writing(write):
                while workers:
                    ended, pending = await self._some_ended(workers)
                    workers = list(pending)
                    # Results are recorded before the error of a worker is raised.
                    write()
                    for worker in ended:
                        worker.result()
        finally:
            # Workers in threads cannot be cancelled. They end after their present row.
            self._stopped = True
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            self._stopped = False
            # If the step was cancelled, `StepContext.writing` has already recorded the ended rows.
            if not isinstance(sys.exception(), asyncio.CancelledError):
                write()
        return {"rows": last + 1 - first, "failed": self._failures(first, last)}

    async def _some_ended(self, workers: Sequence[asyncio.Future[Any]]) -> tuple[set[Any], set[Any]]:
        """Wait until the calls of `MOST_ROWS` rows have ended, a worker task has ended, or `MOST_SECONDS` have passed.
        Return two sets: the worker tasks that have ended, and those that are still running.
        """
        self._enough.clear()
        enough: asyncio.Future[Any] = asyncio.ensure_future(self._enough.wait())
        try:
            ended, pending = await asyncio.wait(
                [*workers, enough], timeout=MOST_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            enough.cancel()
        return ended - {enough}, pending - {enough}

    def _write(self, key: str) -> None:
        """Record in the log the results of all rows that ended since the last call of this method."""
        # Workers in threads may add to the new list while the old one is recorded.
        ended = self._ended
        self._ended = []
        if ended:
            self._note(key, ended)

    def _note(self, key: str, ended: list[RowResult]) -> None:
        """Record the results of several rows as one event. If one of the results cannot be stored, find its row by
        bisection, and record an error as the result of that row.
        """
        from divebook.events.arrow.rows import frame_of

        try:
            result = storable(frame_of(ended), "rows")
        except Exception as error:
            # [ok, ok, bad, ok] -> [ok, ok] and [bad, ok] -> [bad] and [ok]
            if len(ended) > 1:
                half = len(ended) // 2
                self._note(key, ended[:half])
                self._note(key, ended[half:])
                return
            ((at, value, reason),) = ended
            # The text of an error can always be stored, so this is a fault of another kind.
            if reason is not None:
                raise
            # The call took effect, so the row is called again only if a person decides so.
            if self._action.is_repeatable:
                problem = error_text(error)
            else:
                problem = f"{LOST_ROW} {told_of(described(value))}: {error}"
            self._note(key, [(at, None, problem)])
            return
        failed = sum(error is not None for *_, error in ended)
        # Groups are numbered over all ranges of the step.
        number = len(self._context.items)
        operation_id = self._context.place(key).operation_id
        event = catalog.RowsCompleted(number, operation_id, result, len(ended), failed, len(self._rows))
        self._context.record_event(event)
        self._recorded.update((at, error is not None) for at, _, error in ended)

    def _add_result(self, row: RowResult) -> None:
        """Collect the result of a row, which the next `_write` records in the log. Callable from any thread."""
        self._ended.append(row)
        # Wakes `_some_ended` once, when the group is full.
        if len(self._ended) == MOST_ROWS:
            self._loop.call_soon_threadsafe(self._enough.set)

    # --- making calls ----------------------------------------------------------------------------------------------

    def _worker(self) -> Coroutine[Any, Any, None]:
        if self._action.takes.is_async:
            return self._call_on_loop()
        # A thread makes many calls, one after the other. A time limit needs a task for each row.
        if self._compute is THREADS and self._action.timeout is None:
            return in_thread(self._call_in_thread)
        return self._call_elsewhere(self._compute)

    async def _call_on_loop(self) -> None:
        function = self._action.function
        policy = self._policy
        seconds = self._action.timeout
        last_yield = time.monotonic()
        while self._waiting and not self._stopped:
            at, arguments = self._waiting.popleft()
            failures = 0
            while True:
                try:
                    async with asyncio.timeout(seconds):
                        value = await function(**arguments)
                except (Exception, *EXIT_ERRORS) as error:  # noqa: BLE001 - whatever a row raises is its outcome
                    failures += 1
                    pause = None if isinstance(error, EXIT_ERRORS) else pause_before_next(policy, failures, error)
                    if pause is None:
                        self._add_result((at, None, error_text(error)))
                        break
                else:
                    self._add_result((at, value, None))
                    break
                await asyncio.sleep(pause)
            if time.monotonic() - last_yield > MOMENT_SECONDS:  # a function that never waits would block the event loop
                await asyncio.sleep(0)
                last_yield = time.monotonic()

    def _call_in_thread(self) -> None:
        function = self._action.function
        policy = self._policy
        while not self._stopped:
            # Another worker may take the last row between a check and this line.
            try:
                at, arguments = self._waiting.popleft()
            except IndexError:
                return
            self._add_result(call_row(function, policy, at, arguments))

    async def _call_elsewhere(self, compute: Compute) -> None:
        """Send waiting rows to an executor, such as a process pool, until no row is waiting. Rows are sent in groups;
        if the action has a time limit, one at a time, because the limit applies to a single row.
        """
        size = 1 if self._action.timeout is not None else CHUNK
        while self._waiting and not self._stopped:
            rows = [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]
            slot = compute.slot(repeatable=self._action.is_repeatable, limited=self._action.timeout is not None)
            task = Task(
                self._task_key([at for at, _ in rows]),
                self._action.kind_and_name,
                call_rows,
                (self._action.function, self._policy, rows),
                {},
                self._action.timeout is not None,
                self._action.is_repeatable,
                self._context.is_given_up,
            )
            try:
                async with slot or nullcontext(), asyncio.timeout(self._action.timeout):
                    ended = await compute.run(task)
            except TimeoutError as error:
                ended = [(at, None, error_text(error)) for at, _ in rows]
            for row in ended:
                self._add_result(row)

    def _task_key(self, positions: Sequence[int]) -> str:
        """Return the id of the executor task that calls the rows at some positions. It contains a hash of the
        positions, because a later attempt may group the rows differently and must not get the same id.
        """
        checksum = crc32(repr(positions).encode())
        place = self._context.place("rows").operation_id
        return f"{self._context.run_id}/{place}/{positions[0]}-{checksum:08x}"

    @property
    def _policy(self) -> Retry | None:
        return self._context.step.retry or self._action.retry


def error_text(error: BaseException) -> str:
    """Return an error as text for the error column of the rows: the name of its class and its message."""
    return f"{type(error).__name__}: {clean_text(error)}"


def pause_before_next(policy: Retry | None, failures: int, error: BaseException) -> float | None:
    """Return the seconds to wait before the call for a row is tried again, after `failures` failed calls. Return None
    if the retry policy allows no further call.
    """
    return retry_delay(policy, failures, fault_of(error), random())  # noqa: S311 - jitter, so that many rows are not retried at once


def call_row(function: Callable[..., Any], policy: Retry | None, at: int, arguments: Mapping[str, Any]) -> RowResult:
    """Call a function for one row, with the retries of the policy. Return the position of the row, and its result or
    its error. An error is returned, not raised.
    """
    failures = 0
    while True:
        try:
            return at, function(**arguments), None
        except (Exception, *EXIT_ERRORS) as error:  # noqa: BLE001 - whatever a row raises is its outcome
            failures += 1
            pause = None if isinstance(error, EXIT_ERRORS) else pause_before_next(policy, failures, error)
            if pause is None:
                return at, None, error_text(error)
        time.sleep(pause)


def call_rows(function: Callable[..., Any], policy: Retry | None, rows: list[Row]) -> list[RowResult]:
    """Call a function for several rows, one after the other; return their results. This is the function that executors
    run, also in other processes.
    """
    return [call_row(function, policy, at, arguments) for at, arguments in rows]
