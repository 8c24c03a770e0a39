"""Answers that do not fit the type of a question are refused, and the question stays open. The error says what fits."""

import collections
import dataclasses
import datetime as dt
import enum
import fractions
import ipaddress
import json
import pathlib
import typing
import uuid
from decimal import Decimal

import pytest
from pydantic import BaseModel, Field

from divebook import Environment
from divebook.definitions import workflow
from divebook.definitions.answer_types import instance_of, schema_of
from divebook.definitions.json_schemas import FITTING, complaint
from divebook.errors import InterruptError
from divebook.questions import Typed
from divebook.questions.answer import checked_answer
from divebook.questions.question import Question, unnarrowed


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@dataclasses.dataclass
class Order:
    day: dt.date
    count: int = 0
    amount: Decimal = Decimal(1)


class Line(BaseModel):
    sku: str
    at: dt.datetime | None = None


class Point(typing.NamedTuple):
    x: int
    y: int = 0


class Address(typing.TypedDict):
    street: str
    since: typing.NotRequired[dt.date]


TYPES = [
    *(int, float, bool, str, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta, uuid.UUID, pathlib.Path, bytes),
    *(complex, fractions.Fraction, ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, type(None)),
    *(ipaddress.IPv6Interface, Colour, Size, Order, Line, Point, Address, list, dict, tuple, object, typing.Any),
    *(list[int], list[Decimal], tuple[int, str], tuple[int, ...], set[int], frozenset[str], dict[str, int]),
    *(dict[int, str], dict[dt.date, int], dict[Decimal, int], collections.deque[int], int | None, dt.date | None),
    *(int | str, float | str, Decimal | None, Order | None, list[Order], typing.Literal["a", 1]),
    typing.Annotated[int, Field(gt=3)],
    *(typing.Annotated[str, Field(min_length=2, pattern="^a")], typing.Annotated[list[int], Field(min_length=1)]),
]
ANSWERS = [
    *(None, True, False, 0, 1, -1, 5, 1.5, 10**30, "a", "soon", "5", "1.5", "-1.50", "NaN", "inf", "-Infinity", "1e5"),
    *("1__0", "null", "P1D", "PT5S", "-PT5S", "5 days", "2026-03-01", "2026-02-30", "20260301", "2026-03-01 10:00"),
    *("2026-03-01T10:00:00", "2026-03-01T10:00:00Z", "10:30", "10:30:00Z", "25:00:00Z", "1/3", "1/0", "x/y", "1+2j"),
    *("j", "(", "127.0.0.1", "999.1.1.1", "::1", "10.0.0.0/8", "10.0.0.1/8", "::1/64", str(uuid.UUID(int=1)), "red"),
    *("blue", [1], [None], [1, 1], ["a"], [1, "a"], ["5"], ["x"], [1.5], [1, 2, 3], {"a": 1}, {"1": 1}, {"1": "a"}),
    *({"2026-03-01": 1}, {"x": 1}, {"x": "1"}, {"day": "2026-03-01"}, {"day": "soon"}, {"dayy": "2026-03-01"}),
    *({"day": "2026-03-01", "z": 1}, {"day": "2026-03-01", "count": "5"}, {"day": "2026-03-01", "amount": "dear"}),
    *({"sku": 1}, {"sku": "a", "at": "soon"}, {"sku": "a", "at": None}, {"street": "a"}, {"street": "a", "since": "x"}),
    *([{"day": "soon"}], [{"day": "2026-03-01"}]),
]


def question_of(answer):
    return Question("ask_1", "clarification", "Which?", "main", "s", schema=schema_of(answer))


def refusal(question, answer, kind):
    """Return the error about an answer; None if it is accepted and becomes a value of the type."""
    try:
        stored = checked_answer(question, answer, FITTING, 0)
    except InterruptError as error:
        return str(error)
    instance_of(kind, stored.get("data", stored.get("text")))
    return None


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_an_accepted_answer_becomes_a_value_of_the_type_and_a_refused_one_says_what_fits(kind):
    question = question_of(kind)
    for given in ANSWERS:
        # As code gives it and as a widget sends it, wrapped, as a person types it in a shell, a line or a file.
        typed = Typed(given if isinstance(given, str) else json.dumps(given))
        errors = [refusal(question, answer, kind) for answer in (given, {"data": given}, typed)]
        for error in filter(None, errors):
            assert "The question is still open" in error
            missing = "an answer is missing: answer with a value that fits the schema of the question: "
            assert "expected " in error or missing in error


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (Decimal, "abc", "'abc' does not have the expected form; expected number"),
        (Decimal, Decimal("NaN"), "expected number"),
        (list[Decimal], ["dear"], r"\[0\]: 'dear' does not have the expected form; expected array"),
        (dt.date, "soon", "'soon' is not a 'date'; expected a date such as 2026-01-31"),
        (int | None, "x", "'x' has none of the expected forms; expected integer, or null"),
        (Order, {"day": "soon"}, r"day: 'soon' is not a 'date'; expected day \(a date such as 2026-01-31\), count"),
        (Order, {}, r"an answer is missing: answer with .* day \(a date such as 2026-01-31\)"),
        (Order, {"dayy": "2026-03-01"}, r"'day' is a required property; expected day \("),
        (
            list[Order],
            [{"day": "2026-03-01", "count": "x"}],
            r"\[0\]\.count: 'x' is not of type 'integer'; expected arr",
        ),
        (fractions.Fraction, "1/0", "expected number"),
        (complex, "x", "'x' does not have the expected form"),
        (dict[int, str], {"x": "a"}, "'x' does not"),
        (Colour, "blue", "'blue' is not one of .*; expected red"),
    ],
    ids=str,
)
def test_the_error_names_the_part_the_value_and_what_was_expected(kind, given, message):
    with pytest.raises(InterruptError, match=message):
        checked_answer(question_of(kind), given, FITTING, 0)


def test_the_patterns_for_answers_are_no_part_of_what_a_question_is():
    for kind in (Decimal, complex, dict[int, str], list[Decimal], Order):
        question = question_of(kind)
        recorded = question._replace(schema=unnarrowed(question.schema))
        assert question.schema != recorded.schema, kind
        assert question.content == recorded.content
        assert complaint(recorded.schema, {"x": "y"} if kind == dict[int, str] else "abc") is None or kind in (
            Order,
            list[Decimal],
        )


def test_a_question_of_a_decimal_stays_open_until_a_number_is_given():
    @workflow
    async def asks(ctx):
        return await ctx.ask("How much?", Decimal)

    with Environment(store="memory:", workflows=[asks]) as environment:
        run = environment.start("asks").wait(30)
        question = run.open_questions[0].id
        for wrong in ("abc", "NaN", True, [1], Decimal("Infinity")):
            with pytest.raises(InterruptError, match="still open"):
                run.answer(question, wrong)
        assert run.answer(question, "1.50").wait(30).result() == Decimal("1.50")
