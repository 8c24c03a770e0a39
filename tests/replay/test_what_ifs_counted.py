"""What-ifs stand in every list with a badge, and no total has them; nothing takes them up by itself."""

import pytest

import divebook
from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.notebook.report import questions
from divebook.notebook.run_list import Runs, static_bundle
from divebook.projections.run_columns import run_table
from divebook.projections.summary import Overview
from divebook.report.model import Report
from divebook.report.text import text_of
from divebook.stores import MemoryStore
from divebook.widgets.runs_and_questions import EVERYTHING, InboxFeed, RunsFeed

PRICE = 0.25
ASKING = Workflow(
    "asking",
    [Step("ask", agent="poet", prompt="About ${inputs.what}", store="said")],
    inputs=["what"],
    outputs=["said"],
)


@pytest.fixture(scope="module")
def world():
    """Return an environment with two runs, a fork of one, and what-ifs that asked a model each."""
    poet = Agent("poet", model=ScriptedModel(["a line"], price=PRICE))
    with Environment(store=MemoryStore(), agents=[poet], workflows=[ASKING]) as made:
        for what in ("tides", "tea"):
            source = made.start("asking", {"what": what}).wait(20)
        made.run_of(source.id).fork(1).wait(20)
        yield made


def totals(world):
    """Return every total that there is over a store."""
    frames = divebook.frames(world.store)
    page = RunsFeed(world, {**EVERYTHING}).frame()
    return (
        frames.usage.cost.sum(),
        *(frames.costs(by).cost.sum() for by in ("agent", "model", "step")),
        frames.costs().input_tokens.sum(),
        page["week_cost"],
        sum(made.state.own_usage.cost for made in map(world.run_of, ids(world, "run", "fork"))),
    )


def ids(world, *origins):
    return [record.execution_id for origin in origins for record in world.store.records(origin=origin)]


def test_no_total_has_what_ifs_whatever_they_spend_and_every_list_names_them(world):
    source = ids(world, "run")[0]
    before = totals(world)
    assert before[0] == pytest.approx(3 * PRICE)
    found = world.run_of(source).what_if({"prompts": {"ask": "Of ${inputs.what}"}}, repeat=3)
    assert [(each.live, each.cost) for each in found] == [(1, PRICE)] * 3
    world.run_of(source).what_if({"model": "scripted"})
    world.run_of(found[0].run.id).what_if()
    assert totals(world) == before
    made = ids(world, "what-if")
    assert len(made) == 5
    badges = {line.id: line.badge for line in Overview(world.store).lines(world.store.records())}
    assert {badges[name] for name in made} == {"what-if"}
    assert sorted(badges.values()) == ["", "", "fork", *["what-if"] * 5]
    assert repr(Runs(world)).count("asking (what-if)") == Runs(world)._repr_html_().count("asking (what-if)") == 5
    lines = Overview(world.store).lines(world.store.records())
    assert text_of(Report(blocks=(run_table(lines, "shell"),))).count("asking (what-if)") == 5
    page = RunsFeed(world, {**EVERYTHING}).frame()
    assert {run["badge"] for run in page["runs"] if run["execution_id"] in made} == {"what-if"}
    rows = divebook.frames(world.store).executions
    assert set(rows.execution_id[rows.origin == "what-if"]) == set(made)


def test_a_what_if_whose_process_ended_is_taken_up_by_name_alone(world):
    found = world.run_of(ids(world, "run")[0]).what_if({"prompts": {"ask": "Of ${inputs.what}, again"}}).run
    whole, source = list(found.history()), found.history()[0]
    cut = next(e.sequence for e in whole if e.event_type == "execution_forked")
    with Environment(store=MemoryStore(), agents=world.definitions.agents.values(), workflows=[ASKING]) as other:
        origin = world.store.record(found.id).parent
        other.store.append(origin, list(world.store.read(origin)), 0)
        other.store.append(source.execution_id, whole[:cut], 0)
        assert [record.status for record in other.store.records(origin="what-if")] == ["running"]
        assert (other.queues.recoverable(), other.store.orphans()) == ([], [])
        assert other.run_of(found.id).resume().wait(20).status == "completed"


def test_a_question_of_a_what_if_says_in_every_inbox_whose_it_is():
    flow = Workflow("survey", [Step("ask", ask="Which?", store="which")])
    with Environment(store=MemoryStore(), workflows=[flow]) as world:
        source = world.start("survey").wait(20)
        made = world.run_of(source.id).what_if().run
        found = str(questions(world))
        assert f"(what-if {made.id}, step ask)" in found
        assert f"({source.id}, step ask)" in found
        assert f"(what-if {made.id}, step ask)" in static_bundle(world)["text/html"]
        feed = InboxFeed(world)
        feed.frame()
        assert {asked["execution_id"]: asked["workflow"] for asked in feed.shown} == {
            source.id: "survey",
            made.id: "survey (what-if)",
        }
