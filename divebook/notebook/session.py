"""The environment of a notebook or script: what its cells defined, its store, the runs it started.

There is one per process, made when first needed. Magics and the functions of `divebook.notebook.functions` share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from IPython.core.error import UsageError

from divebook.agents import ScriptedModel
from divebook.config import with_documents
from divebook.config.answers import Answers, Recovered, interrupted, take_up, take_up_by_itself
from divebook.engine.state import kept_until_taken
from divebook.environment.environment import Environment
from divebook.environment.starts import StartOptions
from divebook.environment.variants import TrialOptions
from divebook.errors import ExecutionError, LeaseHeldError, NotFoundError, Problem, SetupError
from divebook.events.catalog import COMPLETED
from divebook.notebook.commands import tell
from divebook.notebook.reattach import (
    KEEP,
    REUSE,
    CellPlace,
    Ordinals,
    PreviousRun,
    WhenEdited,
    changed_meanwhile,
    earlier_run,
    edit_of,
    elsewhere_note,
    note_of,
    redefined,
    start_key,
    whose,
)
from divebook.notebook.run import Run, open_line
from divebook.projections.summary import Overview, newest_run
from divebook.questions.bounds import Bounds
from divebook.runtime.loop import ENGINE
from divebook.store import MemoryStore
from divebook.store.transfer import new_file
from divebook.text.arguments import require
from divebook.text.format import plural
from divebook.workflow.definition import Definitions, Workflow, is_pipeline, visible_steps
from divebook.workflow.dialect import OWN, Dialect
from divebook.workflow.functions import FUNCTION
from divebook.workflow.reader import definitions_to_text, read_definitions

if TYPE_CHECKING:
    from divebook.notebook.commands import Arguments
    from divebook.replay.trial import StepTrial
    from divebook.store import ExecutionRecord


@dataclass(frozen=True, slots=True)
class Defined:
    """What a cell or file did to the session."""

    defined: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()


def print_visibly(text: str) -> None:
    """Print what a workflow prints.

    It runs in the engine's threads. The context of the cell that started the run travels with it, so that the kernel
    puts the text below that cell, whatever cell is running by then.
    """
    tell(text.removesuffix("\n"))


class Session:
    """The environment, definitions and runs that a notebook works with.

    Parameters
    ----------
    store
        Where executions rest; by default what ``DIVEBOOK_STORE`` says, or ``.divebook/executions.db``.

    Examples
    --------
    >>> session = Session("memory:")
    >>> change = session.define("Workflows: [{Name: sum, Steps: [{Name: add, Script: 1 + 1, Store: n}]}]")
    >>> change.defined
    ("workflow 'sum' (1 step)",)
    >>> session.start("sum").wait().variables
    {'n': 2}
    """

    def __init__(self, store: str | None = None) -> None:
        self._store = store
        self._environments: dict[str | None, Environment] = {}
        self._close_line: Callable[[], None] = lambda: None
        self.last_workflow: str | None = None
        """The workflow that was defined last."""
        self.ordinals = Ordinals()
        """Of the runs of the present cell."""
        self._kept: dict[str, Mapping[str, str]] = {}
        """The functions of the moment in which a person kept a run that others had made, by its id."""
        self.streams_text = False
        """Whether models stream as soon as a run begins: a view of it comes up in a moment."""

    @property
    def environment(self) -> Environment:
        """The environment, made when first asked for."""
        return self._over(None)

    @property
    def present(self) -> Environment | None:
        """The environment if it was made already."""
        return self._environments.get(None)

    def over(self, store: str | None) -> Environment:
        """Return the environment, or one with the same contents over another store."""
        environment = self._over(store)
        environment.stream_text(always=self.streams_text)
        if store is not None:
            environment.take_in(self.environment)
        return environment

    def _over(self, store: str | None) -> Environment:
        found = self._environments.get(store)
        if found is None:
            documents = None if store is None else self.environment.documents
            found = Environment("notebook", store=store or self._store, documents=documents, printer=print_visibly)
            self._environments[store] = found
            if store is None:
                self._close_line = open_line(found)
        return found

    def close(self) -> None:
        """Close its environments; runs that have not ended stay in their stores as they are."""
        self.leave()
        for environment in self._environments.values():
            environment.close()
        self._environments.clear()

    def leave(self) -> None:
        """Tell pages nothing any more; runs go on."""
        self._close_line()

    # --- definitions -----------------------------------------------------------------------------------------------

    def define(self, definitions: Definitions | str, *, dialect: Dialect = OWN, folder: Path | None = None) -> Defined:
        """Take in definitions, or the text of some; what has the name of something old replaces it.

        Parameters
        ----------
        folder
            What the paths in them are relative to; by default the current folder.

        Raises
        ------
        DefinitionError
            With every problem found; nothing is taken in.
        """
        if isinstance(definitions, str):
            definitions = read_definitions(definitions, source_name="text", dialect=dialect)
        expected = (
            "Definitions or a text of some; an Agent goes into Environment(agents=[...]), a Workflow into run(...)"
        )
        require(definitions, "what to define", expected, fits=isinstance(definitions, Definitions))
        environment = self.environment
        return self._take(with_documents(definitions, folder or Path.cwd(), environment.documents, environment.policy))

    def follow_script(self, agent: str, written: Any) -> str:
        """Have an agent answer from a script, with all else that it has; return what is to be said of it."""
        scripted = self.environment.agent(agent).with_script(ScriptedModel.read(written))
        self.environment.add_agent(scripted, replace=True)
        return f"agent {agent!r} answers from this script"

    def _take(self, definitions: Definitions) -> Defined:
        environment = self.environment
        old = {("agent", name) for name in environment.agents} | {("workflow", n) for n in environment.workflows}
        environment.define(definitions)
        if definitions.workflows:
            self.last_workflow = definitions.workflows[-1].name
        described = [(("agent", a.name), self._agent_text(a.name)) for a in definitions.agents]
        described += [(("workflow", w.name), _workflow_text(w)) for w in definitions.workflows]
        return Defined(
            tuple(text for key, text in described if key not in old),
            tuple(text for key, text in described if key in old),
            (*definitions.warnings, *environment.not_yet(definitions)),
        )

    def _agent_text(self, name: str) -> str:
        return f"agent {name!r} ({self.environment.agent(name).model_name})"

    # --- runs ------------------------------------------------------------------------------------------------------

    def start(
        self,
        workflow: Workflow | str | None,
        inputs: Mapping[str, Any] | None = None,
        *,
        store: str | None = None,
        answers: Answers | None = None,
        **options: Unpack[StartOptions],
    ) -> Run:
        """Start a workflow: a `Workflow`, the name of one, or None for the one that was defined last."""
        environment = self.over(store)
        return Run(environment.start(self.workflow(workflow), inputs, **options), environment, answers)

    def start_at(
        self,
        place: CellPlace,
        workflow: Workflow,
        inputs: Mapping[str, Any],
        *,
        store: str | None = None,
        anew: bool = False,
        edited: WhenEdited = "again",
        answers: Answers | None = None,
        **options: Unpack[StartOptions],
    ) -> Run:
        """Go on with what a cell began before, or start a workflow there; see `divebook.notebook.reattach`.

        Raises
        ------
        ExecutionError
            Its last run has not ended, and the definition or the inputs have changed since.
        CodeChangedError
            Functions have changed that its last run called, and `edited` is ``ask``.
        """
        environment = self.over(store)
        earlier = None if anew else earlier_run(environment, workflow, inputs, place)
        options.update(place.said)
        options["key"] = None if anew else start_key(environment, workflow, inputs, place, earlier)
        renewed = redefined(environment, workflow, earlier)

        def started(chosen: str) -> Run:
            if renewed is not None and chosen == REUSE:
                return renewed.run_again(environment, answers, options)
            run = self.start(workflow, inputs, store=store, answers=answers, **options)
            run.remark = (renewed.advice if renewed else "") if run.execution.was_driven else elsewhere_note(run.id)
            return run

        if renewed is not None and edited == "ask":
            raise renewed.offer(started)
        if earlier is None or earlier.is_done_with or (renewed and edited == REUSE):
            return started(edited)
        if earlier.changed:
            raise changed_meanwhile(earlier)
        execution = environment.execution(earlier.record.execution_id)
        code = environment.code_of(workflow)
        edit = None if self._kept.get(execution.id) == code else edit_of(environment, execution)

        def begin(chosen: str) -> Run:
            if chosen == KEEP:
                self._kept[execution.id] = code
            if edit is None or chosen == KEEP:
                return self._go_on_with(Run(execution, environment, answers), earlier)
            begun = environment.fork(edit.execution_id, edit.until, **options) if edit.until else None
            run = Run(begun or environment.start(workflow, inputs, **options), environment, answers)
            run.remark = edit.note(run.id)
            return run

        if edit is not None and edited == "ask":
            raise edit.offer(begin)
        return begin(edited)

    def _go_on_with(self, run: Run, earlier: PreviousRun) -> Run:
        """Show the run that a cell has begun, and resume it if it has not completed."""
        if run.status != COMPLETED and not run.execution.is_live:
            (line,) = Overview(run.execution.store).lines([earlier.record])
            try:
                run.resume()
            except LeaseHeldError:
                run.remark = elsewhere_note(run.id)
                return run
            except ExecutionError:
                if run.refresh().status != COMPLETED:  # another kernel has brought it to its end
                    raise
            else:
                run.remark = f"{whose(earlier)} {line.way_on}; --new starts a new run"
        if not run.remark and run.status == COMPLETED:
            run.remark = note_of(run.execution, earlier)
        return run

    def workflow(self, workflow: Workflow | str | None) -> Workflow:
        """Return the workflow of that name, the one defined last, or the one given."""
        if isinstance(workflow, Workflow):
            return workflow
        name = workflow or self.last_workflow
        if name is None:
            raise SetupError("no workflow is defined yet; define one in a cell that begins with %%dive workflow NAME")
        if not self.environment.workflows:
            told = f"workflow not found: {name}. Run the cell that defines it first"
            raise NotFoundError("workflow", name, message=told)
        return self.environment.workflow(name)

    def run_of(self, execution_id: str, *, store: str | None = None) -> Run:
        """Return a run, live or past; the beginning of its id is enough."""
        environment = self.over(store)
        return Run(environment.execution(execution_id), environment)

    def run_or_newest(self, execution_id: str | None, *, store: str | None = None) -> Run:
        """Return a run, or where none is named the newest one; raises `NotFoundError` where there is none."""
        if execution_id is not None:
            return self.run_of(execution_id, store=store)
        environment = self.over(store)
        newest = newest_run(environment.store)
        if newest is None:
            raise NotFoundError("run", "the newest one", (), "there are no runs yet; %dive run NAME starts one")
        return Run(environment.execution(newest.execution_id), environment)

    def open(self, file: Path) -> Run:
        """Return the run that a file holds; it stands in a store in memory."""
        beside = self.over(None).beside(MemoryStore())
        return Run(beside.import_log(file), beside)

    def resume(
        self,
        execution_id: str,
        *,
        store: str | None = None,
        bounds: Bounds | Mapping[str, Any] | None = None,
        answers: Answers | None = None,
    ) -> Run:
        """Take a run up again where its log ends."""
        environment = self.over(store)
        return Run(environment.resume(execution_id, bounds), environment, answers)

    def interrupted(self, execution_id: str | None = None, *, store: str | None = None) -> list[ExecutionRecord]:
        """Return the executions that can be recovered: all, or the one whose id begins so."""
        return interrupted(self.over(store), execution_id)

    def recover(self, execution_id: str | None = None, *, store: str | None = None) -> Recovered:
        """Take up one interrupted execution, or all that the definitions allow; they go on in the background."""
        environment = self.over(store)
        return take_up(environment, interrupted(environment, execution_id))

    def recover_by_itself(self) -> Recovered:
        """Resume interrupted executions automatically, as ``Recover: auto`` says."""
        return take_up_by_itself(self.environment, interrupted(self.environment))

    def answer(
        self, interrupt_id: str, response: Any, *, alike: bool = False, by: str | None = None, store: str | None = None
    ) -> Run:
        """Answer a question, and all that are alike; its run goes on."""
        environment = self.over(store)
        if not alike:
            return Run(environment.answer(interrupt_id, response, by=by), environment)
        first, *others = environment.answer_alike(interrupt_id, response, by)
        if others:
            tell(f"the same answer lets {plural(len(others), 'other run')} go on")
        return Run(first, environment)

    def signal(
        self, execution_id: str, name: str, payload: Any = None, *, by: str | None = None, store: str | None = None
    ) -> Run:
        """Send a signal; its run goes on if it waited for that."""
        environment = self.over(store)
        if (text := kept_until_taken(environment.execution(execution_id).state, name)) is not None:
            tell(text)
        return Run(environment.signal(execution_id, name, payload, by), environment)

    def cancel(self, execution_id: str, *, store: str | None = None) -> Run:
        """Cancel a run of this process, or one that no process drives any more."""
        environment = self.over(store)
        return Run(environment.cancel(execution_id).wait(), environment)


def _workflow_text(workflow: Workflow) -> str:
    if is_pipeline(workflow):
        return f"pipeline {workflow.name!r} ({plural(len(visible_steps(workflow)), 'stage')})"
    return f"workflow {workflow.name!r} ({plural(len(workflow.steps), 'step')})"


# --- the session of this process -----------------------------------------------------------------------------------

_sessions: list[Session] = []


def current_session() -> Session:
    """Return this process's session, made when first asked for."""
    return _sessions[-1] if _sessions else open_session()


def open_session(store: str | None = None) -> Session:
    """Begin anew: a session without definitions, over the given or the usual store."""
    reset_session()
    _sessions.append(Session(store))
    return _sessions[-1]


def present_environment() -> Environment | None:
    """Return the environment of this process's session, if it has one already."""
    return _sessions[-1].present if _sessions else None


def close_session() -> None:
    """Forget the session and close what it opened; where nothing else runs, the engine's thread ends as well.

    Views are closed first: they read the stores.
    """
    from divebook.widgets.publisher import stop_publishers  # loading the extension must be quick

    stop_publishers()
    while _sessions:
        _sessions.pop().close()
    ENGINE.stop_if_idle()


def reset_session() -> None:
    """Forget the session; runs that it started go on."""
    while _sessions:
        _sessions.pop().leave()


# A step of a run that is tried in a notebook, and a trial that is kept as a cell or a file.


def try_step(
    session: Session, arguments: Arguments, changes: Callable[[Workflow], Workflow] | None = None
) -> StepTrial:
    """Try the step that a line names."""
    from divebook.config.answers import bounds_from, change_from

    if len(arguments.words) != 1:
        found = " ".join(arguments.words) or "nothing"
        raise UsageError(f"%dive try needs the name of one step, found {found}: %dive try draft --from exec_1f0c")
    options = arguments.options
    (step,) = arguments.words
    run = session.run_or_newest(options.get("from"), store=options.get("store"))
    change = change_from(arguments.several("set"), arguments.several("input"))
    said: TrialOptions = {
        "variables": change.variables,
        "inputs": change.inputs,
        "model": options.get("model"),
        "visit": _number(arguments, "visit"),
        "item": _number(arguments, "item"),
        "bounds": bounds_from(options.get("bounds")),
    }
    if "tools" in options:
        said["tools"] = options["tools"]
    times = _number(arguments, "times")
    return run.try_step(step, changes, times=1 if times is None else times, **said)


def _number(arguments: Arguments, option: str) -> int | None:
    written = arguments.options.get(option)
    if written is not None and not written.isdecimal():
        raise UsageError(f"--{option} needs a number, not {written!r}")
    return None if written is None else int(written)


def keep(trial: StepTrial, file: str | Path | None = None, *, overwrite: bool = False) -> Path | None:
    """Write what defines the workflow with the changed step into a new cell, or into a file, whose path is returned.

    Raises
    ------
    SetupError
        The workflow is a Python function, or there is no notebook to write into.
    """
    if trial.entry.call is not None or any(step.type == FUNCTION for step in trial.workflow.steps):
        line = "change the line of its code"
        if trial.entry.call is not None:
            line = f"write the prompt of the try into the line of its code that asks agent {trial.entry.step!r}"
        raise SetupError(
            f"workflow {trial.workflow.name!r} is a Python function, which no cell of keys can hold: "
            f"{line}, and run its cell again"
        )
    if file is not None:
        with new_file(file, overwrite=overwrite) as stream:
            stream.write(definitions_to_text(Definitions(workflows=(trial.workflow,))).encode())
        return Path(file)
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is None:
        raise SetupError("there is no notebook to write a cell into; name a file: trial.keep('draft.yaml')")
    shell.set_next_input(trial.definition, replace=False)
    tell(f"the cell below defines workflow {trial.workflow.name!r} with the changed step; run it to take it")
    return None
