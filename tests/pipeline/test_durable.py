"""Requests that outlive their process: what was finished is not run again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from divebook import Agent, Environment, ScriptedModel
from divebook.pipeline import Pipeline
from divebook.stores import SqliteStore
from tests.agents.payable import OK, REFUSED, Payable
from tests.pipeline.worlds import Script, Stumbling, asks, chain, envelope, flat, pipeline, went, world
from tests.runtime.test_resuming import FixedChance, StoppedClock, cut
from tests.runtime.worlds import Gate

ROOT = Path(__file__).parent.parent.parent
LOOP = [{"condition": "again", "value": True, "target": "a"}]
LOOPING = {**flat(a={"default_next": "b"}, b={"routing_rules": LOOP, "default_next": "c"}, c={}), "max_iterations": 5}
DIAMOND = {**flat(a={}, b={"requires": ["a"]}, c={"requires": ["a"]}, d={"requires": ["b", "c"]})}


def looping():
    return Script(b=[{"again": True}, {"again": False}])


def started(config, script, mode="sequential"):
    environment = world()
    runner = pipeline(config, script, environment=environment)
    execution = runner.start(envelope(), mode=mode).wait(20)
    return environment.store, execution, runner.envelope(execution)


def finished(events):
    """Return how often each stage's function had its result in the log."""
    calls = [event.data for event in events if event.event_type == "operation_started"]
    ended = {event.data.operation_id for event in events if event.event_type == "operation_completed"}
    done = [
        data.parameters["stage"] for data in calls if data.operation_type == "stage_call" and data.operation_id in ended
    ]
    return {name: done.count(name) for name in done}


@pytest.mark.parametrize(("config", "mode"), [(LOOPING, "sequential"), (DIAMOND, "parallel")])
def test_killed_after_any_event_it_goes_on_where_it_was(config, mode):
    for stage in config["agents"]:
        stage["max_retries"] = 1  # a stage that may be repeated, so that nobody is asked
    store, execution, whole = started(config, looping(), mode)
    total = {name: went(whole).count(name) for name in went(whole)}
    for length in range(2, execution.state.last_sequence):
        shorter = cut(store, execution, length)
        done_before = finished(shorter.read(execution.id))
        script = Script(b=[{"again": True}, {"again": False}][done_before.get("b", 0) :] or [{}])
        environment = Environment(store=shorter, clock=StoppedClock(), chance=FixedChance(2))
        runner = pipeline(config, script, environment=environment)
        resumed = environment.run_of(execution.id).resume().wait(20)
        done = runner.envelope(resumed)
        assert {name: script.calls.count(name) + done_before.get(name, 0) for name in total} == total, length
        assert (done.outputs, sorted(went(done))) == (whole.outputs, sorted(went(whole)))
        assert (done.edge_counts, done.agent_hop_count) == (whole.edge_counts, whole.agent_hop_count)
        assert (done.terminal_reason, done.completed_stage_set) == ("completed", whole.completed_stage_set)


def test_what_attempts_that_failed_have_spent_is_counted_after_a_kill_as_well():
    config = flat(a={"has_llm": True, "model_role": "writer", "max_retries": 3, "default_next": "b"}, b={})
    replies = ["no idea", "neither", '{"ok": 1}']

    def agents(replies):
        return [Agent("writer", model=ScriptedModel(replies, usage={"output_tokens": 5}))]

    environment = world(agents=agents(replies))
    execution = Pipeline(config, environment=environment).start(envelope()).wait(20)
    for length in range(2, execution.state.last_sequence):
        shorter = cut(environment.store, execution, length)
        answered = sum(event.data.usage is not None for event in responses(shorter.read(execution.id)))
        left = agents(replies[answered:] or replies[-1:])
        later = Environment(store=shorter, clock=StoppedClock(), chance=FixedChance(2), agents=left)
        done = Pipeline(config, environment=later).envelope(later.run_of(execution.id).resume().wait(20))
        assert (done.llm_call_count, done.token_count, done.terminal_reason) == (3, 15, "completed"), length


def test_requests_that_were_tried_again_are_counted_after_a_kill_as_well():
    config = flat(a={"has_llm": True, "model_role": "writer"})
    environment = world(agents=[Agent("writer", model=Stumbling(['{"ok": 1}']))])
    execution = Pipeline(config, environment=environment).start(envelope()).wait(20)
    for length in range(2, execution.state.last_sequence):
        shorter = cut(environment.store, execution, length)
        left = Stumbling(['{"ok": 1}'])
        left.down = 2 - sum(event.event_type == "operation_failed" for event in shorter.read(execution.id))
        later = Environment(
            store=shorter, clock=StoppedClock(), chance=FixedChance(2), agents=[Agent("writer", model=left)]
        )
        done = Pipeline(config, environment=later).envelope(later.run_of(execution.id).resume().wait(20))
        assert (done.llm_call_count, done.outputs) == (3, {"a": {"ok": 1}}), length


@pytest.mark.parametrize("retries", [{}, {"max_retries": 3}], ids=["of the request", "of the stage"])
def test_what_requests_that_failed_have_consumed_is_counted_after_a_kill_as_well(retries):
    config = flat(a={"has_llm": True, "model_role": "writer", "default_next": "b", **retries}, b={})

    def writer(failed):
        return [Agent("writer", model=Payable([(REFUSED, 60)] * (2 - failed) + [(OK, 5)], '{"ok": 1}'))]

    environment = world(agents=writer(0))
    execution = Pipeline(config, environment=environment).start(envelope()).wait(20)
    assert execution.usage.input_tokens == 125
    for length in range(2, execution.state.last_sequence):
        shorter = cut(environment.store, execution, length)
        failed = sum(event.event_type == "operation_failed" for event in shorter.read(execution.id))
        later = Environment(store=shorter, clock=StoppedClock(), chance=FixedChance(2), agents=writer(failed))
        done = Pipeline(config, environment=later).envelope(later.run_of(execution.id).resume().wait(20))
        assert (done.llm_call_count, done.token_count, done.terminal_reason) == (3, 125, "completed"), length


def responses(events):
    return [event for event in events if event.event_type == "operation_completed" and event.data.usage]


def test_whether_a_service_that_was_running_took_effect_is_asked():
    store, execution, _ = started(chain("a"), Script())
    events = store.read(execution.id)
    begun = next(event for event in events if getattr(event.data, "operation_type", "") == "stage_call")
    shorter = cut(store, execution, begun.sequence)
    environment, script = Environment(store=shorter), Script()
    runner = pipeline(chain("a"), script, environment=environment)
    waiting = runner.envelope(environment.run_of(execution.id).resume().wait(20))
    assert (waiting.interrupt.kind, script.calls) == ("outcome_unknown", [])
    resumed = environment.answer(waiting.interrupt.id, "retry").wait(20)
    assert (script.calls, runner.envelope(resumed).terminal_reason) == (["a"], "completed")


def test_a_new_process_on_the_same_file_answers_and_goes_on(tmp_path):
    place = str(tmp_path / "log.db")
    with SqliteStore(place) as store:
        script = Script(a=[asks("clarification", "q", output={"n": 1}, question="Which?")])
        waiting = pipeline(chain("a", "b", "c"), script, environment=Environment(store=store)).run(envelope())
        assert (waiting.interrupt_pending, script.calls) == (True, ["a"])
    with SqliteStore(place) as store:
        environment, later = Environment(store=store), Script()
        runner = pipeline(chain("a", "b", "c"), later, environment=environment)
        ((execution_id, question),) = environment.inbox()
        execution = environment.answer(question.id, "src").wait(20)
        done = runner.envelope(execution)
        assert (execution.id, later.calls, done.envelope_id) == (execution_id, ["b", "c"], waiting.envelope_id)
        assert (done.interrupt.response.text, done.outputs["a"], done.agent_hop_count) == ("src", {"n": 1}, 3)


def test_an_envelope_that_waits_in_a_file_is_resumed_by_its_state(tmp_path):
    place = str(tmp_path / "log.db")
    with SqliteStore(place) as store:
        script = Script(a=[asks("confirmation", "q", message="Sure?")])
        state = pipeline(chain("a", "b"), script, environment=Environment(store=store)).run(envelope()).to_state_dict()
    with SqliteStore(place) as store:
        environment, later = Environment(store=store), Script()
        kept = type(envelope()).from_state_dict(state)
        done = pipeline(chain("a", "b"), later, environment=environment).resume(kept, {"approved": True})
        assert (later.calls, done.terminal_reason, len(environment.store.records())) == (["b"], "completed", 1)


def test_a_batch_that_was_broken_off_runs_only_what_is_left(tmp_path):
    place, gate = str(tmp_path / "log.db"), Gate()
    config = {**flat(a={}, b={"max_retries": 1}, c={"requires": ["a", "b"]}), "default_run_mode": "parallel"}
    with SqliteStore(place) as store:
        environment, script = Environment(store=store), Script()
        services = script.services(config) | {"b": lambda _: gate.action().function() or {}}
        execution = Pipeline(config, services=services, environment=environment).start(envelope())
        assert gate.reached.wait(20)
        while not finished(execution.history()).get("a"):
            os.sched_yield()
        execution.cancel().wait(20)
        gate.opened.set()
    with SqliteStore(place) as store:
        environment, later = Environment(store=store), Script()
        runner = pipeline(config, later, environment=environment)
        done = runner.envelope(environment.run_of(execution.id).resume().wait(20))
        assert (later.calls, done.outputs, done.agent_hop_count) == (["b", "c"], {"a": {}, "b": {}, "c": {}}, 3)


PROGRAM = """
import os, sys
from divebook import Environment
from divebook.pipeline import Pipeline, create_envelope
from tests.pipeline.worlds import chain

def note(stage):
    def work(envelope):
        with open(sys.argv[2], "a") as calls:
            calls.write(stage)
        if stage == "b":
            os._exit(9)
        return {"by": stage}
    return work

config = chain("a", "b", "c")
for stage in config["agents"]:
    stage["max_retries"] = 1
pipeline = Pipeline(config, services={name: note(name) for name in "abc"}, environment=Environment(store=sys.argv[1]))
pipeline.run(create_envelope("Do it", "ann", "s1"))
"""


def test_a_process_that_dies_in_a_stage_leaves_the_rest_to_another(tmp_path):
    place, calls = str(tmp_path / "log.db"), tmp_path / "calls"
    died = subprocess.run([sys.executable, "-c", PROGRAM, place, str(calls)], cwd=ROOT, check=False, timeout=60)
    assert (died.returncode, calls.read_text()) == (9, "ab")
    config = chain("a", "b", "c")
    for stage in config["agents"]:
        stage["max_retries"] = 1
    with SqliteStore(place) as store:
        environment, script = Environment(store=store), Script()
        runner = pipeline(config, script, environment=environment)
        (orphan,) = environment.queues.recoverable()
        done = runner.envelope(environment.run_of(orphan.execution_id).resume().wait(20))
    assert (script.calls, done.outputs["a"], went(done)) == (["b", "c"], {"by": "a"}, ["a", "b", "c"])


def test_a_pipeline_of_agents_from_question_to_answer():
    """Two models, a loop, a question and an answer from elsewhere, end to end."""
    plans = ScriptedModel(['{"text": "first"}', '```json\n{"text": "second"}\n```'])
    verdicts = ScriptedModel(['{"verdict": "loop_back"}', 'I say {"verdict": "proceed", "message": "Publish?"}'])
    rules = [
        {"condition": "verdict", "value": "loop_back", "target": "plan"},
        {"condition": "verdict", "value": "proceed", "target": "confirmation"},
    ]
    model = {"has_llm": True}
    config = flat(
        plan={**model, "model_role": "planner", "default_next": "critic"},
        critic={**model, "model_role": "judge", "routing_rules": rules, "required_output_fields": ["verdict"]},
        publish={"has_tools": False},
    )
    config["confirmation_resume_stage"] = "publish"
    agents = [Agent("planner", model=plans), Agent("judge", model=verdicts)]
    environment = world(agents=agents)
    published = []
    runner = Pipeline(
        config, services={"publish": lambda e: published.append(e.outputs["plan"]) or {}}, environment=environment
    )
    waiting = runner.run(envelope())
    assert (waiting.prior_plans, waiting.iteration, waiting.llm_call_count) == ([{"text": "first"}], 1, 4)
    assert (waiting.interrupt.message, published) == ("Publish?", [])
    execution = environment.answer(environment.inbox()[0][1].id, "yes").wait(20)
    done = runner.envelope(execution)
    assert (published, done.terminal_reason, plans.calls, verdicts.calls) == ([{"text": "second"}], "completed", 2, 2)
    assert execution.usage.requests == 4
