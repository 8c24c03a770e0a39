"""What looks like Python on the line of a magic is Python, or is refused with what to write: it never becomes text."""

import ast
import random
import re

import pytest
from IPython.core.error import UsageError

from divebook.errors import DivebookError
from divebook.notebook.commands import is_expression, refuse_inside, split
from divebook.notebook.magics import COMMANDS
from divebook.notebook.session import current_session

ASKING = "%%dive workflow asking\nInputs: [{Name: n}]\nSteps: [{Name: s, Ask: Which one?, Store: it}]"
PLAIN = "%%dive workflow plain\nInputs: [{Name: n}]\nSteps: [{Name: a, Script: inputs.n, Store: b}]"
SIGNAL = "%%dive workflow signalled\nSteps: [{Name: w, Type: wait, Signal: go, Store: got}]"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("$n", 3),
        ("$values['k']", 3),
        ('$values["two words"]', 4),
        ("$values.get('two words', 5)", 4),
        ("$[n, n + 1]", [3, 4]),
        ("$(n + 1)", 4),
        ("$dict(a=n)", {"a": 3}),
        ('$f"{n} of {n}"', "3 of 3"),
        ("$''.join(str(i) for i in range(n))", "012"),
        ("'$n'", "$n"),
        ("'{n}'", "{n}"),
        ("$5", "$5"),
        ("{a: 1}", {"a": 1}),
        ("{}", {}),
        ("'it costs $n {n}'", "it costs $n {n}"),
        ("['$n', '{n}']", ["$n", "{n}"]),
        ('"{{n}}"', "{{n}}"),
    ],
)
def test_an_input_is_python_after_a_dollar(cell, written, value):
    cell(PLAIN)
    cell("n, values = 3, {'k': 3, 'two words': 4}")
    cell(f"r = %dive run plain n={written}")
    assert cell("r.variables['b']")[0] == value


REFUSED = [
    ("{run.id}", "write $run.id"),
    ('"{run.id}"', '$f"{run.id}"'),
    ("run{n}", '$f"run{n}"'),
    ("/data/$n.csv", '$f"/data/{n}.csv"'),
    ('"$n"', "write $n"),
    ("${n}", "write $n"),
    ("$$n", "write $n"),
    ("$nope", "there is no variable 'nope'"),
    ("$n(", "the closing ) of '$n("),
    ("$n['a", "the closing quote ' is missing"),
    ("$n+", "is not a Python expression"),
    ("$nope.id", "there is no variable 'nope'"),
    ("$(1/0)", "raises ZeroDivisionError: division by zero"),
]
LINES = [
    "run {}",
    "run plain n={}",
    "run plain --store {}",
    "run plain --store={}",
    "run plain --bounds {}",
    "run plain --answer {}",
    "run plain --answers {}",
    "run plain --durability {}",
    "enqueue {}",
    "enqueue plain n={}",
    "enqueue plain --queue {}",
    "queue --store {}",
    "ask {} hello",
    "ask writer {}",
    "ask writer hello --note {}",
    "rules --revoke {}",
    "runs --status {}",
    "runs --workflow {}",
    "runs --tag {}",
    "runs --limit {}",
    "show {}",
    "open {}",
    "open f.ipynb {}",
    "resume {}",
    "recover {}",
    "inbox --store {}",
    "answer {} yes",
    "answer ask_1 {}",
    "answer ask_1 done --result {}",
    "answer ask_1 yes --by {}",
    "signal {} go",
    "signal exec_1 {}",
    "signal exec_1 go {}",
    "annotate {} --note read",
    "cancel {}",
    "why {}",
    "why n {}",
    "inspect {}",
    "verify {}",
    "files {}",
    "diff {}",
    "diff exec_1 {}",
    "apply {}",
    "apply exec_1 {}",
    "restore {} --to then",
    "restore exec_1 --to {}",
    "to-test {}",
    "compare {} exec_2",
    "fork {}",
    "try {}",
    "try draft {}",
    "tag exec_1 {}",
    "fork exec_1 --at {}",
    "what-if {}",
    "what-if exec_1 --at {}",
    "count --workflow {}",
    "keys {}",
    "list {}",
    "help {}",
]
# A command without a line of its own is tried with the option that each of them has.
LINES += [f"{name} --store {{}}" for name in COMMANDS if name not in {line.split()[0] for line in LINES}]


def test_every_command_is_in_the_table():
    assert {line.split()[0] for line in LINES} == set(COMMANDS)


@pytest.mark.parametrize("line", LINES)
def test_what_is_no_expression_is_refused_with_what_to_write(cell, line):
    cell(PLAIN)
    cell("n = 3")
    for written, message in REFUSED:
        with pytest.raises(UsageError, match=re.escape(message)):
            cell(f"%dive {line.format(written)}")


@pytest.mark.parametrize("line", ["run plain n={}", "answer ask_1 {}", "signal exec_1 go {}"])
@pytest.mark.parametrize("written", ["[$n, 1]", "{a: $n}", '["{n}"]', "[{n}]", "{a, b}"])
def test_data_that_hold_an_expression_are_refused(cell, line, written):
    cell(PLAIN)
    with pytest.raises(UsageError, match=r"variables inside .* are not replaced; write"):
        cell(f"%dive {line.format(written)}")


def test_ids_are_given_by_expressions(cell):
    cell(PLAIN)
    cell("first = %dive run plain n=1")
    cell("ids = [first.id]")
    for written in ("$first", "$first.id", "$ids[0]", '$f"{ids[0]}"'):
        assert cell(f"shown = %dive show {written}") is not None
        assert cell("shown.id == first.id")[0] is True


def test_answers_and_signals_are_given_by_expressions(cell):
    cell(ASKING)
    cell("asking = %dive run asking n=1")
    cell("question, text = asking.open_questions[0], 'a text'")
    cell("ended = %dive answer $question $text --by $question.id")
    assert cell("ended.variables['it']")[0] == "a text"
    cell(SIGNAL)
    cell("waiting = %dive run signalled")
    cell("ended = %dive signal $waiting $'go' $[1, {'a': 2}]")
    assert cell("ended.variables['got']")[0] == [1, {"a": 2}]


def test_options_are_given_by_expressions(cell, tmp_path):
    cell(PLAIN)
    cell("from pathlib import Path\nstore, limit = Path('other.db'), 1")
    cell("%dive run $'plain' n=1 --store $store")
    assert (tmp_path / "other.db").exists()
    assert len(cell("%dive runs --store $store --limit $limit")[0]) == 1


def test_what_is_no_word_is_refused(cell):
    with pytest.raises(UsageError, match=r"\$\[1\] is a list; expected a string, a number or an object with an .id"):
        cell("%dive show $[1]")


def test_the_names_of_a_function_count(cell):
    cell(PLAIN)
    cell("n = 1\ndef f(n):\n    return get_ipython().run_line_magic('dive', 'run plain n=$n')")
    assert cell("f(7).variables['b']")[0] == 7


def test_the_name_of_a_definition_may_be_an_expression(cell):
    cell("name = 'two'\n")
    cell("%%dive workflow $name\nSteps: [{Name: a, Script: 1}]")
    assert "two" in current_session().environment.definitions.workflows
    with pytest.raises((UsageError, DivebookError), match=r"write \$name"):
        cell("%%dive workflow {name}\nSteps: [{Name: a, Script: 1}]")


def test_what_a_refused_text_says_to_write_is_accepted():
    """Random texts: each hint is one word of the line, and is taken where the text was refused."""
    chance = random.Random(5)
    parts = ["a", "b", "$", "{", "}", "{a}", "${a}", "$a", "'", '"', ".", ":", "/", "\\", "é", "=", "x="]
    tried = 0
    while tried < 3000:
        text = "".join(chance.choices(parts, k=chance.randint(1, 7)))
        message = refusal_of(text)
        # A list or mapping gets another hint, as its parts may all need a change.
        if message is None or "after a dollar sign" in message:
            continue
        tried += 1
        hints = re.search(r"; write (?:(\$.*?) for the value, or )?(.*?) for this string", message).groups()
        for hint in filter(None, hints):
            assert split(hint) == [hint], (text, hint)
            if is_expression(hint):
                ast.parse(hint[1:], mode="eval")
            else:
                assert refusal_of(hint) is None, (text, hint)


def refusal_of(text):
    """Return the error text for a word of a line whose variables are not replaced; None for any other text."""
    try:
        if split(text) == [text] and not is_expression(text):
            refuse_inside("it", text)
    except UsageError as error:
        return str(error) if "are not replaced" in str(error) else None
    return None


def test_a_text_of_a_step_that_holds_a_template_is_refused_with_what_to_write(cell):
    cell(PLAIN)
    cell("run = %dive run plain n=1")
    with pytest.raises(
        UsageError, match=re.escape("write $f\"deploy={x}\" for the value, or deploy='{x}' for this string")
    ):
        cell("%dive run plain n=1 --answer deploy={x}")
    with pytest.raises(UsageError) as caught:
        cell('%dive what-if $run --prompt step="One word for: ${n}.text"')
    assert str(caught.value).endswith(
        "write $f\"step=One word for: {n}.text\" for the value, or step='One word for: ${n}.text' for this string"
    )
