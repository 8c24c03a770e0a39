"""Runs out of a saved notebook, without kernel, store or the workflow that made them: to look at and to step through.

What is in a file was written by its sender: it is checked, shown as text, and never carried out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from divebook.errors import DivebookError, InvalidEventError, SavedRunError, StoreError
from divebook.events import Event
from divebook.events.codec import payload_from, readable
from divebook.events.event import to_datetime
from divebook.notebook.frontend import shows_widgets
from divebook.notebook.report import settled_text
from divebook.projections.frames_mixin import FramedLog
from divebook.projections.progress import MOST_COLUMNS, times_told
from divebook.projections.spans import Span, spans_of
from divebook.store.embedded import LOG, RUN, TEXTS, carried_by, is_carrier, whole_texts, with_texts
from divebook.text.format import local_time, plural, seconds, visible
from divebook.text.redaction import cut, one_line, shared
from divebook.widgets.protocol import PackedRun, QuestionView, Recording, StateView
from divebook.widgets.recording import MIME, RecordedPositions, checked_recording, checked_run, read_saved

if TYPE_CHECKING:
    from divebook.widgets.views import ReplayView

MAX_FILE = 500_000_000
MAX_VALUES = 20
MAX_VALUE = 4000


class SavedRun(FramedLog):
    """A run as a notebook holds it: `events`, `steps`, `operations`, `variables`, `state_at` and `replay`.

    `open_notebook` makes them. It cannot be resumed or answered: that needs the store, which `store` names.
    """

    def __init__(self, packed: PackedRun, recording: Recording) -> None:
        self._packed = packed
        self._recording = recording
        self._positions = RecordedPositions(recording, one_line(packed["store"], 200))

    @property
    def id(self) -> str:
        """Id of the execution."""
        return one_line(self._packed["execution_id"], 60)

    @property
    def workflow(self) -> str:
        """Name of the workflow."""
        return one_line(self._packed["workflow"], 80)

    @property
    def status(self) -> str:
        """How it stood when the notebook was saved."""
        return one_line(self._packed["status"], 20)

    @property
    def store(self) -> str:
        """Where its log was."""
        return one_line(self._packed["store"], 400)

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs, as plain data."""
        return self._last["inputs"]

    @property
    def outputs(self) -> dict[str, Any]:
        """The declared outputs, as plain data."""
        return self._last["outputs"]

    @property
    def variables(self) -> dict[str, Any]:
        """The variables, as plain data; long texts are cut, secrets left out."""
        return self._last["variables"]

    @property
    def questions(self) -> list[QuestionView]:
        """What people were asked, and what they answered."""
        return self._recording["questions"]

    @cached_property
    def _last(self) -> StateView:
        return self._positions.state_at(self._positions.total)

    def state_at(self, sequence: int) -> StateView:
        """Return how it stood after an event; IndexError for events that the notebook does not hold."""
        return self._positions.state_at(sequence)

    def _log(self) -> list[Event]:
        """Return the events that are here; raises SavedRunError."""
        block = self._recording["events"]
        names = self._recording["events"]["names"]
        columns = block["sequence"], block["time"], block["type"], block["path"], block["step"]
        try:
            return [
                Event(
                    f"event_{sequence}",
                    self.id,
                    sequence,
                    block["origin_us"] + time,
                    payload_from(names[kind], data),
                    names[path],
                    names[step],
                )
                for sequence, time, kind, path, step, data in zip(*columns, self._recording["data"], strict=True)
            ]
        except DivebookError as error:
            raise SavedRunError(f"the events of run {self.id} cannot be read: {one_line(str(error), 200)}") from None

    def replay(self) -> ReplayView:
        """Return a view that steps through it."""
        from divebook.notebook.lasting import ReplayOutput
        from divebook.widgets.views import Pictured

        name = f"{self.workflow} {self.id}"
        beside = Pictured(self._positions.welcome)
        return ReplayOutput(self._positions, name, self._repr_mimebundle_, beside=beside, moves=shows_widgets())

    # --- how it shows ----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<SavedRun {self.id} of {self.workflow!r}: {self.status}>"

    def __str__(self) -> str:
        from divebook.notebook.report import as_text

        return as_text(self._report())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from divebook.notebook.report import as_html, as_text

        report = self._report()
        return {"text/plain": as_text(report), "text/html": as_html(report), MIME: self._packed}

    def _report(self) -> Any:
        from divebook.notebook.report import Report, rows_of, turn_rows

        spans = spans_of(self._log(), for_people=True)
        values = self.outputs or self.variables
        return Report(
            name=self.workflow,
            id=self.id,
            status=self.status,
            facts=tuple(self._facts()),
            rows=rows_of([span for span in spans if span.kind == "step"]),
            turns=turn_rows(spans, shared()),
            values_title=plural(len(values), "output" if self.outputs else "variable") if values else "",
            values=tuple(
                (one_line(name, 60), readable(value, indent=2)) for name, value in list(values.items())[:MAX_VALUES]
            ),
            answers=tuple(self._answers()),
            spreads=tuple(self._spreads()),
            error=cut(visible(self._last["error"]), MAX_VALUE),
            spans=tuple(span for span in spans if _is_drawable(span)),
        )

    def _answers(self) -> Iterator[tuple[str, str]]:
        for asked in self.questions:
            if asked["became"]:
                told = settled_text(asked["became"], asked["answered_by"], asked["answered_us"])
                yield one_line(asked["question"], 120), told

    def _spreads(self) -> Iterator[str]:
        for told in self._recording["header"]["progress"]:
            yield from (one_line(spread["words"], MAX_VALUE) for spread in told["spread"][:MOST_COLUMNS])

    def _facts(self) -> Iterator[str]:
        yield "from a saved notebook"
        header = self._recording["header"]
        started = header["started_us"]
        ended = header["ended_us"]
        if started is not None:
            yield f"started {local_time(_moment(started))}"
        if started is not None and ended is not None:
            is_timed = header["since_us"] is not None  # older ones do not say what was work
            times = times_told(header["worked_us"], header["waited_us"], header["paused_us"])
            yield from times if is_timed else [f"took {seconds(abs(ended - started) / 1e6)}"]
        if self._recording["sample"]:
            yield f"{one_line(self._recording['sample'], 200)}; its whole log is in {self.store}"


def _moment(micros: int) -> datetime | None:
    try:
        return to_datetime(micros)
    except OverflowError:
        return None


def _is_drawable(span: Span) -> bool:
    return _moment(span.started_us) is not None


class SavedNotebook(Sequence[SavedRun]):
    """The runs of a saved notebook, in the order of its cells; ``[0]`` or ``["exec_01"]`` returns one."""

    def __init__(self, path: Path, runs: Sequence[SavedRun], problems: Sequence[str]) -> None:
        self.path = path
        self.problems = tuple(problems)
        self._runs = tuple(runs)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, which: int | str) -> SavedRun: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[SavedRun]: ...
    def __getitem__(self, which: int | str | slice) -> SavedRun | Sequence[SavedRun]:
        """Return a run by its place, or by the beginning of its id."""
        if not isinstance(which, str):
            return self._runs[which]
        found = [run for run in self._runs if run.id.startswith(which)]
        if len(found) != 1:
            known = ", ".join(run.id for run in self._runs)
            raise SavedRunError(
                f"{self.path.name} has {plural(len(found), 'run')} whose id begins so: {which}; it has {known}"
            )
        return found[0]

    def __repr__(self) -> str:
        lines = [f"{self.path.name}: {plural(len(self), 'run')}"]
        lines += [f"  [{place}] {run.workflow}  {run.status}  {run.id}" for place, run in enumerate(self._runs)]
        lines += [f"  cannot be opened: {problem}" for problem in self.problems]
        return "\n".join([*lines, "to replay one: runs[0].replay(), with runs = %dive open FILE"])


def open_notebook(path: Path | str) -> SavedNotebook:
    """Return the runs whose data a saved notebook holds; needs neither their store nor their workflow.

    Nothing in the file is carried out. What cannot be read is named in ``problems``.

    Raises
    ------
    SavedRunError
        The file is not a notebook, or no run in it can be opened.
    """
    path = Path(path).expanduser()
    latest: dict[Any, Any] = {}
    for data in _data_in(_notebook(path)):
        key = data.get("execution_id") if isinstance(data, dict) else None
        latest[key if isinstance(key, str) else id(data)] = data
    runs = []
    problems = []
    for data in latest.values():
        try:
            runs.append(SavedRun(*read_saved(data)))
        except SavedRunError as error:
            problems.append(one_line(str(error), 300))
    if not runs:
        why = problems[0] if problems else "no output in it has one; were they switched off (DIVEBOOK_NOTEBOOK_DATA)?"
        raise SavedRunError(f"no run can be opened from {path}: {why}")
    return SavedNotebook(path, runs, problems)


def carries_log(path: Path) -> bool:
    """Return whether a file is, or was meant to be, one with a whole log: a damaged one is."""
    if not is_carrier(path):
        return path.suffix.lower() in (".jsonl", ".json")
    if not path.exists():
        return False
    carried = carried_by(path)
    return LOG in carried.parts or bool(carried.fault)


def open_page(path: Path) -> SavedRun:
    """Return the run that a page without a log shows.

    Raises
    ------
    SavedRunError
        The page is damaged, or none of a run.
    """
    try:
        carried = carried_by(path)
        run = with_texts(carried.data(RUN), whole_texts(carried.data(TEXTS)))
        return SavedRun(checked_run(run), checked_recording(run["view"]))
    except (InvalidEventError, StoreError) as error:
        raise SavedRunError(str(error)) from None
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise SavedRunError(f"{path} is not a page of a run: {type(error).__name__}: {error}") from None


def _notebook(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_FILE:
            raise SavedRunError(f"{path} is too large for a notebook; export the run's log from its store instead")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SavedRunError(f"{path} cannot be read: {error.strerror}; name the notebook's file") from None
    except (ValueError, RecursionError) as error:
        raise SavedRunError(f"{path} is not a notebook: {one_line(str(error), 200)}") from None


def _data_in(notebook: Any) -> Iterator[Any]:
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    for cell in cells if isinstance(cells, list) else ():
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else ():
            data = output.get("data") if isinstance(output, dict) else None
            if isinstance(data, dict) and MIME in data:
                yield data[MIME]
