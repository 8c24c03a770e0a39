"""What is typed means the same in the shell, on the line of a magic, up front and in a cell; what is printed works."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook.config.answers import answers_from, typed_answer
from divebook.definitions.json_schemas import FITTING
from divebook.engine.approvals import schema_of_answer
from divebook.errors import InterruptError
from divebook.events.codec import canonical_hash
from divebook.notebook.commands import parse, split
from divebook.questions import Question, checked_answer
from divebook.questions.question import (
    DEFINABLE,
    JUDGED,
    KINDS,
    example_answer,
    examples_in_full,
    expected_answer,
    expected_in_full,
)
from divebook.text.format import in_notebook, in_shell

NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CHOICE, LIST, TEXT = {"enum": ["1.10", 2]}, {"type": "array", "items": NUMBERS}, {"type": "string"}
BOUND = {"limit": 2, "used": 2, "bound": "max_llm_calls"}


def question(kind, schema=None, data=None):
    return Question("ask_1", kind, "Which?", "main", "s", schema=schema, data=data, optional=KINDS[kind].optional)


def in_the_shell(text):
    return typed_answer(shlex.split(shlex.quote(text))[0])


def on_a_line(text):
    words = split(in_notebook("answer", ["ask_1", text]).removeprefix("%dive answer "))
    return typed_answer(parse(words, {}, {}, inputs=False).words[1])


def up_front(text):
    return answers_from([f"s={text}"])._answers["s"]


def test_json_may_stand_in_the_quotes_that_shells_want():
    assert answers_from(["""s:='{"n": 3}'"""])._answers["s"] == {"n": 3}


FACES = (in_the_shell, on_a_line, up_front)

TABLE = [
    ("clarification", None, "1.10", {"text": "1.10"}),
    ("clarification", None, "yes", {"text": "yes"}),
    ("clarification", None, "yes: no", {"text": "yes: no"}),
    ("clarification", None, "[draft] of it", {"text": "[draft] of it"}),
    ("clarification", {"type": "string"}, "1.10", {"data": "1.10"}),
    ("clarification", {"type": "number"}, "1.10", {"data": 1.1}),
    ("clarification", {"type": ["string", "number"]}, "1.10", {"data": "1.10"}),
    ("clarification", CHOICE, "1.10", {"data": "1.10"}),
    ("clarification", CHOICE, "2", {"data": 2}),
    ("clarification", {"type": "boolean"}, "true", {"data": True}),
    ("clarification", {}, "3", {"data": "3"}),
    ("clarification", NUMBERS, "{n: 3}", {"data": {"n": 3}}),
    ("clarification", NUMBERS, '{"n": 3}', {"data": {"n": 3}}),
    ("clarification", NUMBERS, "'{n: 3}'", {"data": {"n": 3}}),
    ("clarification", NUMBERS, "three", None),
    ("clarification", NUMBERS, "'three'", None),
    ("clarification", TEXT, "'{n: 3}'", {"data": "{n: 3}"}),
    ("confirmation", None, "yes", {"approved": True}),
    ("confirmation", None, "No", {"approved": False}),
    ("confirmation", NUMBERS, "true", {"approved": True}),
    ("confirmation", NUMBERS, "{approved: true, data: {n: 1}}", {"approved": True, "data": {"n": 1}}),
    ("confirmation", None, "maybe", None),
    ("confirmation", None, "no: not h2", {"approved": False, "text": "not h2"}),
    ("confirmation", NUMBERS, "no: not h2", {"approved": False, "text": "not h2"}),
    ("confirmation", NUMBERS, "No: {n: 1}", {"approved": False, "text": "{n: 1}"}),
    ("confirmation", NUMBERS, "'no: not h2'", {"approved": False, "text": "not h2"}),
    ("confirmation", NUMBERS, "yes: do", None),
    ("confirmation", NUMBERS, "no:", None),
    ("agent_review", None, "modify", {"decision": "modify", "approved": False}),
    ("agent_review", None, "fine", None),
    ("agent_review", NUMBERS, "modify", {"decision": "modify", "approved": False}),
    ("agent_review", NUMBERS, "reject: too long", {"decision": "reject", "approved": False, "text": "too long"}),
    ("checkpoint", None, "seen", {"text": "seen"}),
    ("checkpoint", None, "", {}),
    ("timeout", None, "1", {"text": "1"}),
    ("system_error", None, "{a: 1}", {"data": {"a": 1}}),
    ("resource_exhausted", None, "raise", {"decision": "raise", "data": {"to": 4}}),
    ("resource_exhausted", None, "5", {"decision": "raise", "data": {"to": 5}}),
    ("resource_exhausted", None, "0", None),
    ("resource_exhausted", None, "stop", {"decision": "stop"}),
    ("outcome_unknown", None, "retry", {"choice": "retry"}),
    ("outcome_unknown", None, "done", None),
    ("outcome_unknown", None, "done {n: 1}", {"choice": "done", "result": {"n": 1}}),
    ("outcome_unknown", None, "{choice: done, result: null}", {"choice": "done", "result": None}),
    ("outcome_unknown", None, "perhaps", None),
]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(("kind", "schema", "text", "answer"), TABLE)
def test_what_is_typed_is_one_answer_at_every_face(face, kind, schema, text, answer):
    asked = question(kind, schema, BOUND if kind == "resource_exhausted" else None)
    if answer is None:
        with pytest.raises(InterruptError, match="still open"):
            checked_answer(asked, face(text), FITTING, 0)
    else:
        assert checked_answer(asked, face(text), FITTING, 0) == answer


@settings(max_examples=40)
@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_any_text_is_read_alike_or_refused_alike(text):
    def read(face, kind, schema):
        try:
            return checked_answer(question(kind, schema), face(text), FITTING, 0)
        except InterruptError as refused:
            return str(refused)

    for kind in KINDS:
        for schema in (None, NUMBERS, TEXT):
            assert read(in_the_shell, kind, schema) == read(up_front, kind, schema)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [*((kind, None) for kind in KINDS), *(("clarification", schema) for schema in (NUMBERS, CHOICE, LIST, TEXT))],
)
def test_a_printed_answer_fits_its_question(kind, schema):
    asked = question(kind, schema, BOUND if kind == "resource_exhausted" else None)
    for face in FACES:
        assert checked_answer(asked, face(example_answer(asked)), FITTING, 0)


@pytest.mark.parametrize("kind", JUDGED)
def test_a_word_with_data_is_printed_in_full_where_it_is_wanted_and_where_it_was_refused(kind):
    asked = question(kind, NUMBERS)
    (example,) = examples_in_full(asked)
    for face in FACES:
        assert checked_answer(asked, face(example), FITTING, 0)["data"] == {"n": 1}
    with pytest.raises(InterruptError) as refused:
        checked_answer(asked, typed_answer("{n: 1}"), FITTING, 0)
    assert expected_in_full(asked) in str(refused.value)
    assert example in expected_in_full(asked)


HOST = {"type": "object", "properties": {"host": {"type": "string"}}, "required": ["host"]}


@pytest.mark.parametrize("arguments", [None, HOST])
def test_other_arguments_and_a_rule_are_examples_of_their_own(arguments):
    """Who types the one to change a call allows no other; without a schema the call's own arguments are named."""
    asked = question("confirmation", schema_of_answer(arguments), {"parameters": {"host": "h1"}})
    assert [checked_answer(asked, typed_answer(example), FITTING, 0) for example in examples_in_full(asked)] == [
        {"approved": True, "data": {"parameters": {"host": "TEXT"}}},
        {"approved": True, "data": {"rule": {"scope": "run"}}},
    ]


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=12), max_size=4))
def test_printed_commands_are_read_as_they_were_meant(words):
    line = in_shell("signal", words, ["--store", "my runs.db"])
    command, verb, *read = shlex.split(line)
    assert (command, verb) == ("divebook", "signal")
    assert [word for word in read if word not in ("--", "--store", "my runs.db")] == [
        word for word in words if word not in ("--", "--store", "my runs.db")
    ]


@pytest.mark.parametrize(
    "word", ["go", "it's on", "-x", "'quoted'", '"double"', "a b", "key=value", "#1", "{n: 1}", "a'b"]
)
def test_printed_magics_are_read_as_they_were_meant(word):
    line = in_notebook("signal", ["exec_1", word], ["--store", "my runs.db"])
    read = parse(split(line.removeprefix("%dive signal ")), {}, {"--store": "store"}, inputs=False)
    assert (read.words, read.options) == (("exec_1", word), {"store": "my runs.db"})


def test_every_kind_says_what_it_wants_and_is_asked_by_definitions_but_one():
    assert set(KINDS) - set(DEFINABLE) == {"outcome_unknown", "agent_changed"}
    assert all(expected_answer(question(kind)) for kind in KINDS)


def test_equal_questions_have_equal_content_whoever_asks_and_when():
    asked = question("confirmation", NUMBERS, {"a": (1, 2)})
    again = asked._replace(id="ask_2", step="t", raised_us=7, data={"a": (1, 2)}, message="")
    assert asked.content == again.content
    assert asked.content != asked._replace(question="DROP all?").content
    assert asked.content != asked._replace(data={"a": (1, 3)}).content


def test_an_answer_to_a_question_whose_tuple_an_older_version_recorded_as_a_list_still_fits():
    asked = question("confirmation", NUMBERS, {"a": (1, 2)})
    recorded = asked._replace(data={"a": [1, 2]})
    assert canonical_hash(asked.content) == canonical_hash(recorded.content)
    assert canonical_hash(asked.content) != canonical_hash(asked._replace(data={"a": [1, 3]}).content)
