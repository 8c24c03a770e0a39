"""Identity of operations, ours and the seed's."""

import pytest

from divebook.engine.operations import Place
from tests.conformance.old_ids import legacy_operation_id


@pytest.mark.parametrize(
    ("operation_type", "step", "path", "parameters", "expected"),
    [
        ("script_execution", "calculate", "start", {"script": "1 + 1"}, "op_8e74ca97e9133ef2c461742f2427b638"),
        ("script_execution", "calculate", "main", {"script": "1 + 1"}, "op_6d28c1672e18210edcae6ddbfa59aee9"),
        (
            "test_operation",
            "test_step",
            "main",
            {"param1": "value1", "param2": 42},
            "op_b5f7acef328635bc89b5815d55d505d2",
        ),
        ("test_operation_1", "step1", "main", None, "op_b128ea56e347f6abbaab3dad3617c405"),
        ("test_operation_2", "step1", "main", None, "op_5b0e5ed235e81153ca1f4056bc27baa6"),
        (
            "test_operation",
            "test_step",
            "main",
            {"param_b": "value_b", "param_a": "value_a"},
            "op_371f934c70ddf39ab79a394afd6bba5d",
        ),
        ("test_type", "test_step", "test_path", {"key": "value"}, "op_5faa7df7343e868ccde0a5771a4b27cb"),
        (
            "action_execution",
            "p",
            "main",
            {"action_name": "Print", "params": {"Message": "hi"}},
            "op_6bb0cd7b7431166d9149d32baf74d3e2",
        ),
    ],
)
def test_legacy_ids_equal_those_in_old_logs(operation_type, step, path, parameters, expected):
    assert legacy_operation_id(operation_type, step, path, parameters) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "<nil>"),
        (True, "true"),
        (2.0, "2"),
        (1e21, "1e+21"),
        (0.00001, "1e-05"),
        ([1, "a"], "[1 a]"),
        ({"b": 1, "a": None}, "map[a:<nil> b:1]"),
    ],
)
def test_legacy_ids_print_values_as_go_does(value, text):
    assert legacy_operation_id("t", "s", "p", {"k": value}) == legacy_operation_id("t", "s", "p", {"k": text})


def test_places_that_concatenate_alike_have_different_ids():
    assert Place("main", "bc", 1, None, 1).operation_id != Place("mainb", "c", 1, None, 1).operation_id


@pytest.mark.parametrize(
    "other",
    [
        ("main-1", "s", 1, None, 1),
        ("main", "t", 1, None, 1),
        ("main", "s", 2, None, 1),
        ("main", "s", 1, 0, 1),
        ("main", "s", 1, None, 2),
        ("main", "s", 1, None, "1"),
    ],
)
def test_every_part_of_a_place_counts(other):
    assert Place("main", "s", 1, None, 1).operation_id != Place(*other).operation_id


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("main", "s1", 1, None, 1), "op_87acb398db6efddb3f12961983335bee"),
        (("main", "s1", 1, None, "1"), "op_c22d7a8a5d1d58460f7859051eeaff8e"),
        (("main-1", "é s", 12, 3, "call-1", 2), "op_9ee78df88a81816561c04a76aae49317"),
    ],
)
def test_ids_stay_those_of_the_logs_that_are_there(place, expected):
    assert Place(*place).operation_id == expected


def test_ids_have_the_seeds_form():
    operation_id = Place("main", "s", 1, None, 1).operation_id
    assert operation_id.startswith("op_")
    assert len(operation_id) == 35
