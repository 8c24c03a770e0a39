"""The line of a magic."""

import re

import pytest
from IPython.core.error import UsageError

from divebook.commands.values import read_inputs
from divebook.definitions.definition import Workflow
from divebook.definitions.step import Step
from divebook.errors import InputError
from divebook.notebook.commands import Arguments, Names, objects_of, parse, split


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("run  audit", ["run", "audit"]),
        ("a=[1, 2] b={x: 1, y: [2, 3]}", ["a=[1, 2]", "b={x: 1, y: [2, 3]}"]),
        ('a=\'two words\' b="say \\"hi\\" now"', ["a='two words'", 'b="say \\"hi\\" now"']),
        ("a='it''s' b=O'Brien c=5\"", ["a='it''s'", "b=O'Brien", 'c=5"']),
        ("a=[']', \"}\", don't] b=1", ["a=[']', \"}\", don't]", "b=1"]),
        ("'my flow' a==1", ["'my flow'", "a==1"]),
        ("a= b=", ["a=", "b="]),
        ("größe=3", ["größe=3"]),
    ],
)
def test_words_keep_together_what_yaml_keeps_together(line, words):
    assert split(line) == words


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a='open", "the closing quote ' is missing after 'open'"),
        ("a=[1, {b: 2]", "the closing } of '[1, {b: 2]' is missing"),
    ],
)
def test_what_is_not_closed_is_told(line, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        split(line)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("3", 3),
        ("-2.5", -2.5),
        ("true", True),
        ("null", None),
        ("", None),
        ("~", None),
        ("yes", "yes"),
        ("2026-01-02", "2026-01-02"),
        ("plain", "plain"),
        ("'3'", "3"),
        ('"a\\tb"', "a\tb"),
        ("[1, b, 'c d']", [1, "b", "c d"]),
        ("{a: [true, ~]}", {"a": [True, None]}),
        ("*.py", "*.py"),
        ("#1", "#1"),
        ("&x", "&x"),
        ("!important", "!important"),
        ("http://x.org/?a=b", "http://x.org/?a=b"),
        ("a:", "a:"),
        ("@me", "@me"),
        ("'$name'", "$name"),
    ],
)
def test_values_are_yaml_and_what_is_not_yaml_is_text(written, value):
    assert read_inputs([f"x={written}"], Workflow("w", [Step("s", script="1")], inputs=["x"])) == {"x": value}


def test_a_plain_word_is_a_text_where_a_text_is_declared():
    written = ["a=1.10", "b=1.10", "c='2'", "d=null"]
    types = {"a": "string", "b": None, "c": "Text", "d": "str"}
    inputs = [{"name": name, "type": kind} for name, kind in types.items()]
    workflow = Workflow("w", [Step("s", script="1")], inputs=inputs)
    assert read_inputs(written, workflow) == {"a": "1.10", "b": 1.1, "c": "2", "d": "null"}


def test_a_dollar_names_a_variable_of_the_kernel():
    rows = [object()]
    assert objects_of(Arguments(inputs={"x": "$rows"}, names=Names({"rows": rows})))["x"] is rows


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("$row", r"there is no variable 'row' \(did you mean \$rows\?\)"),
        ("$zebra", "define the variable in a cell, or put the value in single quotes"),
    ],
)
def test_bad_expressions_are_told_with_their_input(written, message):
    with pytest.raises(UsageError, match=message):
        objects_of(Arguments(inputs={"x": written}, names=Names({"rows": 1, "_private": 2})))


@pytest.mark.parametrize(
    ("written", "message"),
    [("[1, !x 2]", "input 'x': unknown YAML tag"), ("[.inf]", "a finite number")],
)
def test_bad_values_are_told_with_their_input(written, message):
    with pytest.raises(InputError, match=message):
        read_inputs([f"x={written}"], Workflow("w", [Step("s", script="1")], inputs=["x"]))


FLAGS, VALUED = {"-b": "background", "--background": "background"}, {"--store": "store"}


def test_options_stand_anywhere():
    found = parse(["audit", "-b", "a=1", "--store", "'my db'"], FLAGS, VALUED, inputs=True)
    assert (found.words, found.inputs, found.options) == (("audit",), {"a": "1"}, {"background": "", "store": "my db"})
    assert parse(["--store=x.db"], FLAGS, VALUED, inputs=True).options == {"store": "x.db"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--backgroud"], r"unknown option --backgroud \(did you mean --background\?\)"),
        (["--zzz"], "available options: -b, --background, --store"),
        (["--store"], "option --store needs a value"),
        (["a=1", "a=2"], "input 'a' is given twice"),
    ],
)
def test_wrong_options_are_refused(words, message):
    with pytest.raises(UsageError, match=message):
        parse(words, FLAGS, VALUED, inputs=True)


def test_without_inputs_an_equals_sign_is_part_of_a_word():
    assert parse(["a=1"], {}, {}, inputs=False).words == ("a=1",)
