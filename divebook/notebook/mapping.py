"""`divebook.map`: a function over the rows of a frame, in the session's environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from divebook.agents import Agent
from divebook.environment.environment import Environment
from divebook.mapping import PARALLEL, MappedRows, mapped
from divebook.notebook.frontend import present_front_end
from divebook.notebook.run import Run
from divebook.notebook.session import current_session
from divebook.notebook.waiting import show_live
from divebook.questions.bounds import Bounds
from divebook.workflow.definition import Workflow
from divebook.workflow.step import Retry


class MappedRun(MappedRows):
    """What a function gave for the rows of a frame, shown as the run that calls it."""

    @property
    def run(self) -> Run:
        """The run that makes the calls, or has made them: its view has the progress."""
        return Run(self.execution, self.environment)

    def _ipython_display_(self) -> None:
        """Show the run, live while it makes calls."""
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        front_end = present_front_end(get_ipython())
        if front_end.shows_widgets and self.execution.is_live:
            show_live(self.run, front_end).leave()
        else:
            display(self.run)  # type: ignore[no-untyped-call]


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
) -> MappedRun:
    """Call a function, run a workflow or ask an agent for each row of a frame, once.

    The same line goes on, or has the results, in any later kernel.

    What rows gave is written every thousand rows, or once a second; a kernel that dies loses no more than that. A row
    that raises has its error in the column ``error``, and `MappedRows.retry_failed` calls such rows again.

    Parameters
    ----------
    frame
        A DataFrame of pandas or polars, an Arrow table, or a list of mappings.
    function
        Takes columns by the names of its parameters, or a row as a dict if its only parameter is no column. A dict that
        it returns gives columns, anything else the column ``result``. It may be a coroutine function. A `Workflow`
        takes columns by the names of its inputs, and gives its outputs; an `Agent` is asked the `prompt`.
    store
        The name under which the results are kept and found again; by default the function's.
    parallel
        How many calls are made at a time.
    idempotent
        Whether a call may be made twice where a process died during it; else a person is asked about the rows that were
        under way, a hundred at most. Of an ``@action`` what it says itself holds.
    retry, timeout, executor
        For each call, as for ``@step``; an executor may be all that an environment takes.
    parameters
        What all calls are given besides.
    prompt, output
        Of an agent: a template, in which ``${state.row.NAME}`` is a column and ``${inputs.given.NAME}`` one of the
        `parameters`, and what it is to answer with, as the key ``Output`` of a step has it.
    batch
        Ask an agent through the batch API of its provider, at half the price and within a day: for one that answers
        with one request, without tools.
    bounds
        What all rows together may spend, as for `Environment.start`; what has no budget left is asked about.
    again
        Begin anew, beside what there is.
    environment
        Where it runs and is kept, in place of the session's.

    Raises
    ------
    SetupError
        What is kept under that name was made of another frame.
    StepError
        The function takes what the frame does not have.

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
    found = mapped(
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
    return MappedRun(found.environment, found.execution, found.key, found.workflow)
