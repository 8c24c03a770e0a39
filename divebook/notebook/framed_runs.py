"""What `divebook.frames` is given: a store, or executions of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from divebook.environment import Environment
from divebook.errors import SetupError
from divebook.execution.execution import Execution
from divebook.notebook.run import Run
from divebook.store import EventStore

if TYPE_CHECKING:
    import pandas as pd

FramesOf: TypeAlias = (
    "EventStore | Environment | Execution | Run | Iterable[Execution | Run] | pd.DataFrame | str | None"
)


def executions_of(given: Any) -> tuple[EventStore | None, list[str] | None]:
    """Return the store that is meant, and which of its executions; None for that of the session, and for all.

    Raises
    ------
    SetupError
        It is nothing of that, or executions of several stores.
    """
    if given is None or isinstance(given, EventStore):
        return given, None
    if isinstance(given, Environment):
        return given.store, None
    if isinstance(given, Execution | Run):
        given = [given]
    if hasattr(given, "columns"):
        if "execution_id" not in given.columns:
            raise SetupError("frames of a DataFrame need its column 'execution_id', as frames of executions have it")
        return None, list(dict.fromkeys(given["execution_id"]))
    runs = list(given) if isinstance(given, Iterable) else [given]
    for run in runs:
        if not isinstance(run, Execution | Run):
            raise SetupError(f"frames are of a store, an environment, runs or a frame of executions, not of {run!r}")
    held = [run.execution if isinstance(run, Run) else run for run in runs]
    stores = {id(run.store): run.store for run in held}
    if len(stores) > 1:
        raise SetupError("these runs are in several stores; ask for the frames of each store")
    return next(iter(stores.values()), None), [run.id for run in runs]
