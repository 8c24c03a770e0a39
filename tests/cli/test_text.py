import json

import pytest

from divebook.cli.output import as_json, one_line, shown
from divebook.text.format import visible

UNSAFE = ["\x00", "\x07", "\x1b", "\r", "\x7f", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028"]


@pytest.mark.parametrize("character", UNSAFE)
def test_control_characters_become_visible(character):
    assert visible(f"a{character}b") == f"a{character.encode('unicode_escape').decode()}b"


def test_lines_tabs_and_other_scripts_stay():
    assert visible("a\tb\nüñ→😀") == "a\tb\nüñ→😀"


def test_half_a_character_becomes_visible():
    assert visible("a\ud800") == "a\\ud800"


def test_one_line_is_one_line_of_that_width():
    assert one_line("a\nb\tc") == r"a\nb\tc"
    assert one_line("abcdefgh", 6) == "abc..."


@pytest.mark.parametrize("character", UNSAFE)
def test_json_without_control_characters_is_the_same_data(character):
    text = as_json({character: [character]})
    assert character not in text
    assert json.loads(text) == {character: [character]}


def test_values_are_shown_as_text_or_json():
    assert (shown("a"), shown([1, "é", None])) == ("a", '[1, "é", null]')
