"""Session of a notebook or script: its environment with definitions, store and runs.

Each process has one session, which is created at the first use. The magics and `divebook.notebook.session_functions`
use the same session.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from divebook.agents import Agent, ScriptedModel
from divebook.agents.agent import agent_of, is_library_agent
from divebook.config import load, with_documents
from divebook.config.answers import Answers, Recovered, interrupted, recover_automatically, resume_all
from divebook.definitions.definition import Definitions, Workflow, is_pipeline, visible_steps
from divebook.definitions.dialect import OWN, Dialect
from divebook.definitions.functions import FUNCTION, WORKFLOW_FUNCTIONS, BoundInputs, WorkflowFunction
from divebook.definitions.reader import definitions_to_text, read_definitions
from divebook.definitions.resources import ScheduleDefinition, WorkspaceDefinition
from divebook.definitions.servers import MCPServerDefinition
from divebook.definitions.tools import ToolFunction, tool_of
from divebook.environments.environment import Environment
from divebook.environments.starts import StartOptions
from divebook.errors import ExecutionError, LeaseHeldError, NotFoundError, Problem, SetupError
from divebook.events.catalog import COMPLETED
from divebook.notebook.commands import print_answer
from divebook.notebook.rerun import (
    KEEP,
    REUSE,
    CellPlace,
    EditPolicy,
    Ordinals,
    PreviousRun,
    changed_definition,
    changed_error,
    changed_functions,
    earlier_run,
    elsewhere_note,
    note_of,
    run_label,
    start_key,
)
from divebook.notebook.run_view import connect_page
from divebook.projections.summary import Overview
from divebook.runtime.loop import ENGINE
from divebook.runtime.run import Run
from divebook.steps.actions import REGISTERED, Action, action_of
from divebook.stores.registry import location_of, store_address
from divebook.stores.transfer import new_file
from divebook.text.arguments import describe, require
from divebook.text.format import plural

if TYPE_CHECKING:
    from divebook.replay.trial import StepTrial
    from divebook.stores import ExecutionRecord


@dataclass(frozen=True, slots=True)
class Defined:
    """The definitions that a cell or file added to the session or replaced in it, and the warnings about them, as texts
    for people.
    """

    defined: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()


def print_visibly(text: str) -> None:
    """Print text that a workflow outputs, below the cell that started its run.

    Workflows run in threads of the engine. They run in a copy of the context of the starting cell, from which the
    kernel finds the cell, whatever cell runs by then.
    """
    print_answer(text.removesuffix("\n"))


DEFINITION_FILES = (".yaml", ".yml", ".json")
_DEFINABLE = (
    "a YAML string, the path of a definition file, Definitions, a Workflow, an Agent, an Action, a tool, another "
    "definition, or a list of these"
)


def is_definition_path(value: object) -> bool:
    """Return True for a path, and for a string that is the name of a definition file and not the text of one."""
    return isinstance(value, Path) or (
        isinstance(value, str) and "\n" not in value and value.endswith(DEFINITION_FILES)
    )


def _listed_definitions(objects: Iterable[Any]) -> Iterator[Any]:
    """Yield the arguments of `Session.define`, and the items of lists among them."""
    for each in objects:
        if isinstance(each, list | tuple):
            yield from _listed_definitions(each)
        else:
            yield each


def _read(source: str | Path, dialect: Dialect, folder: Path | None) -> tuple[Definitions, Path | None]:
    """Read definitions from a text, file or folder. Return them with the folder to which their paths are relative."""
    if not is_definition_path(source):
        return read_definitions(str(source), source_name="text", dialect=dialect), folder
    path = Path(source)
    # Paths inside a file are relative to its own folder.
    return load(path, dialect=dialect), path if path.is_dir() else path.parent


class Session:
    """Environment, definitions and runs of a notebook.

    Parameters
    ----------
    store
        Address of the store; by default ``DIVEBOOK_STORE``, or ``.divebook/executions.db``.

    Examples
    --------
    >>> session = Session("memory:")
    >>> change = session.define("Workflows: [{Name: sum, Steps: [{Name: add, Script: 1 + 1, Store: n}]}]")
    >>> change.defined
    ("workflow 'sum' (1 step)",)
    >>> session.start_run("sum").wait().variables
    {'n': 2}
    """

    def __init__(self, store: str | None = None) -> None:
        self._store = store
        # One environment for each store, under the address as it was typed. The key None is the session's own store.
        self._environments: dict[str | None, Environment] = {}
        self._close_page_connection: Callable[[], None] = lambda: None
        self._last_definition: str | None = None
        """Name of the workflow that was added last to the environment."""
        self._function_before: object = None
        """The newest workflow function at that time."""
        self.ordinals = Ordinals()
        """Counters of the runs that the current cell has started."""
        self._code_when_kept: dict[str, Mapping[str, str]] = {}
        """Versions of the functions, by execution id, for which a person chose to keep a run of older versions."""
        self.streams_text = False
        """True if models stream text from the start of a run, because its view appears a moment later."""
        self.last: Run | None = None
        """The run that was started or continued last, also if it has failed; see `divebook.last`."""

    @property
    def environment(self) -> Environment:
        """The environment of the session, created at the first access."""
        return self._over(None)

    @property
    def present(self) -> Environment | None:
        """The environment of the session over its own store; None if it was not created yet."""
        return self._environments.get(None)

    @property
    def location(self) -> str:
        """Location of the session's own store, which may not be open yet."""
        return location_of(self._store) if self.present is None else self.present.store.location

    def over(self, store: str | None) -> Environment:
        """Return the environment of the session if `store` is None, else an environment with the same definitions over
        this other store.
        """
        environment = self._over(store)
        # Set again at each access, because the front end may have changed since (`DiveMagics` sets `streams_text`).
        environment.internals.control.texts.always = self.streams_text
        # Definitions may have been added since the environment over this store was created.
        if store is not None:
            environment.internals.take_in(self.environment)
        return environment

    def _over(self, store: str | None) -> Environment:
        """Return the environment of the session over a store, or over the session's own store for None. A new
        environment is empty; the method `over` adds the definitions of the session to it.
        """
        require(store, "store", "a path or a URL of a store", fits=isinstance(store, str))
        environment = self._environments.get(store)
        if environment is None:
            # Documents are shared, since definitions refer to them by name in all stores.
            documents = None if store is None else self.environment.definitions.documents
            environment = Environment(
                "notebook", store=store or self._store, documents=documents, printer=print_visibly
            )
            self._environments[store] = environment
            # Only the own store: the page shows one list of open questions and one list of runs.
            if store is None:
                self._close_page_connection = connect_page(environment)
        return environment

    def close(self) -> None:
        """Close all environments. Runs that have not ended stay unchanged in their stores."""
        # The comms to the page read the stores, so they are closed before the stores.
        self.disconnect()
        for environment in self._environments.values():
            environment.close()
        self._environments.clear()

    def disconnect(self) -> None:
        """Stop sending open questions and runs to JupyterLab. The runs continue."""
        self._close_page_connection()

    # --- definitions -----------------------------------------------------------------------------------------------

    def define(self, *objects: Any, dialect: Dialect = OWN, folder: Path | None = None) -> Defined:
        """Add definitions to the session. New definitions replace older definitions with the same names.

        Parameters
        ----------
        objects
            YAML texts, paths of definition files or folders, `Definitions`, Python objects (workflows, agents, actions,
            tools, workspaces, MCP servers and schedules), and lists of all these.
        dialect
            Dialect of the texts.
        folder
            Folder to which paths in the definitions are relative; by default the current folder.

        Raises
        ------
        DefinitionError
            The definitions have problems; the error lists all of them, and nothing is added.
        SetupError
            An object is not a definition. Nothing is added.
        """
        # All are checked before the first one is added.
        additions = [self._addition(each, dialect, folder) for each in _listed_definitions(objects)]
        changes = [add() for add in additions]
        return Defined(
            tuple(text for change in changes for text in change.defined),
            tuple(text for change in changes for text in change.replaced),
            tuple(problem for change in changes for problem in change.warnings),
        )

    def _addition(self, value: Any, dialect: Dialect, folder: Path | None) -> Callable[[], Defined]:
        """Check one object for `define`, and return a function that adds it."""
        environment = self.environment
        if isinstance(value, str | Path):
            value, folder = _read(value, dialect, folder)
        if isinstance(value, Definitions):
            # Paths in the definitions are read now. A later change of the current folder has no effect on them.
            folder = folder or Path.cwd()
            return partial(
                self._add,
                with_documents(value, folder, environment.definitions.documents, environment.internals.registry.policy),
            )
        if isinstance(value, Workflow):
            return partial(self._add_workflow, value)
        is_decorated = isfunction(value) and any(action.function is value for action in REGISTERED.values())
        if isinstance(value, Action) or is_decorated:
            value = action_of(value)
            return partial(self._add_object, "action", value, environment.definitions.actions, environment.add_action)
        if isinstance(value, WorkspaceDefinition):
            return partial(
                self._add_object, "workspace", value, environment.definitions.workspaces, environment.add_workspace
            )
        if isinstance(value, MCPServerDefinition):
            servers = list(environment.internals.registry.servers)
            return partial(self._add_object, "server", value, servers, environment.add_server)
        if isinstance(value, ScheduleDefinition):
            names = [schedule.name for schedule in environment.schedules]
            return partial(self._add_object, "schedule", value, names, environment.schedules.add)
        if isinstance(value, ToolFunction) or isfunction(value):
            return partial(
                self._add_object, "tool", tool_of(value), environment.definitions.tools, environment.add_tool
            )
        if not isinstance(value, Agent) and not is_library_agent(value):
            raise SetupError(f"define() expects {_DEFINABLE}, not {describe(value)}")
        return partial(
            self._add_object, "agent", agent_of(value), environment.definitions.agents, environment.add_agent
        )

    def _add_workflow(self, workflow: Workflow) -> Defined:
        texts = (_workflow_text(workflow),)
        is_new = workflow.name not in self.environment.definitions.workflows
        self.environment.add_workflow(workflow, replace=True)
        self._note_last(workflow.name)
        return Defined(defined=texts) if is_new else Defined(replaced=texts)

    @staticmethod
    def _add_object(kind: str, value: Any, names: Container[str], add: Callable[..., None]) -> Defined:
        texts = (f"{kind} {value.name!r}",)
        is_new = value.name not in names
        add(value, replace=True)
        return Defined(defined=texts) if is_new else Defined(replaced=texts)

    def follow_script(self, agent: str, written: Any) -> str:
        """Replace the model of an agent by a scripted model, which gives the answers in `written` one after the other.
        Return a text that confirms this to the person.
        """
        scripted = self.environment.internals.registry.agent(agent).with_script(ScriptedModel.read(written))
        self.environment.add_agent(scripted, replace=True)
        return f"agent {agent!r} answers from this script"

    def _add(self, definitions: Definitions) -> Defined:
        environment = self.environment
        # The names before the change decide between "defined" and "replaced".
        old_agents = set(environment.definitions.agents)
        old_workflows = set(environment.definitions.workflows)
        environment.define(definitions)
        if definitions.workflows:
            # A cell may define several workflows. The last one is what ``%dive run`` without a name starts.
            self._note_last(definitions.workflows[-1].name)
        new: list[str] = []
        replaced: list[str] = []
        for agent in definitions.agents:
            texts = replaced if agent.name in old_agents else new
            texts.append(self._agent_text(agent.name))
        for workflow in definitions.workflows:
            texts = replaced if workflow.name in old_workflows else new
            texts.append(_workflow_text(workflow))
        # A name that is not defined yet may come from a later cell, so it is a warning and not an error.
        warnings = (*definitions.warnings, *environment.internals.registry.not_yet(definitions.workflows))
        return Defined(tuple(new), tuple(replaced), warnings)

    def _note_last(self, name: str) -> None:
        self._last_definition = name
        self._function_before = _newest_function()

    @property
    def last_workflow(self) -> str | None:
        """Name of the workflow that a cell defined last, as a definition or as a function made with ``@workflow``; None
        if none was defined.
        """
        function = _newest_function()
        is_newer = function is not None and function is not self._function_before
        return function.name if function is not None and is_newer else self._last_definition

    def _agent_text(self, name: str) -> str:
        return f"agent {name!r} ({self.environment.internals.registry.agent(name).model_name})"

    # --- runs ------------------------------------------------------------------------------------------------------

    def start_run(
        self,
        workflow: Workflow | str | None,
        inputs: Mapping[str, Any] | None = None,
        *,
        store: str | None = None,
        answers: Answers | None = None,
        **options: Unpack[StartOptions],
    ) -> Run:
        """Start a workflow and return its run.

        The workflow is a `Workflow`, a name, or None for the workflow that was defined last.
        """
        environment = self.over(store)
        run = environment.start(self.workflow(workflow), inputs, **options)
        run.internals.options.answers = answers
        self.last = run
        return run

    def start_at(
        self,
        place: CellPlace,
        workflow: Workflow,
        inputs: Mapping[str, Any],
        *,
        store: str | None = None,
        always_new: bool = False,
        on_edit: EditPolicy = "again",
        answers: Answers | None = None,
        **options: Unpack[StartOptions],
    ) -> Run:
        """Return the run of a cell. If the cell has started a run before, this run is resumed or shown; otherwise a new
        run is started (`divebook.notebook.rerun`).

        Parameters
        ----------
        always_new
            Start a new run even if the cell has an earlier one.
        on_edit
            Reaction to edited code; ``ask`` raises the choice as a `CodeChangedError`.

        Raises
        ------
        ExecutionError
            The last run has not ended, and the definition or the inputs have changed since.
        CodeChangedError
            Code has changed that its last run used, and `on_edit` is ``ask``.
        """
        environment = self.over(store)
        # Bound once for the search, the start key and the start itself.
        inputs = BoundInputs.of(workflow, inputs)
        earlier = None if always_new else earlier_run(environment, workflow, inputs, place)
        # The identity of the cell is recorded also with `always_new`, so that the next execution of the cell finds this
        # run.
        options.update(place.start_options)
        # With a key, two kernels that run the cell at the same time start one run.
        options["key"] = None if always_new else start_key(environment, workflow, inputs, place, earlier)
        # Planned before the decision below, because the plan decides whether there is anything to offer.
        definition_edit = changed_definition(environment, workflow, earlier)

        def start_new(choice: str) -> Run:
            if definition_edit is not None and choice == REUSE:
                return definition_edit.run_again(environment, answers, options)
            run = self.start_run(workflow, inputs, store=store, answers=answers, **options)
            # Another process has started a run with this key, and drives it.
            if not run.internals.was_driven:
                run.internals.options.remark = elsewhere_note(run.id)
            elif definition_edit is not None:
                run.internals.options.remark = definition_edit.advice
            return run

        # First the edited definition: a person may choose. The error carries the function that carries out the choice.
        if definition_edit is not None and on_edit == "ask":
            raise definition_edit.error(start_new)
        # No earlier run can continue, or the choice is already made.
        if earlier is None or earlier.is_superseded or (definition_edit is not None and on_edit == REUSE):
            return start_new(on_edit)
        # The earlier run has not ended, and a run with another definition or other inputs is not its continuation.
        if earlier.changed:
            raise changed_error(earlier)
        return self._continue_or_fork(
            earlier, environment, workflow, inputs, on_edit=on_edit, answers=answers, options=options
        )

    def _continue_or_fork(
        self,
        earlier: PreviousRun,
        environment: Environment,
        workflow: Workflow,
        inputs: Mapping[str, Any],
        *,
        on_edit: EditPolicy,
        answers: Answers | None,
        options: StartOptions,
    ) -> Run:
        """Resume or show the earlier run of a cell. If functions that this run called have been edited since, do what
        `on_edit` says instead: for example, start a fork or a new run.

        If a person keeps the earlier run, the question appears again only after the next edit.
        """
        execution = environment.run_of(earlier.record.execution_id)
        execution.internals.options.answers = answers
        code = environment.internals.registry.code_of(workflow)
        # The same code as when the person chose "keep" means that there was no edit since then.
        was_kept = self._code_when_kept.get(execution.id) == code
        edit = None if was_kept else changed_functions(environment, execution)

        def begin(choice: str) -> Run:
            # The choice is remembered for this session only.
            if choice == KEEP:
                self._code_when_kept[execution.id] = code
            if edit is None or choice == KEEP:
                return self._continue(execution, earlier)
            # A fork shares the events before the first affected call. If no call completed in them, a new run starts.
            if edit.until:
                run = environment.run_of(edit.execution_id).fork(edit.until, **options)
            else:
                run = environment.start(workflow, inputs, **options)
            run.internals.options.answers = answers
            run.internals.options.remark = edit.replacement_note(run.id)
            return run

        if edit is not None and on_edit == "ask":
            raise edit.error(begin)
        # Without an edit the choice has no effect.
        return begin(on_edit)

    def _continue(self, run: Run, earlier: PreviousRun) -> Run:
        """Return the earlier run of a cell, and resume it first if it has not completed. The remark of the returned
        run, a text for the person, explains this.
        """
        if run.status != COMPLETED and not run.is_live:
            # The text about the point of continuation is made before the run moves on.
            (line,) = Overview(run.store).lines([earlier.record])
            try:
                run.resume()
            except LeaseHeldError:
                run.internals.options.remark = elsewhere_note(run.id)
                return run
            except ExecutionError:
                if run.refresh().status != COMPLETED:  # another kernel has completed it
                    raise
            else:
                run.internals.options.remark = f"{run_label(earlier)} {line.way_on}; --new starts a new run"
        # A remark of an error or a resumption has precedence.
        if not run.internals.options.remark and run.status == COMPLETED:
            run.internals.options.remark = note_of(run, earlier)
        return run

    def workflow(self, workflow: Workflow | str | None) -> Workflow:
        """Return the workflow with this name; for None, the workflow that was defined last.

        A `Workflow` is returned unchanged.
        """
        if isinstance(workflow, Workflow):
            return workflow
        name = workflow or self.last_workflow
        if name is None:
            raise SetupError(
                "no workflow is defined yet; define one with @workflow, or in a cell with %%dive workflow NAME"
            )
        # A session without any workflow is typical for a restarted kernel, whose cells have not run yet.
        if not self.environment.definitions.workflows:
            message = f"workflow not found: {name}. Run the cell that defines it first"
            raise NotFoundError("workflow", name, message=message)
        return self.environment.internals.registry.workflow(name)

    def run_of(self, execution_id: str, *, store: str | None = None) -> Run:
        """Return the run with this id, running or past; the beginning of the id is enough."""
        return self.over(store).run_of(execution_id)

    def open(self, file: Path) -> Run:
        """Return the run in a file, imported into a new store in memory."""
        # A store of its own: the file's run must not appear among the user's runs.
        return self.over(None).open(file)

    def interrupted(self, execution_id: str | None = None, *, store: str | None = None) -> list[ExecutionRecord]:
        """Return the records of the interrupted executions: of all, or of the execution whose id starts with
        `execution_id`.
        """
        return interrupted(self.over(store), execution_id)

    def recover(self, execution_id: str | None = None, *, store: str | None = None) -> Recovered:
        """Resume interrupted executions in the background: the one with this id, or without an id all whose definitions
        are known. Return which executions were resumed, and which were not.
        """
        environment = self.over(store)
        return resume_all(environment, interrupted(environment, execution_id))

    def recover_by_itself(self) -> Recovered:
        """Resume interrupted executions if the settings contain ``Recover: auto``."""
        return recover_automatically(self.environment, interrupted(self.environment))


def _newest_function() -> WorkflowFunction[..., Any] | None:
    """Return the workflow function that a cell defined last. Functions of imported modules do not count: a module may
    define many, and none of them is meant in particular.
    """
    functions = (each for each in reversed(WORKFLOW_FUNCTIONS.values()) if each.fn.__module__ == "__main__")
    return next(functions, None)


def _workflow_text(workflow: Workflow) -> str:
    if is_pipeline(workflow):
        return f"pipeline {workflow.name!r} ({plural(len(visible_steps(workflow)), 'stage')})"
    return f"workflow {workflow.name!r} ({plural(len(workflow.steps), 'step')})"


# --- the session of this process -----------------------------------------------------------------------------------

# A list and not a variable, so that functions need no ``global``. It has at most one session.
_sessions: list[Session] = []


def current_session() -> Session:
    """Return the session of this process, created at the first use."""
    return _sessions[-1] if _sessions else open_session()


def open_session(store: str | None = None) -> Session:
    """Create a new session without definitions, over a store or the default store. It replaces the current session."""
    reset_session()
    _sessions.append(Session(store))
    return _sessions[-1]


def present_environment() -> Environment | None:
    """Return the environment of the session; None if it was not created yet."""
    # Unlike `current_session`, this never creates a session: completion must not open a store.
    return _sessions[-1].present if _sessions else None


def session_location() -> str:
    """Return the address of the store of the session, or of the store that a session would open."""
    present = present_environment()
    if present is not None:
        return store_address(present.store)
    return _sessions[-1].location if _sessions else location_of()


def close_session() -> None:
    """Close the session of this process with its environments and views, and end the engine's thread unless something
    else runs in it.
    """
    from divebook.widgets.publisher import stop_publishers  # loading the extension must be quick

    # Views are closed first, because they read the stores.
    stop_publishers()
    while _sessions:
        _sessions.pop().close()
    ENGINE.stop_if_idle()


def reset_session() -> None:
    """Forget the session; the next use creates a new session. Runs of the old session continue."""
    # The environments stay open, because runs of the old session continue in them.
    while _sessions:
        _sessions.pop().disconnect()


# --- trials of a step ------------------------------------------------------------------------------------------------


def keep(trial: StepTrial, file: str | Path | None = None, *, overwrite: bool = False) -> Path | None:
    """Save the workflow definition with which a trial has tested a changed step: in a new cell below the current one,
    or in a file.

    Return the path of the file; None for a cell.

    Raises
    ------
    SetupError
        The workflow is a Python function, or no notebook can take a cell.
    """
    # The workflow is Python code, or the trial was made of a call inside such code.
    if trial.entry.call is not None or any(step.type == FUNCTION for step in trial.workflow.steps):
        line = "change the Python code of the step"
        if trial.entry.call is not None:
            line = f"copy the prompt of the trial into the line of code that calls agent {trial.entry.step!r}"
        raise SetupError(
            f"workflow {trial.workflow.name!r} is Python code, so it cannot be saved as a YAML definition; "
            f"{line}, and run the cell that defines the workflow again"
        )
    if file is not None:
        with new_file(file, overwrite=overwrite) as stream:
            stream.write(definitions_to_text(Definitions(workflows=(trial.workflow,))).encode())
        return Path(file)
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is None:
        raise SetupError("a cell can be added only in a notebook; pass the path of a file: trial.keep('draft.yaml')")
    # The front end inserts the new cell. `replace=False` keeps the current one.
    shell.set_next_input(trial.definition, replace=False)
    print_answer(
        f"the cell below defines workflow {trial.workflow.name!r} with the changed step; run it to apply the change"
    )
    return None
