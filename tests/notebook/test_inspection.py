"""Help at the cell: a key under the cursor, and ``%dive help KEY``, say what it means, from the schema."""

import pytest
from IPython.core.error import UsageError

from divebook.notebook.extension import help_at

CURSOR = "‸"
STEP = "%%dive workflow w\nSteps:\n"


def told(text):
    before, _, behind = text.partition(CURSOR)
    return help_at(before + behind, len(before))


@pytest.mark.parametrize(
    ("text", "first", "part"),
    [
        (f"{STEP}  - Name: a\n    Each: {{Items: [1], Paral‸lel: 4}}\n", "Parallel: Maximum number of items", "Each"),
        (f"{STEP}  - Name: a\n    Retry‸: 3\n", "Retry: Retry policy", "step"),
        (f"{STEP}  - Name: a\n    ‸Store: n\n", "Store: Variable for the result", "step"),
        (f"{STEP}  - Name: a\n    Join: tr‸ue\n", "Join: Wait for all paths", "step"),
        (f"{STEP}  - Na‸me: a\n", "Name: Name of the step, unique in the workflow.", "step"),
        (f"{STEP}  - Ask:\n      Kin‸d: choice\n", "Kind: Kind of the question", "Ask"),
        ("%%dive workflow w\nSte‸ps:\n  - Name: a\n", "Steps: Steps of the workflow.", "workflow"),
        ("%%dive agent a\nTools: [fet‸ch]\n", "Tools: ", "agent"),
        ("\n%%dive\nAgents:\n  - Mod‸el: x\n", "Model: ", "agent"),
    ],
)
def test_the_key_under_the_cursor_is_explained(text, first, part):
    found = told(text)
    assert found.startswith(first)
    assert f"\n    part of  {part}\n" in found
    assert "\n    example  " in found


@pytest.mark.parametrize(
    "text",
    [f"{STEP}  - Script: |\n      pri‸nt(1)\n", f"{STEP}  - Nonsen‸se: 1\n", "pri‸nt(1)", "%%dive work‸flow w\n", "‸"],
)
def test_elsewhere_others_answer(text):
    assert told(text) is None


def test_a_sub_command_is_explained_on_its_line():
    assert told("r = %dive run w --sto‸re x").startswith("%dive run [NAME]")
    assert told("x = 1\n%dive resu‸me").startswith("%dive resume")


def test_help_explains_keys_and_parts_in_any_case_of_letters(cell):
    printed = cell("%dive help each")[1]
    assert printed.startswith(
        "Each: Loop: the step runs once for each item.\n    part of  step\n    type     mapping, see Each\n"
    )
    assert (
        "\nKeys of Each:\n    Items        List of items, or an expression such as `$(state.rows)`. Type: any value.\n"
        in printed
    )
    assert cell("%dive help tool_iteration_limit")[1].splitlines()[3:] == [
        "    default  16",
        "    example  ToolIterationLimit: 30",
    ]
    assert cell("%dive help 'MCP server'")[1].startswith("Keys of MCP server:")
    with pytest.raises(UsageError, match=r"unknown sub-command or key 'Paralel' .did you mean %dive help Parallel"):
        cell("%dive help Paralel")


def test_a_kernel_explains_keys_and_names_and_stops_when_the_extension_goes(kernel):
    code = "%%dive workflow w\nSteps:\n  - {Name: a, Retry: 3}"
    asked = {"cursor_pos": code.index("etry"), "reply": True, "timeout": 20}
    reply = kernel.client.inspect(code, **asked)["content"]
    assert reply["found"]
    assert reply["data"]["text/plain"].startswith("Retry: Retry policy after a failure.")
    named = kernel.client.inspect("print", cursor_pos=3, reply=True, timeout=20)["content"]
    assert "Prints the values" in named["data"]["text/plain"]
    kernel.text("%unload_ext divebook")
    assert not kernel.client.inspect(code, **asked)["content"]["found"]
