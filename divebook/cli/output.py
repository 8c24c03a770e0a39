"""Output of commands to stdout and stderr: text, tables, JSON and errors, without secrets and control characters."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from divebook.errors import CorruptStoreError, DefinitionError, DivebookError, ExecutionNotFoundError, SetupError
from divebook.report.hints import Hint, Interface, worded
from divebook.text.format import UNSAFE, in_shell, visible
from divebook.text.redaction import Redactor, shared

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from divebook.report.model import Line, Report


# --- cleaning of text and data of models, users and logs -------------------------------------------------------------
#
# Control characters could move the cursor, change colours or titles, or reorder text. They become visible escapes.
# Rich markup has no effect, since everything is printed as `rich.text.Text`. `divebook.text.redaction` removes secrets,
# unless the command has the option ``--show-secrets``: once before a text is cut, and once more from all output.


_BREAKS = re.compile(r"[\t\n]")


class _NoRedaction(Redactor):
    """Redactor that replaces nothing, for ``--show-secrets``."""

    def text(self, text: str) -> str:
        return text

    def value(self, value: Any) -> Any:
        return value

    def under(self, _name: str, value: Any) -> Any:
        return value

    def document(self, text: str) -> str:
        return text


class Secrets:
    """Redaction of the current command's output: it replaces secrets, unless the person asked to see them
    (``--show-secrets``).
    """

    def __init__(self) -> None:
        self._are_shown = False

    def begin(self, *, shown: bool) -> None:
        """Start a new command: forget the secrets that an earlier command in this process has learned. With `shown`, no
        secrets are replaced in its output.
        """
        self._are_shown = shown
        # Tests run several commands in one process; secrets of one must not be looked for in the output of the next.
        shared.cache_clear()

    def learn(self, *values: Any) -> None:
        """Find the secrets in plain data, such as the inputs of a run. They are replaced in all later output."""
        for value in values:
            shared().learn(value)

    @property
    def redactor(self) -> Redactor:
        """The redactor for reports of this command."""
        return _NoRedaction() if self._are_shown else shared()

    def text(self, text: str) -> str:
        """Return a text with all known secrets replaced; unchanged if secrets are shown."""
        return text if self._are_shown else shared().text(text)

    def value(self, value: Any, name: str = "") -> Any:
        """Return plain data with all known secrets replaced; unchanged if secrets are shown. If `name` sounds secret,
        such as ``password``, the whole value is replaced.
        """
        return value if self._are_shown else shared().under(name, value)

    def documents(self, value: Any) -> Any:
        """Return plain data with all known secrets replaced, also in the JSON documents among its strings; unchanged if
        secrets are shown.
        """
        return value if self._are_shown else shared().documents(value)


secrets = Secrets()
"""The `Secrets` of the command that this process runs."""


def one_line(text: str, width: int | None = None) -> str:
    """Return a text as one line: secrets replaced, control characters escaped, cut to `width` characters."""
    # Redaction comes before the cut, because a secret that is cut off in its middle would not be recognised.
    text = secrets.text(text)
    if width is not None and len(text) > width:
        text = f"{text[: width - 3]}..."
    return _BREAKS.sub(lambda match: "\\t" if match[0] == "\t" else "\\n", visible(text))


def as_json(data: Any, *, indent: int | None = None) -> str:
    """Return data as JSON text, with secrets replaced and control characters escaped. Values have the form of
    `divebook.events.codec.json_form`, in which most can be given back as inputs.

    Frames are described in a few words; ``divebook export`` writes them in full.
    """
    from divebook.events.codec import json_form

    # Through JSON first: the redaction works on plain data.
    plain = secrets.documents(json_form(data, has_frames=False))
    return json_escaped(json.dumps(plain, ensure_ascii=False, indent=indent))


def json_escaped(text: str) -> str:
    """Escape the control characters in a JSON text, and those that reorder text. JSON allows some of them in strings,
    but a terminal would execute them.
    """
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shown(value: Any, name: str = "") -> str:
    """Return a value as text for the terminal: a string unchanged, anything else as JSON, both without secrets. If
    `name` sounds secret, such as ``password``, the whole value is replaced.
    """
    from divebook.events.codec import readable

    clean = secrets.value(value, name)
    if isinstance(clean, str):
        return visible(secrets.text(clean))
    # The JSON text is searched once more, since a secret may be part of a string.
    return secrets.text(json_escaped(readable(clean)))


# Rich cuts lines of a file or pipe to a width of 80 if it is not given one.
_UNLIMITED = 100_000
DAMAGED = 1
"""Exit code for a damaged log or store."""


def console(*, error: bool = False) -> Console:
    """Return a rich console for stdout or stderr. Long lines are wrapped only in a terminal."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else _UNLIMITED
    # `highlight`, `markup` and `emoji` would interpret text of others.
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def print_note(text: str, style: str = "") -> None:
    """Print a line on stderr, in an optional rich style, with secrets replaced."""
    console(error=True).print(styled(secrets.text(text), style), soft_wrap=True)


def note_damage(readable: int, events: int | None, damage: Exception) -> None:
    """Print on stderr that a log is damaged, and that the shown data comes from its first `readable` events only.

    `events` is the number of all events, None if unknown.
    """
    of_all = "" if events is None else f" of {events}"
    print_note(f"damaged log: only the first {readable}{of_all} events can be read. {damage}", "bold red")


def styled(text: str, style: str = "") -> Text:
    """Return text in a rich style, with control characters escaped."""
    from rich.text import Text

    return Text(visible(text), style)


def status_text(status: str) -> Text:
    """Return a status as text in the colour of the status."""
    from divebook.report.text import STYLES

    return styled(status, STYLES.get(status, ""))


def say(*parts: Text | str) -> None:
    """Print strings on stdout as one line, two spaces apart."""
    line = styled("  ").join(_clean(part) for part in parts if part)
    console().print(line, soft_wrap=True)


def print_report(report: Report, *, error: bool = False) -> None:
    """Print a report on stdout, or on stderr if `error` is true, with secrets replaced, and in colours on a terminal.
    Tables are cut to its width. Print nothing for an empty report.
    """
    from divebook.report.text import terminal_text

    out = console(error=error)
    text = terminal_text(report, out.width if out.is_terminal else None, secrets.text)
    if text.plain:
        out.print(text, soft_wrap=True)


def write(text: str) -> None:
    """Print text on stdout with control characters escaped. Secrets are not replaced here: use `as_json` or
    `Secrets.text`.
    """
    sys.stdout.write(f"{visible(text)}\n")


def section(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print a title and, below it, pairs of a name and a value. A value of several lines is printed below its name.
    Print nothing if there are no pairs.
    """
    if not rows:
        return
    from rich.padding import Padding

    out = console()
    say(styled(title, "bold"))
    for name, whole in rows:
        value = secrets.text(whole)
        if "\n" in value:
            say(styled(f"  {name}:", "cyan"))
            out.print(Padding(styled(value), (0, 0, 0, 4)))
        else:
            out.print(styled("").join([styled(f"  {name}: ", "cyan"), styled(value)]), soft_wrap=True)


def columns(titles: Iterable[str], rows: Iterable[Sequence[Line]], *, whole: Iterable[str] = ()) -> None:
    """Print a table with column titles. Cells of the columns in `whole` are never cut to the width of the terminal."""
    from divebook.report.model import Column, Report, Table

    never_cut = set(whole)
    shown_columns = tuple(Column(title, "short" if title in never_cut else "long") for title in titles)
    print_report(Report(blocks=(Table(shown_columns, tuple(map(tuple, rows))),)))


def _clean(part: Text | str) -> Text:
    return styled(secrets.text(part)) if isinstance(part, str) else part


# --- the group of all commands, and errors ---------------------------------------------------------------------------


DEBUG = "--debug"
SHOW_SECRETS = "--show-secrets"
ALLOW = "--allow"
HELP = "help"
REFUSED = 2
"""Exit code of a command that ends with a `DivebookError`."""
_MAX_FILE_NAME = 255
"""Maximum length of a file name. The operating system raises an error if a longer name is looked up."""


class Commands(TyperGroup):
    """Command group of ``divebook``. It turns errors into exit codes, and accepts the global options at any position.

    An error of divebook is printed in red with the next step, without traceback and secrets; the exit code is 2.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the global options before the subcommand, where click expects them, and parse the arguments."""
        # Options after `--` belong to a program, and are not moved.
        before, separator, after = _partition(args)
        words = [*_global_options_first(before), *separator, *after]
        # ``help run`` is ``run --help``. The command `help` explains the other words, which are keys of definitions.
        if words == [HELP] or (words[:1] == [HELP] and len(words) == 2 and words[1] in self.commands):
            words = [*words[1:], "--help"]
        parsed: list[str] = super().parse_args(ctx, words)
        return parsed

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the subcommand that the first word names. Of a command of notebooks, say how to write it there."""
        from divebook.commands.table import COMMANDS, spelled_in_notebook

        name = args[0]
        if name in COMMANDS and name not in self.commands:
            ctx.fail(f"{name} is available only in notebooks; write {spelled_in_notebook(name)} in a cell")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen subcommand, and report its errors without traceback."""
        secrets.begin(shown=bool(ctx.params.get("show_secrets")))
        try:
            # The variable is also inherited by processes that the command starts.
            with _allowing(ctx.params.get("allow") or ()), worded(in_shell_with()):
                return super().invoke(ctx)
        except typer.BadParameter as error:  # its message repeats typed text, which may contain secrets
            error.message = visible(secrets.text(error.message.removeprefix("Value error, ")))
            raise
        except BrokenPipeError:  # the reader of the output has ended; `run_with_streams` handles it
            raise
        except DivebookError as error:
            if ctx.params.get("debug"):
                raise
            report(error)
            raise typer.Exit(REFUSED) from error
        except OSError as error:  # a name that is too long, a folder without permission: the text states the reason
            if ctx.params.get("debug"):
                raise
            report(SetupError(f"{error}; name another file, or use --debug to see the traceback"))
            raise typer.Exit(REFUSED) from error


def in_shell_with(again: Sequence[str] = ()) -> Interface:
    """Return the words of the shell. `again` contains the options of the present command, which the commands in the
    hints repeat.
    """
    from divebook.commands.table import spelled_in_shell

    # `show` needs no definitions. The store is the last option.
    store = again[-2:] if "--store" in again else ()

    def words(hint: Hint) -> str:
        return in_shell(hint.command, hint.words, store if hint.command == "show" else again)

    return Interface(words, spelled_in_shell)


def _global_options_first(args: list[str]) -> list[str]:
    """Return the command-line arguments with the global options (``--debug``, ``--show-secrets``, ``--allow KIND``)
    moved to the front.
    """
    global_options: list[str] = []
    other_arguments: list[str] = []
    for argument in args:
        is_option = argument in (DEBUG, SHOW_SECRETS, ALLOW) or argument.startswith(f"{ALLOW}=")
        # `--allow KIND`: the word after the option is its value.
        is_value = global_options[-1:] == [ALLOW]
        if is_option or is_value:
            global_options.append(argument)
        else:
            other_arguments.append(argument)
    return [*global_options, *other_arguments]


@contextmanager
def _allowing(kinds: Sequence[str]) -> Iterator[None]:
    """Set the environment variable ``DIVEBOOK_ALLOW`` during a ``with`` block, so that this process has the permissions
    of the option ``--allow`` in addition to those that the variable already contained.
    """
    # Most commands have neither, and need not load the module.
    if not kinds and not os.environ.get("DIVEBOOK_ALLOW"):
        yield
        return
    from divebook.documents.policy import VARIABLE, Policy

    before = os.environ.get(VARIABLE)
    policy = Policy.given(*kinds)
    os.environ[VARIABLE] = ",".join(sorted(policy.allowed))
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def _partition(args: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Split command-line arguments at ``--``. Return three lists: the arguments before it, ``--`` itself (empty if it
    is absent), and the arguments after it, which are never parsed as options.
    """
    if "--" not in args:
        return args, [], []
    place = args.index("--")
    return args[:place], ["--"], args[place + 1 :]


@contextmanager
def ending_damaged() -> Iterator[None]:
    """End the command with the exit code `DAMAGED` if the code in the ``with`` block raises `CorruptStoreError`,
    because the log of an execution cannot be read.
    """
    try:
        yield
    except CorruptStoreError as error:
        report(error)
        raise typer.Exit(DAMAGED) from error


def report(error: DivebookError) -> None:
    """Print an error on stderr. An error that contains several problems gets one line for each problem."""
    for line in _lines(error):
        print_note(f"error: {line}", "bold red")


def _is_file(name: str) -> bool:
    return len(name) <= _MAX_FILE_NAME and Path(name).exists()


def _lines(error: DivebookError) -> list[str]:
    if isinstance(error, DefinitionError):
        return str(error).splitlines()
    if isinstance(error, ExecutionNotFoundError) and _is_file(error.name):
        usage = "`divebook resume RUN -d FILE`, `divebook recover RUN -d FILE`"
        return [
            f"{error.name} is a file, but the command needs the id of a run: {usage}; `divebook runs` lists the ids"
        ]
    if isinstance(error, ExecutionNotFoundError):
        return [f"{error}. `divebook runs` lists the runs of the store; --store names another store"]
    return [str(error)]


# --- standard streams ------------------------------------------------------------------------------------------------

_BROKEN_PIPE = 1
"""Exit code of a command whose output pipe was closed before all output was written."""
_NOT_WRITTEN = 2
"""Exit code of a command whose output could not be written, for example because the disk is full."""


def run_with_streams(command: Callable[[], object]) -> NoReturn:
    """Run a command, flush its output, and exit with its exit code. Handles closed and broken standard streams.

    The interpreter would flush later, and print a traceback if that fails.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # pytest replaces the streams by objects without `reconfigure`.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # do not fail in a terminal with an ASCII encoding
    code: str | int | None = None
    try:
        # typer ends every command with SystemExit.
        command()
    except SystemExit as end:
        code = end.code
    except BrokenPipeError:
        code = _BROKEN_PIPE
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            _redirect_to_null(stream)
            # The reader of a closed pipe knows that it has closed it. A full disk is reported.
            if not isinstance(error, BrokenPipeError) and stream is sys.stdout:
                sys.stderr.write(f"error: the output cannot be written: {error}\n")
                code = code or _NOT_WRITTEN
            code = code or _BROKEN_PIPE
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open the null device in place of each standard stream that is closed at the start of the process.

    Otherwise the next file that is opened, such as a store, would get their number, and printed text would go to it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        # Python sets the object of a closed stream to None.
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process


def _redirect_to_null(stream: TextIO) -> None:
    """Connect a stream to the null device, so that the interpreter does not fail when it flushes the stream at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
