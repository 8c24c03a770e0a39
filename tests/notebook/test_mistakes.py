"""Mistakes in a cell that defines are told at once, where they stand, with the name that was meant."""

import re

import pytest

from divebook.definitions.reader import read_definitions
from divebook.errors import DefinitionError, NotFoundError


def test_a_misspelt_variable_points_at_its_place_in_the_cell(cell, session):
    with pytest.raises(DefinitionError) as caught:
        cell("%%dive workflow w\nInputs: [{Name: topic}]\nSteps:\n- {Name: s, Prompt: 'on ${inputs.topik}'}\n")
    first, line, mark = caught.value._render_traceback_()
    assert first.endswith("cell line 4, column 34: the workflow has no input 'topik' (did you mean 'topic'?)")
    assert line[mark.index("^") :].startswith("topik}")
    assert session.environment.definitions.workflows == {}


def test_names_that_are_not_there_yet_are_told_when_a_cell_is_defined_and_may_come_later(cell):
    cell("%%dive agent writer\nGoal: write\n")
    steps = "- {Name: s, Prompt: x, Agent: writr}\n- {Name: p, Action: prnt}\n- {Name: c, Workflow: v}\n"
    _, printed = cell(f"%%dive workflow w\nSteps:\n{steps}")
    assert printed.splitlines()[1:] == [
        "warning: cell line 3, column 31: agent writr is not defined yet (did you mean 'writer'?)",
        'warning: cell line 4, column 21: action "prnt" of step "p" is not defined yet (did you mean \'Print\'?)',
        "warning: cell line 5, column 23: workflow is not defined yet: v",
    ]


def test_a_run_that_cannot_begin_says_where_its_workflow_names_what_is_missing(session):
    text = "Workflows:\n- Name: w\n  Steps: [{Name: s, Prompt: x, Agent: nobody}, {Name: p, Action: prnt}]"
    world = session.environment
    world.define(read_definitions(text, source_name="survey.yaml"))
    with pytest.raises(DefinitionError, match=r"^survey\.yaml:3:39: agent nobody not found"):
        world.start("w")
    world.define(read_definitions(text.replace(", Agent: nobody", ""), source_name="Cell [5]"))
    world.define(read_definitions("Agents: [{Name: a}]"))
    with pytest.raises(NotFoundError, match=r'^Cell \[5\], line 3, column 51: action "prnt" of step "p" not found'):
        world.start("w")


def test_a_cell_that_ran_is_named_by_its_number_in_the_notebook(kernel):
    run = kernel.client.execute_interactive
    text = "\n%%dive workflow w\nSteps:\n- {Name: s, Prompt: x, Agent: nobody}\n"
    number = run(text, timeout=20, output_hook=lambda _: None)["content"]["execution_count"]
    reply = run("%dive run w", timeout=20, output_hook=lambda _: None)["content"]
    assert reply["evalue"].startswith(f"Cell [{number}], line 4, column 31: agent nobody not found")


def test_a_doubtful_line_of_a_function_is_told_with_its_cell(kernel):
    """Defines a workflow that reads the clock, as Python does in a cell of its own."""
    text = kernel.text(
        "\nimport time\nfrom divebook.definitions import workflow\n\n"
        "@workflow\nasync def hasty(ctx):\n    return time.time()\n"
    )
    assert re.match(r"Cell \[\d+\]:7: DeterminismWarning: time.time\(\) returns a different value each time", text)
    assert "write `await ctx.now()`" in text
