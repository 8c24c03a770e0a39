"""The sub-commands of ``%dive`` that look into a run: where a value came from, what it waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from divebook.notebook.commands import command
from divebook.notebook.queue_magics import QueueMagics
from divebook.notebook.run_magics import changed

if TYPE_CHECKING:
    from pathlib import Path

    from divebook.notebook.arguments import Arguments
    from divebook.replay.inspection import Inspection
    from divebook.replay.provenance import Provenance
    from divebook.replay.verify import Verification
    from divebook.replay.what_if import Plan
    from divebook.replay.what_if_result import RepeatedWhatIf, WhatIf
    from divebook.what_ifs import WhatIfOptions


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
        store, column = arguments.options.get("store"), arguments.options.get("column")
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
        from divebook.execution.definitions import recorded_opening

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
        at, repeat = number_of(arguments, "at", "an event"), number_of(arguments, "repeat", "what-ifs")
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
