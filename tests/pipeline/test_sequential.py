import asyncio
import logging

import pytest

from divebook import Bounds, Environment, Step, Workflow
from divebook.errors import ExecutionCancelledError, ExecutionNotFoundError, SetupError
from divebook.pipeline import Pipeline
from divebook.steps import Action
from divebook.stores import MemoryStore
from tests.pipeline.worlds import Script, asks, chain, counted, envelope, flat, pipeline, went, world
from tests.runtime.worlds import Gate

LOOP = [{"condition": "verdict", "value": "loop_back", "target": "draft"}]
AGAIN, GOOD = {"verdict": "loop_back"}, {"verdict": "proceed"}


def review(**settings):
    """Return a pipeline with a stage that may send the request back."""
    config = flat(draft={"default_next": "critic"}, critic={"routing_rules": LOOP}) | settings
    return {"max_iterations": 9, **config}


def test_a_request_goes_from_stage_to_stage():
    done = pipeline(chain("a", "b", "c"), Script(a=[{"n": 1}])).run(envelope())
    assert went(done) == ["a", "b", "c"]
    assert done.outputs == {"a": {"n": 1}, "b": {}, "c": {}}
    assert (done.current_stage, done.terminated, done.terminal_reason) == ("end", False, "completed")
    assert [record.status for record in done.processing_history] == ["success"] * 3


def test_the_envelope_that_is_given_is_the_one_that_changes():
    given = envelope()
    assert pipeline(chain("a")).run(given) is given


def test_a_run_sets_order_position_and_bounds_whatever_they_were():
    given = envelope(stage_order=["x"], bounds=Bounds(max_iterations=1, max_llm_calls=1, max_agent_hops=1))
    given.current_stage = "b"
    done = pipeline(chain("a", "b", max_iterations=7)).run(given)
    assert (done.stage_order, went(done)) == (["a", "b"], ["a", "b"])
    assert (done.max_iterations, done.max_llm_calls, done.max_agent_hops) == (7, 50, 50)


def test_a_run_can_go_on_where_a_bound_stopped_it():
    script = Script()
    runner = pipeline(chain("a", "b", "c", max_agent_hops=2), script)
    stopped = runner.run(envelope())
    assert (stopped.current_stage, stopped.terminal_reason) == ("c", "max_agent_hops_exceeded")
    stopped.max_agent_hops = 3
    done = runner.run(stopped, from_first_stage=False)
    assert (script.calls, done.terminal_reason) == (["a", "b", "c"], "completed")


def test_a_terminated_envelope_does_not_run():
    given = envelope()
    given.terminate("enough", "policy_violation")
    done = pipeline(chain("a")).run(given)
    assert (went(done), done.terminal_reason) == ([], "policy_violation")


def test_an_envelope_that_waits_for_an_answer_does_not_run():
    given = envelope()
    given.set_interrupt("clarification", "q", question="Which?")
    done = pipeline(chain("a")).run(given)
    assert (went(done), done.interrupt_pending, done.interrupt.id) == ([], True, "q")


def test_an_unknown_stage_terminates():
    given = envelope()
    given.current_stage = "nowhere"
    done = pipeline(chain("a")).run(given, from_first_stage=False)
    assert (done.termination_reason, done.terminal_reason) == ("Unknown stage: nowhere", "tool_failed_fatally")


def test_a_bound_stops_before_the_stage_that_it_forbids():
    config = flat(a={"has_llm": True, "model_role": "x", "default_next": "b"}, b={}) | {"max_llm_calls": 3}
    done = pipeline(config, Script(a=[counted({}, 3)])).run(envelope())
    assert (went(done), done.current_stage, done.llm_call_count) == (["a"], "b", 3)
    assert (done.terminated, done.terminal_reason) == (False, "max_llm_calls_exceeded")


def test_a_bound_that_is_met_by_the_last_stage_does_not_matter():
    assert pipeline(chain("a", "b", max_agent_hops=2)).run(envelope()).terminal_reason == "completed"


def test_a_bound_of_0_permits_nothing():
    done = pipeline(chain("a", max_agent_hops=0)).run(envelope())
    assert (went(done), done.current_stage, done.terminal_reason) == ([], "a", "max_agent_hops_exceeded")


# --- loops ---------------------------------------------------------------------------------------------------------


def test_going_back_counts_an_iteration_and_an_edge():
    done = pipeline(review(), Script(critic=[AGAIN, AGAIN, GOOD])).run(envelope())
    assert went(done) == ["draft", "critic"] * 3
    assert (done.iteration, done.edge_counts) == (2, {"draft->critic": 3, "critic->draft": 2})


def test_an_edge_limit_of_n_allows_n_passages():
    limits = [{"from": "critic", "to": "draft", "max_count": 2}]
    done = pipeline(review(edge_limits=limits), Script(critic=[AGAIN])).run(envelope())
    assert went(done) == ["draft", "critic"] * 3
    assert (done.terminal_reason, done.termination_reason) == (
        "max_loop_exceeded",
        "Edge limit exceeded: critic->draft",
    )
    assert (done.current_stage, done.iteration) == ("end", 3)


def test_an_edge_limit_of_0_is_none():
    limits = [{"from": "critic", "to": "draft", "max_count": 0}]
    done = pipeline(review(edge_limits=limits, max_iterations=3), Script(critic=[AGAIN])).run(envelope())
    assert (done.terminal_reason, done.iteration) == ("max_iterations_exceeded", 4)


def test_a_stage_that_leads_to_itself_is_stopped_by_hops_only():
    config = flat(a={"default_next": "a"}) | {"max_agent_hops": 5}
    done = pipeline(config).run(envelope())
    assert (went(done), done.edge_counts, done.iteration) == (["a"] * 5, {}, 0)
    assert done.terminal_reason == "max_agent_hops_exceeded"


def test_a_failure_that_is_handled_counts_as_an_edge():
    config = flat(draft={"default_next": "critic"}, critic={"error_next": "draft"})
    limits = [{"from": "critic", "to": "draft", "max_count": 1}]
    done = pipeline({**config, "edge_limits": limits}, Script(critic=[ValueError("no")])).run(envelope())
    assert (done.terminal_reason, done.edge_counts["critic->draft"]) == ("max_loop_exceeded", 2)


def test_a_new_run_counts_edges_from_0():
    limits = [{"from": "critic", "to": "draft", "max_count": 1}]
    runner = pipeline(review(edge_limits=limits), Script(critic=[AGAIN, GOOD, AGAIN, GOOD]))
    again = runner.run(runner.run(envelope()))
    assert (again.terminal_reason, again.edge_counts["critic->draft"]) == ("completed", 1)


# --- failures ------------------------------------------------------------------------------------------------------


def test_a_failure_ends_the_request_and_does_not_raise():
    done = pipeline(chain("a", "b"), Script(a=[ValueError("no such file")])).run(envelope())
    assert (done.terminated, done.termination_reason, done.current_stage) == (True, "no such file", "a")
    assert (done.terminal_reason, done.outputs) == ("tool_failed_fatally", {})
    (error,) = done.errors
    assert (error["agent"], error["error"], error["error_type"]) == ("a", "no such file", "ProcessingError")
    assert done.processing_history[0].status == "error"


def test_a_failure_of_a_model_is_told_apart_and_its_call_counts():
    done = pipeline(flat(a={"has_llm": True, "model_role": "x"}), Script(a=[ValueError("overloaded")])).run(envelope())
    assert (done.terminal_reason, done.llm_call_count) == ("llm_failed_fatally", 1)


def test_a_failure_may_lead_to_another_stage():
    config = flat(a={"error_next": "mend", "default_next": "end"}, mend={})
    done = pipeline(config, Script(a=[ValueError("no")])).run(envelope())
    assert (went(done), done.terminated) == (["a", "mend"], False)
    assert [record.status for record in done.processing_history] == ["error", "success"]


def test_a_required_field_that_is_missing_is_a_failure():
    config = flat(a={"required_output_fields": ["intent", "score"]})
    done = pipeline(config, Script(a=[{"intent": "x"}])).run(envelope())
    assert "score" in done.termination_reason
    assert "intent" not in done.termination_reason
    assert done.outputs == {}


def test_an_output_that_is_no_mapping_is_a_failure():
    done = pipeline(chain("a"), Script(a=[lambda _: [1]])).run(envelope())
    assert "must return a mapping, not [1]" in done.termination_reason


def test_an_output_that_a_log_cannot_hold_is_a_failure():
    done = pipeline(chain("a"), Script(a=[lambda _: {"lock": object()}])).run(envelope())
    assert "cannot store" in done.termination_reason


def test_a_service_that_exits_does_not_end_the_process():
    def leave(_):
        raise SystemExit(3)

    done = Pipeline(chain("a"), services={"a": leave}).run(envelope())
    assert "SystemExit" in done.termination_reason


# --- streams, saves, other ways to run -----------------------------------------------------------------------------


def streamed(runner, given, **settings):
    async def follow():
        return [(item.stage, item.output) async for item in runner.stream(given, **settings)]

    return asyncio.run(follow())


def test_a_stream_tells_what_each_stage_put_out_also_what_going_back_drops():
    config = review()
    config["agents"][0]["output_key"] = "text"
    runner = pipeline(config, Script(draft=[{"n": 1}, {"n": 2}], critic=[AGAIN, GOOD]))
    assert streamed(runner, envelope()) == [
        ("draft", {"n": 1}),
        ("critic", AGAIN),
        ("draft", {"n": 2}),
        ("critic", GOOD),
        ("__end__", {"terminated": False}),
    ]


def test_a_stream_of_a_long_loop_does_not_block():
    config = flat(a={"default_next": "a"}) | {"max_agent_hops": 40}
    assert len(streamed(pipeline(config), envelope())) == 41


def test_a_stream_tells_of_the_end_of_a_request_that_failed():
    runner = pipeline(chain("a", "b"), Script(b=[ValueError("no")]))
    assert streamed(runner, envelope()) == [("a", {}), ("__end__", {"terminated": True})]


def test_a_stream_that_nobody_reads_on_stops_what_only_lives_in_memory():
    gate = Gate()
    runner = Pipeline(chain("a", "b"), services={"a": lambda _: {}, "b": lambda _: gate.action().function() or {}})

    async def read_one():
        stream = runner.stream(envelope())
        await anext(stream)
        await stream.aclose()

    asyncio.run(read_one())
    gate.opened.set()
    ended = [runner.environment.run_of(record.execution_id) for record in runner.environment.store.records()]
    assert [execution.wait(20).status for execution in ended] == ["cancelled"]


def test_a_stream_whose_execution_is_deleted_meanwhile_names_it():
    runner = pipeline(chain("a", "b"))

    async def read_all():
        stream = runner.stream(envelope())
        await anext(stream)
        # The loop stands still until the log is gone, so that the stream meets the deletion before the end.
        (record,) = runner.environment.store.records()
        runner.environment.run_of(record.execution_id).wait(20)
        runner.environment.store.delete(record.execution_id)
        return [item async for item in stream]

    with pytest.raises(ExecutionNotFoundError):
        asyncio.run(read_all())


def test_state_is_saved_after_each_stage():
    saved = []
    pipeline(chain("a", "b"), save=saved.append).run(envelope())
    assert [state["current_stage"] for state in saved] == ["b", "end"]
    assert saved[-1]["terminal_reason"] == "completed"


def test_a_state_that_cannot_be_saved_is_logged_only(caplog):
    async def fail(_):
        raise OSError("disk full")

    with caplog.at_level(logging.ERROR, "divebook.pipeline"):
        done = pipeline(chain("a"), save=fail).run(envelope())
    assert done.terminal_reason == "completed"
    assert "could not be saved" in caplog.text


def test_a_run_can_be_awaited():
    assert asyncio.run(pipeline(chain("a")).arun(envelope())).terminal_reason == "completed"


def test_a_cancelled_run_leaves_the_envelope_unterminated():
    gate, execution_ids = Gate(), []
    environment = world()
    runner = pipeline(chain("a", "b"), environment=environment)
    runner.functions.services["b"] = lambda _: gate.action().function() or {}

    async def run_and_cancel():
        given = envelope()
        running = asyncio.create_task(runner.arun(given))
        await asyncio.to_thread(gate.reached.wait, 20)
        (record,) = environment.store.records()
        execution_ids.append(record.execution_id)
        environment.run_of(record.execution_id).cancel()
        with pytest.raises(ExecutionCancelledError):
            await running
        return given

    done = asyncio.run(run_and_cancel())
    gate.opened.set()
    assert (done.terminated, done.current_stage, list(done.outputs)) == (False, "b", ["a"])


def test_a_pipeline_is_an_execution_like_any_other():
    environment = Environment(store=MemoryStore())
    runner = pipeline(chain("a", "b"), environment=environment)
    execution = runner.start(envelope()).wait(20)
    assert [record.workflow_name for record in environment.store.records()] == ["p"]
    assert went(runner.envelope(execution.id)) == ["a", "b"]


def test_what_ran_in_memory_is_forgotten():
    runner = pipeline(chain("a"))
    runner.run(envelope())
    assert runner.environment.store.records() == []


def test_an_action_may_carry_an_envelope_through_a_pipeline_itself():
    inner = pipeline(chain("a"), Script(a=[asks("clarification", question="Which?")]))

    async def send():
        done = await inner.arun(envelope())
        return [done.get_final_response(), [item.stage async for item in inner.stream(envelope())]]

    environment = Environment(store=MemoryStore(), actions=[Action("send", send)])
    execution = environment.start(Workflow("outer", [Step("s", action="send", store="told")])).wait(20)
    assert execution.variables["told"] == ["Which?", ["a", "__end__"]]
    assert inner.environment.store.records() == []


def test_a_stage_may_be_visited_so_often_and_the_next_entry_ends_the_request():
    config = flat(a={"default_next": "a", "max_visits": 3})
    done = pipeline(config).run(envelope())
    assert (went(done), done.terminated, done.terminal_reason) == (["a"] * 3, True, "max_stage_visits_exceeded")


def test_an_unknown_mode_is_refused_before_anything_happens():
    given = envelope()
    with pytest.raises(SetupError, match="sequential or parallel, not 'fast'"):
        pipeline(chain("a")).run(given, mode="fast")
    assert given.current_stage == "start"
