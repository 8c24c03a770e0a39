"""Numbers in the sandbox are those of Python."""

import random

import pytest

from divebook.scripting import Purpose, default_interpreter, render_template
from tests.scripting.numbers import differences

AMOUNTS = [2.675, 16.755, 0.5, 1.5, 2.5, -0.5, -0.0, 1e22, 5e-324, 1.7976931348623157e308, 123456789.125]
AMOUNTS += [random.Random(1).randint(-100_000, 100_000) / 1000 for _ in range(2000)]


def test_random_expressions_have_the_values_of_python():
    found, _ = differences(10, seed=1)
    assert found == []


@pytest.mark.parametrize("digits", [*range(-5, 17), 25, 323, 324, -300, -309, -400, None])
def test_numbers_are_rounded_as_python_does(digits):
    names = {"amounts": AMOUNTS, "digits": digits}
    [expression] = default_interpreter().evaluate(Purpose.VALUE, ["[round(x, digits) for x in amounts]"], names)
    script = default_interpreter().run_script("[round(x, digits) for x in amounts]", names)
    assert list(map(repr, expression)) == list(map(repr, script)) == [repr(round(x, digits)) for x in AMOUNTS]


def test_a_script_may_use_the_name_round_for_itself():
    assert default_interpreter().run_script("round = 3\nround + 1", {}) == 4
    assert default_interpreter().run_script("list(map(round, [2.5, 3.5]))", {}) == [2, 4]
    assert render_template("${round(2.675, 2)}", {}) == "2.67"
    assert default_interpreter().run_script("int = 5\nround(2.675, 2)", {}) == 2.67


@pytest.mark.parametrize("wrong", ["round('a')", "round(1.5, 'a')", "round(1.5, 1.0)", "round(1, 2, 3)", "round()"])
def test_what_cannot_be_rounded_is_a_type_error(wrong):
    script = f"try:\n    result = {wrong}\nexcept TypeError:\n    result = 'TypeError'\nresult"
    assert default_interpreter().run_script(script, {}) == "TypeError"
