import pytest

from divebook.errors import EnvelopeError
from divebook.pipeline.envelope import merge_state


@pytest.mark.parametrize(
    ("existing", "value", "strategy", "joined"),
    [
        (1, None, "replace", None),
        (None, 1, "append", [1]),
        ([1], [2], "append", [1, [2]]),
        ("a", "b", "append", ["a", "b"]),
        (None, {"a": 1}, "merge_dict", {"a": 1}),
        ([1], {"a": 1}, "merge_dict", {"a": 1}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, "merge_dict", {"a": {"c": 2}}),
    ],
)
def test_values_join_by_strategy(existing, value, strategy, joined):
    assert merge_state(existing, value, strategy) == joined


def test_neither_value_is_changed():
    existing = [1]
    merge_state(existing, 2, "append")
    assert existing == [1]


def test_an_unknown_strategy_is_refused():
    with pytest.raises(EnvelopeError, match="merge strategy 'apend' does not exist; did you mean 'append'"):
        merge_state(1, 2, "apend")
