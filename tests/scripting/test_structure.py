"""Expressions that put values together: parts that are more than plain data stay what they are."""

import dataclasses
import enum

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import divebook
from divebook.errors import ScriptError, ScriptLimitError
from divebook.events.recorded import Recorded
from divebook.events.values import normalize
from divebook.scripting import Interpreter, Limits, Purpose, default_interpreter
from divebook.scripting.syntax import compile_expression
from tests.processor_time import processor_time_at_most


@divebook.allow
class Colour(enum.Enum):
    RED = "red"


@divebook.allow
@dataclasses.dataclass(frozen=True)
class Point:
    x: int


FRAME = normalize(pd.DataFrame({"a": [1, 2]}))
RED, POINT = normalize(Colour.RED), normalize(Point(3))
STATE = {"frame": FRAME, "red": RED, "point": POINT, "n": 1, "none": None, "frames": [FRAME, RED], "by": {"k": FRAME}}
STATE["rows"] = [{"ok": True, "f": FRAME}, {"ok": False, "f": RED}]


def value_of(expression, purpose=Purpose.VALUE):
    return default_interpreter().evaluate(purpose, [expression], {"state": STATE, "inputs": {}})[0]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[state.frame, state.red]", [FRAME, RED]),
        ("(state.frame, state.point)", [FRAME, POINT]),
        ("{'x': state.frame, 'y': [state.point, {'z': state.red}], 'n': state.n + 1}",
         {"x": FRAME, "y": [POINT, {"z": RED}], "n": 2}),
        ("[*state.frames, state.point]", [FRAME, RED, POINT]),
        ("{**state.by, 'x': state.red}", {"k": FRAME, "x": RED}),
        ("dict(x=state.red, y=[state.by.k])", {"x": RED, "y": [FRAME]}),
        ("state.frame if state.n > 0 else 1", FRAME),
        ("1 if state.n > 0 else state.missing", 1),
        ("state.none or state.red", RED),
        ("state.n and state.frame", FRAME),
        ("state.none and state.missing", None),
        ("state.frames + [state.point]", [FRAME, RED, POINT]),
        ("state.frames[state.n]", RED),
        ("state.by['k' + '']", FRAME),
        ("state.frames[1:]", [RED]),
        ("state.frames[::-1]", [RED, FRAME]),
        ("state.rows[state.n].f", RED),
        ("[row.f for row in state.rows]", [FRAME, RED]),
        ("[row.f for row in state.rows if row.ok]", [FRAME]),
        ("[[row.f, i] for row in state.rows for i in [1, 2] if row.ok]", [[FRAME, 1], [FRAME, 2]]),
        ("{str(row.ok): row.f for row in state.rows}", {"True": FRAME, "False": RED}),
        ("[len(state.frame), state.red == 'red', state.point.x]", [2, True, 3]),
        ("sum(row.a for row in state.frame)", 3),
        ("'a' + 'b' if state.n else ''", "ab"),
        ("[state\n  .frame,\n  1]", [FRAME, 1]),
    ],
)  # fmt: skip
def test_values_that_are_put_together(expression, expected):
    value = value_of(expression)
    assert (value, type(value)) == (expected, type(expected))


def test_a_key_that_is_a_member_of_an_enum_becomes_its_value():
    assert value_of("{'x': state.frame, state.red: 1}") == {"x": [{"a": 1}, {"a": 2}], "red": 1}


def test_items_of_a_list_that_is_written_out_stay_what_they_are():
    assert value_of("[state.frame, state.red]", Purpose.EACH) == [FRAME, RED]
    assert value_of("state.frame if state.n else []", Purpose.EACH) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "expression",
    [
        "[state.missing]",
        "{**state.n}",
        "[*state.n]",
        "{[1]: state.red}",
        "state.frames[5]",
        "state.frames['a']",
        "state.frames[::0]",
        "state.frames + state.n",
        "[x for x in state.n]",
        "[undefined, state.red]",
        "state.rows[state.n].missing",
    ],
)
def test_what_cannot_be_put_together_has_pythons_error(expression):
    with pytest.raises(ScriptError) as caught:
        value_of(expression)
    assert any(word in str(caught.value) for word in ("Error", "undefined"))


PLAIN = {"a": [1, 2, [3]], "b": {"k": "v", "l": [0]}, "c": 0, "d": "text", "e": None, "f": 2.5}
ATOMS = st.sampled_from(
    ["s.a", "s.b", "s.c", "s.d", "s.e", "s.f", "s.a[0]", "s.b.k", "s.b['l']", "1", "'k'", "None", "i"]
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda part: st.one_of(
        st.lists(part, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        st.lists(part, min_size=1, max_size=2).map(lambda parts: f"({', '.join(parts)},)"),
        st.builds("[*{}, {}]".format, part, part),
        st.builds("{{'x': {}, **{}}}".format, part, part),
        st.builds("{{{}: {}}}".format, part, part),
        st.builds("({} if {} else {})".format, part, part, part),
        st.builds("({} or {} or {})".format, part, part, part),
        st.builds("({} and {})".format, part, part),
        st.builds("({} + {})".format, part, part),
        st.builds("{}[{}]".format, part, part),
        st.builds("{}[{}:{}]".format, part, part, part),
        st.builds("{}.get('k', {})".format, part, part),
        st.builds("[{} for i in {} if {}]".format, part, part, part),
        st.builds("{{{}: {} for i in {}}}".format, part, part, part),
        st.builds("dict(x={}, **{})".format, part, part),
    ),
    max_leaves=6,
)


def outcome(expression, purpose):
    try:
        return repr(default_interpreter().evaluate(purpose, [expression], {"s": PLAIN, "i": 1})[0])
    except ScriptError as error:
        return type(error).__name__


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS)
def test_plain_data_that_is_put_together_is_what_the_sandbox_says(expression):
    assert outcome(expression, Purpose.VALUE) == outcome(f"({expression})", Purpose.TEMPLATE)


def parts_of(value):
    if isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from parts_of(part)
    else:
        yield value


WRAPPERS = [
    "[{}]",
    "{{'k': {}}}",
    "({} if state.n else 0)",
    "(None or {})",
    "[{}][0]",
    "[{} for _ in [1]]",
    "([] + [{}])",
]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["state.frame", "state.red", "state.point"]), st.lists(st.sampled_from(WRAPPERS), max_size=5))
def test_however_deep_it_lies_a_value_stays_what_it_is(reference, wrappers):
    expression = reference
    for wrapper in wrappers:
        expression = wrapper.format(expression)
    [part] = parts_of(value_of(expression))
    assert isinstance(part, Recorded)
    assert part == value_of(reference)


def test_what_has_no_names_is_one_part():
    assert compile_expression("[1, 2 + 3]").structure is None


def test_loops_outside_of_the_sandbox_have_its_limit_of_time():
    with Interpreter(Limits(seconds=0.2)) as interpreter:
        for items in ("state.many", "range(10**6)"):
            text = f"[[state.frame, x, y] for x in {items} for y in {items}]"
            with pytest.raises(ScriptLimitError, match=r"script ran longer than 0\.2 s"):
                interpreter.evaluate(Purpose.VALUE, [text], {"state": {"frame": FRAME, "many": list(range(100_000))}})


def test_the_number_of_turns_has_a_limit(monkeypatch):
    monkeypatch.setattr("divebook.scripting.structure.MAX_TURNS", 1000)
    assert len(value_of("[state.frame for x in range(400)]")) == 400
    with pytest.raises(ScriptLimitError, match="went through more than 1,000 items"):
        value_of("[[state.frame for x in range(40)] for y in range(40)]")


class Counted(Interpreter):
    crossings = 0

    def _evaluate_programs(self, *args):
        self.crossings += 1
        return super()._evaluate_programs(*args)


@pytest.mark.parametrize(
    ("expression", "crossings"),
    [
        ("[x for x in state.numbers]", 1),
        ("[x + 1 for x in state.numbers]", 1),
        ("{str(x): [x, state.n] for x in state.numbers if x > 3}", 1),
        ("[[x, y] for x in state.numbers for y in state.numbers]", 1),
        ("[len(row.f) for row in state.rows]", 1),
        ("[row.f for row in state.rows]", 0),
        ("[row.f for row in state.rows if row.ok if state.n]", 1),
    ],
)
def test_a_loop_crosses_to_the_sandbox_once_however_many_turns_it_takes(expression, crossings):
    state = {**STATE, "numbers": list(range(50)), "rows": STATE["rows"] * 20}
    with Counted() as interpreter:
        assert interpreter.evaluate(Purpose.VALUE, [expression], {"state": state})
    assert interpreter.crossings == crossings


def _nested_loops(depth):
    expression = "state.x"
    for number in range(depth):
        expression = f"[{expression} for a{number} in state.rows]"
    return expression


@pytest.mark.parametrize(
    "expression",
    [
        _nested_loops(40),
        "[" + ", ".join(["state.n"] * 3_000) + "]",
        "[" + ",\n".join(["state.n"] * 3_000) + "]",
        "{" + ", ".join(f"'k{number}': state.n" for number in range(3_000)) + "}",
    ],
    ids=["nested loops", "one line", "many lines", "mapping"],
)
def test_an_expression_is_compiled_in_proportion_to_its_size(expression):
    with processor_time_at_most(5):  # it takes 0.3 s
        compile_expression(expression)


@pytest.mark.parametrize("expression", ["['é', state.n + 1]", "[state.n +\n 1,\n 'ß' + str(\nstate.n),\nstate.frame]"])
def test_parts_of_expressions_are_cut_out_by_bytes_and_lines(expression):
    assert value_of(expression)[:2] in (["é", 2], [2, "ß1"])


@pytest.mark.parametrize(
    "expression",
    [
        "[*state.many, *state.many]",
        "{**state.keys, **state.keys}",
        "[*state.many[1:], state.many[1:]]",
        "state.many + state.many",
        "[[*state.many] for x in state.frames]",
        "[state.many[1:] for x in state.frames]",
    ],
)
def test_the_number_of_copied_items_has_a_limit(expression, monkeypatch):
    state = {"many": list(range(90)), "keys": {str(number): number for number in range(90)}, "frames": [FRAME, RED]}
    with Interpreter() as interpreter:
        assert interpreter.evaluate(Purpose.VALUE, [expression], {"state": state})
        monkeypatch.setattr("divebook.scripting.structure.MAX_COPIES", 100)
        with pytest.raises(ScriptLimitError, match="copied more than 100 items"):
            interpreter.evaluate(Purpose.VALUE, [expression], {"state": state})
        with pytest.raises(ScriptLimitError, match="copied more than 100 items"):
            interpreter.evaluate(Purpose.VALUE, ["[*state.many]", "state.many[1:]", "[*state.many]"], {"state": state})


def test_a_short_slice_of_a_long_list_is_a_small_copy(monkeypatch):
    monkeypatch.setattr("divebook.scripting.structure.MAX_COPIES", 100)
    with Interpreter() as interpreter:
        state = {"many": list(range(1000)), "n": 2}
        assert interpreter.evaluate(Purpose.VALUE, ["[state.many[:state.n]]"], {"state": state}) == [[[0, 1]]]


@pytest.mark.parametrize(
    "expression", ["state.frames + (state.red,)", "(state.red,) + state.frames", "[1] + (state.n,)"]
)
def test_a_tuple_is_not_added_to_a_list(expression):
    with pytest.raises(ScriptError, match=r"TypeError: (can only concatenate|unsupported operand)"):
        value_of(expression)
