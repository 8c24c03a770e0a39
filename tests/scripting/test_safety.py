"""What a hostile or careless expression tries, in the purposes that must always answer the same."""

import pytest

from divebook.errors import ScriptError, ScriptLimitError, ScriptSyntaxError, TemplateError, UndefinedVariableError
from divebook.scripting import Interpreter, Limits, Purpose, evaluate_condition, evaluate_items, render_template

NAMES = {"inputs": {"test_input": "test_value"}, "state": {"test_state": "state_value", "xs": [1], "t": "text"}}
SMALL = Limits(seconds=0.2, memory=32 * 1024 * 1024)
FORBIDDEN = ["time", "rand", "random", "http", "os", "exec", "eval", "net", "fetch", "open", "print", "hash", "read"]
FORBIDDEN += [
    "write",
    "id",
    "globals",
    "vars",
    "locals",
    "getattr",
    "setattr",
    "input",
    "documents",
    "datetime",
    "iter",
]


@pytest.fixture(scope="module")
def interpreter():
    with Interpreter(SMALL) as interpreter:
        yield interpreter


@pytest.mark.parametrize("purpose", [Purpose.CONDITION, Purpose.TEMPLATE, Purpose.EACH])
def test_inputs_and_state_are_there(purpose, interpreter):
    expressions = ["inputs.test_input", "state.test_state", "len('abc')", "string(5)"]
    assert interpreter.evaluate(purpose, expressions, NAMES) == ["test_value", "state_value", 3, "5"]


@pytest.mark.parametrize("name", FORBIDDEN)
def test_names_that_could_answer_differently_are_undefined(name):
    with pytest.raises(UndefinedVariableError, match=f'undefined variable "{name}"'):
        evaluate_condition(f"$({name})", NAMES)
    with pytest.raises(TemplateError, match=f'undefined variable "{name}"'):
        render_template(f"${{{name}}}", NAMES)
    with pytest.raises(ScriptError, match=f'undefined variable "{name}"'):
        evaluate_items(f"$({name})", NAMES)


@pytest.mark.parametrize(
    "expression",
    [
        "().__class__",
        "().__class__.__bases__[0].__subclasses__()",
        "[].__len__()",
        "__name__",
        "__builtins__",
        "__divebook_attribute__(state, 't')",
        "[__x for __x in [1]]",
        "(lambda __x: 1)(2)",
        "f'{().__class__}'",
        "(len := 5)",
        "[y := 1, y]",
        "[len := 5 for x in [1]]",
        "lambda: 1",
        "[lambda: 1]",
        "str(lambda: 1)",
        "(lambda: (lambda: 1))()",
        "await state.t",
        "(yield 1)",
        "[x async for x in state.xs]",
        "state.t = 1",
        "import os",
        "1; 2",
    ],
)
def test_forbidden_syntax_is_refused_before_anything_runs(expression):
    with pytest.raises(ScriptSyntaxError):
        evaluate_condition(expression, NAMES)


@pytest.mark.parametrize(
    "expression",
    [
        '"{0.__class__}".format(state)',
        '"{0.__class__.__init__.__globals__}".format(1)',
        '"{x.__class__}".format_map({"x": 1})',
        "(1).real.imag",
        "state.t.upper",
        "state.keys.values",
        "(lambda x=len: x)()",
        "type(1)",
        "str",
        "math",
        "math.floor",
        "state.t.nothing()",
        "re.compile('a')",
        "slice(1)",
        "error('no')",
        "json.loads('{')",
    ],
)
def test_what_slips_past_the_check_fails_inside(expression, interpreter):
    with pytest.raises(ScriptError):
        interpreter.evaluate(Purpose.CONDITION, [expression], NAMES)


@pytest.mark.parametrize(
    "expression", ["[x for x in [1]][0] + x", "(lambda a: a)(1) + a", "{k: v for k, v in []} or k"]
)
def test_names_of_inner_scopes_do_not_leak(expression):
    with pytest.raises(UndefinedVariableError):
        evaluate_condition(expression, NAMES)


def test_an_inner_scope_may_use_any_name():
    assert evaluate_items("$([state for state in [1, 2]])", NAMES) == [1, 2]
    assert evaluate_items("$([error for error in state.xs])", NAMES) == [1]
    with pytest.raises(ScriptError, match="a comprehension cannot assign to 'len'"):
        evaluate_items("$([len for len in state.xs])", NAMES)


def test_expressions_cannot_change_what_they_are_given(interpreter):
    names = {"state": {"xs": [1], "n": {"deep": [1]}}, "inputs": {}}
    for expression in ["state.xs.append(2)", "state.n.deep.clear()", "state.update(a=1)", "state.pop('xs')"]:
        with pytest.raises(ScriptSyntaxError, match="read-only"):
            interpreter.evaluate(Purpose.CONDITION, [expression], names)
    interpreter.evaluate(Purpose.CONDITION, ["list(map(lambda x: [x].append(2), state.xs))"], names)
    assert names == {"state": {"xs": [1], "n": {"deep": [1]}}, "inputs": {}}
    assert interpreter.evaluate(Purpose.CONDITION, ["state"], names) == [names["state"]]


def test_one_value_does_not_reach_the_next_expression(interpreter):
    assert interpreter.evaluate(Purpose.TEMPLATE, ["secret"], {"secret": 1}) == [1]
    with pytest.raises(UndefinedVariableError):
        interpreter.evaluate(Purpose.TEMPLATE, ["secret"], {})


def test_a_value_called_like_a_builtin_does_not_stay(interpreter):
    for name in ["len", "error", "json", "str", "isinstance", "type"]:
        assert interpreter.evaluate(Purpose.TEMPLATE, [name], {name: 5}) == [5]
    values = interpreter.evaluate(Purpose.TEMPLATE, ["len('ab')", "json.loads('1')", "str(1)"], {})
    assert values == [2, 1, "1"]


@pytest.mark.parametrize(
    "expression",
    [
        "[0 for x in range(10**6) for y in range(10**6)]",
        "[0] * 10**9",
        "'a' * 10**10",
        "9 ** 9 ** 9",
        "sum(x for x in range(10**12))",
    ],
)
def test_endless_and_greedy_expressions_are_stopped(expression, interpreter):
    with pytest.raises(ScriptLimitError, match=r"ran longer than 0.2 s|needs more than 32 MiB"):
        interpreter.evaluate(Purpose.CONDITION, [expression], NAMES)
    assert interpreter.evaluate(Purpose.CONDITION, ["1 + 1"], NAMES) == [2]


def test_a_number_too_long_to_write_is_an_error_where_it_is_written():
    assert evaluate_items("$(10 ** 5000)", NAMES) == [10**5000]
    with pytest.raises(TemplateError, match="cannot be written as text"):
        render_template("${10 ** 5000}", NAMES)


def test_the_clock_stands_still_and_chance_is_fixed_even_for_code_that_escapes(interpreter):
    session = interpreter._processes.acquire(SMALL, fresh=True)
    try:
        first = session.evaluate("import time, random\ntime.sleep(100)\n[time.time(), random.random()]", {})
    finally:
        interpreter._processes.release(session, usable=False)
    session = interpreter._processes.acquire(SMALL, fresh=True)
    try:
        assert session.evaluate("import time, random\n[time.time(), random.random()]", {}) == first
    finally:
        interpreter._processes.release(session, usable=False)
