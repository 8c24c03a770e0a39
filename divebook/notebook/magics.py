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

import functools
import json
import os
import selectors
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, needs_local_scope, no_var_expand

from divebook.commands.command import NOTEBOOK, CellKeys, Invocation, StartRequest
from divebook.commands.control import BulkResults
from divebook.commands.driving import Drive
from divebook.commands.table import COMMANDS as TABLE
from divebook.errors import CodeChangedError, DevEnvError
from divebook.interrupts import INTERRUPTS
from divebook.notebook.commands import (
    HELP_OPTIONS,
    Command,
    command_called,
    help_with,
    line_command,
    print_answer,
)
from divebook.notebook.run_in_cell import await_in_cell, immediate, show_in_background, show_while_running, wait_in_cell
from divebook.notebook.shell_state import (
    FrontEnd,
    assigned_name,
    line_in_cell,
    notebook_of,
    present_front_end,
    user_variables,
)
from divebook.report.hints import advised

if TYPE_CHECKING:
    import pandas as pd

    from divebook.commands.command import Command as DeclaredCommand
    from divebook.commands.control import Inbox
    from divebook.commands.definitions import DefinedNames, HelpRequest
    from divebook.commands.inspection import RunQuery, ShownRun
    from divebook.commands.queues import Interrupted, Queue
    from divebook.environments.starts import StartOptions
    from divebook.notebook.commands import Arguments, Names
    from divebook.notebook.run_list import Runs
    from divebook.notebook.saved_notebook import SavedNotebook, SavedRun
    from divebook.notebook.session import Session
    from divebook.replay.trial import StepTrial
    from divebook.runtime.run import Run


Result: TypeAlias = Any

AWAIT = "await"
"""Word before a sub-command that makes the magic return a coroutine instead of blocking."""
TRY = "try"
NO_KEYS = CellKeys()
# The lines of help that are not sub-commands, because they start a cell.
OVERVIEW = """\
%%dive                            define agents and workflows, in YAML
%%dive workflow NAME              define one workflow
%%dive agent NAME                 define one agent
%%dive script AGENT               define the replies of an offline agent: a list
%%dive try STEP                   run a step of a run again with changed keys
      ... --dialect dive          the same, in the legacy Dive dialect"""


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
            # As in IPython's tracebacks, errors name the cell by its execution count.
            keys = CellKeys(text, f"Cell [{number}]" if number else "cell", lines_above)
            trial: StepTrial = self.call(TABLE[TRY], arguments, keys)
            return trial

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
            return self.call(sub_command.declared, arguments)
        front_end = present_front_end(self.shell)
        # Set before the run starts: its view appears a moment later and would miss the beginning of a text.
        self._session.streams_text = front_end.shows_widgets
        # An interrupt between the start of the run and its display would leave a run that no cell refers to.
        with INTERRUPTS.deferred():
            result = self._run_or_choice(sub_command, arguments, front_end)
            # Some of these methods also return frames and plans: ``%dive resume`` with several ids or with ``--plan``.
            if not isinstance(result, Run | CodeChangedError):
                return immediate(result) if is_awaited else result
            name = assigned_name(self.shell)
            note = functools.partial(self._note_run, name=name, keeps_data=False if arguments.has("no-data") else None)
            if isinstance(result, Run):
                note(result)
            # With ``--background`` there are no buttons, so that `_run_or_choice` has made the choice.
            if arguments.has("background") and not isinstance(result, CodeChangedError):
                return show_in_background(result, front_end, is_awaited=is_awaited)
            if is_awaited:
                return await_in_cell(result, arguments, front_end, note)
            return wait_in_cell(result, arguments, front_end, note)

    def _note_run(self, run: Run, *, name: str, keeps_data: bool | None) -> None:
        """Note the run of a cell as soon as it is known: in the variable `name`, unless it is empty, and as the last
        run of the session.

        The cell assigns the variable only if the run does not fail, and most of all a failed run is looked at. With
        `keeps_data` false, the notebook does not contain the data for a replay of the run; with None, the settings
        decide.
        """
        run.internals.options.keeps_data = keeps_data
        self._session.last = run
        if name and self.shell is not None:
            self.shell.user_ns[name] = run

    def _run_or_choice(self, sub_command: Command, arguments: Arguments, front_end: FrontEnd) -> Result:
        """Run a sub-command and return its result. If the sub-command would repeat a run whose code has changed, return
        the `CodeChangedError` instead; the cell then shows its choices as buttons.

        If no buttons can be shown, the default choice is made; without a default the error is raised.
        """
        try:
            return self.call(sub_command.declared, arguments)
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

    def call(self, declared: DeclaredCommand, arguments: Arguments, keys: CellKeys = NO_KEYS) -> Result:
        """Call a declared command with the words and options of a ``%dive`` line, and return the value of the cell."""
        from divebook.notebook.commands import objects_of, values_of

        store = arguments.options.get("store")
        call = Invocation(
            NOTEBOOK,
            lambda: self._session.over(store),
            lambda text, _style: print_answer(text),
            store,
            cell=keys,
            choose_workflow=lambda _environment, name: self._session.workflow(name),
            start=self._start,
            prepare=self._prepare,
            objects=objects_of(arguments),
            variables=arguments.names.variables,
            waits=not arguments.has("background"),
            last_run=self._session.last,
        )
        values = values_of(declared, arguments)
        # A saved notebook, and a file in a live session, are opened by the notebook itself.
        if declared.name == OPEN:
            return self._open(**values)
        result = declared.function(call, **values)
        if isinstance(result, Drive):
            return _begun(result)
        if isinstance(result, BulkResults):
            return _view_of_results(result)
        if declared.name in VIEWS:
            return VIEWS[declared.name](self, call, result)
        return result

    def _start(self, call: Invocation, request: StartRequest) -> Run:
        """Start a run, or continue the earlier run of this cell (`divebook.notebook.rerun`)."""
        from divebook.notebook.rerun import edit_policy, interrupted_note

        front_end = present_front_end(self.shell)
        on_edit = edit_policy(request.changed)
        place = self._session.ordinals.next(front_end, request.workflow.name)
        # A front end without cells, such as a terminal, starts a new run for each line. So does a start key, which
        # decides itself whether a run is started.
        has_key = request.options.get("key") is not None
        if place is None and not has_key and not request.always_new:
            note = interrupted_note(self._session.over(call.store), request.workflow, request.inputs)
            if note:
                print_answer(note)
        if place is None or has_key:
            return self._session.start_run(
                request.workflow, request.inputs, store=call.store, answers=request.answers, **request.options
            )
        # Programs that run notebooks cannot press a button, so the run starts again.
        if on_edit is None:
            on_edit = "ask" if front_end.shows_widgets else "again"
        run = self._session.start_at(
            place,
            request.workflow,
            request.inputs,
            store=call.store,
            always_new=request.always_new,
            on_edit=on_edit,
            answers=request.answers,
            **request.options,
        )
        if run.internals.options.remark:
            print_answer(run.internals.options.remark)
        return run

    def _prepare(self, call: Invocation, request: StartRequest) -> StartRequest:
        """Add the identity of the cell to a run that is enqueued, so that the same cell finds it again."""
        from divebook.definitions.functions import BoundInputs
        from divebook.notebook.rerun import start_key

        place = self._session.ordinals.next(present_front_end(self.shell), request.workflow.name)
        if place is None:
            return request
        options: StartOptions = {**request.options, **place.start_options}
        # An explicit ``--key`` takes precedence over the key of the cell.
        if options.get("key") is not None or request.always_new:
            return replace(request, options=options)
        inputs = BoundInputs.of(request.workflow, request.inputs)
        options["key"] = start_key(call.environment, request.workflow, inputs, place, None)
        return replace(request, inputs=inputs, options=options)

    def _open(self, file: str | None = None, run: str | None = None) -> SavedNotebook | SavedRun | Run:
        """Open the run in a file, or the runs of a saved notebook; without a file, of this notebook."""
        from divebook.notebook.saved_notebook import carries_log, open_notebook, open_page
        from divebook.stores.embedded import PAGE

        # Only some front ends report the path of the notebook.
        name = file or notebook_of(self.shell)
        if not name:
            raise UsageError(
                "the path of this notebook is unknown, because the front end does not report it; pass the path: "
                f"{advised('open FILE')}"
            )
        path = Path(name).expanduser()
        # Three kinds of files: a log becomes a run in a new store in memory. A page without a log, and a saved
        # notebook, only show their runs.
        if carries_log(path):
            if run is not None:
                raise UsageError(f"{name} contains only one run; remove the run id from the command")
            return self._session.open(path)
        if path.suffix.lower() in PAGE:
            return open_page(path)
        notebook = open_notebook(name)
        return notebook if run is None else notebook[run]

    @property
    def _session(self) -> Session:
        from divebook.notebook.session import current_session

        return current_session()

    # --- sub-commands that start a run ------------------------------------------------------------------------------

    # --- queues and workers ------------------------------------------------------------------------------------------

    # --- look into a run ---------------------------------------------------------------------------------------------

    # --- files of a run ----------------------------------------------------------------------------------------------

    # --- try a step --------------------------------------------------------------------------------------------------

    # --- runs of the store, questions, definitions and help ---------------------------------------------------------


# --- what the cell shows for the result of a declared command --------------------------------------------------------


def _view_of_runs(_magics: DiveMagics, call: Invocation, query: RunQuery) -> Runs:
    from divebook.notebook.run_list import list_of

    return list_of(query, call.environment, call.store)


def _view_of_run(magics: DiveMagics, _call: Invocation, shown: ShownRun) -> Run:
    return show_while_running(shown.execution, present_front_end(magics.shell))


def _view_of_results(results: BulkResults) -> Run | pd.DataFrame:
    from divebook.analysis.lists import handled_frame

    return handled_frame(results.rows) if results.execution is None else results.execution


def _begun(drive: Drive) -> Run:
    """Print the plan of a resumption, continue the run, and return it."""
    # A person sees which calls are repeated before they are made.
    if drive.plan is not None:
        print_answer("\n".join(drive.plan.lines))
    run = drive.begin()
    run.internals.options.answers = drive.answers
    return run


def _view_of_inbox(magics: DiveMagics, _call: Invocation, inbox: Inbox) -> None:
    from divebook.notebook.report import questions
    from divebook.notebook.run_list import InboxOutput

    # Without questions, one line of text is enough. A widget would stay in the notebook.
    if present_front_end(magics.shell).shows_widgets and inbox.environment.inbox():
        InboxOutput(inbox.environment, inbox.store)
    else:
        print_answer(str(questions(inbox.environment, inbox.store)))


def _view_of_enqueued(magics: DiveMagics, _call: Invocation, run: Run) -> Run:
    return show_while_running(run, present_front_end(magics.shell))


def _view_of_queue(_magics: DiveMagics, _call: Invocation, queue: Queue) -> pd.DataFrame:
    from divebook.analysis.lists import queue_frame

    # Workers are printed, because the frame has one row for each run.
    print_answer("\n".join(queue.worker_lines))
    return queue_frame(queue.environment)


def _view_of_interrupted(_magics: DiveMagics, _call: Invocation, interrupted: Interrupted) -> None:
    from divebook.config.answers import resume_all
    from divebook.notebook.recovery import lines_after_recovering, listing

    if interrupted.resumes:
        recovered = resume_all(interrupted.environment, interrupted.records)
        print_answer("\n".join(lines_after_recovering(recovered)))
    else:
        print_answer(listing(interrupted.environment.store, interrupted.records, interrupted.page))


def _view_of_definitions(_magics: DiveMagics, _call: Invocation, names: DefinedNames) -> None:
    from divebook.notebook.report import contents

    print_answer(str(contents(names.environment)))


def _view_of_help(_magics: DiveMagics, _call: Invocation, request: HelpRequest) -> None:
    if request.word is not None:
        print_answer(help_with(request.word, COMMANDS))
        return
    width = max(len(entry.usage) for entry in COMMANDS.values())
    # The summary is the first line of the help.
    lines = [f"%dive {entry.usage:<{width}}  {entry.help.partition(chr(10))[0]}" for entry in COMMANDS.values()]
    print_answer("\n".join([OVERVIEW, "", *lines]))


OPEN = "open"
VIEWS: dict[str, Callable[[DiveMagics, Invocation, Any], Result]] = {
    "runs": _view_of_runs,
    "show": _view_of_run,
    "inbox": _view_of_inbox,
    "enqueue": _view_of_enqueued,
    "queue": _view_of_queue,
    "recover": _view_of_interrupted,
    "list": _view_of_definitions,
    "help": _view_of_help,
}
"""For commands whose result is not itself the value of the cell: the function that makes the value, by command."""
COMMANDS = {declared.name: line_command(declared) for declared in TABLE.values() if NOTEBOOK in declared.interfaces} | {
    entry.usage.split()[0]: entry for entry in vars(DiveMagics).values() if isinstance(entry, Command)
}
"""The sub-commands of ``%dive`` by name, in the order of ``%dive help``."""


# --- values of options ---------------------------------------------------------------------------------------------


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
                raise UsageError("%%dev_env needs exactly one name: the environment in which the cell runs")
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
        last_line = errors.strip().rpartition("\n")[2].removeprefix("dev_env: ") or "dev_env printed no error message"
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
