"""Questions to people: their kinds and statuses, the class `Question`, and texts about possible answers and results."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Hashable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from itertools import zip_longest
from typing import Any, Final, NamedTuple, Self, TypeVar

from divebook.errors import missing_attribute
from divebook.events.catalog import InterruptResolved
from divebook.events.codec import encode_shown, plain_shown, readable
from divebook.events.event import to_datetime
from divebook.events.values import normalize

# --- kinds, statuses and words of answers: the only list of each ------------------------------------------------------


class Word(StrEnum):
    """Base class of string enums for words in a log, such as `InterruptKind`. A member equals its plain string.

    `read` returns an unknown string unchanged, so that logs of other versions stay readable.
    """

    @classmethod
    def read(cls, text: str) -> Self | str:
        """Return the enum member for a string from the log. An unknown string, such as one from a later version, is
        returned unchanged.
        """
        try:
            return cls(text)
        except ValueError:
            return text


class InterruptKind(Word):
    """Kind of a question, which determines the possible answers."""

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
    """Status of a question. All except `PENDING` are final."""

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

T = TypeVar("T", int, datetime)
PENDING: Final = InterruptStatus.PENDING.value
RESOLVED: Final = InterruptStatus.RESOLVED.value
EXPIRED: Final = InterruptStatus.EXPIRED.value
CANCELLED: Final = InterruptStatus.CANCELLED.value

# Answers to a question about an unknown outcome: repeat the call, treat it as done, treat it as failed.
RETRY = "retry"
DONE = "done"
FAIL = "fail"
# Answers to a question about a changed agent: finish its turn with the original definition, or start the turn again.
FINISH = "finish"
ANEW = "anew"
# Answers to a question about a bound: raise it and continue, or stop.
RAISE = "raise"
STOP = "stop"
# Recorded if the run is resumed with other bounds instead of an answer.
RESUMED = "resumed"
APPROVE = "approve"
REJECT = "reject"
MODIFY = "modify"
JUDGED = (CONFIRMATION, AGENT_REVIEW)
"""Kinds of questions that are answered by a word, such as ``yes``, optionally with a reason.

Their JSON schema describes data that an answer may contain in addition.
"""
YES = ("yes", "y", "true", "approve", "approved")
NO = ("no", "n", "false", "deny", "denied", "reject")


class KindOfQuestion(NamedTuple):
    """Properties that all questions of one kind share: possible answers and defaults."""

    answers: str
    """Description of the possible answers in a few words."""
    example: str
    """Example of an answer that can be typed. Words in capitals are placeholders."""
    optional: bool = False
    """Default of `Question.optional`: True if an empty answer is accepted."""
    definable: bool = True
    """True if a definition may contain questions of this kind. Only the engine asks questions of the other kinds."""


KINDS: Final[dict[str, KindOfQuestion]] = {
    CLARIFICATION: KindOfQuestion("text", "TEXT"),
    CONFIRMATION: KindOfQuestion("yes or no", "yes"),
    AGENT_REVIEW: KindOfQuestion("approve, reject or modify (with data)", APPROVE),
    CHECKPOINT: KindOfQuestion("text", "seen", optional=True),
    RESOURCE_EXHAUSTED: KindOfQuestion("raise, the new bound as a number, or stop", RAISE),
    TIMEOUT: KindOfQuestion("text", "TEXT", optional=True),
    SYSTEM_ERROR: KindOfQuestion("text", "TEXT", optional=True),
    OUTCOME_UNKNOWN: KindOfQuestion("retry, done or fail (done: with its result)", RETRY, definable=False),
    AGENT_CHANGED: KindOfQuestion(
        "finish (with the original agent) or anew (start the turn again), if offered", ANEW, definable=False
    ),
}
DEFINABLE: Final = tuple(kind for kind, about in KINDS.items() if about.definable)
"""Kinds of questions that a definition, a function or a pipeline may ask."""


class Question(NamedTuple):
    """A question to a person, and the answer if there is one.

    The code that asks creates a question without id and place. Both are assigned when the question is recorded in the
    log.
    """

    id: str
    """Id of the form ``ask_...``. In the log and in messages the id is called ``interrupt_id``."""
    kind: str
    question: str
    path: str = ""
    step: str = ""
    message: str | None = None
    """Additional text for the person."""
    data: Mapping[str, Any] | None = None
    schema: Mapping[str, Any] | None = None
    """JSON schema of the expected value; None if there is none."""
    operation_id: str | None = None
    """Id of the operation that waits for the answer; None if no operation waits."""
    raised_us: int = 0
    expires_us: int | None = None
    """Time of expiry in microseconds since 1970; None if the question never expires."""
    default: Mapping[str, Any] | None = None
    """Answer that applies when the question expires, in the form that the log stores. Without a default the step
    fails.
    """
    optional: bool = False
    """True if an empty answer is accepted."""
    status: str = PENDING
    """One of `divebook.questions.question.InterruptStatus`."""
    response: Any = None
    answered_by: str | None = None
    settled_us: int | None = None
    waiting: tuple[str, ...] = ()
    """Paths of the execution that wait for the answer."""

    @property
    def is_open(self) -> bool:
        """True if the question is neither answered nor expired nor withdrawn."""
        return self.status == PENDING

    @property
    def order(self) -> tuple[int, str]:
        """Sort key for questions: oldest first."""
        return self.raised_us, self.id

    def resolved(self, data: InterruptResolved) -> Question:
        """Return a copy of the question with the status resolved and the answer that the event contains."""
        return self._replace(status=RESOLVED, response=data.response, answered_by=data.answered_by)

    def expired(self) -> Question:
        """Return a copy of the question with status expired. Its answer is the default, if the question has one."""
        return self._replace(status=EXPIRED, response=self.default)

    @property
    def raised_at(self) -> datetime:
        """Time at which the question was asked, in UTC."""
        return to_datetime(self.raised_us)

    @property
    def expires_at(self) -> datetime | None:
        """Time of expiry in UTC; None if the question never expires."""
        return None if self.expires_us is None else to_datetime(self.expires_us)

    @property
    def settled_at(self) -> datetime | None:
        """Time in UTC at which the question was answered, expired or was withdrawn; None while it is open."""
        return None if self.settled_us is None else to_datetime(self.settled_us)

    @property
    def content(self) -> dict[str, Any]:
        """Content of the question as a person sees it, as plain data. Equal questions of different executions have
        equal content.

        An answer applies to exactly this content. Replay therefore compares it with the content of the question that
        the code asks now (test_no_answer_reaches_a_question_that_differs_from_the_one_that_was_shown).
        """
        return {
            "kind": self.kind,
            "question": self.question,
            "message": self.message or None,
            "data": normalize(self.data, "data") or None,
            "schema": normalize(unnarrowed(self.schema), "schema") or None,
            "operation": self.operation_id,
        }


def _missing(question: Question, name: str) -> Any:
    raise missing_attribute(question, name, {"interrupt_id": "id"})


# Set here, because the body of a NamedTuple has no place for a method that type checkers must not see. They would
# accept any name otherwise.
Question.__getattr__ = _missing  # type: ignore[attr-defined]


# --- one answer for several questions -------------------------------------------------------------------------------
#
# Questions of one step that ask for the same can be answered together. Widgets get the key from the kernel, and
# `sharedResponse` in ``widgets/src/prompt/kinds.ts`` is the same as `for_others`.


ANSWERED_ALONE = frozenset({OUTCOME_UNKNOWN, RESOURCE_EXHAUSTED, AGENT_CHANGED})
"""Kinds of questions about a single call or run. Several such questions are never answered together."""
_ABOUT = ("agent", "tool", "action")


def sort_of(workflow: str, question: Question) -> Hashable | None:
    """Return a key for grouping questions: a person can give the same answer to all questions with the same key. Return
    None if the question must be answered individually.
    """
    if question.kind in ANSWERED_ALONE:
        return None
    # Questions about different agents, tools or actions are different, even with the same text. The data of the call
    # itself is not compared: the arguments of similar calls differ.
    about = tuple(str((question.data or {}).get(name)) for name in _ABOUT)
    return workflow, question.kind, question.step, encode_shown(question.schema), about


def for_others(question: Question, response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an answer to one question that may also be given to similar questions. Changed arguments are
    left out, because they belong to one call.
    """
    is_judged = question.kind in JUDGED
    return {name: value for name, value in response.items() if not (is_judged and name == "data")}


# --- recorded values in answers -------------------------------------------------------------------------------------
#
# A card shows a date as text and a frame as a few words. An answer with changed arguments contains all arguments, the
# unchanged ones in their displayed form. They are replaced by the recorded values: for the arguments
# ``{"day": date(2026, 1, 2), "n": 1}`` the answer ``{"day": "2026-01-02", "n": 5}`` means
# ``{"day": date(2026, 1, 2), "n": 5}``.


_PLAIN = frozenset({str, int, float, bool, type(None), list, dict})
_READERS: tuple[tuple[type, Callable[[str], Any]], ...] = (
    (datetime, datetime.fromisoformat),
    (date, date.fromisoformat),
    (Decimal, Decimal),
)
"""Types whose displayed text a person can edit, with their parsers. A datetime is also a date, and is tested first."""


def with_originals(answer: Any, recorded: Any) -> Any:
    """Return an answer in which displayed forms are replaced by the recorded values. A card shows a recorded date, for
    example, as text: if the answer has this text, it gets the date.

    Edited text in place of a date, a datetime or a decimal is parsed as a value of this type.
    """
    if isinstance(answer, Mapping) and type(recorded) is dict:
        return {name: with_originals(value, recorded.get(name)) for name, value in answer.items()}
    if isinstance(answer, list) and isinstance(recorded, list):
        # An item that the recorded list lacks was added by the person. `zip_longest` pairs it with None.
        pairs = zip_longest(answer, recorded[: len(answer)])
        return [with_originals(value, original) for value, original in pairs]
    if type(recorded) in _PLAIN:
        return answer
    # Values are displayed with or without tags for their types, and some as `str` shows them.
    forms = [json.loads(encode_shown(recorded, tagged=tagged)) for tagged in (False, True)]
    forms.append(plain_shown(recorded))
    if answer in (*forms, str(recorded)):
        return recorded
    reader = next((read for kind, read in _READERS if isinstance(recorded, kind)), None)
    if reader is None or not isinstance(answer, str):
        return answer
    try:
        return reader(answer)
    # `Decimal` raises InvalidOperation, the parsers of dates ValueError. The text stays as the person wrote it.
    except (ValueError, InvalidOperation):
        return answer


# --- example values for JSON schemas, for the commands that are printed beside a question -----------------------------


MOST_DEPTH = 8
"""Largest depth of an example value, because schemas may be recursive."""
ANY_TEXT = "TEXT"
ANY_CHOICE = "CHOICE"
"""Placeholder for one of several choices."""


def example_of(schema: Any) -> Any:
    """Return an example value for a JSON schema: its default, its first choice, or the simplest value of its type.

    >>> example_of({"type": "object", "properties": {"n": {"type": "integer"}, "why": {}}, "required": ["n"]})
    {'n': 1}
    """
    return _example(schema, schema, 0)


def _example(schema: Any, root: Any, depth: int) -> Any:
    """Return an example value for a part of a JSON schema. References are resolved in the whole schema `root`.

    In this order: a value that the schema contains (default, constant, first choice or example), an example for its
    first alternative, an example for the schema that it refers to, an example for its type.
    """
    # The limit ends a schema that refers to itself.
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


NARROWED: Final = "a pattern of divebook"
"""Value of the keyword ``$comment`` in a part of a JSON schema to which divebook has added what the type accepts."""
_NARROWING = frozenset({"$comment", "pattern", "propertyNames"})


def is_narrowed(schema: Any) -> bool:
    """Return True if divebook has added a pattern to this part of a JSON schema."""
    return isinstance(schema, Mapping) and schema.get("$comment") == NARROWED


def unnarrowed(schema: Any) -> Any:
    """Return a JSON schema of a type of answers as pydantic makes it, without the patterns that divebook adds.

    A log that was recorded before these patterns existed has the schema without them. Its questions are the same.
    """
    if isinstance(schema, list):
        return [unnarrowed(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    dropped = _NARROWING if is_narrowed(schema) else frozenset()
    return {key: unnarrowed(part) for key, part in schema.items() if key not in dropped}


def without_formats(schema: Any) -> Any:
    """Return a copy of a JSON schema without the keyword ``format``, and as pydantic makes it (`unnarrowed`)."""
    return _without_format(unnarrowed(schema))


def _without_format(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_format(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    # Below ``properties``, "format" is the name of a property, whose value is a schema.
    return {key: _without_format(part) for key, part in schema.items() if key != "format" or isinstance(part, Mapping)}


def _of_type(schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    """Return the simplest value of the type that a JSON schema declares; of several types, the first.

    An object has only its required properties, or all properties if none is required.
    """
    types = schema.get("type")
    match types[0] if isinstance(types, list) and types else types:
        case "integer" | "number" as kind:
            return _number_within(schema, is_integer=kind == "integer")
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            parts = schema.get("prefixItems")
            equal_items = [schema.get("items")] * _least(schema, "minItems", 1)
            items = parts if isinstance(parts, list) and parts else equal_items
            return [_example(item, root, depth + 1) for item in items]
        # A schema with properties is one of an object, even without a type.
        case kind if kind == "object" or isinstance(schema.get("properties"), Mapping):
            properties = schema.get("properties") or {}
            required = schema.get("required") or list(properties)
            return {key: _example(properties.get(key), root, depth + 1) for key in required}
    if "format" in schema:
        return _FORMATS.get(str(schema["format"]), ANY_TEXT)
    text = ANY_TEXT.ljust(_least(schema, "minLength", 0), ANY_TEXT[-1])
    most = schema.get("maxLength")
    return text[:most] if isinstance(most, int) else text


_MOST_PARTS = 60
"""Largest number of characters or items in an example that a schema demands."""


def _least(schema: Mapping[str, Any], keyword: str, default: int) -> int:
    """Return the length that a keyword of a JSON schema demands, limited to what an example can show."""
    length = schema.get(keyword, default)
    return min(length, _MOST_PARTS) if isinstance(length, int) else default


def _number_within(schema: Mapping[str, Any], *, is_integer: bool) -> Any:
    """Return 1, or a number near the limits of a JSON schema that fits its limits and its step (``multipleOf``)."""
    # In older dialects the exclusive limits are booleans.
    values = {keyword: schema[keyword] for keyword in (*_LIMITS, "multipleOf") if _is_number(schema.get(keyword))}
    step = values.pop("multipleOf", 0)
    limits = list(values.values())
    # Beside each limit, between two limits that are close to each other, and the next multiples of the step.
    candidates = [1, 0, *limits, *(limit + one for limit in limits for one in (1, -1))]
    candidates += [(one + other) / 2 for one in limits for other in limits]
    candidates += [(limit // step + count) * step for limit in (1, *limits) for count in (0, 1, -1)] if step else []
    for number in candidates:
        is_within = all(_LIMITS[keyword](number, limit) for keyword, limit in values.items())
        if is_within and not (step and number % step) and not (is_integer and number % 1):
            return int(number) if is_integer else number
    return 1


_LIMITS: Mapping[str, Callable[[Any, Any], bool]] = {
    "minimum": operator.ge,
    "exclusiveMinimum": operator.gt,
    "maximum": operator.le,
    "exclusiveMaximum": operator.lt,
}
"""Comparison of a number with each limit in a JSON schema."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T14:30:00Z",
    "time": "14:30:00Z",
    "duration": "PT90S",
    "uuid": "12345678-1234-5678-1234-567812345678",
    "email": "name@example.org",
    "uri": "https://example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
}
"""Examples of strings by the format that a JSON schema demands."""


def _referred(reference: str, root: Any) -> Any:
    """Return the part of the JSON schema `root` to which a reference such as ``#/$defs/Name`` points; None if it is
    missing.
    """
    part = root
    for key in reference.removeprefix("#").strip("/").split("/"):
        # None for a path that does not exist. `_example` then returns the placeholder.
        part = part.get(key) if isinstance(part, Mapping) else None
    return part


# --- wording: possible answers, examples to type, and results ---------------------------------------------------------


def kind_of(question: Question) -> KindOfQuestion:
    """Return the properties of a question's kind. A kind that this version does not know is treated as a checkpoint."""
    return KINDS.get(question.kind, KINDS[CHECKPOINT])


def expected_answer(question: Question) -> str:
    """Return a description of the possible answers to a question in a few words, for lists and prompts."""
    if question.schema is not None and question.kind == CLARIFICATION:
        return "a value that fits the schema of the question"
    return kind_of(question).answers


def example_answer(question: Question) -> str:
    """Return an example of an answer to a question that a person can type. Words in capitals are placeholders."""
    if question.kind in JUDGED:
        return kind_of(question).example
    if question.schema is not None:
        return example_in_words(question.schema)
    choices = choices_of(question)
    # No choice of several is suggested: an answer such as ``retry`` may repeat a payment.
    return choices[0] if len(choices) == 1 else ANY_CHOICE if choices else kind_of(question).example


def choices_of(question: Question) -> list[str]:
    """Return the answers among which a question lets a person choose; an empty list for any other question."""
    choices = (question.data or {}).get("choices")
    # The data may come from a function, which can use the name for something else.
    is_list = isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
    return list(choices or ()) if is_list and question.kind not in JUDGED and question.schema is None else []


def example_in_words(schema: Any) -> str:
    """Return an example value for a JSON schema in the form in which a person types it."""
    example = example_of(schema)
    return example if isinstance(example, str) else json.dumps(example, ensure_ascii=False)


def examples_in_full(question: Question) -> list[str]:
    """Return examples of answers with data that a person can type to a confirmation or review, one for each optional
    part of the data. Return an empty list for other questions.
    """
    if question.schema is None or question.kind not in JUDGED:
        return []
    data = example_of(question.schema)
    shown = (question.data or {}).get("parameters")
    if isinstance(data, dict) and data.get("parameters") == {} and isinstance(shown, Mapping):
        data["parameters"] = dict.fromkeys(shown, ANY_TEXT)  # the schema does not describe the parameters of the call
    # Required properties belong together. Optional ones, such as changed arguments and a rule, each get an example: a
    # person who copies the example that changes the arguments of a call must not create a rule for other calls as well.
    is_whole = question.schema.get("required") or not isinstance(data, dict)
    decision = {"approved": True} if question.kind == CONFIRMATION else {"decision": MODIFY}
    parts = [data] if is_whole else [{name: value} for name, value in data.items()]
    return [json.dumps({**decision, "data": part}, ensure_ascii=False) for part in parts]


def expected_in_full(question: Question) -> str:
    """Return a description of the possible answers to a question, including the optional reason and data."""
    answers = expected_answer(question)
    if question.schema is None:
        return answers
    if question.kind not in JUDGED:
        return f"{answers}: {schema_in_words(question.schema)}"
    no = "no" if question.kind == CONFIRMATION else REJECT
    return f"{answers} ({no}: REASON adds a reason), or in full, for example {' or '.join(examples_in_full(question))}"


FORMATS: Final[Mapping[str, str]] = {
    "date": "a date such as 2026-01-31",
    "date-time": "a date and time with its zone such as 2026-01-31T14:30:00Z",
    "time": "a time with its zone such as 14:30:00Z",
    "duration": "a duration such as PT90S",
    "uuid": "a UUID",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "uri": "an address such as https://example.org",
}
"""Descriptions of the strings of a format, by the keyword ``format`` of JSON schema."""


def schema_in_words(schema: Mapping[str, Any]) -> str:
    """Return a description of a JSON schema in a few words: ``name (string), risk (low, high; optional)``.

    >>> schema_in_words({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]})
    'array of integer, or null'
    """
    return _fields_in_words(schema, schema, 0) or _type_in_words(schema, schema, 0)


def _fields_in_words(schema: Mapping[str, Any], root: Any, depth: int) -> str:
    """Return a description of the properties of an object; an empty string if the schema declares none."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    required = schema.get("required") or ()
    parts = {name: _type_in_words(entry, root, depth + 1, has_fields=False) for name, entry in properties.items()}
    return ", ".join(f"{name} ({words}{'' if name in required else '; optional'})" for name, words in parts.items())


def _type_in_words(schema: Any, root: Any, depth: int, *, has_fields: bool = True) -> str:
    """Return a description of the type of a JSON schema. The properties of an object are named if `has_fields` is True,
    and not those of objects inside it.
    """
    # The limit ends a schema that refers to itself.
    if not isinstance(schema, Mapping) or depth > MOST_DEPTH:
        return "anything"
    if isinstance(schema.get("$ref"), str):
        return _type_in_words(_referred(schema["$ref"], root), root, depth + 1, has_fields=has_fields)
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, list):
        return ", ".join(map(str, choices))
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            # The text of a decimal is the other spelling of a number.
            several = [part for part in schema[key] if not is_narrowed(part)] or schema[key]
            parts = [_type_in_words(part, root, depth + 1, has_fields=has_fields) for part in several]
            return ", or ".join(dict.fromkeys(parts))
    kind = schema.get("type")
    inner = _fields_in_words(schema, root, depth) if has_fields else ""
    if kind == "array" and isinstance(schema.get("items"), Mapping) and schema["items"]:
        return f"array of {_type_in_words(schema['items'], root, depth + 1, has_fields=has_fields)}"
    if inner:
        return f"object with {inner}"
    # "string" and "number" for a string and a number. A format says more.
    return FORMATS.get(str(schema.get("format"))) or str(kind or "anything")


def answer_in_words(response: Any) -> str:
    """Return a recorded answer in words, such as ``denied: too dear``. Answers in older recorded forms are accepted.

    >>> answer_in_words({"approved": True, "data": {"rule": {"scope": "run"}}})
    'approved, and calls like it in this run'
    >>> answer_in_words({"choice": "done", "result": {"paid": 5}}), answer_in_words(None)
    ('it went through: {"paid": 5}', 'nothing')
    """
    if not isinstance(response, Mapping):
        return "nothing" if response in (None, "") else readable(response)
    data = response.get("data")
    # Answers of several forms: ``decision`` of a review, ``choice`` of an unknown outcome, ``approved`` of a
    # confirmation.
    judged = _JUDGED.get(str(response.get("decision", response.get("choice", response.get("approved")))), "")
    rule = data.get("rule") if isinstance(data, Mapping) else None
    # A rule applies to later calls as well: ``{"data": {"rule": {"scope": "run"}}}``.
    more = _LASTING.get(str(rule.get("scope")), "") if isinstance(rule, Mapping) else ""
    # Data besides the rule are changed arguments.
    if response.get("approved") is True and isinstance(data, Mapping) and set(data) - {"rule"}:
        more = f" with changes{more}"
    content = response.get("text", response.get("result"))
    # A judged answer shows its reason only. Its data is described above.
    if content is None and not isinstance(response.get("approved"), bool):
        # ``raise`` with ``{"to": 40}`` is shown as "raised: 40".
        content = data["to"] if isinstance(data, Mapping) and set(data) == {"to"} else data
    parts = [judged + more, "" if content is None else readable(content)]
    # An answer in an unknown form is shown as data.
    return ": ".join(filter(None, parts)) or ("nothing" if not response else readable(response))


def became(status: str, response: Any) -> str:
    """Return the outcome of a question as text for people: the answer, ``expired ...`` or ``withdrawn``; an empty
    string while the question is open.

    >>> became("expired", None), became("resolved", {"approved": False, "text": "too dear"})
    ('expired without an answer', 'denied: too dear')
    """
    if status == PENDING:
        return ""
    if status == CANCELLED:
        return "withdrawn"
    if status == EXPIRED:
        return (
            "expired without an answer"
            if response is None
            else (f"expired; the default was used: {answer_in_words(response)}")
        )
    return answer_in_words(response)


def is_expired_unanswered(question: Question) -> bool:
    """Return whether a question has expired, and has no default that answers it."""
    return question.status == EXPIRED and question.response is None


def is_overdue(expires: T | None, now: T) -> bool:
    """Return True if a question has an expiry time and has expired at the time `now`. It expires at its time, not after
    it. Both times are datetimes, or counts of microseconds.
    """
    return expires is not None and expires <= now


def already_answered(by: str | None, response: Any) -> str:
    """Return the text of the error that refuses a second answer to a question. It contains the first answer."""
    return f"it was already answered{f' by {by}' if by else ''}, with {response!r}"


def address_of(execution_id: str, question: Question) -> str:
    """Return the address that identifies a question among all executions of a store: its id and the id of its
    execution.

    The id of a question depends on its place in the execution, so that questions of two executions may have the same
    id.
    """
    return f"{question.id}@{execution_id}"


_JUDGED: Final = {
    "True": "approved",
    "False": "denied",
    APPROVE: "approved",
    REJECT: "denied",
    MODIFY: "changed",
    "continue": "continued",
    RAISE: "raised",
    STOP: "stopped",
    RESUMED: "resumed with a new bound",
    RETRY: "make the call again",
    DONE: "it went through",
    FAIL: "it did not go through",
    FINISH: "finish with the original agent",
    ANEW: "start the turn again",
}
_LASTING: Final = {"run": ", and calls like it in this run", "always": ", and calls like it in every run"}
EXPIRED_ALREADY = "it has expired. If its run failed or still waits, resume the run: it uses the default, or asks again"
