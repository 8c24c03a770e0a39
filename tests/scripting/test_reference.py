"""What an expression refers to: found without the sandbox, and always what the sandbox would say."""

from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook.errors import ScriptError, ScriptLimitError
from divebook.events.values import normalize
from divebook.scripting import (
    Interpreter,
    Limits,
    Purpose,
    default_interpreter,
    evaluate_condition,
    evaluate_items,
    render_template,
)
from divebook.scripting.syntax import compile_expression

KEYS = st.sampled_from(["a", "b", "get", "keys", "items", "x y", "", "é", "_", "0", "$type", "None"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.just(2**80),
    st.floats(allow_nan=False),
    st.text("aé'\"\\\U0001f600", max_size=3),
    st.binary(max_size=3),
    st.sampled_from([Decimal("1.10"), date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)]),
)
VALUES = st.recursive(
    LEAVES, lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS, part, max_size=3), max_leaves=8
).map(normalize)
DEFAULTS = st.sampled_from(["", ", None", ", 0", ", 'z'", ", -1", ", []", ", default=1"])
PARTS = st.one_of(
    KEYS.filter(str.isidentifier).filter(lambda key: key != "None").map(".{}".format),
    KEYS.map("[{!r}]".format),
    st.integers(-4, 4).map("[{}]".format),
    st.builds(".get({!r}{})".format, KEYS, DEFAULTS),
    st.sampled_from(["[True]", "[None]", "[0:1]", ".real", ".upper", "(0)", " . a", "[1.0]", "[-0]", ".get()"]),
)
EXPRESSIONS = st.builds(
    lambda name, parts: name + "".join(parts),
    st.sampled_from(["state", "inputs", "row", "len", "(row)", " row ", "missing"]),
    st.lists(PARTS, max_size=3),
)


def outcome(purpose, expression, names):
    try:
        return repr(default_interpreter().evaluate(purpose, [expression], names)[0])
    except ScriptError as error:
        return f"{type(error).__name__}: {error}"


@settings(max_examples=400, deadline=None)
@given(
    EXPRESSIONS,
    st.dictionaries(KEYS, VALUES, max_size=3),
    VALUES,
    st.sampled_from([Purpose.CONDITION, Purpose.TEMPLATE, Purpose.EACH, Purpose.VALUE]),
)
def test_a_reference_means_the_same_with_and_without_the_sandbox(expression, state, row, purpose):
    names = {"state": MappingProxyType(state), "inputs": state, "row": row, "len": row}
    asked = f"[{expression}][0]"
    assert compile_expression(asked).reference is None
    assert outcome(purpose, expression, names) == outcome(purpose, asked, names).replace(asked, expression)


NAMES = {
    "row": "one",
    "len": 3,
    "inputs": {"a": None, "b": True, "items": 1.5, "keys": {"deep": {"er": -0.0}}, "text": "é", "list": [1, {"x": 2}]},
    "state": MappingProxyType({"": 0, "nan": float("nan"), "whole": 7, "empty": {}}),
}


@pytest.mark.parametrize(
    "expression",
    [
        *("row", " row ", "(row)", "row.x", "len", "inputs", "inputs.a", "inputs.b", "inputs.items", "inputs.values"),
        *("inputs.a.b", "inputs.keys", "inputs.keys.deep.er", "inputs.keys.deep.no", "inputs.text", "inputs.list"),
        *("inputs.text.upper", "state.nan", "state.whole", "state.whole.real", "state.empty", "state.empty.no"),
        "state.no",
    ],
)
def test_some_references_mean_the_same_with_and_without_the_sandbox(expression):
    asked = f"[{expression}][0]"
    without = outcome(Purpose.TEMPLATE, asked, NAMES)
    assert outcome(Purpose.TEMPLATE, expression, NAMES) == without.replace(asked, expression)


ROWS = [{"id": number, "name": f"n{number}", "tags": ["a", "b"]} for number in range(20)]
STATE = {"state": MappingProxyType({"rows": ROWS, "deep": {"er": [{"text": "t"}]}, "count": 0, "no": "False"})}


@pytest.fixture
def closed():
    """An interpreter that has no sandbox."""
    with Interpreter() as interpreter:
        yield interpreter
        assert interpreter._processes._sandbox is None


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("state.rows", ROWS),
        (" state['rows'] ", ROWS),
        ("state.get('rows')", ROWS),
        ("state.get('other', 5)", 5),
        ("state.deep.er[-1]['text']", "t"),
        ("state.rows[3].id", 3),
    ],
)
def test_a_whole_value_never_enters_the_sandbox(closed, expression, value):
    assert closed.evaluate(Purpose.VALUE, [expression], STATE) == [value]


def test_a_value_that_is_handed_on_is_not_copied(closed):
    assert closed.evaluate(Purpose.VALUE, ["state.rows"], STATE)[0] is ROWS


def test_conditions_items_and_templates_that_only_refer_to_a_value_need_no_sandbox(closed):
    conditions = ("$(state.rows)", "state.count", "$(state.no)")
    assert [evaluate_condition(text, STATE, closed) for text in conditions] == [True, False, False]
    assert evaluate_items("$(state.rows)", STATE, closed) == ROWS
    assert render_template("${state.deep.er[0].text}, ${state.rows[0]}", STATE, closed) == (
        "t, id: 0\n\nname: n0\n\ntags: a\n\nb"
    )


def test_a_value_too_large_for_the_sandbox_is_named_with_what_to_do():
    names = {"state": {"rows": [{"n": number} for number in range(50_000)], "count": 1}, "inputs": {"text": "x"}}
    with Interpreter(Limits(memory=16 * 1024 * 1024)) as interpreter, pytest.raises(ScriptLimitError) as raised:
        interpreter.evaluate(Purpose.CONDITION, ["[row for row in state.rows] and inputs.text and state.count"], names)
    assert str(raised.value) == (
        "script needs more than 16 MiB of memory; state.rows, a list of 50,000, is the largest value that the "
        "code reads: "
        "pass the whole value to an action or a step with $(state.rows), and compute there what the script needs"
    )


def test_a_script_that_itself_takes_too_much_memory_blames_no_value():
    with Interpreter(Limits(memory=16 * 1024 * 1024)) as interpreter, pytest.raises(ScriptLimitError) as raised:
        interpreter.evaluate(Purpose.CONDITION, ["len(state.text * 40_000_000)"], {"state": {"text": "ab"}})
    assert str(raised.value) == "script needs more than 16 MiB of memory; work on smaller parts"
