"""The two streams as rich consoles, and the few forms in which the commands print."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from divebook.documents.policy import VARIABLE, Policy
from divebook.errors import CorruptStoreError, DefinitionError, DivebookError, ExecutionNotFoundError, SetupError
from divebook.events.codec import encode_shown, readable
from divebook.text.format import UNSAFE, visible
from divebook.text.redaction import shared

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


# Text and data of models, users and logs as they may be shown in a terminal: what is there, but no secrets.
#
# Control characters could move the cursor, change colours or titles, or reorder what is read; here they become visible
# escapes. Rich's markup cannot do harm, since everything is printed as `rich.text.Text`, which knows none. Secrets are
# left out as `divebook.text.redaction` says, unless the command was given ``--show-secrets``: here before anything is
# cut, and in `divebook.cli.output` once more from all that is printed.


_BREAKS = re.compile(r"[\t\n]")


class Secrets:
    """The secrets that one command knows of."""

    def __init__(self) -> None:
        self._shown = False

    def begin(self, *, shown: bool) -> None:
        """Forget what another command knew; `shown` lets secrets be seen."""
        self._shown = shown
        shared.cache_clear()

    def learn(self, *values: Any) -> None:
        """Take note of the secrets in plain data, such as the inputs of a run."""
        for value in values:
            shared().learn(value)

    def text(self, text: str) -> str:
        """Return a text without the secrets in it."""
        return text if self._shown else shared().text(text)

    def value(self, value: Any, name: str = "") -> Any:
        """Return plain data, which may stand under a name, without the secrets in it."""
        return value if self._shown else shared().under(name, value)


secrets = Secrets()
"""Those of the command that this process carries out."""


def one_line(text: str, width: int | None = None) -> str:
    """Return the text with every control character spelled out, without secrets, cut to `width`."""
    text = secrets.text(text)
    if width is not None and len(text) > width:
        text = f"{text[: width - 3]}..."
    return _BREAKS.sub(lambda match: "\\t" if match[0] == "\t" else "\\n", visible(text))


def as_json(data: Any, *, indent: int | None = None) -> str:
    """Return stored data as JSON without control characters and secrets; parsed, the rest is the same data.

    Frames and the like are described in a few words; ``divebook export`` has them in full.
    """
    plain = secrets.value(json.loads(encode_shown(data, tagged=True)))
    return json_escaped(json.dumps(plain, ensure_ascii=False, indent=indent))


def json_escaped(text: str) -> str:
    """Escape, inside JSON text, the characters that JSON allows and a terminal should not get."""
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shown(value: Any, name: str = "") -> str:
    """Return a value for people, which may stand under a name: a text as it is, anything else as JSON."""
    clean = secrets.value(value, name)
    return visible(secrets.text(clean)) if isinstance(clean, str) else secrets.text(json_escaped(readable(clean)))


def pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return named values as two columns of text."""
    return [(one_line(name), shown(value, name)) for name, value in values.items()]


STATUS_STYLES = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "waiting": "cyan",
    "paused": "cyan",
    "running": "blue",
    "pending": "dim",
    "enqueued": "dim",
    "moved": "magenta",
    "continued_as_new": "magenta",
    "picture": "magenta",
}
_UNLIMITED = 100_000
DAMAGED = 1
"""Exit code where a log or store is damaged."""


def console(*, error: bool = False) -> Console:
    """Return stdout, or stderr, for writing; what is not a terminal gets lines of any length."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else _UNLIMITED
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def note(text: str, style: str = "") -> None:
    """Print a line on stderr."""
    console(error=True).print(styled(secrets.text(text), style), soft_wrap=True)


def note_damage(readable: int, events: int | None, damage: Exception) -> None:
    """Say on stderr that only the beginning of a log can be read, which has so many events if that is known."""
    of_all = "" if events is None else f" of {events}"
    note(f"damaged: this is what the first {readable}{of_all} events say. {damage}", "bold red")


def styled(text: str, style: str = "") -> Text:
    """Return a text of rich's, in which control characters are spelled out."""
    from rich.text import Text

    return Text(visible(text), style)


def status_text(status: str) -> Text:
    """Return a status in its colour."""
    return styled(status, STATUS_STYLES.get(status, ""))


def say(*parts: Text | str) -> None:
    """Print parts on stdout, two spaces apart."""
    line = styled("  ").join(_clean(part) for part in parts if part)
    console().print(line, soft_wrap=True)


def write(text: str) -> None:
    """Print text on stdout without control characters: JSON, of which `as_json` has taken the secrets, and names."""
    sys.stdout.write(f"{visible(text)}\n")


def section(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print named values under a title, those of several lines below their name; print nothing if there are none."""
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


def columns(titles: Iterable[str], rows: Iterable[Sequence[Text | str]], *, whole: Iterable[str] = ()) -> None:
    """Print a table; the columns named in `whole` are never cut."""
    from rich.table import Table

    never_cut = set(whole)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, no_wrap=True, overflow="ignore" if title in never_cut else "ellipsis")
    for row in rows:
        table.add_row(*map(_clean, row))
    console().print(table)


def _clean(part: Text | str) -> Text:
    return styled(secrets.text(part)) if isinstance(part, str) else part


# How an error of divebook ends a command: its text in red, what to do next, exit code 2, no traceback, no secrets.


DEBUG = "--debug"
SHOW_SECRETS = "--show-secrets"
ALLOW = "--allow"
REFUSED = 2
_LONGEST_NAME = 255
"""Of a file; to ask for a longer one is an error."""


class Commands(TyperGroup):
    """The group of all commands: turns divebook's errors into exit codes, and takes its own options at any place."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Bring the group's own options to the front, where they stand."""
        own, separator, rest = _partition(args)
        parsed: list[str] = super().parse_args(ctx, [*_own_first(own), *separator, *rest])
        return parsed

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        secrets.begin(shown=bool(ctx.params.get("show_secrets")))
        try:
            with _allowing(ctx.params.get("allow") or ()):
                return super().invoke(ctx)
        except typer.BadParameter as error:  # it repeats what was typed
            error.message = visible(secrets.text(error.message))
            raise
        except BrokenPipeError:  # nobody reads any more
            raise
        except DivebookError as error:
            if ctx.params.get("debug"):
                raise
            report(error)
            raise typer.Exit(REFUSED) from error
        except OSError as error:  # a name that is too long, a folder that may not be read: the machine says why
            if ctx.params.get("debug"):
                raise
            report(SetupError(f"{error}; name another file, or --debug for the traceback"))
            raise typer.Exit(REFUSED) from error


def _own_first(args: list[str]) -> list[str]:
    """Return arguments with ``--debug``, ``--show-secrets`` and ``--allow KIND`` before the others."""
    first: list[str] = []
    others: list[str] = []
    for argument in args:
        is_own = argument in (DEBUG, SHOW_SECRETS, ALLOW) or argument.startswith(f"{ALLOW}=")
        (first if is_own or first[-1:] == [ALLOW] else others).append(argument)
    return [*first, *others]


@contextmanager
def _allowing(kinds: Iterable[str]) -> Iterator[None]:
    """Let one command reach more, as if the variable ``DIVEBOOK_ALLOW`` said so as well."""
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
    """Split at ``--``, after which nothing is an option."""
    if "--" not in args:
        return args, [], []
    place = args.index("--")
    return args[:place], ["--"], args[place + 1 :]


@contextmanager
def ending_damaged() -> Iterator[None]:
    """End a command that shows what is sound of a log with the exit code of damage where nothing is sound."""
    try:
        yield
    except CorruptStoreError as error:
        report(error)
        raise typer.Exit(DAMAGED) from error


def report(error: DivebookError) -> None:
    """Print an error on stderr: a line for each thing that is wrong."""
    for line in _lines(error):
        note(f"error: {line}", "bold red")


def _is_file(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and Path(name).exists()


def _lines(error: DivebookError) -> list[str]:
    if isinstance(error, DefinitionError):
        return str(error).splitlines()
    if isinstance(error, ExecutionNotFoundError) and _is_file(error.name):
        ways = "`divebook resume ID FILE`, `divebook recover ID --definitions FILE`"
        return [f"{error.name} is a file, and an id is wanted in its place: {ways}; `divebook runs` lists the ids"]
    if isinstance(error, ExecutionNotFoundError):
        return [f"{error}. `divebook runs` lists what the store holds; --store names another one"]
    return [str(error)]


# Standard streams of a command: a closed one leads nowhere, and what cannot be written ends it without a traceback.


_WRITTEN = 1
"""Exit code of a command whose output nobody reads any more."""
_REFUSED = 2


def run_with_streams(command: Callable[[], object]) -> NoReturn:
    """Run a command, which ends with SystemExit, and write out what it has printed before the process ends.

    The interpreter would write it out later, and print a traceback where that fails.
    """
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows only ASCII is no reason to fail
    code: str | int | None = None
    try:
        command()
    except SystemExit as end:
        code = end.code
    except BrokenPipeError:
        code = _WRITTEN
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            _lead_nowhere(stream)
            if not isinstance(error, BrokenPipeError) and stream is sys.stdout:
                sys.stderr.write(f"error: the output cannot be written: {error}\n")
                code = code or _REFUSED
            code = code or _WRITTEN
    sys.exit(code)


def _open_closed() -> None:
    """Open the null device in place of standard streams that the process was started without.

    Without them the next file that is opened, such as a store, would have their number, and get what is printed.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process


def _lead_nowhere(stream: TextIO) -> None:
    """Have what is still to be written to a stream go to the null device, or the interpreter tries once more."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
