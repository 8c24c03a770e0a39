import asyncio
from decimal import Decimal
from threading import Barrier

import pytest

from divebook import Bounds
from divebook.pipeline import Pipeline
from tests.pipeline.test_sequential import streamed
from tests.pipeline.worlds import Script, asks, counted, envelope, flat, pipeline, went, world

DIAMOND = flat(a={}, b={"requires": ["a"]}, c={"requires": ["a"]}, d={"requires": ["b", "c"]})


def together(**stages):
    return {**flat(**stages), "default_run_mode": "parallel"}


def run(config, script=None, given=None, **settings):
    return pipeline(config, script, **settings).run(given or envelope(), mode="parallel")


def test_stages_run_once_what_they_require_is_done():
    script = Script()
    done = run(DIAMOND, script)
    assert (script.calls[0], set(script.calls[1:3]), script.calls[3]) == ("a", {"b", "c"}, "d")
    assert done.completed_stage_set == dict.fromkeys("abcd", True)
    assert (done.active_stages, done.failed_stages, done.parallel_mode) == ({}, {}, True)
    assert (done.current_stage, done.terminal_reason) == ("end", "completed")


def test_the_stages_of_a_batch_really_run_side_by_side():
    barrier = Barrier(3, timeout=20)
    services = dict.fromkeys("abc", lambda _: {"met": barrier.wait() >= 0})
    done = Pipeline(together(a={}, b={}, c={}), services=services).run(envelope())
    assert done.outputs == {name: {"met": True} for name in "abc"}


def test_each_stage_of_a_batch_sees_its_own_name_and_not_what_its_siblings_do():
    def look(given):
        seen = {"stage": given.current_stage, "outputs": list(given.outputs), "active": sorted(given.active_stages)}
        given.metadata["shared"] = {**given.metadata.get("shared", {}), given.current_stage: True}
        return seen

    done = Pipeline(DIAMOND, services=dict.fromkeys("abcd", look)).run(envelope(), mode="parallel")
    assert done.outputs["b"] == {"stage": "b", "outputs": ["a"], "active": ["b", "c"]}
    assert done.outputs["c"] == {"stage": "c", "outputs": ["a"], "active": ["b", "c"]}
    assert done.outputs["d"] == {"stage": "d", "outputs": ["a", "b", "c"], "active": ["d"]}
    assert done.metadata["shared"] == dict.fromkeys("abcd", True)


def test_counters_history_errors_and_outputs_of_branches_are_merged():
    model = {"has_llm": True, "model_role": "x"}
    script = Script(a=[counted({"n": 1}, 2)], b=[{"n": 2}], c=[ValueError("no")])
    done = run(flat(a=model, b=model, c={**model, "error_next": "d"}, d={"requires": ["a"]}), script)
    assert (done.llm_call_count, done.agent_hop_count) == (4, 4)
    assert went(done) == ["a", "b", "c", "d"]
    assert [error["agent"] for error in done.errors] == ["c"]
    assert done.outputs == {"a": {"n": 1}, "b": {"n": 2}, "d": {}}


def test_metadata_is_merged_in_depth_and_the_later_stage_wins():
    def note(given):
        name = given.current_stage
        given.metadata["notes"]["by"] = name
        given.metadata["notes"][name] = 1
        return {}

    given = envelope(metadata={"notes": {"old": 0}})
    done = Pipeline(together(a={}, b={}), services={"a": note, "b": note}).run(given)
    assert done.metadata == {"notes": {"old": 0, "by": "b", "a": 1, "b": 1}}


def test_outputs_go_into_the_slots_that_stages_name():
    assert run(flat(a={"output_key": "x"}), Script(a=[{"v": 1}])).outputs == {"x": {"v": 1}}


def test_routing_rules_have_no_effect():
    rules = [{"condition": "v", "value": 1, "target": "a"}]
    script = Script(b=[{"v": 1}])
    done = run(flat(a={}, b={"routing_rules": rules}), script)
    assert (sorted(script.calls), done.iteration, done.edge_counts) == (["a", "b"], 0, {})


def test_a_bound_is_checked_between_batches():
    done = run({**DIAMOND, "max_agent_hops": 3})
    assert (went(done), done.terminal_reason, done.terminated) == (["a", "b", "c"], "max_agent_hops_exceeded", False)
    assert (done.current_stage, done.active_stages) == ("d", {})


def test_a_failure_ends_the_request_and_keeps_what_its_siblings_did():
    done = run(flat(a={}, b={}, c={}, d={"requires": ["a"]}), Script(a=[{"n": 1}], b=[ValueError("no")]))
    assert (done.terminated, done.termination_reason, done.terminal_reason) == (True, "no", "tool_failed_fatally")
    assert (done.failed_stages, sorted(done.outputs)) == ({"b": "no"}, ["a", "c"])
    assert done.completed_stage_set == {"a": True, "c": True}
    assert done.current_stage != "end"


def test_a_failure_that_is_handled_is_a_failure_still():
    script = Script(a=[ValueError("no")])
    config = flat(a={"error_next": "mend"}, mend={"requires": ["a"]}, after={"after": ["a"]}, never={"requires": ["a"]})
    done = run(config, script)
    assert (done.terminated, done.failed_stages) == (False, {"a": "no"})
    assert sorted(done.outputs) == ["after", "mend"]
    assert (done.current_stage, done.terminal_reason) == ("end", "completed")


def test_a_question_of_one_branch_stops_after_the_batch():
    script = Script(b=[asks("confirmation", "q", message="ok?")])
    runner = pipeline(DIAMOND, script)
    waiting = runner.run(envelope(), mode="parallel")
    assert (waiting.interrupt.id, waiting.current_stage, sorted(waiting.outputs)) == ("q", "d", ["a", "b", "c"])
    done = runner.resume(waiting, {"approved": True})
    assert (sorted(script.calls), done.parallel_mode, done.terminal_reason) == (list("abcd"), True, "completed")


def test_questions_of_several_branches_are_asked_in_the_order_of_their_stages():
    config = flat(a={}, b={}, c={"requires": ["a", "b"]})
    script = Script(a=[asks("clarification", "qa")], b=[asks("clarification", "qb")])
    runner = pipeline(config, script)
    first = runner.run(envelope(), mode="parallel")
    assert (first.interrupt.id, [each.id for each in first.interrupt_queue]) == ("qa", ["qb"])
    second = runner.resume(first, {"text": "1"})
    assert (second.interrupt.id, second.interrupt_pending, sorted(script.calls)) == ("qb", True, ["a", "b"])
    assert runner.resume(second, {"text": "2"}).outputs.keys() == {"a", "b", "c"}


def test_several_questions_of_one_execution_are_answered_by_id():
    environment = world()
    script = Script(a=[asks("clarification", "qa", question="A?")], b=[asks("clarification", "qb", question="B?")])
    runner = pipeline(flat(a={}, b={}), script, environment=environment)
    execution = runner.start(envelope(), mode="parallel").wait(20)
    asked = []
    while execution.open_questions:
        (question,) = execution.open_questions
        asked.append(question.question)
        execution = environment.answer(question.id, "x").wait(20)
    assert (asked, execution.status) == (["A?", "B?"], "completed")


def test_a_denial_takes_back_the_questions_that_wait():
    script = Script(a=[asks("confirmation", "qa")], b=[asks("clarification", "qb")])
    runner = pipeline(flat(a={}, b={}), script)
    done = runner.resume(runner.run(envelope(), mode="parallel"), {"approved": False})
    assert (done.terminal_reason, done.interrupt_pending, done.interrupt_queue) == ("user_cancelled", False, [])


def test_the_stage_an_answer_leads_to_runs_again():
    script = Script(b=[asks("clarification", "q"), {"n": 2}])
    config = {**flat(a={}, b={}, c={"requires": ["b"]}), "clarification_resume_stage": "b"}
    runner = pipeline(config, script)
    done = runner.resume(runner.run(envelope(), mode="parallel"), {"text": "x"})
    assert (sorted(script.calls), done.outputs["b"]) == (["a", "b", "b", "c"], {"n": 2})


def test_a_new_run_forgets_what_an_earlier_one_completed():
    script = Script()
    runner = pipeline(flat(a={}, b={}), script)
    runner.run(runner.run(envelope(), mode="parallel"), mode="parallel")
    assert sorted(script.calls) == ["a", "a", "b", "b"]


def test_state_is_saved_after_each_batch():
    saved = []
    run(DIAMOND, save=saved.append)
    assert [sorted(state["completed_stage_set"]) for state in saved] == [["a"], ["a", "b", "c"], list("abcd")]


def test_a_stream_tells_of_every_stage_that_succeeded():
    runner = pipeline(DIAMOND, Script(b=[{"n": 1}]))
    items = streamed(runner, envelope(), mode="parallel")
    assert (items[0], items[-2:]) == (("a", {}), [("d", {}), ("__end__", {"terminated": False})])
    assert sorted(items[1:3], key=str) == [("b", {"n": 1}), ("c", {})]


def test_a_large_batch_is_one_batch():
    names = [f"s{number}" for number in range(60)]
    config = {**flat(**{name: {} for name in names}), "max_agent_hops": 60}
    done = run(config)
    assert (done.agent_hop_count, len(done.outputs)) == (60, 60)


def test_an_empty_pipeline_ends_at_once():
    done = run({"name": "p", "agents": []})
    assert (done.current_stage, done.terminal_reason) == ("end", "completed")


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_hops_of_many_runs_side_by_side_do_not_mix(limit):
    async def run_all():
        runner = pipeline({**DIAMOND, "max_agent_hops": limit})
        return await asyncio.gather(*(runner.arun(envelope(), mode="parallel") for _ in range(10)))

    hops = {done.agent_hop_count for done in asyncio.run(run_all())}
    assert hops == {{1: 1, 2: 3, 3: 3}[limit]}


def test_bounds_of_the_envelope_that_the_pipeline_does_not_set_are_kept():
    done = run(flat(a={}), given=envelope(bounds=Bounds(max_tokens=7)))
    assert done.bounds.max_tokens == 7


@pytest.mark.parametrize(
    ("on_exhausted", "bounds"),
    [
        ("stop", {"max_llm_calls": 49, "max_tokens": 4, "max_cost": "0.75", "on_exhausted": "fail"}),
        ("ask", {"max_tokens": 4, "max_cost": "0.75", "on_exhausted": "fail"}),
    ],
)
def test_the_execution_gets_what_is_left_of_the_budget_of_its_envelope(on_exhausted, bounds):
    given = envelope(bounds=Bounds(max_tokens=7, max_cost=Decimal("1.50")))
    given.llm_call_count, given.token_count, given.cost = 1, 3, Decimal("0.75")
    runner = pipeline({**flat(a={}), "on_exhausted": on_exhausted}, environment=world())
    present = runner.start(given).wait(20).state.bounds.to_dict()
    assert {name: limit for name, limit in present.items() if name not in ("max_depth", "max_descendants")} == bounds
    given.token_count, given.cost = 9, Decimal(2)
    assert runner.start(given).wait(20).state.bounds.max_tokens == 0


def test_an_execution_of_an_envelope_without_a_budget_has_none():
    runner = pipeline({**flat(a={}), "on_exhausted": "ask"}, environment=world())
    assert runner.start(envelope()).wait(20).state.bounds.on_exhausted == "ask"
