"""Base classes of those objects (executions, runs, saved runs and collections of them) that provide event logs as
DataFrames.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from divebook.errors import SetupError
from divebook.events import Event
from divebook.projections.model_requests import CallMessage, RequestView, conversation_in, requests_of
from divebook.stores.history import History
from divebook.text.arguments import suggest_in_methods

if TYPE_CHECKING:
    import pandas as pd

    from divebook.replay.provenance import Provenance


@suggest_in_methods
class Framed(ABC):
    """Base class of objects that provide event logs as DataFrames.

    `divebook.analysis.log` and `divebook.analysis.agents` document the columns.
    """

    @abstractmethod
    def _frame(self, kind: str) -> pd.DataFrame:
        """Return the DataFrame of a kind, such as ``events`` or ``steps``, for the logs of this object."""

    @property
    def events(self) -> pd.DataFrame:
        """DataFrame with one row per event: `divebook.analysis.log.events_frame`."""
        return self._frame("events")

    @property
    def operations(self) -> pd.DataFrame:
        """DataFrame with one row per operation (model call, action, script, ...):
        `divebook.analysis.log.operations_frame`.
        """
        return self._frame("operations")

    @property
    def model_calls(self) -> pd.DataFrame:
        """DataFrame with one row per request to a model: `divebook.analysis.agents.model_calls_frame`."""
        return self._frame("model_calls")

    @property
    def messages(self) -> pd.DataFrame:
        """DataFrame with one row per message of each model request and response:
        `divebook.analysis.agents.messages_frame`.
        """
        return self._frame("messages")

    @property
    def tool_calls(self) -> pd.DataFrame:
        """DataFrame with one row per call of a tool: `divebook.analysis.agents.tool_calls_frame`."""
        return self._frame("tool_calls")

    def costs(self, by: Literal["agent", "model", "tool", "step"] = "agent") -> pd.DataFrame:
        """Return a DataFrame with tokens and cost, one row per agent, model, tool or step.

        `divebook.analysis.agents.costs_frame` documents the columns.
        """
        if by not in ("agent", "model", "tool", "step"):
            raise SetupError(f"costs can be grouped by agent, model, tool or step, not by {by!r}")
        return self._frame(f"costs by {by}")

    @property
    def steps(self) -> pd.DataFrame:
        """DataFrame with one row per visit to a step: `divebook.analysis.log.steps_frame`."""
        return self._frame("steps")

    @property
    def items(self) -> pd.DataFrame:
        """DataFrame with one row per item of ``Each``: `divebook.analysis.log.items_frame`."""
        return self._frame("items")

    @property
    def failed_items(self) -> pd.DataFrame:
        """DataFrame of the items of ``Each`` that failed, with their errors."""
        items = self.items
        return items[items["status"] == "failed"].reset_index(drop=True)


@suggest_in_methods
class FramedLog(Framed):
    """Base class of objects with exactly one event log, such as an execution. It reads requests, messages and origins
    of values from the log.
    """

    @abstractmethod
    def _log(self) -> Sequence[Event]:
        """Return the events of the log, oldest first."""

    @property
    def requests(self) -> list[RequestView]:
        """All requests of agents to models, oldest first, each with its messages, settings and response.

        ``requests[0].messages`` are exactly the messages that the model received, in pydantic-ai's JSON form.
        """
        return requests_of(self._log())

    @property
    def conversation(self) -> list[CallMessage]:
        """Messages of all agents in one list: prompts, responses and results of tools, each message once."""
        return conversation_in(self.requests)

    def why(self, name: str, at: int | None = None, *, row: int | None = None, column: str | None = None) -> Provenance:
        """Return the origin of the value of a variable: the events, steps, calls, variables and inputs that led to it.

        Parameters
        ----------
        name
            A variable (``x``, ``state.x``), an input (``inputs.x``), an output, or ``state`` for all variables.
        at
            The number of the event after which the value is read; by default the last.
        row, column
            Row (from 0) and column of a list or DataFrame that items of ``Each`` have produced.

        Raises
        ------
        NotFoundError
            The variable had no value at that event, and no recorded choice explains why. Or the log does not record
            which item produced the row.
        """
        # Higher packages are imported when they are used: `Run` has these methods, and must not load pandas.
        from divebook.replay.provenance import why

        return why(self._log(), name, at, row=row, column=column)

    def rows(self, step: str | None = None) -> pd.DataFrame:
        """Return a DataFrame with the results of a step that ran over the rows of a frame:
        `divebook.analysis.lists.rows_frame`.

        ``frame.reset_index(drop=True).join(run.rows())`` adds them to the frame that the step processed.

        Parameters
        ----------
        step
            Name of a step with ``Each`` and ``Rows``. It can be omitted if the workflow has only one such step.
        """
        from divebook.analysis.lists import frame_of

        return frame_of("rows", (self._log(), step))

    def _frame(self, kind: str) -> pd.DataFrame:
        from divebook.analysis.lists import frame_of

        return frame_of(kind, self._log())


def log_of(run: FramedLog) -> Iterable[Event]:
    """Return the events of the log of a run, oldest first. Events that are read from a store have no event ids."""
    log = run._log()  # noqa: SLF001 - its own method, in its own file
    # Reading all events in one call is quicker than page by page, and frames need no event ids.
    return log.at_once() if isinstance(log, History) else log
