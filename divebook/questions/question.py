"""A question, from the moment code asks it until it is settled."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from itertools import zip_longest
from typing import Any, Final, NamedTuple, Self

from divebook.events.catalog import InterruptResolved
from divebook.events.codec import encode_shown, readable
from divebook.events.event import to_datetime
from divebook.events.values import normalize

# The kinds of question, and the words of their answers and their standing: the only list of each.


class Word(StrEnum):
    """A text of a known vocabulary, which compares equal to its plain form.

    `read` keeps a text that no member has, so that what another version wrote stays readable.
    """

    @classmethod
    def read(cls, text: str) -> Self | str:
        """Return the member, or the text itself if there is none."""
        try:
            return cls(text)
        except ValueError:
            return text


class InterruptKind(Word):
    """What a question is about."""

    CLARIFICATION = "clarification"
    CONFIRMATION = "confirmation"
    AGENT_REVIEW = "agent_review"
    CHECKPOINT = "checkpoint"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    TIMEOUT = "timeout"
    SYSTEM_ERROR = "system_error"
    OUTCOME_UNKNOWN = "outcome_unknown"
    AGENT_CHANGED = "agent_changed"


class InterruptStatus(Word):
    """Where a question stands; all but `PENDING` are final."""

    PENDING = "pending"
    RESOLVED = "resolved"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


CLARIFICATION: Final = InterruptKind.CLARIFICATION.value
CONFIRMATION: Final = InterruptKind.CONFIRMATION.value
AGENT_REVIEW: Final = InterruptKind.AGENT_REVIEW.value
CHECKPOINT: Final = InterruptKind.CHECKPOINT.value
RESOURCE_EXHAUSTED: Final = InterruptKind.RESOURCE_EXHAUSTED.value
TIMEOUT: Final = InterruptKind.TIMEOUT.value
SYSTEM_ERROR: Final = InterruptKind.SYSTEM_ERROR.value
OUTCOME_UNKNOWN: Final = InterruptKind.OUTCOME_UNKNOWN.value
AGENT_CHANGED: Final = InterruptKind.AGENT_CHANGED.value

PENDING: Final = InterruptStatus.PENDING.value
RESOLVED: Final = InterruptStatus.RESOLVED.value
EXPIRED: Final = InterruptStatus.EXPIRED.value
CANCELLED: Final = InterruptStatus.CANCELLED.value

RETRY, DONE, FAIL = "retry", "done", "fail"
"""Answers to a question about an unknown outcome: make the call again, take it as done, take it as failed."""
FINISH, ANEW = "finish", "anew"
"""Answers to a question about an agent that has changed: finish its turn with what it began with, or begin it anew."""
RAISE, STOP = "raise", "stop"
"""Answers to a question about a bound: raise it and go on, or stop."""
APPROVE = "approve"
REJECT = "reject"
MODIFY = "modify"
JUDGED = (CONFIRMATION, AGENT_REVIEW)
"""Kinds that a word answers, perhaps with a reason; the schema of one is that of data which may come with the word."""
YES = ("yes", "y", "true", "approve", "approved")
NO = ("no", "n", "false", "deny", "denied", "reject")


class KindOfQuestion(NamedTuple):
    """What holds for all questions of a kind."""

    wanted: str
    """What a person may answer, in a few words."""
    example: str
    """An answer as it can be typed; in capitals what is to be replaced."""
    optional: bool = False
    """Whether an empty answer settles it, where the question does not say otherwise."""
    definable: bool = True
    """Whether a definition may ask such a question; the others are asked by the engine alone."""


KINDS: Final[dict[str, KindOfQuestion]] = {
    CLARIFICATION: KindOfQuestion("a text", "TEXT"),
    CONFIRMATION: KindOfQuestion("yes or no", "yes"),
    AGENT_REVIEW: KindOfQuestion("approve, reject or modify (with data)", APPROVE),
    CHECKPOINT: KindOfQuestion("a text", "seen", optional=True),
    RESOURCE_EXHAUSTED: KindOfQuestion("raise, the new bound as a number, or stop", RAISE),
    TIMEOUT: KindOfQuestion("a text", "TEXT", optional=True),
    SYSTEM_ERROR: KindOfQuestion("a text", "TEXT", optional=True),
    OUTCOME_UNKNOWN: KindOfQuestion("retry, done or fail (done: with its result)", RETRY, definable=False),
    AGENT_CHANGED: KindOfQuestion("finish (as it began) or anew (begin again), as offered", ANEW, definable=False),
}
DEFINABLE: Final = tuple(kind for kind, about in KINDS.items() if about.definable)
"""Kinds of question that a definition, a function or a pipeline may ask."""


class Question(NamedTuple):
    """A question to a person and, once there is one, its answer.

    What code asks has neither id nor place yet; the log gives it both, and everybody reads it from there.
    """

    id: str
    """``ask_...``; in the log and in messages it is called ``interrupt_id``."""
    kind: str
    question: str
    path: str = ""
    step: str = ""
    message: str | None = None
    """More than the question itself, for people."""
    data: Mapping[str, Any] | None = None
    schema: Mapping[str, Any] | None = None
    """JSON schema of the value that is asked for."""
    operation_id: str | None = None
    """The call that waits for the answer, if it is one."""
    raised_us: int = 0
    expires_us: int | None = None
    """When it expires, microseconds since 1970; None for never."""
    default: Mapping[str, Any] | None = None
    """The response, in full form, that holds once it has expired; without one the step fails then."""
    optional: bool = False
    """Whether an empty answer will do."""
    status: str = PENDING
    """One of `divebook.questions.question.InterruptStatus`."""
    response: Any = None
    answered_by: str | None = None
    settled_us: int | None = None
    waiting: tuple[str, ...] = ()
    """The paths that wait for the answer."""

    @property
    def interrupt_id(self) -> str:
        """Its id, as the log and messages call it."""
        return self.id

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer, as far as its log says."""
        return self.status == PENDING

    @property
    def order(self) -> tuple[int, str]:
        """What sorts questions, the oldest first."""
        return self.raised_us, self.id

    def resolved(self, data: InterruptResolved) -> Question:
        """Return it with the answer that somebody gave."""
        return self._replace(status=RESOLVED, response=data.response, answered_by=data.answered_by)

    def expired(self) -> Question:
        """Return the question as it is once it has expired: its default, if there is one, is the answer."""
        return self._replace(status=EXPIRED, response=self.default)

    @property
    def raised_at(self) -> datetime:
        """When it was asked, UTC."""
        return to_datetime(self.raised_us)

    @property
    def expires_at(self) -> datetime | None:
        """When it expires, UTC; None for never."""
        return None if self.expires_us is None else to_datetime(self.expires_us)

    @property
    def content(self) -> dict[str, Any]:
        """What a person is shown and answers, as plain data: the same for equal questions of any execution.

        An answer releases exactly this and nothing else, so replay compares it with what the code asks now
        (test_no_answer_reaches_a_question_that_differs_from_the_one_that_was_shown).
        """
        return {
            "kind": self.kind,
            "question": self.question,
            "message": self.message or None,
            "data": normalize(self.data, "data") or None,
            "schema": normalize(self.schema, "schema") or None,
            "operation": self.operation_id,
        }


# Questions that one answer does for: those of one step of a workflow that want the same.
#
# The page offers the same (`sortOf` and `forOthers` in ``widgets/src/prompt/kinds.ts``).


OF_ITS_OWN = frozenset({OUTCOME_UNKNOWN, RESOURCE_EXHAUSTED, AGENT_CHANGED})
"""Kinds of which each question is about one call, or one run, alone."""
_ABOUT = ("agent", "tool", "action")


def sort_of(workflow: str, question: Question) -> Hashable | None:
    """Return what questions that one answer does for have in common; None if each needs its own."""
    if question.kind in OF_ITS_OWN:
        return None
    about = tuple(str((question.data or {}).get(name)) for name in _ABOUT)
    return workflow, question.kind, question.step, encode_shown(question.schema), about


def for_others(question: Question, response: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer in full as it may be given to others: changed arguments and rules are of one call alone."""
    is_judged = question.kind in JUDGED
    return {name: value for name, value in response.items() if not (is_judged and name == "data")}


# Recorded values in place of what people are shown of them, where an answer gives arguments back.
#
# A card shows a date as text and a frame as a few words. Who answers with other arguments sends all of them, so that
# the unchanged ones come back in that form. For the arguments ``{"day": date(2026, 1, 2), "n": 1}`` the answer
# ``{"day": "2026-01-02", "n": 5}`` means ``{"day": date(2026, 1, 2), "n": 5}``.


_PLAIN = frozenset({str, int, float, bool, type(None), list, dict})
_READERS: tuple[tuple[type, Callable[[str], Any]], ...] = (
    (datetime, datetime.fromisoformat),
    (date, date.fromisoformat),
    (Decimal, Decimal),
)
"""Types whose text can be edited, and what reads it; a datetime is a date too."""


def with_originals(answer: Any, recorded: Any) -> Any:
    """Return a part of an answer with the recorded values that it repeats in the form in which they are shown.

    A text in place of a date, a datetime or a decimal is read as one.
    """
    if isinstance(answer, Mapping) and type(recorded) is dict:
        return {name: with_originals(value, recorded.get(name)) for name, value in answer.items()}
    if isinstance(answer, list) and isinstance(recorded, list):
        pairs = zip_longest(answer, recorded[: len(answer)])
        return [with_originals(value, original) for value, original in pairs]
    if type(recorded) in _PLAIN:
        return answer
    forms = [json.loads(encode_shown(recorded, tagged=tagged)) for tagged in (False, True)]
    if answer in (*forms, str(recorded)):
        return recorded
    reader = next((read for kind, read in _READERS if isinstance(recorded, kind)), None)
    if reader is None or not isinstance(answer, str):
        return answer
    try:
        return reader(answer)
    except (ValueError, InvalidOperation):
        return answer


# A value of the form that a JSON schema asks for, for the commands that are printed beside a question.


MOST_DEPTH = 8
"""Of schemas that contain themselves."""
ANY_TEXT = "TEXT"


def example_of(schema: Any) -> Any:
    """Return a value of a schema's form: its default, its first choice, or the plainest value of its type.

    >>> example_of({"type": "object", "properties": {"n": {"type": "integer"}, "why": {}}, "required": ["n"]})
    {'n': 1}
    """
    return _example(schema, schema, 0)


def _example(schema: Any, root: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > MOST_DEPTH:
        return ANY_TEXT
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return _example(schema[key][0], root, depth + 1)
    if isinstance(schema.get("$ref"), str):
        return _example(_referred(schema["$ref"], root), root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    named = schema.get("type")
    match named[0] if isinstance(named, list) and named else named:
        case "integer" | "number":
            return schema.get("minimum", schema.get("maximum", 1))
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            return [_example(schema.get("items"), root, depth + 1)]
        case kind if kind == "object" or isinstance(schema.get("properties"), Mapping):
            properties = schema.get("properties") or {}
            required = schema.get("required") or list(properties)
            return {key: _example(properties.get(key), root, depth + 1) for key in required}
    return ANY_TEXT


def _referred(reference: str, root: Any) -> Any:
    """Return the part of a schema that ``#/$defs/Name`` names."""
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


# How questions are worded for people: what they want, what can be typed, what became of them.


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
