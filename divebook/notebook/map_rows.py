"""The function `divebook.map`, which calls a function for each row of a table in the environment of the session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from divebook.agents import Agent
from divebook.environment.environment import Environment
from divebook.mapping import PARALLEL, MappedRows, mapped
from divebook.notebook.run_wait import show_live
from divebook.notebook.session import current_session
from divebook.notebook.view_output import present_front_end
from divebook.questions.bounds import Bounds
from divebook.workflow.definition import Workflow
from divebook.workflow.step import Retry


def map(  # noqa: A001 - it is `divebook.map`
    frame: Any,
    function: Callable[..., Any] | Workflow | Agent,
    *,
    store: str | None = None,
    parallel: int = PARALLEL,
    idempotent: bool = True,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    executor: object = None,
    parameters: Mapping[str, Any] | None = None,
    prompt: str | None = None,
    output: Any = None,
    batch: bool = False,
    bounds: Bounds | Mapping[str, Any] | None = None,
    again: bool = False,
    environment: Environment | None = None,
) -> MappedRows:
    """Call a function, run a workflow or ask an agent once for each row of a frame.

    The same line continues, or returns the results, in any later kernel.

    Results are written every thousand rows, or once a second; a kernel that dies loses at most that. A row whose call
    raises has its error in the column ``error``, and `MappedRows.retry_failed` calls such rows again.

    Parameters
    ----------
    frame
        A DataFrame of pandas or polars, an Arrow table, or a list of mappings.
    function
        Takes columns by the names of its parameters, or a row as a dict if its only parameter is not a column. If it
        returns a dict, each key becomes a column; another value is the column ``result``. It may be a coroutine
        function. A `Workflow` takes columns by the names of its inputs and returns its outputs; an `Agent` answers the
        `prompt`.
    store
        Name under which the results are stored and found again; by default the name of the function.
    parallel
        Number of concurrent calls.
    idempotent
        Whether a call may be repeated if its process died during it. Otherwise a person is asked about the rows that
        were running, at most a hundred. An ``@action`` uses its own setting instead.
    retry, timeout, executor
        For each call, as for ``@step``; an executor may be anything that an environment accepts.
    parameters
        Further arguments, equal for all calls.
    prompt, output
        For an agent: a template, in which ``${state.row.NAME}`` is a column and ``${inputs.given.NAME}`` one of the
        `parameters`, and the type of the answer, as in the key ``Output`` of a step.
    batch
        Ask an agent through the batch API of its provider, at half the price and within a day. The agent must answer
        with one request, without tools.
    bounds
        Budget of all rows together, as for `Environment.start`. If it is used up, a person is asked.
    again
        Start again, and keep the old results beside the new ones.
    environment
        Environment that runs and stores it, in place of the session's.

    Raises
    ------
    SetupError
        The results under that name are of another frame.
    StepError
        The function has a parameter that is not a column of the frame.

    Examples
    --------
    >>> import pandas as pd
    >>> from divebook.notebook.session import open_session
    >>> session = open_session("memory:")
    >>> def label(text):
    ...     return {"label": text.upper()}
    >>> labels = map(pd.DataFrame({"text": ["a", "b"]}), label, store="labels")
    >>> labels.wait().frame["label"].tolist()
    ['A', 'B']
    """
    # `divebook.mapping` lies below this layer and knows no session, so the environment is passed to it.
    return mapped(
        current_session().environment if environment is None else environment,
        frame,
        function,
        store=store,
        parallel=parallel,
        idempotent=idempotent,
        retry=retry,
        timeout=timeout,
        executor=executor,
        parameters=parameters,
        prompt=prompt,
        output=output,
        batch=batch,
        bounds=bounds,
        again=again,
    )


def display_rows(rows: MappedRows) -> None:
    """Display the run of a `divebook.map` call in the cell: as a live view while it is running, else as its report."""
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    # A row call that has ended needs no live view. Its report is displayed like the value of a cell.
    front_end = present_front_end(get_ipython())
    if front_end.shows_widgets and rows.execution.is_live:
        show_live(rows.run, front_end).leave()
    else:
        display(rows.run)  # type: ignore[no-untyped-call]
