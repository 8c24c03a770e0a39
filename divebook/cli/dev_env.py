"""The command ``dev_env``: the manager does what is asked, stdout has only its data, and exit codes tell the rest."""

from __future__ import annotations

import getpass
import math
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from divebook._version import __version__
from divebook.cli import dev_env_kept, dev_env_running, dev_env_upkeep
from divebook.cli.dev_env_options import (
    DevEnvCommands,
    DevEnvRequest,
    Environment,
    Template,
    above_zero,
    asked,
    followed,
    no_less_than_zero,
    pairs,
    print_json,
    tell_failure,
)
from divebook.cli.streams import run_with_streams
from divebook.devenv import DevEnvManager
from divebook.devenv.containers import ALWAYS, MISSING, NEVER
from divebook.devenv.locking import WAIT
from divebook.errors import DevEnvError, DivebookError

app = typer.Typer(
    name="dev_env",
    cls=DevEnvCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make development environments from templates, and run commands in them.",
    epilog="Exit codes: 0 success, 1 general, 2 no such environment, 3 no such template, 4 over a limit, "
    "5 no container engine, 6 a command failed, 7 no such checkpoint, 8 not allowed.",
)
app.command("execute")(dev_env_running.execute)
app.command("shell")(dev_env_running.shell)
app.command("cp")(dev_env_running.cp)
app.add_typer(dev_env_running.jobs, name="job")
app.command("init")(dev_env_upkeep.init)
app.command("gc")(dev_env_upkeep.gc)
app.command("doctor")(dev_env_upkeep.doctor)
app.command("events")(dev_env_upkeep.events)
app.command("save")(dev_env_kept.save)
app.command("restore")(dev_env_kept.restore)
app.add_typer(dev_env_kept.checkpoints, name="checkpoint")
app.add_typer(dev_env_kept.templates, name="template")
app.add_typer(dev_env_kept.profiles, name="profile")


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer hands over what was written
    if wanted:
        sys.stdout.write(f"dev_env {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    *,
    root: Annotated[Path, typer.Option(envvar="DEV_ENV_ROOT", help="The folder of all environments.")] = Path(),
    tenant: Annotated[str, typer.Option(envvar="DEV_ENV_TENANT", help="Whose environments.")] = "default",
    owner: Annotated[str | None, typer.Option(envvar="DEV_ENV_OWNER", help="By default who is logged in.")] = None,
    wait: Annotated[
        float,
        typer.Option(
            envvar="DEV_ENV_WAIT",
            metavar="SECONDS",
            callback=no_less_than_zero,
            help="How long to wait for another process.",
        ),
    ] = WAIT,
    as_json: Annotated[bool, typer.Option("--json", envvar="DEV_ENV_JSON", help="Print objects, no lines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", envvar="DEV_ENV_QUIET", help="Tell no warnings.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", envvar="DEV_ENV_DEBUG", help="Tell each line of the log on stderr.")
    ] = False,
    no_color: Annotated[
        bool, typer.Option("--no-color", envvar="DEV_ENV_NO_COLOR", help="Tell what went wrong without colours.")
    ] = False,
    log_format: Annotated[
        str, typer.Option(envvar="DEV_ENV_LOG_FORMAT", metavar="text|json", help="Of logs/dev_env.log.")
    ] = "text",
    _version_asked: Annotated[
        bool, typer.Option("--version", help="Print the version, and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before any command."""
    if no_color:
        os.environ["NO_COLOR"] = "1"  # as all programs know it, those of environments on this machine too
    manager = DevEnvManager(
        root, tenant, owner or getpass.getuser(), wait, log_format=log_format, warnings=not quiet, verbose=verbose
    )
    context.obj = DevEnvRequest(manager, as_json)


@app.command()
def create(
    context: typer.Context,
    environment: Environment,
    template: Template,
    profile: Annotated[str | None, typer.Argument(metavar="[PROFILE]", help="Limits; by default 'default'.")] = None,
    *,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As docker.image=busybox; repeatable.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="A variable.")] = None,
    env_file: Annotated[Path | None, typer.Option("--env-file", help="Variables, one NAME=VALUE a line.")] = None,
    no_init: Annotated[bool, typer.Option("--no-init", help="Run no init commands.")] = False,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="One that is there is fine.")] = False,
    keep_failed: Annotated[bool, typer.Option("--keep-failed", help="Keep what could not be made.")] = False,
    strict_limits: Annotated[bool, typer.Option("--strict-limits", help="Refuse limits that are advisory.")] = False,
    pull: Annotated[str, typer.Option(metavar="never|missing|always", help="Fetch the image.")] = MISSING,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", callback=above_zero, help="Then what makes it is ended, and it goes again."),
    ] = None,
    expires: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", callback=no_less_than_zero, help="When gc may remove it; by default never."),
    ] = None,
    fallback: Annotated[
        bool, typer.Option("--fallback", help="Without an engine, use the template's next section.")
    ] = False,
    install_tools: Annotated[
        bool, typer.Option("--install-tools", help="Install the template's tools where it is known how.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print with what it would be made.")] = False,
) -> None:
    """Make an environment from a template, and print its folder."""
    if pull not in (NEVER, MISSING, ALWAYS):
        raise DevEnvError(f"--pull {pull}: use {NEVER}, {MISSING} or {ALWAYS}")
    one, given, variables = asked(context), pairs(settings or []), pairs([*_lines(env_file), *(env or [])])
    if dry_run:
        print_json(one.manager.configured(environment, template, profile, settings=given, environ=variables))
        return
    made = one.manager.create(
        environment,
        template,
        profile,
        settings=given,
        environ=variables,
        init=not no_init,
        exist_ok=exist_ok,
        keep_failed=keep_failed,
        strict_limits=strict_limits,
        pull=pull,
        timeout=math.inf if timeout is None else timeout,
        expires=expires,
        fallback=fallback,
        install_tools=install_tools,
    )
    one.tell("path", str(one.run(made)))


def _lines(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DevEnvError(f"the file of variables {file} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


@app.command("list")
def list_environments(
    context: typer.Context,
    status: Annotated[str, typer.Argument(metavar="[STATUS]", help="running, stopped, error or all.")] = "all",
    tenant: Annotated[str | None, typer.Argument(metavar="[TENANT]")] = None,
    *,
    status_option: Annotated[str | None, typer.Option("--status", help="As the argument.")] = None,
    tenant_option: Annotated[str | None, typer.Option("--tenant", help="As the argument.")] = None,
    owner: Annotated[str | None, typer.Option(help="Of this owner only.")] = None,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="Of all tenants, for operators.")] = False,
    usage: Annotated[bool, typer.Option("--usage", help="Measure what each uses.")] = False,
) -> None:
    """Print the states of the environments as JSON."""
    one = asked(context)
    found = one.manager.list(
        status_option or status, tenant_option or tenant, owner=owner, all_tenants=all_tenants, usage=usage
    )
    print_json(one.run(found))


@app.command()
def destroy(
    context: typer.Context,
    environment: Annotated[str | None, typer.Argument(metavar="ENVIRONMENT")] = None,
    *,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="They wait for an environment of the same name.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Forget it where it cannot be removed.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Remove all environments of the tenant.")] = False,
) -> None:
    """Remove an environment; folders that were there before it stay."""
    one = asked(context)
    if every == (environment is not None):
        raise DevEnvError("destroy takes the name of one environment, or --all")
    names = [environment] if environment is not None else [state["name"] for state in one.run(one.manager.list())]
    done, failures = [], []
    for name in names:
        try:
            one.run(one.manager.destroy(name, force=force, keep_checkpoints=keep_checkpoints))
        except DivebookError as error:
            failures.append(error)  # the others go all the same
        else:
            done.append(f"Environment '{name}' destroyed")
    if one.as_json and every:
        print_json([{"message": message} for message in done])
    else:
        for message in done:
            one.tell("message", message)
    for failure in failures[1:]:
        tell_failure(failure)
    if failures:
        raise failures[0]


@app.command()
def start(context: typer.Context, environment: Environment) -> None:
    """Start an environment."""
    one = asked(context)
    one.run(one.manager.start(environment))
    one.tell("message", f"Environment '{environment}' started")


@app.command()
def stop(context: typer.Context, environment: Environment) -> None:
    """Stop an environment and its commands; the next command starts it."""
    one = asked(context)
    one.run(one.manager.stop(environment))
    one.tell("message", f"Environment '{environment}' stopped")


@app.command()
def restart(context: typer.Context, environment: Environment) -> None:
    """Stop an environment, and start it."""
    one = asked(context)
    one.run(one.manager.stop(environment))
    one.run(one.manager.start(environment))
    one.tell("message", f"Environment '{environment}' restarted")


@app.command()
def inspect(context: typer.Context, environment: Environment) -> None:
    """Print the state, the configuration and the checkpoints of an environment as JSON."""
    one = asked(context)
    print_json(one.run(one.manager.inspect(environment)))


@app.command()
def resources(context: typer.Context, environment: Environment) -> None:
    """Print what an environment uses now, its limits, and how these are kept, as JSON."""
    one = asked(context)
    print_json(one.run(one.manager.resources(environment)))


@app.command()
def logs(
    context: typer.Context,
    environment: Environment,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until it is interrupted.")] = False,
) -> None:
    """Print what was done with an environment."""
    manager = asked(context).manager
    followed(lambda: manager.logs(environment), follow=follow)


def main() -> None:
    """Run ``dev_env``."""
    # A grammar of web addresses that jsonschema loads takes four times as long as all else, for formats no template has
    # (test_a_command_loads_no_grammars).
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    run_with_streams(lambda: app(prog_name="dev_env"))
