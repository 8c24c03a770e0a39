"""Random values on every way through the engine; ``python -m tests.execution.any_values`` takes 2,000."""

from tests.execution.any_values import campaign


def test_values_keep_type_and_value_on_every_way_or_are_refused_before_a_call(tmp_path):
    faults, refusals = campaign(40, 7, tmp_path, processes=False)
    assert faults == []
    assert refusals == 14
