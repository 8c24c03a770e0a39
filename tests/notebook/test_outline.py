"""Where the cursor stands in a YAML text that is being written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.notebook.line_completion import Outline, keys_below

STEPS = "Steps:\n  - Name: a\n"


@pytest.mark.parametrize(
    ("above", "head", "place", "fragment", "keys"),
    [
        ("", "St", (), "St", set()),
        ("Name: w\n", "St", (), "St", {"Name"}),
        ("Steps:\n", "  ", ("Steps",), "", set()),
        ("Steps:\n", "  - Na", ("Steps", 0), "Na", set()),
        (STEPS, "    Ty", ("Steps", 0), "Ty", {"Name"}),
        (STEPS, "  - Na", ("Steps", 1), "Na", set()),
        ("Steps:\n- Name: a\n", "  Ty", ("Steps", 0), "Ty", {"Name"}),
        (STEPS + "    Each:\n      Items: [1]\n", "      As", ("Steps", 0, "Each"), "As", {"Items"}),
        (STEPS + "    Each: {Items: [1], As: x}\n", "    Ty", ("Steps", 0), "Ty", {"Name", "Each"}),
        ("Steps:\n", "  - {Name: a, Each: {It", ("Steps", 0, "Each"), "It", set()),
        ("Steps:\n  - {Name: a,\n", "     Ty", ("Steps", 0), "Ty", {"Name"}),
        (STEPS + "    Script: |\n      x: 1\n\n      y\n", "    St", ("Steps", 0), "St", {"Name", "Script"}),
        (STEPS + "  # Next:\n", "    Ty", ("Steps", 0), "Ty", {"Name"}),
        ("'Steps':\n", "  - Na", ("Steps", 0), "Na", set()),
        ("Steps: [{Name: 'a, b: [', Type: x}]\n", "In", (), "In", {"Steps"}),
        (STEPS + "Inputs:\n", "  - ", ("Inputs", 0), "", set()),
    ],
)
def test_the_place_of_a_key_is_found(above, head, place, fragment, keys):
    spot = Outline(above).spot(head)
    assert (spot.place, spot.fragment, spot.after_key, spot.keys) == (place, fragment, False, keys)


@pytest.mark.parametrize(
    ("above", "head", "place", "fragment"),
    [
        (STEPS, "    Type: sc", ("Steps", 0, "Type"), "sc"),
        (STEPS, '    Type: "sc', ("Steps", 0, "Type"), "sc"),
        ("Steps:\n", "  - Type:", ("Steps", 0, "Type"), ""),
        ("Steps:\n", "  - {Name: a, Type: 'sc", ("Steps", 0, "Type"), "sc"),
        (STEPS, "    Next: [{Step: b}, {Step: ", ("Steps", 0, "Next", 1, "Step"), ""),
    ],
)
def test_the_place_of_a_value_is_found(above, head, place, fragment):
    spot = Outline(above).spot(head)
    assert (spot.place, spot.fragment, spot.after_key) == (place, fragment, True)


@pytest.mark.parametrize("above", [STEPS + "    Script: |\n", STEPS + "    Script: >-\n      x\n\n"])
def test_inside_a_block_text_there_is_nothing_to_write(above):
    assert Outline(above).spot("      Na") is None


@pytest.mark.parametrize("head", ["# Na", "  - Name: a # Ty", "  - {Name: a, # Ty"])
def test_inside_a_comment_there_is_nothing_to_write(head):
    assert Outline("Steps:\n").spot(head) is None


def test_values_are_known_by_their_place():
    text = "Steps:\n  - Name: 'a b'  # first\n    Next:\n      - {Step: c, Condition: x}\n  - Name: c\nNames: [x, y]\n"
    assert Outline(text).values == {
        ("Steps", 0, "Name"): "a b",
        ("Steps", 0, "Next", 0, "Step"): "c",
        ("Steps", 0, "Next", 0, "Condition"): "x",
        ("Steps", 1, "Name"): "c",
        ("Names", 0): "x",
        ("Names", 1): "y",
    }


def test_keys_below_belong_to_the_same_mapping():
    assert list(keys_below("    Type: x\n      deeper: 1\n\n    Store: y\n  - Name: b\n    End: true\n", 4)) == [
        "Type",
        "Store",
    ]


@given(st.text(alphabet="aN:- \n{}[],'\"|>#&*!\t", max_size=60), st.text(alphabet="aN:- {}[],'\"|>#", max_size=12))
def test_no_text_is_too_broken(above, head):
    Outline(above).spot(head)
