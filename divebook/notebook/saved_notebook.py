"""Runs from a saved notebook or page, which can be inspected and replayed without kernel, store or workflow.

The files may come from an untrusted sender. Their content is checked, shown as text, and never executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from divebook.analysis.run_report import (
    RunReport,
    item_results,
    results_of,
    rows_of,
    settled_text,
    shown_values,
    turn_rows,
)
from divebook.errors import DivebookError, InvalidEventError, SavedRunError, StoreError
from divebook.events import Event
from divebook.events.codec import payload_from
from divebook.events.event import to_datetime
from divebook.notebook.shell_state import shows_widgets
from divebook.projections.activity import MOST_COLUMNS, Phase, time_texts
from divebook.projections.log_frames import FramedLog
from divebook.projections.spans import Span, spans_of
from divebook.report.hints import advised
from divebook.report.model import Report
from divebook.report.shown import Shown
from divebook.stores.embedded import LOG, RUN, TEXTS, embedded_parts_of, may_embed_log, whole_texts, with_texts
from divebook.text.format import local_time, plural, seconds, visible
from divebook.text.redaction import cut, one_line, shared
from divebook.widgets.protocol import PackedRun, QuestionView, Recording, StateView
from divebook.widgets.recording import MIME, RecordedPositions, checked_recording, checked_run, read_saved

if TYPE_CHECKING:
    from divebook.widgets.views import ReplayView

MAX_FILE = 500_000_000
"""Maximum size of a notebook file in bytes."""
MAX_VALUE = 4000
"""Maximum number of characters of a value or error in a report."""


class SavedRun(Shown, FramedLog):
    """A run that was read from a saved notebook or page: `events`, `steps`, `operations`, `variables`, `state_at` and
    `replay`.

    `open_notebook` returns saved runs. They cannot be resumed or answered, because this needs the store (see the
    attribute `store`).
    """

    def __init__(self, packed: PackedRun, recording: Recording) -> None:
        self._packed = packed
        self._recording = recording
        self._positions = RecordedPositions(recording, one_line(packed["store"], 200))

    @property
    def id(self) -> str:
        """Id of the execution."""
        # The file is untrusted. Each text is cut to one line and cleaned of control characters before it is shown.
        return one_line(self._packed["execution_id"], 60)

    @property
    def workflow(self) -> str:
        """Name of the workflow."""
        return one_line(self._packed["workflow"], 80)

    @property
    def status(self) -> str:
        """Status when the notebook was saved."""
        return one_line(self._packed["status"], 20)

    @property
    def store(self) -> str:
        """URL or path of the store that contained the log."""
        return one_line(self._packed["store"], 400)

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the run, as plain data."""
        return self._last["inputs"]

    @property
    def outputs(self) -> dict[str, Any]:
        """The declared outputs of the run, as plain data."""
        return self._last["outputs"]

    @property
    def variables(self) -> dict[str, Any]:
        """The variables at the end of the run, as plain data; long texts are cut, secrets are removed."""
        return self._last["variables"]

    @property
    def questions(self) -> list[QuestionView]:
        """The questions of the run to people, with their answers."""
        return self._recording["questions"]

    @cached_property
    def _last(self) -> StateView:
        return self._positions.state_at(self._positions.total)

    def state_at(self, sequence: int) -> StateView:
        """Return the state of the run after an event.

        Raises `IndexError` if the notebook does not contain the event.
        """
        return self._positions.state_at(sequence)

    def _log(self) -> list[Event]:
        """Return the recorded events of the run as objects.

        The recording has one list for each column of the events. Types, paths and steps are indexes into a list of
        names.

        Raises
        ------
        SavedRunError
            An event cannot be read.
        """
        # {"names": ["", "step_started", "main", "add"], "type": [1], "path": [2], "step": [3], ...}
        block = self._recording["events"]
        names = block["names"]
        columns = block["sequence"], block["time"], block["type"], block["path"], block["step"]
        try:
            return [
                Event(
                    f"event_{sequence}",
                    self.id,
                    sequence,
                    # Times are stored as microseconds since the first event, which needs less space.
                    block["origin_us"] + time,
                    # An unknown type of event, or data that do not fit it, raise an error.
                    payload_from(names[kind], data),
                    names[path],
                    names[step],
                )
                # `strict` cannot fail here, because the recording's columns were checked to have equal lengths.
                for sequence, time, kind, path, step, data in zip(*columns, self._recording["data"], strict=True)
            ]
        except DivebookError as error:
            raise SavedRunError(f"the events of run {self.id} cannot be read: {one_line(str(error), 200)}") from None

    def replay(self) -> ReplayView:
        """Return a view that replays the run event by event."""
        from divebook.notebook.view_output import SavedRunReplay
        from divebook.widgets.views import ReplayPictures

        # The same pages and messages as for a live log, with a recording as the source.
        name = f"{self.workflow} {self.id}"
        pictures = ReplayPictures(self._positions.welcome)
        return SavedRunReplay(self._positions, name, self._repr_mimebundle_, pictures=pictures, moves=shows_widgets())

    # --- how it shows ----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<SavedRun {self.id} of {self.workflow!r}: {self.status}>"

    def report(self) -> Report:
        """Return what the run shows."""
        return self.run_report().report()

    def _mime_data(self) -> dict[str, Any]:
        """Return the packed data of the run, so that saving this notebook keeps the run."""
        return {MIME: self._packed}

    def run_report(self) -> RunReport:
        """Return the texts of the report, from the recording in the notebook."""
        spans = spans_of(self._log(), for_people=True)
        return RunReport(
            name=self.workflow,
            id=self.id,
            status=self.status,
            facts=tuple(self._facts()),
            rows=rows_of([span for span in spans if span.kind == "step"], results=item_results(spans, shared())),
            # Secrets were removed before the run was saved. The shared redactor also removes those that this process
            # knows.
            turns=turn_rows(spans, shared()),
            inputs=shown_values("input", self.inputs, shared()),
            # As in the report of a live run: outputs, or without outputs the variables.
            values=results_of(self.outputs, self.variables, {}, shared()),
            answers=tuple(self._answers()),
            spreads=tuple(self._spreads()),
            error=cut(visible(self._last["error"]), MAX_VALUE),
            spans=tuple(span for span in spans if _is_drawable(span)),
            phases=tuple(self._phases()),
        )

    def _phases(self) -> Iterator[Phase]:
        """Yield the periods in which no call ran."""
        for stretch in self._recording["header"]["stretches"]:
            yield Phase(stretch["doing"], stretch["begin_us"], stretch["end_us"])

    def _answers(self) -> Iterator[tuple[str, str]]:
        """Yield two texts about each closed question of the run: the question itself, and its answer with person and
        time.
        """
        for question in self.questions:
            if question["became"]:
                answer = settled_text(question["became"], question["answered_by"], question["answered_us"])
                yield one_line(question["question"], 120), answer

    def _spreads(self) -> Iterator[str]:
        """Yield one line for each result column of a step with many items, with the distribution of the column's
        values.
        """
        for progress in self._recording["header"]["progress"]:
            yield from (one_line(spread["words"], MAX_VALUE) for spread in progress["spread"][:MOST_COLUMNS])

    def _facts(self) -> Iterator[str]:
        yield "from a saved notebook"
        header = self._recording["header"]
        started = header["started_us"]
        ended = header["ended_us"]
        if started is not None:
            yield f"started {local_time(_moment(started))}"
        if started is not None and ended is not None:
            if header["since_us"] is None:  # older recordings do not divide the time into work and waiting
                # The times of an untrusted file may be in the wrong order.
                yield f"took {seconds(abs(ended - started) / 1e6)}"
            else:
                yield from time_texts(header["worked_us"], header["waited_us"], header["paused_us"])
        if self._recording["sample"]:
            yield f"{one_line(self._recording['sample'], 200)}; the complete log is in {self.store}"


def _moment(micros: int) -> datetime | None:
    """Convert a time in microseconds since 1970 to a datetime; None if it is outside the range of datetimes."""
    # A forged time can be any integer.
    try:
        return to_datetime(micros)
    except OverflowError:
        return None


def _is_drawable(span: Span) -> bool:
    """Return whether the timeline can show a span (a step, item or call), because its start is a valid time. Damaged
    files contain other times.
    """
    return _moment(span.started_us) is not None


class SavedNotebook(Sequence[SavedRun]):
    """The runs of a saved notebook in the order of its cells. Access them with ``[0]`` or ``["exec_01"]``."""

    def __init__(self, path: Path, runs: Sequence[SavedRun], problems: Sequence[str]) -> None:
        self.path = path
        self.problems = tuple(problems)
        self._runs = tuple(runs)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, key: int | str) -> SavedRun: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[SavedRun]: ...
    def __getitem__(self, key: int | str | slice) -> SavedRun | Sequence[SavedRun]:
        """Return a run of the notebook by its index, or by the beginning of its id. Raise `SavedRunError` unless
        exactly one id starts so.
        """
        if not isinstance(key, str):
            return self._runs[key]
        # A prefix of an id is enough, as in all commands.
        matches = [run for run in self._runs if run.id.startswith(key)]
        if len(matches) != 1:
            ids = ", ".join(run.id for run in self._runs)
            raise SavedRunError(
                f"{self.path.name} contains {plural(len(matches), 'run')} whose id starts with {key}; "
                f"choose one of: {ids}"
            )
        return matches[0]

    def __repr__(self) -> str:
        lines = [f"{self.path.name}: {plural(len(self), 'run')}"]
        lines += [f"  [{place}] {run.workflow}  {run.status}  {run.id}" for place, run in enumerate(self._runs)]
        lines += [f"  a run cannot be opened: {problem}" for problem in self.problems]
        return "\n".join([*lines, f"to replay a run: runs = {advised('open FILE')}, then runs[0].replay()"])


def open_notebook(path: Path | str) -> SavedNotebook:
    """Return the runs in a saved notebook. Their store and workflow are not needed.

    No code in the file is executed. The attribute ``problems`` lists runs that cannot be read.

    Raises
    ------
    SavedRunError
        The file is not a notebook, or no run in it can be opened.
    """
    path = Path(path).expanduser()
    latest: dict[Any, Any] = {}  # by execution id: several cells may show one run, and the last has its newest state
    for data in _run_data(_read_notebook(path)):
        # Data without a valid id get a key of their own, so that each fault is reported.
        execution_id = data.get("execution_id") if isinstance(data, dict) else None
        latest[execution_id if isinstance(execution_id, str) else id(data)] = data
    runs = []
    problems = []
    for data in latest.values():
        try:
            runs.append(SavedRun(*read_saved(data)))
        except SavedRunError as error:
            # One unreadable run does not prevent the others from being opened.
            problems.append(one_line(str(error), 300))
    if not runs:
        why = (
            problems[0]
            if problems
            else "no cell output contains data of a run; check that DIVEBOOK_NOTEBOOK_DATA is not set to off"
        )
        raise SavedRunError(f"no run can be opened from {path}: {why}")
    return SavedNotebook(path, runs, problems)


def carries_log(path: Path) -> bool:
    """Return whether a file (page, notebook or exported log) contains all events of a run, even if some of them are
    damaged.
    """
    # Files that cannot embed a log are logs themselves, if their name says so.
    if not may_embed_log(path):
        return path.suffix.lower() in (".jsonl", ".json")
    if not path.exists():
        return False
    carried = embedded_parts_of(path)
    # A damaged page counts too, so that opening it reports the damage instead of "is not a page".
    return LOG in carried.parts or bool(carried.fault)


def open_page(path: Path) -> SavedRun:
    """Return the run in an HTML page that contains a recording of the run for its replay, but not its log.

    Raises
    ------
    SavedRunError
        The page is damaged, or is not a page of a run.
    """
    try:
        carried = embedded_parts_of(path)
        # Long texts are stored once, beside the run, and are put back before validation.
        run = with_texts(carried.data(RUN), whole_texts(carried.data(TEXTS)))
        return SavedRun(checked_run(run), checked_recording(run["view"]))
    except (InvalidEventError, StoreError) as error:
        raise SavedRunError(str(error)) from None
    # A page that was edited by hand can have any content.
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise SavedRunError(f"{path} is not an HTML page of a run: {type(error).__name__}: {error}") from None


def _read_notebook(path: Path) -> Any:
    """Read a notebook file as JSON. Raises `SavedRunError` if it cannot be read."""
    try:
        # The size is checked before the file is read.
        if path.stat().st_size > MAX_FILE:
            raise SavedRunError(
                f"{path} is too large to be opened as a notebook; export the run's log from its store instead"
            )
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SavedRunError(f"{path} cannot be read: {error.strerror}; check the path of the notebook") from None
    # Deep nesting raises RecursionError.
    except (ValueError, RecursionError) as error:
        raise SavedRunError(f"{path} is not a notebook: {one_line(str(error), 200)}") from None


def _run_data(notebook: Any) -> Iterator[Any]:
    """Yield the stored data of each run in the outputs of a notebook, not validated yet.

    The file may be edited or damaged, so the type of each level is checked, and wrong parts are skipped.
    """
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    for cell in cells if isinstance(cells, list) else ():
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else ():
            data = output.get("data") if isinstance(output, dict) else None
            if isinstance(data, dict) and MIME in data:
                yield data[MIME]
