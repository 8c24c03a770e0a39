"""``divebook inbox``: the questions that wait for an answer."""

from __future__ import annotations

from divebook.cli.options import Json, Store


def inbox(store: Store = None, *, json: Json = False) -> None:
    """List the questions that executions ask."""
    from divebook.cli.project import existing_store
    from divebook.cli.screen import columns, note, write
    from divebook.cli.text import as_json, one_line
    from divebook.environment import Environment

    asked = Environment(store=existing_store(store)).interrupts()
    if json:
        write(as_json([{"execution": execution, **question._asdict()} for execution, question in asked], indent=2))
    elif asked:
        rows = [(question.interrupt_id, execution, one_line(question.question, 120)) for execution, question in asked]
        columns(("question", "execution", "text"), rows, whole=("question", "execution"))
        note("to answer: divebook answer QUESTION retry|done|fail", "yellow")
    else:
        note("no questions")
