"""Validation of answers to questions. The notebook, the widgets, the command line and all other interfaces use this one
check.

The log stores an answer as a mapping with some of the keys ``text``, ``approved``, ``decision`` and ``data``. People
write short answers, such as ``yes`` or ``no: too dear``. For each kind of question, `_READERS` has a function that
converts short answers to mappings. Typed text is first converted to data if the question requires data (`Typed.meant`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from divebook.errors import DefinitionError, InterruptError, UnstorableValueError
from divebook.events.classes import Instance, Member
from divebook.events.codec import json_form, storable
from divebook.events.recorded import Container, Recorded, StandardValue, TaggedDict
from divebook.questions.question import (
    AGENT_CHANGED,
    AGENT_REVIEW,
    ANEW,
    APPROVE,
    CHECKPOINT,
    CLARIFICATION,
    CONFIRMATION,
    DONE,
    EXPIRED,
    EXPIRED_ALREADY,
    FAIL,
    JUDGED,
    MODIFY,
    NO,
    OUTCOME_UNKNOWN,
    PENDING,
    RAISE,
    REJECT,
    RESOURCE_EXHAUSTED,
    RETRY,
    STOP,
    SYSTEM_ERROR,
    TIMEOUT,
    YES,
    Question,
    already_answered,
    expected_answer,
    expected_in_full,
    is_overdue,
    schema_in_words,
    with_originals,
    without_formats,
)

# --- typed text: the same rules in a shell, on the line of a magic, in a cell and in a file --------------------------


class Fitting(NamedTuple):
    """Functions that the validation needs: one checks a value against a JSON schema, one parses YAML. Callers pass them
    in, because this package must not import the libraries for that.
    """

    complaint: Callable[[Mapping[str, Any], Any], str | None]
    """Function that validates a value against a JSON schema. It returns a description of the error, or None."""
    written: Callable[[str], Any]
    """Function that parses a string as YAML. It raises `DefinitionError` if the string is not YAML."""


@dataclass(frozen=True, slots=True)
class Typed:
    """Answer as a person typed it: a string whose interpretation depends on the question.

    The text is parsed as YAML if it begins like data or quoted text in YAML, or if the question asks for data and the
    text does not fit its schema. A list needs no brackets. Any other text stays as it is, so that ``1.10`` remains a
    version. A yes or no with a reason (``no: not today``) always stays text. ``done RESULT`` answers a question about
    an unknown outcome in one text. Data in quotes for a shell (``'{count: 2}'``) is parsed if the text does not fit.
    """

    text: str

    def meant(self, question: Question, fitting: Fitting) -> Any:
        """Return the answer to a question that the typed text means: the text itself, or the data parsed from
        the text.
        """
        if question.kind == OUTCOME_UNKNOWN:
            word, _, result = self.text.strip().partition(" ")
            if word == DONE and result.strip():
                return {"choice": DONE, "result": _data_or_text(result.strip(), fitting)}
        # ``no: not today`` would be a mapping in YAML.
        if question.kind in JUDGED and self.text.partition(":")[0].strip().lower() in _WORDS:
            return self.text
        # Plain text is kept if the question has no schema, or if the text fits its schema: "1.10" stays a string.
        begins_like_data = self.text[:1] in _OPENING
        if not begins_like_data and (question.schema is None or not fitting.complaint(question.schema, self.text)):
            return self.text
        answer = _data_or_text(self.text, fitting)
        if question.schema is None or question.kind in JUDGED:
            return answer
        # Data in quotes: ``'{count: 2}'`` is a string in YAML, whose content is parsed again.
        if isinstance(answer, str) and fitting.complaint(question.schema, answer):
            answer = _data_or_text(answer, fitting)
        # A list without brackets: ``red, blue``.
        is_entry = question.schema.get("type") == "array" and not isinstance(answer, list)
        return _data_or_text(f"[{self.text}]", fitting) if is_entry else answer


_OPENING = ("{", "[", "'", '"')
_WORDS = frozenset({*YES, *NO, APPROVE, REJECT, MODIFY})


def _data_or_text(text: str, fitting: Fitting) -> Any:
    try:
        return fitting.written(text)
    except DefinitionError:
        return text


MOST_CHARACTERS = 100_000
"""Largest number of characters in all strings of an answer together."""
PART_TYPES: Final[Mapping[str, type]] = {"text": str, "approved": bool, "decision": str}
"""Parts of an answer that have a type. The part ``data`` may have any value."""
FIELDS = frozenset({*PART_TYPES, "data"})
NO_RESULT = (
    'done needs the result of the call, because later steps use it: add --result JSON (in code: {"choice": "done", '
    '"result": ...}). Use null if the call returned nothing'
)


def checked_answer(question: Question, response: Any, fitting: Fitting, now: int) -> dict[str, Any]:
    """Validate an answer to a question, and return it as the mapping that the log stores.

    Parameters
    ----------
    response
        The answer as a mapping or in a short form, or a `Typed` text.
    now
        Microseconds since 1970.

    Raises
    ------
    InterruptError
        The question already has an answer (the error shows it), has expired, or this answer does not fit. In the last
        case the question stays open.
    """
    # The checks are in this order so that an error names the first reason: is the question open, can the log store the
    # answer, is it too long, is it empty, does it fit the kind.
    _require_open(question, now)
    meant = response.meant(question, fitting) if isinstance(response, Typed) else response
    try:
        plain = storable(meant, "response")
    except UnstorableValueError as error:
        raise _unfit(question, str(error)) from error
    original = _with_arguments(question, plain)
    plain = _in_json(question, original, fitting)
    _check_texts(question, plain)
    if is_empty_answer(plain):
        return _empty_answer(question, plain, fitting)
    # Answers of these two kinds are not in the form of `FIELDS`: they have a choice, and the first a result.
    if question.kind == OUTCOME_UNKNOWN:
        return _outcome(question, plain)
    if question.kind == AGENT_CHANGED:
        return _changed(question, plain)
    answer = _with_fields(question, plain, fitting)
    if answer is not None and plain is not original and _has_zone(original):
        # The JSON form fits, and has neither the name of a zone nor the second of two equal hours.
        answer["data"] = original["data"] if isinstance(original, Mapping) and set(original) == {"data"} else original
    # Neither a complete answer nor a value that fits a schema: a short form of its kind.
    if answer is None:
        answer = _READERS.get(question.kind, _anything)(question, plain)
    # A person may write ``raise`` without a number, or with one. The log has the resulting bound, so that a replay does
    # not compute it again.
    if question.kind == RESOURCE_EXHAUSTED and answer.get("decision") == RAISE:
        data = answer.get("data") or {}
        if not isinstance(data, Mapping):
            raise _unfit(question, f"the new bound must be under the key `to`, for example {{'to': 40}}, not {data!r}")
        return answer | {"data": {"to": _raised(question, data.get("to"))}}
    return answer


def _in_json(question: Question, answer: Any, fitting: Fitting) -> Any:
    """Return an answer to a question with a JSON schema in its JSON form, if only this form fits and it arrives as an
    equal value of the same type: code may answer with a date or an instance, which the schema describes as a string or
    an object.
    """
    if question.schema is None or question.kind in JUDGED:
        return answer
    if isinstance(answer, Mapping) and set(answer) == {"data"}:
        return {"data": _in_json(question, answer["data"], fitting)}
    form = json_form(answer)
    if form == answer or fitting.complaint(question.schema, answer) is None:
        return answer
    reader = _SchemaReader(question.schema, fitting)
    return form if reader.fits(form) and reader.gives_back(answer, form, lambda part: part) else answer


def _has_zone(value: Any) -> bool:
    """Return True if a value contains a time whose ISO text loses its zone, such as Europe/Berlin, or its fold."""
    if isinstance(value, StandardValue) and value.tag in ("zoned", "folded_time"):
        return True
    parts = value.inside() if isinstance(value, Recorded) else value
    items = parts.values() if isinstance(parts, Mapping) else parts if isinstance(parts, list | tuple) else ()
    return any(map(_has_zone, items))


class _SchemaReader:
    """Test whether the JSON form of a value arrives as this value, where only the JSON schema of a type is known.

    A date fits the schemas of ``date`` and ``str``, and would arrive as a string from the second. The test puts other
    values in its place: the schema of ``str`` accepts ``"??????????"`` too, and that of ``date`` accepts it only
    without its keyword ``format``. A value of a class must have its class as a title in the schema.
    """

    def __init__(self, schema: Mapping[str, Any], fitting: Fitting) -> None:
        self._schema = schema
        self._complaint = fitting.complaint
        self._titles = set(_titles(schema))

    def fits(self, form: Any) -> bool:
        """Return True if a JSON form fits the schema."""
        return self._complaint(self._schema, form) is None

    def gives_back(self, value: Any, form: Any, whole: Callable[[Any], Any], *, is_field: bool = False) -> bool:
        """Return True if the JSON form of a part of an answer arrives as `value`.

        Parameters
        ----------
        whole
            Function that returns the form of the whole answer with another form of this part.
        is_field
            True inside an instance, whose class decides between a list, a tuple and a set.
        """
        match value:
            case TaggedDict():
                return False
            case dict():
                return all(
                    self.gives_back(value[key], form[key], _at(whole, form, key), is_field=is_field) for key in form
                )
            case list():
                return self._give_back_items(value, form, whole, is_field=is_field)
            case Container() if is_field and not value.is_mapping and not self.fits(whole("?")):
                return self._give_back_items(value.inside(), form, whole, is_field=True)
            case Instance():
                return self._gives_back_instance(value, form, whole)
            case Member() if isinstance(form, str | int | float):
                probes: list[Any] = (
                    ["?" * len(form)] if isinstance(form, str) else [form + 987_654_321, -form - 987_654_321]
                )
                is_only = not any(self.fits(whole(probe)) for probe in probes)
                return is_only and form == value.value and _short_name(value.cls) in self._titles
            case Decimal():
                # The schema of a decimal accepts any string and number, as that of ``float | str`` does.
                return is_field and self.fits(whole(float(value))) and not self.fits(whole([]))
            case date() | time() | timedelta() | StandardValue():
                other = whole("?" * len(form)) if isinstance(form, str) else None
                fits_without_format = self._complaint(without_formats(self._schema), other) is None
                return fits_without_format and not self.fits(other)
            case str() | int() | float() | None:
                return bool(form == value)
        return False

    def _give_back_items(
        self, items: list[Any], form: list[Any], whole: Callable[[Any], Any], *, is_field: bool
    ) -> bool:
        return all(
            self.gives_back(item, form[place], _at(whole, form, place), is_field=is_field)
            for place, item in enumerate(items)
        )

    def _gives_back_instance(self, value: Instance, form: Any, whole: Callable[[Any], Any]) -> bool:
        if _short_name(value.cls) not in self._titles or value.extra or value.private or set(form) != set(value.fields):
            return False
        # A mapping with any values is a dict.
        probes: list[Any] = [None, "?", 0, [], {}]
        if all(self.fits(whole(dict.fromkeys(form, probe))) for probe in probes):
            return False
        return all(
            self.gives_back(part, form[name], _at(whole, form, name), is_field=True)
            for name, part in value.fields.items()
        )


def _at(whole: Callable[[Any], Any], form: Any, key: Any) -> Callable[[Any], Any]:
    """Return a function that returns the form of a whole answer with another form of the item `key` of its part
    `form`.
    """

    def whole_with(part: Any) -> Any:
        other = form.copy()
        other[key] = part
        return whole(other)

    return whole_with


def _titles(schema: Any) -> Iterator[str]:
    """Yield the titles of a JSON schema and its parts."""
    if isinstance(schema, list):
        for part in schema:
            yield from _titles(part)
    elif isinstance(schema, Mapping):
        for key, part in schema.items():
            if key == "title" and isinstance(part, str):
                yield part
            else:
                yield from _titles(part)


def _short_name(cls: str) -> str:
    return cls.rpartition(".")[2]


def _with_arguments(question: Question, answer: Any) -> Any:
    """Return an answer to an approval question with the recorded values of the call's arguments, where a person has
    copied their displayed text from the card. An answer without arguments is unchanged.

    A card shows, for example, a date as text. See `with_originals`.
    """
    # Shape: answer ``{"data": {"parameters": {name: displayed or changed value}}}``, recorded ``{name: value}``.
    data = answer.get("data") if isinstance(answer, Mapping) else None
    recorded = (question.data or {}).get("parameters")
    if question.kind not in JUDGED or not isinstance(data, Mapping) or not isinstance(recorded, Mapping):
        return answer
    if "parameters" not in data:
        return answer
    return {**answer, "data": {**data, "parameters": with_originals(data["parameters"], dict(recorded))}}


def _require_open(question: Question, now: int) -> None:
    # The time may be over before the engine has recorded the expiry. The answer is then too late as well.
    if question.status == EXPIRED or (question.status == PENDING and is_overdue(question.expires_us, now)):
        raise InterruptError(question.id, EXPIRED_ALREADY)
    if question.status != PENDING:
        raise InterruptError(question.id, already_answered(question.answered_by, question.response))


def _unfit(question: Question, why: str) -> InterruptError:
    return InterruptError(question.id, f"{why}. The question is still open")


def is_empty_answer(value: Any) -> bool:
    """Return True if an answer contains neither a text nor a decision nor data. A refusal, ``{"approved": False}``, is
    not empty.
    """
    # `{}` has only known fields, all of them blank, and is therefore empty too.
    if isinstance(value, Mapping) and set(value) <= FIELDS:
        # An empty mapping in ``data`` is an omitted form. Any other falsy value, such as 0 or false, is an answer.
        return all(entry == {} or _is_blank(entry) for entry in value.values())
    return _is_blank(value)


def _empty_answer(question: Question, answer: Any, fitting: Fitting) -> dict[str, Any]:
    """Return an empty answer as the mapping that the log stores. Raise `InterruptError` if the question needs one."""
    if question.optional:
        return {}
    # A schema may accept null, such as that of ``int | None``.
    is_null = answer is None or answer == {"data": None}
    schema = None if question.kind in JUDGED else question.schema
    if is_null and schema is not None and fitting.complaint(schema, None) is None:
        return {"data": None}
    raise _unfit(question, f"an answer is missing: answer with {expected_in_full(question)}")


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


# --- texts ---------------------------------------------------------------------------------------------------------


def _check_texts(question: Question, value: Any) -> None:
    """Raise `InterruptError` if an answer contains control characters, or more than `MOST_CHARACTERS` characters. Texts
    that the question itself shows do not count.
    """
    # An answer may repeat any text that the question shows.
    shown = set(_texts((question.data or {}).get("parameters")))
    total = 0
    for text in _texts(value):
        if text in shown:
            continue
        total += len(text)
        if total > MOST_CHARACTERS:
            raise _unfit(
                question,
                f"this answer has more than the allowed {MOST_CHARACTERS:,} characters; put it into a file and answer "
                "with its path",
            )
        for character in text:
            # Control characters ("Cc") could change how a terminal shows the answer.
            if unicodedata.category(character) == "Cc" and character not in "\t\n\r":
                code = f"U+{ord(character):04X}"
                raise _unfit(question, f"an answer must not contain the control character {code}; remove it")


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, item in value.items() for text in (key, *_texts(item))]
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


# --- short forms of each kind --------------------------------------------------------------------------------------


def _with_fields(question: Question, response: Any, fitting: Fitting) -> dict[str, Any] | None:
    """Return an answer as the mapping that the log stores, if it is such a mapping already or fits the question's JSON
    schema. Return None for a short answer such as ``yes``.
    """
    # A mapping with other keys is a value. A mapping with only known keys may be both: a complete answer, or a value
    # with a property ``text``.
    is_full = isinstance(response, Mapping) and set(response) <= FIELDS
    schema = question.schema
    if schema is None:
        return _checked_fields(question, response) if is_full else None
    # The bare value fits the schema. It is wrapped, unless it is a complete answer that fits by chance (`_is_wrapped`).
    wrong = fitting.complaint(schema, response)
    if wrong is None and question.kind not in JUDGED and not (is_full and _is_wrapped(schema, response, fitting)):
        return {"data": response}
    if not is_full or "data" not in response:
        if question.kind in JUDGED:  # the schema describes edited data, which may be omitted
            return _checked_fields(question, response) if is_full else None
        raise _unfit(question, f"this answer does not fit: {wrong}; expected {schema_in_words(schema)}")
    # The complete answer has its value under ``data``, and this value must fit.
    inner = fitting.complaint(schema, response["data"])
    if inner is not None:
        raise _unfit(question, f"the answer's data does not fit: {inner}; expected {schema_in_words(schema)}")
    return _checked_fields(question, response)


def _is_wrapped(schema: Mapping[str, Any], response: Mapping[str, Any], fitting: Fitting) -> bool:
    """Return whether a mapping with the key ``data`` is a whole answer, which has the expected value under this key. It
    is False if the mapping is the expected value itself.

    A schema of an object accepts any key, so that ``{"data": {"why": "x"}}`` fits a schema with ``why`` as its only
    property. Such a mapping is a whole answer, unless the schema itself has properties with these names.
    """
    is_named = set(response) <= _property_names(schema)
    return "data" in response and not is_named and fitting.complaint(schema, response["data"]) is None


def _property_names(schema: Any) -> set[str]:
    """Return the names of the properties in a JSON schema and in its alternatives (``anyOf``, ``oneOf``, ``allOf``)."""
    if not isinstance(schema, Mapping):
        return set()
    properties = schema.get("properties")
    names = set(properties) if isinstance(properties, Mapping) else set()
    # The properties of a union are those of all its alternatives.
    parts = [part for key in ("anyOf", "oneOf", "allOf") if isinstance(schema.get(key), list) for part in schema[key]]
    return names.union(*map(_property_names, parts))


def _checked_fields(question: Question, response: Mapping[str, Any]) -> dict[str, Any]:
    # None is an omitted field.
    fields = {key: value for key, value in response.items() if value is not None}
    wrong = wrong_part(fields, PART_TYPES)
    if wrong is not None:
        expected = "true or false" if PART_TYPES[wrong] is bool else "a string"
        raise _unfit(question, f"{wrong} must be {expected}, not {fields[wrong]!r}")
    if question.kind == CONFIRMATION and "approved" not in fields:
        raise _unfit(question, f"an answer is missing: answer with {expected_answer(question)}")
    # A review without a decision, such as ``{"text": "fine"}``, does not say whether to continue.
    if question.kind == AGENT_REVIEW and fields.get("decision") not in (APPROVE, REJECT, MODIFY):
        raise _unfit(question, f"an answer is missing: answer with {expected_answer(question)}")
    return fields


def wrong_part(answer: Mapping[str, Any], types: Mapping[str, type]) -> str | None:
    """Return the name of the first part of an answer that is not of its type in `types`; None if all are. A part that
    is None was not given.
    """
    parts = ((name, answer.get(name)) for name in types)
    return next((name for name, part in parts if part is not None and not isinstance(part, types[name])), None)


def _clarification(question: Question, response: Any) -> dict[str, Any]:
    if isinstance(response, str):
        return {"text": response}
    if isinstance(response, int | float) and not isinstance(response, bool):
        # "1.10" is typed as text. A number from code or JSON becomes the text that a person would type.
        return {"text": str(response)}
    raise _unfit(question, f"answer with {expected_answer(question)}, not {response!r}")


def _confirmation(question: Question, response: Any) -> dict[str, Any]:
    if isinstance(response, bool):
        return {"approved": response}
    word, reason = _judgement(response)
    # A reason is accepted only for a no. "yes: but later" is refused, since the condition would be lost.
    if word.lower() in NO and reason:
        return {"approved": False, "text": reason}
    if reason is None and (word.lower() in YES or word.lower() in NO):
        return {"approved": word.lower() in YES}
    raise _unfit(question, f"answer with {expected_in_full(question)}, not {response!r}")


def _review(question: Question, response: Any) -> dict[str, Any]:
    if isinstance(response, bool):
        response = APPROVE if response else REJECT
    word, reason = _judgement(response)
    if word == REJECT and reason:
        return {"decision": REJECT, "approved": False, "text": reason}
    if reason is None and word in (APPROVE, REJECT, MODIFY):
        return {"decision": word, "approved": word == APPROVE}
    raise _unfit(question, f"answer with {expected_in_full(question)}, not {response!r}")


def _judgement(response: Any) -> tuple[str, str | None]:
    """Split the typed answer to an approval, such as ``no: not today``, into decision and reason. Without a colon the
    reason is None.
    """
    if not isinstance(response, str):
        return "", None
    word, colon, reason = response.partition(":")
    return word.strip(), reason.strip() if colon else None


def _anything(_question: Question, response: Any) -> dict[str, Any]:
    return {"text": response} if isinstance(response, str) else {"data": response}


def _exhausted(question: Question, response: Any) -> dict[str, Any]:
    if response == STOP:
        return {"decision": STOP}
    if response == RAISE:
        return {"decision": RAISE}
    # Numbers typed as text, such as "40", are accepted, but no other text.
    if isinstance(response, int | float | str) and not isinstance(response, bool) and _number(response) is not None:
        return {"decision": RAISE, "data": {"to": response}}
    if isinstance(response, Mapping) and response.get("choice") in (RAISE, STOP):
        return {"decision": response["choice"], "data": {"to": response.get("to")}}
    raise _unfit(question, f"answer with {expected_answer(question)}, not {response!r}")


def _number(value: Any) -> Decimal | None:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    # "nan" and "inf" are valid decimals, but not bounds.
    return number if number.is_finite() else None


def _raised(question: Question, to: Any) -> Any:
    """Return the new value of a bound after a person answered ``raise`` to the question about it. If the answer has no
    number, it is that of `proposed_bound`.

    The new value must exceed the old value and the usage. A cost is returned as a string, seconds as a float and a
    count as an integer.
    """
    data = question.data or {}
    limit = _number(data.get("limit")) or Decimal(0)
    used = _number(data.get("used")) or Decimal(0)
    next_call = (_number(data.get("reserved")) or Decimal(0)) + (_number(data.get("needed")) or Decimal(0))
    number = Decimal(proposed_bound(limit, used, next_call)) if to is None else _number(to)
    if number is None or number <= used or number <= limit:
        raise _unfit(question, f"the new bound must be a number above {max(limit, used)}, not {to!r}")
    # The cost keeps its decimals as a string. Seconds may be fractions.
    if data.get("bound") == "max_cost":
        return str(number)
    if data.get("bound") == "max_seconds":
        return float(number)
    if number != number.to_integral_value():
        raise _unfit(question, f"the new bound must be an integer, not {to!r}")
    return int(number)


def proposed_bound(limit: Decimal | int, used: Decimal | int, next_call: Decimal | int = 0) -> Decimal | int:
    """Return the value to which a bound is raised if a person names no number: twice its limit or twice what is used,
    and at least as much as allows the next call.

    Parameters
    ----------
    next_call
        The most that running calls and the next call may use, beyond `used`.

    >>> proposed_bound(3, 3), proposed_bound(Decimal("0.0001"), 0, Decimal("0.0003")), proposed_bound(0, 0)
    (6, Decimal('0.0003'), 2)
    """
    # A bound of 0 would stay 0.
    return max(2 * limit, 2 * used, used + next_call) or 2


def _outcome(question: Question, response: Any) -> dict[str, Any]:
    answer = {"choice": response} if isinstance(response, str) else response
    if not isinstance(answer, Mapping) or answer.get("choice") not in (RETRY, DONE, FAIL):
        raise _unfit(question, f"answer with {expected_answer(question)}, not {response!r}")
    # The steps after the call continue with its result, so that an absent one would be a guess. None is a result.
    if answer["choice"] == DONE and "result" not in answer:
        raise _unfit(question, NO_RESULT)
    if answer["choice"] != DONE and "result" in answer:
        raise _unfit(question, f"only the choice done takes a result, not {answer['choice']}")
    return dict(answer)


def _changed(question: Question, response: Any) -> dict[str, Any]:
    choice = response.get("choice") if isinstance(response, Mapping) else response
    # The question lists the choices. Without a list, only a new start is offered.
    offered = (question.data or {}).get("choices") or [ANEW]
    if choice not in offered:
        raise _unfit(question, f"answer with {' or '.join(offered)}, not {response!r}")
    return {"choice": choice}


_READERS: dict[str, Callable[[Question, Any], dict[str, Any]]] = {
    CLARIFICATION: _clarification,
    CONFIRMATION: _confirmation,
    AGENT_REVIEW: _review,
    CHECKPOINT: _anything,
    RESOURCE_EXHAUSTED: _exhausted,
    TIMEOUT: _anything,
    SYSTEM_ERROR: _anything,
}


def value_of(question: Question) -> Any:
    """Return the value of an answered question for the code that asked it: a boolean for a confirmation, the text or
    data of a free answer, else the whole answer as a dict.
    """
    response = question.response or {}
    if question.kind == CONFIRMATION:
        return response.get("approved") is True
    if question.kind in (CLARIFICATION, CHECKPOINT):
        return response.get("data", response.get("text"))
    return dict(response)
