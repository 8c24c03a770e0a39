"""The commands of ``dev_env`` about the root as a whole: begin one, look after it, see what was done."""

from __future__ import annotations

from typing import Annotated

import typer

from divebook.cli.dev_env_options import asked, followed, no_less_than_zero, print_json
from divebook.devenv.health import checked


def init(context: typer.Context) -> None:
    """Make the folders of a root, for templates, profiles and secrets of your own, and print its path."""
    one = asked(context)
    one.manager.layout.make()
    one.tell("path", str(one.manager.layout.root))


def gc(
    context: typer.Context,
    *,
    idle: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", callback=no_less_than_zero, help="Stop what nobody has used for so long."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
) -> None:
    """Remove what was left half made, has expired or was left behind in the engine; print as JSON what that was."""
    one = asked(context)
    print_json([found._asdict() for found in one.run(one.manager.collect(idle=idle, dry=dry_run))])


def doctor(context: typer.Context) -> None:
    """Print as JSON whether this machine has what environments need; exit code 1 where something must be mended."""
    one = asked(context)
    checks = one.run(checked(one.manager.layout))
    is_fine = all(check["ok"] for check in checks if check["required"])
    print_json({"ok": is_fine, "checks": checks})
    if not is_fine:
        raise typer.Exit(1)


def events(
    context: typer.Context,
    environment: Annotated[str | None, typer.Argument(metavar="[ENVIRONMENT]", help="By default all.")] = None,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until it is interrupted.")] = False,
) -> None:
    """Print what was done, a JSON object a line: time, level, message, command, environment, exit_code, duration."""
    manager = asked(context).manager
    followed(lambda: manager.events(environment), follow=follow)
