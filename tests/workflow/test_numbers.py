"""What is no number is told as such wherever a definition in Python needs one, never as Python's own error."""

import math

import pytest

from divebook import Each, Retry, Step, Workflow
from divebook.errors import DefinitionError
from divebook.steps.actions import Action
from divebook.workflow.ask import Ask
from divebook.workflow.functions import step
from divebook.workflow.numbers import is_amount, is_count


def _step(**settings):
    return Workflow("flow", [Step("a", **{"script": "1", **settings})])


TIMES = {
    "Timeout of a step": lambda value: _step(timeout=value),
    "Seconds of a step": lambda value: Workflow("flow", [Step("a", seconds=value)]),
    "a pause of Retry": lambda value: Retry(seconds=value),
    "the longest pause of Retry": lambda value: Retry(max_seconds=value),
    "the factor of Retry": lambda value: Retry(factor=value),
    "the jitter of Retry": lambda value: Retry(jitter=value),
    "the timeout of an action": lambda value: Action("a", print, timeout=value),
    "the timeout of a function": lambda value: step("wait", timeout=value)(lambda: None),
    "the expiry of a question": lambda value: Ask("Which?", expires_in=value),
}
COUNTS = {
    "Parallel of Each": lambda value: _step(each=Each([1], parallel=value)),
    "Attempts of Retry": lambda value: Retry(attempts=value),
}
NONE = ["soon", True, False, math.nan, math.inf, -1, [1], {"s": 1}, b"1", 1j]


@pytest.mark.parametrize("value", NONE, ids=repr)
@pytest.mark.parametrize("what", [*TIMES, *COUNTS])
def test_what_is_no_number_is_told_with_its_value(what, value):
    with pytest.raises(DefinitionError) as raised:
        (TIMES | COUNTS)[what](value)
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize("what", [*TIMES, *COUNTS])
def test_numbers_are_taken(what):
    (TIMES | COUNTS)[what](2)
    if what in TIMES:
        TIMES[what](0.5)


def test_a_part_is_no_count_and_nothing_is_an_amount_but_not_above_zero():
    assert [is_count(value) for value in (0, 1, 1.0, 2.5, "2")] == [False, True, False, False, False]
    assert is_amount(0)
    assert not is_amount(0, above_zero=True)
