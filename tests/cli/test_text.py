import json

import pytest

from divebook.cli.text import as_json, duration, one_line, seconds, shown, visible

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


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 ms"), (0.25, "250 ms"), (59.94, "59.9 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (3700, "1 h 01 min")],
)
def test_durations_read_well(value, text):
    assert seconds(value) == text


def test_an_open_end_has_no_duration():
    assert duration(None, None) == ""
