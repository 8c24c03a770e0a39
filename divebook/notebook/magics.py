"""The magics ``%dive`` and ``%%dive``: they parse a line, run its sub-command and show the run that it returns.

Each sub-command is a method of `DiveMagics` with the decorator `command`. The docstring of the method is its help text,
and declares its words and options (`divebook.notebook.commands`). `DiveMagics.dive` receives every line and every cell:

- a cell (``%%dive``) goes to `divebook.notebook.cells.define_cell`, or runs a trial of a step (``%%dive try STEP``);
- a line goes to the method of its first word. A method with the option ``--background`` returns a run, which
  `divebook.notebook.run_in_cell` then shows and waits for.

Methods import heavy modules when they run, because ``%load_ext divebook`` must be quick.

`DevEnvMagics` has the magics ``%dev_env`` and ``%%dev_env``.
"""

from __future__ import annotations

import json
import os
import selectors
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, needs_local_scope, no_var_expand

from divebook.errors import CodeChangedError, DevEnvError
from divebook.interrupts import INTERRUPTS
from divebook.notebook.commands import HELP_OPTIONS, Command, command, command_called, help_with, print_answer
from divebook.notebook.run_in_cell import await_in_cell, immediate, show_in_background, show_while_running, wait_in_cell
from divebook.notebook.shell_state import FrontEnd, line_in_cell, notebook_of, present_front_end, user_variables

if TYPE_CHECKING:
    import pandas as pd

    from divebook.config.answers import Answers
    from divebook.definitions.definition import Workflow
    from divebook.engine.forks import Change
    from divebook.environments.variants import WhatIfOptions
    from divebook.notebook.commands import Arguments, Names
    from divebook.notebook.saved_notebook import SavedNotebook, SavedRun
    from divebook.notebook.session import Session
    from divebook.projections.comparison import Comparison
    from divebook.questions.bounds import Bounds
    from divebook.replay.files import ChangedFiles, KeptFiles
    from divebook.replay.inspect import Inspection
    from divebook.replay.provenance import Provenance
    from divebook.replay.resume_changed import ResumePlan
    from divebook.replay.trial import StepTrial
    from divebook.replay.verify import Verification
    from divebook.replay.what_if import Plan, RepeatedWhatIf, WhatIf
    from divebook.runtime.run import Run


Result: TypeAlias = Any

AWAIT = "await"
"""Word before a sub-command that makes the magic return a coroutine instead of blocking."""
TRY = "try"
LISTED = "; %dive runs lists them"
# The lines of help that are not sub-commands, because they start a cell.
OVERVIEW = """\
%%dive                            define agents and workflows, in YAML
%%dive workflow NAME              define one workflow
%%dive agent NAME                 define one agent
%%dive script AGENT               what an agent answers, offline: a list of replies
%%dive try STEP                   try a step of a run with other keys
      ... --dialect dive          the same, in the legacy Dive dialect"""
_NO_WORKER = "no worker is there; begin one in a shell: divebook worker FILE"
_RUN_OPTIONS = ("store", "durability", "model", "note")
"""Options of ``run`` and ``ask`` that are passed to `Session.start` under the same name."""


@magics_class
class DiveMagics(Magics):
    """The magics ``%dive`` and ``%%dive`` of one shell, with all sub-commands.

    The methods with `command` are the sub-commands, in the order of ``%dive help``.
    """

    # IPython would replace ``$name`` and ``{name}`` in the line by texts. `divebook.notebook.commands` evaluates
    # ``$name`` itself, so that an input can be any object (`tests/notebook/test_expressions.py`).
    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    def dive(self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None) -> Result:
        """Define and run workflows; ``%dive help`` lists the sub-commands.

        Parameters
        ----------
        line
            The first line without ``%dive`` or ``%%dive``.
        cell
            The lines below ``%%dive``; None for a line magic.
        local_ns
            Local variables of the function that contains the line, if any.
        """
        from divebook.notebook.cells import located, short_errors

        # `define_cell` and trials produce their own short errors, which name a line of the YAML text.
        if cell is not None:
            return self._run_cell(line, cell, self._names(local_ns))
        # `located` is the inner block: it adds the line to an error before `short_errors` gives the error its final
        # form.
        with short_errors(), located(line_in_cell(self.shell)):
            return self._run_command(line, self._names(local_ns))

    def _names(self, local: Mapping[str, Any] | None) -> Names:
        """Return the variables that Python expressions of a ``%dive`` line may use. They include `local`, the local
        variables of a function that contains the line.
        """
        from divebook.notebook.commands import Names

        if self.shell is None:
            return Names()
        # A local variable hides a global one of the same name, as in Python.
        variables = {**self.shell.user_ns, **(local or {})}
        return Names(variables, tuple(user_variables(self.shell)))

    def _position_of_cell(self, text: str) -> tuple[int, int]:
        """Return two numbers that locate a ``%%dive`` cell in error messages: the number of its lines before the
        definitions, and its execution count. If the cell is not in IPython's history, return 1 and 0.

        Some versions of IPython increase the count before the cell runs, so the number is read from the history.
        """
        history = getattr(self.shell, "history_manager", None)
        cells = [] if history is None else history.input_hist_raw
        written = cells[-1] if cells else ""
        # Blank lines above ``%%dive`` are part of the cell for the person, but IPython removes them before the magic
        # gets its text.
        blank = len(written) - len(written.lstrip())
        # A ``%%dive`` cell that runs inside another cell is not the last input of the history.
        is_this_cell = written.lstrip().startswith("%%dive") and written.rstrip().endswith(text.rstrip())
        if not is_this_cell:
            return 1, 0
        # The history starts with an empty entry, so that index n is the cell with execution count n.
        return 1 + written.count("\n", 0, blank), len(cells) - 1

    def _run_cell(self, line: str, text: str, names: Names) -> StepTrial | None:
        """Add the definitions of a ``%%dive`` cell to the session, and return None. For ``%%dive try``, run a trial of
        a step and return it.
        """
        from divebook.notebook.cells import define_cell, short_errors
        from divebook.notebook.commands import split

        # Only ``try`` is handled here: it runs a step of a recorded run and defines nothing.
        lines_above, number = self._position_of_cell(text)
        kind, *words = split(line) or [""]
        if kind != TRY:
            define_cell(self._session, line, text, lines_above, names, number=number)
            return None
        # The keys below ``%%dive try`` are YAML, and their errors name a line of the cell.
        with short_errors([""] * lines_above + text.splitlines()):
            arguments = COMMANDS[TRY].parse(words, names)
            return self._try_with_keys(arguments, text, lines_above, number)

    def _run_command(self, line: str, names: Names) -> Result:
        """Run the sub-command of a ``%dive`` line, wait for the run that it starts, and return its result.

        If the first word is `AWAIT`, the result is a coroutine, which the cell awaits. Interrupts are deferred until
        the run is shown. After that, an interrupt of the kernel pauses the run.
        """
        from divebook.notebook.commands import split
        from divebook.runtime.run import Run

        words = split(line)
        # The cell awaits the result, so that also a result that is ready must be returned by a coroutine.
        is_awaited = words[:1] == [AWAIT]
        # A truth value is 0 or 1 in a slice. The word `AWAIT`, which the extension has inserted, is skipped.
        name, *rest = words[is_awaited:] or ("help",)
        sub_command = command_called(name, COMMANDS)
        # Help comes before parsing, so that it also explains a line with mistakes.
        if not HELP_OPTIONS.isdisjoint(rest):
            print_answer(sub_command.whole_help)
            return immediate(None) if is_awaited else None
        arguments = sub_command.parse(rest, names)
        # Only methods that return a run have this option. All other results are ready at once.
        if "--background" not in sub_command.flags:
            return sub_command.method(self, arguments)
        front_end = present_front_end(self.shell)
        # Set before the run starts: its view appears a moment later and would miss the beginning of a text.
        self._session.streams_text = front_end.shows_widgets
        # An interrupt between the start of the run and its display would leave a run that no cell refers to.
        with INTERRUPTS.deferred():
            result = self._run_or_choice(sub_command, arguments, front_end)
            # Some of these methods also return frames and plans: ``%dive resume`` with several ids or with ``--plan``.
            if not isinstance(result, Run | CodeChangedError):
                return immediate(result) if is_awaited else result
            # With ``--background`` there are no buttons, so that `_run_or_choice` has made the choice.
            if arguments.has("background") and not isinstance(result, CodeChangedError):
                return show_in_background(result, arguments, front_end, is_awaited=is_awaited)
            if is_awaited:
                return await_in_cell(result, arguments, front_end)
            return wait_in_cell(result, arguments, front_end)

    def _run_or_choice(self, sub_command: Command, arguments: Arguments, front_end: FrontEnd) -> Result:
        """Run a sub-command and return its result. If the sub-command would repeat a run whose code has changed, return
        the `CodeChangedError` instead; the cell then shows its choices as buttons.

        If no buttons can be shown, the default choice is made; without a default the error is raised.
        """
        try:
            return sub_command.method(self, arguments)
        except CodeChangedError as error:
            # ``--background`` and ``--strict`` exclude buttons: the first does not wait, the second must not depend on
            # a person.
            has_buttons = front_end.shows_widgets and not arguments.has("background") and not arguments.has("strict")
            if has_buttons:
                return error
            # `default` is None if the old run has not ended. Only a person may replace such a run.
            if error.default is None:
                raise
            return error.begin(error.default)

    @property
    def _session(self) -> Session:
        from divebook.notebook.session import current_session

        return current_session()

    # --- sub-commands that start a run ------------------------------------------------------------------------------

    @command("run [NAME] [KEY=VALUE ...]")
    def run(self, arguments: Arguments) -> Run:
        """Run a workflow and show the result.

        NAME           the workflow; without it, the one that was defined last
        KEY=VALUE      an input, in YAML: n=3  names=[a, b]  title='two words'
        KEY=$NAME      an input whose value is a variable of the kernel, or an expression: n=$df.head(2)
        -b, --background   return at once; `await run` or `run.wait()` wait for the end
        --no-check     let the cell succeed although the run fails or is cancelled
        --strict       fail the cell also if the run has to wait for an answer or a signal
        --new          start a new run, even if this cell has started one before
        --changed again|keep|reuse  where functions were edited since: again runs from the first call that this can
                       reach, and reuses what comes before it; keep shows the old run; without it the cell offers both.
                       Where the definition was edited: reuse makes only the calls that differ, again (the default) all
                       of them; the cell states what would be reused, and offers both
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
        inputs continues the run that it started, or shows it if it has completed: Run All repeats nothing.
        """
        workflow = self._workflow_of(arguments)
        return self._start(workflow, _inputs(arguments, workflow), arguments)

    @command("ask AGENT PROMPT")
    def ask(self, arguments: Arguments) -> Run:
        """Ask an agent something, and show the conversation.

        AGENT          the agent
        PROMPT         what to ask it: a text in quotes, or a variable of the kernel ($question)
        -b, --background   return at once; `await run` or `run.wait()` wait for the end
        --thread ID    continue the conversation of that name, in whatever run it was, or start it
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
        answer, `r.conversation`, `r.messages` and `r.tool_calls` show the way to it. The same cell continues the run
        that it started, or shows it: Run All asks nothing twice.
        """
        from divebook.notebook.session_functions import ask_workflow, class_of_answer

        if len(arguments.words) != 2:
            raise UsageError("%dive ask needs the name of an agent, and a text in quotes; %dive list has the agents")
        agent, prompt = arguments.words
        output = class_of_answer(arguments.options.get("output"), arguments.names.variables)
        # The name is looked up before the run starts, so that a typing mistake does not leave a failed run.
        name = self._session.environment.internals.registry.agent(agent).name
        workflow = ask_workflow(name, output, arguments.options.get("thread"))
        return self._start(workflow, {"prompt": prompt}, arguments)

    @command("fork ID")
    def fork(self, arguments: Arguments) -> Run:
        """Start a run that shares the first events of another one, and continues live after those.

        The other run stays unchanged.

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
        execution_id = arguments.only_word("execution id", LISTED)
        at = arguments.options.get("at")
        # `isdecimal` rejects signs and spaces, which `int` accepts.
        if at is not None and not at.isdecimal():
            raise UsageError(f"--at needs the number of an event, not {at!r}; %dive show {execution_id} has them")
        source = self._session.run_of(execution_id, store=arguments.options.get("store"))
        last_shared = None if at is None else int(at)
        return source.fork(last_shared, _change(arguments), model=arguments.options.get("model"))

    @command("resume ID ...")
    def resume(self, arguments: Arguments) -> Run | ResumePlan | pd.DataFrame:
        """Resume an execution where its log ends, or with a corrected definition.

        Completed steps are not run again. Several executions resume at once; a frame shows the result of each.

        ID             the execution; the beginning of its id is enough
        --definition new    continue as a new run, with the definition as it is now: all calls up to the first
                       difference are reused, and later ones that are equal; the plan is printed first
        --plan         with --definition: only print what would be reused and what would run, and its cost
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
        from divebook.environments.variants import NEW

        # Several ids lead to a frame with one row each, so a failure of one is a row and not an error.
        if len(arguments.words) > 1:
            return self._resume_each(arguments)
        execution_id = arguments.only_word("execution id", LISTED)
        options = arguments.options
        definition = options.get("definition")
        strategy = options.get("strategy")
        store = options.get("store")
        bounds = _bounds(arguments)
        answers = _answers(arguments)
        # Combinations without a meaning are refused before anything is started.
        if definition not in (None, NEW):
            raise UsageError(f"--definition is new, the definition of now, not {definition!r}")
        if strategy is not None and (definition is not None or bounds is not None):
            raise UsageError("--strategy goes with neither --definition nor --bounds")
        if arguments.has("plan") and definition is None:
            raise UsageError("--plan says what --definition new would do; write both")
        environment = self._session.over(store)
        if strategy is not None:
            run = environment.run_of(execution_id).retry(strategy)
            run.answers = answers
            return run
        if definition is None:
            return self._session.resume(execution_id, store=store, bounds=bounds, answers=answers)
        # The plan is always made first: a person sees which calls are repeated before they are made.
        plan = environment.run_of(execution_id).resume(bounds, definition=NEW, plan=True)
        if arguments.has("plan"):
            return plan
        print_answer("\n".join(plan.lines))
        run = environment.run_of(execution_id).resume(bounds, definition=NEW)
        run.answers = answers
        return run

    def _start(self, workflow: Workflow, inputs: Mapping[str, Any], arguments: Arguments) -> Run:
        """Start a run for ``%dive run``, or continue the earlier run of this cell (`divebook.notebook.rerun`)."""
        from divebook.notebook.rerun import edit_policy

        # Options that the line lacks are None, which `Session.start` treats as not set.
        options: dict[str, Any] = {name: arguments.options.get(name) for name in _RUN_OPTIONS}
        options["bounds"] = _bounds(arguments)
        options["answers"] = _answers(arguments)
        options["tags"] = arguments.several("tag")
        front_end = present_front_end(self.shell)
        on_edit = edit_policy(arguments.options.get("changed"))
        place = self._session.ordinals.next(front_end, workflow.name)
        # A front end without cells, such as a terminal, starts a new run for each line.
        if place is None:
            return self._session.start(workflow, inputs, **options)
        # Programs that run notebooks cannot press a button, so the run starts again.
        if on_edit is None:
            on_edit = "ask" if front_end.shows_widgets else "again"
        run = self._session.start_at(
            place, workflow, inputs, always_new=arguments.has("new"), on_edit=on_edit, **options
        )
        if run.remark:
            print_answer(run.remark)
        return run

    def _workflow_of(self, arguments: Arguments) -> Workflow:
        return self._session.workflow(arguments.words[0] if arguments.words else None)

    def _resume_each(self, arguments: Arguments) -> pd.DataFrame:
        from divebook.notebook.session_functions import runs

        for option in ("definition", "strategy", "answer", "answers"):
            if option in arguments.options:
                raise UsageError(f"--{option} goes with one execution; name one, or leave it out")
        selection = runs(of=arguments.words, store=arguments.options.get("store"))
        return selection.resume(_bounds(arguments), wait=not arguments.has("background"))

    # --- queues and workers ------------------------------------------------------------------------------------------

    @command("enqueue [NAME] [KEY=VALUE ...]")
    def enqueue(self, arguments: Arguments) -> Run:
        """Put a workflow into a queue, from which a worker takes it, and show its run live.

        NAME           the workflow; without it, the one that was defined last
        KEY=VALUE      an input, as for %dive run
        --queue NAME   the queue that it waits in; without it, default
        --priority N   higher ones start first
        --at TIME      when it may start: 2026-05-01T08:00, local time
        --key TEXT     with a key it is enqueued once, whichever cell asks
        --on-conflict HOW  where that run has other inputs: warn (as without it), refuse or return
        --new          another run, even if this cell has enqueued one before
        --tag TAG      a tag to find the run by (%dive runs --tag TAG), also several
        --note TEXT    a note to keep with the run
        --store PATH   keep the log there: workers need the same

        A worker is a process: `divebook worker FILE --queue NAME` in a shell, on any machine that has the store. The
        same cell with the same workflow and inputs shows the run that it has enqueued: Run All enqueues nothing twice.
        """
        from divebook.definitions.functions import BoundInputs
        from divebook.environments.starts import DEFAULT_QUEUE, WARN, time_named
        from divebook.notebook.rerun import start_key

        options = arguments.options
        environment = self._session.over(options.get("store"))
        workflow = self._workflow_of(arguments)
        inputs = _inputs(arguments, workflow)
        front_end = present_front_end(self.shell)
        place = self._session.ordinals.next(front_end, workflow.name)
        start_options: dict[str, Any] = {
            "key": options.get("key"),
            "on_conflict": options.get("on-conflict", WARN),
            "note": options.get("note"),
            "tags": arguments.several("tag"),
        }
        if place is not None:
            start_options |= place.start_options
            # An explicit ``--key`` takes precedence over the key of the cell.
            if start_options["key"] is None and not arguments.has("new"):
                inputs = BoundInputs.of(workflow, inputs)
                start_options["key"] = start_key(environment, workflow, inputs, place, None)
        run = environment.enqueue(
            workflow,
            inputs,
            queue=options.get("queue", DEFAULT_QUEUE),
            priority=_priority(options.get("priority", "0")),
            at=time_named(options.get("at")),
            **start_options,
        )
        return show_while_running(run, front_end)

    @command("queue")
    def queue(self, arguments: Arguments) -> pd.DataFrame:
        """List the runs that wait in queues with the reason, as a DataFrame, and print the running workers.

        --store PATH   where the logs are
        """
        from divebook.analysis.lists import queue_frame

        environment = self._session.over(arguments.options.get("store"))
        workers = environment.workers()
        # Workers are printed, because the frame has one row for each run.
        for worker in workers:
            queues = ", ".join(worker.queues)
            print_answer(f"worker {worker.id}: {queues}; drives {worker.driving} of {worker.parallel}")
        if not workers:
            print_answer(_NO_WORKER)
        return queue_frame(environment)

    # --- look into a run ---------------------------------------------------------------------------------------------

    @command("why NAME [RUN]")
    def why(self, arguments: Arguments) -> Provenance:
        """Show where the value of a variable came from.

        The events, steps, calls, variables, inputs and choices that led to it, back to the start.

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
        at = _number(arguments, "at", "an event")
        row = _number(arguments, "row", "a row")
        column = arguments.options.get("column")
        # For ``why``, the id of the run is the second word, after the name of the variable.
        run = self._run_of_word(arguments, 1)
        return run.why(arguments.words[0], at, row=row, column=column)

    @command("inspect [RUN]")
    def inspect(self, arguments: Arguments) -> Inspection:
        """Show what a run waited for and spent.

        The critical path, time by kind, what was tried again, and what agents, models and steps cost.

        RUN            the execution; the beginning of its id is enough; by default the newest
        --store PATH   where its log is

        `i = %dive inspect`, then `i.critical_path`, `i.times`, `i.retries`, `i.costs("step")` are DataFrames.
        """
        run = self._run_of_word(arguments)
        return run.inspect()

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

        run = self._run_of_word(arguments)
        definition = arguments.options.get("definition")
        if definition not in (None, "new"):
            raise UsageError(f"--definition is new, or is left out for that of the log, not {definition!r}")
        environment = run.environment
        # Without ``--definition``, the log is checked against the definition that it records. With ``new``, it is
        # checked against the current workflow of the same name.
        if definition is None:
            return run.verify()
        name = recorded_opening(run.id, environment.store).workflow_name
        return run.verify(environment.internals.registry.workflow(name))

    @command("to-test [RUN]")
    def to_test(self, arguments: Arguments) -> Path:
        """Write a run as a test for pytest, with its log and definition beside it.

        The test needs neither key nor network, and fails at the first difference from the log, with event, step and
        line. Secrets are removed.

        RUN           the execution; the beginning of its id is enough; by default the newest
        --to FILE     the file of the test; by default test_NAME.py, NAME being the workflow
        --force       overwrite the files of an earlier one
        --store PATH  where its log is

        `%dive to-test`, then `!python -m pytest test_sum.py`.
        """
        run = self._run_of_word(arguments)
        return run.to_test(arguments.options.get("to"), overwrite="force" in arguments.options)

    @command("what-if [RUN]")
    def what_if(self, arguments: Arguments) -> WhatIf | RepeatedWhatIf | Plan:
        """Run a run once more with one change, and show both side by side.

        Calls with a recorded result are answered from the log; the run itself stays unchanged. Scripts are computed,
        sleeps skipped, models asked; actions and tools without a recorded result are not executed.

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
        --repeat N     how many to make: where models are asked, the results differ
        --plan         only show what would be reused, and what would be live; no call is made
        --store PATH   where the log of the run is

        `w = %dive what-if --input city=Bonn`, then `w.outputs`, `w.served`, `w.live`, `w.blocked`, `w.unused`,
        `w.cost`, `w.diff`; `w.comparison.frame()` has both runs place by place.
        """
        at = _number(arguments, "at", "an event")
        repeat = _number(arguments, "repeat", "what-ifs")
        change = _change(arguments, arguments.options.get("model"))
        run = self._run_of_word(arguments)
        options: WhatIfOptions = {
            "bounds": _bounds(arguments),
            "tools": arguments.options.get("tools", "recorded"),
        }
        # Three calls, since the result type of `what_if` depends on `plan` and `repeat`.
        if arguments.has("plan"):
            return run.what_if(change, at, plan=True, **options)
        if repeat is None:
            return run.what_if(change, at, **options)
        return run.what_if(change, at, repeat=repeat, **options)

    def _run_of_word(self, arguments: Arguments, position: int = 0) -> Run:
        """Return the run whose id is the word at index `position` of the line; if the line has fewer words, the newest
        run.
        """
        execution_id = arguments.words[position] if len(arguments.words) > position else None
        return self._session.run_or_newest(execution_id, store=arguments.options.get("store"))

    # --- files of a run ----------------------------------------------------------------------------------------------

    @command("files [RUN]")
    def files(self, arguments: Arguments) -> ChangedFiles:
        """List the files that a run has changed in its workspace. Unfold a file to see its changes.

        RUN               the execution; the beginning of its id is enough; by default the newest
        --since N         from event N on, and not from the beginning
        --at N            up to event N, and not to the end
        --workspace NAME  which workspace, where it has used several
        --store PATH      where its log is
        """
        since = _number(arguments, "since", "an event")
        at = _number(arguments, "at", "an event")
        # `whole=False` shows the files folded; ``%dive diff`` shows all differences.
        return self._files_of_run(arguments).changed(since, at, whole=False)

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
        since = _number(arguments, "since", "an event")
        at = _number(arguments, "at", "an event")
        return self._files_of_run(arguments).changed(since, at, arguments.words[1:] or None)

    @command("apply [RUN] [FILE] ...")
    def apply(self, arguments: Arguments) -> str:
        """Apply the changes of a run to the folder that it has a copy of: all of them, or none.

        If a file has changed there meanwhile, the error names it, and nothing is written. Hidden files and
        version-control metadata (`.git/`) are applied only if you name them or their folder.

        RUN               the execution; the beginning of its id is enough; by default the newest
        FILE              only these files, by their paths in the workspace
        --to FOLDER       into this folder, not that which was copied
        --workspace NAME  which workspace, where it has used several
        --store PATH      where its log is
        """
        files = self._files_of_run(arguments)
        to = arguments.options.get("to")
        applied = files.apply(to, arguments.words[1:] or None)
        # The text names the files that were left out, with the line that applies them.
        return applied.told(to or files.source, "%dive apply RUN {}")

    @command("restore [RUN]")
    def restore(self, arguments: Arguments) -> str:
        """Write the files of a run's workspace as they were at an event into a folder: all of them, or none.

        Hidden files and version-control metadata (`.git/`) stay unchanged there, unless you name them.

        RUN               the execution; the beginning of its id is enough; by default the newest
        --to FOLDER       the folder, which then holds nothing else
        --at N            as they were at event N, and not at the end
        --include PATH    also this hidden file, or all of this hidden folder; can be repeated
        --force           also if the folder holds something
        --workspace NAME  which workspace, where it has used several
        --store PATH      where its log is
        """
        from divebook.workspaces.snapshots.restore import left_out_text

        to = arguments.options.get("to")
        if to is None:
            raise UsageError("%dive restore needs a folder: %dive restore RUN --at 12 --to then")
        files = self._files_of_run(arguments)
        at = _number(arguments, "at", "an event")
        tree = files.restore(to, at, force=arguments.has("force"), by_name=arguments.several("include"))
        left_out = left_out_text([path for path, _ in tree.problems], "--include {}")
        report = f"{len(tree.entries)} files and folders as of event {at or files.last} are in {to}"
        return f"{report}. {left_out}" if left_out else report

    def _files_of_run(self, arguments: Arguments) -> KeptFiles:
        run = self._run_of_word(arguments)
        return run.files(arguments.options.get("workspace"))

    # --- try a step --------------------------------------------------------------------------------------------------

    @command("try STEP")
    def try_(self, arguments: Arguments) -> StepTrial:
        """Run one step of a run again with its recorded state, and show the result beside the recorded one.

        The run stays unchanged. Models are asked; actions and tools have the recorded result of the same call, and are
        otherwise not executed. The cell `%%dive try STEP` takes the same words, and below them keys that replace those
        of the step, such as `Prompt: Shorter, please`.

        STEP           the step, as the workflow of the run names it; of a workflow function, an agent that it asked
        --from RUN     the execution; the beginning of its id is enough; by default the newest
        --times N      how often; 1 by default
        --set NAME=VALUE            another value of a variable, also several; values in YAML
        --input NAME=VALUE          another value of an input, also several
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

    def _try_with_keys(self, arguments: Arguments, text: str, lines_above: int, number: int) -> StepTrial:
        """Run a trial of a step like ``%dive try``; the keys in the text of a ``%%dive try`` cell replace keys of the
        step.
        """
        from divebook.definitions.reader import with_keys
        from divebook.notebook.session import try_step

        if not text.strip():
            return try_step(self._session, arguments)
        # As in IPython's tracebacks, errors name the cell by its execution count.
        source_name = f"Cell [{number}]" if number else "cell"

        # `try_step` finds the run and passes its workflow to this function, so the keys are read later than the line.
        def with_new_keys(workflow: Workflow) -> Workflow:
            return with_keys(workflow, arguments.words[0], text, source_name=source_name, line_offset=lines_above)

        return try_step(self._session, arguments, with_new_keys)

    # --- runs of the store, questions, definitions and help ---------------------------------------------------------

    @command("runs [--status STATUS]")
    def runs(self, arguments: Arguments) -> Result:
        """List executions, newest first.

        The list shows what each cost and why it failed, opens, resumes, cancels and tags them, and has the inbox
        beside it. `runs = %dive runs`, then `runs.frame()` is a DataFrame, and `runs[0]` the newest run.

        --status STATUS      only those that are running, completed, failed, cancelled ...
        --workflow NAME      only those of one workflow
        --tag TAG            only those with this tag
        --origin ORIGIN      only those of one origin: run, resume, fork, what-if, trial, child, import
        --notebook PATH      only those that this notebook started
        -n, --limit N        at most N in the frame (0: all, the default)
        --store PATH         where their logs are
        """
        from divebook.notebook.session_functions import runs

        options = arguments.options
        limit = options.get("limit", "0")
        if not limit.isdecimal():
            raise UsageError(f"--limit needs a number, not {limit!r}")
        filters: dict[str, Any] = {
            name: options.get(name) for name in ("status", "workflow", "tag", "origin", "notebook")
        }
        return runs(limit=int(limit), store=options.get("store"), **filters)

    @command("show ID")
    def show(self, arguments: Arguments) -> Run:
        """Show an execution, running or past; while it runs, here or in another process, its view is live.

        ID             the execution; the beginning of its id is enough
        --store PATH   where its log is
        """
        execution_id = arguments.only_word("execution id", LISTED)
        run = self._session.run_of(execution_id, store=arguments.options.get("store"))
        return show_while_running(run, present_front_end(self.shell))

    @command("open [FILE] [ID]")
    def open(self, arguments: Arguments) -> SavedNotebook | SavedRun | Run:
        """Open the run that a file holds, or the runs of a saved notebook.

        Their store is not needed, and none changes; no code in them is run. Files of `run.to_html`, `run.to_notebook`
        and `divebook export` open as a run.

        FILE           .html, .jsonl or .ipynb; by default this notebook, as last saved
        ID             the run, if not all of a saved notebook; the beginning of its id is enough

        `run = %dive open run.html`; `runs = %dive open old.ipynb`, then `runs[0].replay()`, `runs[0].events`.
        """
        from divebook.notebook.saved_notebook import carries_log, open_notebook, open_page
        from divebook.stores.embedded import PAGE

        if len(arguments.words) > 2:
            raise UsageError("%dive open takes a file and, after it, at most the id of a run")
        # Without a file, the saved file of this notebook is opened. Only some front ends report its path.
        name = arguments.words[0] if arguments.words else notebook_of(self.shell)
        if not name:
            raise UsageError("which notebook? This front end does not say; name its file: %dive open FILE")
        path = Path(name).expanduser()
        # Three kinds of files: a log becomes a run in a new store in memory. A page without a log, and a saved
        # notebook, only show their runs.
        if carries_log(path):
            if arguments.words[1:]:
                raise UsageError(f"{name} holds one run: leave out its id")
            return self._session.open(path)
        if path.suffix.lower() in PAGE:
            return open_page(path)
        notebook = open_notebook(name)
        return notebook[arguments.words[1]] if arguments.words[1:] else notebook

    @command("compare ID ID ...")
    def compare(self, arguments: Arguments) -> Comparison:
        """Compare runs of one workflow side by side.

        Equal, changed, added and removed calls, the first difference first; prompts, answers and variables word by
        word, with cost, tokens and time.

        ID             an execution; the beginning of its id is enough; the first is compared with each of the others
        --store PATH   where their logs are

        `c = %dive compare ID ID`, then `c.first`, `c.frame()`.
        """
        from divebook.notebook.session_functions import compare

        if len(arguments.words) < 2:
            raise UsageError(f"%dive compare needs the ids of two executions or more{LISTED}")
        return compare(*arguments.words, store=arguments.options.get("store"))

    @command("recover [ID] [--all]")
    def recover(self, arguments: Arguments) -> None:
        """List or resume interrupted executions.

        They run in the background.

        ID             resume this one; the beginning of its id is enough
        --all          resume all of them, as far as the defined agents and actions allow it
        --page N       which page of a long list
        --store PATH   where their logs are

        The variable DIVEBOOK_RECOVER, or Recover in the Config of a definition, sets what happens automatically:
        ask (a line at %load_ext), auto (they are resumed), off (nothing).
        """
        from divebook.notebook.recovery import lines_after_recovering, listing

        store = arguments.options.get("store")
        page = arguments.options.get("page", "1")
        # `isdecimal` excludes signs, `int(page)` the page 0.
        if not (page.isdecimal() and int(page)):
            raise UsageError(f"--page needs a number from 1 on, not {page!r}")
        if not (arguments.words or arguments.has("all")):
            print_answer(listing(self._session.interrupted(store=store), int(page)))
            return
        if arguments.words and arguments.has("all"):
            raise UsageError("%dive recover takes an execution id or --all, not both")
        execution_id = None if arguments.has("all") else arguments.only_word("execution id", LISTED)
        recovered = self._session.recover(execution_id, store=store)
        print_answer("\n".join(lines_after_recovering(recovered)))

    @command("inbox")
    def inbox(self, arguments: Arguments) -> None:
        """Show the open questions.

        They are cards that can be answered in place, or text with commands.

        --store PATH   where the logs are
        """
        from divebook.notebook.report import questions
        from divebook.notebook.run_list import InboxOutput

        store = arguments.options.get("store")
        environment = self._session.over(store)
        # Without questions, one line of text is enough. A widget would stay in the notebook.
        if present_front_end(self.shell).shows_widgets and environment.interrupts():
            InboxOutput(environment, store)
        else:
            print_answer(str(questions(environment, store)))

    @command("rules")
    def rules(self, arguments: Arguments) -> None:
        """List the rules that people made when they approved calls.

        --revoke ID    revoke one, for all calls from now on
        --store PATH   where the logs are
        """
        from divebook.notebook.report import rules

        environment = self._session.over(arguments.options.get("store"))
        print_answer(str(rules(environment, arguments.options.get("revoke"))))

    @command("answer QUESTION ANSWER", data_word=1)
    def answer(self, arguments: Arguments) -> Run:
        """Answer a question, and show its run.

        QUESTION       the question, as `%dive inbox` names it
        ANSWER         a text, yes or no ("no: not today" says why), a number, data in YAML or JSON ({a: 1}): as
                       %dive inbox says; in full {approved: true, data: {parameters: {host: h9}}}, or, to allow more
                       calls like this one, {approved: true, data: {rule: {scope: always}}}
        --result JSON  with done: what the call returned
        --as text|json how ANSWER is read; else as data where the question asks for data, and as text where not
        --alike        the same answer for all open questions that the step asks alike
        --by NAME      who answers
        -b, --background   return at once
        --no-check     let the cell succeed although the run fails or is cancelled
        --strict       fail the cell also if the run has to wait for an answer or a signal
        --no-data      leave the data of the run out of the notebook
        --store PATH   where its log is
        """
        from divebook.config.answers import typed_answer

        if len(arguments.words) != 2:
            raise UsageError("%dive answer needs the id of a question and an answer; %dive inbox lists the questions")
        question, word = arguments.words
        options = arguments.options
        # ``$name`` gives the value itself, which can be any object. A text is interpreted according to the question.
        answer = arguments.data.get(1, word)
        if isinstance(answer, str):
            answer = typed_answer(answer, options.get("as"), options.get("result"))
        elif "as" in options or "result" in options:
            raise UsageError(f"{word} is a {type(answer).__name__} already; --as and --result are for texts")
        return self._session.answer(
            question, answer, alike=arguments.has("alike"), by=options.get("by"), store=options.get("store")
        )

    @command("signal ID NAME [PAYLOAD]", data_word=2)
    def signal(self, arguments: Arguments) -> Run:
        """Send a signal to an execution.

        The execution is then shown.

        ID             the execution; the beginning of its id is enough
        NAME           the signal, as the step has it
        PAYLOAD        in YAML; may be left out
        --by NAME      who sends it
        -b, --background   return at once
        --no-check     let the cell succeed although the run fails or is cancelled
        --strict       fail the cell also if the run has to wait for an answer or a signal
        --no-data      leave the data of the run out of the notebook
        --store PATH   where its log is
        """
        from divebook.definitions.yaml_text import value_typed

        if len(arguments.words) not in (2, 3):
            raise UsageError("%dive signal needs the id of an execution, the name of a signal, and perhaps a payload")
        execution_id, name, *rest = arguments.words
        # The data of a word exist only if the word was a Python expression. Any other payload is YAML, like an input.
        typed_payload = value_typed(rest[0]) if rest else None
        payload = arguments.data.get(2, typed_payload)
        options = arguments.options
        return self._session.signal(execution_id, name, payload, by=options.get("by"), store=options.get("store"))

    @command("cancel ID ...")
    def cancel(self, arguments: Arguments) -> Result:
        """Cancel one execution or several; they can be resumed.

        For several a frame shows the result of each.

        ID             an execution; the beginning of its id is enough
        --store PATH   where its log is
        """
        from divebook.notebook.session_functions import runs

        if len(arguments.words) > 1:
            return runs(of=arguments.words, store=arguments.options.get("store")).cancel()
        return self._session.cancel(arguments.only_word("execution id", LISTED), store=arguments.options.get("store"))

    @command("annotate ID ...")
    def annotate(self, arguments: Arguments) -> pd.DataFrame:
        """Add a note, labels or tags to one execution or several.

        A frame shows the result of each. The annotation is an event of each log, also after its end.

        ID             an execution; the beginning of its id is enough
        --note TEXT    the note; "" removes it
        --label NAME=VALUE    a label, also several; values in YAML, null removes it
        --tag TAG      a tag to find it by, also several
        --untag TAG    remove a tag, also several
        --store PATH   where its log is
        """
        from divebook.config.answers import annotating
        from divebook.notebook.session_functions import runs

        if not arguments.words:
            raise UsageError(f"%dive annotate needs the id of an execution{LISTED}")
        # `annotating` checks all options first, so that a mistake changes no execution.
        verb = annotating(
            note=arguments.options.get("note"),
            tags=arguments.several("tag"),
            untag=arguments.several("untag"),
            labels=arguments.several("label"),
        )
        return runs(of=arguments.words, store=arguments.options.get("store")).handle(verb)

    @command("list")
    def list(self, _arguments: Arguments) -> None:
        """List the defined workflows, agents and actions."""
        from divebook.notebook.report import contents

        print_answer(str(contents(self._session.environment)))

    @command("keys [PART]")
    def keys(self, arguments: Arguments) -> None:
        """List the keys that definitions can have.

        The type and the meaning of each key.

        PART           such as Step, Agent or Each; without it, the names of the parts
        """
        from divebook.definitions.schema import TABLES, reference

        if not arguments.words:
            print_answer(f"parts of a definition: {', '.join(TABLES)}; %dive keys PART lists the keys of one")
            return
        label, lines = reference(arguments.words[0])
        width = max(len(line.key) for line in lines)
        print_answer("\n".join([label, *(f"  {line.key:{width}}  {line}" for line in lines)]))

    @command("help [WORD]")
    def help(self, arguments: Arguments) -> None:
        """Describe a sub-command or a key of definitions, or list all sub-commands.

        WORD           the sub-command, as `%dive COMMAND?` and `%dive COMMAND --help` do; or a key, such as Ask, Retry
                       or Each: its meaning and type, with an example
        """
        if arguments.words:
            print_answer(help_with(arguments.words[0], COMMANDS))
            return
        width = max(len(entry.usage) for entry in COMMANDS.values())
        lines = []
        for entry in COMMANDS.values():
            # The summary is the first line of the docstring.
            summary = entry.help.partition("\n")[0]
            lines.append(f"%dive {entry.usage:<{width}}  {summary}")
        print_answer("\n".join([OVERVIEW, "", *lines]))


# `vars` keeps the order of the class body, which is the order of ``%dive help``.
COMMANDS = {entry.usage.split()[0]: entry for entry in vars(DiveMagics).values() if isinstance(entry, Command)}
"""The sub-commands of ``%dive`` by name, in the order of ``%dive help``."""


# --- values of options ---------------------------------------------------------------------------------------------


def _inputs(arguments: Arguments, workflow: Workflow) -> dict[str, Any]:
    from divebook.notebook.commands import values

    types = {definition.name: definition.type for definition in workflow.inputs}
    return values(arguments.inputs, types, arguments.names.variables, arguments.names.user_names)


def _change(arguments: Arguments, model: str | None = None) -> Change:
    """Return the change (variables, inputs, answers, results, prompts or model) that the options of ``%dive fork`` or
    ``%dive what_if`` describe.
    """
    from divebook.config.answers import change_from

    return change_from(
        arguments.several("set"),
        arguments.several("input"),
        arguments.several("answer"),
        arguments.several("result"),
        prompts=arguments.several("prompt"),
        model=model,
    )


def _bounds(arguments: Arguments) -> Bounds | None:
    from divebook.config.answers import bounds_from

    return bounds_from(arguments.options.get("bounds"))


def _answers(arguments: Arguments) -> Answers:
    """Return the answers that are given to questions in advance: by ``--answer``, ``--answers`` and the variable
    ``DIVEBOOK_ANSWERS``.
    """
    from divebook.config.answers import answers_from

    return answers_from(arguments.several("answer"), arguments.options.get("answers"))


def _number(arguments: Arguments, option: str, of: str) -> int | None:
    """Return the value of an option as an integer; None without the option. Raise `UsageError` if the value is not an
    integer.

    `of` names the counted things in the error about an invalid value.
    """
    text = arguments.options.get(option)
    if text is None:
        return None
    if not text.isdecimal():
        raise UsageError(f"--{option} needs the number of {of}, not {text!r}")
    return int(text)


def _priority(text: str) -> int:
    """Return the value of ``--priority``, which may be negative, as an integer. Raise `InputError` if it is not an
    integer.
    """
    from divebook.errors import InputError

    # `int` accepts negative numbers, unlike `_number`.
    try:
        return int(text)
    except ValueError as error:
        raise InputError(f"--priority {text!r} is no whole number; write --priority 5") from error


# --- %dev_env ---------------------------------------------------------------------------------------------------------

# The magics ``%dev_env`` and ``%%dev_env``, which run the shell command ``dev_env`` and return its output as a
# value.


_DEV_ENV = (sys.executable, "-c", "from divebook.cli.dev_env import main; main()")
"""The command runs in a separate process: Ctrl+C ends it as in a shell, and it does not use the kernel's event loop."""
_PIECE_OF_OUTPUT = 1 << 16
"""Number of bytes that are read from the process at a time."""


@magics_class
class DevEnvMagics(Magics):
    """The magics ``%dev_env`` and ``%%dev_env`` of one shell."""

    # Without this decorator, IPython would replace ``$HOME`` and ``{name}`` in commands for the environment.
    @no_var_expand
    @line_cell_magic
    def dev_env(self, line: str, cell: str | None = None) -> Any:
        """Work with development environments, as ``dev_env`` does in a shell; ``%dev_env --help`` lists the commands.

        JSON output is returned as a value (``states = %dev_env list``), a path as a string. ``%%dev_env NAME`` runs the
        cell in the environment NAME.

        Raises
        ------
        DevEnvError
            The command ended with an exit code other than 0.
        """
        from divebook.notebook.cells import short_errors

        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"%dev_env {line}: {error}") from error
        # The text of the cell becomes one argument, so that it needs no quotes.
        if cell is not None:
            if len(words) != 1:
                raise UsageError("%%dev_env takes the name of an environment, in which the cell is run")
            words = ["execute", words[0], cell]
        with short_errors():
            return _value_of_dev_env(words)


def _value_of_dev_env(words: list[str]) -> Any:
    """Run the shell command ``dev_env`` and return its output as a Python value. Raise `DevEnvError` if the command
    fails.

    JSON output is parsed, a path is returned as a string, and other output is printed. Output of programs inside an
    environment (``execute``, ``logs``) is printed as it arrives.
    """
    # Text of a running program must appear at once. With ``--json`` the same commands return one document at the end.
    is_streamed = ("execute" in words or "logs" in words) and "--json" not in words
    code, output, errors = _run_dev_env(words or ["--help"], is_streamed=is_streamed)
    if code:
        # The last line of the error output states the cause. The lines before it were printed already.
        last_line = errors.strip().rpartition("\n")[2].removeprefix("dev_env: ") or "it said nothing"
        raise DevEnvError(f"{last_line} (exit code {code})")
    # Some commands print JSON, others a path or a text.
    try:
        return json.loads(output)
    except ValueError:
        text = output.rstrip("\n")
    # One line that begins with a slash is the path of an environment or file.
    if text.startswith("/") and "\n" not in text:
        return text
    if text:
        sys.stdout.write(f"{text}\n")
    return None


def _run_dev_env(words: list[str], *, is_streamed: bool) -> tuple[int, str, str]:
    """Run the shell command ``dev_env``; return its exit code, its stdout and its stderr.

    The error output is also printed. With `is_streamed` the output is printed as it arrives and not returned. Both
    pipes are read as data arrives, so that the process never blocks on a full pipe.
    """
    with (
        # The command cannot ask the person: a cell has no terminal.
        subprocess.Popen(
            [*_DEV_ENV, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
        # `communicate` would return the output only at the end, and reading one pipe after the other could block both
        # sides.
        selectors.DefaultSelector() as streams,
    ):
        buffers: dict[Any, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
        for stream in buffers:
            streams.register(stream, selectors.EVENT_READ)
        try:
            # An unregistered stream has ended. The loop ends with the last one.
            while streams.get_map():
                for key, _ in streams.select():
                    piece = os.read(key.fd, _PIECE_OF_OUTPUT)
                    if not piece:
                        streams.unregister(key.fileobj)
                        continue
                    # Errors are printed and also kept, because the last line becomes the text of `DevEnvError`.
                    is_error = key.fileobj is process.stderr
                    if is_error or not is_streamed:
                        buffers[key.fileobj] += piece
                    if is_error or is_streamed:
                        target = sys.stderr if is_error else sys.stdout
                        # A character of several bytes that is cut between two pieces is shown as a replacement
                        # character.
                        target.write(piece.decode(errors="replace"))
                        target.flush()
        # `BaseException`, so that Ctrl-C ends the command too.
        except BaseException:
            process.terminate()  # it ends its command, and cleans up
            raise
        code = process.wait()
    output = bytes(buffers[process.stdout]).decode(errors="replace")
    errors = bytes(buffers[process.stderr]).decode(errors="replace")
    return code, output, errors
