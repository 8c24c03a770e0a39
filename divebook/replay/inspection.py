"""What a run waited for and spent: its critical path, time by kind, what was tried again, costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divebook import extensions
from divebook.replay.inspected import Inspected
from divebook.replay.inspection_shown import as_html, as_text

if TYPE_CHECKING:
    import pandas as pd


class Inspection(Inspected):
    """What a run waited for and spent; printed it says so in words, and its frames are those of the run's log.

    `divebook.Environment.inspect` and ``run.inspect()`` return it.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:", workflows=[Workflow("sum", [Step("add", script="1 + 1")])])
    >>> found = environment.inspect(environment.start("sum").wait().id)
    >>> sorted(found.spent), sum(found.spent.values()) == found.duration_us
    (['overhead', 'scripts'], True)
    """

    @property
    def critical_path(self) -> pd.DataFrame:
        """One row per part of the critical path: `divebook.analysis.inspection_frames.parts_frame`."""
        return self._found("critical path")

    @property
    def times(self) -> pd.DataFrame:
        """One row per kind of time along it: `divebook.analysis.inspection_frames.times_frame`."""
        return self._found("times")

    @property
    def retries(self) -> pd.DataFrame:
        """One row per attempt that failed and was followed by another: `...inspection_frames.retries_frame`."""
        return self._found("retries")

    def _found(self, kind: str) -> pd.DataFrame:
        made: pd.DataFrame = extensions.extension(extensions.FRAMES)(kind, self)
        return made

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self)
