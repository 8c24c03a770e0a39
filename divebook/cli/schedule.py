"""``divebook schedule``: what is due when, and the start of what is due."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divebook.cli.options import Actions, Json, Store
from divebook.cli.screen import columns, say, section
from divebook.cli.text import as_json
from divebook.errors import InputError
from divebook.text.times import local_time

if TYPE_CHECKING:
    from divebook.config.schedules import Due
    from divebook.environment import Environment

RUN = "run"
USAGE = "write divebook schedule FILE, or divebook schedule run FILE"


def schedule(
    words: Annotated[list[str], typer.Argument(metavar="[run] FILE|FOLDER", help="Definitions with Schedules.")],
    *,
    actions: Actions = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List when schedules are due, or start what is due.

    `schedule run` starts the latest due time of each schedule, unless it was started before: by its start key, also
    from another process. Of due times that were missed, while the machine was off, only the latest one is made up for.
    Times are those of each schedule's Zone, by default of this machine.
    """
    is_run = len(words) == 2 and words[0] == RUN
    if len(words) != 1 + is_run:
        raise InputError(f"unexpected {' '.join(words)!r}; {USAGE}")
    file, now = Path(words[-1]), datetime.now().astimezone()
    if is_run:
        _start(file, now, actions or (), store)
    else:
        _list(file, now, actions or (), json=json)


def _list(file: Path, now: datetime, actions: list[str] | tuple[()], *, json: bool) -> None:
    from divebook.cli.project import open_environment, schedules_of, take_in
    from divebook.config.schedules import coming

    environment = open_environment("memory:", actions, say)
    take_in(environment, file)
    due = coming(schedules_of(environment, file), now)
    rows = [
        {"schedule": one.schedule, "workflow": one.workflow, "due": one.at.isoformat(), "key": one.key} for one in due
    ]
    if json:
        say(as_json(rows, indent=2))
        return
    if not rows:
        say("no schedule is active; add Schedules: [{Name: ..., Cron: ..., Workflow: ...}]")
        return
    columns(("schedule", "workflow", "due"), ([row["schedule"], row["workflow"], row["due"]] for row in rows))
    command = shlex.join([sys.executable, "-m", "divebook", "schedule", RUN, str(file.absolute())])
    place = shlex.quote(str(Path.cwd()))
    section(
        "to start them when they are due",
        [
            ("cron", f"* * * * * cd {place} && {command}"),
            ("systemd", f"systemd-run --user --on-calendar=minutely --working-directory={place} {command}"),
        ],
    )


def _start(file: Path, now: datetime, actions: list[str] | tuple[()], store: str | None) -> None:
    from divebook.cli.project import open_environment, schedules_of, take_in
    from divebook.config.schedules import latest

    environment = open_environment(store, actions, say)
    take_in(environment, file)
    definitions = schedules_of(environment, file)
    for due in latest(definitions, now):  # before anything is started
        environment.workflow(due.workflow)
    codes = [_begin(environment, due) for due in latest(definitions, now)]
    raise typer.Exit(max(codes, default=0))


def _begin(environment: Environment, due: Due) -> int:
    """Start one due time and wait for its end; what was started before is left alone."""
    if not due.is_new(environment.store, due.at):
        return 0
    if environment.store.records(key=due.key):  # by another process, at this moment
        due.see_to(environment.store)
        return 0
    execution = environment.start(due.workflow, due.inputs, key=due.key, note=f"due {local_time(due.at)}")
    due.see_to(environment.store)
    execution.wait()
    say(f"{due.key}  {execution.status}  {execution.id}")
    return 1 if execution.status == "failed" else 0
