"""Runs that are written as pages and notebooks, and what a file with one part changed is."""

import random

from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.steps.actions import Action
from divebook.stores import MemoryStore

WORDS = (
    *("the", "run", "went", "wrong", "because", "a", "step", "read", "what", "another", "path", "had", "not"),
    *("stored", "yet", "and", "nobody", "looked"),
)


def turn(text: str) -> str:
    """Return a text backwards."""
    return text[::-1]


TURN = Action("Share.Turn", turn, idempotent=True)


def prose(rng, size):
    """Return words that repeat, with numbers that do not."""
    found = " ".join(
        rng.choice(WORDS) + rng.choice(("", "s", "ing", f"{rng.randrange(999)}")) for _ in range(size // 4)
    )
    return found[:size]


def many(events, size):
    """Return a run of so many events, four of which hold a text of so many bytes for each item."""
    rng = random.Random(1)
    texts = [prose(rng, size) for _ in range(events // 4)]
    each = Each(texts, as_="item", parallel=8)
    return ended(Workflow("many", [Step("all", action="Share.Turn", parameters={"text": "${item}"}, each=each)]))


def ended(workflow, inputs=None, **settings):
    """Run a workflow in an environment of its own."""
    return (
        Environment(store=MemoryStore(), workflows=[workflow], actions=[TURN], **settings)
        .start(workflow, inputs)
        .wait(200)
    )


def asking():
    """Return a run with items, a question and its answer, a model's request, a failure that was caught, and outputs."""
    steps = [
        Step("count", each=Each([1, 2, 3], as_="item"), script="item * 2", store="doubled"),
        Step("say", prompt="Say ${state.doubled}", agent="poet", store="said"),
        Step("ask", ask="Is it <b>well</b> said? \x1b[31m\u202e", store="answer"),
        Step("turn", action="Share.Turn", parameters={"text": "${state.said}"}, store="turned"),
    ]
    model = ScriptedModel(["first line\nsecond line </script><!-- " + "x" * 600], usage={"input_tokens": 3})
    workflow = Workflow("told", steps, inputs=["topic"], outputs=["turned"])
    world = Environment(store=MemoryStore(), workflows=[workflow], actions=[TURN], agents=[Agent("poet", model=model)])
    run = world.start("told", {"topic": "a sea"}).wait(60)
    (asked,) = run.open_questions
    return world.answer(asked.id, "yes, very much so").wait(60)


def failing():
    """Return a run that failed."""
    return ended(Workflow("failing", [Step("break", script="{}['answer']")]))
