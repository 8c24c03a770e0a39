"""Numeric options; completion of values; lines that describe a question, and commands that answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from divebook.cli.output import as_json, one_line
from divebook.commands.command import Parameter, ParameterError, option
from divebook.commands.inspection import awaited_signals_of
from divebook.errors import DivebookError
from divebook.text.format import in_shell, local_time
from divebook.text.ranges import NumberRange

if TYPE_CHECKING:
    from divebook.environments.environment import Environment
    from divebook.questions import Question
    from divebook.runtime.run import Run
    from divebook.stores import EventStore


def number_option(*names: str, allowed: NumberRange, help: str, metavar: str = "N", **settings: Any) -> Any:
    """Return a typer option whose value is a number in the range `allowed`, with the same help and check as a number of
    a declared command.
    """
    parameter = option(*names, metavar=metavar, allowed=allowed, help=help)
    return typer.Option(*names, metavar=metavar, callback=range_check(parameter), help=parameter.help, **settings)


def range_check(parameter: Parameter) -> Callable[[Any], Any]:
    """Return a typer callback that refuses a value outside of the range of a parameter.

    click's ``IntRange`` would check it too, but its errors do not have the wording of `divebook.text.ranges`.
    """

    def check(value: Any) -> Any:
        problem = parameter.problem(value)
        if problem is not None:
            raise typer.BadParameter(f"it {problem}")
        return value

    return check


def number_parser(parameter: Parameter) -> Callable[[Any], Any]:
    """Return a typer parser of the number of a parameter, with the check of its range."""

    def parse(value: Any) -> Any:
        try:
            return parameter.read(str(value))
        except ParameterError as error:
            raise typer.BadParameter(f"it {error.problem}") from error

    return parse


# --- completion of values from the store of the command line ---------------------------------------------------------

MAX_RUNS = 50
"""Number of the newest runs whose ids are suggested."""
Suggestions: TypeAlias = Iterator[tuple[str, str]]
"""Values with a help text, which some shells show beside them."""


def _run_ids(store: EventStore) -> Suggestions:
    from divebook.projections.summary import Overview

    records = store.records(limit=MAX_RUNS)
    statuses = Overview(store).statuses(records)
    for record in records:
        yield record.execution_id, f"{record.workflow_name} {statuses[record.execution_id]}"


def _workflow_names(store: EventStore) -> Suggestions:
    yield from ((name, "") for name in dict.fromkeys(record.workflow_name for record in store.records()))


def _tags(store: EventStore) -> Suggestions:
    yield from ((tag, "") for tag in dict.fromkeys(tag for record in store.records() for tag in record.tags))


def _queues(store: EventStore) -> Suggestions:
    names = [entry.queue for withheld in (False, True) for entry in store.queued(withheld=withheld)]
    names += [name for worker in store.workers() for name in worker.queues]
    yield from ((name, "") for name in dict.fromkeys(names))


def _question_ids(store: EventStore) -> Suggestions:
    from divebook.environments.environment import Environment

    for _, question in Environment(store=store).inbox():
        yield question.id, one_line(question.question, 60)


_SUGGESTIONS: dict[str, Callable[[EventStore], Suggestions]] = {
    "run": _run_ids,
    "interrupted run": _run_ids,
    "workflow": _workflow_names,
    "tag": _tags,
    "queue": _queues,
    "question": _question_ids,
}
"""Values that completion suggests, by kind of the parameter."""


def completion_of(parameter: Parameter) -> Callable[..., Any] | None:
    """Return the function that completes the values of a parameter from the store of the command line; None if it has
    none to suggest.
    """
    source = _SUGGESTIONS.get(parameter.completes)
    if source is None:
        return None

    def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        from divebook.commands.store import existing_store

        # An error would be printed into the line that the person types.
        try:
            suggestions = list(source(existing_store(ctx.params.get("store"))))
        except (DivebookError, OSError):
            return []
        return [(value, text) for value, text in suggestions if value.startswith(incomplete)]

    return complete


# --- ``divebook inbox``: executions that wait for an answer or a signal, with the commands that provide it -----------

_SELF_CONTAINED = ("script", "wait", "interrupt")
"""Types of steps for which a log alone is enough to resume, without a file of definitions."""


def file_of(execution: Run, environment: Environment) -> list[str]:
    """Return ``["-d", "FILE"]`` if the printed ``resume`` command of a run needs a file of definitions, else an empty
    list. The file is needed if steps call actions that `environment` does not have, because a log contains the
    workflow, but not its agents and functions. ``FILE`` is a placeholder that the person replaces.
    """
    outside = [step for step in execution.workflow.steps if step.type not in _SELF_CONTAINED]
    return ["-d", "FILE"] if any(step.action not in environment.definitions.actions for step in outside) else []


def description(run: str, question: Question) -> Iterator[str]:
    """Yield the lines that describe a question of an execution in a terminal; `run` is the label of the execution."""
    from divebook.questions.question import examples_in_full, schema_in_words

    yield f"{question.id}  {question.kind}  {run}, step {one_line(question.step, 60)}"
    yield f"  {one_line(question.question, 400)}"
    if question.message:
        yield f"  {one_line(question.message, 400)}"
    # Choices are part of the data, but have a line of their own.
    choices = (question.data or {}).get("choices")
    if choices:
        yield f"  choices: {one_line(', '.join(map(str, choices)), 200)}"
    data = {key: value for key, value in (question.data or {}).items() if key != "choices"}
    if data:
        yield f"  data: {one_line(as_json(data), 400)}"
    if question.schema is not None:
        examples = examples_in_full(question)
        yield f"  {'optional data' if examples else 'expects'}: {one_line(schema_in_words(question.schema), 200)}"
        yield from (f"  example: {one_line(example, 400)}" for example in examples)
    if question.expires_at is not None:
        yield f"  expires {local_time(question.expires_at)}"


def ways_on(execution: Run, again: Sequence[str]) -> Iterator[str]:
    """Yield one line for each open question and awaited signal of an execution, with the shell command that answers or
    sends it. Yield nothing if the execution has ended.

    `again` contains the file and the options of the present command; the printed commands repeat them.
    """
    from divebook.questions.question import address_of, example_answer, expected_answer

    if execution.state.is_over:
        return
    for question in execution.open_questions:
        words = [address_of(execution.id, question), example_answer(question)]
        yield f"to answer with {expected_answer(question)}: {in_shell('answer', words, again)}"
    for awaited in awaited_signals_of(execution):
        yield f"to send {awaited}: {in_shell('signal', [execution.id, awaited.name], again)}"
