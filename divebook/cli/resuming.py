"""``divebook resume``: where a log ends, with a corrected definition, or in one of the ways to try again."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from divebook.cli.options import (
    Actions,
    Agents,
    Answer,
    AnswersFile,
    BoundsText,
    Code,
    ExecutionId,
    Json,
    Quiet,
    Store,
    Strict,
    Waits,
)
from divebook.cli.run import conclude, said_again, with_file_named
from divebook.cli.screen import note, say
from divebook.cli.waiting import finish
from divebook.errors import ExecutionError, SetupError
from divebook.events.catalog import COMPLETED

if TYPE_CHECKING:
    from collections.abc import Callable

    from divebook.cli.progress import Progress
    from divebook.environment import Environment
    from divebook.replay.going_on import ResumePlan
    from divebook.workflow.definition import Workflow


def resume(
    execution_id: ExecutionId,
    file: Agents = None,
    actions: Actions = None,
    store: Store = None,
    *,
    definition: Annotated[
        Literal["new"] | None,
        typer.Option("--definition", help="new: go on with the definition in FILE, as a new execution."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="With --definition: only say what would be reused and done, and its cost.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --definition: do not ask before it begins.")] = False,
    strategy: Annotated[
        Literal["from_start", "from_failure", "skip_failed"] | None,
        typer.Option("--strategy", help="How to try again; skip_failed: failed steps count as done, in a fork."),
    ] = None,
    code: Code = False,
    bounds: BoundsText = None,
    answer: Answer = None,
    answers: AnswersFile = None,
    wait: Waits = None,
    strict: Strict = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Resume an execution where its log ends.

    What completed is not run again. With --definition new it goes on with a corrected one, as a new execution, and says
    first what is reused, what is done and its likely cost. Prints the result, as run does.
    """
    from divebook.cli.progress import make_progress
    from divebook.cli.project import existing_store, open_environment, take_in
    from divebook.config.answers import answers_from, bounds_from

    _require_sense(definition, strategy, plan=plan, has_bounds=bounds is not None)
    existing_store(store)
    limits, known = bounds_from(bounds), answers_from(answer or (), answers)
    progress = make_progress(quiet=quiet)
    environment = open_environment(store, actions or (), progress.print)
    if strategy is None and environment.execution(execution_id).status == COMPLETED:
        raise ExecutionError(f"execution {execution_id} has completed; start a new one to run the workflow again")
    if file is not None:
        recorded = environment.execution(execution_id).workflow
        take_in(environment, file, recorded.dialect, code=code)
        if definition is None:
            _tell_of_changes(environment, recorded, progress)
    if definition is not None:
        found = environment.resume(execution_id, limits, definition=definition, plan=True)
        _show(found, tell=say if plan else note, asks=not (plan or yes))
    if plan:
        return
    with progress:
        resumed = partial(environment.resume, execution_id, limits, definition=definition)
        begin = resumed if strategy is None else partial(environment.retry, execution_id, strategy)
        ended = finish(partial(with_file_named, begin, "resume", file), environment, progress, known, waits=wait)
    names = [] if file is None else [str(file)]
    conclude(*ended, [*names, *said_again(actions, store, code=code)], json=json, strict=strict)


def _require_sense(definition: str | None, strategy: str | None, *, plan: bool, has_bounds: bool) -> None:
    if plan and definition is None:
        raise SetupError("--plan says what --definition new would do; give both")
    if strategy is not None and (definition is not None or has_bounds):
        raise SetupError("--strategy goes with neither --definition nor --bounds; leave those out")


def _show(found: ResumePlan, *, tell: Callable[[str], None], asks: bool) -> None:
    """Say what a resumption with another definition would do; ask whether it is to begin, where somebody can say."""
    for line in found.lines:
        tell(line)
    if asks and sys.stdin.isatty():
        typer.confirm("Go on?", abort=True, err=True)


def _tell_of_changes(environment: Environment, recorded: Workflow, progress: Progress) -> None:
    defined = environment.workflows.get(recorded.name)
    if defined is not None and defined.fingerprint != recorded.fingerprint:
        progress.print(
            f"workflow {recorded.name!r} has changed since; the execution keeps the definition it was started with. "
            "To go on with the new one: --definition new"
        )
