"""Workflows and steps written in Python, and their way into the log and back."""

import ast
import dataclasses
import inspect
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from divebook.definitions import resources, servers
from divebook.definitions.definition import Definitions, InputDefinition, OutputDefinition, Workflow
from divebook.definitions.reader import read_workflow, with_keys
from divebook.definitions.servers import MCPServerDefinition, OAuthDefinition
from divebook.definitions.step import ContentEntry, Each, Edge, Step
from divebook.errors import DefinitionError, NotFoundError

TEXT = """
Name: audit
Description: Look at everything
Inputs:
  - Name: topic
  - Name: depth
    Type: int
    Default: 2
Outputs:
  - Name: report
Steps:
  - Name: plan
    Prompt: Plan ${inputs.topic}
    Content:
      - Text: Be brief
    Store: plan
    Next:
      - Step: look
      - Step: stop
        Condition: $(state.plan == "")
  - Name: look
    Script: item
    Each: {Items: $(inputs.depth), As: item, Parallel: 4}
    Store: found
  - Name: rest
    Type: wait
    Seconds: 2
  - Name: report
    Action: Print
    Parameters: {Message: "${state.found}", Extra: [1, {a: null}]}
    End: true
  - Name: stop
    Script: "0"
    Join: true
"""


def python_made() -> Workflow:
    return Workflow(
        "audit",
        [
            Step(
                "plan",
                prompt="Plan ${inputs.topic}",
                content=["Be brief"],
                store="plan",
                next=["look", ("stop", '$(state.plan == "")')],
            ),
            Step("look", script="item", each=Each("$(inputs.depth)", as_="item", parallel=4), store="found"),
            Step("rest", seconds=2),
            Step(
                "report", action="Print", parameters={"Message": "${state.found}", "Extra": (1, {"a": None})}, end=True
            ),
            Step("stop", script="0", join=True),
        ],
        description="Look at everything",
        inputs=["topic", InputDefinition("depth", type="int", default=2)],
        outputs=["report"],
    )


def test_python_and_text_make_equal_workflows():
    read = read_workflow(TEXT)
    assert python_made() == read
    assert python_made().fingerprint == read.fingerprint


def test_a_workflow_survives_json_unchanged():
    workflow = read_workflow(TEXT)
    back = Workflow.from_dict(json.loads(json.dumps(workflow.to_dict())))
    assert back == workflow
    assert back.source == workflow.source == TEXT
    assert back.fingerprint == workflow.fingerprint


def test_what_is_at_its_default_is_not_stored():
    assert Workflow("w", [Step("s", script="1")]).to_dict() == {
        "form": 1,
        "name": "w",
        "steps": [{"name": "s", "type": "script", "script": "1", "edges": []}],
    }


def test_a_definition_stored_by_a_newer_version_is_refused_by_name():
    with pytest.raises(DefinitionError, match="stored Step has the unknown field 'teleport'"):
        Workflow.from_dict({"name": "w", "steps": [{"name": "s", "teleport": 3}]})


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ([{"type": "script"}], "the name of a step must be a string, got None"),
        ([{"name": 5}], "the name of a step must be a string, got 5"),
        ([{"name": "s", "edges": [{"condition": "x"}]}], "stored Edge has no step"),
    ],
)
def test_a_stored_definition_that_nobody_wrote_is_refused(steps, complaint):
    with pytest.raises(DefinitionError, match=complaint):
        Workflow.from_dict({"name": "w", "steps": steps})


def test_what_every_start_writes_is_made_once():
    workflow = python_made()
    assert workflow.stored is workflow.stored
    assert workflow.stored == workflow.to_dict()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"source": "other"},
        {"name": "other"},
        {"description": "other"},
        {"steps": (Step("only", script="1", next=["end", "side"]), Step("side", script="2"), Step("end", script="3"))},
        {"inputs": (), "outputs": ()},
        {"continue_on_failure": True},
        {"bounds": {"max_steps": 2}},
        {"workspace": "app"},
        {"dialect": "dive"},
    ],
)
def test_a_copy_with_changes_has_nothing_that_was_computed_from_the_former_fields(changes):
    workflow = read_workflow(TEXT)
    # All computed values are cached before the copy.
    former = (workflow.stored, workflow.fingerprint, workflow.has_joins, workflow.reachable("plan"))
    copy = workflow.like(**changes)
    fresh = Workflow.from_dict(copy.to_dict())
    assert copy.stored == copy.to_dict()
    assert copy.fingerprint == fresh.fingerprint
    assert copy.has_joins == fresh.has_joins
    first, last = copy.steps[0].name, copy.steps[-1].name
    assert (copy.step(first), copy.reachable(first)) == (fresh.step(first), fresh.reachable(first))
    assert copy.step(last) is copy.steps[-1]
    assert (workflow.stored, workflow.fingerprint, workflow.has_joins, workflow.reachable("plan")) == former


def test_the_stored_form_of_a_workflow_in_a_cell_has_the_whole_text_of_the_cell():
    text = "# Plan first.\nSteps:\n  - {Name: plan, Script: 1}\n"
    workflow = read_workflow(text, name="w")
    assert workflow.stored["source"] == workflow.source == text
    assert "source" not in with_keys(workflow, "plan", {"Script": "2"}).stored


def test_a_workflow_knows_whether_any_step_waits_for_others():
    steps = [Step("a", script="1", next=["b", "c"]), Step("b", script="1", next="d"), Step("c", script="1", next="d")]
    joined = Workflow("w", [*steps, Step("d", script="1", join=True)])
    assert (joined.has_joins, Workflow.from_dict(joined.to_dict()).has_joins) == (True, True)
    assert not Workflow("w", [*steps, Step("d", script="1")]).has_joins


def test_a_stored_definition_is_not_checked_again():
    stored = {"name": "w", "steps": [{"name": "s", "type": "no longer known", "edges": [{"step": "gone"}]}]}
    assert Workflow.from_dict(stored).first_step.type == "no longer known"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"prompt": "x"}, "prompt"),
        ({"script": "x"}, "script"),
        ({"action": "x"}, "action"),
        ({"action": "x", "prompt": "y", "script": "z"}, "action"),
        ({"prompt": "y", "script": "z"}, "prompt"),
        ({"content": ["x"]}, "prompt"),
        ({"seconds": 0}, "wait"),
        ({}, ""),
        ({"prompt": "x", "type": "script"}, "script"),
    ],
)
def test_the_type_of_a_step_follows_from_what_it_is_given(given, expected):
    assert Step("s", **given).type == expected


def test_a_step_leads_to_the_next_one_unless_something_else_is_said():
    steps = [
        Step("a", script="1"),
        Step("b", script="1", next=[]),
        Step("c", script="1", end=True),
        Step("d", script="1"),
    ]
    workflow = Workflow("w", steps)
    assert [step.edges for step in workflow.steps] == [(Edge("b"),), (), (), ()]


def test_a_step_is_linked_by_its_edges_alone_and_the_one_that_was_written_stays():
    written = Step("a", action="sum", parameters={"n": [1]}, store="s", retry=2, timeout=3, each=[1], catch="b")
    following = Step("b", script="1")
    linked = Workflow("w", [written, following]).step("a")
    assert linked == replace(written, edges=(Edge("b"),))
    assert written.is_open
    assert Workflow("w", [following, written]).step("a").edges == ()


def test_next_takes_a_name_pairs_and_edges():
    step = Step("s", next=["a", ("b", "$(x)"), Edge("c")])
    assert step.edges == (Edge("a"), Edge("b", "$(x)"), Edge("c"))
    assert Step("s", next="a").edges == (Edge("a"),)


def test_each_takes_items_or_an_expression():
    assert Step("s", each=range(2)).each == Each([0, 1])
    assert Step("s", each="$(state.x)").each == Each("$(state.x)")
    assert Step("s", each=("a", ("b",))).each == Each(["a", ["b"]])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "no steps found"),
        ([Step("s", script="1"), Step("s", script="1")], "two steps are called 's'"),
        ([Step("s", script="1", next="nope")], "Next: there is no step 'nope' (steps: s)"),
        ([Step("", script="1")], "step name cannot be empty"),
        ([Step("s", "stage")], 'step "s" cannot be of type stage'),
        ([Step("s", "intern")], 'unsupported step type "intern" in step "s"'),
        ([Step("s", script="1", each=Each([1], parallel=0))], "Parallel must be an integer from 1"),
        ([Step("s", script="1", each=Each([1], parallel=True))], "Parallel must be an integer from 1"),
        ([Step("s", seconds=-1)], "Seconds must be a number of seconds from 0"),
        ([Step("s", seconds=float("nan"))], "Seconds must be a number of seconds from 0"),
        ([Step("s", script="1", parameters={"a": 1})], "Parameters has no effect on a step of type script"),
        (["s"], "each step of a workflow must be a Step"),
    ],
)
def test_a_workflow_that_does_not_fit_together_cannot_be_made(steps, message):
    with pytest.raises(DefinitionError, match=re.escape(message)):
        Workflow("w", steps)


def test_a_workflow_needs_a_name():
    with pytest.raises(DefinitionError, match="workflow name required"):
        Workflow(" ", [Step("s", script="1")])


def test_two_inputs_of_one_name_are_refused():
    with pytest.raises(DefinitionError, match="two inputs are called 'x'"):
        Workflow("w", [Step("s", script="1")], inputs=["x", "x"])


def test_a_problem_in_python_says_where_it_is():
    with pytest.raises(
        DefinitionError,
        match=r"workflow 'w' at Steps\[1\]\.Next\[0\]\.Step: Next: there is no step 'frist' .*did you mean 'first'",
    ):
        Workflow("w", [Step("first", script="1"), Step("s", script="1", next="frist")])


@pytest.mark.parametrize("value", [{1, 2}, object(), float("inf"), {1: 2}, b"x"])
def test_values_in_a_definition_are_plain_json(value):
    with pytest.raises(DefinitionError, match="definitions can contain only JSON values"):
        Step("s", action="Print", parameters={"Message": value})


def test_a_value_nested_in_itself_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(DefinitionError, match="parameters"):
        Step("s", action="Print", parameters={"Message": loop})


def test_later_changes_to_parameters_do_not_reach_the_step():
    parameters = {"a": [1]}
    step = Step("s", action="Print", parameters=parameters)
    parameters["a"].append(2)
    assert step.parameters == {"a": [1]}


def test_a_step_is_found_by_name_and_a_missing_one_suggested():
    workflow = python_made()
    assert workflow.first_step.name == "plan"
    assert workflow.step("look").store == "found"
    with pytest.raises(NotFoundError, match=r"step not found: lok .did you mean 'look'"):
        workflow.step("lok")


@pytest.mark.parametrize(
    "change",
    [
        ("Plan ${inputs.topic}", "Plan ${inputs.depth}"),
        ("Script: item", "Script: item + 1"),
        ('$(state.plan == "")', '$(state.plan != "")'),
        ("Parallel: 4", "Parallel: 3"),
        ("Store: plan", "Store: plans"),
        ("Default: 2", "Default: 3"),
        ("Seconds: 2", "Seconds: 3"),
        ("Join: true", "Join: false"),
        ("Be brief", "Be long"),
        ("Name: report\nSteps", "Name: other\nSteps"),
        ("Steps:", "ContinueOnFailure: true\nSteps:"),
    ],
)
def test_the_fingerprint_changes_with_behaviour(change):
    assert read_workflow(TEXT.replace(*change)).fingerprint != read_workflow(TEXT).fingerprint


@pytest.mark.parametrize(
    "change",
    [
        ("Description: Look at everything", "Description: Other"),
        ("- Name: topic", "- Name: topic\n    Description: what it is about"),
        ("Steps:", "Triggers: [{Name: manual}]\nSteps:"),
        ("Steps:", "# a remark\nsteps:"),
    ],
)
def test_the_fingerprint_does_not_change_with_texts_for_people(change):
    assert read_workflow(TEXT.replace(*change)).fingerprint == read_workflow(TEXT).fingerprint


def test_the_fingerprint_of_a_recorded_definition_stays():
    # a stored fingerprint is compared with this one for ever
    workflow = Workflow("w", [Step("s", script="1", store="x")], inputs=["a"])
    assert workflow.fingerprint == "66975a84149d33a7ba6bffa6719ff4d4708991c144dd2ec89f8b990ac2182cc1"


def test_a_content_entry_has_exactly_one_source():
    assert ContentEntry.of("x") == ContentEntry(text="x")
    assert ContentEntry(dynamic="x").source == "dynamic"
    for wrong in ({}, {"text": "a", "path": "b"}):
        with pytest.raises(DefinitionError, match="context entry must specify exactly one of"):
            ContentEntry.of(wrong)


def test_inputs_and_outputs_remember_whether_they_have_a_default():
    assert InputDefinition("x", default=0).has_default
    assert not InputDefinition("x").has_default
    assert OutputDefinition("x", default=[]).has_default


def test_whole_definitions_survive_json():
    definitions = Definitions(name="e", workflows=(python_made(),))
    assert Definitions.from_dict(json.loads(json.dumps(definitions.to_dict()))) == definitions


def test_secrets_do_not_show_in_the_printed_form():
    server = MCPServerDefinition("s", authorization_token="token-1", headers={"X": "token-2"})
    assert "token-" not in repr(server)
    assert "token-" not in repr(OAuthDefinition(client_secret="token-3"))


def test_a_server_has_no_name_that_rules_would_take_for_others():
    with pytest.raises(DefinitionError, match=r"'g\*' cannot be the name of an mcp server.*remove the \*"):
        MCPServerDefinition("g*", "stdio")


def test_the_yaml_library_is_loaded_on_first_use_only():
    code = "import sys, divebook.definitions, divebook.config; sys.exit('ruamel' in ' '.join(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"retry": {"atempts": 3}}, "Retry has no key 'atempts' (did you mean 'attempts'?)"),
        ({"retry": "often"}, "Retry must be a mapping, not 'often'"),
        ({"catch": [{"errors": ["ValueError"]}]}, "step is required in Catch"),
        ({"ask": {"kind": "confirmation"}}, "question is required in Ask"),
    ],
)
def test_a_mapping_in_place_of_a_definition_is_read_strictly(given, message):
    with pytest.raises(DefinitionError) as caught:
        Step("a", **given)
    assert message in str(caught.value)


def test_constructors_for_type_checkers_have_the_fields_of_their_class():
    """Some constructors take more types than the fields have, which a dataclass cannot say."""
    found = {}
    for module in (sys.modules["divebook.definitions.step"], resources, servers):
        for node in ast.parse(inspect.getsource(module)).body:
            for part in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING":
                    arguments = part.body[0].args
                    found[node.name] = [each.arg for each in (*arguments.args[1:], *arguments.kwonlyargs)]
                    declared = [entry.name for entry in dataclasses.fields(getattr(module, node.name)) if entry.init]
                    assert found[node.name] == declared, node.name
    assert found.keys() == {"Ask", "Catch", "MCPServerDefinition", "Retry", "WorkspaceDefinition"}


def test_a_text_is_not_taken_for_a_list_of_arguments():
    with pytest.raises(DefinitionError, match="args of mcp server 'git' must be a list"):
        servers.MCPServerDefinition("git", "stdio", command="uvx", args="mcp-server-git")
