"""The magics as Python functions, for scripts and for notebooks without magics, such as marimo's."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, Unpack, cast, overload

from divebook.agents import Agent
from divebook.commands import driving, inspection
from divebook.commands.command import PYTHON, Invocation
from divebook.commands.inspection import RunQuery
from divebook.config import load
from divebook.config.answers import answers_from
from divebook.definitions.definition import Definitions, Workflow
from divebook.definitions.dialect import OWN, Dialect
from divebook.definitions.functions import WorkflowFunction
from divebook.definitions.reader import read_definitions
from divebook.definitions.step import Retry
from divebook.environments.environment import Environment
from divebook.environments.starts import OPTION_NAMES, StartOptions, require_options
from divebook.errors import DivebookError, InputError, NotFoundError, SetupError
from divebook.mapping import PARALLEL, AnyFrame, MapOptions, MappedRows, mapped
from divebook.notebook.commands import print_answer
from divebook.notebook.run_wait import show_live
from divebook.notebook.session import Defined, Session, current_session, is_definition_path
from divebook.notebook.shell_state import present_front_end
from divebook.projections.comparison import Comparison
from divebook.projections.log_frames import FramedLog
from divebook.questions import Question
from divebook.questions.bounds import Bounds
from divebook.runtime.run import Run
from divebook.stores import EventStore
from divebook.text.arguments import (
    DurationLike,
    describe,
    id_of,
    question_id_of,
    require,
    require_string,
    suggest_arguments,
)
from divebook.text.ranges import COUNT_OR_ZERO

if TYPE_CHECKING:
    import pandas as pd

    from divebook.analysis.store import Frames
    from divebook.notebook.run_list import OpenQuestions, Runs


P = ParamSpec("P")
R = TypeVar("R")
FramesOf: TypeAlias = "EventStore | Environment | Run | Iterable[Run | str] | pd.DataFrame | str | None"
EXECUTION_PREFIX = "exec_"


def executions_of(source: Any) -> tuple[EventStore | None, list[str] | None]:
    """Convert the argument of `frames` to a store and a list of execution ids. The argument can be a store, an
    environment, a run, several runs or ids, or a DataFrame with a column of ids.

    The store is None for the store of the session. The ids are None for all executions of the store.

    Raises
    ------
    SetupError
        The argument has another type, or its executions are in several stores.
    """
    if source is None or isinstance(source, EventStore):
        return source, None
    if isinstance(source, Environment):
        return source.store, None
    if isinstance(source, Run):
        source = [source]
    # Any DataFrame, without importing pandas or polars.
    if hasattr(source, "columns"):
        if "execution_id" not in source.columns:
            raise SetupError("the DataFrame has no column 'execution_id'; pass a DataFrame of executions")
        return None, list(dict.fromkeys(source["execution_id"]))
    # Anything else that is not iterable ends in the error below, which names it.
    runs = list(source) if isinstance(source, Iterable) else [source]
    if runs and all(isinstance(run, str) for run in runs):
        return None, runs
    for run in runs:
        if not isinstance(run, Run):
            expected = "a store, an environment, runs, ids of runs, or a DataFrame of executions"
            raise SetupError(f"frames() expects {expected}, not {describe(run)}")
    # Stores are compared by identity.
    stores = {id(run.store): run.store for run in runs}
    if len(stores) > 1:
        raise SetupError("these runs are in several stores; call frames() once for each store")
    # An empty list of runs has no store, and its ids select nothing.
    store = next(iter(stores.values()), None)
    return store, [run.id for run in runs]


def _short_in_ipython(function: Callable[P, R]) -> Callable[P, R]:
    """Make IPython show errors of divebook that a function raises without the lines of divebook. Programs get the
    errors as they are.
    """

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except DivebookError as error:
            # Only an interactive shell has loaded this module.
            if "IPython.core.interactiveshell" in sys.modules:
                from IPython.core.getipython import get_ipython

                from divebook.notebook.cells import show_short

                if (shell := get_ipython()) is not None:
                    show_short(error, shell)
            raise

    return called


@_short_in_ipython
@suggest_arguments
def environment() -> Environment:
    """Return the environment of the notebook session, in which ``%dive`` and these functions run workflows.

    Examples
    --------
    >>> from divebook.notebook.session import open_session
    >>> session = open_session("memory:")
    >>> environment().definitions.workflows
    {}
    """
    return current_session().environment


def _call(store: str | None) -> Invocation:
    """Return the call of a command by a Python function, in the session and over a store."""
    session = current_session()
    return Invocation(
        PYTHON,
        lambda: session.over(store),
        lambda text, _style: print_answer(text),
        store,
        last_run=session.last,
    )


@_short_in_ipython
@suggest_arguments
def define(*objects: Any, dialect: Dialect = OWN) -> Defined:
    """Add definitions to the session, as a ``%%dive`` cell does. New definitions replace older definitions with the
    same names.

    Parameters
    ----------
    objects
        YAML texts, paths of definition files or folders, `Definitions`, Python objects (workflows, agents, also of
        pydantic-ai, actions, tools, workspaces, MCP servers and schedules), and lists of all these.
    dialect
        Dialect of the texts and files.

    Raises
    ------
    DefinitionError
        The definitions have problems; the error lists all of them, and nothing is added.
    SetupError
        An object is not a definition. Nothing is added.

    Examples
    --------
    >>> from divebook import Step, Workflow
    >>> from divebook.notebook.session import open_session
    >>> session = open_session("memory:")
    >>> define(Workflow("sum", [Step("add", script="1 + 1", store="n")])).defined
    ("workflow 'sum' (1 step)",)
    """
    return current_session().define(*objects, dialect=dialect)


@overload
def run(
    workflow: WorkflowFunction[..., R],
    inputs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    store: str | None = None,
    answers: Mapping[str, Any] | str | Path | None = None,
    strict: bool = False,
    dialect: Dialect = OWN,
    **options: Unpack[StartOptions],
) -> Run[R]: ...
@overload
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
) -> Run: ...
# The parameters of the function, except those that have the name of an option.
@overload
def run(workflow: WorkflowFunction[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
@_short_in_ipython  # type: ignore[misc]
def run(
    workflow: Workflow | str | Path,
    inputs: Any = None,
    *more_inputs: Any,
    name: str | None = None,
    store: str | None = None,
    answers: Mapping[str, Any] | str | Path | None = None,
    strict: bool = False,
    dialect: Dialect = OWN,
    **options: Any,
) -> Run:
    """Start a workflow and return at once; ``await`` the result, or call its `wait`.

    Parameters
    ----------
    workflow
        A `Workflow`, the name of a defined one, the path of a definition file or folder, or a definition text.
    inputs, more_inputs
        The inputs by name, as a mapping. Each input may also be a keyword, unless an option has its name:
        ``run(total, words=words)``, ``run(total, inputs={"store": "north"})``. A workflow function also takes them in
        order, as the function does; a single mapping is always the inputs by name.
    name
        The workflow of the file, folder or text; not needed if it has only one.
    store
        Address of the store; by default the session's store.
    answers
        Answers given in advance, which are used while the program waits for the run. Keys are question ids, step names,
        or ``step:2`` for the second question of a step. The value may also be the path of a YAML file with answers. The
        answers in ``DIVEBOOK_ANSWERS`` are used too.
    strict
        Raise an `ExecutionWaitingError` in the code that waits for the run if it has to wait for an answer or a signal.
    dialect
        Dialect of a file or text.
    options
        Bounds, durability, start key, model, tags and more: see `divebook.environments.starts.StartOptions`.

    Examples
    --------
    >>> from divebook.notebook.session import open_session
    >>> session = open_session("memory:")
    >>> run("Workflows: [{Name: sum, Steps: [{Name: add, Script: 1 + 1, Store: n}]}]").wait().variables
    {'n': 2}
    >>> from divebook import workflow
    >>> @workflow
    ... async def product(ctx, one: int, other: int):
    ...     return one * other
    >>> run(product, one=6, other=7).result(), run(product, 6, 7).result()
    (42, 42)
    """
    present: object = workflow  # the type hint does not bind callers
    if not isinstance(present, Workflow | str | Path):
        expected = "a Workflow, the name of a workflow, the path of a definition file or a YAML string"
        raise SetupError(f"the workflow to run must be {expected}, not {describe(workflow)}")
    if name is not None:
        require_string(name, "name")
    session = current_session()
    # Names, paths and texts become a registered workflow, so that later calls can use its name.
    if not isinstance(workflow, Workflow):
        workflow = _workflow_from(session, workflow, name, dialect)
    declared = {definition.name for definition in workflow.inputs} - StartOptions.__annotations__.keys()
    keywords = {key: options.pop(key) for key in [*options] if key in declared}
    names = (*sorted(declared), *sorted(OPTION_NAMES | KEYWORDS_OF_RUN))
    require_options(options, names, "a run has no input or option")
    inputs = _inputs_of_call(workflow, (inputs, *more_inputs), keywords)
    _require_inputs_named_like_options(workflow, inputs)
    read_answers = answers_from(file=answers) if isinstance(answers, str | Path) else answers_from(mapping=answers)
    started = session.start_run(workflow, inputs, store=store, answers=read_answers, **options)
    # Set after the start, because `strict` concerns only those who wait with this handle.
    started.internals.options.strict = strict
    return started


KEYWORDS_OF_RUN = frozenset(
    name for name, parameter in inspect.signature(run).parameters.items() if parameter.kind is parameter.KEYWORD_ONLY
)
"""Names of the parameters of `run` that are passed by keyword."""
OPTIONS_OF_RUN = {*inspect.signature(run).parameters, *StartOptions.__annotations__}
"""Names of the parameters of `run`, which an input can have too."""


def _inputs_of_call(workflow: Workflow, positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Return the inputs of `run` by name. They are in a mapping, in the order of the function's parameters, or in
    keywords.

    Raises
    ------
    InputError
        An input occurs twice, or the function does not accept the inputs.
    """
    first, *rest = positional
    if isinstance(workflow, WorkflowFunction) and (rest or not isinstance(first, Mapping | None)):
        try:
            return workflow.arguments(positional, keywords)
        except TypeError as error:
            raise InputError(f"workflow {workflow.name}: {error}") from error
    if not keywords:
        return first
    if twice := sorted(keywords.keys() & (first or {}).keys()):
        raise InputError(
            f'input "{twice[0]}" is passed twice, in the mapping and as a keyword argument; pass it once', twice[0]
        )
    return {**(first or {}), **keywords}


def _require_inputs_named_like_options(workflow: Workflow, inputs: Any) -> None:
    """Raise `InputError` if a required input is missing that has the name of an option of `run`, such as ``store``: its
    keyword is the option, so that only the mapping can give it.
    """
    for definition in workflow.inputs:
        is_required = not definition.has_default and definition.required is not False
        is_missing = inputs is None or (isinstance(inputs, Mapping) and definition.name not in inputs)
        if is_required and is_missing and definition.name in OPTIONS_OF_RUN:
            name = definition.name
            raise InputError(
                f'input "{name}" is missing, and {name}=... is an option of divebook.run, not an input; '
                f'write inputs={{"{name}": ...}}',
                name,
            )


def _workflow_from(session: Session, source: str | Path, name: str | None, dialect: Dialect) -> Workflow:
    """Return the workflow that a person names, either by the name of a defined workflow or by the path or text of
    definitions. Definitions from a path or text are added to the session.
    """
    # A defined name comes first: a workflow may be called like a folder.
    if isinstance(source, str) and source in session.environment.definitions.workflows:
        return session.workflow(source)
    # A line break or ``: `` marks the text of a definition.
    if isinstance(source, str) and ("\n" in source or ": " in source):
        definitions = read_definitions(source, source_name="text", dialect=dialect)
        session.define(definitions)
    # A name without a suffix of definition files may still be the path of a folder of definitions.
    elif is_definition_path(source) or Path(source).is_dir():
        definitions = load(source, dialect=dialect)
        path = Path(source)
        # Paths inside definitions are relative to their own folder.
        session.define(definitions, folder=path if path.is_dir() else path.parent)
    else:
        raise NotFoundError("workflow", str(source), session.environment.definitions.workflows)
    return session.workflow(name or _only_workflow(definitions))


def _only_workflow(definitions: Definitions) -> str:
    """Return the name of the default workflow among definitions, or else of the only workflow. Raise `SetupError` if
    there are several or none.
    """
    names = [workflow.name for workflow in definitions.workflows]
    if definitions.config.default_workflow:
        return definitions.config.default_workflow
    if len(names) != 1:
        present = ", ".join(names) or "none"
        raise SetupError(f"name the workflow to run: run(..., name=...); workflows in these definitions: {present}")
    return names[0]


@_short_in_ipython
@suggest_arguments
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

    As the last value of a cell they are a live list with filters, costs, errors, and buttons that open, resume, cancel
    and tag them. ``.frame()`` is a DataFrame, ``runs()[0]`` the newest run. ``runs(status="failed").resume()``,
    ``.cancel()``, ``.tag()``, ``.untag()`` and ``.note()`` act on all of them, and return a DataFrame of the results.

    Parameters
    ----------
    limit
        Maximum number; 0 for all.
    of
        Ids, runs, or a frame of executions, in place of filters.
    filters
        Further filters of `EventStore.records`: ``tag``, ``origin``, ``parent``, ``notebook``, ``cell``.
    """
    from divebook.notebook.run_list import Runs, list_of

    require(limit, "limit", f"{COUNT_OR_ZERO} (0 means all)", fits=COUNT_OR_ZERO.fits(limit))
    if of is not None:
        if status or workflow or limit or filters:
            raise SetupError("runs(of=...) cannot be combined with status, workflow, limit or filters; remove them")
        # A single id is an iterable of characters, which is never meant.
        names: Any = [of] if isinstance(of, str | Run) else of
        expected = "a list of ids or runs, or a DataFrame of executions, as in runs(of=['exec_...'])"
        require(names, "of", expected, fits=isinstance(names, Iterable))
        # Ids need not exist: actions on them report each missing one. Runs and frames are converted to ids.
        are_ids = not hasattr(names, "columns") and all(isinstance(name, str) for name in names)
        ids: Iterable[str] = names if are_ids else executions_of(names)[1] or ()
        return Runs(current_session().over(store), store=store, chosen=tuple(dict.fromkeys(ids)))
    all_filters: dict[str, Any] = {"status": status, "workflow": workflow, **filters}
    all_filters = {name: value for name, value in all_filters.items() if value is not None}
    environment = current_session().over(store)
    return list_of(RunQuery(environment.store, all_filters, limit), environment, store)


@_short_in_ipython
@suggest_arguments
def inbox(*, store: str | None = None) -> OpenQuestions:
    """Return the open questions as pairs of run id and question; questions of the newest execution come first.

    ``.frame()`` is a DataFrame. As the last value of a cell the list shows the cards of ``%dive inbox``.

    Examples
    --------
    >>> from divebook.notebook.session import open_session
    >>> session = open_session("memory:")
    >>> asking = run("Workflows: [{Name: w, Steps: [{Name: s, Ask: Which one?, Store: it}]}]").wait()
    >>> ((run_id, question),) = inbox()
    >>> question.question
    'Which one?'
    >>> answer(question, "this one").wait().status
    'completed'
    """
    from divebook.notebook.run_list import OpenQuestions

    return OpenQuestions(current_session().over(store), store)


@_short_in_ipython
@suggest_arguments
def frames(
    of: FramesOf = None,
    where: Mapping[str, Any] | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    limit: int = 0,
    store: str | None = None,
    **filters: Any,
) -> Frames:
    """Return the DataFrames of many executions, or of a whole store: ``frames(workflow="label").operations``.

    The frames ``.executions``, ``.events``, ``.operations``, ``.steps``, ``.items``, ``.paths``, ``.variables``,
    ``.questions``, ``.usage``, and of agents ``.model_calls``, ``.messages``, ``.tool_calls`` and ``.costs()`` are made
    at the first access. ``.arrow("events")`` returns a table for DuckDB and polars, ``.reader("events")`` its batches.

    Parameters
    ----------
    of
        A store, an environment, a run or its id, several of these, or a frame with a column `execution_id`; another
        string is the name of a workflow. The default, also for a workflow, is the session's store.
    where
        Filters; `filters` are further filters. Each value may be a list: ``ids``, ``status``, ``workflow``, ``tag``,
        ``origin`` (``run``, ``fork``, ``what-if``, ``trial``, ``child`` ...), ``parent``, ``notebook`` and ``cell``.
        ``text`` is part of the id, workflow, tag, note or error. ``since`` and ``until`` limit the time of the start: a
        ``datetime``, a string such as ``"2026-01-31T12:00"`` (without a zone in that of this machine), or a duration
        before now such as ``"1d"``.
    columns
        Additional columns, by path: ``{"label": "outputs.label", "scores": "variables.rows.*.score"}``; see
        `divebook.analysis.store.Frames`.
    limit
        Number of the newest executions; 0 for all.

    Raises
    ------
    NotFoundError
        A filter, status or origin does not exist.
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
    from divebook.analysis.store import frames_of

    # ``frames("label")`` means ``frames(workflow="label")``, and ``frames("exec_...")`` the run with this id.
    if isinstance(of, str):
        session_environment = current_session().over(store)
        is_run = of.startswith(EXECUTION_PREFIX) and of not in session_environment.definitions.workflows
        if not is_run:
            filters["workflow"] = of
        of = session_environment.run_of(of) if is_run else None
    source, ids = executions_of(of)
    if ids is not None and "ids" not in (where or {}):
        # An explicit filter ``ids`` has precedence over the ids of `of`.
        filters.setdefault("ids", ids)
    if source is None:
        source = current_session().over(store).store
    return frames_of(source, where, columns, limit, filters)


@_short_in_ipython
@suggest_arguments
def answer(
    question: Question | str, response: Any, *, alike: bool = False, by: str | None = None, store: str | None = None
) -> Run:
    """Answer a question. Its run continues at once; call `wait` of the returned run to wait for its end.

    Parameters
    ----------
    question
        The question, or its id, as in `inbox`.
    response
        An answer that fits the kind of question; see `divebook.Environment.answer`.
    alike
        True to give all similar open questions the same answer; see `divebook.Environment.answer_alike`.
    by
        Name of the person who answers; by default the user of this process.

    Raises
    ------
    NotFoundError
        The question does not exist.
    InterruptError
        The question has an answer already or has expired, or the answer does not fit. If the answer does not fit, the
        question stays open.
    """
    # In Python, a text is the answer as it is. The command reads it as the question asks, as a person types it.
    way: Literal["text", "auto"] = "text" if isinstance(response, str) else "auto"
    drive = driving.answer_question(_call(store), question_id_of(question), response, as_=way, alike=alike, by=by)
    run = current_session().last = drive.begin()
    return run


@_short_in_ipython
@suggest_arguments
def compare(*runs: FramedLog | str, gold: str | None = None, store: str | None = None) -> Comparison:
    """Compare two or more runs, place by place: equal, changed, added and removed operations.

    As the last value of a cell the result shows a summary and both runs side by side, the first difference unfolded.
    ``.first`` is the first difference, ``.frame()`` has a row per place, ``.summary`` is one line.

    Parameters
    ----------
    runs
        Runs, executions, runs of saved notebooks, or ids in the store. The first one is compared with each other one.
    gold
        Name of the field of the items of `Each` that contains the right result. The summary then counts the right
        results of both runs; see `Comparison.judge`.

    Raises
    ------
    UnrelatedError
        The runs are of different workflows, and none was derived from the other.

    Examples
    --------
    >>> from divebook.notebook.session import open_session
    >>> session = open_session("memory:")
    >>> flow = "{Name: sum, Inputs: [{Name: n}], Steps: [{Name: add, Script: inputs.n + 1}]}"
    >>> change = session.define(f"Workflows: [{flow}]")
    >>> compare(run("sum", {"n": 1}).wait(), run("sum", {"n": 2}).wait()).summary.partition(";")[0]
    '1 same, 3 changed'
    """
    # Runs of saved notebooks are in no store, so that they are compared as objects.
    return inspection.compare(_call(store), cast("list[str]", list(runs)), gold=gold)


@_short_in_ipython
@suggest_arguments
def show(run: Run | str, *, store: str | None = None) -> Run:
    """Return the run with this id, running or past; the beginning of the id is enough."""
    return inspection.show(_call(store), id_of(run, "run")).execution


@_short_in_ipython
@suggest_arguments
def resume(run: Run | str, *, store: str | None = None) -> Run:
    """Resume a run where its log ends. Returns at once; `wait` for the end."""
    drive = driving.resume_runs(_call(store), [id_of(run, "run")])
    assert isinstance(drive, driving.Drive), "one run, without a plan"  # noqa: S101
    last = current_session().last = drive.begin()
    return last


def last_run() -> Run:
    """Return the run of the session that was started or continued last: the value of ``divebook.last``.

    Raises
    ------
    AttributeError
        The session has no run yet.
    """
    if (run := current_session().last) is None:
        raise AttributeError("divebook.last: this session has not started or continued a run yet")
    return run


# --- divebook.map ----------------------------------------------------------------------------------------------------

# The function `divebook.map`, which calls a function for each row of a table in the environment of the session.


@overload
def map(  # noqa: A001 - it is `divebook.map`
    frame: AnyFrame,
    function: Agent[Any],
    *,
    prompt: str,
    output: Any = None,
    batch: bool = False,
    **options: Unpack[MapOptions],
) -> MappedRows: ...
@overload
def map(  # noqa: A001 - it is `divebook.map`
    frame: AnyFrame,
    function: Callable[..., Any] | Workflow,
    *,
    executor: object = None,
    **options: Unpack[MapOptions],
) -> MappedRows: ...
@_short_in_ipython
@suggest_arguments
def map(  # noqa: A001 - it is `divebook.map`
    frame: AnyFrame,
    function: Callable[..., Any] | Workflow | Agent,
    *,
    store: str | None = None,
    parallel: int = PARALLEL,
    idempotent: bool = True,
    retry: Retry | int | None = None,
    timeout: DurationLike | None = None,
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

    If the same line runs again, also in a later kernel, it continues with the remaining rows or returns the stored
    results.

    Results are written every thousand rows, or once a second. If the kernel dies, at most these results are lost. If
    the call of a row raises an error, the column ``error`` contains the error. `MappedRows.retry_failed` calls the
    failed rows again.

    Parameters
    ----------
    frame
        A DataFrame of pandas or polars, an Arrow table, or a list of mappings.
    function
        Function, workflow or agent to call. The parameters of a function are columns of the frame with the same names.
        If the only parameter is not the name of a column, it receives the row as a dict. If the function returns a
        dict, each key becomes a column; any other value is stored in the column ``result``. Coroutine functions are
        allowed. The inputs of a `Workflow` are columns with the same names, and its outputs become columns. An `Agent`
        answers the `prompt`.
    store
        Name under which the results are stored and found again; by default the name of the function.
    parallel
        Number of concurrent calls.
    idempotent
        True if a call may be repeated after its process died during the call. If False, a person is asked about the
        rows that were running, at most a hundred. An ``@action`` uses its own setting instead.
    retry, timeout, executor
        Retry policy, time limit and executor of each call, as for ``@step``. All executors that an environment accepts
        are allowed.
    parameters
        Further arguments, which are the same for all calls.
    prompt, output
        For an agent: `prompt` is a template, in which ``${state.row.NAME}`` stands for a column and
        ``${inputs.given.NAME}`` for one of the `parameters`. `output` is the type of the answer, as in the key
        ``Output`` of a step.
    batch
        True to ask an agent through the batch API of its provider, which answers within a day at half the price. The
        agent must answer with one request, without tools.
    bounds
        Budget of all rows together, as for `Environment.start`. If it is used up, a person is asked.
    again
        True to start again. The old results are kept in addition to the new results.
    environment
        Environment that runs and stores the map; by default the environment of the session.

    Raises
    ------
    SetupError
        The results that are stored under this name belong to a different frame.
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
    require(environment, "environment", "an Environment", fits=isinstance(environment, Environment))
    has_names = isinstance(parameters, Mapping) and all(isinstance(name, str) for name in parameters)
    require(parameters, "parameters", "a mapping of parameter names to values", fits=has_names)
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
    if front_end.shows_widgets and rows.run.is_live:
        show_live(rows.run, front_end).leave()
    else:
        display(rows.run)  # type: ignore[no-untyped-call]
