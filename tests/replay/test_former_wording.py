"""Logs with questions and errors about budgets in the words of older versions are equal, if their amounts are."""

import json

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.agents import budget
from divebook.engine import bounds as budgets
from divebook.engine.bounds import Exhausted, asked_about
from divebook.replay.sameness import _UNITS, in_present_wording
from divebook.stores import MemoryStore

MET = [
    Exhausted("max_llm_calls", 1, 1),
    Exhausted("max_iterations", 3, 3),
    Exhausted("max_agent_hops", 2, 2),
    Exhausted("max_repeats", 2, 2),
    Exhausted("max_seconds", 2.5, 3.125),
    Exhausted("edges", 2, 2, "a b -> it's"),
    Exhausted("max_tokens", 30, 30),
    Exhausted("max_tokens", 30, 10, reserved=0, needed=25),
    Exhausted("max_tokens", 30, 10, reserved=15, needed=15),
    Exhausted("max_cost", "1.2", "1.25"),
    Exhausted("max_cost", "1E+1", "1E+1"),
    Exhausted("max_cost", "1.2", "0.125", reserved="0", needed="0.5"),
    Exhausted("max_cost", "0.5", "0.1", reserved="0.3", needed="0.2"),
]


def formerly(met):
    """Return a text as it was worded before the text stated what is spent, reserved and needed in a sentence."""
    name = f"the bound of the edge {met.edge}" if met.edge else met.bound
    spent = f"{met.used} {_UNITS[met.bound]} spent"
    if met.needed is not None:
        spent += f", {met.reserved} reserved by calls under way, {met.needed} for the next one (MaxTokens lowers it)"
    return f"{name} is reached: {spent}, at most {met.limit} allowed"


def question_formerly(met, owner=""):
    return asked_about(met, owner)._replace(question=f"{formerly(met)}. Raise the bound and go on, or stop?")


@pytest.mark.parametrize("met", MET, ids=str)
def test_each_text_about_a_bound_is_put_in_the_present_wording(met):
    assert in_present_wording(formerly(met)) == str(met)
    assert in_present_wording(question_formerly(met).question) == asked_about(met).question
    nested = {"error": {"message": f"Step 's': {formerly(met)}", "n": 1}, "all": [formerly(met), None]}
    assert in_present_wording(nested) == {"error": {"message": f"Step 's': {met}", "n": 1}, "all": [str(met), None]}


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (
            "s; not rolled back: pay. Mend that, then resume it",
            "s; not rolled back: pay. Fix that, then resume the run",
        ),
        ("goes on as exec_1", "continues as exec_1"),
        (
            "max_llm_calls is reached: 3 used, at most 3 allowed. Raise the bound and go on, or stop?",
            "max_llm_calls reached: 3 of 3 used. Raise the bound and continue, or stop?",
        ),
        (
            "'s': the question expired (give it a Default, or more time)",
            "'s': the question expired (add a Default, or raise ExpiresIn)",
        ),
    ],
)
def test_former_texts_of_errors_and_questions_are_put_in_the_present_wording(former, present):
    assert in_present_wording({"error": former}) == {"error": present}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "max_llm_calls is reached: execution e of 'w' may have at most 3 executions below it, and has 3.",
        "max_llm_calls is reached: 1 tokens spent, at most 1 allowed",
        "max_cost is reached: some US dollars spent, at most few allowed",
        "the end is reached: 1 model calls spent, at most 1 allowed",
    ],
)
def test_other_texts_stay_as_they_are(text):
    assert in_present_wording(text) == text


def asking(bounds, of_agent=None):
    steps = [Step(name, prompt=name, agent="a", store=name) for name in ("one", "two")]
    agent = Agent("a", model=ScriptedModel(["yes"] * 3), bounds=of_agent)
    world = Environment(store=MemoryStore(), agents=[agent])
    world.add_workflow(Workflow("spends", steps, bounds=bounds))
    return world


def in_former_words(patch):
    """Let questions and errors have their former wording while a log is recorded."""
    patch.setattr(Exhausted, "__str__", formerly)
    patch.setattr(budgets, "asked_about", question_formerly)
    patch.setattr(
        budget.TurnBudget,
        "_error",
        lambda self, met: budget.BoundExceededError(
            f"agent {self.agent!r}: {formerly(met)}; to go on, raise its Bounds and resume", met.bound, met.reason
        ),
    )


CASES = {
    "asked, and raised": ({"max_llm_calls": 1}, None, 2),
    "asked, and stopped": ({"max_llm_calls": 1}, None, "stop"),
    "not asked": ({"max_llm_calls": 1, "on_exhausted": "fail"}, None, None),
    "an agent's": (None, {"max_llm_calls": 0, "on_exhausted": "fail"}, None),
}


@pytest.mark.parametrize("case", CASES)
def test_a_log_in_former_words_is_equal(case, monkeypatch):
    bounds, of_agent, answer = CASES[case]
    with asking(bounds, of_agent) as world:
        with monkeypatch.context() as patch:
            in_former_words(patch)
            done = world.start("spends").wait(20)
            if answer is not None:
                done = done.answer(done.open_questions[0].id, answer).wait(20)
        assert done.status == ("completed" if answer == 2 else "failed")
        told = json.dumps([event.data.to_data() for event in done.history()], default=str)
        assert "is reached: " in told
        assert "Budget reached" not in told
        found = world.run_of(done.id).verify()
        assert found.equal, str(found)


def test_a_log_in_former_words_with_another_amount_differs(monkeypatch):
    with asking({"max_llm_calls": 1, "on_exhausted": "fail"}) as world:
        with monkeypatch.context() as patch:
            patch.setattr(Exhausted, "__str__", lambda met: formerly(met._replace(limit=7)))
            done = world.start("spends").wait(20)
        found = world.run_of(done.id).verify()
        assert not found.equal
        assert found.divergence.event_type == "path_failed"


def test_texts_of_a_persons_own_are_compared_as_they_are():
    text = formerly(MET[0])
    with Environment(store=MemoryStore()) as world:
        done = world.start(Workflow("own", [Step("s", script=repr(text), store="r")])).wait(20)
        assert done.variables == {"r": text}
        assert world.run_of(done.id).verify().equal
