"""How an error of divebook ends a command: its text in red, what to do next, exit code 2, no traceback, no secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from divebook.cli.screen import DAMAGED, note
from divebook.cli.text import secrets
from divebook.documents.policy import VARIABLE, Policy
from divebook.errors import CorruptStoreError, DefinitionError, DivebookError, ExecutionNotFoundError, SetupError
from divebook.text.shown import visible

DEBUG, SHOW_SECRETS, ALLOW = "--debug", "--show-secrets", "--allow"
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
