"""``divebook run``, ``fork``, ``answer`` and ``signal``: carry an execution out and wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from divebook.cli.interrupts import INTERRUPTED
from divebook.cli.options import (
    Actions,
    Agents,
    Answer,
    AnswersChanged,
    AnswersFile,
    BoundsText,
    By,
    Code,
    Durability,
    ExecutionId,
    InputsChanged,
    Json,
    ModelName,
    Note,
    OnConflict,
    PromptsChanged,
    Quiet,
    ResultsChanged,
    Store,
    Strict,
    Tags,
    VariablesChanged,
    Waits,
    within,
)
from divebook.cli.questions import command, ways_on
from divebook.cli.screen import note
from divebook.cli.text import secrets
from divebook.cli.waiting import finish, with_children
from divebook.dialects import OWN, Dialect
from divebook.errors import (
    DefinitionError,
    ExecutionNotFoundError,
    KeptError,
    NotFoundError,
    SetupError,
)
from divebook.events.catalog import WAITING
from divebook.text.ranges import INTEGER
from divebook.text.shown import plural

STRICT, WAITS = 1, 3
"""Exit codes of what has to wait: where it may not, and where it may."""

if TYPE_CHECKING:
    from divebook.environment import Environment
    from divebook.execution.execution import Execution
    from divebook.starting import StartOptions


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="Definitions: YAML, JSON, a notebook or Python.")],
    *,
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", metavar="NAME", help="The workflow to run.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-v", metavar="KEY=VALUE", help="An input; KEY:=JSON for lists and maps."),
    ] = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    durability: Durability = None,
    bounds: BoundsText = None,
    model: ModelName = None,
    tag: Tags = None,
    note: Note = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="With a key it is started once, however often asked.")
    ] = None,
    on_conflict: OnConflict = "warn",
    answer: Answer = None,
    answers: AnswersFile = None,
    wait: Waits = None,
    strict: Strict = False,
    dialect: Annotated[Dialect, typer.Option(help="dive: as the old system read it.")] = OWN,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a workflow and print its result.

    If it has to wait for an answer it ends with exit code 3, and says which command answers. Without a terminal it
    waits for a question that has ExpiresIn and Default, and continues with the Default once the question expires;
    --no-wait returns at once. Ctrl-C cancels the run in such a way that it can be resumed.
    """
    from divebook.cli.progress import make_progress
    from divebook.cli.project import choose_workflow, inputs_from, open_environment, take_in
    from divebook.config.answers import answers_from, bounds_from

    given, limits = inputs_from(inputs or ()), bounds_from(bounds)
    secrets.learn(given)
    known = answers_from(answer or (), answers)
    with make_progress(quiet=quiet) as progress:
        environment = open_environment(store, actions or (), progress.print)
        take_in(environment, file, dialect, code=code)
        chosen = choose_workflow(environment, workflow, file)
        options: StartOptions = {
            "coerce_text": True,
            "durability": durability,
            "bounds": limits,
            "model": model,
            "tags": tag,
            "note": note,
            "key": key,
            "on_conflict": on_conflict,
        }
        started = partial(environment.start, chosen, given, **options)
        ended = finish(started, environment, progress, known, waits=wait)
    conclude(*ended, [str(file), *said_again(actions, store, code=code)], json=json, strict=strict)


def fork(
    execution_id: ExecutionId,
    file: Agents = None,
    *,
    at: Annotated[
        int | None,
        typer.Option(
            "--at",
            metavar="N",
            callback=within(INTEGER),
            help="The last event it shares; else all before what changes.",
        ),
    ] = None,
    variables: VariablesChanged = None,
    inputs: InputsChanged = None,
    answer: AnswersChanged = None,
    result: ResultsChanged = None,
    prompt: PromptsChanged = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    model: ModelName = None,
    strict: Strict = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on from an event of an execution, as a new one.

    It shares the events up to there; the other one stays as it is. show ID --events has numbers and ids.
    """
    from divebook.cli.progress import make_progress
    from divebook.cli.project import existing_store, open_environment, take_in
    from divebook.config.changed_words import change_from

    existing_store(store)
    change = change_from(variables or (), inputs or (), answer or (), result or (), prompts=prompt or ())
    secrets.learn(change.variables, change.inputs)
    with make_progress(quiet=quiet) as progress:
        environment = open_environment(store, actions or (), progress.print)
        if file is not None:
            take_in(environment, file, environment.execution(execution_id).workflow.dialect, code=code)
        begin = partial(environment.fork, execution_id, at, change, model=model)
        forked = partial(with_file_named, begin, "fork", file)
        ended = finish(forked, environment, progress)
    names = [] if file is None else [str(file)]
    conclude(*ended, [*names, *said_again(actions, store, code=code)], json=json, strict=strict)


def answer(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question, as inbox names it.")],
    response: Annotated[
        str, typer.Argument(metavar="ANSWER", help="A text, yes or no, a number, data in YAML or JSON: as inbox says.")
    ],
    file: Agents = None,
    *,
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON", help="With done: what the call returned.")
    ] = None,
    as_: Annotated[
        Literal["auto", "text", "json"],
        typer.Option("--as", help="How ANSWER is read; auto: as data where the question asks for data, else as text."),
    ] = "auto",
    alike: Annotated[
        bool, typer.Option("--alike", help="The same answer for all open questions that the step asks alike.")
    ] = False,
    by: By = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Answer a question and resume its execution.

    A no may say why: "no: not today". In full, an answer may bring what the question takes, as inbox shows it: other
    arguments, '{approved: true, data: {parameters: {host: h9}}}', or a rule that allows more calls like this one,
    '{approved: true, data: {rule: {scope: always}}}'.
    """
    from divebook.config.answers import typed_answer

    given = typed_answer(response, as_, result)

    def send(environment: Environment) -> Execution:
        if not alike:
            return environment.answer(question, given, by=by)
        first, *others = environment.answer_alike(question, given, by)
        for other in others:
            other.wait()
        if others:
            note(f"the same answer lets {plural(len(others), 'other run')} go on")
        return first

    _carry_on(send, file, actions, store, code=code, json=json, quiet=quiet)


def signal(
    execution_id: ExecutionId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signal, as the step has it.")],
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="In YAML or JSON; plain words are a text.")
    ] = None,
    file: Agents = None,
    *,
    by: By = None,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Send a signal to an execution and resume it."""
    from divebook.engine.waiting import kept_until_taken
    from divebook.workflow.yaml_value import value_typed

    given = None if payload is None else value_typed(payload)

    def send(environment: Environment) -> Execution:
        if (text := kept_until_taken(environment.execution(execution_id).state, name)) is not None:
            note(text)
        return environment.signal(execution_id, name, given, by)

    _carry_on(send, file, actions, store, code=code, json=json, quiet=quiet)


def _carry_on(
    send: Callable[[Environment], Execution],
    file: Path | None,
    actions: list[str] | None,
    store: str | None,
    *,
    code: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Send something to an execution, wait for what becomes of it and print that."""
    from divebook.cli.progress import make_progress
    from divebook.cli.project import existing_store, open_environment, take_in

    existing_store(store)
    again = [*([] if file is None else [str(file)]), *said_again(actions, store, code=code)]
    try:
        with make_progress(quiet=quiet) as progress:
            environment = open_environment(store, actions or (), progress.print)
            if file is not None:
                take_in(environment, file, code=code)
            ended = finish(lambda: send(environment), environment, progress)
    except KeptError as kept:
        note(str(kept), "yellow")
        needed = again if file is not None else ["FILE", *again]
        note(f"to go on: {command('resume', [kept.execution_id], needed)}", "yellow")
        raise typer.Exit(WAITS) from kept
    conclude(*ended, again, json=json)


def with_file_named(begin: Callable[[], Execution], command_name: str, file: Path | None) -> Execution:
    """Begin something; where what it needs is not there, say to name its file."""
    try:
        return begin()
    except ExecutionNotFoundError:
        raise
    except (DefinitionError, NotFoundError) as error:
        if file is not None:
            raise
        raise SetupError(
            f"{error}. A log holds the workflow, not agents and actions: "
            f"name their file (divebook {command_name} ID FILE) or --actions"
        ) from error


def said_again(actions: Sequence[str] | None, store: str | None, *, code: bool) -> list[str]:
    """Return the options that a resumption needs again."""
    named = ["--code"] if code else []
    named += [part for source in actions or () for part in ("--actions", source)]
    return [*named, *(("--store", store) if store else ())]


def conclude(
    execution: Execution,
    interrupted: bool,  # noqa: FBT001
    again: Sequence[str],
    *,
    json: bool,
    strict: bool = False,
) -> None:
    """Print the result, and how to go on if there is something to go on with; leave with the exit code."""
    from divebook.cli.result import print_result

    code = print_result(execution, json=json)
    is_kept, is_elsewhere = execution.store.keeps, not (execution.was_driven or execution.state.is_over)
    ways = [line for each in with_children(execution) for line in ways_on(each, again)] if is_kept else []
    for line in ways:
        note(line, "yellow")
    for each in with_children(execution):
        if each.is_blocked:
            note("the tool call that asks is cut off when this command ends; the answer is used when it is made again")
            each.leave()
    if is_elsewhere:
        code = WAITS
        look = command("show", [execution.id], again[-2:] if "--store" in again else ())
        note(
            f"it is kept; another process drives the execution and goes on with it. To see how it stands: {look}",
            "yellow",
        )
    elif code and is_kept and not ways:
        note(f"to go on: {command('resume', [execution.id], again)}", "yellow")
    if strict and execution.status == WAITING:
        note("error: it has to wait for an answer or a signal, which --strict does not allow", "bold red")
        code = STRICT
    raise typer.Exit(INTERRUPTED if code and interrupted else code)
