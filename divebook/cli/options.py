"""Arguments and options that several commands share, and the command ``divebook inbox``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from divebook.cli.output import as_json, note, one_line, say, secrets, write
from divebook.commands.inspection import awaited_signals_of
from divebook.errors import StoreError, shown_number
from divebook.questions.question import address_of, example_answer, examples_in_full, expected_answer, schema_in_words
from divebook.text.format import in_shell, local_time
from divebook.text.ranges import NumberRange

if TYPE_CHECKING:
    from divebook.environments.environment import Environment
    from divebook.questions import Question
    from divebook.runtime.run import Run


def number_option(*names: str, allowed: NumberRange, help: str, metavar: str = "N", **settings: Any) -> Any:
    """Return a command-line option whose value is a number in the range `allowed`. The lower limit is appended to its
    help text, for example ``As of event N. [N>=1]``.

    click's ``IntRange`` would show the limit too, but its errors do not have the wording of `divebook.text.ranges`.
    """

    def check(value: float | None) -> float | None:
        if value is not None and not allowed.fits(value):
            raise typer.BadParameter(f"it must be {allowed}, not {shown_number(value)}")
        return value

    if allowed.least is not None:
        sign = ">" if allowed.excludes_least else ">="
        help = f"{help}  [{metavar}{sign}{allowed.least:g}]"  # noqa: A001 - as in `typer.Option`
    return typer.Option(*names, metavar=metavar, callback=check, help=help, **settings)


ExecutionId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the execution; its beginning is enough if unique.")
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="Where executions are kept, a file or a postgresql:// URL; default: $DIVEBOOK_STORE, else "
        ".divebook/executions.db.",
    ),
]
Durability = Annotated[
    Literal["full", "relaxed"] | None,
    typer.Option(
        "--durability",
        help="full: every event survives a power failure. relaxed: faster, a power failure may take the latest ones.",
    ),
]
Answer = Annotated[
    list[str] | None,
    typer.Option(
        "--answer",
        metavar="STEP=VALUE",
        help="An answer up front, for the questions of a step, its second one (STEP:2=...), or one by id; "
        "STEP:=JSON for data. Also in $DIVEBOOK_ANSWERS, as YAML.",
    ),
]
AnswersFile = Annotated[
    Path | None, typer.Option("--answers", metavar="FILE", help="Answers up front: YAML that maps steps to answers.")
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="The model of all agents: provider:model, or scripted (offline)."),
]
VariablesChanged = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A variable from there on, in YAML; may be repeated."),
]
InputsChanged = Annotated[
    list[str] | None,
    typer.Option("--input", "-v", metavar="NAME=VALUE", help="An input from there on, in YAML; may be repeated."),
]
AnswersChanged = Annotated[
    list[str] | None,
    typer.Option("--answer", metavar="QUESTION=VALUE", help="Another answer to a question, by its id."),
]
ResultsChanged = Annotated[
    list[str] | None,
    typer.Option("--result", metavar="OPERATION=VALUE", help="Another result of a call, by its id."),
]
PromptsChanged = Annotated[
    list[str] | None,
    typer.Option("--prompt", metavar="STEP=TEXT", help="Another prompt of a step; may be repeated."),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="A tag to find it by (divebook runs --tag); may be repeated."),
]
Note = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="A note to keep with it.")]
OnConflict = Annotated[
    Literal["warn", "refuse", "return"],
    typer.Option("--on-conflict", help="What to do where the run that has the key was started with other inputs."),
]
BoundsText = Annotated[
    str | None,
    typer.Option("--bounds", metavar="NAME=N,...", help="What it may spend: max_cost=2.50,max_llm_calls=40."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Fail, with exit code 1, if it has to wait for an answer.")]
Waits = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        help="Wait until a question with a Default expires, or return at once; by default it waits where it cannot ask "
        "a person, since its input is not a terminal.",
    ),
]
By = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Your name, for the log; default: you@this-machine.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Actions = Annotated[
    list[str] | None,
    typer.Option("--actions", "-a", metavar="MODULE|FILE.py", help="Python that defines actions; may be repeated."),
]
Code = Annotated[
    bool, typer.Option("--code", help="Run the cells of a notebook that define in Python, and those they need.")
]
Agents = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE|FOLDER", help="Definitions with the agents the workflow needs; its own steps are in the log."
    ),
]


# --- ``divebook inbox``: executions that wait for an answer or a signal, with the commands that provide it -----------

_SELF_CONTAINED = ("script", "wait", "interrupt")
"""Types of steps for which a log alone is enough to resume, without a file of definitions."""


def inbox(store: Store = None, *, json: Json = False) -> None:
    """List everything that waits for a person: questions and signals."""
    from divebook.cli.project import existing_environment
    from divebook.projections.summary import badge_of

    environment = existing_environment(store)
    waiting = list(_readable(environment))
    # The secrets of all executions must be known before anything is printed.
    for execution in waiting:
        secrets.learn(execution.state.inputs)
    if json:
        questions = [_facts(execution.id, question) for execution in waiting for question in execution.interrupts]
        write(as_json(questions, indent=2))
        return
    # The printed commands repeat the store.
    again = [] if store is None else ["--store", store]
    has_commands = False
    for execution in waiting:
        # The label names a what-if or a trial as such.
        run = f"{badge_of(environment.store.record(execution.id))} {execution.id}".lstrip()
        for question in execution.interrupts:
            for line in _description(run, question):
                say(line)
        for awaited in awaited_signals_of(execution):
            say(f"{awaited}  {execution.id}, step {awaited.step}")
        # A file is only named where the log alone is not enough.
        for line in ways_on(execution, [*_file_of(execution, environment), *again]):
            has_commands = True
            note(line, "yellow")
    if not has_commands:
        note("no questions, and nothing waits for a signal")


def _file_of(execution: Run, environment: Environment) -> list[str]:
    """Return ``["FILE"]`` if the printed ``resume`` command of an execution needs a file of definitions, else an empty
    list. The file is needed if steps call actions that `environment` does not have, because a log contains the
    workflow, but not its agents and functions. ``FILE`` is a placeholder that the person replaces.
    """
    outside = [step for step in execution.workflow.steps if step.type not in _SELF_CONTAINED]
    return ["FILE"] if any(step.action not in environment.actions for step in outside) else []


def _readable(environment: Environment) -> Iterator[Run]:
    """Yield the executions of a store that have not ended. If the log of an execution is damaged, report it on stderr
    and skip the execution.
    """
    # One damaged log must not hide the questions of the others.
    for record in environment.store.unended():
        try:
            execution = environment.run_of(record.execution_id)
            damage = execution.damage
        # The first read of a log may raise, or only note the damage.
        except StoreError as error:
            damage = error
            execution = None
        if execution is not None and damage is None:
            yield execution
        else:
            note(f"execution {record.execution_id} is left out: {damage}", "bold red")


def _facts(execution_id: str, question: Question) -> dict[str, Any]:

    names = {"execution": execution_id, "interrupt_id": question.id, "address": address_of(execution_id, question)}
    return {**names, **question._asdict()}


def _description(run: str, question: Question) -> Iterator[str]:
    """Yield the lines that describe a question of an execution in a terminal; `run` is the label of the execution."""
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
        yield f"  {'may come with it' if examples else 'asks for'}: {one_line(schema_in_words(question.schema), 200)}"
        yield from (f"  for instance: {one_line(example, 400)}" for example in examples)
    if question.expires_at is not None:
        yield f"  expires {local_time(question.expires_at)}"


def ways_on(execution: Run, again: Sequence[str]) -> Iterator[str]:
    """Yield one line for each open question and awaited signal of an execution, with the shell command that answers or
    sends it. Yield nothing if the execution has ended.

    `again` contains the file and the options of the present command; the printed commands repeat them.
    """
    if execution.state.is_over:
        return
    for question in execution.interrupts:
        words = [address_of(execution.id, question), example_answer(question)]
        yield f"to answer with {expected_answer(question)}: {command('answer', words, again)}"
    for awaited in awaited_signals_of(execution):
        yield f"to send {awaited}: {command('signal', [execution.id, awaited.name], again)}"


def command(verb: str, words: Sequence[str], again: Sequence[str]) -> str:
    """Return the text of a ``divebook`` shell command that a person can run next. `verb` is its subcommand, such as
    ``resume``. `again` contains the file and the options of the command that is running now, which the next command
    must repeat.
    """
    # The file is the first entry, if there is one; options begin with a dash.
    files = [] if not again or again[0].startswith("-") else [again[0]]
    payload = ["null"] if verb == "signal" and files else []  # the file comes after it
    return in_shell(verb, [*words, *payload, *files], again[len(files) :])
