"""Names in two spellings, such as an accent in one code point or two, are one name wherever they are compared."""

import itertools
import json

import pytest

from divebook import Environment
from divebook.config.answers import Answers
from divebook.definitions.reader import read_definitions
from divebook.errors import DefinitionError, InputError, NotFoundError
from divebook.scripting import Purpose, default_interpreter
from divebook.steps.checks import syntax_problems
from tests.runtime.worlds import Calls

SPELLINGS = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"
TWO = list(itertools.product(SPELLINGS, SPELLINGS))

TEXT = """
Agents: [{Name: '@', Script: [x]}]
Workflows:
  - Name: '@'
    Inputs: [{Name: '@'}, {Name: 'fi@'}]
    Outputs: [{Name: '@'}]
    Steps:
      - {Name: '@', Script: 'inputs["^"] + inputs.^', Store: '@', Next: [{Step: '^2'}]}
      - {Name: '@2', Agent: '^', Prompt: "${state.^} ${state['^']} ${state.get('^')}", Next: [{Step: '^3'}]}
      - {Name: '@3', Each: {Items: '$([state.^])', As: '@'}, Action: note, Parameters: {value: ['$(^)', '$(state.^)']},
         Next: [{Step: '^4', Condition: "'^' in state and state.^ == state['@']"}]}
      - {Name: '@4', Script: "state.set('@', 5); state.set('@@', [state.^, state['@']])", Next: [{Step: '^5'}]}
      - {Name: '@5', Ask: {Question: '?', Data: {a: '$(state.^^)'}}, Store: answer, Next: [{Step: '^6'}]}
      - {Name: '@6', Workflow: '^child', Inputs: {'^': '$(state.^^)'}, Store: child, Next: [{Step: '^7'}]}
      - {Name: '@7', Script: "1 / 0", Catch: [{Step: '^8', Store: '@error'}]}
      - {Name: '@8', Script: "state.^error.step", Store: '@@@', End: true}
  - Name: '@child'
    Inputs: [{Name: '@'}]
    Outputs: [{Name: '^'}]
    Steps: [{Name: s, Script: "inputs.^", Store: '^'}]
"""
"""`@` is a name where it is defined, `^` where it is referred to."""


@pytest.mark.parametrize(("one", "other"), TWO)
def test_a_workflow_that_spells_its_names_in_two_ways(one, other):
    definitions = read_definitions(TEXT.replace("@", one).replace("^", other))
    assert syntax_problems(definitions) == []
    calls = Calls()
    environment = Environment(store="memory:", actions=[calls.action()])
    environment.define(definitions)
    execution = environment.start(other, {other: "ab", f"\N{LATIN SMALL LIGATURE FI}{other}": 1})
    execution = Answers({f"{other}5": "yes"}).settle(execution)
    assert execution.status == "completed", execution.state.error
    normal = SPELLINGS[0]
    assert calls == [["abab", "abab"]]
    assert execution.variables[normal] == 5
    assert execution.variables["answer"] == "yes"
    assert execution.variables["child"] == {normal: [5, 5]}
    assert execution.variables[normal * 3] == f"{normal}7"
    assert execution.inputs == {normal: "ab", f"fi{normal}": 1}


@pytest.mark.parametrize(("one", "other"), TWO)
def test_names_that_are_looked_up(one, other):
    environment = Environment(store="memory:")
    steps = f"Steps: [{{Name: {one}, Script: '1'}}]"
    config = f"Config: {{DefaultWorkflow: {other}}}"
    environment.define(read_definitions(f"{config}\nAgents: [{{Name: {one}}}]\nWorkflows: [{{Name: {one}, {steps}}}]"))
    assert environment.internals.registry.default_workflow == environment.internals.registry.workflow(one)
    assert environment.internals.registry.workflow(other).step(other).script == "1"
    assert environment.internals.registry.agent(other).name == SPELLINGS[0]
    with pytest.raises(NotFoundError):
        environment.internals.registry.workflow(f"{other}s")


@pytest.mark.parametrize("kind", ["workflow", "input", "step"])
def test_two_spellings_of_one_name_are_the_same_name_twice(kind):
    one, other = ({"Name": name, **({"Script": "1"} if kind == "step" else {})} for name in SPELLINGS)
    workflow = {"Name": "w", "Steps": [{"Name": "s", "Script": "1"}]}
    workflow |= {"input": {"Inputs": [one, other]}, "step": {"Steps": [one, other]}}.get(kind, {})
    workflows = [workflow | one, workflow | other] if kind == "workflow" else [workflow]
    with pytest.raises(DefinitionError, match=f"two {kind}s are called '{SPELLINGS[0]}'"):
        read_definitions(json.dumps({"Workflows": workflows}))


def test_an_input_given_in_both_spellings_is_refused():
    environment = Environment(store="memory:")
    workflow = {"Name": "w", "Inputs": [{"Name": SPELLINGS[0]}], "Steps": [{"Name": "s", "Script": "1"}]}
    environment.define(read_definitions(json.dumps({"Workflows": [workflow]})))
    with pytest.raises(InputError, match="given twice, in two spellings"):
        environment.start("w", dict.fromkeys(SPELLINGS, 1))


@pytest.mark.parametrize(
    "expression", ["state.@", "state['@']", "state['^']", "state.get('^')", "'^' in state", "[state['^']]"]
)
@pytest.mark.parametrize("key", SPELLINGS)
def test_a_variable_of_a_log_that_was_written_before_is_found_in_its_spelling(expression, key):
    text = expression.replace("@", SPELLINGS[0]).replace("^", SPELLINGS[1])
    for purpose in (Purpose.CONDITION, Purpose.VALUE):
        [value] = default_interpreter().evaluate(purpose, [text], {"state": {key: 1}})
        assert value in (1, True, [1])
