"""The sub-commands of ``%dive`` that leave runs to workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from divebook.notebook.commands import command
from divebook.notebook.frontend import present_front_end
from divebook.notebook.printed import tell
from divebook.notebook.run_magics import RunMagics
from divebook.notebook.verdict import shown_while_it_goes_on

if TYPE_CHECKING:
    import pandas as pd

    from divebook.notebook.arguments import Arguments
    from divebook.notebook.run import Run

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
        from divebook.notebook.arguments import values
        from divebook.notebook.reattach import start_key
        from divebook.notebook.run import Run
        from divebook.queueing import DEFAULT_QUEUE, time_named
        from divebook.starting import WARN

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
        from divebook.analysis.queue_frame import queue_frame

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
