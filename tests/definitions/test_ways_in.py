"""Inputs of workflow functions: a value arrives equal and of its type by every way in, or it is refused."""

import collections
import dataclasses
import datetime as dt
import enum
import json
import math
import re
import typing
from decimal import Decimal
from pathlib import Path, PurePosixPath
from uuid import UUID

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field

from divebook import Agent, Environment, ScriptedModel, Step, Workflow, action, allow
from divebook.definitions import workflow
from divebook.definitions.answer_types import instance_of
from divebook.definitions.definition import InputDefinition
from divebook.definitions.functions import bind_inputs, declared_type, inputs_schema, parameter_texts
from divebook.definitions.json_schemas import complaint
from divebook.definitions.resources import WorkspaceDefinition
from divebook.definitions.yaml_text import value_typed
from divebook.errors import DefinitionError, InputError, InterruptError
from divebook.events.codec import storable
from divebook.events.recorded import opened
from divebook.questions import Typed
from divebook.questions.question import without_formats
from divebook.queues import Worker
from divebook.serve.server import tool_of


class Colour(enum.Enum):
    RED = "red"
    DAY = dt.date(2026, 1, 1)
    PAIR = (1, 2)


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@allow
@dataclasses.dataclass(frozen=True)
class Order:
    day: dt.date
    amounts: tuple[Decimal, ...] = ()
    colour: Colour = Colour.RED


class Line(BaseModel):
    sku: str
    at: dt.datetime | None = None
    tags: set[str] = set()


class Address(typing.TypedDict):
    street: str
    since: typing.NotRequired[dt.date]


class Point(typing.NamedTuple):
    x: int
    size: Size = Size.SMALL


def without_fold(moment):
    """Return a time without the mark of the second of two equal hours, which ISO 8601 cannot write."""
    return moment.replace(fold=0)


OFFSETS = st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=2)), dt.timezone(-dt.timedelta(minutes=90))])
MOMENTS = st.datetimes(timezones=OFFSETS).map(without_fold)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
AMOUNTS = st.decimals(allow_nan=False)
ORDERS = st.builds(Order, st.dates(), st.lists(AMOUNTS, max_size=2).map(tuple), st.sampled_from(Colour))
LEAVES = [
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (str, TEXTS),
    (dt.date, st.dates()),
    (dt.datetime, MOMENTS),
    (dt.time, st.times().map(without_fold)),
    (dt.timedelta, st.timedeltas(dt.timedelta(-999), dt.timedelta(999))),
    (Decimal, AMOUNTS),
    (UUID, st.uuids()),
    (Path, TEXTS.map(Path)),
    (PurePosixPath, TEXTS.map(PurePosixPath)),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (Rights, st.sampled_from([*Rights, Rights.READ | Rights.WRITE, Rights(0)])),
    (typing.Literal["a", "b", 3], st.sampled_from(["a", "b", 3])),
    (typing.Literal[Colour.DAY, 5], st.sampled_from([Colour.DAY, 5])),
    (Order, ORDERS),
    (Line, st.builds(Line, sku=TEXTS, at=st.none() | MOMENTS, tags=st.sets(TEXTS))),
    (Address, st.fixed_dictionaries({"street": TEXTS}, optional={"since": st.dates()})),
    (Point, st.builds(Point, st.integers(), st.sampled_from(Size))),
]
KEYS = [(kind, values) for kind, values in LEAVES if kind in (str, int, dt.date, UUID, Size)]
UNIONS = [
    (int, str),
    (int, float),
    (bool, int),
    (dt.date, dt.datetime),
    (Order, str),
    (UUID, int),
    (dt.timedelta, int),
    (Size, str),
]
"""Pairs of types whose values have different JSON forms."""


def containers(inner):
    """Return the pairs of annotation and values for types around the pair `inner`."""
    kind, values = inner
    several = st.lists(values, max_size=3)
    pairs = [
        (list[kind], several),
        (tuple[kind, ...], several.map(tuple)),
        (tuple[kind, int], st.tuples(values, st.integers())),
        (typing.Optional[kind], st.none() | values),  # noqa: UP045
        (typing.Sequence[kind], several),
        *((dict[key, kind], st.dictionaries(keys, values, max_size=2)) for key, keys in KEYS),
    ]
    if kind in dict(KEYS) or kind is Order:
        pairs += [(set[kind], several.map(set)), (frozenset[kind], several.map(frozenset))]
    return st.sampled_from(pairs)


by_kind = dict(LEAVES[:16])
CHOICES = st.sampled_from([(typing.Union[pair], by_kind.get(pair[0], ORDERS) | by_kind[pair[1]]) for pair in UNIONS])  # noqa: UP007
ANNOTATED = st.recursive(st.sampled_from(LEAVES) | CHOICES, lambda inner: inner.flatmap(containers), max_leaves=3)


# Models of pydantic have rules of their own, and JSON schema has no integers that differ from 1.0.
EXACT = [leaf for leaf in LEAVES if leaf[0] is not Line]
EXACT += [
    (complex, st.complex_numbers(allow_nan=False, allow_infinity=False)),
    (typing.Annotated[int, Field(gt=3, le=9)], st.integers(4, 9)),
    (typing.Annotated[str, Field(min_length=2, pattern="^[ab]+$")], st.sampled_from(["ab", "aab"])),
    (typing.Annotated[list[int], Field(min_length=1)], st.lists(st.integers(), min_size=1, max_size=2)),
]
EXACT_TYPES = st.recursive(st.sampled_from(EXACT), lambda inner: inner.flatmap(containers), max_leaves=2)
ODD_FORMS = st.sampled_from(
    [
        *(
            None,
            True,
            0,
            -1,
            1.5,
            "",
            "a",
            "soon",
            "5",
            "NaN",
            "1e5",
            "null",
            "P1D",
            "5 days",
            "2026-03-01",
            "20260301",
        ),
        *([], [1], [[]], [None], [1, 1], {}, {"a": 1}, {"1": 1}, {"x": 1}, {"x": "1"}, {"day": "2026-03-01", "z": 1}),
    ]
)


def flow_of(annotation):
    async def plan(ctx, given):
        return given

    plan.__annotations__["given"] = annotation
    return workflow(plan)


def same(one, other):
    """Return whether two values are of the same type and equal, part by part."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        return same(sorted(one.items(), key=repr), sorted(other.items(), key=repr))
    return not isinstance(one, list | tuple) or all(map(same, one, other))


def arrives(flow, value, *, is_word=False):
    """Return the value that the function gets."""
    bound = bind_inputs(flow, {"given": value}, coerce_text=is_word)
    return opened(storable(bound, "inputs"))["given"]


@settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_a_value_arrives_equal_and_of_its_type_by_every_way_in(data):
    annotation, values = data.draw(ANNOTATED)
    value = data.draw(values)
    flow = flow_of(annotation)
    declared = declared_type(flow, flow.inputs[0])
    form = value if declared is None else declared.json_form(value)
    written = json.dumps(form, allow_nan=False, ensure_ascii=False)
    assert same(arrives(flow, value), value), "Python"
    assert same(arrives(flow, json.loads(written)), value), "JSON, as an MCP client sends it"
    assert same(arrives(flow, value_typed(written)), value), "YAML"
    # A plain word is enough, except for a text in a union, such as "5" or "null", which then needs its quotes.
    has_texts = str in typing.get_args(annotation) and isinstance(value, str)
    word = form if isinstance(form, str) and not has_texts else written
    assert same(arrives(flow, word, is_word=True), value), "word of a shell"
    schema = tool_of("plan", flow).input_schema
    jsonschema.validate({"given": json.loads(written)}, schema, jsonschema.Draft202012Validator)
    if declared is not None:
        assert declared.takes(form)


@settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_the_schema_accepts_exactly_what_an_input_accepts(data):
    flow = flow_of(data.draw(EXACT_TYPES)[0])
    # Forms of values of another type, among them, rarely, of the same.
    other, values = data.draw(EXACT_TYPES)
    declared = declared_type(flow_of(other), flow_of(other).inputs[0])
    value = data.draw(values)
    forms = st.just(value if declared is None else declared.json_form(value)) | ODD_FORMS
    form = json.loads(json.dumps(data.draw(forms)))
    assume(not (isinstance(form, float) and form.is_integer()))
    try:
        bind_inputs(flow, {"given": form})
        is_accepted = True
    except InputError:
        is_accepted = False
    schema = inputs_schema(flow)
    # A format may be stricter: it demands the offset of a time. Pydantic also reads other spellings of a UUID.
    if is_accepted:
        assert complaint(without_formats(schema), {"given": form}) is None
    if complaint(schema, {"given": form}) is None:
        assert is_accepted


@pytest.mark.parametrize(
    ("annotation", "wrong", "advice"),
    [
        (int, None, "write given=5"),
        (int, True, "write given=5"),
        (int, "5", "write given=5"),
        (float, "2.5", "write given=5"),
        (float, 10**400, "is too large"),
        (bool, 1, "write given=true"),
        (list, "a", r"write given=\[1, 2\]"),
        (int | None, "5", "write given=1"),
        (int | None, True, "write given=1"),
        (list[int], [1, None], r"\[1\]: .*write given=\[1\]"),
        (list[int], [True], r"write given=\[1\]"),
        (dict[str, int], {"a": "1"}, "a: Input should be a valid integer"),
        (dt.date, 0, "write given=2026-01-31"),
        (dt.date, "20260301", "not a number; write given=2026-01-31"),
        (dt.date, None, "write given=2026-01-31"),
        (dt.datetime, 1_700_000_000, "write given=2026-01-31T14:30:00Z"),
        (dt.date | None, "2026-02-30", "write given=2026-01-31"),
        (dt.timedelta, "long", "write given=PT90S"),
        (dt.timedelta, 90, "write given=PT90S"),
        (dt.timedelta, True, "write given=PT90S"),
        (Size, "1", "write given=1"),
        (Rights, -1, "combination of flags; write given=1"),
        (collections.defaultdict, {}, "instance of defaultdict$"),
        (UUID, "x", "write given=12345678-"),
        (Colour, "blue", "write given=red"),
        (Size, True, "write given=1"),
        (typing.Literal["a", "b"], "c", "write given=a"),
        (typing.Literal[1, 2], True, "write given=1"),
        (Order, {"day": "2026-01-31", "ammounts": []}, 'ammounts: .*write given={"day": "2026-01-31"}'),
        (Address, {"street": "x", "city": "y"}, 'write given={"street": "TEXT"}'),
        (tuple[int, str], [1], r'write given=\[1, "TEXT"\]'),
        (typing.Annotated[int, Field(gt=3)], 1, "type int, got 1: .*greater than 3; write given=4"),
        (list[typing.Annotated[int, Field(gt=3)]], [1], r"type list\[int\], .*write given=\[4\]"),
        (typing.Annotated[float, Field(gt=0, lt=1)], 2, "write given=0.5"),
        (typing.Annotated[int, Field(multiple_of=7, ge=10)], 2, "write given=14"),
        (typing.Annotated[str, Field(min_length=6)], "x", "write given=TEXTTT"),
        (typing.Annotated[str, Field(pattern="^a+$")], "x", r"match pattern '\^a\+\$'$"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_value_of_another_type_is_refused_with_its_name_and_the_way_to_write_it(annotation, wrong, advice):
    with pytest.raises(InputError, match='input "given" must be of type') as refused:
        bind_inputs(flow_of(annotation), {"given": wrong})
    assert refused.value.name == "given"
    assert re.search(advice, str(refused.value)), str(refused.value)


def test_words_of_a_command_line_are_yaml_unless_the_input_is_a_text():
    cases = [
        (str, "5", "5"),
        (str, '"5"', '"5"'),
        (list, "[1, a]", [1, "a"]),
        (dict, "{a: 1}", {"a": 1}),
        (bool, "Yes", True),
        (float, "5", 5.0),
        (float, "inf", math.inf),
        (int | str, "5", 5),
        (int | str, '"5"', "5"),
        (str | None, "null", None),
        (str | None, "a #b", "a #b"),
        (Order | str, "{day: 2026-01-31}", Order(dt.date(2026, 1, 31))),
        (list[dt.date], "[2026-01-31]", [dt.date(2026, 1, 31)]),
        (Decimal, "1.50", Decimal("1.50")),
        (list[Decimal], "[1.50]", [Decimal("1.50")]),
        (Path, "5", Path("5")),
        (UUID, "1" * 32, UUID("1" * 32)),
        (typing.Literal["1"], "1", "1"),
        (bool | None, "off", False),
        (typing.Any, "5", 5),
        (typing.Any, "five", "five"),
    ]
    for annotation, word, value in cases:
        found = arrives(flow_of(annotation), word, is_word=True)
        assert (type(found), repr(found)) == (type(value), repr(value)), (annotation, word)


PLAIN_UNIONS = [
    # (types, JSON value, value that the function gets)
    ((dt.date, str), "2026-03-01", dt.date(2026, 3, 1)),
    ((dt.date, str), "soon", "soon"),
    ((dt.date, str), "2026-03-01T10:00:00", "2026-03-01T10:00:00"),
    ((dt.date, dt.datetime, str), "2026-03-01", dt.date(2026, 3, 1)),
    ((dt.datetime, str), "2026-03-01T10:00:00Z", dt.datetime(2026, 3, 1, 10, tzinfo=dt.UTC)),
    ((dt.timedelta, str), "PT5S", dt.timedelta(seconds=5)),
    ((dt.timedelta, str), "5", "5"),
    ((dt.time, str), "10:30", dt.time(10, 30)),
    ((UUID, str), str(UUID(int=1)), UUID(int=1)),
    ((Colour, str), "red", Colour.RED),
    ((Colour, str), "blue", "blue"),
    ((Size, int), 1, Size.SMALL),
    ((Size, int), 7, 7),
    ((typing.Literal[Colour.DAY], str), "2026-01-01", Colour.DAY),
    # Any text is a path, and numbers are not made from texts.
    ((Path, str), "a", "a"),
    ((Decimal, str), "1.5", "1.5"),
    ((Decimal, str), 1.5, Decimal("1.5")),
    ((int, str), "5", "5"),
    ((int, float), 5, 5),
    ((int, float), 5.0, 5.0),
    ((bool, int), True, True),
    ((bool, int), 1, 1),
]


@pytest.mark.parametrize(("kinds", "given", "value"), PLAIN_UNIONS, ids=str)
def test_a_union_reads_a_value_by_one_rule_in_any_order_and_by_every_way(kinds, given, value):
    written = json.dumps(given)
    for ordered in (kinds, kinds[::-1]):
        flow = flow_of(typing.Union[ordered])  # noqa: UP007
        assert same(arrives(flow, given), value), "Python"
        assert same(arrives(flow, value_typed(written)), value), "YAML"
        # A number would be read from a word without its quotes.
        assert same(arrives(flow, written, is_word=True), value), "word of a shell"
        assert same(arrives(flow, value), value), "a value of the type"


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize("annotation", [Name, list[Name], Name | None, dict[str, Name]], ids=str)
def test_a_type_as_which_no_value_can_arrive_is_refused_where_the_function_is_defined(annotation):
    with pytest.raises(DefinitionError, match=r"^input 'given' .* annotated with Name, a subclass of str.*NewType"):
        flow_of(annotation)


def test_iterables_stay_what_they_are():
    for value in ([1], (1,), {1}):
        assert same(arrives(flow_of(typing.Iterable[int]), value), value)


DAY = dt.date(2026, 3, 1)


@workflow
async def echo_day(ctx, day: dt.date, size: Size = Size.SMALL, left: int = 0):
    if left:
        return await ctx.continue_as_new({"day": day.isoformat(), "size": 2, "left": left - 1})
    return [day, size]


@workflow
async def parent_of_day(ctx, day: dt.date):
    return (await ctx.run("echo_day", {"day": str(day), "size": 2}))["result"]


def test_the_types_hold_for_queues_children_successors_and_forks(tmp_path):
    expected = [DAY, Size.LARGE]
    inputs = {"day": "2026-03-01", "size": 2}
    with Environment(store=tmp_path / "runs.db", workflows=[echo_day, parent_of_day]) as environment:
        run = environment.start("echo_day", inputs).wait(10)
        assert run.outputs["result"] == expected
        assert environment.start("parent_of_day", {"day": "2026-03-01"}).wait(10).outputs["result"] == expected
        first = environment.start("echo_day", {**inputs, "left": 1}).wait(10)
        assert first.successor.wait(10).outputs["result"] == expected
        other = run.what_if({"inputs": {"day": "2026-04-01"}})
        assert other.run.wait(10).outputs["result"] == [dt.date(2026, 4, 1), Size.LARGE]
        queued = environment.enqueue("echo_day", inputs)
        with pytest.raises(InputError, match=r'input "day" must be of type datetime\.date'):
            environment.enqueue("echo_day", {"day": "soon"})
        with Worker(environment):
            assert queued.wait(30).outputs["result"] == expected


@action("Keep")
def keep(
    day: dt.date, order: Order | None = None, amount: Decimal = Decimal(1), when: "dt.date | str" = "x", n: int = 0
):
    return [day, order, amount, when, n]


def called(parameters):
    flow = Workflow("calls", [Step("keep", action="Keep", parameters=parameters, store="kept")])
    with Environment(store="memory:", workflows=[flow], actions=[keep]) as environment:
        return environment.start("calls").wait(10)


def test_parameters_of_an_action_arrive_as_its_annotations_say():
    parameters = {"day": "2026-03-01", "order": {"day": "2026-03-02"}, "amount": "1.50", "when": "2026-03-03"}
    expected = [DAY, Order(dt.date(2026, 3, 2)), Decimal("1.50"), dt.date(2026, 3, 3), 0]
    assert same(called(parameters).variables["kept"], expected)
    assert same(
        called({"day": "2026-03-01", "when": "soon", "order": None}).variables["kept"],
        [DAY, None, Decimal(1), "soon", 0],
    )


def test_a_parameter_of_an_action_is_read_from_the_text_of_a_template():
    assert same(called({"day": "2026-03-01", "n": "8"}).variables["kept"], [DAY, None, Decimal(1), "x", 8])
    parameters = {"day": "2026-03-01", "order": '{"day": "2026-03-02"}'}
    assert same(called(parameters).variables["kept"], [DAY, Order(dt.date(2026, 3, 2)), Decimal(1), "x", 0])


@pytest.mark.parametrize(
    ("name", "other"),
    [("day", "soon"), ("day", None), ("n", "five"), ("n", None), ("n", True), ("order", {"dayy": 1}), ("amount", "x")],
)
def test_a_parameter_of_an_action_that_does_not_fit_its_annotation_stays_as_it_is(name, other):
    run = called({"day": "2026-03-01", name: other})
    values = dict(zip(("day", "order", "amount", "when", "n"), run.variables["kept"], strict=True))
    assert same(values[name], other)


@pytest.mark.parametrize(
    ("parameters", "output"),
    [
        ({"Command": "echo 1; exit 3", "Check": 0}, {"exit_code": 3, "stdout": "1\n", "stderr": ""}),
        ({"Command": ["echo", "1"]}, {"exit_code": 0, "stdout": "1\n", "stderr": ""}),
        ({"Command": "exit 3", "Check": "false"}, None),
    ],
)
def test_built_in_actions_get_their_parameters_unchanged(parameters, output, tmp_path):
    flow = Workflow(
        "shell", [Step("s", action="Workspace.Shell", parameters=parameters, store="kept", workspace="code")]
    )
    with Environment(store="memory:", workflows=[flow]) as environment:
        environment.add_workspace(WorkspaceDefinition("code", folder=str(tmp_path)))
        run = environment.start("shell").wait(30)
    assert run.variables.get("kept") == output
    # Any text but an empty one is true.
    assert (run.status == "failed") is (output is None)


def test_arguments_of_a_tool_arrive_as_its_annotations_say():
    given = {"day": "2026-03-01", "when": "2026-03-02", "order": {"day": "2026-03-02"}, "choice": ["2026-03-03", "red"]}
    received = []

    def look(day: dt.date, when: "dt.date | str", order: Order | None, choice: list[Colour | dt.date | str]) -> int:
        received.extend([day, when, order, choice])
        return 1

    agent = Agent("clerk", model=ScriptedModel([{"call": {"look": given}}, "done"]), tools=[look])
    flow = Workflow("calls", [Step("ask", agent="clerk", prompt="Go.")])
    with Environment(store="memory:", agents=[agent], workflows=[flow]) as environment:
        assert environment.start("calls").wait(10).status == "completed"
    days = [DAY, dt.date(2026, 3, 2), Order(dt.date(2026, 3, 2)), [dt.date(2026, 3, 3), Colour.RED]]
    assert same(received, days)


def test_a_class_that_is_defined_after_its_workflow_can_be_an_input():
    @workflow
    async def early(ctx, given: "Late"):
        return given

    @dataclasses.dataclass
    class Late:
        day: dt.date

    # The name is looked up where the function is defined, as that of a class of a module would be.
    globals()["Late"] = Late
    try:
        with Environment(store="memory:", workflows=[early]) as environment:
            run = environment.start("early", {"given": {"day": "2026-03-01"}}).wait(10)
            assert run.outputs["result"] == Late(DAY)
    finally:
        del globals()["Late"]


@pytest.mark.parametrize(
    ("annotation", "answers", "value"),
    [
        (int | None, [None, {"data": None}, Typed("null")], None),
        (int | None, [3, {"data": 3}, Typed("3")], 3),
        (dt.date, ["2026-03-01", DAY, Typed("2026-03-01")], DAY),
        (dt.date | str, ["soon", Typed("soon")], "soon"),
        (Order, [{"day": "2026-03-01"}, Order(DAY), {"data": Order(DAY)}, Typed("{day: 2026-03-01}")], Order(DAY)),
        (Decimal, ["1.50", Decimal("1.50"), Typed("1.50")], Decimal("1.50")),
        (Size, [1, Size.SMALL, Typed("1")], Size.SMALL),
    ],
    ids=str,
)
def test_an_answer_arrives_as_its_type_says(annotation, answers, value):
    @workflow("asks")
    async def flow(ctx):
        return await ctx.ask("Which?", annotation)

    for answer in answers:
        with Environment(store="memory:", workflows=[flow]) as environment:
            run = environment.start("asks").wait(10)
            run = run.answer(run.open_questions[0].id, answer).wait(10)
            assert same(run.outputs["result"], value), answer


@dataclasses.dataclass
class Note:
    text: str | None
    share: float | None = None
    data: bytes | None = None


@pytest.mark.parametrize(
    ("annotation", "answer"),
    [
        (bytes, b"abc"),
        (str, b"abc"),
        (str, DAY),
        (str, Decimal("1.50")),
        (typing.Annotated[str, Field(min_length=3)], DAY),
        (typing.Annotated[str, Field(pattern="^2026")], DAY),
        (typing.Literal["2026-03-01"], DAY),
        (dt.date | str, DAY),
        (list[dt.date | str], [DAY]),
        (str | None, float("nan")),
        (int, Size.SMALL),
        (typing.Literal["red"], Colour.RED),
        (list[int], (1, 2)),
        (dict[str, int], {1: 2}),
        (Colour, Colour.PAIR),
        (dict, Order(DAY)),
        (dict | Order, Order(DAY)),
        (Note, Note("a", float("nan"))),
        (Note, Note("a", data=b"abc")),
    ],
    ids=str,
)
def test_an_answer_whose_json_form_would_arrive_as_another_value_is_refused(annotation, answer):
    allow(Note)

    @workflow("asks")
    async def flow(ctx):
        return await ctx.ask("Which?", annotation)

    with Environment(store="memory:", workflows=[flow]) as environment:
        run = environment.start("asks").wait(10)
        with pytest.raises(InterruptError, match="still open"):
            run.answer(run.open_questions[0].id, answer)
        run.cancel()


@pytest.mark.parametrize(
    ("annotation", "answer"),
    [
        (dt.datetime, dt.datetime(2026, 3, 1, 10, tzinfo=dt.UTC)),
        (dt.timedelta, dt.timedelta(seconds=90)),
        (UUID, UUID(int=1)),
        (list[dt.date], [DAY, DAY]),
        (dict[str, Decimal], {"a": Decimal("1.50")}),
        (dt.date | None, DAY),
        (Colour, Colour.RED),
        (list[Order], [Order(DAY, (Decimal("1.5"),))]),
        (Note, Note("a", 1.5)),
    ],
    ids=str,
)
def test_an_answer_of_the_type_of_its_question_arrives_as_it_was_given(annotation, answer):
    allow(Note)

    @workflow("asks")
    async def flow(ctx):
        return await ctx.ask("Which?", annotation)

    with Environment(store="memory:", workflows=[flow]) as environment:
        run = environment.start("asks").wait(10)
        run = run.answer(run.open_questions[0].id, answer).wait(10)
        assert same(run.outputs["result"], answer)


RECORDED_ANSWERS = [
    # (type of the answer, data in the log, value that the workflow got when it was recorded)
    (dt.date | str, "2026-01-31", "2026-01-31"),
    (str | dt.datetime, "2026-01-31T10:00:00Z", "2026-01-31T10:00:00Z"),
    (UUID | str, str(UUID(int=1)), str(UUID(int=1))),
    (Colour | str, "red", "red"),
    (Size | int, 1, 1),
    (dt.date | dt.datetime, "2026-01-31", DAY.replace(month=1, day=31)),
    (list[dt.date | str], ["2026-01-31"], ["2026-01-31"]),
    (Decimal | str, "1.50", "1.50"),
]


@pytest.mark.parametrize(("annotation", "data", "value"), RECORDED_ANSWERS, ids=str)
def test_an_answer_of_an_older_log_is_converted_as_when_it_was_recorded(annotation, data, value):
    assert same(instance_of(annotation, json.loads(json.dumps(data))), value)


@pytest.mark.parametrize(
    ("annotation", "answer"), [(int, None), (int | None, ""), (Decimal, None), (dt.date, "soon"), (str | None, " ")]
)
def test_an_answer_that_does_not_fit_its_type_leaves_the_question_open(annotation, answer):
    @workflow("asks")
    async def flow(ctx):
        return await ctx.ask("Which?", annotation)

    with Environment(store="memory:", workflows=[flow]) as environment:
        run = environment.start("asks").wait(10)
        with pytest.raises(InterruptError, match="still open"):
            run.answer(run.open_questions[0].id, answer)
        assert run.status == "waiting"
        run.cancel()


def without_tiger(text):
    if "tiger" in text:
        raise ValueError(f"{text} has a tiger")
    return text


@pytest.mark.parametrize(
    ("name", "annotation", "given"),
    [
        ("password", int, "hunter2-tiger"),
        ("api_key", typing.Annotated[str, AfterValidator(without_tiger)], "hunter2-tiger"),
        ("token", list[int], ["hunter2-tiger"]),
        ("login", int, {"password": "hunter2-tiger"}),
    ],
    ids=["number", "validator of a class", "list", "mapping"],
)
def test_an_error_about_an_input_hides_secrets(name, annotation, given):
    scope = {"annotation": annotation, "workflow": workflow}
    exec(f"@workflow\nasync def secret(ctx, {name}: annotation): pass", scope)
    flow = scope["secret"]
    with pytest.raises(InputError, match=rf'input "{name}" must be of type .*\[redacted\]') as caught:
        bind_inputs(flow, {name: given})
    assert "hunter2" not in str(caught.value)


def test_an_error_about_an_input_of_a_definition_hides_a_secret():
    flow = Workflow("secret", [Step("s", script="1")], inputs=[InputDefinition("password", type="int")])
    with pytest.raises(InputError, match=r'input "password" must be of type int, got str: \[redacted\]'):
        bind_inputs(flow, {"password": "hunter2-tiger"})


@workflow
async def described(ctx, day: dt.date, colour: Colour = Colour.RED, at: dt.datetime | None = None, extra=(1, 2)):
    """Plan a day.

    Parameters
    ----------
    day : date
        The day
        to plan.
    colour
        Its colour.

        More about it.

    Returns
    -------
    at
        Nothing.
    """


def test_the_schema_of_inputs_has_types_descriptions_and_defaults():
    schema = inputs_schema(described)
    assert schema["properties"] == {
        "day": {"type": "string", "format": "date", "description": "The day to plan."},
        "colour": {"$ref": "#/$defs/Colour", "description": "Its colour.", "default": "red"},
        "at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None},
        # The JSON form [1, 2] would arrive as a list, so it is not published as the default.
        "extra": {},
    }
    assert schema["$defs"]["Colour"]["enum"] == ["red", "2026-01-01", [1, 2]]
    assert (schema["required"], schema["additionalProperties"]) == (["day"], False)


@pytest.mark.parametrize(
    "docstring",
    [
        "Args:\n    day (date): The\n        day.\n    n: A number.\n\nReturns:\n    n: no",
        ":param date day: The day.\n:param n: A\n    number.",
    ],
)
def test_descriptions_of_parameters_are_read_in_other_styles(docstring):
    assert parameter_texts(f"Plan.\n\n{docstring}\n") == {"day": "The day.", "n": "A number."}
