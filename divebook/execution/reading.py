"""What is read off an execution as it stands, the same for a live one, a past one, and the run of a notebook."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from divebook import extensions
from divebook.engine.records import Usage
from divebook.engine.state import ExecutionState, PathState
from divebook.events import Event, catalog
from divebook.events.recorded import opened
from divebook.history.failures import Failure, failure_in, failures_of
from divebook.history.framed import FramedLog
from divebook.history.read_log import ReadLog
from divebook.questions import Question

if TYPE_CHECKING:
    import pandas as pd


class ReadExecution(FramedLog):
    """The facts of an execution, from the fold of its log."""

    @property
    @abstractmethod
    def state(self) -> ExecutionState:
        """The fold of the log so far; an immutable snapshot."""

    @property
    @abstractmethod
    def asked(self) -> dict[str, Question]:
        """Every question ever asked, by id, oldest first; an answer that is kept counts before the log has it."""

    @property
    def id(self) -> str:
        """``exec_`` and 26 characters."""
        return self.state.execution_id

    @property
    def status(self) -> str:
        """One of pending, running, waiting, completed, failed, cancelled."""
        return self.state.status

    @property
    def error(self) -> str | None:
        """Why it failed or was cancelled: ``KeyError: 'b' (step parse, rows[3], Cell [5], line 4)``; see `failure`."""
        return self.state.error

    @property
    def failures(self) -> list[Failure]:
        """The items, and the steps, that have failed, with those after which the run went on; read off the log."""
        return failures_of(ReadLog.of(self._log()))

    @property
    def failure(self) -> Failure | None:
        """Why it failed: type and message, step, item, arguments, the line, the calls that led there; read off the log.

        None is returned for one that has not failed.
        """
        return self.failure_in(ReadLog.of(self._log())) if self.status == catalog.FAILED else None

    def failure_in(self, log: Sequence[Event]) -> Failure | None:
        """Return the same as `failure`, read off its log where that is at hand."""
        return failure_in(log, self.error or "") if self.status == catalog.FAILED else None

    @property
    def continued_as(self) -> str | None:
        """The execution as which it goes on; None if it does not."""
        return self.state.continued_as

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs, defaults included; a fresh copy each time."""
        return _opened(self.state.inputs)

    @property
    def outputs(self) -> dict[str, Any]:
        """The declared outputs, a fresh copy each time; empty until it has completed.

        What this process cannot make again, since its class is not allowed here, stays in its recorded form.
        """
        return _opened(self.state.outputs)

    @property
    def variables(self) -> dict[str, Any]:
        """The workflow's named values as they stand, sorted by name; a fresh copy each time, as of `outputs`."""
        return _opened(dict(sorted(self.state.variables.items())))

    @property
    def paths(self) -> dict[str, PathState]:
        """Its lines of progress by id, oldest first."""
        return {path.id: path for path in sorted(self.state.paths.values(), key=lambda path: path.number)}

    @property
    def usage(self) -> Usage:
        """What model calls have consumed; its `cost` is in nanodollars, those of frames in US dollars."""
        return self.state.own_usage

    @property
    def started_at(self) -> datetime | None:
        """When it began, UTC."""
        return self.state.started_at

    @property
    def ended_at(self) -> datetime | None:
        """When it ended, UTC."""
        return self.state.ended_at

    def inspect(self) -> Any:
        """Return what it waited for and spent, a `divebook.replay.inspection.Inspection`."""
        return extensions.extension(extensions.INSPECT)(self._log())

    @property
    def questions(self) -> pd.DataFrame:
        """What people were asked, what they answered and how long that took: one row per question."""
        asked = ((self.id, question) for question in self.asked.values())
        frame: pd.DataFrame = extensions.extension(extensions.FRAMES)("questions", asked)
        return frame


def _opened(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: opened(value, lenient=True) for name, value in values.items()}
