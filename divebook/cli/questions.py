"""``divebook inbox``: what waits for an answer or a signal, and the commands that give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from divebook.cli.options import Json, Store
from divebook.cli.screen import note, say, write
from divebook.cli.text import as_json, one_line, secrets
from divebook.errors import StoreError
from divebook.questions.wording import address_of, example_answer, examples_in_full, schema_in_words, wanted_answer
from divebook.text.commands import in_shell
from divebook.text.times import local_time

if TYPE_CHECKING:
    from divebook.engine.waiting import AwaitedSignal
    from divebook.environment import Environment
    from divebook.execution.execution import Execution
    from divebook.questions import Question

_WHOLE = ("script", "wait", "interrupt")
"""Types of step that need nothing but what the log has of them."""


def inbox(store: Store = None, *, json: Json = False) -> None:
    """List what waits for a person: questions, and signals."""
    from divebook.cli.project import existing_environment
    from divebook.execution.overview import badge_of

    environment = existing_environment(store)
    waiting = list(_readable(environment))
    for execution in waiting:
        secrets.learn(execution.state.inputs)
    if json:
        write(as_json([_facts(found.id, question) for found in waiting for question in found.interrupts], indent=2))
        return
    again = [] if store is None else ["--store", store]
    told = False
    for execution in waiting:
        who = f"{badge_of(environment.store.record(execution.id))} {execution.id}".lstrip()
        for line in [line for question in execution.interrupts for line in _described(who, question)]:
            say(line)
        for awaited in awaited_signals_of(execution):
            say(f"{awaited}  {execution.id}, step {awaited.step}")
        for line in ways_on(execution, [*_file_of(execution, environment), *again]):
            told = True
            note(line, "yellow")
    if not told:
        note("no questions, and nothing waits for a signal")


def _file_of(execution: Execution, environment: Environment) -> list[str]:
    """Return what stands for the file without which an execution cannot go on: a log holds no agents and functions."""
    outside = [step for step in execution.workflow.steps if step.type not in _WHOLE]
    return ["FILE"] if any(step.action not in environment.actions for step in outside) else []


def _readable(environment: Environment) -> Iterator[Execution]:
    """Give what has not ended; a damaged execution is named, and hides no other."""
    for record in environment.store.unended():
        try:
            execution = environment.execution(record.execution_id)
            damage = execution.damage
        except StoreError as error:
            damage, execution = error, None
        if execution is not None and damage is None:
            yield execution
        else:
            note(f"execution {record.execution_id} is left out: {damage}", "bold red")


def _facts(execution_id: str, question: Question) -> dict[str, Any]:

    names = {"execution": execution_id, "interrupt_id": question.id, "address": address_of(execution_id, question)}
    return {**names, **question._asdict()}


def _described(who: str, question: Question) -> Iterator[str]:
    yield f"{question.id}  {question.kind}  {who}, step {one_line(question.step, 60)}"
    yield f"  {one_line(question.question, 400)}"
    if question.message:
        yield f"  {one_line(question.message, 400)}"
    choices = (question.data or {}).get("choices")
    if choices:
        yield f"  choices: {one_line(', '.join(map(str, choices)), 200)}"
    shown = {key: value for key, value in (question.data or {}).items() if key != "choices"}
    if shown:
        yield f"  data: {one_line(as_json(shown), 400)}"
    if question.schema is not None:
        examples = examples_in_full(question)
        yield f"  {'may come with it' if examples else 'asks for'}: {one_line(schema_in_words(question.schema), 200)}"
        yield from (f"  for instance: {one_line(example, 400)}" for example in examples)
    if question.expires_at is not None:
        yield f"  expires {local_time(question.expires_at)}"


def awaited_signals_of(execution: Execution) -> list[AwaitedSignal]:
    """Return the signals that an execution waits for, unless it has ended."""
    from divebook.engine.waiting import awaited_signals

    return [] if execution.state.is_over else awaited_signals(execution.state)


def ways_on(execution: Execution, again: Sequence[str]) -> Iterator[str]:
    """Yield the command for each question and signal that it waits for, `again` with the same file and options."""
    if execution.state.is_over:
        return
    for question in execution.interrupts:
        words = [address_of(execution.id, question), example_answer(question)]
        yield f"to answer with {wanted_answer(question)}: {command('answer', words, again)}"
    for awaited in awaited_signals_of(execution):
        yield f"to send {awaited}: {command('signal', [execution.id, awaited.name], again)}"


def command(verb: str, words: Sequence[str], again: Sequence[str]) -> str:
    """Return a command that takes the same file and options as the present one."""
    files = [] if not again or again[0].startswith("-") else [again[0]]
    payload = ["null"] if verb == "signal" and files else []  # the file comes after it
    return in_shell(verb, [*words, *payload, *files], again[len(files) :])
