"""``divebook inbox``: the questions that wait for an answer, and the commands that give it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from divebook.cli.options import Json, Store

if TYPE_CHECKING:
    from divebook.questions import Question


def inbox(store: Store = None, *, json: Json = False) -> None:
    """List the questions that wait for an answer."""
    from divebook.cli.project import existing_store
    from divebook.cli.screen import note, say, write
    from divebook.cli.text import as_json, secrets
    from divebook.environment import Environment
    from divebook.questions.wording import address_of

    environment = Environment(store=existing_store(store))
    asked = environment.interrupts()
    for execution in {execution for execution, _ in asked}:
        secrets.learn(environment.execution(execution).state.inputs)
    if json:
        write(
            as_json(
                [
                    {
                        "execution": execution,
                        "interrupt_id": question.id,
                        "address": address_of(execution, question),
                        **question._asdict(),
                    }
                    for execution, question in asked
                ],
                indent=2,
            )
        )
    elif not asked:
        note("no questions")
    again = [] if store is None else ["--store", store]
    for execution, question in asked if not json else ():
        for line in _described(execution, question):
            say(line)
        for line in commands([question], again):
            note(line, "yellow")


def _described(execution_id: str, question: Question) -> Iterator[str]:
    from divebook.cli.text import as_json, one_line
    from divebook.questions.wording import schema_in_words
    from divebook.text.times import local_time

    yield f"{question.id}  {question.kind}  {execution_id}, step {one_line(question.step, 60)}"
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
        yield f"  asks for: {one_line(schema_in_words(question.schema), 200)}"
    if question.expires_at is not None:
        yield f"  expires {local_time(question.expires_at)}"


def commands(questions: Iterable[Question], again: Sequence[str]) -> Iterator[str]:
    """Yield for each question the command that answers it; `again` is what that needs beside the answer."""
    from divebook.questions.wording import example_answer, wanted_answer

    for question in questions:
        words = ["divebook", "answer", question.id, example_answer(question), *again]
        yield f"to answer with {wanted_answer(question)}: {shlex.join(words)}"
