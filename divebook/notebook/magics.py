"""The magics ``%dive`` and ``%%dive``: a thin face over the session."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from divebook.errors import ExecutionCancelledError, ExecutionFailedError, nearest
from divebook.notebook.awaiting import AWAIT
from divebook.notebook.finishing import finish_awaited, finish_blocking
from divebook.notebook.frontend import FrontEnd, present_front_end

if TYPE_CHECKING:
    from divebook.notebook.arguments import Arguments
    from divebook.notebook.run import Run
    from divebook.notebook.saved import SavedNotebook, SavedRun
    from divebook.notebook.session import Session

Result: TypeAlias = Any
Method: TypeAlias = "Callable[[DiveMagics, Arguments], Result]"

OVERVIEW = """\
%%dive                   define agents and workflows, in YAML
%%dive workflow NAME     define one workflow
%%dive agent NAME        define one agent
                         (each: --dialect dive reads it as the old system did)"""


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command of ``%dive``."""

    usage: str
    method: Method
    flags: Mapping[str, str] = field(default_factory=dict)
    valued: Mapping[str, str] = field(default_factory=dict)
    inputs: bool = False

    @property
    def help(self) -> str:
        """What it does, in full."""
        return inspect.getdoc(self.method) or ""


@magics_class
class DiveMagics(Magics):
    """Magics of one shell."""

    @no_var_expand
    @line_cell_magic
    def dive(self, line: str, cell: str | None = None) -> Result:
        """Define and run workflows; ``%dive help`` lists what can be done."""
        from divebook.notebook.cards import short_errors

        if cell is not None:
            self._define(line, cell)
            return None
        with short_errors():
            return self._command(line)

    def _define(self, line: str, cell: str) -> None:
        from divebook.notebook.cards import short_errors
        from divebook.notebook.cell import confirmation, parse_cell
        from divebook.notebook.recovery import lines_after_defining

        parsed = parse_cell(line, cell, self._lines_above(cell))
        with short_errors(parsed.lines):
            change = self._session.define(parsed.read())
            lines = [confirmation(change), *lines_after_defining(self._session)]
        print("\n".join(lines))  # noqa: T201 - what a magic prints is its answer

    def _lines_above(self, text: str) -> int:
        """Return how many lines of the cell as written come before its body: blank ones, and the magic's own."""
        history = getattr(self.shell, "history_manager", None)
        written = history.input_hist_raw[-1] if history is not None and history.input_hist_raw else ""
        blank = len(written) - len(written.lstrip())
        is_this_cell = written.lstrip().startswith("%%dive") and written.rstrip().endswith(text.rstrip())
        return 1 + (written.count("\n", 0, blank) if is_this_cell else 0)

    def _command(self, line: str) -> Result:
        from divebook.notebook.arguments import parse, split

        words = split(line)
        awaited = words[:1] == [AWAIT]
        name, *rest = words[awaited:] or ("help",)
        command = _command_called(name)
        arguments = parse(rest, command.flags, command.valued, inputs=command.inputs)
        if command.method not in _FINISHED:
            return command.method(self, arguments)
        front_end = present_front_end(self.shell)
        run = command.method(self, arguments)
        run.keeps_data = False if arguments.has("no-data") else None
        if arguments.has("background"):
            return _in_background(run, front_end, awaited=awaited)
        if awaited:
            return _finish_in_cell(run, arguments, front_end)
        return _checked(finish_blocking(run, front_end), arguments)

    @property
    def _session(self) -> Session:
        from divebook.notebook.session import current_session

        return current_session()

    # --- sub-commands: their docstrings are their help -------------------------------------------------------------

    def run(self, arguments: Arguments) -> Run:
        """Run a workflow and show the result.

        NAME           the workflow; without it, the one that was defined last
        KEY=VALUE      an input, in YAML: n=3  names=[a, b]  title='two words'
        KEY=$NAME      an input whose value is a variable of the kernel
        --background   return at once; `await run` or `run.wait()` wait for the end
        --check        fail the cell unless the run completes
        --no-data      leave the data of the run out of the notebook; only text, table and picture are saved
        --store PATH   keep the log there
        --durability full|relaxed   relaxed: faster, but a power failure may take the latest events

        `r = %dive run ...` keeps the run. Interrupting the kernel pauses it.
        """
        from divebook.notebook.arguments import values

        if len(arguments.words) > 1:
            extra = " ".join(arguments.words[1:])
            raise UsageError(f"unexpected {extra!r}; write inputs as key=value, and texts with spaces in quotes")
        workflow = self._session.workflow(arguments.words[0] if arguments.words else None)
        types = {definition.name: definition.type for definition in workflow.inputs}
        variables = {} if self.shell is None else self.shell.user_ns
        given = values(arguments.inputs, types, variables)
        options = arguments.options
        return self._session.start(workflow, given, store=options.get("store"), durability=options.get("durability"))

    def resume(self, arguments: Arguments) -> Run:
        """Take an execution up again where its log ends, and show the result.

        ID             the execution; the beginning of its id is enough
        --background   return at once
        --check        fail the cell unless it completes
        --no-data      leave the data of the run out of the notebook
        --store PATH   where its log is
        """
        return self._session.resume(arguments.only_word("execution id"), store=arguments.options.get("store"))

    def show(self, arguments: Arguments) -> Run:
        """Show an execution, running or past.

        ID             the execution; the beginning of its id is enough
        --store PATH   where its log is
        """
        return self._session.run_of(arguments.only_word("execution id"), store=arguments.options.get("store"))

    def open(self, arguments: Arguments) -> SavedNotebook | SavedRun:
        """Open the runs that a saved notebook holds, without their store; nothing in them is carried out.

        FILE           the notebook; by default this one, as it was saved last
        ID             the run, if not all of them; the beginning of its id is enough

        `runs = %dive open old.ipynb`, then `runs[0].replay()`, `runs[0].events`.
        """
        from divebook.notebook.saved import open_notebook

        if len(arguments.words) > 2:
            raise UsageError("%dive open takes a file and, if you like, the id of a run")
        name = arguments.words[0] if arguments.words else os.environ.get("JPY_SESSION_NAME", "")
        if not name:
            raise UsageError("which notebook? This front end does not tell; name its file: %dive open FILE")
        notebook = open_notebook(name)
        return notebook[arguments.words[1]] if arguments.words[1:] else notebook

    def cancel(self, arguments: Arguments) -> Run:
        """Cancel an execution; it can be resumed.

        ID             the execution; the beginning of its id is enough
        --store PATH   where its log is
        """
        return self._session.cancel(arguments.only_word("execution id"), store=arguments.options.get("store"))

    def answer(self, arguments: Arguments) -> Run:
        """Answer a question, and show what becomes of its run.

        ID             the question, as `%dive inbox` shows it
        ANSWER         in YAML: retry, done or fail where an outcome is unknown, or {choice: done, result: 3}
        --background   return at once
        --check        fail the cell unless the run completes
        --no-data      leave the data of the run out of the notebook
        --store PATH   where its log is
        """
        from divebook.notebook.arguments import yaml_value

        if len(arguments.words) != 2:
            raise UsageError("%dive answer needs the id of a question and an answer; %dive inbox lists the questions")
        question, response = arguments.words
        return self._session.answer(question, yaml_value(response), store=arguments.options.get("store"))

    def inbox(self, arguments: Arguments) -> None:
        """List the questions that wait for an answer.

        --store PATH   where the logs are
        """
        from divebook.notebook.listing import questions

        print(questions(self._session.over(arguments.options.get("store"))))  # noqa: T201 - same

    def recover(self, arguments: Arguments) -> None:
        """List executions that were interrupted, or take them up in the background.

        ID             take this one up; the beginning of its id is enough
        --all          take all of them up, as far as what is defined allows it
        --store PATH   where their logs are

        The variable DIVEBOOK_RECOVER, or Recover in the Config of a definition, says what happens by itself:
        ask (a line at %load_ext), auto (they are taken up), off (nothing).
        """
        from divebook.notebook.recovery import listing, refused_lines, resumed_lines

        store = arguments.options.get("store")
        if not (arguments.words or arguments.has("all")):
            print(listing(self._session.interrupted(store=store)))  # noqa: T201 - same
            return
        chosen = None if arguments.has("all") else arguments.only_word("execution id")
        recovered = self._session.recover(chosen, store=store)
        lines = [*resumed_lines(recovered), *refused_lines(recovered)]
        print("\n".join(lines or ["nothing to recover"]))  # noqa: T201 - same

    def runs(self, arguments: Arguments) -> Result:
        """List executions, newest first, as a DataFrame.

        --status STATUS      only those that are running, completed, failed, cancelled ...
        --workflow NAME      only those of one workflow
        --limit N            at most so many (20; 0 for all)
        --store PATH         where their logs are
        """
        options, limit = arguments.options, arguments.options.get("limit", "20")
        if not limit.isdecimal():
            raise UsageError(f"--limit needs a number, not {limit!r}")
        return self._session.runs(
            status=options.get("status"), workflow=options.get("workflow"), limit=int(limit), store=options.get("store")
        )

    def list(self, _arguments: Arguments) -> None:
        """List the workflows, agents and actions that are defined."""
        from divebook.notebook.listing import contents

        print(contents(self._session.environment))  # noqa: T201 - what a magic prints is its answer

    def help(self, arguments: Arguments) -> None:
        """Explain a sub-command, or list all.

        COMMAND        the sub-command; `%dive COMMAND?` does the same
        """
        if arguments.words:
            name = arguments.only_word("sub-command")
            command = _command_called(name)
            print(f"%dive {command.usage}\n\n{command.help}")  # noqa: T201 - same
            return
        width = max(len(entry.usage) for entry in COMMANDS.values())
        lines = [f"%dive {entry.usage:<{width}}  {entry.help.partition(chr(10))[0]}" for entry in COMMANDS.values()]
        print("\n".join([OVERVIEW, "", *lines]))  # noqa: T201 - same


def _command_called(name: str) -> Command:
    if name not in COMMANDS:
        close = nearest(name, COMMANDS)
        advice = f"did you mean %dive {close}?" if close else f"there are: {', '.join(COMMANDS)}"
        raise UsageError(f"%dive {name} does not exist ({advice})")
    return COMMANDS[name]


def _in_background(run: Run, front_end: FrontEnd, *, awaited: bool) -> Result:
    """Show a run that nobody waits for."""
    if front_end.shows_widgets:
        run.show_live(front_end).leave()

    async def at_once() -> Run:
        return run

    return at_once() if awaited else run


def _finish_in_cell(run: Run, arguments: Arguments, front_end: FrontEnd) -> Coroutine[Any, Any, Run]:
    from divebook.notebook.cards import short_errors

    async def finish() -> Run:
        with short_errors():
            return _checked(await finish_awaited(run, front_end), arguments)

    return finish()


def _checked(run: Run, arguments: Arguments) -> Run:
    """Return the run, or show it and fail the cell if `--check` asks for that and it did not complete."""
    if not arguments.has("check") or run.status == "completed":
        return run
    from IPython.display import display

    display(run)  # type: ignore[no-untyped-call]
    raise (
        ExecutionCancelledError(run.id)
        if run.status == "cancelled"
        else ExecutionFailedError(run.id, run.error or run.status)
    )


_STORE = {"--store": "store"}
_RUNNING = {**_STORE, "--durability": "durability"}
_FLAGS = {"--background": "background", "-b": "background", "--check": "check", "--no-data": "no-data"}
_LISTING = {"--status": "status", "--workflow": "workflow", "--limit": "limit", "-n": "limit", **_STORE}
_FINISHED = (DiveMagics.run, DiveMagics.resume, DiveMagics.answer)
"""What returns a run that is waited for."""

COMMANDS: dict[str, Command] = {
    "run": Command("run [NAME] [KEY=VALUE ...] [--background]", DiveMagics.run, _FLAGS, _RUNNING, inputs=True),
    "runs": Command("runs [--status STATUS] [--limit N]", DiveMagics.runs, {}, _LISTING),
    "show": Command("show ID", DiveMagics.show, {}, _STORE),
    "open": Command("open [FILE] [ID]", DiveMagics.open),
    "resume": Command("resume ID [--background]", DiveMagics.resume, _FLAGS, _STORE),
    "recover": Command("recover [ID] [--all]", DiveMagics.recover, {"--all": "all"}, _STORE),
    "inbox": Command("inbox", DiveMagics.inbox, {}, _STORE),
    "answer": Command("answer ID ANSWER [--background]", DiveMagics.answer, _FLAGS, _STORE),
    "cancel": Command("cancel ID", DiveMagics.cancel, {}, _STORE),
    "list": Command("list", DiveMagics.list),
    "help": Command("help [COMMAND]", DiveMagics.help),
}
