"""The commands of ``dev_env`` about what is kept: checkpoints, templates and profiles."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from divebook.cli.dev_env_options import Checkpoint, Environment, Template, asked, print_json
from divebook.devenv.profiles import profile_names, profile_of
from divebook.errors import DevEnvError

checkpoints = typer.Typer(no_args_is_help=True, help="Work with checkpoints.")
templates = typer.Typer(no_args_is_help=True, help="Work with templates.")
profiles = typer.Typer(no_args_is_help=True, help="Look at resource profiles.")


def save(
    context: typer.Context,
    environment: Environment,
    checkpoint: Checkpoint,
    *,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace one of that name.")] = False,
    include_mounts: Annotated[bool, typer.Option("--include-mounts", help="Your own mounted folders too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also what is very large.")] = False,
    export: Annotated[bool, typer.Option("--export", help="A container's image as a file, for other hosts.")] = False,
) -> None:
    """Take a checkpoint, and print the path of its description."""
    one = asked(context)
    taken = one.manager.save(
        environment, checkpoint, overwrite=overwrite, with_mounts=include_mounts, force=force, export=export
    )
    one.tell("path", str(one.run(taken)))


def restore(
    context: typer.Context,
    environment: Environment,
    checkpoint: Checkpoint,
    *,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="Save nothing first.")] = False,
) -> None:
    """Have an environment as it was at a checkpoint; its commands are ended."""
    one = asked(context)
    one.run(one.manager.restore(environment, checkpoint, backup=not no_backup))
    one.tell("message", f"Environment '{environment}' restored to '{checkpoint}'")


@checkpoints.command("list")
def list_checkpoints(context: typer.Context, environment: Environment) -> None:
    """Print what checkpoints there are as JSON, the oldest first."""
    print_json(asked(context).manager.checkpoints(environment))


@checkpoints.command("show")
def show_checkpoint(context: typer.Context, environment: Environment, checkpoint: Checkpoint) -> None:
    """Print what a checkpoint has as JSON."""
    print_json(asked(context).manager.checkpoint(environment, checkpoint))


@checkpoints.command("delete")
def delete_checkpoint(context: typer.Context, environment: Environment, checkpoint: Checkpoint) -> None:
    """Delete a checkpoint."""
    one = asked(context)
    one.run(one.manager.delete_checkpoint(environment, checkpoint))
    one.tell("message", f"Checkpoint '{checkpoint}' deleted")


@templates.command("list")
def list_templates(
    context: typer.Context, category: Annotated[str | None, typer.Argument(metavar="[CATEGORY]")] = None
) -> None:
    """Print what templates there are as JSON."""
    print_json(asked(context).manager.templates.listed(category))


@templates.command("create")
def create_template(
    context: typer.Context,
    name: Template,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON; - is what is piped in.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace one of that name.")] = False,
    allow_plain_secrets: Annotated[
        bool, typer.Option("--allow-plain-secrets", help="Keep what looks like a secret.")
    ] = False,
) -> None:
    """Keep a template of your own."""
    one = asked(context)
    other = one.manager.templates.create(name, _text_of(file), force=force, allow_secrets=allow_plain_secrets)
    if other is not None:
        one.manager.warn(f"the file says the name {other!r}: the template is {name!r}")
    one.tell("message", f"Template '{name}' created")


def _text_of(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DevEnvError(f"the template file {file} cannot be read: {error}") from error


@templates.command("validate")
def validate_template(
    context: typer.Context, file: Annotated[str, typer.Argument(metavar="FILE", help="JSON; - is what is piped in.")]
) -> None:
    """Look whether a file may be a template."""
    one = asked(context)
    one.manager.templates.require_valid("template", _text_of(file))
    one.tell("message", f"{file} is valid")


@templates.command("show")
def show_template(
    context: typer.Context,
    name: Template,
    *,
    resolved: Annotated[bool, typer.Option("--resolved", help="With all that it extends.")] = False,
) -> None:
    """Print a template as JSON."""
    found = asked(context).manager.templates
    print_json(found.resolved(name)[0] if resolved else found.read(name))


@templates.command("delete")
def delete_template(context: typer.Context, name: Template) -> None:
    """Delete a template of your own; environments made of it stay as they are."""
    one = asked(context)
    one.manager.templates.delete(name)
    one.tell("message", f"Template '{name}' deleted")


@profiles.command("list")
def list_profiles(context: typer.Context) -> None:
    """Print the resource profiles as JSON."""
    folder = asked(context).manager.layout.profiles
    print_json([{"name": name, **profile_of(name, folder)} for name in profile_names(folder)])


@profiles.command("show")
def show_profile(context: typer.Context, name: Annotated[str, typer.Argument(metavar="PROFILE")]) -> None:
    """Print a resource profile as JSON."""
    print_json({"name": name, **profile_of(name, asked(context).manager.layout.profiles)})
