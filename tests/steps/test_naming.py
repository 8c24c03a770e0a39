"""Names in the code of a definition that cannot be there are told when it is defined; all others are let through."""

from textwrap import dedent, indent

import pytest

from divebook.definitions.reader import read_definitions
from divebook.errors import DefinitionError
from divebook.steps.checks import MOST_STEPS, syntax_problems


def told(steps, inputs="[]"):
    body = f"Inputs: {inputs}\nSteps:\n{indent(dedent(steps).strip(), '  ')}\n"
    found = read_definitions(body, source_name="cell", body="workflow", name="w")
    return [problem.describe("cell") for problem in syntax_problems(found)]


def test_a_misspelt_name_is_told_where_it_stands_with_the_one_that_was_meant():
    steps = """
    - {Name: a, Script: "1", Store: total}
    - Name: b
      Prompt: |
        The text may be long: ${state.total},
        and then ${statte.total} and ${state.totl} and ${inputs["topik"]}
    """
    assert told(steps, "[{Name: topic}]") == [
        "cell:7:18: undefined variable \"statte\" (did you mean 'state'?)",
        "cell:7:44: no step sets state.totl (did you mean 'total'?)",
        "cell:7:64: the workflow has no input 'topik' (did you mean 'topic'?)",
    ]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("{Name: s, Script: 'state.x'}", "cell:3:30: no step sets state.x (write Store in an earlier step)"),
        ("{Name: s, Script: 'inputs.x'}", "the workflow has no input 'x' (it has none; add it to Inputs)"),
        ("{Name: s, Script: '1', Each: {Items: $(state.x)}}", "no step sets state.x"),
        ("{Name: s, Script: '1', Next: [{Step: s, Condition: state.x}]}", "no step sets state.x"),
        ("{Name: s, Action: Print, Parameters: {a: $(state.x)}}", "no step sets state.x"),
        ("{Name: s, Action: Print, Parameters: {a: 'b ${x}'}}", 'undefined variable "x"'),
        ("{Name: s, Ask: {Question: 'b ${x}'}}", 'undefined variable "x"'),
        ("{Name: s, Ask: {Question: b, Message: '${x}'}}", 'undefined variable "x"'),
        ("{Name: s, Ask: {Question: b, Data: {a: $(x)}}}", 'undefined variable "x"'),
        ("{Name: s, Prompt: a, Thread: '${x}'}", 'undefined variable "x"'),
        ("{Name: s, Signal: 'a-${x}'}", 'undefined variable "x"'),
        ("{Name: s, Seconds: '${x}'}", 'undefined variable "x"'),
        ("{Name: s, Workflow: v, Inputs: {a: '${x}'}}", 'undefined variable "x"'),
        ("{Name: s, Prompt: a, Content: [{Dynamic: 'x'}]}", 'undefined variable "x"'),
        ("{Name: s, Script: 'item', Each: {Items: '$(item)', As: item}}", 'undefined variable "item"'),
        ("{Name: s, Script: 'topic'}", 'undefined variable "topic" (write inputs.topic)'),
        (
            "{Name: s, Script: '1', Rollback: {Action: Print, Parameters: {a: $(resalt.id)}}}",
            "cell:3:72: undefined variable \"resalt\" (did you mean 'result'?)",
        ),
        ("{Name: s, Script: '1', Rollback: {Action: Print, Parameters: {a: $(state.x)}}}", "no step sets state.x"),
        ("{Name: s, Script: '1', Rollback: {Action: Print, Parameters: {a: 'b ${x}'}}}", 'undefined variable "x"'),
        ("{Name: s, Script: '1', Rollback: {Action: Print, Parameters: {a: $(item)}}}", 'undefined variable "item"'),
        ("{Name: s, Script: '1', Rollback: {Action: Print, Parameters: {a: $(result.id}}}", "unclosed expression"),
        ("{Name: s, Action: Print, Parameters: {a: $(inputs.x}}", "unclosed expression: $(inputs.x"),
    ],
)
def test_every_text_that_is_code_is_looked_at(step, message):
    (found,) = told(f"- {step}", "[{Name: topic}]" if "topic" in step else "[]")
    assert message in found


def test_what_undoes_a_step_knows_its_result_its_variable_and_its_item():
    steps = """
    - Name: a
      Script: item
      Each: {Items: $(inputs.names), As: item}
      Rollback: {Action: Print, Parameters: {a: $(result.id), b: "${item} ${state.item} ${inputs.names}"}}
    - {Name: b, Script: "1", Store: total, Rollback: {Action: Print, Parameters: {a: $(state.total)}}}
    """
    assert told(steps, "[{Name: names}]") == []


def test_what_undoes_an_item_knows_nothing_of_all_of_them():
    (found,) = told("""
    - Name: a
      Script: item
      Store: all
      Each: {Items: [1], As: item}
      Rollback: {Action: Print, Parameters: {a: $(state.all)}}
    """)
    assert "state.all is not set yet" in found


def test_a_variable_that_only_a_later_step_sets_is_not_there_yet():
    steps = """
    - {Name: a, Script: state.late}
    - {Name: b, Script: state.b, Store: b}
    - {Name: c, Script: "1", Store: late}
    """
    assert told(steps) == [
        "cell:3:29: state.late is not set yet: step 'c' sets it, after 'a' (move the step up)",
        "cell:4:29: state.b is not set yet: it is the result of this step (use it in a later step)",
    ]


@pytest.mark.parametrize(
    "steps",
    [
        # of an earlier step, of this one when it ends, of a circle, of another branch
        '- {Name: a, Script: "1", Store: x}\n- {Name: b, Script: state.x}',
        '- {Name: a, Script: "1", Store: x, Next: [{Step: a, Condition: state.x < 1}]}',
        '- {Name: a, Script: "state.x + 1", Store: x, Next: [{Step: a, Condition: "False"}]}',
        '- {Name: a, Script: "state.x"}\n- {Name: b, Script: "1", Store: x, Next: [{Step: a, Condition: "False"}]}',
        (
            '- {Name: a, Script: "1", Next: [{Step: b}, {Step: c}]}\n- {Name: b, Script: state.x, End: true}\n'
            '- {Name: c, Script: "1", Store: x}'
        ),
        # of a loop, of a failure, of a script
        "- {Name: a, Script: state.f + f, Each: {Items: [1], As: f}}",
        "- {Name: a, Script: state.all, Store: all, Each: {Items: [1], As: f}}",
        '- {Name: a, Script: "1", Catch: [{Step: b, Store: x}]}\n- {Name: b, Script: state.x}',
        "- {Name: a, Script: \"state.set('x', 1)\"}\n- {Name: b, Script: state.x}",
        "- {Name: a, Script: \"state.set('x', 1)\\nstate.x\"}",
        "- {Name: a, Script: \"for n in ['x']: state.set(n, 1)\"}\n- {Name: b, Script: state.x}",
        # where it is asked whether it is there
        "- {Name: a, Script: \"state.get('x', 1)\"}",
        "- {Name: a, Script: \"state.x if 'x' in state else 1\"}",
        "- {Name: a, Script: \"'x' in inputs and inputs.x\"}",
        '- {Name: a, Script: "try:\\n  state.x\\nexcept Exception:\\n  1"}',
        # where the name means something else
        "- {Name: a, Script: \"def f(state):\\n  return state.x\\nf({'x': 1})\"}",
        "- {Name: a, Script: \"[state.x for state in [{'x': 1}]]\"}",
        "- {Name: a, Script: \"state.items(), state.get('x'), len(inputs)\"}",
        '- {Name: a, Prompt: "It costs $5, ${} and {x}"}',
    ],
)
def test_what_can_be_there_is_no_mistake(steps):
    assert told(steps) == []


def test_what_comes_first_is_not_looked_at_among_very_many_steps():
    first = "- {Name: s, Script: state.late}\n"
    steps = "\n".join(f"- {{Name: s{number}, Script: '1'}}" for number in range(MOST_STEPS - 2))
    last = '\n- {Name: t, Script: "1", Store: late}'
    assert len(told(first + steps + last)) == 1
    assert told(f'{first}- {{Name: more, Script: "1"}}\n{steps}{last}') == []


def test_the_old_dialect_finds_out_when_it_runs():
    text = "Workflows: [{Name: w, Steps: [{Name: s, Prompt: '${nothing} ${state.x}'}]}]"
    assert syntax_problems(read_definitions(text, dialect="dive")) == []


def test_an_environment_refuses_all_of_a_definition_with_such_a_name(tmp_path):
    from divebook.environments.environment import Environment

    with Environment("e", store="memory:") as world:
        text = "Workflows: [{Name: w, Steps: [{Name: s, Script: state.x}]}]"
        with pytest.raises(DefinitionError, match=r"survey\.yaml:1:55: no step sets state\.x"):
            world.define(read_definitions(text, source_name="survey.yaml"))
        assert tuple(world.internals.registry.registered_workflows.values()) == ()
