"""The commands of ``dev_env`` that run something in an environment: its streams are those of the terminal or pipe."""

from __future__ import annotations

import asyncio
import io
import math
import os
import shutil
import signal
import sys
import termios
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tty import setraw
from typing import Annotated, Any

import typer

from divebook.cli.dev_env_options import (
    PASSTHROUGH,
    DevEnvRequest,
    Environment,
    above_zero,
    asked,
    is_separated,
    pairs,
    print_json,
)
from divebook.cli.screen import note
from divebook.devenv.exit_codes import FAILED
from divebook.errors import DevEnvError, ShellTimeoutError
from divebook.workspace.shell import ShellResult

_PIECE = 1 << 16
_KILLED = -9
_UNREAD = 128 + signal.SIGPIPE
_SHELL = "if command -v bash >/dev/null; then exec bash -i; else exec sh -i; fi"
jobs = typer.Typer(no_args_is_help=True, help="Work with commands that go on (execute --detach).")
Job = Annotated[str, typer.Argument(metavar="JOB")]
User = Annotated[str | None, typer.Option(metavar="USER", help="As whom it runs in a container.")]


def execute(
    context: typer.Context,
    environment: Environment,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="One text; behind -- a program's words.")],
    *,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", callback=above_zero, help="Then it is ended.")
    ] = None,
    cwd: Annotated[str | None, typer.Option(metavar="FOLDER", help="Where it runs.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="A variable.")] = None,
    user: User = None,
    tty: Annotated[bool, typer.Option("--tty", help="Run it in a terminal.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Let it go on, and print the id of its job.")] = False,
    no_start: Annotated[bool, typer.Option("--no-start", help="Fail if it is stopped.")] = False,
    passthrough: Annotated[
        bool,
        typer.Option(
            "--passthrough", envvar=PASSTHROUGH, help="Exit with its own status; 120 is added to dev_env's codes."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what it came to as JSON.")] = False,
) -> None:
    """Run a command in an environment; what is piped in comes as it is."""
    one, variables = asked(context), pairs(env or [])
    if not is_separated(context) and len(command) > 1:
        raise DevEnvError(f"{len(command)} words are no command: quote them as one, or write -- before them")
    wanted = command if is_separated(context) else command[0]
    seconds = math.inf if timeout is None else timeout
    if detach:
        if tty or no_start:
            raise DevEnvError("--detach goes with neither --tty nor --no-start: leave out one")
        one.tell("job", one.manager.detach(environment, wanted, timeout=seconds, environ=variables, cwd=cwd, user=user))
        return
    is_json = as_json or one.as_json
    options = {"timeout": seconds, "cwd": cwd, "environ": variables, "user": user, "start": not no_start}
    try:
        ended = _ended(one, environment, wanted, options, in_terminal=tty, is_shown=not is_json)
    except ShellTimeoutError as error:
        if is_json:
            late = ShellResult(_KILLED, error.stdout, error.stderr)
            late.timed_out, late.duration = True, error.timeout
            _print_result(late)
        raise
    if is_json:
        _print_result(ended)
    _exit(ended, passthrough=passthrough)


def _print_result(ended: ShellResult) -> None:
    told = {"exit_code": ended.exit_code, "stdout": ended.stdout, "stderr": ended.stderr}
    duration = round(ended.duration * 1000)
    print_json({**told, "duration_ms": duration, "timed_out": ended.timed_out, "truncated": ended.truncated})


def shell(context: typer.Context, environment: Environment, *, user: User = None) -> None:
    """Work in an environment with a shell; what is piped in is a script."""
    one, is_typed = asked(context), sys.stdin.isatty()
    ended = _ended(one, environment, _SHELL if is_typed else "exec sh", {"user": user}, in_terminal=is_typed)
    _exit(ended, passthrough=False)


def _ended(
    one: DevEnvRequest,
    environment: str,
    command: str | list[str],
    options: Mapping[str, Any],
    *,
    in_terminal: bool,
    is_shown: bool = True,
) -> ShellResult:
    """Run a command with the streams of this process; return what it came to."""
    size = shutil.get_terminal_size()
    with _untouched(in_terminal):
        return one.run(
            one.manager.execute(
                environment,
                command,
                stdin=_given(),
                listen=_hand_on if is_shown else None,
                undecodable="surrogateescape",
                terminal=(size.lines, size.columns) if in_terminal else None,
                **options,
            )
        )


def _exit(ended: ShellResult, *, passthrough: bool) -> None:
    if ended.exit_code:
        note(f"dev_env: command exited with status {ended.exit_code}")
        status = ended.exit_code if ended.exit_code > 0 else 128 - ended.exit_code
        raise typer.Exit(status if passthrough else FAILED)


@contextmanager
def _untouched(in_terminal: bool) -> Iterator[None]:  # noqa: FBT001 - the one thing it is asked
    """Have our own terminal hand on each key as it is, since the command has one of its own."""
    if not in_terminal or not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(0)
    try:
        setraw(0, termios.TCSADRAIN)  # what was typed already stays
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _hand_on(stream: str, text: str) -> None:
    out = (sys.stderr if stream == "stderr" else sys.stdout).buffer
    try:
        out.write(text.encode(errors="surrogateescape"))
        out.flush()
    except BrokenPipeError:  # who reads has seen enough, as head does: the command ends as any would
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # for what Python still holds
        raise typer.Exit(_UNREAD) from None


async def _given() -> AsyncIterator[bytes]:
    """Give what is piped in or typed, as it comes."""
    try:
        end = sys.stdin.fileno()
    except (io.UnsupportedOperation, AttributeError, ValueError):  # it is closed, or belongs to a notebook or test
        yield b"" if sys.stdin is None else sys.stdin.buffer.read()
        return
    if _is_in_background(end):  # where a look at the terminal would stop us
        return
    while piece := await _next(end):
        yield piece


def _is_in_background(end: int) -> bool:
    try:
        return os.isatty(end) and os.tcgetpgrp(end) != os.getpgrp()
    except OSError:  # it is not the terminal that controls us
        return False


async def _next(end: int) -> bytes:
    """Return what can be read once there is something; nothing at its end."""
    loop = asyncio.get_running_loop()
    is_ready = asyncio.Event()
    try:
        loop.add_reader(end, is_ready.set)
    except PermissionError:  # a file, which never has to be waited for
        return os.read(end, _PIECE)
    try:
        await is_ready.wait()
    finally:
        loop.remove_reader(end)
    return os.read(end, _PIECE)


def cp(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="One of both is ENVIRONMENT:PATH.")],
) -> None:
    """Copy a file or folder into an environment or out of it, and print where it is."""
    one = asked(context)
    (inside, source_path), (outside, target_path) = _place(source), _place(target)
    if (inside is None) == (outside is None):
        raise DevEnvError(f"cp {source} {target}: one of both must be ENVIRONMENT:PATH, and the other of this machine")
    if inside is not None:
        one.tell("path", str(one.run(one.manager.copy_out(inside, source_path, Path(target_path)))))
    elif outside is not None:
        place = one.run(one.manager.copy_in(Path(source_path), outside, target_path))
        one.tell("path", f"{outside}:{place}")


def _place(written: str) -> tuple[str | None, str]:
    """Return the environment, None for this machine, and the path there."""
    name, colon, path = written.partition(":")
    return (name, path or ".") if colon and "/" not in name else (None, written)


@jobs.command("list")
def list_jobs(context: typer.Context, environment: Environment) -> None:
    """Print the jobs of an environment as JSON, the oldest first."""
    print_json(asked(context).manager.jobs(environment).listed())


@jobs.command("output")
def show_job(context: typer.Context, environment: Environment, job: Job) -> None:
    """Print what a job has printed so far, each stream where it belongs."""
    out, err = asked(context).manager.jobs(environment).output(job)
    for path, stream in ((out, sys.stdout), (err, sys.stderr)):
        with path.open("rb") as file:
            shutil.copyfileobj(file, stream.buffer)
        stream.flush()


@jobs.command("kill")
def kill_job(context: typer.Context, environment: Environment, job: Job) -> None:
    """End a job, with all that it has started."""
    one = asked(context)
    was_running = one.manager.jobs(environment).kill(job)
    one.tell("message", f"Job '{job}' {'killed' if was_running else 'had ended'}")
