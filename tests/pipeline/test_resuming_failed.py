"""Runs of declared pipelines that failed: a resumption makes the failed call again, and pays for nothing twice."""

import asyncio
import itertools

import pytest

from divebook import Agent, Environment, ScriptedModel
from divebook.definitions.reader import read_definitions

REFUSED = {"error": "overloaded", "status": 400}
PROSE = "Certainly!"
REVIEW = """
  Stages:
  - {Name: draft, Agent: writer, Next: check}
  - Name: check
    Agent: critic
    Routes: [{Condition: verdict, Value: loop_back, Target: draft}]
    Next: publish
  - {Name: publish, Agent: writer}
"""
BESIDE = """
  Mode: parallel
  Stages:
  - {Name: draft, Agent: writer}
  - {Name: check, Agent: critic}
  - {Name: publish, Agent: writer, Requires: [draft, check]}
"""
RESCUED = """
  Stages:
  - {Name: draft, Agent: absent, ErrorNext: publish}
  - {Name: publish, Agent: writer}
"""


class Models:
    """Scripted models of the agents, whose requests with the given numbers fail in the given way."""

    def __init__(self, failing=(), failure=REFUSED):
        self.failing, self.failure, self.prompts, self.looks = set(failing), failure, [], 0

    def _reply(self, prompt, answer):
        self.prompts.append(prompt)
        return self.failure if len(self.prompts) in self.failing else answer

    def _write(self, prompt):
        return self._reply(prompt, '{"text": "second"}' if "Feedback" in prompt else '{"text": "first"}')

    def _review(self, prompt):
        again = '{"verdict": "loop_back", "feedback": "Too long."}'
        return self._reply(prompt, '{"verdict": "proceed"}' if "Feedback" in prompt or "Mode" in prompt else again)

    def look(self, word: str) -> str:
        """Look a word up."""
        self.looks += 1
        return word

    def agents(self, *, tools=False):
        for name, reply in (("writer", self._write), ("critic", self._review)):
            yield Agent(name, model=ScriptedModel(reply), tools=[self.look] if tools else ())


def world(models, pipeline, *, tools=False, **settings):
    environment = Environment(store="memory:", **settings)
    environment.define(read_definitions(f"Pipelines:\n- Name: review\n{pipeline.strip(chr(10))}"))
    for agent in models.agents(tools=tools):
        environment.add_agent(agent)
    return environment


def outcome(run):
    """Return what does not depend on when the stages ran."""
    envelope = run.envelope
    went = [(record.agent, str(record.status)) for record in envelope.processing_history]
    errors = [error["error"] for error in envelope.errors]
    return run.status, run.outputs, envelope.loop_feedback, envelope.iteration, sorted(went), errors


def resumed(run, most=8):
    """Resume a run until it does not fail any more; return it, and how often that was."""
    for number in range(most):
        if run.status != "failed":
            return run, number
        assert run.verify().equal, run.verify()
        run = run.resume().wait(20)
    raise AssertionError(f"it still fails: {run.error}")


FAILING = [{1}, {3}, {4}, {1, 2}, {2, 3, 5}]


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("failure", [REFUSED, PROSE], ids=["request", "answer"])
@pytest.mark.parametrize("pipeline", [REVIEW, BESIDE, RESCUED], ids=["loop", "beside", "rescued"])
def test_only_what_failed_is_asked_again_at_whatever_request_it_fails(pipeline, failure, tools):
    undisturbed = Models()
    expected = world(undisturbed, pipeline, tools=tools).start("review", {"request": "Mode" * (pipeline == BESIDE)})
    expected = outcome(expected.wait(20))
    for failing in FAILING:
        models = Models(failing, failure)
        run = world(models, pipeline, tools=tools).start("review", {"request": "Mode" * (pipeline == BESIDE)})
        run, _ = resumed(run.wait(20))
        assert outcome(run) == expected, failing
        failed = len([number for number in failing if number <= len(models.prompts)])
        assert len(models.prompts) == len(undisturbed.prompts) + failed, failing
        assert run.verify().equal, run.verify()


def test_stages_that_failed_side_by_side_are_all_asked_again():
    both, prompts = asyncio.Event(), []

    async def reply(prompt):
        prompts.append(prompt)
        if len(prompts) == 2:
            both.set()
        await both.wait()
        return REFUSED if len(prompts) == 2 else '{"text": "done"}'

    environment = world(Models(), "  Mode: parallel\n  Stages: [{Name: left, Agent: a}, {Name: right, Agent: a}]")
    environment.add_agent(Agent("a", model=ScriptedModel(reply)))
    run, times = resumed(environment.start("review").wait(20))
    assert (run.status, times, len(prompts)) == ("completed", 1, 4)


def test_the_failed_stage_fails_and_not_a_step_that_nobody_has_written():
    run = world(Models({2}), REVIEW).start("review").wait(20)
    assert [event.step for event in run.history() if event.data.event_type == "step_failed"] == ["check"]
    assert run.error.startswith("stage 'check' failed: status_code: 400")
    assert "step" not in run.error
    envelope = run.envelope
    assert (envelope.terminated, str(envelope.terminal_reason)) == (True, "llm_failed_fatally")
    assert [(record.agent, str(record.status)) for record in envelope.processing_history] == [
        ("draft", "success"),
        ("check", "error"),
    ]
    assert (envelope.llm_call_count, [error["agent"] for error in envelope.errors]) == (2, ["check"])
    assert f"stage 'check' failed: {envelope.termination_reason}" == run.error


def test_the_envelope_of_a_failed_batch_has_what_was_completed_beside_it():
    run = world(Models({2}, PROSE), BESIDE).start("review", {"request": "Mode"}).wait(20)
    envelope = run.envelope
    assert (run.status, list(envelope.outputs), envelope.completed_stage_set) == ("failed", ["draft"], {"draft": True})
    assert list(envelope.failed_stages) == ["check"]


@pytest.mark.parametrize("failure", [REFUSED, PROSE], ids=["request", "answer"])
def test_a_turn_is_taken_anew_for_each_attempt_at_its_stage(failure):
    looking = {"call": {"look": {"word": "owl"}}}
    model = ScriptedModel(turns=[[looking, failure], [looking, '{"text": "found"}']])
    models = Models()
    environment = world(models, "  Stages: [{Name: draft, Agent: finder, MaxRetries: 1}]")
    environment.add_agent(Agent("finder", model=model, tools=[models.look]))
    run = environment.start("review").wait(20)
    assert (run.status, run.outputs) == ("completed", {"outputs": {"draft": {"text": "found"}}})
    assert (models.looks, run.verify().equal) == (2, True)


def test_a_turn_continues_after_its_calls_where_a_request_failed():
    looking = {"call": {"look": {"word": "owl"}}}
    model = ScriptedModel([looking, REFUSED, '{"text": "found"}'])
    models = Models()
    environment = world(models, "  Stages: [{Name: draft, Agent: finder}]")
    environment.add_agent(Agent("finder", model=model, tools=[models.look]))
    run = environment.start("review").wait(20)
    assert run.status == "failed"
    run = run.resume().wait(20)
    assert (run.status, run.outputs) == ("completed", {"outputs": {"draft": {"text": "found"}}})
    assert (models.looks, run.verify().equal) == (1, True)


def test_attempts_before_the_failure_are_not_made_again():
    models = Models({1, 2, 3}, PROSE)
    pipeline = "  Stages: [{Name: draft, Agent: writer, MaxRetries: 1}]"
    run = world(models, pipeline).start("review").wait(20)
    assert (run.status, len(models.prompts)) == ("failed", 2)
    run = run.resume().wait(20)
    assert (run.status, len(models.prompts)) == ("failed", 3)
    run = run.resume().wait(20)
    assert (run.status, len(models.prompts), run.envelope.llm_call_count) == ("completed", 4, 4)
    assert [event.data.attempt for event in run.history() if event.data.event_type == "step_retried"] == [1, 2, 3]


@pytest.mark.parametrize("failing", list(itertools.combinations(range(1, 4), 2)))
def test_items_of_an_agent_that_failed_side_by_side_are_all_asked_again(failing):
    models = Models(failing)
    environment = Environment(store="memory:")
    for agent in models.agents(tools=True):
        environment.add_agent(agent)
    step = "{Name: one, Agent: writer, Prompt: '${state.x}', Each: {Items: [1, 2, 3], As: x, Parallel: 3}}"
    environment.define(read_definitions(f"Workflows: [{{Name: w, Steps: [{step}]}}]"))
    run, times = resumed(environment.start("w").wait(20))
    assert (run.status, times, len(models.prompts)) == ("completed", 1, 5)
