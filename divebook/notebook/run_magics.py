"""The sub-commands of ``%dive`` that begin a run: of a workflow, and of an agent that is asked something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics

from divebook.notebook.commands import command
from divebook.notebook.frontend import present_front_end
from divebook.notebook.printed import tell

if TYPE_CHECKING:
    import pandas as pd

    from divebook.engine.change import Change
    from divebook.notebook.arguments import Arguments
    from divebook.notebook.run import Run
    from divebook.notebook.session import Session
    from divebook.replay.going_on import ResumePlan
    from divebook.workflow.definition import Workflow


class RunMagics(Magics):
    """Sub-commands that begin a run; their docstrings are their help, and name their options."""

    @property
    def _session(self) -> Session:
        from divebook.notebook.session import current_session

        return current_session()

    @command("run [NAME] [KEY=VALUE ...]")
    def run(self, arguments: Arguments) -> Run:
        """Run a workflow and show the result.

        NAME           the workflow; without it, the one that was defined last
        KEY=VALUE      an input, in YAML: n=3  names=[a, b]  title='two words'
        KEY=$NAME      an input whose value is a variable of the kernel, or an expression: n=$df.head(2)
        -b, --background   return at once; `await run` or `run.wait()` wait for the end
        --no-check     let the cell succeed although the run fails or is cancelled
        --strict       fail the cell also if the run has to wait for an answer or a signal
        --new          start a new run, even if this cell has begun one before
        --changed again|keep|reuse  where functions were edited since: again runs from the first call that this can
                       reach, and reuses what comes before it; keep shows the old run; without it the cell offers both.
                       Where the definition was edited: reuse does only what it does otherwise, again (as without a
                       choice) all of it; the cell says what would be reused, and offers both
        --tag TAG      a tag to find the run by (%dive runs --tag TAG), also several
        --note TEXT    a note to keep with the run
        --no-data      leave the data of the run out of the notebook; only text, table and picture are saved
        --store PATH   keep the log there
        --durability full|relaxed   relaxed: faster, but a power failure may take the latest events
        --bounds max_cost=2.50,max_llm_calls=40   what it may spend
        --model NAME   the model of all agents in this run: provider:model, or scripted (offline)
        --answer STEP=VALUE         an answer up front, also several; STEP:2=... for its second question, or an id;
                                    in YAML where data is asked for, or STEP:=JSON
        --answers FILE              answers up front: YAML that maps steps to answers; as in DIVEBOOK_ANSWERS

        `r = %dive run ...` keeps the run. Interrupting the kernel pauses it. A run that fails is shown, and fails the
        cell, so that Run All stops there: `r = %dive show ID` returns it. The same cell with the same workflow and
        inputs goes on with the run that it began, or shows it if it has completed: Run All repeats nothing.
        """
        from divebook.notebook.arguments import values

        workflow = self._session.workflow(arguments.words[0] if arguments.words else None)
        types = {definition.name: definition.type for definition in workflow.inputs}
        given = values(arguments.inputs, types, arguments.names.variables, arguments.names.own)
        return self._begin(workflow, given, arguments)

    @command("ask AGENT PROMPT")
    def ask(self, arguments: Arguments) -> Run:
        """Ask an agent something, and show the conversation.

        AGENT          the agent
        PROMPT         what to ask it: a text in quotes, or a variable of the kernel ($question)
        -b, --background   return at once; `await run` or `run.wait()` wait for the end
        --thread ID    go on with the conversation of that name, in whatever run it was, or begin it
        --output NAME  the class of the answer: a pydantic model or dataclass of the kernel, or another allowed one
        --model NAME   the model that it asks: provider:model, or scripted (offline)
        --new          ask again, even if this cell has asked before
        --no-check     let the cell succeed although the run fails or is cancelled
        --strict       fail the cell also if the run has to wait for an answer or a signal
        --bounds max_cost=2.50,max_llm_calls=40   what it may spend
        --tag TAG      a tag to find the run by (%dive runs --tag TAG), also several
        --note TEXT    a note to keep with the run
        --no-data      leave the data of the run out of the notebook; only text, table and picture are saved
        --store PATH   keep the log there
        --durability full|relaxed   relaxed: faster, but a power failure may take the latest events
        --answer STEP=VALUE         an answer up front, also several; `%dive run?` says more
        --answers FILE              answers up front: YAML that maps steps to answers

        `r = %dive ask ...` keeps the run, a run of a workflow with this one step: `r.variables["answer"]` is the
        answer, `r.conversation`, `r.messages` and `r.tool_calls` say how it came about. The same cell goes on with
        what it has asked, or shows it: Run All asks nothing twice.
        """
        from divebook.notebook.asking import ask_workflow, class_of_answer

        if len(arguments.words) != 2:
            raise UsageError("%dive ask needs the name of an agent, and a text in quotes; %dive list has the agents")
        agent, prompt = arguments.words
        output = class_of_answer(arguments.options.get("output"), arguments.names.variables)
        known = self._session.environment.agent(agent)
        workflow = ask_workflow(known.name, output, arguments.options.get("thread"))
        return self._begin(workflow, {"prompt": prompt}, arguments)

    @command("fork ID")
    def fork(self, arguments: Arguments) -> Run:
        """Start a run that shares the first events of another one, and goes on live after those.

        The other run stays as it is.

        ID             the execution; the beginning of its id is enough
        --at N         the last event that it shares; without it, all before the first answer or result that changes
        --set NAME=VALUE            a variable from there on, also several; values in YAML
        --input NAME=VALUE          an input from there on, also several
        --answer QUESTION=VALUE     another answer to a question, by its id, also several
        --result OPERATION=VALUE    another result of a call, by its id, also several
        --prompt STEP=TEXT          another prompt of a step, also several
        --model NAME   the model of all its agents: provider:model, or scripted (offline)
        -b, --background   return at once
        --no-check     let the cell succeed although the run fails or is cancelled
        --strict       fail the cell also if the run has to wait for an answer or a signal
        --no-data      leave the data of the run out of the notebook
        --store PATH   where its log is

        `r = %dive fork ID --at 12 --set city=Bonn` keeps the new run. `%dive show ID` steps through the events of the
        other one, with their numbers and ids.
        """
        execution_id = arguments.only_word("execution id", "; %dive runs lists them")
        at = arguments.options.get("at")
        if at is not None and not at.isdecimal():
            raise UsageError(f"--at needs the number of an event, not {at!r}; %dive show {execution_id} has them")
        change = changed(arguments)
        source = self._session.run_of(execution_id, store=arguments.options.get("store"))
        return source.fork(None if at is None else int(at), change, model=arguments.options.get("model"))

    @command("resume ID ...")
    def resume(self, arguments: Arguments) -> Run | ResumePlan | pd.DataFrame:
        """Resume an execution where its log ends, or with a corrected definition.

        What completed is not run again. Several go on at once where their logs end; a frame says what became of each.

        ID             the execution; the beginning of its id is enough
        --definition new    go on as a new run, with the definition as it is now: all is kept up to the first thing that
                       it does otherwise, and what is asked for again later; it says first what that is
        --plan         with --definition: only say what would be reused and what would be done, and about its cost
        --strategy NAME     from_failure (as without it), from_start (a new run, with the same inputs), skip_failed (a
                       fork in which steps that have failed count as done)
        -b, --background   return at once
        --no-check     let the cell succeed although the run fails or is cancelled
        --strict       fail the cell also if the run has to wait for an answer or a signal
        --no-data      leave the data of the run out of the notebook
        --store PATH   where its log is
        --bounds max_cost=2.50,...  bounds in place of those it had
        --answer STEP=VALUE         an answer up front, also several; `%dive run?` says more
        --answers FILE              answers up front: YAML that maps steps to answers
        """
        from divebook.mending import NEW
        from divebook.notebook.run import Run

        if len(arguments.words) > 1:
            return self._resume_each(arguments)
        execution_id, options = arguments.only_word("execution id", "; %dive runs lists them"), arguments.options
        definition, strategy, store = options.get("definition"), options.get("strategy"), options.get("store")
        given = spared(arguments)
        if definition not in (None, NEW):
            raise UsageError(f"--definition is new, the definition of now, not {definition!r}")
        if strategy is not None and (definition is not None or given["bounds"] is not None):
            raise UsageError("--strategy goes with neither --definition nor --bounds")
        if arguments.has("plan") and definition is None:
            raise UsageError("--plan says what --definition new would do; write both")
        environment = self._session.over(store)
        if strategy is not None:
            return Run(environment.retry(execution_id, strategy), environment, given["answers"])
        if definition is None:
            return self._session.resume(execution_id, store=store, **given)
        plan = environment.resume(execution_id, given["bounds"], definition=NEW, plan=True)
        if arguments.has("plan"):
            return plan
        tell("\n".join(plan.lines))
        return Run(environment.resume(execution_id, given["bounds"], definition=NEW), environment, given["answers"])

    def _resume_each(self, arguments: Arguments) -> pd.DataFrame:
        from divebook.notebook.functions import runs

        if others := [name for name in ("definition", "strategy", "answer", "answers") if name in arguments.options]:
            raise UsageError(f"--{others[0]} goes with one execution; name one, or leave it out")
        bounds = spared(arguments)["bounds"]
        chosen = runs(of=arguments.words, store=arguments.options.get("store"))
        return chosen.resume(bounds, wait=not arguments.has("background"))

    def _begin(self, workflow: Workflow, given: Mapping[str, Any], arguments: Arguments) -> Run:
        """Begin a run, or go on with the one that this cell has begun."""
        from divebook.notebook.edits import said_of_edits

        options: dict[str, Any] = {name: arguments.options.get(name) for name in _SAID_OF_A_RUN}
        options |= spared(arguments) | {"tags": arguments.several("tag")}
        front_end, edited = present_front_end(self.shell), said_of_edits(arguments.options.get("changed"))
        place = self._session.ordinals.next(front_end, workflow.name)
        if place is None:
            return self._session.start(workflow, given, **options)
        edited = edited or ("ask" if front_end.shows_widgets else "again")
        run = self._session.start_at(place, workflow, given, anew=arguments.has("new"), edited=edited, **options)
        if run.remark:
            tell(run.remark)
        return run


def changed(arguments: Arguments, model: str | None = None) -> Change:
    """Return what a line says is to be otherwise in a fork or a what-if."""
    from divebook.config.changed_words import change_from

    told = (arguments.several(name) for name in ("set", "input", "answer", "result"))
    return change_from(*told, prompts=arguments.several("prompt"), model=model)


def spared(arguments: Arguments) -> dict[str, Any]:
    """Return the bounds and the answers up front that a line names."""
    from divebook.config.answers import answers_from, bounds_from

    answers = answers_from(arguments.several("answer"), arguments.options.get("answers"))
    return {"bounds": bounds_from(arguments.options.get("bounds")), "answers": answers}


_SAID_OF_A_RUN = ("store", "durability", "model", "note")
