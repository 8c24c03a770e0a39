"""How an error of divebook ends a command: its text in red, what to do next, exit code 2, no traceback, no secrets."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from divebook.cli.text import secrets
from divebook.errors import DefinitionError, DivebookError, ExecutionNotFoundError

DEBUG, SHOW_SECRETS = "--debug", "--show-secrets"
REFUSED = 2


class Commands(TyperGroup):
    """The group of all commands: turns divebook's errors into exit codes, and takes its own options at any place."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Bring ``--debug`` and ``--show-secrets`` to the front, where the group's own options stand."""
        own, separator, rest = _partition(args)
        given = [option for option in (DEBUG, SHOW_SECRETS) if option in own]
        own = [*given, *(argument for argument in own if argument not in given)]
        parsed: list[str] = super().parse_args(ctx, [*own, *separator, *rest])
        return parsed

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        secrets.begin(shown=bool(ctx.params.get("show_secrets")))
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:  # it repeats what was typed
            error.message = secrets.text(error.message)
            raise
        except DivebookError as error:
            if ctx.params.get("debug"):
                raise
            report(error)
            raise typer.Exit(REFUSED) from error


def _partition(args: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Split at ``--``, behind which nothing is an option."""
    if "--" not in args:
        return args, [], []
    place = args.index("--")
    return args[:place], ["--"], args[place + 1 :]


def report(error: DivebookError) -> None:
    """Print an error on stderr: a line for each thing that is wrong."""
    from divebook.cli.screen import note

    for line in _lines(error):
        note(f"error: {line}", "bold red")


def _lines(error: DivebookError) -> list[str]:
    if isinstance(error, DefinitionError):
        return str(error).splitlines()
    if isinstance(error, ExecutionNotFoundError):
        return [f"{error}. `divebook runs` lists what the store holds; --store names another one"]
    return [str(error)]
