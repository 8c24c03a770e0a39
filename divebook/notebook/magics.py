"""The magics ``%dive`` and ``%%dive``: a thin face over the session."""

from __future__ import annotations

import ast
import json
import os
import re
import selectors
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias

from IPython import get_ipython
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, needs_local_scope, no_var_expand

from divebook.errors import CodeChangedError, DevEnvError
from divebook.interrupts import INTERRUPTS
from divebook.notebook.commands import (
    HELP_OPTIONS,
    Command,
    command,
    command_called,
    help_with,
    line_in_cell,
    own_variables,
    tell,
)
from divebook.notebook.frontend import FrontEnd, notebook_of, present_front_end
from divebook.notebook.run_magics import (
    TryingMagics,
    at_once,
    finish_here,
    finish_in_cell,
    in_background,
    shown_while_it_goes_on,
)
from divebook.runtime.errors import CodeCell
from divebook.text.syntax import parse_python

if TYPE_CHECKING:
    import pandas as pd

    from divebook.notebook.commands import Arguments, Names
    from divebook.notebook.run import Run
    from divebook.notebook.saved import SavedNotebook, SavedRun
    from divebook.projections.comparison import Comparison


# The magics ``%dev_env`` and ``%%dev_env``: the command of that name, whose data are values of Python.


# A process of its own, so that commands end for Ctrl+C as in a shell, and the loop of the kernel is not theirs.
_PROGRAM = (sys.executable, "-c", "from divebook.cli.dev_env import main; main()")
_PIECE = 1 << 16


@magics_class
class DevEnvMagics(Magics):
    """The magic of one shell for development environments."""

    @no_var_expand
    @line_cell_magic
    def dev_env(self, line: str, cell: str | None = None) -> Any:
        """Work with development environments, as ``dev_env`` does in a shell; ``%dev_env --help`` lists the commands.

        What is JSON comes as a value (``states = %dev_env list``), a path as a text. ``%%dev_env NAME`` runs the cell
        in the environment NAME.

        Raises
        ------
        DevEnvError
            It ended with another exit code than 0.
        """
        from divebook.notebook.report import short_errors

        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"%dev_env {line}: {error}") from error
        if cell is not None:
            if len(words) != 1:
                raise UsageError("%%dev_env takes the name of an environment, in which the cell is run")
            words = ["execute", words[0], cell]
        with short_errors():
            return _value(words)


def _value(words: list[str]) -> Any:
    """Return what a command prints as data; what commands of an environment print is shown as it comes."""
    is_shown = "execute" in words or "logs" in words
    code, printed, told = _run(words or ["--help"], is_shown=is_shown and "--json" not in words)
    if code:
        last = told.strip().rpartition("\n")[2].removeprefix("dev_env: ") or "it said nothing"
        raise DevEnvError(f"{last} (exit code {code})")
    try:
        return json.loads(printed)
    except ValueError:
        text = printed.rstrip("\n")
    if text.startswith("/") and "\n" not in text:
        return text
    if text:
        sys.stdout.write(f"{text}\n")
    return None


def _run(words: list[str], *, is_shown: bool) -> tuple[int, str, str]:
    """Return exit code, what was printed and not shown, and what was told."""
    with (
        subprocess.Popen(
            [*_PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as running,
        selectors.DefaultSelector() as streams,
    ):
        kept: dict[Any, bytearray] = {running.stdout: bytearray(), running.stderr: bytearray()}
        for stream in kept:
            streams.register(stream, selectors.EVENT_READ)
        try:
            while streams.get_map():
                for key, _ in streams.select():
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        streams.unregister(key.fileobj)
                        continue
                    is_told = key.fileobj is running.stderr
                    if is_told or not is_shown:
                        kept[key.fileobj] += piece
                    if is_told or is_shown:
                        out = sys.stderr if is_told else sys.stdout
                        out.write(piece.decode(errors="replace"))
                        out.flush()
        except BaseException:
            running.terminate()  # it ends its command, and cleans up
            raise
        code = running.wait()
    printed, told = (bytes(kept[stream]).decode(errors="replace") for stream in (running.stdout, running.stderr))
    return code, printed, told


# ``%dive run`` in a cell waits without blocking the kernel: the call is awaited.
#
# IPython awaits what a cell awaits, but not what a magic returns. So the text of a cell is changed before it runs:
# ``%dive run x``, which IPython has made ``get_ipython().run_line_magic('dive', 'run x')``, becomes ``await
# get_ipython().run_line_magic('dive', 'await run x')``, also after ``r =``. Where that is impossible (in a function,
# inside ``%%time`` or ``%%capture``) the call stays as it is, and the magic blocks.
# `tests/notebook/test_awaiting.py` lists the texts that are changed, and those that are not.


AWAIT = "await"
"""Sub-command before another one: return a coroutine instead of blocking."""
AWAITED = ("run", "resume", "fork", "answer", "signal")

_CALL = "run_line_magic('dive', "
_HELP = re.compile(r"^(\s*%dive\s+)([a-z-]+)\s*\?{1,2}\s*$")
_OVERVIEW = re.compile(r"^(\s*)%%?dive\s*\?{1,2}\s*$")
_NO_WAY_IN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def await_magics(lines: list[str]) -> list[str]:
    """Put ``await`` before the calls of a cell that take long."""
    if not any(_CALL in line for line in lines):
        return lines
    try:
        tree = parse_python("".join(lines))
    except SyntaxError:
        return lines
    changed = list(lines)
    for call, offset in reversed(list(_calls(tree))):
        row = call.lineno - 1
        line = changed[row].encode()
        before = line[: call.col_offset]
        between = line[call.col_offset : offset]
        behind = line[offset:]
        changed[row] = (before + b"await " + between + f"{AWAIT} ".encode() + behind).decode()
    return changed


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, int]]:
    """Yield the calls to be awaited, and where in their line the sub-command begins, in the order of the text."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _NO_WAY_IN):
            continue
        if isinstance(node, ast.Call) and (command := _command(node)) is not None:
            yield node, command
        yield from _calls(node)


def _command(call: ast.Call) -> int | None:
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "run_line_magic" and len(call.args) == 2):
        return None
    magic, line = call.args
    if not (isinstance(magic, ast.Constant) and magic.value == "dive" and isinstance(line, ast.Constant)):
        return None
    word = str(line.value).split(maxsplit=1)[:1]
    return line.col_offset + 1 if word and word[0] in AWAITED else None


def help_for_commands(lines: list[str]) -> list[str]:
    """Turn ``%dive run?`` into ``%dive help run``: IPython alone would look for an object called ``run``."""
    return [_OVERVIEW.sub(r"\1%dive help", _HELP.sub(r"\1help \2", line)) for line in lines]


def runs_inside(code: CodeType) -> bool:
    """Return whether this thread is executing `code` now."""
    frame = sys._getframe()  # noqa: SLF001 - the public way, inspect.stack, reads every source file
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is code:
            return True
    return False


Result: TypeAlias = Any
LISTED = "; %dive runs lists them"
OVERVIEW = """\
%%dive                            define agents and workflows, in YAML
%%dive workflow NAME              define one workflow
%%dive agent NAME                 define one agent
%%dive script AGENT               what an agent answers, offline: a list of replies
%%dive try STEP                   try a step of a run with other keys
      ... --dialect dive          the same, as the old system read it"""


@magics_class
class DiveMagics(TryingMagics):
    """Magics of one shell."""

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    def dive(self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None) -> Result:
        """Define and run workflows; ``%dive help`` lists what can be done."""
        from divebook.notebook.report import located, short_errors

        if cell is not None:
            from divebook.notebook.cells import take_cell

            lines_above, number = self._place(cell)
            return take_cell(self._session, line, cell, lines_above, self._names(local_ns), number=number)
        with short_errors(), located(line_in_cell(self.shell)):
            return self._command(line, self._names(local_ns))

    def _names(self, local: Mapping[str, Any] | None) -> Names:
        """Return the names of the place that a line stands in, a function's own among them."""
        from divebook.notebook.commands import Names

        if self.shell is None:
            return Names()
        return Names({**self.shell.user_ns, **(local or {})}, tuple(own_variables(self.shell)))

    def _place(self, text: str) -> tuple[int, int]:
        """Return how many lines of the cell as written come before its body, and the cell's number, 0 if unknown.

        Some versions of IPython count a cell before it runs: the history tells which one it is.
        """
        history = getattr(self.shell, "history_manager", None)
        cells = [] if history is None else history.input_hist_raw
        written = cells[-1] if cells else ""
        blank = len(written) - len(written.lstrip())
        is_this_cell = written.lstrip().startswith("%%dive") and written.rstrip().endswith(text.rstrip())
        return (1 + written.count("\n", 0, blank), len(cells) - 1) if is_this_cell else (1, 0)

    def _command(self, line: str, names: Names) -> Result:
        from divebook.notebook.commands import split
        from divebook.notebook.run import Run

        words = split(line)
        awaited = words[:1] == [AWAIT]
        name, *rest = words[awaited:] or ("help",)
        called = command_called(name, COMMANDS)
        if not HELP_OPTIONS.isdisjoint(rest):
            tell(called.whole_help)
            return at_once(None) if awaited else None
        arguments = called.parse(rest, names)
        if "--background" not in called.flags:
            return called.method(self, arguments)
        front_end = present_front_end(self.shell)
        self._session.streams_text = front_end.shows_widgets
        with INTERRUPTS.deferred():  # until it is shown, and can be paused
            begun = self._begun(called, arguments, front_end)
            if not isinstance(begun, Run | CodeChangedError):
                return at_once(begun) if awaited else begun
            if arguments.has("background") and not isinstance(begun, CodeChangedError):
                return in_background(begun, arguments, front_end, awaited=awaited)
            return (finish_in_cell if awaited else finish_here)(begun, arguments, front_end)

    def _begun(self, called: Command, arguments: Arguments, front_end: FrontEnd) -> Result:
        """Return what came of it; or what a person must say first, where somebody sits there who can."""
        try:
            return called.method(self, arguments)
        except CodeChangedError as error:
            is_asked = front_end.shows_widgets and not arguments.has("background") and not arguments.has("strict")
            if not is_asked and error.default is None:
                raise
            return error if is_asked else error.begin(error.default or "")

    # --- sub-commands: their docstrings are their help, and name their options ------------------------------------

    @command("runs [--status STATUS]")
    def runs(self, arguments: Arguments) -> Result:
        """Browse executions, newest first.

        The list shows what each cost and why it failed, opens, resumes, cancels and tags them, and has the inbox
        beside it. `runs = %dive runs`, then `runs.frame()` is a DataFrame, and `runs[0]` the newest run.

        --status STATUS      only those that are running, completed, failed, cancelled ...
        --workflow NAME      only those of one workflow
        --tag TAG            only those with this tag
        --origin ORIGIN      only those of one origin: run, resume, fork, what-if, trial, child, import
        --notebook PATH      only those that this notebook began
        -n, --limit N        at most N in the frame (0: all, the default)
        --store PATH         where their logs are
        """
        from divebook.notebook.functions import runs

        options = arguments.options
        limit = arguments.options.get("limit", "0")
        if not limit.isdecimal():
            raise UsageError(f"--limit needs a number, not {limit!r}")
        filters: dict[str, Any] = {
            name: options.get(name) for name in ("status", "workflow", "tag", "origin", "notebook")
        }
        return runs(limit=int(limit), store=options.get("store"), **filters)

    @command("show ID")
    def show(self, arguments: Arguments) -> Run:
        """Show an execution, running or past; while it goes on, here or in another process, its view is live.

        ID             the execution; the beginning of its id is enough
        --store PATH   where its log is
        """
        found = self._session.run_of(arguments.only_word("execution id", LISTED), store=arguments.options.get("store"))
        return shown_while_it_goes_on(found, present_front_end(self.shell))

    @command("open [FILE] [ID]")
    def open(self, arguments: Arguments) -> SavedNotebook | SavedRun | Run:
        """Open the run that a file holds, or the runs of a saved notebook.

        Their store is not needed, and none changes; no code in them is run. What `run.to_html`, `run.to_notebook` and
        `divebook export` wrote is a run again.

        FILE           .html, .jsonl or .ipynb; by default this notebook, as last saved
        ID             the run, if not all of a saved notebook; the beginning of its id is enough

        `run = %dive open run.html`; `runs = %dive open old.ipynb`, then `runs[0].replay()`, `runs[0].events`.
        """
        from divebook.notebook.saved import carries_log, open_notebook, open_page
        from divebook.store.embedded import PAGE

        if len(arguments.words) > 2:
            raise UsageError("%dive open takes a file and, after it, at most the id of a run")
        name = arguments.words[0] if arguments.words else notebook_of(self.shell)
        if not name:
            raise UsageError("which notebook? This front end does not say; name its file: %dive open FILE")
        path = Path(name).expanduser()
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
        """Lay runs of one workflow side by side.

        What is the same, changed, added and removed, the first difference first; prompts, answers and variables word
        by word, with cost, tokens and time beside them.

        ID             an execution; the beginning of its id is enough; the first is compared with each of the others
        --store PATH   where their logs are

        `c = %dive compare ID ID`, then `c.first`, `c.frame()`.
        """
        from divebook.notebook.functions import compare

        if len(arguments.words) < 2:
            raise UsageError(f"%dive compare needs the ids of two executions or more{LISTED}")
        return compare(*arguments.words, store=arguments.options.get("store"))

    @command("recover [ID] [--all]")
    def recover(self, arguments: Arguments) -> None:
        """List or resume interrupted executions.

        They go on in the background.

        ID             resume this one; the beginning of its id is enough
        --all          resume all of them, as far as the defined agents and actions allow it
        --page N       which page of a long list
        --store PATH   where their logs are

        The variable DIVEBOOK_RECOVER, or Recover in the Config of a definition, says what happens automatically:
        ask (a line at %load_ext), auto (they are resumed), off (nothing).
        """
        from divebook.notebook.recovery import lines_after_recovering, listing

        store = arguments.options.get("store")
        page = arguments.options.get("page", "1")
        if not (page.isdecimal() and int(page)):
            raise UsageError(f"--page needs a number from 1 on, not {page!r}")
        if not (arguments.words or arguments.has("all")):
            tell(listing(self._session.interrupted(store=store), int(page)))
            return
        if arguments.words and arguments.has("all"):
            raise UsageError("%dive recover takes an execution id or --all, not both")
        chosen = None if arguments.has("all") else arguments.only_word("execution id", LISTED)
        recovered = self._session.recover(chosen, store=store)
        tell("\n".join(lines_after_recovering(recovered)))

    @command("inbox")
    def inbox(self, arguments: Arguments) -> None:
        """Show the questions that are open.

        They are cards to be answered in place, or text with commands.

        --store PATH   where the logs are
        """
        from divebook.notebook.lists import InboxOutput
        from divebook.notebook.report import questions

        store = arguments.options.get("store")
        environment = self._session.over(store)
        if present_front_end(self.shell).shows_widgets and environment.interrupts():
            InboxOutput(environment, store)
        else:
            tell(questions(environment, store))

    @command("rules")
    def rules(self, arguments: Arguments) -> None:
        """List the rules that people made when they approved calls.

        --revoke ID    let one hold no more, for calls that are judged from now on
        --store PATH   where the logs are
        """
        from divebook.notebook.report import rules

        tell(rules(self._session.over(arguments.options.get("store")), arguments.options.get("revoke")))

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
        (name, response) = arguments.words
        options = arguments.options
        given = arguments.data.get(1, response)
        if isinstance(given, str):
            given = typed_answer(given, options.get("as"), options.get("result"))
        elif "as" in options or "result" in options:
            raise UsageError(f"{response} is a {type(given).__name__} already; --as and --result are for texts")
        alike = arguments.has("alike")
        by = options.get("by")
        store = options.get("store")
        return self._session.answer(name, given, alike=alike, by=by, store=store)

    @command("signal ID NAME [PAYLOAD]", data_word=2)
    def signal(self, arguments: Arguments) -> Run:
        """Send a signal to an execution.

        What becomes of the execution is shown.

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
        from divebook.workflow.yaml_text import value_typed

        if len(arguments.words) not in (2, 3):
            raise UsageError("%dive signal needs the id of an execution, the name of a signal, and perhaps a payload")
        execution_id, name, *payload = arguments.words
        given = arguments.data.get(2, value_typed(payload[0]) if payload else None)
        options = arguments.options
        return self._session.signal(execution_id, name, given, by=options.get("by"), store=options.get("store"))

    @command("cancel ID ...")
    def cancel(self, arguments: Arguments) -> Result:
        """Cancel one execution or several; they can be resumed.

        Of several a frame says what became of each.

        ID             an execution; the beginning of its id is enough
        --store PATH   where its log is
        """
        from divebook.notebook.functions import runs

        if len(arguments.words) > 1:
            return runs(of=arguments.words, store=arguments.options.get("store")).cancel()
        return self._session.cancel(arguments.only_word("execution id", LISTED), store=arguments.options.get("store"))

    @command("annotate ID ...")
    def annotate(self, arguments: Arguments) -> pd.DataFrame:
        """Say something of one execution or several: a note, labels, tags.

        A frame says what became of each. It is an event of each log, also after its end.

        ID             an execution; the beginning of its id is enough
        --note TEXT    the note; "" takes it away
        --label NAME=VALUE    a label, also several; values in YAML, null takes it away
        --tag TAG      a tag to find it by, also several
        --untag TAG    take a tag away, also several
        --store PATH   where its log is
        """
        from divebook.config.answers import annotating
        from divebook.notebook.functions import runs

        if not arguments.words:
            raise UsageError(f"%dive annotate needs the id of an execution{LISTED}")
        said = {option: arguments.several(option) for option in ("tag", "untag", "label")}
        verb = annotating(
            note=arguments.options.get("note"), tags=said["tag"], untag=said["untag"], labels=said["label"]
        )
        return runs(of=arguments.words, store=arguments.options.get("store")).handle(verb)

    @command("list")
    def list(self, _arguments: Arguments) -> None:
        """List what is defined.

        Workflows, agents and actions.
        """
        from divebook.notebook.report import contents

        tell(contents(self._session.environment))

    @command("keys [PART]")
    def keys(self, arguments: Arguments) -> None:
        """List the keys that definitions can have.

        What each holds, and what it means.

        PART           such as Step, Agent or Each; without it, the names of the parts
        """
        from divebook.workflow.schema import TABLES, reference

        if not arguments.words:
            tell(f"parts of a definition: {', '.join(TABLES)}; %dive keys PART lists the keys of one")
            return
        label, lines = reference(arguments.words[0])
        width = max(len(line.key) for line in lines)
        tell("\n".join([label, *(f"  {line.key:{width}}  {line}" for line in lines)]))

    @command("help [WORD]")
    def help(self, arguments: Arguments) -> None:
        """Explain a sub-command or a key of definitions, or list all sub-commands.

        WORD           the sub-command, as `%dive COMMAND?` and `%dive COMMAND --help` do; or a key, such as Ask, Retry
                       or Each: what it means and holds, with an example
        """
        if arguments.words:
            tell(help_with(arguments.words[0], COMMANDS))
            return
        width = max(len(entry.usage) for entry in COMMANDS.values())
        lines = [f"%dive {entry.usage:<{width}}  {entry.help.partition(chr(10))[0]}" for entry in COMMANDS.values()]
        tell("\n".join([OVERVIEW, "", *lines]))


COMMANDS = {
    found.usage.split()[0]: found
    for kind in reversed(DiveMagics.__mro__)
    for found in vars(kind).values()
    if isinstance(found, Command)
}


# Which cell of a notebook some code stands in: kernels compile cells under file names that mean nothing to people.


_IDS: dict[int, str] = {}
"""By the number of a cell's execution: the id that the front end has for the cell."""


def remember_cell(info: Any) -> None:
    """Note which cell is about to run; for IPython's event ``pre_run_cell``."""
    shell = get_ipython()
    if shell is not None and info.store_history and getattr(info, "cell_id", None):
        # its place among the inputs is its number: some versions of IPython have counted it by now
        _IDS[len(shell.history_manager.input_hist_raw)] = info.cell_id


def cell_of(file: str) -> CodeCell | None:
    """Return the cell that was compiled under a file name in this process, by the number of its last execution."""
    shell = get_ipython()
    known = getattr(getattr(shell, "compile", None), "_filename_map", {})  # there is no public way to ask for it
    number = known.get(file)
    if shell is None or number is None:
        return None
    written = shell.history_manager.input_hist_raw[number : number + 1]
    text = written[0] if written else ""
    above = text[: len(text) - len(text.lstrip())].count("\n")
    return CodeCell(f"Cell [{number}]", above, _IDS.get(number, ""))
