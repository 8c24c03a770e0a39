import pytest

from divebook.errors import ScriptError, ScriptLimitError
from divebook.scripting import Interpreter, Limits, evaluate_items

NAMES = {"inputs": {"n": 3}, "state": {"rows": [1, [2, {"a": 3, "b": [4]}]], "xs": ["x", "y"]}}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["$(state.xs)", "${x}"], ["$(state.xs)", "${x}"]),
        ([], []),
        (("a",), ["a"]),
        ("$(state.xs)", ["x", "y"]),
        (" $(state.xs)\n", ["x", "y"]),
        ('$("solo")', ["solo"]),
        ("$(inputs.n)", [3]),
        ("$([[1, 2], [3]])", [[1, 2], [3]]),
        ("$(state.rows)", [1, [2, {"a": 3, "b": [4]}]]),
        ("$(range(inputs.n))", [0, 1, 2]),
        ("$({'k': 1, 'j': 2}.values())", [1, 2]),
        ("$({'c', 'a', 'b'})", ["a", "b", "c"]),
        ("$([])", []),
    ],
)
def test_items(items, expected):
    assert evaluate_items(items, NAMES) == expected


@pytest.mark.parametrize(
    ("items", "expected"), [("$([[1, 2], [3]])", [1, 2, 3]), ("$(state.rows)", [1, 2, 3, 4]), ('$("solo")', ["solo"])]
)
def test_the_old_dialect_flattens_what_an_expression_gives(items, expected):
    assert evaluate_items(items, NAMES, flatten=True) == expected


def test_the_items_of_a_mapping_are_its_values_and_keep_their_keys():
    assert evaluate_items("$({'a': 1, 2: [3]})", NAMES) == {"a": 1, "2": [3]}
    assert evaluate_items("$({'a': 1, 'b': 2})", NAMES, flatten=True) == {"a": 1, "b": 2}
    assert evaluate_items("$({'a': [1, 2], 'b': {'c': 3}})", NAMES, flatten=True) == [1, 2, 3]


@pytest.mark.parametrize(("items", "kind"), [("a,b", "str"), (None, "NoneType"), (5, "int"), ("$(None)", "NoneType")])
def test_anything_else_is_refused(items, kind):
    message = f"failed to resolve each items: unsupported value for 'each' block (got {kind})"
    with pytest.raises(ScriptError) as caught:
        evaluate_items(items, NAMES)
    assert message in str(caught.value)


def test_a_failing_expression_says_that_items_were_wanted():
    with pytest.raises(ScriptError, match=r"^failed to resolve each items: AttributeError: state has no key 'nope'"):
        evaluate_items("$(state.nope)", NAMES)
    with Interpreter(Limits(seconds=0.1)) as interpreter, pytest.raises(ScriptLimitError, match="failed to resolve"):
        evaluate_items("$([0 for x in range(10**6) for y in range(10**6)])", NAMES, interpreter)
