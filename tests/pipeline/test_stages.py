import asyncio
import json
import threading

import pytest

from divebook import Agent, Bounds, ScriptedModel
from divebook.definitions.pipelines import PipelineConfig
from divebook.errors import StepError
from divebook.pipeline import Pipeline
from divebook.pipeline.stages import object_in
from divebook.steps import Action
from tests.pipeline.worlds import Script, Stumbling, asks, counted, envelope, flat, pipeline, world

MODEL = {"has_llm": True, "model_role": "writer"}
TOOLS = {"has_tools": True, "tool_access": "all"}


class Noted:
    """An agent that notes what it is asked."""

    def __init__(self, *replies, **script):
        self.prompts = []
        noted = self.prompts

        class Model(ScriptedModel):
            def reply(self, prompt):
                noted.append(prompt)
                return super().reply(prompt)

        self.model = Model([text if isinstance(text, str) else json.dumps(text) for text in replies], **script)
        self.agent = Agent("writer", model=self.model)


def written(config, *replies, given=None, **script):
    noted = Noted(*replies, **script)
    return Pipeline(config, agents=[noted.agent]).run(given or envelope()), noted


# --- the answer of a model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": {"b": [1, 2]}}\n```', {"a": {"b": [1, 2]}}),
        ('Sure: {"a": "}{"} and {"b": 2}', {"a": "}{"}),
        ("{not json} but {}", {}),
        ('{"open": {"a": 1}', {"a": 1}),
        ('[{"a": 1}]', {"a": 1}),
        ('{"a": NaN} {"b": 1}', {"b": 1}),
        ('{"a":' * 5000 + '{"b": 1}', {"b": 1}),
    ],
)
def test_the_first_object_in_a_text(text, found):
    assert object_in(text) == found


@pytest.mark.parametrize("text", ["", "no", "[1]", "{", "{a: 1}", '"{"'])
def test_a_text_without_an_object(text):
    with pytest.raises(StepError, match="holds no JSON object"):
        object_in(text)


def test_a_stage_with_a_model_asks_the_agent_that_it_names():
    done, noted = written(flat(a=MODEL), 'Here: {"verdict": "proceed"}', given=envelope())
    assert done.outputs == {"a": {"verdict": "proceed"}}
    assert (done.llm_call_count, noted.prompts) == (1, ["Do it"])
    assert done.processing_history[0].llm_calls == 1


def test_without_a_prompt_the_agent_sees_request_outputs_and_answer():
    noted = Noted({"done": True})
    config = flat(a={"default_next": "b"}, b=MODEL)
    runner = Pipeline(config, services={"a": asks("clarification", output={"n": 1})}, agents=[noted.agent])
    runner.resume(runner.run(envelope()), {"text": "src"})
    (prompt,) = noted.prompts
    assert all(part in prompt for part in ("Do it", '{"a": {"n": 1}}', '"text": "src"'))


def test_a_prompt_may_use_the_whole_envelope():
    config = flat(a={"default_next": "b"}, b={**MODEL, "prompt_key": "x"})
    config["prompts"] = {"x": "Of ${envelope.user_id}: ${envelope.outputs.a.n} after ${envelope.iteration}"}
    noted = Noted({})
    Pipeline(config, mocks={"a": {"n": 7}}, agents=[noted.agent]).run(envelope())
    assert noted.prompts == ["Of ann: 7 after 0"]


def test_an_answer_without_an_object_is_a_failure_of_the_model():
    done, _ = written(flat(a=MODEL), "I would rather not")
    assert (done.terminal_reason, done.llm_call_count) == ("llm_failed_fatally", 1)
    assert "I would rather not" in done.errors[0]["error"]


def test_a_model_that_fails_counts_a_call():
    done, _ = written(flat(a=MODEL), error="overloaded")
    assert (done.terminal_reason, done.llm_call_count, done.outputs) == ("llm_failed_fatally", 1, {})


def test_an_agent_that_does_not_exist_is_told_before_anything_is_asked():
    done = Pipeline(flat(a=MODEL)).run(envelope())
    assert "agent not found: writer" in done.termination_reason


def test_tokens_and_costs_are_counted():
    config = flat(a={**MODEL, "default_next": "b"}, b=MODEL)
    done, _ = written(config, {}, usage={"input_tokens": 10, "output_tokens": 5}, price=0.25)
    assert (done.token_count, float(done.cost)) == (30, 0.5)


def test_calls_side_by_side_do_not_overshoot():
    config = {**flat(**dict.fromkeys("abcde", MODEL)), "max_llm_calls": 3, "default_run_mode": "parallel"}
    done, noted = written(config, {"ok": True})
    assert (done.llm_call_count, noted.model.calls, len(done.outputs)) == (3, 3, 3)
    assert (done.terminal_reason, done.terminated, done.failed_stages) == ("max_llm_calls_exceeded", False, {})
    assert len(done.processing_history) == 3


def test_a_bound_on_tokens_stops_before_the_call_that_would_exceed_it():
    config = flat(a={**MODEL, "default_next": "b"}, b=MODEL)
    given = envelope(bounds=Bounds(max_tokens=20))
    done, noted = written(config, {}, given=given, usage={"output_tokens": 15})
    assert (noted.model.calls, done.current_stage, done.terminal_reason) == (1, "b", "max_tokens_exceeded")
    assert (done.token_count, done.terminated, done.agent_hop_count) == (15, False, 1)


def test_temperature_and_tokens_of_a_stage_are_its_agents():
    agent = Agent("writer", model=ScriptedModel(["x"]))
    changed = agent.with_settings(temperature=0.5, max_tokens=7)
    settings = changed.definition.model_settings
    assert (settings.temperature, settings.max_tokens) == (0.5, 7)
    assert agent.with_settings() is agent
    assert changed.is_scripted


# --- functions -----------------------------------------------------------------------------------------------------


def test_mocks_come_before_everything_else_and_count_no_call():
    config = flat(a={**MODEL, "default_next": "b"}, b={"has_llm": True, "model_role": "x"})
    runner = Pipeline(config, mocks={"a": {"n": 1}, "b": lambda given: {"n": given.outputs["a"]["n"] + 1}})
    done = runner.run(envelope())
    assert (done.outputs, done.llm_call_count) == ({"a": {"n": 1}, "b": {"n": 2}}, 0)


def test_a_service_says_how_many_calls_it_made():
    assert pipeline(flat(a=MODEL), Script(a=[counted({}, 4)])).run(envelope()).llm_call_count == 4
    assert pipeline(flat(a={}), Script(a=[counted({}, 2)])).run(envelope()).llm_call_count == 2
    assert pipeline(flat(a={})).run(envelope()).llm_call_count == 0


def test_hooks_run_around_the_work_and_may_change_the_envelope():
    seen = []

    async def before(given):
        seen.append(("before", dict(given.outputs)))
        given.metadata["seen"] = True

    def after(given, output):
        seen.append(("after", output, given.outputs["a"]))
        given.loop_feedback.append("good")

    runner = Pipeline(
        flat(a={}), services={"a": lambda given: dict(given.metadata)}, before={"a": before}, after={"a": after}
    )
    done = runner.run(envelope())
    assert done.outputs == {"a": {"seen": True}}
    assert (done.metadata, done.loop_feedback) == ({"seen": True}, ["good"])
    assert seen == [("before", {}), ("after", {"seen": True}, {"seen": True})]


def test_an_output_stays_though_the_hook_behind_it_fails():
    def fail(given, output):
        raise ValueError("hook")

    done = Pipeline(flat(a={}), mocks={"a": {"n": 1}}, after={"a": fail}).run(envelope())
    assert (done.outputs, done.termination_reason) == ({"a": {"n": 1}}, "hook")


def test_a_hook_in_front_that_fails_keeps_the_model_from_being_asked():
    def fail(given):
        raise ValueError("hook")

    noted = Noted({})
    done = Pipeline(flat(a=MODEL), before={"a": fail}, agents=[noted.agent]).run(envelope())
    assert (noted.prompts, done.llm_call_count, done.terminal_reason) == ([], 0, "tool_failed_fatally")


def test_a_stage_without_anything_to_do_has_an_empty_output():
    assert Pipeline(flat(a={})).run(envelope()).outputs == {"a": {}}


# --- tools ---------------------------------------------------------------------------------------------------------


def double(n):
    return 2 * n


def fail(**_):
    raise OSError("disk full")


def used(steps, actions=(), **stage):
    config = flat(plan={"default_next": "use"}, use={**TOOLS, **stage})
    runner = Pipeline(config, mocks={"plan": {"steps": steps}}, actions=[Action("double", double), *actions])
    return runner.run(envelope()).outputs["use"]


def test_the_steps_of_a_plan_are_carried_out_with_actions():
    told = used(
        [{"tool": "double", "parameters": {"n": 2}}, {"step_id": "x", "tool": "double", "parameters": {"n": 3}}]
    )
    assert [(result["step_id"], result["result"]) for result in told["results"]] == [("step_0", 4), ("x", 6)]
    assert told["all_succeeded"] is True
    assert told["total_time_ms"] == sum(result["time_ms"] for result in told["results"])


def test_a_tool_that_fails_is_a_result_and_the_next_one_runs():
    told = used([{"tool": "fail"}, {"tool": "double", "parameters": {"n": 1}}], [Action("fail", fail)])
    assert [result["success"] for result in told["results"]] == [False, True]
    assert ("disk full" in told["results"][0]["error"], told["all_succeeded"]) == (True, False)


@pytest.mark.parametrize(
    ("stage", "step", "part"),
    [
        ({"tool_access": "none"}, {"tool": "double"}, "may not use the tool 'double'"),
        ({"tool_access": "read", "allowed_tools": ["x"]}, {"tool": "double"}, "may not use"),
        ({}, {"tool": "duoble"}, "did you mean 'double'"),
        ({}, {"tool": "double", "parameters": [1]}, "must be a mapping"),
        ({}, {"tool": "double", "parameters": {"m": 1}}, 'action "double"'),
        ({}, "double", "tool '' not found"),
    ],
)
def test_a_tool_that_cannot_be_called_is_a_result(stage, step, part):
    (result,) = used([step], **stage)["results"]
    assert (result["success"], part in result["error"]) == (False, True)


def test_a_plan_without_steps_uses_nothing():
    assert used([]) == {"results": [], "total_time_ms": 0, "all_succeeded": True}
    assert Pipeline(flat(use=TOOLS)).run(envelope()).outputs["use"]["results"] == []


def test_tools_with_a_key_receive_one_of_their_own_each():
    keys = []

    def keep(idempotency_key):
        keys.append(idempotency_key)

    used([{"tool": "keep"}, {"tool": "keep"}], [Action("keep", keep)])
    assert len(set(keys)) == 2


def test_a_tool_that_needs_approval_asks_inside_its_stage():
    calls = []
    config = flat(plan={"default_next": "use"}, use={**TOOLS, "default_next": "end"})
    steps = [{"tool": "note", "parameters": {"n": 1}}, {"tool": "risky", "parameters": {"n": 2}}]

    def note(n):
        calls.append(n)

    actions = [Action("note", note), Action("risky", note, approval=True)]
    runner = Pipeline(config, mocks={"plan": {"steps": steps}}, actions=actions)
    waiting = runner.run(envelope())
    assert (waiting.interrupt.kind, waiting.interrupt.data["action"]) == ("confirmation", "risky")
    assert (waiting.current_stage, calls) == ("use", [1])
    done = runner.resume(waiting, {"approved": True})
    assert (calls, done.outputs["use"]["all_succeeded"], done.terminal_reason) == ([1, 2], True, "completed")


def test_a_tool_that_is_denied_is_a_result():
    config = flat(plan={"default_next": "use"}, use=TOOLS)
    actions = [Action("risky", double, approval=True)]
    plan = {"steps": [{"tool": "risky", "parameters": {"n": 2}}]}
    runner = Pipeline(config, mocks={"plan": plan}, actions=actions)
    (result,) = runner.resume(runner.run(envelope()), {"approved": False}).outputs["use"]["results"]
    assert (result["success"], "not approved" in result["error"]) == (False, True)


# --- retries and time ----------------------------------------------------------------------------------------------


def test_a_stage_is_tried_again_with_growing_delays():
    environment = world()
    script = Script(a=[ValueError("1"), ValueError("2"), {"n": 3}])
    done = pipeline(flat(a={**MODEL, "max_retries": 2}), script, environment=environment).run(envelope())
    assert (done.outputs, len(script.calls)) == ({"a": {"n": 3}}, 3)
    assert environment._clock.slept == [1, 2]
    assert (done.llm_call_count, done.agent_hop_count, len(done.processing_history)) == (3, 1, 1)
    assert done.errors == []


def test_a_stage_that_keeps_failing_fails_with_its_last_error():
    script = Script(a=[ValueError("1"), ValueError("2")])
    done = pipeline(flat(a={"max_retries": 1}), script, environment=world()).run(envelope())
    assert (done.termination_reason, len(script.calls)) == ("2", 2)


def test_delays_grow_to_half_a_minute():
    environment = world()
    pipeline(flat(a={"max_retries": 7}), Script(a=[ValueError("no")]), environment=environment).run(envelope())
    assert environment._clock.slept == [1, 2, 4, 8, 16, 30, 30]


def test_what_an_attempt_that_failed_had_changed_is_gone():
    def change_and_fail(given):
        given.metadata["tries"] = given.metadata.get("tries", 0) + 1
        given.set_output("other", {"x": 1})
        raise ValueError("no")

    script = Script(a=[change_and_fail, lambda given: {"tries": given.metadata.get("tries", 0)}])
    done = pipeline(flat(a={"max_retries": 1}), script, environment=world()).run(envelope())
    assert done.outputs == {"a": {"tries": 0}}


def test_a_stage_that_has_asked_is_not_tried_again():
    def fail_after(given, output):
        raise ValueError("no")

    script = Script(a=[asks("clarification", question="?")])
    runner = pipeline(flat(a={"max_retries": 3, "error_next": "b"}, b={}), script, after={"a": fail_after})
    waiting = runner.run(envelope())
    assert (script.calls, waiting.interrupt_pending, waiting.current_stage) == (["a"], True, "b")


def test_a_model_that_answers_badly_is_asked_again():
    noted = Noted("no idea", {"ok": 1})
    runner = Pipeline(flat(a={**MODEL, "max_retries": 1}), environment=world(agents=[noted.agent]))
    done = runner.run(envelope())
    assert (done.outputs, done.llm_call_count, len(noted.prompts)) == ({"a": {"ok": 1}}, 2, 2)


@pytest.mark.parametrize(("retries", "status"), [(0, "completed"), (1, "llm_failed_fatally")])
def test_a_request_of_a_stage_is_tried_again_by_itself_unless_the_stage_is(retries, status):
    model = Stumbling(['{"ok": 1}'])
    place = world(agents=[Agent("writer", model=model)])
    runner = Pipeline(flat(a={**MODEL, "max_retries": retries}), environment=place)
    execution = runner.start(envelope()).wait()
    done = runner.envelope(execution)
    assert (done.terminal_reason, done.llm_call_count) == (status, model.calls)
    assert model.calls == (2 if retries else 3)
    assert runner.envelope(world(store=place.store).run_of(execution.id)).to_state_dict() == done.to_state_dict()


def test_the_text_of_a_stage_is_heard_while_its_model_writes():
    listening, deltas = threading.Event(), []
    model = ScriptedModel(['{"ok": [1, 2]}'], pace=lambda: asyncio.to_thread(listening.wait, 20))
    place = world(agents=[Agent("writer", model=model)])
    place.internals.control.texts.always = True
    execution = Pipeline(flat(a={**MODEL, "timeout_seconds": 20}), environment=place).start(envelope())
    execution.subscribe_text(deltas.append)
    listening.set()
    execution.wait(20)
    assert "".join(delta.text for delta in deltas) == '{"ok": [1, 2]}'


async def never(_):
    await asyncio.Event().wait()


def test_an_attempt_that_takes_too_long_fails():
    done = Pipeline(flat(a={"timeout_seconds": 0.02}), services={"a": never}).run(envelope())
    assert "took longer than 0.02 seconds" in done.termination_reason


def test_the_pipeline_says_how_long_an_attempt_may_take_where_the_stage_does_not():
    config = {**flat(a={"error_next": "b"}, b={}), "default_timeout_seconds": 0.02}
    done = Pipeline(config, services={"a": never}).run(envelope())
    assert ("took longer" in done.errors[0]["error"], list(done.outputs)) == (True, ["b"])


@pytest.mark.parametrize(
    ("of_pipeline", "of_stage", "seconds"),
    [
        ({}, {}, 300),
        ({}, {"timeout_seconds": 0}, None),
        ({}, {"timeout_seconds": None}, 300),
        ({"default_timeout_seconds": 0}, {}, None),
        ({"default_timeout_seconds": 0}, {"timeout_seconds": 5}, 5),
    ],
)
def test_a_limit_of_0_seconds_is_no_limit_and_not_the_default(of_pipeline, of_stage, seconds):
    config = PipelineConfig.of({**flat(a=of_stage), **of_pipeline})
    for read in (config, PipelineConfig.from_text(config.to_text())):
        assert read.seconds(read.agents[0]) == seconds


def test_every_attempt_has_its_own_time():
    calls = []

    async def slow_once(given):
        calls.append(1)
        if len(calls) == 1:
            await never(given)
        return {"calls": len(calls)}

    config = flat(a={"timeout_seconds": 0.05, "max_retries": 1})
    assert Pipeline(config, services={"a": slow_once}, environment=world()).run(envelope()).outputs == {
        "a": {"calls": 2}
    }


def test_whether_a_tool_that_took_too_long_took_effect_is_asked():
    async def stuck():
        await never(None)

    config = flat(plan={"default_next": "use"}, use={**TOOLS, "timeout_seconds": 0.05})
    runner = Pipeline(config, mocks={"plan": {"steps": [{"tool": "stuck"}]}}, actions=[Action("stuck", stuck)])
    waiting = runner.run(envelope())
    assert (waiting.interrupt.kind, waiting.current_stage) == ("outcome_unknown", "use")
    done = runner.resume(waiting, {"choice": "done", "result": 5})
    assert done.outputs["use"]["results"][0]["result"] == 5
