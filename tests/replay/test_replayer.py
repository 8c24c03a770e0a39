"""A replayer stands at any event of a log: how things stood there, and the ways to where something happened."""

import random

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.errors import NotFoundError
from divebook.events import catalog
from divebook.replay.replayer import KEPT_EVERY, Changed
from divebook.steps.actions import Action
from tests.replay.worlds import PATIENCE, Witness, random_workflow, world

MANY = 300


@pytest.fixture(scope="module")
def finished():
    """Return an execution with a loop, a caught failure, a question and a model call."""
    steps = [
        Step("start", script="0", store="n"),
        Step("count", script="state.n + 1", store="n", next=[("count", "$(state.n < 3)"), ("tell", "$(state.n >= 3)")]),
        Step("tell", prompt="Say ${state.n}", store="said"),
        Step("ask", ask="Is it right?", store="right"),
        Step("fail", action="broken"),
    ]
    environment = world()
    execution = environment.start(Workflow("demo", steps)).wait(PATIENCE)
    execution.answer(execution.open_questions[0].id, "yes").wait(PATIENCE)
    assert execution.status == "failed"
    return execution


def test_the_state_at_every_position_of_many_random_executions_is_the_live_one():
    rng, environment, compared = random.Random(15), world(), 0
    for number in range(MANY):
        execution = environment.create(random_workflow(rng, number), {"n": rng.randint(0, 9)})
        witness = Witness(execution.id)
        witness.watch(execution)
        execution.start().wait(PATIENCE)
        while execution.open_questions:
            execution.answer(execution.open_questions[0].id, "some").wait(PATIENCE)
        replay = execution.replay()
        assert replay.total == len(witness.states) - 1
        for sequence in rng.sample(range(replay.total + 1), replay.total + 1):
            state = replay.seek(sequence).state
            assert state == witness.states[sequence]
            assert sequence not in witness.live or state == witness.live[sequence]
        assert execution.state == replay.seek(replay.total).state
        compared += len(witness.live)
    assert compared > 10 * MANY


def test_it_steps_forward_and_back_and_stays_at_the_ends(finished):
    replay = finished.replay()
    assert (replay.position, replay.event, replay.variables, replay.diff) == (0, None, {}, [])
    assert replay.step_back().position == 0
    forwards = [replay.step_forward().state for _ in range(replay.total)]
    assert replay.step_forward().position == replay.total
    assert [replay.step_back().state for _ in range(replay.total - 1)] == forwards[-2::-1]
    with pytest.raises(IndexError, match="no position 999"):
        replay.seek(999)
    assert replay.position == 1  # it stays where it was


@pytest.mark.parametrize(
    ("stop", "fits"),
    [
        ({"step": "count"}, lambda event: event.step == "count"),
        ({"path": "main"}, lambda event: event.path == "main"),
        ({"event": "step_completed"}, lambda event: event.event_type == "step_completed"),
        ({"error": True}, lambda event: event.event_type.endswith("_failed")),
        ({"question": True}, lambda event: event.event_type == "interrupt_raised"),
        ({"operation": "broken"}, lambda event: event.event_type == "operation_started" and event.step == "fail"),
        ({"model_call": True}, lambda event: event.event_type == "operation_started" and event.step == "tell"),
        ({"changed": "n"}, lambda event: event.event_type == "state_mutated" and event.step in ("start", "count")),
        (
            {"step": "tell", "event": "step_started"},
            lambda event: (event.step, event.event_type[:9]) == ("tell", "step_star"),
        ),
        ({"where": lambda event: event.sequence % 5 == 0}, lambda event: event.sequence % 5 == 0),
    ],
    ids=["step", "path", "event", "error", "question", "operation", "model call", "changed", "two", "where"],
)
def test_it_runs_to_what_is_looked_for_and_back(finished, stop, fits):
    wanted = [event.sequence for event in finished.history() if fits(event)]
    assert wanted
    replay = finished.replay()
    assert [replay.position for _ in wanted if replay.run_to(**stop)] == wanted
    assert replay.run_to(**stop) is None
    assert replay.position == wanted[-1]
    replay.seek(replay.total)
    before = [place for place in wanted if place <= replay.total - (replay.total in wanted)][::-1]
    assert [replay.position for _ in before if replay.run_back_to(**stop)] == before
    assert replay.run_back_to(**stop) is None


def test_it_goes_back_to_where_a_variable_changed_last(finished):
    replay = finished.replay()
    replay.seek(replay.total).run_back_to(changed="n")
    assert replay.diff == [Changed("variables.n", "changed", 2, 3)]
    replay.step_back()
    assert replay.variables == {"n": 2}
    replay.run_back_to(changed="n").run_back_to(changed="n")
    replay.run_back_to(changed="n")
    assert replay.diff == [Changed("variables.n", "added", None, 0)]
    assert replay.run_back_to(changed="n") is None


def test_where_to_stop_is_checked_before_it_looks(finished):
    replay = finished.replay()
    with pytest.raises(NotFoundError, match=r"step not found: cuont.*count"):
        replay.run_to(step="cuont")
    with pytest.raises(NotFoundError, match="event type not found: step_ended"):
        replay.run_back_to(event="step_ended")
    with pytest.raises(ValueError, match="no stop condition; give one of"):
        replay.run_to()


def test_each_position_has_paths_envelope_and_what_its_event_changed(finished):
    replay = finished.replay()
    replay.run_to(question=True)
    asked = replay.event.data.interrupt_id
    assert Changed(f"questions.{asked}", "added", None, "pending") in replay.diff
    assert replay.paths["main"].current_step == "ask"
    assert replay.envelope.interrupt_pending
    assert replay.envelope.llm_call_count == 1
    replay.run_back_to(step="tell", event="step_started")
    assert replay.envelope.llm_call_count == 0
    assert not replay.envelope.interrupt_pending
    replay.seek(replay.total)
    assert Changed("status", "changed", "running", "failed") in replay.diff


def test_messages_are_those_the_model_had_seen_by_then(finished):
    replay = finished.replay()
    replay.run_to(model_call=True)
    system, *said = replay.messages
    assert (system.role, [(one.role, one.text) for one in said]) == ("system", [("user", "Say 3")])
    replay.run_to(event="operation_completed")
    assert [(one.role, one.text) for one in replay.messages[1:]] == [("user", "Say 3"), ("assistant", "one two")]
    replay.seek(replay.total)
    assert replay.messages[-1].text == "one two"
    assert replay.seek(3).messages == []


def test_of_an_agent_with_tools_each_request_has_what_was_said_before(tool_turn):
    replay = tool_turn.replay()
    seen = []
    while replay.run_to(model_call=True):
        seen.append([said.role for said in replay.messages[1:]])
    assert seen == [["user"], ["user", "assistant", "tool"]]
    replay.seek(replay.total)
    assert [said.role for said in replay.messages[1:]] == ["user", "assistant", "tool", "assistant"]


@pytest.fixture
def tool_turn():
    """Return an execution whose agent calls a tool once."""

    def weather(city: str) -> str:
        """Tell the weather."""
        return f"rain in {city}"

    model = ScriptedModel([{"call": {"weather": {"city": "Rome"}}}, "It rains."])
    environment = Environment(store="memory:", agents=[Agent("guide", model=model, tools=[weather])])
    steps = [Step("first", script="1"), Step("ask", prompt="How is Rome?", agent="guide"), Step("last", script="2")]
    return environment.start(Workflow("w", steps)).wait(PATIENCE, check=True)


def test_a_long_log_in_a_file_is_read_by_need(tmp_path, monkeypatch):
    environment = world(str(tmp_path / "log.db"))
    times = KEPT_EVERY // 2
    steps = [
        Step("start", script="0", store="n"),
        Step(
            "c", script="state.n + 1", store="n", next=[("c", f"$(state.n < {times})"), ("e", f"$(state.n >= {times})")]
        ),
        Step("e", script="1"),
    ]
    execution = environment.start(Workflow("long", steps), durability="relaxed").wait(PATIENCE, check=True)
    replay = environment.run_of(execution.id).replay()
    replay.seek(replay.total)
    read, real = [], type(environment.store).read

    def counted(store, name, after=0, limit=None):
        read.append(limit)
        return real(store, name, after, limit)

    monkeypatch.setattr(type(environment.store), "read", counted)
    for _ in range(3 * KEPT_EVERY):
        replay.step_back()
    assert len(read) <= 4
    assert set(read) == {KEPT_EVERY}
    assert replay.variables["n"] < times


def test_a_live_run_is_replayed_as_far_as_it_is_written(monkeypatch):
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: None)  # other tests have a shell
    environment = Environment(store="memory:", actions=[Action("id", lambda x: x)])
    execution = environment.start(Workflow("w", [Step("a", ask="Which?", store="x"), Step("b", script="1")]))
    execution.wait(PATIENCE)
    replay = execution.replay()
    before = replay.total
    assert replay.seek(before).state.status == catalog.WAITING
    execution.answer(execution.open_questions[0].id, "this").wait(PATIENCE)
    assert replay.total > before
    assert replay.run_to(event="interrupt_resolved").position > before
    assert repr(replay) == f"<LogWalk of {execution.id} at {replay.position} of {replay.total}: interrupt_resolved a>"
