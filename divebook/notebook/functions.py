"""What the magics do, as functions, for scripts and for notebooks without magics such as marimo's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from divebook.config import load
from divebook.config.answers import answers_from
from divebook.environment.environment import Environment
from divebook.environment.starts import StartOptions
from divebook.errors import NotFoundError, SetupError
from divebook.events.classes import name_of
from divebook.notebook.run import Run
from divebook.notebook.session import Defined, Session, current_session
from divebook.projections.comparison import Comparison
from divebook.projections.frames_mixin import FramedLog
from divebook.runtime.execution import Execution
from divebook.store import EventStore
from divebook.text.arguments import require
from divebook.workflow.answer_types import allow_answers, answer_type
from divebook.workflow.definition import Definitions, InputDefinition, Workflow
from divebook.workflow.dialect import OWN, Dialect
from divebook.workflow.reader import read_definitions
from divebook.workflow.step import Step

if TYPE_CHECKING:
    import pandas as pd

    from divebook.analysis.store import Frames
    from divebook.notebook.lists import Runs


# What `divebook.frames` is given: a store, or executions of one.


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


DEFINITION_FILES = (".yaml", ".yml", ".json")


def define(definitions: Definitions | str, *, dialect: Dialect = OWN) -> Defined:
    """Take definitions, or the text of some, into the session, as a ``%%dive`` cell does.

    Raises
    ------
    DefinitionError
        With every problem found; nothing is taken in.
    """
    return current_session().define(definitions, dialect=dialect)


def run(
    workflow: Workflow | str | Path,
    inputs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    store: str | None = None,
    answers: Mapping[str, Any] | str | Path | None = None,
    strict: bool = False,
    dialect: Dialect = OWN,
    **options: Unpack[StartOptions],
) -> Run:
    """Start a workflow and return at once; ``await`` the result, or call its `wait`.

    Parameters
    ----------
    workflow
        A `Workflow`, the name of a defined one, the path of a definition file or folder, or a definition text.
    inputs
        Plain data by name.
    name
        Which workflow of the file, folder or text; not needed if it has only one.
    store
        Where the execution rests, if not in the session's store.
    answers
        Answers up front, used while the run is waited for: by id, by step, or ``step:2`` for its second question; or
        the path of a YAML file that holds them. Those in ``DIVEBOOK_ANSWERS`` hold as well.
    strict
        Raise an `ExecutionWaitingError` in the code that waits for the run if it has to wait for an answer or a signal.
    dialect
        How a file or text is read.
    options
        Bounds, durability, start key, model, tags and more: see `divebook.environment.starts.StartOptions`.

    Examples
    --------
    >>> from divebook.notebook.session import open_session
    >>> session = open_session("memory:")
    >>> run("Workflows: [{Name: sum, Steps: [{Name: add, Script: 1 + 1, Store: n}]}]").wait().variables
    {'n': 2}
    """
    fits = isinstance(workflow, Workflow | str | Path)
    require(workflow, "the workflow to run", "a Workflow, a name, a path or a definition text", fits=fits)
    session = current_session()
    chosen = workflow if isinstance(workflow, Workflow) else _chosen(session, workflow, name, dialect)
    known = answers_from(file=answers) if isinstance(answers, str | Path) else answers_from(given=answers)
    started = session.start(chosen, inputs, store=store, answers=known, **options)
    started.strict = strict
    return started


def _chosen(session: Session, source: str | Path, name: str | None, dialect: Dialect) -> Workflow:
    """Return the workflow that a name, path or text stands for; what a path or text defines joins the session."""
    if isinstance(source, str) and source in session.environment.workflows:
        return session.workflow(source)
    if isinstance(source, str) and ("\n" in source or ": " in source):
        definitions = read_definitions(source, source_name="text", dialect=dialect)
        session.define(definitions)
    elif isinstance(source, Path) or source.endswith(DEFINITION_FILES) or Path(source).is_dir():
        definitions = load(source, dialect=dialect)
        session.define(definitions, folder=Path(source) if Path(source).is_dir() else Path(source).parent)
    else:
        raise NotFoundError("workflow", source, session.environment.workflows)
    return session.workflow(name or _only_workflow(definitions))


def _only_workflow(definitions: Definitions) -> str:
    """Return the workflow to run where none was named: the default one, or the only one."""
    names = [workflow.name for workflow in definitions.workflows]
    if definitions.config.default_workflow:
        return definitions.config.default_workflow
    if len(names) != 1:
        raise SetupError(f"say which workflow to run: run(..., name=...); there is {', '.join(names) or 'none'}")
    return names[0]


def runs(
    status: str | None = None,
    workflow: str | None = None,
    limit: int = 0,
    *,
    store: str | None = None,
    of: Any = None,
    **filters: str | None,
) -> Runs:
    """Return the executions of the store, newest first.

    As the last value of a cell they are shown as a list to browse: live, with filters, what each cost and why it
    failed, and buttons that open, resume, cancel and tag them. ``.frame()`` is a DataFrame, ``runs()[0]`` the newest
    run; ``runs(status="failed").resume()``, ``.cancel()``, ``.tag()``, ``.untag()`` and ``.note()`` are done with all
    of them, and return a frame of what became of each. `of` names them one by one instead: ids, runs, or a frame of
    executions. `limit` 0 takes all. The `filters` are those of `EventStore.records`: ``tag``, ``origin``, ``parent``,
    ``notebook``, ``cell``.
    """
    from divebook.notebook.lists import Runs

    if of is not None:
        if status or workflow or limit or filters:
            raise SetupError("runs(of=...) names the runs one by one; leave status, workflow, limit and filters out")
        names: Any = [of] if isinstance(of, str | Run) else of
        expected = "ids, runs, or a frame of executions; write runs(of=['exec_...'])"
        require(names, "of", expected, fits=isinstance(names, Iterable))
        is_named = not hasattr(names, "columns") and all(isinstance(name, str) for name in names)
        chosen: Iterable[str] = names if is_named else executions_of(names)[1] or ()
        return Runs(current_session().over(store), store=store, chosen=tuple(dict.fromkeys(chosen)))
    asked = {"status": status, "workflow": workflow, **filters}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    environment = current_session().over(store)
    environment.executions(limit=1, **given)  # what no execution can be is refused here
    return Runs(environment, given, limit, store)


def inbox(*, store: str | None = None) -> pd.DataFrame:
    """Return the questions that wait for an answer, those of the newest execution first.

    `divebook.analysis.lists.questions_frame` documents the columns. As the last value of a cell it shows
    the cards that ``%dive inbox`` shows.

    Examples
    --------
    >>> from divebook.notebook.session import open_session
    >>> session = open_session("memory:")
    >>> asking = run("Workflows: [{Name: w, Steps: [{Name: s, Ask: Which one?, Store: it}]}]").wait()
    >>> question = inbox().iloc[0]
    >>> question["question"]
    'Which one?'
    >>> answer(question["interrupt_id"], "this one").wait().status
    'completed'
    """
    from divebook.analysis.lists import ShownFrame, questions_frame
    from divebook.notebook.lists import InboxDisplay

    environment = current_session().over(store)
    asked = environment.interrupts()
    return ShownFrame.of(questions_frame(asked), InboxDisplay(environment, store) if asked else None)


def frames(
    of: FramesOf = None,
    where: Mapping[str, Any] | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    limit: int = 0,
    store: str | None = None,
    **filters: Any,
) -> Frames:
    """Return the frames of many executions, or of a whole store: ``frames(workflow="label").operations``.

    ``.executions``, ``.events``, ``.operations``, ``.steps``, ``.items``, ``.paths``, ``.variables``, ``.questions``,
    ``.usage``, and of agents ``.model_calls``, ``.messages``, ``.tool_calls`` and ``.costs()`` are made when they are
    asked for; ``.arrow("events")`` is a table for DuckDB and polars, ``.reader("events")`` gives it in batches.

    Parameters
    ----------
    of
        A store, an environment, an execution or a run, several of these, or a frame with a column `execution_id`; a
        text is the name of a workflow. Without it, and with a workflow, it is the session's store.
    where
        Which executions: ``status``, ``workflow``, ``tag``, ``origin``, ``ids``, ``text``, ``since``, ``until`` and
        more, see `divebook.analysis.store.Selection`; each may be a list. `filters` are further parts of it.
    columns
        Columns of your own, by path: ``{"label": "outputs.label", "scores": "variables.rows.*.score"}``; see
        `divebook.analysis.store.Frames`.
    limit
        0 takes all executions, else the newest.

    Raises
    ------
    NotFoundError
        There is no such filter, status or origin.
    SetupError
        A path or a time cannot be read.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow, frames
    >>> environment = Environment(store="memory:", workflows=[Workflow("w", [Step("s", script="1", store="n")])])
    >>> _ = environment.start("w", tags=["baseline"]).wait()
    >>> frames(environment, {"tag": "baseline"}, columns={"n": "variables.n"}).executions[["status", "n"]].to_numpy()
    array([['completed', 1]], dtype=object)
    """
    from divebook.analysis.store import Frames, Selection

    asked = {**(where or {}), **filters}
    if isinstance(of, str):
        asked["workflow"] = of
        of = None
    found, ids = executions_of(of)
    if ids is not None:
        asked.setdefault("ids", ids)
    selection = Selection.of(asked)
    source = current_session().over(store).store if found is None else found
    return Frames(source, selection.records(source, limit), columns or {}, selection.origin is not None)


def answer(
    interrupt_id: str, response: Any, *, alike: bool = False, by: str | None = None, store: str | None = None
) -> Run:
    """Answer a question; its run goes on at once, `wait` for the end.

    Parameters
    ----------
    interrupt_id
        Which question, as `inbox` names it.
    response
        What fits the kind of question; see `divebook.Environment.answer`.
    alike
        Whether all open questions like it get the same answer; see `divebook.Environment.answer_alike`.
    by
        Who answers; by default the user of this process.

    Raises
    ------
    NotFoundError
        There is no such question.
    InterruptError
        It has an answer already, has expired, or this answer does not fit: it stays open then.
    """
    return current_session().answer(interrupt_id, response, alike=alike, by=by, store=store)


def compare(*runs: FramedLog | str, store: str | None = None) -> Comparison:
    """Lay two or more runs side by side, place by place: what is the same, changed, added and removed.

    As the last value of a cell both are shown beside each other, the first difference opened, with what each cost.
    ``.first`` is where they part, ``.frame()`` has a row per place, ``.summary`` says it in a line.

    Parameters
    ----------
    runs
        Runs, executions, runs of saved notebooks, or ids of those in the store; the first with each of the others.

    Raises
    ------
    UnrelatedError
        They are of different workflows, and none was made of the other.

    Examples
    --------
    >>> from divebook.notebook.session import open_session
    >>> session = open_session("memory:")
    >>> flow = "{Name: sum, Inputs: [{Name: n}], Steps: [{Name: add, Script: inputs.n + 1}]}"
    >>> change = session.define(f"Workflows: [{flow}]")
    >>> compare(run("sum", {"n": 1}).wait(), run("sum", {"n": 2}).wait()).summary.partition(";")[0]
    '1 same, 3 changed'
    """
    return current_session().over(store).compare(*runs)


def show(execution_id: str, *, store: str | None = None) -> Run:
    """Return a run, live or past; the beginning of its id is enough."""
    return current_session().run_of(execution_id, store=store)


def resume(execution_id: str, *, store: str | None = None) -> Run:
    """Take a run up again where its log ends; returns at once, `wait` for the end."""
    return current_session().resume(execution_id, store=store)


# A question to an agent as a run: a workflow of one step, so that it is recorded, resumed and shown as any other.


STEP = "ask"
ANSWER = "answer"


def ask_workflow(agent: str, output: str | None = None, thread: str | None = None) -> Workflow:
    """Return the workflow that asks an agent what its input says.

    The answer may have to be of an allowed class, and the question may go on with a thread.

    >>> ask_workflow("critic").name
    'ask critic'
    """
    step = Step(STEP, agent=agent, prompt="${inputs.prompt}", output=output, thread=thread, store=ANSWER)
    return Workflow(f"ask {agent}", [step], inputs=[InputDefinition("prompt", type="string")], outputs=[ANSWER])


def class_of_answer(name: str | None, variables: Mapping[str, Any]) -> str | None:
    """Return the full name of the class that a line names: one of the kernel's, which this allows, or an allowed one.

    Raises
    ------
    NotFoundError
        There is no such class.
    """
    found = variables.get(name or "")
    if not isinstance(found, type):
        answer_type(name)
        return name
    allow_answers(found)
    return name_of(found)
