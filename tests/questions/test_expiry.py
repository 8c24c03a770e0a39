"""An answer is too late from the moment at which its question expires."""

import pytest

from divebook.definitions.json_schemas import FITTING
from divebook.errors import InterruptError
from divebook.questions import Question, checked_answer

EXPIRES = 1_000_000


@pytest.mark.parametrize("moment", [EXPIRES, EXPIRES + 1])
def test_an_answer_from_the_moment_of_the_expiry_is_refused(moment):
    question = Question("q", "clarification", "Which?", expires_us=EXPIRES)
    with pytest.raises(InterruptError, match="expired"):
        checked_answer(question, {"text": "this"}, FITTING, moment)


@pytest.mark.parametrize("expires", [EXPIRES, None])
def test_an_answer_before_the_expiry_is_accepted(expires):
    question = Question("q", "clarification", "Which?", expires_us=expires)
    assert checked_answer(question, {"text": "this"}, FITTING, EXPIRES - 1) == {"text": "this"}
