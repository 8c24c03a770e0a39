"""The sub-commands of ``%dive`` that look into a run: where a value came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from divebook.notebook.commands import command
from divebook.notebook.run_magics import RunMagics

if TYPE_CHECKING:
    from divebook.notebook.arguments import Arguments
    from divebook.replay.provenance import Provenance


class LookingMagics(RunMagics):
    """Sub-commands that look into a run; their docstrings are their help, and name their options."""

    @command("why NAME [RUN]")
    def why(self, arguments: Arguments) -> Provenance:
        """Say where the value of a variable came from.

        Which events, steps, calls, variables, inputs and choices made it, all the way back.

        NAME           the variable; inputs.NAME for an input, state for all variables
        RUN            the execution; the beginning of its id is enough; by default the newest
        --at N         as it was at event N, and not at the end
        --store PATH   where its log is

        `w = %dive why total`, then `w.frame()` is a DataFrame, `w.graph` a flow chart in Mermaid's language.
        """
        if not arguments.words:
            raise UsageError("%dive why needs the name of a variable: %dive why total")
        at, store = arguments.options.get("at"), arguments.options.get("store")
        if at is not None and not at.isdecimal():
            raise UsageError(f"--at needs the number of an event, not {at!r}")
        run = self._session.run_or_newest(arguments.words[1] if arguments.words[1:] else None, store=store)
        return run.environment.why(run.id, arguments.words[0], None if at is None else int(at))
