"""What the rows of a frame gave, as one frame: of steps with `Each` and `Rows`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from divebook.errors import NotFoundError, SetupError
from divebook.events import Event, catalog

if TYPE_CHECKING:
    import pandas as pd


def rows_frame(asked: tuple[Iterable[Event], str | None]) -> pd.DataFrame:
    """Return what rows gave by their position, with the column ``error``; of a step that was visited again the latest.

    Parameters
    ----------
    asked
        A log, and a step of it; None for the only one that has rows.

    Raises
    ------
    NotFoundError
        The step has no rows that have ended.
    SetupError
        Several steps have, and none was named.
    """
    from divebook.events.arrow.rows import outcome_of

    events, named = asked
    facts = [(event.step, event.data) for event in events if isinstance(event.data, catalog.RowsCompleted)]
    steps = dict.fromkeys(step for step, _ in facts)
    if named is None and len(steps) > 1:
        raise SetupError(
            f"rows of which step? Those of {', '.join(steps)} are there; write rows({next(iter(steps))!r})"
        )
    wanted = next(iter(steps), "") if named is None else named
    parts = [data for step, data in facts if step == wanted]
    if not parts:
        raise NotFoundError("step with rows that have ended", wanted, steps)
    total = max(part.total for part in parts)
    found = outcome_of(total, [(total, [part.result for part in parts])])
    found.index.name = "position"
    return found
