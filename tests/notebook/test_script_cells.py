"""Cells that say what an agent answers."""

import pytest
from IPython.core.error import UsageError

from divebook.errors import DefinitionError, NotFoundError, SetupError


def test_a_cell_says_what_an_agent_answers(cell):
    cell("%%dive workflow ask\nSteps: [{Name: ask, Agent: writer, Prompt: Go, Store: r}]\n")
    cell("%%dive agent writer\nGoal: write\n")
    script = "%%dive script writer\n- {think: Hm., say: first}\n- second\n"
    assert cell(script) == (None, "agent 'writer' answers from this script\n")
    assert [cell("%dive run ask")[0].variables["r"] for _ in range(2)] == ["first", "second"]
    assert cell("%dive run ask --model scripted")[0].variables == {"r": "second"}


def test_a_script_that_cannot_be_read_says_where(cell):
    cell("%%dive agent writer\nGoal: write\n")
    with pytest.raises(UsageError, match="needs the name of one agent, not an empty line"):
        cell("%%dive script\n- a\n")
    with pytest.raises(NotFoundError, match="did you mean 'writer'"):
        cell("%%dive script writr\n- a\n")
    with pytest.raises(DefinitionError, match="cell:4:1: not valid YAML"):
        cell("%%dive script writer\n- a\n- [\n")
    with pytest.raises(SetupError, match="unknown key 'cal' in a reply of a script; did you mean 'call'"):
        cell("%%dive script writer\n- {cal: search}\n")
