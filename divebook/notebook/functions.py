"""What the magics do, as functions, for scripts and for notebooks without magics such as marimo's.

`divebook.run` and `divebook.runs` are beside the session; these are the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from divebook.notebook.run import Run
from divebook.notebook.session import current_session

if TYPE_CHECKING:
    import pandas as pd

    from divebook.analysis.listings import Frames


def inbox(*, store: str | None = None) -> pd.DataFrame:
    """Return the questions that wait for an answer, those of the newest execution first.

    `divebook.analysis.listings.questions_frame` documents the columns. As the last value of a cell it shows
    the cards that ``%dive inbox`` shows.

    Examples
    --------
    >>> from divebook.notebook.session import open_session, run
    >>> session = open_session("memory:")
    >>> asking = run("Workflows: [{Name: w, Steps: [{Name: s, Ask: Which one?, Store: it}]}]").wait()
    >>> question = inbox().iloc[0]
    >>> question["question"]
    'Which one?'
    >>> answer(question["interrupt_id"], "this one").wait().status
    'completed'
    """
    from divebook.analysis.listings import ShownFrame, questions_frame
    from divebook.notebook.inbox import InboxDisplay

    environment = current_session().over(store)
    asked = environment.interrupts()
    return ShownFrame.of(questions_frame(asked), InboxDisplay(environment, store) if asked else None)


def frames(
    workflow: str | None = None,
    status: str | None = None,
    limit: int = 0,
    *,
    store: str | None = None,
    **filters: Any,
) -> Frames:
    """Return the frames of many executions: ``frames(workflow="label").operations`` has those of all its runs.

    ``.runs``, ``.events``, ``.operations``, ``.steps``, ``.items`` and ``.questions`` are made when they are asked for;
    `limit` 0 takes all executions, else the newest. The `filters` are those of `runs`.
    """
    from divebook.analysis.listings import Frames

    environment = current_session().over(store)
    return Frames(environment.store, environment.executions(status, workflow, limit, **filters))


def answer(interrupt_id: str, response: Any, *, by: str | None = None, store: str | None = None) -> Run:
    """Answer a question; its run goes on at once, `wait` for the end.

    Parameters
    ----------
    interrupt_id
        Which question, as `inbox` names it.
    response
        What fits the kind of question; see `divebook.Environment.answer`.
    by
        Who answers; by default the user of this process.

    Raises
    ------
    NotFoundError
        There is no such question.
    InterruptError
        It has an answer already, has expired, or this answer does not fit: it stays open then.
    """
    return current_session().answer(interrupt_id, response, by=by, store=store)


def show(execution_id: str, *, store: str | None = None) -> Run:
    """Return a run, live or past; the beginning of its id is enough."""
    return current_session().run_of(execution_id, store=store)


def resume(execution_id: str, *, store: str | None = None) -> Run:
    """Take a run up again where its log ends; returns at once, `wait` for the end."""
    return current_session().resume(execution_id, store=store)
