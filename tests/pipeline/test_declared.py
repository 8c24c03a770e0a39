"""Pipelines that a definition file declares: read, run as workflows, written back, and shown by their stages."""

import pytest

from divebook import Environment
from divebook.definitions.pipelines import AgentStage, PipelineConfig, RoutingRule
from divebook.definitions.reader import definitions_to_text, read_definitions
from divebook.errors import DefinitionError
from divebook.pipeline import Pipeline
from divebook.widgets.source import graph_of

AGENTS = """
Agents:
- {Name: writer, Script: ['{"text": "first"}', '{"text": "second"}']}
- {Name: critic, Script: ['{"verdict": "loop_back", "feedback": "Too long."}', '{"verdict": "proceed"}']}
"""
REVIEW = """
Pipelines:
- Name: review
  MaxIterations: 2
  Stages:
  - {Name: draft, Agent: writer, Next: check}
  - Name: check
    Agent: critic
    Routes: [{Condition: verdict, Value: loop_back, Target: draft}]
"""


def environment(text, **settings):
    world = Environment(store="memory:", **settings)
    world.define(read_definitions(text))
    return world


def test_a_pipeline_of_a_file_is_run_by_its_name():
    world = environment(AGENTS + REVIEW)
    done = world.start("review", {"request": "Write it", "user": "ann"}).wait(20)
    assert (done.status, done.error) == ("completed", None)
    assert done.outputs == {"outputs": {"draft": {"text": "second"}, "check": {"verdict": "proceed"}}}
    envelope = done.envelope
    assert (envelope.raw_input, envelope.user_id, envelope.iteration) == ("Write it", "ann", 1)
    assert (envelope.loop_feedback, str(envelope.terminal_reason)) == (["Too long."], "completed")
    assert len(done.requests) == 4
    assert done.requests[2].messages[-1]["parts"][-1]["content"].endswith("Feedback on earlier passes:\n1. Too long.")


def test_it_is_the_same_pipeline_as_in_python():
    (config,) = read_definitions(AGENTS + REVIEW).pipelines
    stages = [
        AgentStage("draft", has_llm=True, model_role="writer", default_next="check"),
        AgentStage(
            "check", has_llm=True, model_role="critic", routing_rules=[RoutingRule("verdict", "loop_back", "draft")]
        ),
    ]
    assert config == PipelineConfig("review", stages, max_iterations=2)
    assert Pipeline(config).config == config


def test_it_is_written_as_it_was_read():
    found = read_definitions(AGENTS + REVIEW)
    again = read_definitions(definitions_to_text(found))
    assert (again.pipelines, again.workflows) == (found.pipelines, found.workflows)
    assert "Steps:" not in definitions_to_text(found)


def test_a_question_of_a_stage_is_answered_like_any_other():
    text = """
Agents: [{Name: critic, Script: ['{"question": "Which?"}', '{"verdict": "proceed"}']}]
Pipelines:
- Name: ask
  Stages:
  - Name: check
    Agent: critic
    Next: clarification
    Routes: [{Condition: verdict, Value: proceed, Target: end}]
"""
    world = environment(text)
    waiting = world.start("ask", {"request": "Write it"}).wait(20)
    (question,) = waiting.open_questions
    assert (waiting.status, question.question) == ("waiting", "Which?")
    done = waiting.answer(question.id, "the first").wait(20)
    assert (done.status, done.envelope.interrupt.response.text) == ("completed", "the first")
    assert '"text": "the first"' in str(done.requests[-1].messages[-1])


def test_stages_may_run_side_by_side():
    text = """
Agents: [{Name: a, Script: ['{"n": 1}']}]
Pipelines:
- {Name: both, Mode: parallel, Stages: [{Name: left, Agent: a}, {Name: right, Agent: a}]}
"""
    done = environment(text).start("both", {"request": "x"}).wait(20)
    assert done.outputs == {"outputs": {"left": {"n": 1}, "right": {"n": 1}}}


def test_the_bound_of_model_calls_holds():
    text = AGENTS + REVIEW.replace("MaxIterations: 2", "MaxLLMCalls: 2")
    done = environment(text).start("review", {"request": "x"}).wait(20)
    assert (done.usage.requests, str(done.envelope.terminal_reason)) == (2, "max_llm_calls_exceeded")


def test_a_prompt_of_a_stage_and_one_of_the_pipeline():
    text = """
Agents: [{Name: a, Script: ['{"n": 1}']}]
Pipelines:
- Name: p
  Prompts: {second: "Second: ${envelope.raw_input}"}
  Stages:
  - {Name: one, Agent: a, Prompt: "First: ${envelope.raw_input}", Next: two}
  - {Name: two, Agent: a, PromptKey: second}
"""
    done = environment(text).start("p", {"request": "birds"}).wait(20)
    for view, prompt in zip(done.requests, ("First: birds", "Second: birds"), strict=True):
        assert prompt in str(view.messages[-1])


def test_the_graph_shows_stages_and_no_router():
    (workflow,) = read_definitions(AGENTS + REVIEW).workflows
    graph = graph_of(workflow)
    assert [step["name"] for step in graph["steps"]] == ["draft", "check"]
    assert [(edge["source"], edge["target"], edge["condition"]) for edge in graph["edges"]] == [
        ("draft", "check", ""),
        ("check", "draft", "verdict == 'loop_back'"),
    ]


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("Pipelines: [{Name: p, Stages: [{Name: a, Nxt: b}]}]", "unknown key 'Nxt'", 1),
        ("Pipelines:\n- {Name: p, Stages: [{Name: a, Next: b}]}", "default_next leads to the unknown target 'b'", 2),
        (
            "Pipelines:\n- Name: p\n  Stages:\n  - {Name: b, StageOrder: 2}\n  - {Name: a, Next: c}",
            "default_next leads to the unknown target 'c'",
            5,
        ),
        ("Pipelines:\n- {Name: p, Mode: fast}", "invalid Mode: fast", 2),
        ("Pipelines:\n- {Stages: []}", "pipeline name is required", 2),
        ("Pipelines:\n- {Name: p}\n- {Name: p}", "two pipelines are called 'p'", 3),
        (
            "Pipelines:\n- {Name: p, Stages: [{Name: a}]}\nWorkflows:\n- {Name: p, Steps: [{Name: s, Script: '1'}]}",
            "has the same name as a workflow",
            1,
        ),
        ("Pipelines: [{Name: p, Stages: [{Name: a, Agent: x, Prompt: y, PromptKey: z}]}]", "both a prompt", 1),
        ("Pipelines:\n- Name: p\n  Stages:\n  - {Name: a, Routes: [{Condition: x, Target: end}]}", "needs a Value", 4),
        (
            "Pipelines:\n- Name: p\n  Stages:\n  - {Name: b}\n  - Name: a\n    Agent: x\n    PromptKey: z",
            "unknown prompt 'z' (add Prompts: {z: ...} to the pipeline, or write Prompt)",
            7,
        ),
        (
            "Pipelines:\n- Name: p\n  Prompts: {first: X}\n  Stages:\n  - Name: a\n    Agent: x\n    PromptKey: frst",
            "unknown prompt 'frst' (did you mean 'first'?)",
            7,
        ),
        ("Pipelines:\n- Name: p\n  Prompts: {}\n  Stages:\n  - {Name: a, PromptKey: z}", "add Prompts: {z: ...}", 5),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text, problem, line):
    with pytest.raises(DefinitionError) as refused:
        read_definitions(text)
    assert problem in str(refused.value)
    assert f":{line}:" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("Stages:\n  - {Name: a, Agent: x, Prompt: '${a b}'}", "Prompt of stage 'a': invalid syntax", 4),
        ("Stages:\n  - {Name: a}\n  - {Name: b, Agent: x, Prompt: '${state.n}'}", 'undefined variable "state"', 5),
        ("Stages:\n  - {Name: b, StageOrder: 2}\n  - {Name: a, Agent: x, Prompt: '${'}", "unclosed template", 2),
        ("Stages: [{Name: a, Agent: x, PromptKey: p}]\n  Prompts:\n    p: '${envelop.x}'", 'variable "envelop"', 4),
    ],
)
def test_a_prompt_that_cannot_be_filled_in_is_refused_where_it_is_defined(text, problem, line):
    with pytest.raises(DefinitionError) as refused:
        Environment(store="memory:").define(read_definitions(f"Pipelines:\n- Name: p\n  {text}"))
    assert problem in str(refused.value)
    assert f":{line}:" in str(refused.value)


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize(
    ("stage", "error"),
    [
        ("{Name: draft, Agent: chatty, Next: check}", "stage 'draft' failed: the answer holds no JSON object"),
        ("{Name: draft, Agent: writer, Prompt: '${envelope.a.b}', Next: check}", "failed to evaluate template"),
    ],
)
def test_a_run_fails_with_the_error_of_its_stage(mode, stage, error):
    text = f"""
Agents: [{{Name: chatty, Script: [Certainly!]}}, {{Name: writer, Script: ['{{}}', '{{}}']}}]
Pipelines:
- Name: review
  Mode: {mode}
  Stages: [{stage}, {{Name: check, Agent: writer, Requires: [draft]}}]
"""
    done = environment(text).start("review", {"request": "Write it"}).wait(20)
    assert (done.status, list(done.envelope.outputs)) == ("failed", [])
    assert error in done.error
    assert str(done.envelope.terminal_reason) == "llm_failed_fatally"


def test_a_stage_that_fails_goes_to_its_error_stage():
    text = """
Agents: [{Name: chatty, Script: [Certainly!]}, {Name: writer, Script: ['{"text": "x"}']}]
Pipelines:
- Name: review
  Stages: [{Name: draft, Agent: chatty, ErrorNext: mend}, {Name: mend, Agent: writer}]
"""
    done = environment(text).start("review", {"request": "Write it"}).wait(20)
    assert (done.status, done.outputs) == ("completed", {"outputs": {"mend": {"text": "x"}}})


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_fork_at_any_event_is_replayed_as_recorded(mode):
    world = environment(AGENTS + REVIEW.replace("- Name: review", f"- Name: review\n  Mode: {mode}"))
    done = world.start("review", {"request": "Write it"}).wait(20)
    forks = [world.run_of(done.id).fork(at).wait(20) for at in range(1, len(done.history()), 4)]
    forks.append(world.run_of(forks[-1].id).fork(30).wait(20))
    for fork in forks:
        assert (fork.status, fork.verify().equal) == ("completed", True), fork.verify()
        assert fork.envelope.envelope_id == done.envelope.envelope_id
