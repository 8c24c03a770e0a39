"""The command ``divebook``: its global options, and the subcommands that are built from the declared commands."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Annotated

import typer

from divebook._version import __version__
from divebook.cli.output import Commands, run_with_streams, secrets
from divebook.cli.subcommands import register
from divebook.commands.command import SHELL
from divebook.commands.table import COMMANDS
from divebook.text.format import visible

app = typer.Typer(
    name="divebook",
    cls=Commands,
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Run workflows of agents, actions and scripts, inspect the runs, and resume them.",
    epilog="Exit codes: 0 completed, 1 failed, 2 bad input or usage, 3 waiting, 130 cancelled.",
)
# `divebook --help` lists the commands in this order.
for declared in COMMANDS.values():
    if SHELL in declared.interfaces:
        register(app, declared)


def _version_at_once(is_requested: bool) -> None:  # noqa: FBT001 - typer hands over what was written
    if is_requested:
        sys.stdout.write(f"{__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="KIND",
            # The kinds are those of `divebook.documents.policy`, which ``--version`` and ``--help`` need not load.
            help="Permission for definitions: files, addresses, programs, credentials, approvals, hidden, environment "
            "or environment:NAME. See SECURITY.md.",
        ),
    ] = None,
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Do not hide credentials in the output.")
    ] = False,
    version_asked: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version_at_once, is_eager=True)
    ] = False,
) -> None:
    """Define the global options. The command group `Commands` accepts them at any position and applies them."""


def main() -> None:
    """Run the command ``divebook`` and exit."""
    # Python would print a traceback with secrets and control characters.
    sys.excepthook = _print_traceback
    run_with_streams(lambda: app(prog_name="divebook"))


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected exception, without secrets and control characters."""
    sys.stderr.write(visible(secrets.text("".join(traceback.format_exception(kind, error, trace)))))
