"""Loops of a pipeline: feedback and earlier plans reach the next pass. The envelope of an execution."""

import json

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Environment
from divebook.pipeline import Pipeline, create_envelope
from tests.pipeline.worlds import Script

LOOP = {
    "name": "loop",
    "max_iterations": 5,
    "agents": [
        {"name": "plan", "stage_order": 1, "has_llm": True, "model_role": "planner", "default_next": "critic"},
        {
            "name": "critic",
            "stage_order": 2,
            "routing_rules": [{"condition": "verdict", "value": "loop_back", "target": "plan"}],
        },
    ],
}


def looping(*verdicts, **settings):
    """Return a pipeline whose critic gives these outputs, and the prompts that its planner gets."""
    prompts = []

    def plan(messages, info):
        prompts.append(messages[-1].parts[-1].content)
        return ModelResponse(parts=[TextPart(json.dumps({"steps": [], "number": len(prompts)}))])

    planner = Agent("planner", model=FunctionModel(plan))
    script = Script(critic=list(verdicts))
    pipeline = Pipeline(LOOP, services={"critic": script.services(LOOP)["critic"]}, agents=[planner], **settings)
    return pipeline, prompts


BACK = {"verdict": "loop_back"}


def test_the_feedback_of_a_stage_that_sends_a_request_back_reaches_the_next_pass():
    pipeline, prompts = looping(
        {**BACK, "feedback": "Too long."}, {**BACK, "feedback": "Name the risks."}, {"verdict": "proceed"}
    )
    done = pipeline.run(create_envelope("Plan it", "ann", "s1"))
    assert (done.loop_feedback, done.iteration) == (["Too long.", "Name the risks."], 2)
    assert [plan["number"] for plan in done.prior_plans] == [1, 2]
    assert "Feedback" not in prompts[0]
    assert prompts[1].endswith(
        'Plans of earlier passes: [{"steps": [], "number": 1}]\n\nFeedback on earlier passes:\n1. Too long.'
    )
    assert '{"steps": [], "number": 2}]' in prompts[2]
    assert prompts[2].endswith("1. Too long.\n2. Name the risks.")


@pytest.mark.parametrize(
    ("feedback", "kept"),
    [
        (None, []),
        ("", [""]),
        (["a", "b"], ["a\nb"]),
        ({"risk": "high"}, ['{"risk": "high"}']),
        (3, ["3"]),
        ([{"n": 1}, "b"], ['{"n": 1}\nb']),
    ],
)
def test_feedback_of_any_form_is_kept_as_a_string(feedback, kept):
    pipeline, _ = looping({**BACK, "feedback": feedback}, {"verdict": "proceed"})
    assert pipeline.run(create_envelope("Plan it", "ann", "s1")).loop_feedback == kept


def test_an_output_that_goes_forward_leaves_its_feedback_where_it_is():
    pipeline, _ = looping({"verdict": "proceed", "feedback": "Well done."})
    done = pipeline.run(create_envelope("Plan it", "ann", "s1"))
    assert (done.loop_feedback, done.outputs["critic"]["feedback"]) == ([], "Well done.")


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_the_envelope_of_an_execution_is_that_of_its_pipeline(mode):
    config = {**LOOP, "agents": [{**LOOP["agents"][0], "has_llm": False}, LOOP["agents"][1]]}
    world = Environment(store="memory:")
    script = Script(plan=[{"n": 1}], critic=[{**BACK, "feedback": "Again."}, {"verdict": "proceed"}])
    pipeline = Pipeline(config, services=script.services(config), environment=world)
    execution = pipeline.start(create_envelope("Plan it", "ann", "s1"), mode=mode).wait(20)
    assert execution.envelope.to_state_dict() == pipeline.envelope(execution).to_state_dict()
    assert execution.envelope.raw_input == "Plan it"
    walk = execution.replay().seek(len(execution.history()))
    assert walk.envelope.to_state_dict() == execution.envelope.to_state_dict()
    assert execution.replay().envelope.raw_input == ""


def test_the_envelope_of_an_execution_that_waits_has_its_question():
    config = {"name": "asks", "agents": [{"name": "a", "default_next": "clarification"}]}
    world = Environment(store="memory:")
    script = Script(a=[{"question": "Which?"}])
    pipeline = Pipeline(config, services=script.services(config), environment=world)
    execution = pipeline.start(create_envelope("Plan it", "ann", "s1")).wait(20)
    assert execution.envelope.to_state_dict() == pipeline.envelope(execution).to_state_dict()
    assert (execution.envelope.interrupt.question, execution.envelope.interrupt_pending) == ("Which?", True)
    twin = execution.envelope.interrupt.clone()
    assert twin == execution.envelope.interrupt
    assert twin is not execution.envelope.interrupt
