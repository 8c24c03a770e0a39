import pytest

from divebook.errors import DivebookError, ScriptError, ScriptSyntaxError, UndefinedVariableError
from divebook.scripting import (
    Purpose,
    default_interpreter,
    evaluate_condition,
    evaluate_conditions,
    evaluate_items,
    render_template,
    truth,
)

NAMES = {
    "inputs": {"user_age": 25, "user_name": "Alice", "active": True},
    "state": {"score": 85, "category": "premium", "count": 5, "empty": "", "user": {"tags": ["a"]}},
}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("true", True),
        ("false", False),
        ("  TRUE ", True),
        ("$(False)", False),
        ("$(true)", True),
        ("$(inputs.user_age > 18)", True),
        ("$(inputs.user_age < 18)", False),
        ("$(state.score >= 80)", True),
        ('$(state.category == "premium")', True),
        ("$(inputs.active)", True),
        ("$(inputs.user_age > 21 and state.score > 80)", True),
        ("$(inputs.user_age < 21 or state.score < 50)", False),
        ("state.score > 80", True),
        ("$(state.count > 3)\n", True),
        ("  $( state.count > 3 )  ", True),
        ("(state.count > 9) or (state.score > 3)", True),
        ('"missing" in state', False),
        ('state.get("missing", 7) == 7', True),
        ('state["user"].tags[0] == "a"', True),
        ('inputs.user_name.lower().startswith("al")', True),
        ("len(state.user.tags) == 1", True),
        ("string(state.score) == '85'", True),
        ("state.count\n  >\n  3", True),
        ("state.count > 3  # enough", True),
        ("re.search('^pre', state.category) is not None", True),
        ("re.match('\\\\d+', '12') is not None", True),
        ("math.floor(2.5) == json.loads('2')", True),
        ("any(tag == 'a' for tag in state.user.tags)", True),
        ("max(inputs.keys(), key=lambda key: len(key)) == 'user_name'", True),
    ],
)
def test_a_condition_is_a_python_expression(condition, expected):
    assert evaluate_condition(condition, NAMES) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", False),
        ("hello", True),
        ("false", False),
        ("FALSE", False),
        ("TRUE", True),
        (2, True),
        (0, False),
        (0.0, False),
        ({}, False),
        ([False], True),
        (None, False),
    ],
)
def test_the_truth_of_a_value(value, expected):
    assert evaluate_condition("$(state.v)", {"inputs": {}, "state": {"v": value}}) is expected
    assert truth(value) is expected


def test_an_unknown_name_is_an_error_before_anything_runs():
    with pytest.raises(UndefinedVariableError, match='undefined variable "nonexistent_var"'):
        evaluate_condition("$(1 / 0 > 1 and nonexistent_var > 10)", NAMES)


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("score > 3", "write state.score"),
        ("active", "write inputs.active"),
        ("not true", "write True"),
        ("lenn(state)", "did you mean 'len'?"),
        ("time.time() > 3", "only script steps may use the current time or random numbers"),
        ("open('x')", "sandboxed"),
    ],
)
def test_an_unknown_name_comes_with_advice(condition, hint):
    with pytest.raises(UndefinedVariableError) as caught:
        evaluate_condition(condition, NAMES)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("a && b", "write 'and'"),
        ("a || b", "write 'or'"),
        ("!a", "write 'not x'"),
        ("a ? b : c", "write 'a if c else b'"),
        ("$(a) and $(b)", "'$(' is valid only at the start"),
        ("", "empty"),
        ("$()", "empty"),
        ("x = 1", "=="),
        ("1) + (2", ""),
        ("1)\n+\n(2", ""),
        ("x\nfor x in [1]", ""),
        ("\x00", ""),
        ("\ud800", ""),
        ("(" * 500 + ")" * 500, ""),
        ("-" * 100_000 + "1", ""),
    ],
)
def test_what_is_not_python_is_a_syntax_error_with_advice(condition, hint):
    with pytest.raises(ScriptSyntaxError) as caught:
        evaluate_condition(condition, NAMES)
    assert hint in str(caught.value)


@pytest.mark.parametrize("text", ["y = x +", "$(y = x +)", "y = = x"])
def test_an_assignment_that_is_wrong_otherwise_is_no_comparison(text):
    with pytest.raises(ScriptSyntaxError) as caught:
        evaluate_condition(text, NAMES)
    assert "==" not in str(caught.value)


def test_a_missing_key_names_the_nearest_one():
    with pytest.raises(ScriptError, match=r"state has no key 'cuont' \(did you mean 'count'\?\)"):
        evaluate_condition("state.cuont > 1", NAMES)
    with pytest.raises(ScriptError, match=r"state.user has no key 'tag' \(did you mean 'tags'\?\)"):
        evaluate_condition("state.user.tag", NAMES)
    with pytest.raises(ScriptError, match=r"inputs has no key 'zzz' \(keys: user_age, user_name, active\)"):
        evaluate_condition("inputs.zzz", NAMES)
    with pytest.raises(ScriptError, match=r"this mapping has no key 'zzz' \(keys: a\)"):
        evaluate_condition("{'a': 1}.zzz", NAMES)


def test_a_failure_keeps_type_message_and_line():
    with pytest.raises(ScriptError, match=r"^ZeroDivisionError: division by zero$") as one_line:
        evaluate_condition("1 / 0", NAMES)
    assert one_line.value.line == 1
    with pytest.raises(ScriptError, match=r"^ZeroDivisionError: division by zero \(line 3\)$") as several:
        evaluate_condition("state.count\n >\n 1 / 0", NAMES)
    assert several.value.line == 3


def test_conditions_are_evaluated_together():
    texts = ["true", "state.count > 3", "FALSE", "$(state.count > 7)", "state.empty"]
    assert evaluate_conditions(texts, NAMES) == [True, True, False, False, False]
    assert evaluate_conditions(["true", "false"], {}) == [True, False]
    assert evaluate_conditions([], {}) == []


def test_the_line_of_a_failure_is_counted_within_its_own_condition():
    with pytest.raises(ScriptError, match=r"\(line 2\)"):
        evaluate_conditions(["state.count\n>\n3", "1", "state.count\n> 1 / 0", "2"], NAMES)


CHANGEABLE = {"state": {"l": [2, 1], "m": {"k": [1]}, "s": {"a": 1}, "text": "a.b"}, "inputs": {"l": [1]}, "item": [1]}


@pytest.mark.parametrize(
    "expression",
    [
        "state.set('x', 1)",
        "state.delete('x')",
        "[state.set('x', 1) for i in [1]]",
        "f\"{state.set('x', 1)}\"",
        "state.l.append(1)",
        "state['m']['k'].extend([1])",
        "state.get('l').sort()",
        "state.m.get('k').insert(0, 1)",
        "inputs.l.remove(1)",
        "item.reverse()",
        "state.pop('l')",
        "state.m.update({'a': 1})",
        "state.setdefault('q', 1)",
        "inputs.clear()",
        "(lambda l: l.append(1))(state.l)",
        "[x.pop() for x in state.m.values()]",
        "(x := 1)",
        "state.x = 1",
        "x = 1",
        "state['x'] = 1",
        "state.x += 1",
        "x: int = 1",
        "del state.x",
        "del state['x']",
        "x = y = 1; x",
    ],
)
def test_whatever_changes_something_is_refused_as_read_only(expression):
    for evaluate in (
        lambda: evaluate_condition(f"$({expression})", CHANGEABLE),
        lambda: render_template(f"a ${{{expression}}}", CHANGEABLE),
        lambda: evaluate_items(f"$({expression})", CHANGEABLE),
        lambda: default_interpreter().evaluate(Purpose.VALUE, [expression], CHANGEABLE),
    ):
        with pytest.raises(DivebookError, match="conditions, templates and items are read-only"):
            evaluate()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("state.text.split('.').pop()", "b"),
        ("sorted(state.l).pop(0)", 1),
        ("[1, 2].pop()", 2),
        ("dict(a=1).setdefault('a', 2)", 1),
        ("state.m.copy().popitem()[0]", "k"),
    ],
)
def test_a_value_that_an_expression_makes_itself_can_be_changed(expression, value):
    assert default_interpreter().evaluate(Purpose.CONDITION, [expression], CHANGEABLE) == [value]
