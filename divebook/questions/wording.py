"""How questions are worded for people: what they want, what can be typed, what became of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from divebook.events.readable import readable
from divebook.questions.example import ANY_TEXT, example_of
from divebook.questions.kinds import (
    ANEW,
    APPROVE,
    CANCELLED,
    CHECKPOINT,
    CLARIFICATION,
    CONFIRMATION,
    DONE,
    EXPIRED,
    FAIL,
    FINISH,
    JUDGED,
    KINDS,
    MODIFY,
    PENDING,
    RAISE,
    REJECT,
    RETRY,
    STOP,
    KindOfQuestion,
)
from divebook.questions.question import Question


def kind_of(question: Question) -> KindOfQuestion:
    """Return what holds for its kind; one that another version knows is answered as freely as a checkpoint."""
    return KINDS.get(question.kind, KINDS[CHECKPOINT])


def wanted_answer(question: Question) -> str:
    """Return in a few words what a person may answer, for lists and prompts."""
    if question.schema is not None and question.kind == CLARIFICATION:
        return "a value that fits its schema"
    return kind_of(question).wanted


def example_answer(question: Question) -> str:
    """Return an answer as it can be typed, of the form that is asked for; in capitals what is to be replaced."""
    if question.schema is None or question.kind in JUDGED:
        return kind_of(question).example
    example = example_of(question.schema)
    return example if isinstance(example, str) else json.dumps(example, ensure_ascii=False)


def examples_in_full(question: Question) -> list[str]:
    """Return answers that bring data with their word, as they can be typed: one for each part that may be left out.

    So none that is typed as it stands, to change the arguments of a call, makes a rule for others too.
    """
    if question.schema is None or question.kind not in JUDGED:
        return []
    data = example_of(question.schema)
    shown = (question.data or {}).get("parameters")
    if isinstance(data, dict) and data.get("parameters") == {} and isinstance(shown, Mapping):
        data["parameters"] = dict.fromkeys(shown, ANY_TEXT)  # of a call that has no schema
    is_whole = question.schema.get("required") or not isinstance(data, dict)
    said = {"approved": True} if question.kind == CONFIRMATION else {"decision": MODIFY}
    parts = [data] if is_whole else [{name: value} for name, value in data.items()]
    return [json.dumps({**said, "data": part}, ensure_ascii=False) for part in parts]


def wanted_in_full(question: Question) -> str:
    """Return what a person may answer, with the reason and the data that may come with it."""
    wanted = wanted_answer(question)
    if question.schema is None:
        return wanted
    if question.kind not in JUDGED:
        return f"{wanted}: {schema_in_words(question.schema)}"
    no = "no" if question.kind == CONFIRMATION else REJECT
    return f"{wanted} ({no}: REASON says why), or in full, for instance {' or '.join(examples_in_full(question))}"


def schema_in_words(schema: Mapping[str, Any]) -> str:
    """Return what a JSON schema asks for in a few words: ``name (string), risk (low, high; may be left out)``."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return _type_in_words(schema)
    required = schema.get("required") or ()
    return ", ".join(
        f"{name} ({_type_in_words(entry)}{'' if name in required else '; may be left out'})"
        for name, entry in properties.items()
    )


def _type_in_words(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "anything"
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    return str(schema.get("type") or "anything")


def answer_in_words(response: Any) -> str:
    """Return an answer as people say it, however it is kept: ``denied: too dear``.

    >>> answer_in_words({"approved": True, "data": {"rule": {"scope": "run"}}})
    'approved, and calls like it in this run'
    >>> answer_in_words({"choice": "done", "result": {"paid": 5}}), answer_in_words(None)
    ('it went through: {"paid": 5}', 'nothing')
    """
    if not isinstance(response, Mapping):
        return "nothing" if response in (None, "") else readable(response)
    data = response.get("data")
    judged = _JUDGED.get(str(response.get("decision", response.get("choice", response.get("approved")))), "")
    rule = data.get("rule") if isinstance(data, Mapping) else None
    more = _LASTING.get(str(rule.get("scope")), "") if isinstance(rule, Mapping) else ""
    if response.get("approved") is True and isinstance(data, Mapping) and set(data) - {"rule"}:
        more = f" with changes{more}"
    said = response.get("text", response.get("result"))
    if said is None and not isinstance(response.get("approved"), bool):
        said = data["to"] if isinstance(data, Mapping) and set(data) == {"to"} else data
    parts = [judged + more, "" if said is None else readable(said)]
    return ": ".join(filter(None, parts)) or ("nothing" if not response else readable(response))


def became(status: str, response: Any) -> str:
    """Return what became of a question in words: its answer, that it expired or was withdrawn; empty while it is open.

    >>> became("expired", None), became("resolved", {"approved": False, "text": "too dear"})
    ('expired, default used: nothing', 'denied: too dear')
    """
    if status == PENDING:
        return ""
    if status == CANCELLED:
        return "withdrawn"
    return f"expired, default used: {answer_in_words(response)}" if status == EXPIRED else answer_in_words(response)


def already_answered(by: str | None, response: Any) -> str:
    """Return why a second answer is refused; it shows the first."""
    return f"it was answered already{f' by {by}' if by else ''}, with {response!r}"


def address_of(execution_id: str, question: Question) -> str:
    """Return what names a question in a whole store: ids come from places, so that two executions may share one."""
    return f"{question.id}@{execution_id}"


_JUDGED: Final = {
    "True": "approved",
    "False": "denied",
    APPROVE: "approved",
    REJECT: "denied",
    MODIFY: "changed",
    "continue": "went on",
    RAISE: "raised",
    STOP: "stopped",
    RETRY: "make the call again",
    DONE: "it went through",
    FAIL: "it did not go through",
    FINISH: "finish as it began",
    ANEW: "begin anew",
}
_LASTING: Final = {"run": ", and calls like it in this run", "always": ", and calls like it in every run"}
EXPIRED_ALREADY = "it has expired; its execution went on without an answer"
