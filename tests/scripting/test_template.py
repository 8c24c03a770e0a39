import pytest

from divebook.errors import ScriptLimitError, TemplateError
from divebook.scripting import Interpreter, Limits, render_template, render_templates


@pytest.mark.parametrize(
    ("template", "names", "expected"),
    [
        ("Hello World", {}, "Hello World"),
        ("Hello ${name}", {"name": "Alice"}, "Hello Alice"),
        ("${greeting} ${name}!", {"greeting": "Hello", "name": "Bob"}, "Hello Bob!"),
        ("The answer is ${40 + 2}", {}, "The answer is 42"),
        ("Is it true? ${1 < 2}", {}, "Is it true? true"),
        ("Nil value: ${None}", {}, "Nil value: "),
        ("${user.name} is ${user.age}", {"user": {"name": "Charlie", "age": 30}}, "Charlie is 30"),
        ("Hello ${[1, 'two', True]} There", {}, "Hello 1\n\ntwo\n\ntrue There"),
        ("${state.g}, ${inputs.name}!", {"inputs": {"name": "Alice"}, "state": {"g": "Hi"}}, "Hi, Alice!"),
        ("${a}-${b}", {"a": "", "b": "x"}, "-x"),
        ("a ${} b ${ }", {}, "a ${} b ${ }"),
        ("${m}", {"m": {"k": 1}}, "k: 1"),
        ("${m}", {"m": {"z": 1, "a": [True, {"b": None}]}}, "z: 1\n\na: true\n\nb: "),
        ("${2.0} ${3.14159} ${1e6} ${0.1 + 0.2}", {}, "2 3.14159 1e+06 0.30000000000000004"),
        ("$(1 + 1) stays", {}, "$(1 + 1) stays"),
        ("$(a) ${1}", {}, "$(a) 1"),
        ("$(${1})", {}, "$(1)"),
        ('${ {"a": 1}["a"] }', {}, "1"),
        ('${"}"}', {}, "}"),
        ('${"${x}"}', {}, "${x}"),
        ("${{'k': {1: 'v'}}['k'][1]}}", {}, "v}"),
        ("{ } ${1} }", {}, "{ } 1 }"),
        ("${\n  1 +\n  1\n}", {}, "2"),
        ("${f'{name:>4}'}|", {"name": "x"}, "   x|"),
        ("é ${name} ü", {"name": "ß"}, "é ß ü"),
        ("${{'b', 'a'}}", {}, "a\n\nb"),
        ("${10 ** 30}", {}, "1" + "0" * 30),
        ("cost: $5, ${1}$", {}, "cost: $5, 1$"),
        ("echo $${HOME}", {}, "echo ${HOME}"),
        ("$$${HOME} ${1}", {}, "$${HOME} 1"),
        ("$${", {}, "${"),
        ("$${${1}}", {}, "${1}"),
        ('${"$"}${1}', {}, "$1"),
        ("${'$${x}'}", {}, "$${x}"),
    ],
)
def test_rendering(template, names, expected):
    assert render_template(template, names) == expected


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("Hello ${name", "unclosed template expression in string: Hello ${name"),
        ("${name} ${name", "unclosed template expression"),
        ("Hello ${1 +}", 'failed to parse template expression "1 +"'),
        ("${1 +} and {x}", 'failed to parse template expression "1 +"'),
        ("Hello ${undefined_var}", 'undefined variable "undefined_var"'),
        ("${x := 1}", 'failed to parse template expression "x := 1"'),
        ("${(x := 1)}", "':=' assigns a variable"),
        ("${import os}", 'failed to parse template expression "import os"'),
        ("${name} ${1 / 0}", 'failed to evaluate template expression "1 / 0": ZeroDivisionError: division by zero'),
        ("${len}", "a script cannot return a function"),
        ("echo ${HOME}", "write $${HOME} for the text ${HOME}"),
        ("${VAR:-x}", "write $${VAR:-x} for the text ${VAR:-x}"),
        ("a ${", "write $${ for the text ${"),
    ],
)
def test_what_cannot_be_rendered_names_the_expression(template, message):
    with pytest.raises(TemplateError) as caught:
        render_template(template, {"name": "Alice"})
    assert message in str(caught.value)


def test_templates_are_rendered_together():
    texts = ["plain", "${a}${b}", "", "${b}"]
    assert render_templates(texts, {"a": 1, "b": None}) == ["plain", "1", "", ""]


def test_text_without_expressions_never_reaches_the_sandbox(monkeypatch):
    monkeypatch.setattr(Interpreter, "evaluate", lambda *_: pytest.fail("evaluated"))
    assert render_templates(["plain", "$(x)", "${}", "} {"], {}) == ["plain", "$(x)", "${}", "} {"]


def test_a_limit_is_its_own_error():
    with Interpreter(Limits(seconds=0.1)) as interpreter, pytest.raises(ScriptLimitError):
        render_template("${[0 for x in range(10**6) for y in range(10**6)]}", {}, interpreter)


def test_values_in_templates_have_a_limit_together(monkeypatch):
    monkeypatch.setattr("divebook.scripting.templates.MAX_CHARACTERS", 100)
    names = {"state": {"text": "x" * 40}}
    assert render_template("${state.text}${state.text}", names) == "x" * 80
    for texts in (["${state.text}" * 3], ["${state.text}"] * 3):
        with pytest.raises(ScriptLimitError, match="the values in a template have more than 100 characters"):
            render_templates(texts, names)
