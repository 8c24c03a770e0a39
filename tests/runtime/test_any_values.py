"""Random values on every way through the engine; ``python -m tests.runtime.any_values`` takes 2,000."""

import random

import pytest

from divebook.errors import UnstorableValueError
from divebook.events.codec import decode, encode
from divebook.events.recorded import opened
from divebook.events.values import normalize
from tests.runtime.any_values import campaign, foreign, refused, same, scalar, value


def test_values_keep_type_and_value_on_every_way_or_are_refused_before_a_call(tmp_path):
    faults, refusals = campaign(40, 7, tmp_path, processes=False)
    assert faults == []
    assert refusals == 14


@pytest.mark.parametrize("make", [scalar, foreign, value])
def test_many_values_come_back_with_type_and_value_from_their_written_form(make):
    for seed in range(300):
        before = make(random.Random(seed))
        after = opened(decode(encode(normalize(before), "value")))
        assert same(before, after), (seed, before, after)


def test_every_odd_value_is_refused_with_its_place():
    for seed in range(300):
        odd = refused(random.Random(seed))
        with pytest.raises(UnstorableValueError, match="value"):
            encode(normalize(odd), "value")
