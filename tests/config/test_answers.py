"""Answers as they are typed, and where they are given up front."""

import pytest

from divebook.config.answers import answers_from
from divebook.definitions.json_schemas import FITTING
from divebook.errors import InputError
from divebook.questions import Question, Typed


def question(schema=None, kind="clarification"):
    return Question("ask_1", kind, "Which?", "main", "s", schema=schema)


@pytest.mark.parametrize(
    ("text", "schema", "meant"),
    [
        ("1.10", None, "1.10"),
        ("1.10", {"type": "string"}, "1.10"),
        ("yes: no", None, "yes: no"),
        ("'two words'", None, "two words"),
        ("4", {"type": "integer"}, 4),
        ("true", {"type": "boolean"}, True),
        ("{n: 3}", {"type": "object"}, {"n": 3}),
        ('["a"]', None, ["a"]),
        ("[draft] of it", None, "[draft] of it"),
        ("three", {"type": "integer"}, "three"),
    ],
)
def test_what_is_typed_means_what_its_question_asks_for(text, schema, meant):
    assert Typed(text).meant(question(schema), FITTING) == meant


def test_the_line_wins_over_what_is_given_and_that_over_the_file_and_that_over_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVEBOOK_ANSWERS", "{line: 1, given: 1, file: 1, environment: 1}")
    (tmp_path / "answers.yaml").write_text("line: 2\ngiven: 2\nfile: 2\n")
    answers = answers_from(["line:=4"], tmp_path / "answers.yaml", {"line": 3, "given": 3})
    known = answers._defaults | answers._answers
    assert known == {"line": 4, "given": 3, "file": 2, "environment": 1}
    assert set(answers.keys) == set(known)


def test_what_holds_for_every_run_need_not_be_used(monkeypatch):
    monkeypatch.setenv("DIVEBOOK_ANSWERS", "{often: 1}")
    assert answers_from(["here=2"]).unused == ("here",)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("sure", "write --answer step=value, or step:=JSON"),
        ("=x", "is not valid"),
        ("sure:={", "'sure': { is not JSON"),
    ],
)
def test_what_cannot_be_understood_is_told(typed, told):
    with pytest.raises(InputError, match=told):
        answers_from([typed])
