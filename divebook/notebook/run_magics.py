"""The sub-commands of ``%dive`` that begin a run: of a workflow, and of an agent that is asked something."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics

from divebook.errors import CodeChangedError, ExecutionCancelledError, ExecutionFailedError
from divebook.notebook.commands import command, tell
from divebook.notebook.frontend import FrontEnd, present_front_end
from divebook.notebook.waiting import finish_awaited, finish_blocking, show_live

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from divebook.engine.forks import Change
    from divebook.environment.variants import WhatIfOptions
    from divebook.notebook.commands import Arguments, Names
    from divebook.notebook.run import Run
    from divebook.notebook.session import Session
    from divebook.replay.files import ChangedFiles, KeptFiles
    from divebook.replay.inspect import Inspection
    from divebook.replay.provenance import Provenance
    from divebook.replay.resume_changed import ResumePlan
    from divebook.replay.trial import StepTrial
    from divebook.replay.verify import Verification
    from divebook.replay.what_if import Plan, RepeatedWhatIf, WhatIf
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
        from divebook.notebook.commands import values

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
        from divebook.notebook.functions import ask_workflow, class_of_answer

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
        from divebook.environment.variants import NEW
        from divebook.notebook.run import Run

        if len(arguments.words) > 1:
            return self._resume_each(arguments)
        execution_id = arguments.only_word("execution id", "; %dive runs lists them")
        options = arguments.options
        definition = options.get("definition")
        strategy = options.get("strategy")
        store = options.get("store")
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
        from divebook.notebook.reattach import said_of_edits

        options: dict[str, Any] = {name: arguments.options.get(name) for name in _SAID_OF_A_RUN}
        options |= spared(arguments) | {"tags": arguments.several("tag")}
        front_end = present_front_end(self.shell)
        edited = said_of_edits(arguments.options.get("changed"))
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
    from divebook.config.answers import change_from

    told = (arguments.several(name) for name in ("set", "input", "answer", "result"))
    return change_from(*told, prompts=arguments.several("prompt"), model=model)


def spared(arguments: Arguments) -> dict[str, Any]:
    """Return the bounds and the answers up front that a line names."""
    from divebook.config.answers import answers_from, bounds_from

    answers = answers_from(arguments.several("answer"), arguments.options.get("answers"))
    return {"bounds": bounds_from(arguments.options.get("bounds")), "answers": answers}


_SAID_OF_A_RUN = ("store", "durability", "model", "note")


# What becomes of a cell when its run has ended, has to wait, or goes on without it.


FAILING = ("failed", "cancelled")


def in_background(run: Run, arguments: Arguments, front_end: FrontEnd, *, awaited: bool) -> Any:
    """Show a run that goes on in the background."""
    _keep_data(run, arguments)
    if front_end.shows_widgets:
        show_live(run, front_end).leave()
    return at_once(run) if awaited else run


def shown_while_it_goes_on(run: Run, front_end: FrontEnd) -> Run:
    """Return a run, with its live view in the cell if it goes on, here or elsewhere, or waits for a worker."""
    execution = run.execution
    if front_end.shows_widgets and (execution.is_live or execution.goes_on_elsewhere):
        show_live(run, front_end).leave()
    return run


async def at_once(value: Any) -> Any:
    """Return a value to a cell that awaits it."""
    return value


def finish_in_cell(
    begun: Run | CodeChangedError, arguments: Arguments, front_end: FrontEnd
) -> Coroutine[Any, Any, Run]:
    """Return what a cell awaits: the run, once it has ended or has to wait, as `checked` returns it."""
    from divebook.notebook.choosing import chosen_awaited
    from divebook.notebook.report import short_errors

    async def finish() -> Run:
        with short_errors():
            run = await chosen_awaited(begun) if isinstance(begun, CodeChangedError) else begun
            _keep_data(run, arguments)
            return checked(await finish_awaited(run, front_end), arguments, front_end)

    return finish()


def finish_here(begun: Run | CodeChangedError, arguments: Arguments, front_end: FrontEnd) -> Run:
    """Block until a run has ended or has to wait, where a cell cannot await it."""
    from divebook.notebook.choosing import chosen_blocking

    run = chosen_blocking(begun) if isinstance(begun, CodeChangedError) else begun
    _keep_data(run, arguments)
    return checked(finish_blocking(run, front_end), arguments, front_end)


def _keep_data(run: Run, arguments: Arguments) -> None:
    run.keeps_data = False if arguments.has("no-data") else None


def checked(run: Run, arguments: Arguments, front_end: FrontEnd) -> Run:
    """Return the run; or show it and fail the cell, if it failed, so that Run All does not go on without it."""
    for key in run.unused_answers:
        tell(f"the answer for {key!r} was not needed: no question of that name was asked")
    if run.continued_as is not None:
        tell(f"it goes on as {run.continued_as}; to look at that: %dive show {run.continued_as}")
    if run.status == "waiting":
        return _waiting(run, front_end, strict=arguments.has("strict"))
    if run.status not in FAILING or arguments.has("no-check"):
        return run
    from IPython.display import display

    from divebook.notebook.report import card_html as card
    from divebook.notebook.report import show_as

    display(run)  # type: ignore[no-untyped-call]
    error = (
        ExecutionCancelledError(run.id)
        if run.status == "cancelled"
        else ExecutionFailedError(run.id, run.error or run.status)
    )
    show_as(error, [*card(error), "To continue past failures: --no-check"])
    raise error


def _waiting(run: Run, front_end: FrontEnd, *, strict: bool) -> Run:
    """Return a run that has to wait, and show it where that was not done yet; or fail the cell."""
    from divebook.notebook.report import card_html as card
    from divebook.notebook.report import show_as, waiting_lines, ways_on
    from divebook.notebook.run import waiting_error

    if strict:
        error = waiting_error(run.execution)
        show_as(error, [card(error)[0], *ways_on(run.execution)])
        raise error
    if run.interrupts and not front_end.shows_widgets:
        from IPython.display import display

        display(run)  # type: ignore[no-untyped-call]
        run.shown_in = front_end.count
    else:
        tell("\n".join(waiting_lines(run.execution)))
    return run


# The sub-commands of ``%dive`` that leave runs to workers.


_NO_WORKER = "no worker is there; begin one in a shell: divebook worker FILE"


class QueueMagics(RunMagics):
    """Sub-commands for queues; their docstrings are their help, and name their options."""

    @command("enqueue [NAME] [KEY=VALUE ...]")
    def enqueue(self, arguments: Arguments) -> Run:
        """Put a workflow into a queue, from which a worker takes it, and show its run live.

        NAME           the workflow; without it, the one that was defined last
        KEY=VALUE      an input, as for %dive run
        --queue NAME   the queue that it waits in; without it, default
        --priority N   higher ones are begun first
        --at TIME      when it may begin: 2026-05-01T08:00, local time
        --key TEXT     with a key it is enqueued once, whichever cell asks
        --on-conflict HOW  where that run has other inputs: warn (as without it), refuse or return
        --new          another run, even if this cell has enqueued one before
        --tag TAG      a tag to find the run by (%dive runs --tag TAG), also several
        --note TEXT    a note to keep with the run
        --store PATH   keep the log there: workers need the same

        A worker is a process: `divebook worker FILE --queue NAME` in a shell, on any machine that has the store. The
        same cell with the same workflow and inputs shows the run that it has enqueued: Run All enqueues nothing twice.
        """
        from divebook.environment.queues import DEFAULT_QUEUE, time_named
        from divebook.environment.starts import WARN
        from divebook.notebook.commands import values
        from divebook.notebook.reattach import start_key
        from divebook.notebook.run import Run

        said = arguments.options
        environment = self._session.over(said.get("store"))
        workflow = self._session.workflow(arguments.words[0] if arguments.words else None)
        types = {definition.name: definition.type for definition in workflow.inputs}
        given = values(arguments.inputs, types, arguments.names.variables, arguments.names.own)
        front_end = present_front_end(self.shell)
        place = self._session.ordinals.next(front_end, workflow.name)
        options: dict[str, Any] = {"key": said.get("key"), "on_conflict": said.get("on-conflict", WARN)}
        options |= {"note": said.get("note"), "tags": arguments.several("tag")}
        if place is not None:
            options |= place.said
            if options["key"] is None and not arguments.has("new"):
                options["key"] = start_key(environment, workflow, given, place, None)
        execution = environment.enqueue(
            workflow,
            given,
            queue=said.get("queue", DEFAULT_QUEUE),
            priority=_whole(said.get("priority", "0")),
            at=time_named(said.get("at")),
            **options,
        )
        return shown_while_it_goes_on(Run(execution, environment), front_end)

    @command("queue")
    def queue(self, arguments: Arguments) -> pd.DataFrame:
        """List what waits in queues, and why it does, as a DataFrame; and say which workers are there.

        --store PATH   where the logs are
        """
        from divebook.analysis.lists import queue_frame

        environment = self._session.over(arguments.options.get("store"))
        workers = environment.workers()
        for worker in workers:
            queues = ", ".join(worker.queues)
            tell(f"worker {worker.id}: {queues}; drives {worker.driving} of {worker.parallel}")
        if not workers:
            tell(_NO_WORKER)
        return queue_frame(environment)


def _whole(text: str) -> int:
    from divebook.errors import InputError

    try:
        return int(text)
    except ValueError as error:
        raise InputError(f"--priority {text!r} is no whole number; write --priority 5") from error


# The sub-commands of ``%dive`` that look into a run: where a value came from, what it waited for.


class LookingMagics(QueueMagics):
    """Sub-commands that look into a run; their docstrings are their help, and name their options."""

    @command("why NAME [RUN]")
    def why(self, arguments: Arguments) -> Provenance:
        """Say where the value of a variable came from.

        Which events, steps, calls, variables, inputs and choices made it, all the way back.

        NAME           the variable; inputs.NAME for an input, state for all variables
        RUN            the execution; the beginning of its id is enough; by default the newest
        --at N         as it was at event N, and not at the end
        --row N        of a list or DataFrame that items have made: row N, from 0
        --column NAME  and of that row this column
        --store PATH   where its log is

        `w = %dive why total`, then `w.frame()` is a DataFrame, `w.graph` a flow chart in Mermaid's language.
        """
        if not arguments.words:
            raise UsageError("%dive why needs the name of a variable: %dive why total")
        at, row = (number_of(arguments, *asked) for asked in (("at", "an event"), ("row", "a row")))
        store = arguments.options.get("store")
        column = arguments.options.get("column")
        run = self._session.run_or_newest(arguments.words[1] if arguments.words[1:] else None, store=store)
        return run.environment.why(run.id, arguments.words[0], at, row=row, column=column)

    @command("inspect [RUN]")
    def inspect(self, arguments: Arguments) -> Inspection:
        """Say what a run waited for and spent.

        The critical path, time by kind, what was tried again, and what agents, models and steps cost.

        RUN            the execution; the beginning of its id is enough; by default the newest
        --store PATH   where its log is

        `i = %dive inspect`, then `i.critical_path`, `i.times`, `i.retries`, `i.costs("step")` are DataFrames.
        """
        run = self._session.run_or_newest(
            arguments.words[0] if arguments.words else None, store=arguments.options.get("store")
        )
        return run.environment.inspect(run.id)

    @command("verify [RUN]")
    def verify(self, arguments: Arguments) -> Verification:
        """Check the definition of a run against its log, without a call.

        The first difference names event, step, line, what was expected and what came instead.

        RUN               the execution; the beginning of its id is enough; by default the newest
        --definition new  with the workflow as it is defined now, and not as the log has it
        --store PATH      where its log is

        `v = %dive verify`, then `v.equal`, `v.divergence`, `v.unchecked`, `v.answered`.
        """
        from divebook.runtime.forks import recorded_opening

        run = self._session.run_or_newest(
            arguments.words[0] if arguments.words else None, store=arguments.options.get("store")
        )
        written = arguments.options.get("definition")
        if written not in (None, "new"):
            raise UsageError(f"--definition is new, or is left out for that of the log, not {written!r}")
        environment = run.environment
        name = recorded_opening(run.id, environment.store).workflow_name
        return environment.verify(run.id, None if written is None else environment.workflow(name))

    @command("to-test [RUN]")
    def to_test(self, arguments: Arguments) -> Path:
        """Write a run as a test for pytest, with its log and definition beside it.

        The test needs neither key nor network, and fails at the first thing that is done otherwise than the log says:
        event, step and line. Secrets are left out.

        RUN           the execution; the beginning of its id is enough; by default the newest
        --to FILE     the file of the test; by default test_NAME.py, NAME being the workflow
        --force       overwrite the files of an earlier one
        --store PATH  where its log is

        `%dive to-test`, then `!python -m pytest test_sum.py`.
        """
        run = self._session.run_or_newest(
            arguments.words[0] if arguments.words else None, store=arguments.options.get("store")
        )
        return run.to_test(arguments.options.get("to"), overwrite="force" in arguments.options)

    @command("what-if [RUN]")
    def what_if(self, arguments: Arguments) -> WhatIf | RepeatedWhatIf | Plan:
        """Go through a run once more with one change, and show both beside each other.

        Everything that its log has a result for is answered from there: the run itself stays as it is. Scripts are
        computed, sleeps skipped, models asked; actions and tools without a recorded result are not executed.

        RUN            the execution; the beginning of its id is enough; by default the newest
        --at N         the last event that stays; without it, so that the change takes full effect
        --set NAME=VALUE            a variable from there on, also several; values in YAML
        --input NAME=VALUE          an input from there on, also several
        --answer QUESTION=VALUE     another answer to a question, by its id, also several
        --result OPERATION=VALUE    another result of a call, by its id, also several
        --prompt STEP=TEXT          another prompt of a step, also several
        --model NAME   the model of all its agents: provider:model, or scripted (offline)
        --tools recorded|read-only|live   which actions and tools may be executed where no result is recorded
        --bounds max_cost=0.50,...  what each may spend itself
        --repeat N     how many to make: where models are asked, each comes to something of its own
        --plan         only say what would be reused, and what would be live; no call is made
        --store PATH   where the log of the run is

        `w = %dive what-if --input city=Bonn`, then `w.outputs`, `w.served`, `w.live`, `w.blocked`, `w.unused`,
        `w.cost`, `w.diff`; `w.comparison.frame()` has both runs place by place.
        """
        from divebook.config.answers import bounds_from

        named = arguments.words[0] if arguments.words else None
        at = number_of(arguments, "at", "an event")
        repeat = number_of(arguments, "repeat", "what-ifs")
        change = changed(arguments, arguments.options.get("model"))
        run = self._session.run_or_newest(named, store=arguments.options.get("store"))
        options: WhatIfOptions = {"bounds": bounds_from(arguments.options.get("bounds"))}
        options |= {"tools": arguments.options.get("tools", "recorded")}
        if arguments.has("plan"):
            return run.environment.what_if(run.id, change, at, plan=True, **options)
        if repeat is None:
            return run.environment.what_if(run.id, change, at, **options)
        return run.environment.what_if(run.id, change, at, repeat=repeat, **options)


def number_of(arguments: Arguments, option: str, of: str) -> int | None:
    """Return the number that an option has; None if it is left out."""
    written = arguments.options.get(option)
    if written is not None and not written.isdecimal():
        raise UsageError(f"--{option} needs the number of {of}, not {written!r}")
    return None if written is None else int(written)


# The sub-commands of ``%dive`` about the files that a run has changed.


class FileMagics(LookingMagics):
    """Sub-commands about files; their docstrings are their help, and name their options."""

    def _kept(self, arguments: Arguments) -> KeptFiles:
        named = arguments.words[0] if arguments.words else None
        run = self._session.run_or_newest(named, store=arguments.options.get("store"))
        return run.environment.files(run.id, arguments.options.get("workspace"))

    @command("files [RUN]")
    def files(self, arguments: Arguments) -> ChangedFiles:
        """List the files that a run has changed in its workspace, each to be unfolded.

        RUN               the execution; the beginning of its id is enough; by default the newest
        --since N         from event N on, and not from the beginning
        --at N            up to event N, and not to the end
        --workspace NAME  which workspace, where it has used several
        --store PATH      where its log is
        """
        since = number_of(arguments, "since", "an event")
        at = number_of(arguments, "at", "an event")
        return self._kept(arguments).changed(since, at, whole=False)

    @command("diff [RUN] [FILE] ...")
    def diff(self, arguments: Arguments) -> ChangedFiles:
        """Show what a run has changed in its files, as git does.

        RUN               the execution; the beginning of its id is enough; by default the newest
        FILE              only these files, by their paths in the workspace
        --since N         from event N on, and not from the beginning
        --at N            up to event N, and not to the end
        --workspace NAME  which workspace, where it has used several
        --store PATH      where its log is

        `d = %dive diff`, then `d.patch` is a text that `git apply` takes, `d.files` are the differences one by one.
        """
        since = number_of(arguments, "since", "an event")
        at = number_of(arguments, "at", "an event")
        return self._kept(arguments).changed(since, at, arguments.words[1:] or None)

    @command("apply [RUN] [FILE] ...")
    def apply(self, arguments: Arguments) -> str:
        """Take over what a run has changed, into the folder that it has a copy of: all of it, or nothing.

        A file that has changed there meanwhile is named, and nothing is written. Hidden files and version-control
        metadata (`.git/`) are taken over only if you name them or their folder.

        RUN               the execution; the beginning of its id is enough; by default the newest
        FILE              only these files, by their paths in the workspace
        --to FOLDER       into this folder, not that which was copied
        --workspace NAME  which workspace, where it has used several
        --store PATH      where its log is
        """
        kept = self._kept(arguments)
        to = arguments.options.get("to")
        return kept.apply(to, arguments.words[1:] or None).told(to or kept.source, "%dive apply RUN {}")

    @command("restore [RUN]")
    def restore(self, arguments: Arguments) -> str:
        """Put the files of a run's workspace as they were at an event into a folder: all of them, or no change.

        Hidden files and version-control metadata (`.git/`) are left as they are there, unless you name them.

        RUN               the execution; the beginning of its id is enough; by default the newest
        --to FOLDER       the folder, which then holds nothing else
        --at N            as they were at event N, and not at the end
        --include PATH    also this hidden file, or all of this hidden folder; can be repeated
        --force           also if the folder holds something
        --workspace NAME  which workspace, where it has used several
        --store PATH      where its log is
        """
        from divebook.workspace.snapshots.restore import left_out_text

        to = arguments.options.get("to")
        if to is None:
            raise UsageError("%dive restore needs a folder: %dive restore RUN --at 12 --to then")
        kept = self._kept(arguments)
        at = number_of(arguments, "at", "an event")
        tree = kept.restore(to, at, force=arguments.has("force"), by_name=arguments.several("include"))
        left_out = left_out_text([path for path, _ in tree.problems], "--include {}")
        report = f"{len(tree.entries)} files and folders as of event {at or kept.last} are in {to}"
        return f"{report}. {left_out}" if left_out else report


# ``%dive try`` and the cell ``%%dive try``: one step of a run done again, with other keys if the cell has some.


TRY = "try"


class TryingMagics(FileMagics):
    """The sub-command that tries a step; its docstring is its help, and names its options."""

    @command("try STEP")
    def try_(self, arguments: Arguments) -> StepTrial:
        """Do one step of a run again with the state it had, and show what it comes to beside what is recorded.

        The run stays as it is. Models are asked; actions and tools have the recorded result of the same call, and are
        else not executed. The cell `%%dive try STEP` takes the same words, and below them the keys that the step is to
        have in place of its own, such as `Prompt: Shorter, please`.

        STEP           the step, as the workflow of the run names it; of a workflow function, an agent that it asked
        --from RUN     the execution; the beginning of its id is enough; by default the newest
        --times N      how often; 1 by default
        --set NAME=VALUE            a variable that it is to find otherwise, also several; values in YAML
        --input NAME=VALUE          an input that is to be otherwise, also several
        --visit N      which time that the run entered it, from 1 on; by default the last
        --item N       of Each, this item alone, from 0 on; by default all
        --model NAME   the model that it asks: provider:model, or scripted (offline)
        --tools recorded|read-only|live   which actions and tools may be executed where no result is recorded
        --bounds max_cost=0.50,...  what each try may spend
        --store PATH   where the log of the run is

        `t = %dive try draft --times 3`, then `t.tries[0].value`, `t.frame()`; `t.keep()` writes the workflow with the
        changed step into a new cell.
        """
        from divebook.notebook.session import try_step

        return try_step(self._session, arguments)


def try_cell(
    session: Session, words: list[str], text: str, lines_above: int, names: Names, *, number: int
) -> StepTrial:
    """Try a step with the keys that a cell has.

    Parameters
    ----------
    words
        Those of its first line after ``%%dive try``; `divebook.notebook.cells.take_cell` says what the rest is.
    """
    from divebook.notebook.report import short_errors
    from divebook.notebook.session import try_step
    from divebook.workflow.reader import with_keys

    with short_errors([""] * lines_above + text.splitlines()):
        arguments = TryingMagics.try_.parse(words, names)
        source_name = f"Cell [{number}]" if number else "cell"

        def changed(workflow: Workflow) -> Workflow:
            return with_keys(workflow, arguments.words[0], text, source_name=source_name, line_offset=lines_above)

        return try_step(session, arguments, changed if text.strip() else None)
