"""What the commands of ``dev_env`` have in common: their options, how they run, what they print, their exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

import typer
from typer.core import TyperGroup

from divebook.cli.options import within
from divebook.cli.screen import note, write
from divebook.cli.text import json_escaped
from divebook.devenv import DevEnvManager
from divebook.devenv.exit_codes import GENERAL, exit_code_of
from divebook.errors import DevEnvError, DivebookError
from divebook.text.ranges import SECONDS, SOME_SECONDS

T = TypeVar("T")
APART = 120
"""Added to the codes of dev_env's own failures where a command's own status is passed through."""
PASSTHROUGH = "DEV_ENV_PASSTHROUGH"
_BY_SIGNAL = 128
_USAGE: type[Any] = typer.BadParameter.__bases__[0]
_SEPARATED = "dev_env.separated"
_FAILURE = "red"
_FOLLOWING = 0.3
"""Seconds between looks at a log that is followed."""

Environment: TypeAlias = Annotated[str, typer.Argument(metavar="ENVIRONMENT")]
Checkpoint: TypeAlias = Annotated[str, typer.Argument(metavar="CHECKPOINT")]
Template: TypeAlias = Annotated[str, typer.Argument(metavar="TEMPLATE")]


class DevEnvCommands(TyperGroup):
    """The group of all commands: turns errors into the exit codes of ``dev_env``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take note of a ``--``, behind which a command is a program with its arguments."""
        ctx.meta[_SEPARATED] = "--" in args
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run what was written; a parser's own code, 2, would say that an environment is not found."""
        written = list(sys.argv[1:] if args is None else args)
        options["standalone_mode"] = False
        try:
            code = super().main(written, *rest, **options) or 0
        except typer.Abort:
            code = _BY_SIGNAL + signal.SIGINT
        except DivebookError as error:
            tell_failure(error)
            code = exit_code_of(error) + _apart(written)
        except BrokenPipeError:  # nobody reads any more
            code = GENERAL + _apart(written)
        except OSError as error:  # the system says on which file
            note(f"dev_env: {error}; name another file or folder, or see to it", _FAILURE)
            code = GENERAL + _apart(written)
        except _USAGE as error:
            note(f"dev_env: {error.format_message()} (dev_env --help lists the commands)", _FAILURE)
            code = GENERAL + _apart(written)
        sys.exit(code)


def tell_failure(error: DivebookError) -> None:
    """Say on stderr what went wrong."""
    note(f"dev_env: {error}", _FAILURE)


def _apart(written: Sequence[str]) -> int:
    passes = "--passthrough" in written or os.environ.get(PASSTHROUGH) == "1"
    return APART if passes and "execute" in written else 0


@dataclass(frozen=True)
class DevEnvRequest:
    """What the options before a command say."""

    manager: DevEnvManager
    as_json: bool

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work to its end; SIGTERM ends it, once it has cleaned up."""

        async def ended_by_signal() -> T:
            task = asyncio.current_task()
            if task is not None and threading.current_thread() is threading.main_thread():
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            return await work

        try:
            return asyncio.run(ended_by_signal())
        except asyncio.CancelledError:
            raise typer.Exit(_BY_SIGNAL + signal.SIGTERM) from None

    def tell(self, name: str, text: str) -> None:
        """Print the one line that a command prints, or an object with it."""
        if self.as_json:
            print_json({name: text})
        else:
            write(text)


def asked(context: typer.Context) -> DevEnvRequest:
    """Return what the options before a command say."""
    found: DevEnvRequest = context.obj
    return found


def is_separated(context: typer.Context) -> bool:
    """Return whether there was a ``--``."""
    return bool(context.meta[_SEPARATED])


def print_json(value: Any) -> None:
    """Print one document."""
    write(json_escaped(json.dumps(value, indent=2, ensure_ascii=False)))


def pairs(written: Sequence[str]) -> dict[str, str]:
    """Return what ``NAME=VALUE`` say."""
    wrong = [text for text in written if "=" not in text]
    if wrong:
        raise DevEnvError(f"{wrong[0]!r} is no NAME=VALUE")
    return {name: value for name, _, value in (text.partition("=") for text in written)}


above_zero = within(SOME_SECONDS)
no_less_than_zero = within(SECONDS)


def followed(lines: Callable[[], Iterable[str]], *, follow: bool) -> None:
    """Print lines; with `follow` also those that come, until it is interrupted."""
    shown = 0
    while True:
        found = list(lines())
        for line in found[shown if shown <= len(found) else 0 :]:
            write(line)
        sys.stdout.flush()
        if not follow:
            return
        shown = len(found)
        time.sleep(_FOLLOWING)
