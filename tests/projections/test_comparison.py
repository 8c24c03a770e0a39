"""Runs laid side by side: equal ones, one changed call and what follows from it, shifted lists, agents, questions."""

import hashlib
import random
import re
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest

from divebook import Agent, Each, Edge, Environment, ScriptedModel, Step, Workflow, tool
from divebook.definitions import step, workflow
from divebook.errors import ExecutionNotFoundError, SetupError, UnrelatedError
from divebook.projections.comparison import Comparison
from divebook.report.model import MINUS
from divebook.runtime.run import compared
from divebook.steps import Action
from divebook.stores import MemoryStore

PAIRS = 60


class World:
    """A workflow of calls that each depend on some before, and what of each call a run has changed."""

    def __init__(self, seed):
        chance = random.Random(seed)
        self.steps, self.of, self.items = [], {}, {}
        for number in range(chance.randint(3, 9)):
            name = f"s{number}"
            self.of[name] = chance.sample(sorted(self.of), chance.randint(0, min(2, len(self.of))))
            self.items[name] = chance.choice([0, 0, 3])
            given = {"name": name}
            given |= {f"of_{place}": f"$(state.v_{other})" for place, other in enumerate(self.of[name])}
            each = None
            if self.items[name]:
                each, given["item"] = Each([10, 20, 30], as_="item", parallel=2), "$(state.item)"
            self.steps.append(Step(name, action="mix", parameters=given, each=each, store=f"v_{name}"))
        self.changed = chance.choice(self.calls)

    @property
    def calls(self):
        return [(name, item) for name, count in self.items.items() for item in ([10, 20, 30] if count else [None])]

    def followers(self):
        """Return the calls that a change of that one's result reaches, without itself."""
        reached = {self.changed[0]}
        for name, others in self.of.items():
            if reached & {*others}:
                reached.add(name)
        return {call for call in self.calls if call[0] in reached - {self.changed[0]}}

    def run(self, *, is_changed=False):
        def mix(name, of_0=None, of_1=None, item=None):
            mark = " changed" if is_changed and (name, item) == self.changed else ""
            return hashlib.sha256(f"{name} {of_0} {of_1} {item}{mark}".encode()).hexdigest()[:12]

        environment = Environment(store="memory:", actions=[Action("mix", mix)])
        return environment.start(Workflow("mixed", self.steps)).wait(check=True)


def call_of(row):
    given = row.present.asked["params"]
    return given["name"], given.get("item")


def of_kind(found, kind="operation"):
    return [row for row in found.pairs[0].differences if row.present.kind == kind]


@pytest.mark.parametrize("seed", range(PAIRS))
def test_equal_runs_are_all_the_same_and_one_changed_call_is_met_with_what_follows_from_it(seed):
    world = World(seed)
    one, same, other = world.run(), world.run(), world.run(is_changed=True)
    assert one.compare(same).is_same
    assert {row.difference for row in one.compare(same).pairs[0].rows} == {"same"}
    found = one.compare(other)
    assert {call_of(row) for row in of_kind(found)} == {world.changed} | world.followers()
    assert [row.facet for row in of_kind(found) if call_of(row) == world.changed] == ["answered"]
    assert {row.facet for row in of_kind(found) if call_of(row) != world.changed} <= {"asked"}
    first = found.first
    assert (call_of(first.row), first.step) == (world.changed, world.changed[0])
    assert one.history()[first.event - 1].data.result == first.row.a.answered
    assert other.history()[first.other_event - 1].data.result == first.row.b.answered
    assert {row.present.name for row in of_kind(found, "variable")} == {
        f"v_{name}" for name, _ in {world.changed} | world.followers()
    }


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (["a", "b", "c"], ["b", "c", "d"], ["removed", "same", "same", "added"]),
        (["a", "b", "c"], ["a", "x", "c"], ["same", "changed", "same"]),
        (["a", "a", "b"], ["a", "b"], ["same", "removed", "same"]),
        ({"one": 1, "two": 2}, {"two": 2, "three": 3}, ["removed", "same", "added"]),
        ([1, True], [1.0, True], ["changed", "same"]),
    ],
)
def test_items_are_matched_by_index_and_by_key_or_value_where_the_lists_differ(before, after, said):
    flow = Workflow("w", [Step("s", script="1", each=Each("$(inputs.rows)", as_="row"))], inputs=["rows"])
    environment = Environment(store=MemoryStore())
    one, other = (environment.start(flow, {"rows": rows}).wait(check=True) for rows in (before, after))
    rows = compared(environment, one, other).pairs[0].rows
    assert [row.difference for row in rows if row.present.kind == "item"] == said


def test_a_call_that_comes_in_between_shifts_no_other():
    numbers = iter([[1, 2, 3], [1, 9, 2, 3]])

    @step
    def look(n):
        return n * 10

    async def flow(ctx):
        return [await look(n) for n in next(numbers)]

    environment = Environment(store="memory:")
    made = workflow(flow)
    one, other = (environment.start(made).wait(check=True) for _ in range(2))
    rows = [row for row in compared(environment, one, other).pairs[0].rows if row.present.kind == "operation"]
    assert [(row.difference, row.present.asked["arguments"]["n"]) for row in rows] == [
        ("same", 1),
        ("added", 9),
        ("same", 2),
        ("same", 3),
    ]


def weather(city: str) -> str:
    """Say how the weather is."""
    return f"sunny in {city}"


def asked_agent(*replies, prompt="How is it?"):
    agent = Agent("helper", model=ScriptedModel(list(replies)), tools=[tool(weather)])
    environment = Environment(store="memory:", agents=[agent])
    return environment.start(Workflow("ask", [Step("h", prompt=prompt, agent="helper", store="w")])).wait(check=True)


def test_the_requests_and_calls_of_a_turn_are_compared_inside_it():
    one = asked_agent({"call": {"weather": {"city": "Rome"}}}, "It is sunny.")
    assert one.compare(asked_agent({"call": {"weather": {"city": "Rome"}}}, "It is sunny.")).is_same
    found = one.compare(asked_agent({"call": {"weather": {"city": "Oslo"}}}, "It is sunny."))
    assert [(row.present.span.type, row.facet) for row in of_kind(found)] == [
        ("agent_response", "answered"),
        ("tool_call", "asked"),
    ]
    assert "[-Rome-]{+Oslo+}" in found.first.text
    shorter = one.compare(asked_agent("It is sunny."))
    assert ("tool_call", "removed") in {(row.present.span.type, row.difference) for row in of_kind(shorter)}


def test_what_an_answer_has_beside_the_others_is_told():
    found = asked_agent("fine").compare(asked_agent({"call": {"weather": {"city": "Oslo"}}}, "fine"))
    assert found.first.row.present.span.type == "agent_response"
    assert "[-" in found.first.text
    assert "nothing" in found._repr_html_()


def test_a_changed_prompt_is_the_first_difference_and_told_word_by_word():
    found = asked_agent("fine").compare(asked_agent("well", prompt="How was it?"))
    assert found.first.text.endswith("How [-is-]{+was+} it?")
    assert found.first.step == "h"
    assert ("w", "answered") in {(row.present.name, row.facet) for row in of_kind(found, "variable")}


def test_questions_and_their_answers_and_what_follows_them_are_compared():
    steps = [
        Step(
            "q",
            ask="Which?",
            store="it",
            edges=[Edge("yes", condition="state.it == 'a'"), Edge("no", condition="state.it != 'a'")],
        ),
        Step("yes", script="1", edges=[]),
        Step("no", script="2", edges=[]),
    ]
    environment = Environment(store="memory:")
    runs = []
    for answer in ("a", "b"):
        run = environment.start(Workflow("w", steps)).wait()
        environment.answer(run.open_questions[0].id, answer, run.id)
        runs.append(run.wait(check=True))
    found = compared(environment, *runs)
    assert (found.first.row.present.kind, found.first.row.facet) == ("question", "answered")
    told = {
        (row.present.kind, row.present.step or row.present.name, row.difference) for row in found.pairs[0].differences
    }
    assert told >= {("condition", "q", "changed"), ("step", "yes", "removed"), ("step", "no", "added")}
    assert compared(environment, runs[0], runs[0]).is_same


def test_a_fork_differs_by_its_change_and_what_follows_and_a_question_open_in_both_is_one():
    steps = [Step("add", script="inputs.n + 1", store="x"), Step("q", ask="Is it ${state.x}?")]
    environment = Environment(store="memory:")
    source = environment.start(Workflow("w", steps, inputs=["n"]), {"n": 1}).wait()
    unchanged, with_x, with_n = (
        environment.run_of(source.id).fork(at, change).wait()
        for at, change in ((None, None), (None, {"variables": {"x": 5}}), (1, {"inputs": {"n": 4}}))
    )
    assert compared(environment, source, unchanged).is_same
    found = compared(environment, source, with_x)
    assert (found.first.text, found.pairs[0].b.status) == ("variable x: [-2-]{+5+}", "waiting")
    assert [row.place for row in found.pairs[0].differences] == ["q / question", "variable x"]
    assert compared(environment, source, with_n).first.text == "input n: [-1-]{+4+}"


def test_an_end_that_differs_is_met_where_the_call_failed():
    tries = count()

    def pay():
        if next(tries):
            raise ValueError("no funds")
        return "paid"

    environment = Environment(store="memory:", actions=[Action("pay", pay)])
    one, other = (environment.start(Workflow("w", [Step("s", action="pay")])).wait() for _ in range(2))
    found = compared(environment, one, other)
    assert found.first.row.present.kind == "operation"
    assert [row.difference for row in of_kind(found, "end")] == ["changed"]
    assert "no funds" in repr(found)
    assert "no funds" in found._repr_html_()


def test_the_clock_is_no_difference_by_itself():
    async def flow(ctx):
        await ctx.now()
        return 1

    made = workflow(flow)
    environment = Environment(store="memory:")
    assert compared(environment, *(environment.start(made).wait(check=True) for _ in range(2))).is_same


def test_unrelated_runs_are_refused_with_both_workflows_and_what_to_do():
    environment = Environment(store="memory:")
    runs = [environment.start(Workflow(name, [Step("s", script="1")])).wait() for name in ("one", "two")]
    with pytest.raises(UnrelatedError, match=r"'one'.*'two'.*divebook\.runs\(workflow='one'\)"):
        compared(environment, *runs)
    with pytest.raises(SetupError, match="two runs or more"):
        compared(environment, runs[0])
    with pytest.raises(ExecutionNotFoundError):
        compared(environment, runs[0], "exec_none")


def test_of_several_runs_each_is_compared_with_the_first_and_ids_do():
    environment = Environment(store="memory:")
    flow = Workflow("w", [Step("s", script="inputs.n", store="v")], inputs=["n"])
    one, two, three = (environment.start(flow, {"n": n}).wait(check=True) for n in (1, 1, 2))
    found = one.compare(two.id, three)
    assert [pair.first is None for pair in found.pairs] == [True, False]
    assert found.first.row.present.kind == "input"
    frame = found.frame()
    assert set(frame["run_b"]) == {two.id, three.id}
    assert frame[frame["difference"] == "changed"]["answered_b"].tolist()[0] == 2


def test_what_is_shown_has_no_secrets_and_no_markup_of_others():
    environment = Environment(store="memory:")
    flow = Workflow("w", [Step("s", script="inputs.text", store="v")], inputs=["text", "api_key"])
    given = [{"text": f"<b>{word}</b> s3cr3t-of-mine", "api_key": "s3cr3t-of-mine"} for word in ("one", "two")]
    found = compared(environment, *(environment.start(flow, inputs).wait(check=True) for inputs in given))
    for shown in (repr(found), found._repr_html_(), found.first.text):
        assert "s3cr3t" not in shown
    assert "<b>" not in found._repr_html_()
    assert "&lt;b&gt;" in found._repr_html_()


def test_a_page_folds_the_same_and_opens_the_first_difference():
    world = World(3)
    page = world.run().compare(world.run(is_changed=True))._repr_html_()
    assert page.index("difference") < page.index("First difference") < page.index("<thead>")
    assert "the same</td>" in page
    assert "<del" in page
    assert "<ins" in page
    assert isinstance(world.run().compare(world.run()), Comparison)


def test_a_page_can_lead_from_difference_to_difference():
    world = World(3)
    found = world.run().compare(world.run(is_changed=True))
    (told,) = found._mime_data().values()
    assert {"text/plain", "text/html", *found._mime_data()} == {*found._repr_mimebundle_()}
    assert told["runs"] == [found.pairs[0].a.id, found.pairs[0].b.id]
    marked = re.findall(r'class="divebook-difference divebook-(\w+)"', found._repr_html_())
    assert marked
    assert {*marked} <= {"changed", "added", "removed"}
    assert 'class="divebook-same"' in found._repr_html_()
    within = len(found.pairs[0].differences) - len(marked)
    assert f"not shown: {within} difference" in found._repr_html_()
    assert "<script" not in found._repr_html_()  # the page's extension does it


@pytest.fixture(scope="module")
def asked():
    """Return an environment, and a run of it that has asked a model twice at half a dollar each."""
    poet = Agent("poet", model=ScriptedModel(["one", "two"], price=0.5, usage={"input_tokens": 3}))
    steps = [Step("a", agent="poet", prompt="A", store="a"), Step("k", script="1", store="k")]
    steps += [Step("b", agent="poet", prompt="B ${state.k}", store="b")]
    steps += [Step("p", action="pay", parameters={"k": "$(state.k)"}, store="p")]
    with Environment(store=MemoryStore(), agents=[poet], actions=[Action("pay", lambda k=0: k)]) as environment:
        yield environment, environment.start(Workflow("asked", steps)).wait(20, check=True)


def test_what_a_what_if_takes_from_the_log_counts_as_it_did_there_and_tells_nothing_of_time(asked):
    environment, source = asked
    whole = environment.run_of(source.id).what_if(at=1).comparison
    assert whole.pairs[0].totals[0].cost == whole.pairs[0].totals[1].cost == 1_000_000_000
    assert whole.pairs[0].totals[1].duration is None
    assert "tokens 6 → 6; cost $1.00 → $1.00; time " in whole.summary.replace(",", "")
    assert whole.summary.endswith("→ answered from the log")
    assert "%" not in whole._repr_html_()
    turned = compared(environment, environment.run_of(whole.pairs[0].b.id), source)
    assert turned.pairs[0].totals == whole.pairs[0].totals[::-1]
    alone = compared(environment, environment.run_of(source.id).what_if(at=1).run.id, whole.pairs[0].b.id)
    assert "cost" not in alone.summary, "neither has spent anything, and what they were answered from is not here"


def test_the_lane_of_a_what_if_says_which_calls_were_answered_how(asked):
    environment, source = asked
    found = environment.run_of(source.id).what_if({"variables": {"k": 2}}).comparison
    ways = {row.place: row.b.way for row in found.pairs[0].rows if row.b is not None and row.b.way}
    assert ways == {"b / model call poet": "live", "p / action pay": "blocked"}
    page = found._repr_html_()
    assert "asked (what-if of A)</strong> ·" in page
    assert "action pay failed" in page
    assert ">null<" not in page.lower()
    assert [page.count(f">{way}</span>") for way in ("live", "blocked", "served")] == [1, 1, 0]
    first = environment.run_of(source.id).what_if(at=1).comparison.pairs[0]
    assert [row.b.way for row in first.rows if row.place == "a / model call poet"] == ["served"]


def test_the_time_between_a_run_and_its_fork_is_not_that_of_the_fork(asked):
    environment, source = asked
    fork = environment.run_of(source.id).fork(5).wait(20)
    later = [
        replace(event, recorded_at=event.recorded_at + 3_600_000_000 * (event.sequence > 5)) for event in fork.history()
    ]
    assert Comparison([source.history(), later]).pairs[0].totals[1].duration < timedelta(minutes=1)


TICKETS = [{"text": f"ticket {number}", "label": "ab"[number % 2]} for number in range(40)]


@pytest.fixture(scope="module")
def tickets():
    """Return two runs that label the same 40 tickets with other prompts. The first is right for 30 of them, the second
    for 36 and at 60 % of the cost.
    """
    wrong = [set(range(0, 40, 4)), {0, 1, 2, 3}]
    runs = []
    store = MemoryStore()
    for prompt, wrong_ones, price in (("Classify: ", wrong[0], 0.001), ("One word: ", wrong[1], 0.0006)):
        labels = [
            {"a": "B", "b": "a"}[ticket["label"]] if number in wrong_ones else ticket["label"].upper() + ". "
            for number, ticket in enumerate(TICKETS)
        ]
        agent = Agent("helper", model=ScriptedModel(labels, price=price, usage={"input_tokens": 3}))
        each = Each("$(inputs.tickets)", as_="ticket", parallel=1)
        steps = [Step("classify", agent="helper", prompt=f"{prompt}${{ticket.text}}", each=each, store="labels")]
        with Environment(store=store, agents=[agent]) as environment:
            runs.append(
                environment.start(Workflow("w", steps, inputs=["tickets"]), {"tickets": TICKETS}).wait(check=True)
            )
    return runs


def test_which_of_two_prompts_is_better_is_said_first_and_each_result_before_its_prompt(tickets):
    one, other = tickets
    comparison = one.compare(other)
    wrong = {0, 4, 8, 12, 16, 20, 24, 28, 32, 36} ^ {0, 1, 2, 3}
    assert '.judge("label")' in str(comparison), "the field with the right results is found"
    judged = comparison.judge("label")
    better, worse = len(wrong) - 3, 3
    outcome = str(judged).splitlines()[2]
    assert outcome.startswith("36 of 40 results of classify correct in B, 30 in A; ")
    assert f"{better} better, {worse} worse; $0.0160 less ({MINUS}40%)" in outcome
    assert (
        comparison.judge(lambda ticket, result: ticket["label"] == result.strip(". ").lower()).pairs[0].verdicts
        == judged.pairs[0].verdicts
    )
    page = judged._repr_html_()
    rows = re.findall(r'<tr class="divebook-difference ([\w -]+)"', page)
    assert (sum("better" in row for row in rows), sum("worse" in row for row in rows)) == (better, worse)
    assert sum("divebook-request" in row for row in rows) == 40 - len(wrong)
    # Each row that is shown has the answer of both runs. The changed prompt is shown in full once, and in the groups.
    table = page.split("<thead>")[1]
    shown = [row for row in table.split("<tr")[1:] if "divebook-changed" in row.split(">")[0]]
    assert len(shown) == len(wrong)
    assert all("answer: " in row and "prompt: as above" in row for row in shown)
    assert f"{len(shown)} differences" in page, "the summary counts the rows of the table"
    assert "costlier" not in page
    assert other.compare(one).judge("label")._repr_html_().count("costlier") == 40


def test_time_in_which_a_run_waited_or_was_stopped_is_no_work(asked):
    environment, _source = asked
    steps = [Step("q", ask="Go on?"), Step("s", script="1")]
    run = environment.start(Workflow("waits", steps)).wait()
    environment.answer(run.open_questions[0].id, "yes", run.id)
    events = list(run.wait(check=True).history())
    raised = next(event.sequence for event in events if type(event.data).__name__ == "InterruptRaised")
    late = [
        replace(event, recorded_at=event.recorded_at + 3_600_000_000 * (event.sequence > raised)) for event in events
    ]
    comparison = Comparison([events, late])
    assert comparison.is_same
    assert comparison.pairs[0].totals[1].duration < timedelta(minutes=1)
    assert all((row.b.duration_us or 0) < 60_000_000 for row in comparison.pairs[0].rows)
    assert "1 h" not in str(comparison)


def test_blocked_calls_can_get_a_result_and_ids_are_not_in_the_head(asked):
    environment, source = asked
    what_if = environment.run_of(source.id).what_if({"variables": {"k": 2}})
    head = str(what_if).split("A asked")[0]
    assert "changed: variables (k), from event" in head
    assert ".give(RESULT)" in head
    assert "exec_" not in head
    completed = what_if.give(7)
    assert (completed.run.status, completed.blocked, completed.run.variables["p"]) == ("completed", 0, 7)
    with pytest.raises(SetupError, match="one result for each blocked call, so it needs 1 to 1 results, not 2"):
        what_if.give(1, 2)
