"""The script language of the old system, translated when a definition is read."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.definitions import dialect
from divebook.definitions.reader import read_workflow
from divebook.environments.environment import Environment
from divebook.stores import MemoryStore


@pytest.mark.parametrize(
    ("old", "python"),
    [
        ('len(x) > 0 ? "a" : "b"', '("a" if len(x) > 0 else "b")'),
        ("a ? b ? 1 : 2 : 3", "((1 if b else 2) if a else 3)"),
        ('{"k": x ? 1 : 2, "l": [y ? 3 : 4]}', '{"k": (1 if x else 2), "l": [(3 if y else 4)]}'),
        ("!a && b != c || nil == d", "not a and b != c or None == d"),
        ("x := 1\nx + 1 // one", "x = 1\nx + 1 # one"),
        ("`a\\n` + x ? 1 : 2", "(1 if 'a\\\\n' + x else 2)"),
        ('if n > 1 { "many" } else { "one" }', '(("many" if n > 1 else "one"))'),
        ("true", "True"),
    ],
)
def test_the_old_language_becomes_python(old, python):
    assert " ".join(dialect.script(old).split(" ")).replace("  ", " ") == python


@pytest.mark.parametrize(
    "text",
    ["a // b", "x if y else z", '{"a": 1}', '"c ? a : b"', "xs[1:2]", "lambda x: x", "'it && that'", "a ? b", "1 +"],
)
def test_python_and_what_is_neither_stay_as_they_are(text):
    assert dialect.script(text) == dialect.expression(text) == text


PIECES = st.sampled_from(["x", "1", "'?'", '"a:b"', " ", "\n", "?", ":", ":=", "&&", "!", "(", ")", "[", "]", "{", "}"])


@given(st.lists(PIECES, max_size=25).map("".join))
def test_whatever_is_read_stays_or_becomes_python(text):
    made = dialect.script(text)
    assert made == text or ast.parse(made.strip())


def test_the_clock_and_chance_are_imported_once():
    made = dialect.script("s := string(time.now())\ns + string(time.now()) + string(rand.intn(9))")
    assert made.splitlines()[:2] == ["from datetime import datetime", "import random"]


def run(definition, inputs=None, **options):
    with MemoryStore() as store:
        environment = Environment(store=store)
        execution = environment.start(read_workflow(definition, dialect="dive"), inputs or {}, **options).wait(30)
        assert execution.status == "completed", execution.error
        return execution.variables


def test_every_place_of_code_is_translated():
    steps = [
        {"Name": "a", "Script": 'n := 2\nn > 1 && true ? "two" : "one"', "Store": "a"},
        {"Name": "b", "Script": "state.item", "Each": {"Items": '$(state.a == "two" ? [1, 2] : [])', "As": "item"}},
        {"Name": "c", "Action": "Print", "Parameters": {"Message": '${state.a == "two" ? 1 : 2}'}, "Store": "c"},
        {"Name": "d", "Script": "nil", "Store": "d", "Next": [{"Step": "e", "Condition": "state.d == nil && !false"}]},
        {"Name": "e", "Script": "string(time.now()) != nil", "Store": "e"},
    ]
    assert run({"Name": "w", "Steps": steps}) == {"a": "two", "c": "", "d": None, "e": True}


def test_an_input_given_as_text_stays_text():
    inputs = [{"Name": "n", "Type": "int"}, {"Name": "yes", "Type": "boolean"}]
    found = run(
        {"Name": "w", "Inputs": inputs, "Steps": [{"Name": "a", "Script": "[inputs.n, inputs.yes]", "Store": "a"}]},
        {"n": "007", "yes": "true"},
        coerce_text=True,
    )
    assert found == {"a": ["007", "true"]}
