"""Mistakes that would only be noticed when a workflow runs, told when it is read."""

import pytest

from divebook.definitions import Step, Workflow, read_definitions
from divebook.environments.environment import Environment
from divebook.errors import DefinitionError


def problem(text):
    with pytest.raises(DefinitionError) as caught:
        Environment(store="memory:").define(read_definitions(text, source_name="cell", body="workflow", name="w"))
    (found,) = caught.value.problems
    return found.describe("cell")


STEPS = "Steps:\n  - {Name: s, Script: '1'}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Inputs: [{Name: a, Type: integr}]\n" + STEPS, "cell:1:26: unknown type of input: 'integr' (did you mean"),
        ("Inputs: [{Name: a b}]\n" + STEPS, "cell:1:17: input 'a b' is not a valid name (use letters"),
        ("Steps:\n  - {Name: s, Script: '1', Store: my-n}\n", "cell:2:35: Store 'my-n' is not a valid name"),
        (
            "Steps:\n  - {Name: s, Script: '1', Each: {Items: [1], As: class}}\n",
            "cell:2:51: As 'class' is not a valid name",
        ),
        ("Steps:\n  - {Name: s, Script: 1 +}\n", "cell:2:23: Script of step 's': invalid syntax"),
        ("Steps:\n  - {Name: s, Script: '1', Each: {Items: $(a b)}}\n", "cell:2:42: Items of step 's': "),
        ("Steps:\n  - {Name: s, Prompt: 'a ${b +} c'}\n", "cell:2:23: Prompt of step 's': "),
        (
            "Steps:\n  - {Name: s, Script: '1', Next: [{Step: t, Condition: a &&}]}\n  - {Name: t, Script: '1'}\n",
            "cell:2:56: Condition of step 's': ",
        ),
    ],
)
def test_a_mistake_is_told_where_it_stands(text, told):
    assert problem(text).startswith(told)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Step(None),
        lambda: Workflow(3, [Step("s", script="1")]),
        lambda: Workflow("w", Step("s", script="1")),
        lambda: Workflow("w", 3),
        lambda: Workflow("w", [Step("s", script="1", each=5)]),
    ],
)
def test_what_python_code_builds_wrongly_is_a_definition_error(build):
    with pytest.raises(DefinitionError):
        build()
