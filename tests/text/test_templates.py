"""The syntax of templates: escapes, and texts written before there were any."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.errors import TemplateError
from divebook.scripting import render_template
from divebook.text.syntax import (
    Slot,
    each_text,
    is_escaped_expression,
    is_expression,
    literal,
    split,
    texts_in,
    with_escapes,
    with_literal_depths,
    without_escape,
)
from tests.processor_time import processor_time_at_most

PIECES = st.sampled_from(
    ["$", "$$", "${", "$(", "}", ")", "{", "x", "1 + 1", "${x}", "${}", "${ }", "'", '"', "\n", " ", "é"]
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)
NAMES = {"x": "<x>"}


@given(TEXTS)
def test_every_text_can_be_written(text):
    written = literal(text)
    assert not is_expression(written)
    template = without_escape(written) if is_escaped_expression(written) else written
    assert render_template(template, NAMES) == text


def rendered_before(text):
    """Render as before there were escapes; None for a text that failed."""
    try:
        parts = split(text, escapes=False)
        return "".join(
            part if isinstance(part, str) else render_template(f"${{{part.expression}}}", NAMES) for part in parts
        )
    except TemplateError:
        return None


@given(TEXTS)
def test_a_template_written_before_there_were_escapes_keeps_its_meaning(text):
    before = rendered_before(text)
    if before is not None:
        assert render_template(with_escapes(text), NAMES) == before


@given(st.recursive(TEXTS | st.integers(), lambda part: st.lists(part) | st.dictionaries(TEXTS, part), max_leaves=6))
def test_texts_in_lists_and_mappings_are_found_with_their_places(value):
    places = dict(texts_in(value))
    for place, text in places.items():
        part = value
        for key in place:
            part = part[key]
        assert part == text
    assert each_text(value, str) == value
    marked = each_text(value, lambda text: [text])
    assert sorted(str(place) for place in places) == sorted(str(place[:-1]) for place, _ in texts_in(marked))


def test_values_of_which_only_the_first_level_were_templates():
    before = {"a": "$${x}", "b": ["${x}", {"c": "$(x)"}], "d": "$(x)", "e": "$$(x)", "f": 1}
    assert with_literal_depths(before) == {
        "a": '${"$"}${x}',
        "b": ["$${x}", {"c": "$$(x)"}],
        "d": "$(x)",
        "e": "$$$(x)",
        "f": 1,
    }
    assert with_literal_depths(before, has_values=False)["d"] == "$$(x)"


@pytest.mark.parametrize("expression", ["${a b}", "${(}", "${'}", "${a", "${a[}}", "${{1: 2}}", "${state.a}"])
def test_thousands_of_expressions_are_split_in_proportion_to_their_number(expression):
    with processor_time_at_most(3), suppress(TemplateError):  # it takes 0.1 s
        split(expression * 5_000)


def test_an_expression_that_is_not_python_ends_at_its_first_brace_and_so_do_those_behind_it():
    assert split("${{1: 2}} ${a b} ${c}")[1:] == (Slot("{1: 2}"), " ", Slot("a b"), " ", Slot("c"), "")
    with pytest.raises(TemplateError, match="unclosed"):
        split("${a b} ${c")
