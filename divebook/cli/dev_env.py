"""The command ``dev_env`` for development environments. Output on stdout, messages on stderr, exit codes for errors."""

from __future__ import annotations

import asyncio
import getpass
import inspect as inspect_module
import io
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer
from typer.core import TyperGroup

from divebook._version import __version__
from divebook.cli.options import number_option
from divebook.cli.output import HELP, json_escaped, print_note, run_with_streams, write
from divebook.cli.subcommands import Completion, add_subcommand, typer_parameter
from divebook.commands.command import Parameter, option, parameters_of, usage_of, word
from divebook.devenv import DevEnvManager
from divebook.devenv.docker import ALWAYS, MISSING, NEVER
from divebook.devenv.environments import WAIT
from divebook.devenv.jobs import FAILED, GENERAL, exit_code_of
from divebook.devenv.manager import check_machine
from divebook.devenv.templates import profile_names, profile_of
from divebook.errors import DevEnvError, DivebookError, ShellTimeoutError
from divebook.text.arguments import assignment_of
from divebook.text.ranges import SECONDS, SOME_SECONDS
from divebook.workspaces.shell import ShellResult

# --- options, output and exit codes of all commands ------------------------------------------------------------------


T = TypeVar("T")
PASSTHROUGH_OFFSET = 120
"""Number added to the exit codes of dev_env's own errors if the exit code of the executed command is passed through."""
PASSTHROUGH = "DEV_ENV_PASSTHROUGH"
# As shells report it: 128 and the number of the signal.
_BY_SIGNAL = 128
# The base class of all errors about arguments in click, which typer does not export.
_USAGE: type[Any] = typer.BadParameter.__bases__[0]
# Key in click's `meta`, which is shared by the contexts of one command line.
_SEPARATED = "dev_env.separated"
_FAILURE = "red"
_FOLLOW_INTERVAL = 0.3
"""Seconds between two checks of a log file for new lines (``--follow``)."""

Environment: TypeAlias = Annotated[str, word("ENVIRONMENT", "Name of the environment.", completes="environment")]
Checkpoint: TypeAlias = Annotated[str, word("CHECKPOINT", "Name of the checkpoint.", completes="checkpoint")]
Template: TypeAlias = Annotated[str, word("TEMPLATE", "Name of the template.", completes="template")]
Profile: TypeAlias = Annotated[str, word("PROFILE", "Name of the profile.", completes="profile")]
Job: TypeAlias = Annotated[str, word("JOB", "Id of the job.", completes="job")]


class DevEnvCommands(TyperGroup):
    """Command group of ``dev_env``. It turns errors into exit codes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Record whether the arguments contain ``--``, and parse them. After ``--``, a command is a program and its
        arguments.
        """
        # click removes `--` while it parses, so that a command could not see it later.
        ctx.meta[_SEPARATED] = "--" in args
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names. ``help create`` is ``create --help``, as in ``divebook``."""
        if set(args) == {HELP}:
            write(ctx.get_help())
            ctx.exit()
        return super().resolve_command(ctx, [*args[1:], "--help"] if args[0] == HELP else args)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run the command line and exit. A usage error ends with code 1, not click's 2, which means "no such
        environment" here.
        """
        arguments = list(sys.argv[1:] if args is None else args)
        # Otherwise click handles errors and exits itself, with its own codes.
        options["standalone_mode"] = False
        try:
            # click returns the code of `typer.Exit` in this mode, and None after a command without one.
            code = super().main(arguments, *rest, **options) or 0
        # click converts Ctrl-C to `Abort`.
        except typer.Abort:
            code = _BY_SIGNAL + signal.SIGINT
        except DivebookError as error:
            print_error(error)
            code = exit_code_of(error) + _exit_code_offset(arguments)
        except BrokenPipeError:  # the reader of the output has ended
            code = GENERAL + _exit_code_offset(arguments)
        except OSError as error:  # the system says on which file
            print_note(f"dev_env: {error}; name another file or folder, or correct the problem", _FAILURE)
            code = GENERAL + _exit_code_offset(arguments)
        except _USAGE as error:
            # A group without a command is a request for its help, which is the message of this error.
            if error.format_message().startswith("Usage: "):
                write(error.format_message())
                sys.exit(0)
            print_note(f"dev_env: {error.format_message()} (dev_env --help lists the commands)", _FAILURE)
            code = GENERAL + _exit_code_offset(arguments)
        sys.exit(code)


def print_error(error: DivebookError) -> None:
    """Print an error on stderr, in red."""
    print_note(f"dev_env: {error}", _FAILURE)


def _exit_code_offset(arguments: Sequence[str]) -> int:
    # The raw arguments, because an error may come before they are parsed.
    passes = "--passthrough" in arguments or os.environ.get(PASSTHROUGH) == "1"
    return PASSTHROUGH_OFFSET if passes and "execute" in arguments else 0


@dataclass(frozen=True)
class DevEnvRequest:
    """Settings of one ``dev_env`` command from its global options: the environment manager to use, and whether to print
    JSON.
    """

    manager: DevEnvManager
    as_json: bool
    is_separated: bool
    """True if the command line contains ``--``, which separates a program and its arguments from the options."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result. SIGTERM cancels the coroutine, so that it can clean up."""

        async def ended_by_signal() -> T:
            task = asyncio.current_task()
            # Only the main thread can handle signals; tests run commands in other threads.
            if task is not None and threading.current_thread() is threading.main_thread():
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            return await work

        try:
            return asyncio.run(ended_by_signal())
        except asyncio.CancelledError:
            raise typer.Exit(_BY_SIGNAL + signal.SIGTERM) from None

    def print_result(self, name: str, text: str) -> None:
        """Print a result as a line of text; with ``--json``, as an object with one key."""
        if self.as_json:
            print_json({name: text})
        else:
            write(text)


def print_json(value: Any) -> None:
    """Print a value as indented JSON on stdout."""
    write(json_escaped(json.dumps(value, indent=2, ensure_ascii=False)))


def parse_pairs(texts: Sequence[str]) -> dict[str, str]:
    """Parse strings of the form ``NAME=VALUE`` into a dictionary; raises `DevEnvError` for other strings."""
    values: dict[str, str] = {}
    for text in texts:
        assignment = assignment_of(text, json=False)
        if assignment is None:
            raise DevEnvError(f"{text!r} is not of the form NAME=VALUE")
        values[assignment.name] = assignment.text
    return values


def print_lines(lines: Callable[[], Iterable[str]], *, follow: bool) -> None:
    """Print the lines of a log; with `follow`, print new lines as well until a keyboard interrupt (Ctrl-C)."""
    shown = 0
    while True:
        all_lines = list(lines())
        if shown > len(all_lines):  # the log was rotated: print the new one from its beginning
            shown = 0
        for line in all_lines[shown:]:
            write(line)
        sys.stdout.flush()
        if not follow:
            return
        shown = len(all_lines)
        time.sleep(_FOLLOW_INTERVAL)


# --- the program and its commands ------------------------------------------------------------------------------------


app = typer.Typer(
    name="dev_env",
    cls=DevEnvCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Create development environments from templates, and run commands in them.",
    epilog="Exit codes: 0 success, 1 other error, 2 no such environment, 3 no such template, 4 limit exceeded, 5 no "
    "container engine, 6 command failed, 7 no such checkpoint, 8 not allowed.",
)


def _version(is_requested: bool) -> None:  # noqa: FBT001 - typer hands over what was written
    if is_requested:
        sys.stdout.write(f"dev_env {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    *,
    root: Annotated[Path, typer.Option(envvar="DEV_ENV_ROOT", help="Folder that contains all environments.")] = Path(),
    tenant: Annotated[
        str, typer.Option(envvar="DEV_ENV_TENANT", help="Tenant whose environments are used.")
    ] = "default",
    owner: Annotated[
        str | None, typer.Option(envvar="DEV_ENV_OWNER", help="Name of the owner. Default: the current user.")
    ] = None,
    wait: Annotated[
        float,
        number_option(
            envvar="DEV_ENV_WAIT",
            metavar="SECONDS",
            allowed=SECONDS,
            help="Maximum time to wait for another process that uses the environment.",
        ),
    ] = WAIT,
    as_json: Annotated[
        bool, typer.Option("--json", envvar="DEV_ENV_JSON", help="Print JSON objects instead of lines.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", envvar="DEV_ENV_QUIET", help="Do not print warnings.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", envvar="DEV_ENV_DEBUG", help="Print each line of the log on stderr.")
    ] = False,
    no_color: Annotated[
        bool, typer.Option("--no-color", envvar="DEV_ENV_NO_COLOR", help="Print errors without colours.")
    ] = False,
    log_format: Annotated[
        str, typer.Option(envvar="DEV_ENV_LOG_FORMAT", metavar="text|json", help="Format of logs/dev_env.log.")
    ] = "text",
    _version_asked: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Read the global options, and store them as the `DevEnvRequest` that the chosen command uses. Runs before every
    command.
    """
    if no_color:
        os.environ["NO_COLOR"] = "1"  # as all programs know it, those of environments on this machine too
    manager = DevEnvManager(
        root, tenant, owner or getpass.getuser(), wait, log_format=log_format, warnings=not quiet, verbose=verbose
    )
    context.obj = DevEnvRequest(manager, as_json, bool(context.meta[_SEPARATED]))


@dataclass(frozen=True)
class DevEnvCommand:
    """A command of ``dev_env``. The docstring of its function is the help text, and the annotations declare the
    parameters, as in `divebook.commands.command`.
    """

    name: str
    """``create``, or with the name of its group ``checkpoint list``."""
    function: Callable[..., None]
    example: str
    """A call without the name of the program."""

    @property
    def help(self) -> str:
        """The help text."""
        return inspect_module.getdoc(self.function) or ""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the function, words first."""
        return parameters_of(self.function)

    @property
    def usage(self) -> str:
        """The command with its words: ``save ENVIRONMENT CHECKPOINT``."""
        return usage_of(self.name, self.parameters)


F = TypeVar("F", bound=Callable[..., None])
COMMANDS: dict[str, DevEnvCommand] = {}
"""The commands by name, in the order of the reference page."""
GROUPS = {
    "job": "Work with background commands (execute --detach).",
    "checkpoint": "Work with checkpoints.",
    "template": "Work with templates.",
    "profile": "Show resource profiles.",
}
"""Help texts of the groups of commands, by name."""


def command(name: str, *, example: str) -> Callable[[F], F]:
    """Return a decorator that declares a function as a command. The function takes the `DevEnvRequest`, and the
    parameters that its annotations declare.
    """

    def declare(function: F) -> F:
        COMMANDS[name] = DevEnvCommand(name, function, example)
        return function

    return declare


# --- environments ----------------------------------------------------------------------------------------------------


@command("create", example="create app python-data")
def create(
    request: DevEnvRequest,
    environment: Environment,
    template: Template,
    profile: Annotated[
        str | None, word("PROFILE", "Name of the resource profile. Default: 'default'.", completes="profile")
    ] = None,
    *,
    settings: Annotated[
        list[str] | None,
        option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace a setting of the template, such as docker.image=busybox. May be repeated.",
        ),
    ] = None,
    env: Annotated[
        list[str] | None, option("--env", metavar="NAME=VALUE", help="Environment variable. May be repeated.")
    ] = None,
    env_file: Annotated[
        Path | None,
        option("--env-file", metavar="FILE", help="File with environment variables, one NAME=VALUE per line."),
    ] = None,
    no_init: Annotated[bool, option("--no-init", help="Do not run the init commands.")] = False,
    exist_ok: Annotated[
        bool, option("--exist-ok", help="Use an existing environment with the same name, template and profile.")
    ] = False,
    keep_failed: Annotated[
        bool, option("--keep-failed", help="Keep an environment that could not be created, for inspection.")
    ] = False,
    strict_limits: Annotated[bool, option("--strict-limits", help="Fail if a limit cannot be enforced.")] = False,
    pull: Annotated[str, option("--pull", metavar="never|missing|always", help="When to pull the image.")] = MISSING,
    timeout: Annotated[
        float | None,
        option(
            "--timeout",
            metavar="SECONDS",
            allowed=SOME_SECONDS,
            help="Time limit of the creation. When it is exceeded, the environment is removed.",
        ),
    ] = None,
    expires: Annotated[
        float | None,
        option(
            "--expires",
            metavar="SECONDS",
            allowed=SECONDS,
            help="Time after which gc removes the environment. Default: never.",
        ),
    ] = None,
    fallback: Annotated[
        bool, option("--fallback", help="Use the next section of the template if no container engine answers.")
    ] = False,
    install_tools: Annotated[
        bool, option("--install-tools", help="Install the tools of the template whose packages are known.")
    ] = False,
    dry_run: Annotated[bool, option("--dry-run", help="Only print the configuration of the environment.")] = False,
) -> None:
    """Create an environment from a template, and print its folder."""
    if pull not in (NEVER, MISSING, ALWAYS):
        raise DevEnvError(f"--pull cannot be {pull}; use {NEVER}, {MISSING} or {ALWAYS}")
    values = parse_pairs(settings or [])
    # A variable in --env replaces the one in the file.
    variables = parse_pairs([*_lines(env_file), *(env or [])])
    if dry_run:
        print_json(request.manager.configured(environment, template, profile, settings=values, environ=variables))
        return
    coroutine = request.manager.create(
        environment,
        template,
        profile,
        settings=values,
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
    request.print_result("path", str(request.run(coroutine)))


def _lines(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DevEnvError(f"the file of variables {file} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


@command("list", example="list running")
def list_environments(
    request: DevEnvRequest,
    status: Annotated[
        str, word("STATUS", "Only environments with this status: running, stopped, error or all.")
    ] = "all",
    tenant: Annotated[str | None, word("TENANT", "Name of the tenant. Default: your own tenant.")] = None,
    *,
    status_option: Annotated[str | None, option("--status", metavar="STATUS", help="Same as the argument.")] = None,
    tenant_option: Annotated[str | None, option("--tenant", metavar="TENANT", help="Same as the argument.")] = None,
    owner: Annotated[str | None, option("--owner", metavar="TEXT", help="Only environments of this owner.")] = None,
    all_tenants: Annotated[bool, option("--all-tenants", help="Environments of all tenants, for operators.")] = False,
    usage: Annotated[bool, option("--usage", help="Measure the resource usage of each environment.")] = False,
) -> None:
    """List the environments with their states as JSON."""
    coroutine = request.manager.list(
        status_option or status, tenant_option or tenant, owner=owner, all_tenants=all_tenants, usage=usage
    )
    print_json(request.run(coroutine))


@command("destroy", example="destroy app")
def destroy(
    request: DevEnvRequest,
    environment: Annotated[
        str | None, word("ENVIRONMENT", "Name of the environment. Alternative: --all.", completes="environment")
    ] = None,
    *,
    keep_checkpoints: Annotated[
        bool, option("--keep-checkpoints", help="Keep the checkpoints for the next environment with the same name.")
    ] = False,
    force: Annotated[bool, option("--force", help="Forget the environment if it cannot be removed.")] = False,
    every: Annotated[bool, option("--all", help="Remove all environments of the tenant.")] = False,
) -> None:
    """Remove an environment. Folders that existed before it are kept."""
    if every == (environment is not None):
        raise DevEnvError("destroy needs either the name of one environment or --all")
    names = (
        [environment] if environment is not None else [state["name"] for state in request.run(request.manager.list())]
    )
    messages = []
    failures = []
    for name in names:
        try:
            request.run(request.manager.destroy(name, force=force, keep_checkpoints=keep_checkpoints))
        except DivebookError as error:
            failures.append(error)  # the others go all the same
        else:
            messages.append(f"Environment '{name}' destroyed")
    # With --all and --json, all messages together are one JSON value.
    if request.as_json and every:
        print_json([{"message": message} for message in messages])
    else:
        for message in messages:
            request.print_result("message", message)
    # The first error is raised, and determines the exit code. The others are only printed.
    for failure in failures[1:]:
        print_error(failure)
    if failures:
        raise failures[0]


@command("start", example="start app")
def start_environment(request: DevEnvRequest, environment: Environment) -> None:
    """Start an environment."""
    request.run(request.manager.start(environment))
    request.print_result("message", f"Environment '{environment}' started")


@command("stop", example="stop app")
def stop(request: DevEnvRequest, environment: Environment) -> None:
    """Stop an environment and its commands. The next command starts it again."""
    request.run(request.manager.stop(environment))
    request.print_result("message", f"Environment '{environment}' stopped")


@command("restart", example="restart app")
def restart(request: DevEnvRequest, environment: Environment) -> None:
    """Stop an environment, and start it again."""
    request.run(request.manager.stop(environment))
    request.run(request.manager.start(environment))
    request.print_result("message", f"Environment '{environment}' restarted")


@command("inspect", example="inspect app")
def inspect_environment(request: DevEnvRequest, environment: Environment) -> None:
    """Show the state, the configuration and the checkpoints of an environment as JSON."""
    print_json(request.run(request.manager.inspect(environment)))


@command("resources", example="resources app")
def resources(request: DevEnvRequest, environment: Environment) -> None:
    """Show the current usage of an environment, its limits, and how they are enforced, as JSON."""
    print_json(request.run(request.manager.resources(environment)))


@command("logs", example="logs app --follow")
def logs(
    request: DevEnvRequest,
    environment: Environment,
    *,
    follow: Annotated[bool, option("--follow", "-f", help="Also print new lines, until interrupted.")] = False,
) -> None:
    """Print the log of an environment."""
    print_lines(lambda: request.manager.logs(environment), follow=follow)


# --- commands in an environment, whose streams are those of the terminal or pipe -------------------------------------


# 64 KiB, the capacity of a pipe on Linux.
_CHUNK_SIZE = 1 << 16
# Exit code of a process that SIGKILL has ended.
_KILLED = -9
# 128 + 13: the code of a program that is ended by SIGPIPE, a signal that Windows lacks.
_UNREAD = 141
# `exec` replaces the shell that looks for bash, so that only one shell runs.
_SHELL = "if command -v bash >/dev/null; then exec bash -i; else exec sh -i; fi"
User: TypeAlias = Annotated[
    str | None, option("--user", metavar="USER", help="User who runs the command in a container.")
]


@command("execute", example="execute app 'python -m pytest -q'")
def execute(
    request: DevEnvRequest,
    environment: Environment,
    command: Annotated[list[str], word("COMMAND", "Command line as one string; after --: program and arguments.")],
    *,
    timeout: Annotated[
        float | None,
        option(
            "--timeout",
            metavar="SECONDS",
            allowed=SOME_SECONDS,
            help="Time limit of the command. When it is exceeded, the command is ended.",
        ),
    ] = None,
    cwd: Annotated[str | None, option("--cwd", metavar="FOLDER", help="Working folder of the command.")] = None,
    env: Annotated[
        list[str] | None, option("--env", metavar="NAME=VALUE", help="Environment variable. May be repeated.")
    ] = None,
    user: User = None,
    tty: Annotated[bool, option("--tty", help="Run the command in a terminal.")] = False,
    detach: Annotated[
        bool, option("--detach", help="Run the command in the background, and print the id of its job.")
    ] = False,
    no_start: Annotated[bool, option("--no-start", help="Fail if the environment is stopped.")] = False,
    passthrough: Annotated[
        bool,
        option(
            "--passthrough",
            variable=PASSTHROUGH,
            help="Exit with the status of the command. 120 is added to the exit codes of dev_env itself.",
        ),
    ] = False,
    as_json: Annotated[bool, option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a command in an environment. Standard input is passed to the command."""
    variables = parse_pairs(env or [])
    # `execute dev ls -l` would take `-l` for an option of dev_env.
    if not request.is_separated and len(command) > 1:
        raise DevEnvError(
            f"{len(command)} words are not a single command; put the command in quotes, or write -- before it"
        )
    # A text is run by a shell; behind `--`, the words are started as they are.
    command_line = command if request.is_separated else command[0]
    seconds = math.inf if timeout is None else timeout
    if detach:
        if tty or no_start:
            raise DevEnvError("--detach cannot be combined with --tty or --no-start; remove one of them")
        request.print_result(
            "job",
            request.manager.detach(environment, command_line, timeout=seconds, environ=variables, cwd=cwd, user=user),
        )
        return
    # A timeout raises. With --json the output until then is printed first, so that a reader of stdout gets a result.
    is_json = as_json or request.as_json
    options = {"timeout": seconds, "cwd": cwd, "environ": variables, "user": user, "start": not no_start}
    try:
        # With --json, output is collected and not shown as it arrives.
        result = _run_connected(request, environment, command_line, options, in_terminal=tty, is_shown=not is_json)
    except ShellTimeoutError as error:
        if is_json:
            late = ShellResult(_KILLED, error.stdout, error.stderr)
            late.timed_out = True
            late.duration = error.timeout
            _print_result(late)
        raise
    if is_json:
        _print_result(result)
    _exit(result, passthrough=passthrough)


def _print_result(shell_result: ShellResult) -> None:
    result = {"exit_code": shell_result.exit_code, "stdout": shell_result.stdout, "stderr": shell_result.stderr}
    duration = round(shell_result.duration / timedelta(milliseconds=1))
    print_json(
        {**result, "duration_ms": duration, "timed_out": shell_result.timed_out, "truncated": shell_result.truncated}
    )


@command("shell", example="shell app")
def shell(request: DevEnvRequest, environment: Environment, *, user: User = None) -> None:
    """Start a shell in an environment. If standard input is not a terminal, it is run as a script."""
    is_typed = sys.stdin.isatty()
    result = _run_connected(
        request, environment, _SHELL if is_typed else "exec sh", {"user": user}, in_terminal=is_typed
    )
    _exit(result, passthrough=False)


def _run_connected(
    request: DevEnvRequest,
    environment: str,
    command: str | list[str],
    options: Mapping[str, Any],
    *,
    in_terminal: bool,
    is_shown: bool = True,
) -> ShellResult:
    """Run a command in an environment, connected to the standard streams of this process, and return the command's
    result.
    """
    size = shutil.get_terminal_size()
    with _raw_terminal(in_terminal):
        return request.run(
            request.manager.execute(
                environment,
                command,
                stdin=_stdin_chunks(),
                listen=_write_through if is_shown else None,
                # Bytes that are not UTF-8 survive as surrogates, and are written as the same bytes.
                undecodable="surrogateescape",
                terminal=(size.lines, size.columns) if in_terminal else None,
                **options,
            )
        )


def _exit(result: ShellResult, *, passthrough: bool) -> None:
    if result.exit_code:
        print_note(f"dev_env: command exited with status {result.exit_code}")
        # -15 -> 143, as shells report a process that a signal has ended.
        status = result.exit_code if result.exit_code > 0 else 128 - result.exit_code
        raise typer.Exit(status if passthrough else FAILED)


@contextmanager
def _raw_terminal(in_terminal: bool) -> Iterator[None]:  # noqa: FBT001 - its only argument
    """Set this terminal to raw mode during a ``with`` block: keys such as Ctrl-C are passed unchanged to the command,
    whose own terminal handles them.
    """
    if not in_terminal or not sys.stdin.isatty():
        yield
        return
    # Windows lacks both modules.
    import termios
    from tty import setraw

    before = termios.tcgetattr(0)
    try:
        setraw(0, termios.TCSADRAIN)  # what was typed already stays
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _write_through(stream: str, text: str) -> None:
    # The text layer would replace or refuse surrogates, so that bytes are written.
    out = (sys.stderr if stream == "stderr" else sys.stdout).buffer
    try:
        out.write(text.encode(errors="surrogateescape"))
        out.flush()
    except BrokenPipeError:  # who reads has seen enough, as head does: the command ends as any would
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # for what Python still holds
        raise typer.Exit(_UNREAD) from None


async def _stdin_chunks() -> AsyncIterator[bytes]:
    """Yield the bytes of standard input as they arrive. Yield nothing if this process runs in the background."""
    try:
        descriptor = sys.stdin.fileno()
    except (io.UnsupportedOperation, AttributeError, ValueError):  # it is closed, or belongs to a notebook or test
        yield b"" if sys.stdin is None else sys.stdin.buffer.read()
        return
    if _is_in_background(descriptor):  # where a look at the terminal would stop us
        return
    while chunk := await _next_chunk(descriptor):
        yield chunk


def _is_in_background(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor) and os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # it is not the terminal that controls us
        return False


async def _next_chunk(descriptor: int) -> bytes:
    """Wait until bytes can be read from a file descriptor, and return them; empty at the end of the input."""
    loop = asyncio.get_running_loop()
    is_ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, is_ready.set)
    except PermissionError:  # a file, which never has to be waited for
        return os.read(descriptor, _CHUNK_SIZE)
    try:
        await is_ready.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _CHUNK_SIZE)


@command("cp", example="cp report.csv app:data/")
def cp(
    request: DevEnvRequest,
    source: Annotated[str, word("SOURCE", "File or folder to copy.")],
    target: Annotated[str, word("TARGET", "Target path. Either SOURCE or TARGET must be ENVIRONMENT:PATH.")],
) -> None:
    """Copy a file or folder into an environment or out of it, and print the target path."""
    source_environment, source_path = _split_place(source)
    target_environment, target_path = _split_place(target)
    if (source_environment is None) == (target_environment is None):
        raise DevEnvError(
            f"cp {source} {target}: one path must be ENVIRONMENT:PATH, and the other a path on this machine"
        )
    if source_environment is not None:
        target_file = request.run(request.manager.copy_out(source_environment, source_path, Path(target_path)))
        request.print_result("path", str(target_file))
    elif target_environment is not None:
        place = request.run(request.manager.copy_in(Path(source_path), target_environment, target_path))
        request.print_result("path", f"{target_environment}:{place}")


def _split_place(text: str) -> tuple[str | None, str]:
    """Split ``[ENVIRONMENT:]PATH`` into environment and path. The environment is None for a path on this machine."""
    name, colon, path = text.partition(":")
    # "dev:src/a.py" -> ("dev", "src/a.py"); "dev:" -> ("dev", "."); "./a:b" -> (None, "./a:b").
    return (name, path or ".") if colon and "/" not in name else (None, text)


@command("job list", example="job list app")
def list_jobs(request: DevEnvRequest, environment: Environment) -> None:
    """List the jobs of an environment as JSON, the oldest first."""
    print_json(request.manager.jobs(environment).records())


@command("job output", example="job output app job-0c5a1b2d")
def show_job(request: DevEnvRequest, environment: Environment, job: Job) -> None:
    """Print the output of a job so far, its stdout on stdout and its stderr on stderr."""
    # As bytes, because output need not be text.
    out, err = request.manager.jobs(environment).output(job)
    for path, stream in ((out, sys.stdout), (err, sys.stderr)):
        with path.open("rb") as file:
            shutil.copyfileobj(file, stream.buffer)
        stream.flush()


@command("job kill", example="job kill app job-0c5a1b2d")
def kill_job(request: DevEnvRequest, environment: Environment, job: Job) -> None:
    """End a job and all processes that it has started."""
    was_running = request.manager.jobs(environment).kill(job)
    request.print_result("message", f"Job '{job}' {'killed' if was_running else 'had already ended'}")


# --- checkpoints, templates and profiles -----------------------------------------------------------------------------


@command("save", example="save app before")
def save(
    request: DevEnvRequest,
    environment: Environment,
    checkpoint: Checkpoint,
    *,
    overwrite: Annotated[bool, option("--overwrite", help="Replace an existing one with the same name.")] = False,
    include_mounts: Annotated[
        bool, option("--include-mounts", help="Also save your own folders that a container mounts.")
    ] = False,
    force: Annotated[bool, option("--force", help="Also save very large folders.")] = False,
    export: Annotated[
        bool, option("--export", help="Also write the image of the container to a file, for other machines.")
    ] = False,
) -> None:
    """Save a checkpoint of an environment, and print the path of its description."""
    coroutine = request.manager.save(
        environment, checkpoint, overwrite=overwrite, with_mounts=include_mounts, force=force, export=export
    )
    request.print_result("path", str(request.run(coroutine)))


@command("restore", example="restore app before")
def restore(
    request: DevEnvRequest,
    environment: Environment,
    checkpoint: Checkpoint,
    *,
    no_backup: Annotated[bool, option("--no-backup", help="Do not save a backup before the restore.")] = False,
) -> None:
    """Restore an environment to a checkpoint. Its running commands are ended."""
    request.run(request.manager.restore(environment, checkpoint, backup=not no_backup))
    request.print_result("message", f"Environment '{environment}' restored to '{checkpoint}'")


@command("checkpoint list", example="checkpoint list app")
def list_checkpoints(request: DevEnvRequest, environment: Environment) -> None:
    """List the checkpoints of an environment as JSON, the oldest first."""
    print_json(request.manager.checkpoints(environment))


@command("checkpoint show", example="checkpoint show app before")
def show_checkpoint(request: DevEnvRequest, environment: Environment, checkpoint: Checkpoint) -> None:
    """Show the description of a checkpoint as JSON."""
    print_json(request.manager.checkpoint(environment, checkpoint))


@command("checkpoint delete", example="checkpoint delete app before")
def delete_checkpoint(request: DevEnvRequest, environment: Environment, checkpoint: Checkpoint) -> None:
    """Delete a checkpoint."""
    request.run(request.manager.delete_checkpoint(environment, checkpoint))
    request.print_result("message", f"Checkpoint '{checkpoint}' deleted")


@command("template list", example="template list")
def list_templates(
    request: DevEnvRequest, category: Annotated[str | None, word("CATEGORY", "Only templates of this category.")] = None
) -> None:
    """List the templates as JSON."""
    print_json(request.manager.templates.summaries(category))


@command("template create", example="template create mine mine.json")
def create_template(
    request: DevEnvRequest,
    name: Template,
    file: Annotated[str, word("FILE", "JSON file; - for standard input.")],
    *,
    force: Annotated[bool, option("--force", help="Replace an existing one with the same name.")] = False,
    allow_plain_secrets: Annotated[
        bool, option("--allow-plain-secrets", help="Accept values that look like secrets.")
    ] = False,
) -> None:
    """Add your own template from a JSON file."""
    # The name in the file is only a hint: the argument decides.
    other = request.manager.templates.create(name, _text_of(file), force=force, allow_secrets=allow_plain_secrets)
    if other is not None:
        request.manager.warn(f"the file contains the name {other!r}, but the template is created as {name!r}")
    request.print_result("message", f"Template '{name}' created")


def _text_of(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DevEnvError(f"the template file {file} cannot be read: {error}") from error


@command("template validate", example="template validate mine.json")
def validate_template(
    request: DevEnvRequest, file: Annotated[str, word("FILE", "JSON file; - for standard input.")]
) -> None:
    """Check whether a file is a valid template."""
    request.manager.templates.require_valid("template", _text_of(file))
    request.print_result("message", f"{file} is valid")


@command("template show", example="template show python-data --resolved")
def show_template(
    request: DevEnvRequest,
    name: Template,
    *,
    resolved: Annotated[
        bool, option("--resolved", help="Merge the template with the templates that it extends.")
    ] = False,
) -> None:
    """Show a template as JSON."""
    registry = request.manager.templates
    print_json(registry.resolved(name)[0] if resolved else registry.read(name))


@command("template delete", example="template delete mine")
def delete_template(request: DevEnvRequest, name: Template) -> None:
    """Delete one of your own templates. Environments created from it are not changed."""
    request.manager.templates.delete(name)
    request.print_result("message", f"Template '{name}' deleted")


@command("profile list", example="profile list")
def list_profiles(request: DevEnvRequest) -> None:
    """List the resource profiles (limits for memory, processors and disk) as JSON."""
    folder = request.manager.layout.profiles
    print_json([{"name": name, **profile_of(name, folder)} for name in profile_names(folder)])


@command("profile show", example="profile show minimal")
def show_profile(request: DevEnvRequest, name: Profile) -> None:
    """Show a resource profile as JSON."""
    print_json({"name": name, **profile_of(name, request.manager.layout.profiles)})


# --- the root as a whole ---------------------------------------------------------------------------------------------


@command("init", example="init")
def init(request: DevEnvRequest) -> None:
    """Create the root folder with its folders for templates, profiles and secrets, and print its path."""
    request.manager.layout.make()
    request.print_result("path", str(request.manager.layout.root))


@command("gc", example="gc --idle 3600 --dry-run")
def gc(
    request: DevEnvRequest,
    *,
    idle: Annotated[
        float | None,
        option(
            "--idle", metavar="SECONDS", allowed=SECONDS, help="Stop environments that were not used for this time."
        ),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", help="Only print the planned changes.")] = False,
) -> None:
    """Remove expired environments, incomplete ones, and leftovers in the container engine, and print them as JSON."""
    print_json([row._asdict() for row in request.run(request.manager.collect(idle=idle, dry=dry_run))])


@command("doctor", example="doctor")
def doctor(request: DevEnvRequest) -> None:
    """Check whether this machine meets the requirements of environments, and print JSON.

    The exit code is 1 if something must be fixed.
    """
    checks = request.run(check_machine(request.manager.layout))
    is_fine = all(check["ok"] for check in checks if check["required"])
    print_json({"ok": is_fine, "checks": checks})
    if not is_fine:
        raise typer.Exit(1)


@command("events", example="events app --follow")
def events(
    request: DevEnvRequest,
    environment: Annotated[
        str | None, word("ENVIRONMENT", "Name of the environment. Default: all environments.", completes="environment")
    ] = None,
    *,
    follow: Annotated[bool, option("--follow", "-f", help="Also print new lines, until interrupted.")] = False,
) -> None:
    """Print the log of all operations, one JSON object per line.

    Its keys are time, level, message, command, environment, exit_code and duration.
    """
    print_lines(lambda: request.manager.events(environment), follow=follow)


# --- completion of values and registration ---------------------------------------------------------------------------


def _manager_of(values: Mapping[str, Any]) -> DevEnvManager:
    """Return the manager for the values of the global options, without output."""
    return DevEnvManager(values.get("root") or Path(), values.get("tenant") or "default")


_SUGGESTIONS: dict[str, Callable[[DevEnvManager, str], Iterable[str]]] = {
    "environment": lambda manager, _: (folder.name for folder in manager.layout.environments.glob("[!.]*")),
    "template": lambda manager, _: (template["name"] for template in manager.templates.summaries()),
    "profile": lambda manager, _: profile_names(manager.layout.profiles),
    "checkpoint": lambda manager, environment: (entry["name"] for entry in manager.checkpoints(environment)),
    "job": lambda manager, environment: (entry["id"] for entry in manager.jobs(environment).records()),
}
"""Values that completion suggests, by kind of the parameter. The text is the environment of the command line."""


def _completion_of(parameter: Parameter) -> Completion:
    """Return the function that completes the values of a parameter; None if it has none to suggest."""
    source = _SUGGESTIONS.get(parameter.completes)
    if source is None:
        return None

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        # An error would be printed into the line that the person types.
        try:
            names = sorted(source(_manager_of(ctx.find_root().params), ctx.params.get("environment") or ""))
        except (DivebookError, OSError):
            return []
        return [name for name in names if name.startswith(incomplete)]

    return complete


_CONTEXT = inspect_module.Parameter("context", inspect_module.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def _register(declared: DevEnvCommand, groups: Mapping[str, typer.Typer]) -> None:
    """Add a command to the program or to one of its groups."""
    group, _, name = declared.name.rpartition(" ")

    def run(values: dict[str, Any]) -> None:
        context = values.pop("context")
        declared.function(context.obj, **values)

    parameters = [typer_parameter(parameter, _completion_of(parameter)) for parameter in declared.parameters]
    example = f"dev_env {declared.example}"
    add_subcommand(groups[group], name, run, [_CONTEXT, *parameters], help_text=declared.help, example=example)


_groups = {"": app, **{name: typer.Typer(no_args_is_help=True, help=text) for name, text in GROUPS.items()}}
for declared_command in COMMANDS.values():
    _register(declared_command, _groups)
for group_name in GROUPS:
    app.add_typer(_groups[group_name], name=group_name)


# --- reference page --------------------------------------------------------------------------------------------------

_HEAD = """\
# Commands of `dev_env`

All commands, in a terminal (`dev_env NAME`) and in a cell (`%dev_env NAME`). The page about
[development environments](reference/dev_env.md) describes the exit codes and the global options, which precede the
command. With `dev_env --json NAME`, a command that prints a path or a message prints a JSON object instead.
"""


def page() -> str:
    """Return the reference page of the commands in Markdown. ``python -m divebook.cli.dev_env`` writes it."""
    from divebook.commands.reference import row, section, term

    lines = [_HEAD]
    for entry in COMMANDS.values():
        rows = [row(term(parameter), parameter.help, parameter.variable) for parameter in entry.parameters]
        usage = f"dev_env {entry.usage}"
        lines += section(f"dev_env {entry.name}", [entry.help], [usage], rows, last_column="variable")
        lines.append(f"Example: `dev_env {entry.example}`\n")
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Run the command ``dev_env`` and exit."""
    # A grammar of web addresses that jsonschema loads takes four times as long as all else, for formats no template has
    # (test_a_command_loads_no_grammars).
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    run_with_streams(lambda: app(prog_name="dev_env"))


if __name__ == "__main__":
    Path(*sys.argv[1:] or ["notebooks/DEV_ENV.md"]).write_text(page(), encoding="utf-8")
