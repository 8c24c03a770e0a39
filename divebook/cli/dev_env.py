"""The command ``dev_env`` for development environments. Output on stdout, messages on stderr, exit codes for errors."""

from __future__ import annotations

import asyncio
import getpass
import io
import json
import math
import os
import shutil
import signal
import sys
import termios
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tty import setraw
from typing import Annotated, Any, TypeAlias, TypeVar

import typer
from typer.core import TyperGroup

from divebook._version import __version__
from divebook.cli.options import number_option
from divebook.cli.output import json_escaped, print_note, run_with_streams, write
from divebook.devenv import DevEnvManager
from divebook.devenv.docker import ALWAYS, MISSING, NEVER
from divebook.devenv.environments import WAIT
from divebook.devenv.jobs import FAILED, GENERAL, exit_code_of
from divebook.devenv.manager import check_machine
from divebook.devenv.templates import profile_names, profile_of
from divebook.errors import DevEnvError, DivebookError, ShellTimeoutError
from divebook.text.ranges import SECONDS, SOME_SECONDS
from divebook.workspaces.shell import ShellResult

# What the commands of ``dev_env`` have in common: their options, how they run, what they print, their exit codes.


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

Environment: TypeAlias = Annotated[str, typer.Argument(metavar="ENVIRONMENT")]
Checkpoint: TypeAlias = Annotated[str, typer.Argument(metavar="CHECKPOINT")]
Template: TypeAlias = Annotated[str, typer.Argument(metavar="TEMPLATE")]


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
            print_note(f"dev_env: {error}; name another file or folder, or see to it", _FAILURE)
            code = GENERAL + _exit_code_offset(arguments)
        except _USAGE as error:
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


def request_of(context: typer.Context) -> DevEnvRequest:
    """Return the `DevEnvRequest` that the callback of the global options created for this command."""
    request: DevEnvRequest = context.obj
    return request


def has_separator(context: typer.Context) -> bool:
    """Return whether the command line contains ``--``, which separates a program and its arguments from the options."""
    return bool(context.meta[_SEPARATED])


def print_json(value: Any) -> None:
    """Print a value as indented JSON on stdout."""
    write(json_escaped(json.dumps(value, indent=2, ensure_ascii=False)))


def parse_pairs(texts: Sequence[str]) -> dict[str, str]:
    """Parse strings of the form ``NAME=VALUE`` into a dictionary; raises `DevEnvError` for other strings."""
    wrong = [text for text in texts if "=" not in text]
    if wrong:
        raise DevEnvError(f"{wrong[0]!r} is not of the form NAME=VALUE")
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


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


# The commands of ``dev_env`` about what is kept: checkpoints, templates and profiles.


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
    """Save a checkpoint of an environment, and print the path of its description."""
    request = request_of(context)
    coroutine = request.manager.save(
        environment, checkpoint, overwrite=overwrite, with_mounts=include_mounts, force=force, export=export
    )
    request.print_result("path", str(request.run(coroutine)))


def restore(
    context: typer.Context,
    environment: Environment,
    checkpoint: Checkpoint,
    *,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="Save nothing first.")] = False,
) -> None:
    """Restore an environment to a checkpoint; its running commands are ended."""
    request = request_of(context)
    request.run(request.manager.restore(environment, checkpoint, backup=not no_backup))
    request.print_result("message", f"Environment '{environment}' restored to '{checkpoint}'")


@checkpoints.command("list")
def list_checkpoints(context: typer.Context, environment: Environment) -> None:
    """List the checkpoints of an environment as JSON, the oldest first."""
    print_json(request_of(context).manager.checkpoints(environment))


@checkpoints.command("show")
def show_checkpoint(context: typer.Context, environment: Environment, checkpoint: Checkpoint) -> None:
    """Show the description of a checkpoint as JSON."""
    print_json(request_of(context).manager.checkpoint(environment, checkpoint))


@checkpoints.command("delete")
def delete_checkpoint(context: typer.Context, environment: Environment, checkpoint: Checkpoint) -> None:
    """Delete a checkpoint."""
    request = request_of(context)
    request.run(request.manager.delete_checkpoint(environment, checkpoint))
    request.print_result("message", f"Checkpoint '{checkpoint}' deleted")


@templates.command("list")
def list_templates(
    context: typer.Context, category: Annotated[str | None, typer.Argument(metavar="[CATEGORY]")] = None
) -> None:
    """List the templates as JSON."""
    print_json(request_of(context).manager.templates.summaries(category))


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
    """Add your own template from a JSON file."""
    request = request_of(context)
    # The name in the file is only a hint: the argument decides.
    other = request.manager.templates.create(name, _text_of(file), force=force, allow_secrets=allow_plain_secrets)
    if other is not None:
        request.manager.warn(f"the file says the name {other!r}: the template is {name!r}")
    request.print_result("message", f"Template '{name}' created")


def _text_of(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DevEnvError(f"the template file {file} cannot be read: {error}") from error


@templates.command("validate")
def validate_template(
    context: typer.Context, file: Annotated[str, typer.Argument(metavar="FILE", help="JSON; - is what is piped in.")]
) -> None:
    """Check whether a file is a valid template."""
    request = request_of(context)
    request.manager.templates.require_valid("template", _text_of(file))
    request.print_result("message", f"{file} is valid")


@templates.command("show")
def show_template(
    context: typer.Context,
    name: Template,
    *,
    resolved: Annotated[bool, typer.Option("--resolved", help="With all that it extends.")] = False,
) -> None:
    """Show a template as JSON."""
    registry = request_of(context).manager.templates
    print_json(registry.resolved(name)[0] if resolved else registry.read(name))


@templates.command("delete")
def delete_template(context: typer.Context, name: Template) -> None:
    """Delete one of your own templates; environments created from it are not changed."""
    request = request_of(context)
    request.manager.templates.delete(name)
    request.print_result("message", f"Template '{name}' deleted")


@profiles.command("list")
def list_profiles(context: typer.Context) -> None:
    """List the resource profiles (limits for memory, processors and disk) as JSON."""
    folder = request_of(context).manager.layout.profiles
    print_json([{"name": name, **profile_of(name, folder)} for name in profile_names(folder)])


@profiles.command("show")
def show_profile(context: typer.Context, name: Annotated[str, typer.Argument(metavar="PROFILE")]) -> None:
    """Show a resource profile as JSON."""
    print_json({"name": name, **profile_of(name, request_of(context).manager.layout.profiles)})


# The commands of ``dev_env`` that run something in an environment: its streams are those of the terminal or pipe.


# 64 KiB, the capacity of a pipe on Linux.
_CHUNK_SIZE = 1 << 16
# Exit code of a process that SIGKILL has ended.
_KILLED = -9
# 141: the code of a program that is ended by SIGPIPE.
_UNREAD = 128 + signal.SIGPIPE
# `exec` replaces the shell that looks for bash, so that only one shell runs.
_SHELL = "if command -v bash >/dev/null; then exec bash -i; else exec sh -i; fi"
jobs = typer.Typer(no_args_is_help=True, help="Work with background commands (execute --detach).")
Job = Annotated[str, typer.Argument(metavar="JOB")]
User = Annotated[str | None, typer.Option(metavar="USER", help="As whom it runs in a container.")]


def execute(
    context: typer.Context,
    environment: Environment,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="One text; behind -- a program's words.")],
    *,
    timeout: Annotated[
        float | None, number_option(metavar="SECONDS", allowed=SOME_SECONDS, help="Then it is ended.")
    ] = None,
    cwd: Annotated[str | None, typer.Option(metavar="FOLDER", help="Where it runs.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="A variable.")] = None,
    user: User = None,
    tty: Annotated[bool, typer.Option("--tty", help="Run it in a terminal.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run it in the background, and print the id of its job.")
    ] = False,
    no_start: Annotated[bool, typer.Option("--no-start", help="Fail if it is stopped.")] = False,
    passthrough: Annotated[
        bool,
        typer.Option(
            "--passthrough", envvar=PASSTHROUGH, help="Exit with its own status; 120 is added to dev_env's codes."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a command in an environment; it reads the standard input of this command."""
    request = request_of(context)
    variables = parse_pairs(env or [])
    # `execute dev ls -l` would take `-l` for an option of dev_env.
    if not has_separator(context) and len(command) > 1:
        raise DevEnvError(f"{len(command)} words are not a command: quote them as one, or write -- before them")
    # A text is run by a shell; behind `--`, the words are started as they are.
    command_line = command if has_separator(context) else command[0]
    seconds = math.inf if timeout is None else timeout
    if detach:
        if tty or no_start:
            raise DevEnvError("--detach goes with neither --tty nor --no-start: leave out one")
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


def shell(context: typer.Context, environment: Environment, *, user: User = None) -> None:
    """Start a shell in an environment; standard input that is not a terminal is run as a script."""
    request = request_of(context)
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


def cp(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="One of both is ENVIRONMENT:PATH.")],
) -> None:
    """Copy a file or folder into an environment or out of it, and print the target path."""
    request = request_of(context)
    source_environment, source_path = _split_place(source)
    target_environment, target_path = _split_place(target)
    if (source_environment is None) == (target_environment is None):
        raise DevEnvError(f"cp {source} {target}: one of both must be ENVIRONMENT:PATH, and the other of this machine")
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


@jobs.command("list")
def list_jobs(context: typer.Context, environment: Environment) -> None:
    """List the jobs of an environment as JSON, the oldest first."""
    print_json(request_of(context).manager.jobs(environment).records())


@jobs.command("output")
def show_job(context: typer.Context, environment: Environment, job: Job) -> None:
    """Print the output of a job so far, its stdout on stdout and its stderr on stderr."""
    # As bytes, because output need not be text.
    out, err = request_of(context).manager.jobs(environment).output(job)
    for path, stream in ((out, sys.stdout), (err, sys.stderr)):
        with path.open("rb") as file:
            shutil.copyfileobj(file, stream.buffer)
        stream.flush()


@jobs.command("kill")
def kill_job(context: typer.Context, environment: Environment, job: Job) -> None:
    """End a job and all processes that it has started."""
    request = request_of(context)
    was_running = request.manager.jobs(environment).kill(job)
    request.print_result("message", f"Job '{job}' {'killed' if was_running else 'had ended'}")


# The commands of ``dev_env`` about the root as a whole: begin one, look after it, see what was done.


def init(context: typer.Context) -> None:
    """Create the root folder with its folders for templates, profiles and secrets, and print its path."""
    request = request_of(context)
    request.manager.layout.make()
    request.print_result("path", str(request.manager.layout.root))


def gc(
    context: typer.Context,
    *,
    idle: Annotated[
        float | None,
        number_option(metavar="SECONDS", allowed=SECONDS, help="Stop environments that were not used for so long."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
) -> None:
    """Remove expired environments, incomplete ones, and leftovers in the container engine; print them as JSON."""
    request = request_of(context)
    print_json([row._asdict() for row in request.run(request.manager.collect(idle=idle, dry=dry_run))])


def doctor(context: typer.Context) -> None:
    """Check whether this machine has what environments need, and print JSON; exit code 1 if something must be fixed."""
    request = request_of(context)
    checks = request.run(check_machine(request.manager.layout))
    is_fine = all(check["ok"] for check in checks if check["required"])
    print_json({"ok": is_fine, "checks": checks})
    if not is_fine:
        raise typer.Exit(1)


def events(
    context: typer.Context,
    environment: Annotated[str | None, typer.Argument(metavar="[ENVIRONMENT]", help="By default all.")] = None,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print new lines until it is interrupted.")] = False,
) -> None:
    """Print the log of all operations, one JSON object a line: time, level, message, command, environment, exit_code,
    duration.
    """
    manager = request_of(context).manager
    print_lines(lambda: manager.events(environment), follow=follow)


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
app.command("execute")(execute)
app.command("shell")(shell)
app.command("cp")(cp)
app.add_typer(jobs, name="job")
app.command("init")(init)
app.command("gc")(gc)
app.command("doctor")(doctor)
app.command("events")(events)
app.command("save")(save)
app.command("restore")(restore)
app.add_typer(checkpoints, name="checkpoint")
app.add_typer(templates, name="template")
app.add_typer(profiles, name="profile")


def _version(is_requested: bool) -> None:  # noqa: FBT001 - typer hands over what was written
    if is_requested:
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
        number_option(
            envvar="DEV_ENV_WAIT",
            metavar="SECONDS",
            allowed=SECONDS,
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
    """Read the global options, and store them as the `DevEnvRequest` that the chosen command uses. Runs before every
    command.
    """
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
        number_option(
            metavar="SECONDS", allowed=SOME_SECONDS, help="Then the creation is aborted, and the environment removed."
        ),
    ] = None,
    expires: Annotated[
        float | None,
        number_option(metavar="SECONDS", allowed=SECONDS, help="When gc may remove it; by default never."),
    ] = None,
    fallback: Annotated[
        bool, typer.Option("--fallback", help="Without an engine, use the template's next section.")
    ] = False,
    install_tools: Annotated[
        bool, typer.Option("--install-tools", help="Install the template's tools where it is known how.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print with what it would be made.")] = False,
) -> None:
    """Create an environment from a template, and print its folder."""
    if pull not in (NEVER, MISSING, ALWAYS):
        raise DevEnvError(f"--pull {pull}: use {NEVER}, {MISSING} or {ALWAYS}")
    request = request_of(context)
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
    """List the environments with their states as JSON."""
    request = request_of(context)
    coroutine = request.manager.list(
        status_option or status, tenant_option or tenant, owner=owner, all_tenants=all_tenants, usage=usage
    )
    print_json(request.run(coroutine))


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
    """Remove an environment; folders that existed before it stay."""
    request = request_of(context)
    if every == (environment is not None):
        raise DevEnvError("destroy takes the name of one environment, or --all")
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


@app.command()
def start(context: typer.Context, environment: Environment) -> None:
    """Start an environment."""
    request = request_of(context)
    request.run(request.manager.start(environment))
    request.print_result("message", f"Environment '{environment}' started")


@app.command()
def stop(context: typer.Context, environment: Environment) -> None:
    """Stop an environment and its commands; the next command starts it again."""
    request = request_of(context)
    request.run(request.manager.stop(environment))
    request.print_result("message", f"Environment '{environment}' stopped")


@app.command()
def restart(context: typer.Context, environment: Environment) -> None:
    """Stop an environment, and start it again."""
    request = request_of(context)
    request.run(request.manager.stop(environment))
    request.run(request.manager.start(environment))
    request.print_result("message", f"Environment '{environment}' restarted")


@app.command()
def inspect(context: typer.Context, environment: Environment) -> None:
    """Show the state, the configuration and the checkpoints of an environment as JSON."""
    request = request_of(context)
    print_json(request.run(request.manager.inspect(environment)))


@app.command()
def resources(context: typer.Context, environment: Environment) -> None:
    """Show what an environment uses now, its limits, and how they are enforced, as JSON."""
    request = request_of(context)
    print_json(request.run(request.manager.resources(environment)))


@app.command()
def logs(
    context: typer.Context,
    environment: Environment,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print new lines until it is interrupted.")] = False,
) -> None:
    """Print the log of an environment."""
    manager = request_of(context).manager
    print_lines(lambda: manager.logs(environment), follow=follow)


def main() -> None:
    """Run the command ``dev_env`` and exit."""
    # A grammar of web addresses that jsonschema loads takes four times as long as all else, for formats no template has
    # (test_a_command_loads_no_grammars).
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    run_with_streams(lambda: app(prog_name="dev_env"))
