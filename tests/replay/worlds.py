"""Random workflows of all kinds of steps, and their live states as events were recorded."""

import random
from collections.abc import Sequence

from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.definitions.step import Catch, Retry
from divebook.engine.evolve import evolve
from divebook.engine.state import ExecutionState
from divebook.events import Event
from divebook.steps.actions import Action

PATIENCE = 20
FAILING = 0.1
"""How many of them fail at the end."""


def random_workflow(rng: random.Random, number: int) -> Workflow:
    """Return steps in a row, some with branches, items, failures and questions; later ones read what earlier stored."""
    steps, known = [Step("start", script="inputs.n + 1", store="v0")], ["v0"]
    for place in range(1, rng.randint(3, 7)):
        steps += rng.choice(BLOCKS)(rng, f"s{place}", f"v{place}", f"state.{rng.choice(known)}")
        known.append(f"v{place}")
    if rng.random() < FAILING:
        steps.append(Step("fails", action="broken"))
    return Workflow(f"random{number}", steps, inputs=["n"])


def _action(_rng, name, var, ref):
    return [Step(name, action="work", parameters={"x": f"$({ref})"}, store=var)]


def _script(_rng, name, var, ref):
    return [Step(name, script=f"{ref} * 2 + 1", store=var)]


def _each(rng, name, var, ref):
    loop = Each(f"$([1, {ref}, 3])", as_="item", parallel=rng.choice([1, 3]))
    return [
        Step(name, action="work", parameters={"x": "$(item)"}, each=loop, store=f"l{name}"),
        Step(f"{name}sum", script=f"sum(state.l{name})", store=var),
    ]


def _branch(_rng, name, var, ref):
    sides = [f"{name}l", f"{name}r"]
    given = {"x": f"$({ref})"}
    return [
        Step(name, script="1", next=sides),
        *(Step(side, action="work", parameters=given, store=side, next=[f"{name}j"]) for side in sides),
        Step(f"{name}j", script=f"state.{sides[0]} + state.{sides[1]}", store=var, join=True),
    ]


def _choice(_rng, name, var, ref):
    ways = [(f"{name}{side}", f"$({ref} % 2 == {rest})") for side, rest in (("a", 0), ("b", 1))]
    return [
        Step(name, script="1", next=ways),
        *(Step(side, script="22", store=var, next=[f"{name}e"]) for side, _ in ways),
        Step(f"{name}e", script=f"state.{var}"),
    ]


def _flaky(_rng, name, var, _ref):
    return [Step(name, action="flaky", retry=Retry(4, seconds=0.0), store=var)]


def _catch(_rng, name, var, _ref):
    caught = Catch(f"{name}c", store=f"e{name}")
    return [Step(name, action="broken", catch=caught, end=True), Step(f"{name}c", script="7", store=var)]


def _ask(_rng, name, var, ref):
    return [
        Step(name, ask=f"How many after ${{{ref}}}?", store=f"a{name}"),
        Step(f"{name}len", script=f"len(state.a{name})", store=var),
    ]


def _prompt(_rng, name, var, ref):
    return [
        Step(name, prompt=f"Count ${{{ref}}}", store=f"t{name}"),
        Step(f"{name}len", script=f"len(state.t{name})", store=var),
    ]


BLOCKS = (_action, _script, _each, _branch, _choice, _flaky, _catch, _ask, _prompt)


def world(store: str = "memory:") -> Environment:
    """Return an environment with what random workflows call."""
    calls = [0]

    async def work(x: object = 0) -> int:
        return sum(map(ord, str(x))) % 97

    async def flaky() -> int:
        calls[0] += 1
        if calls[0] % 2:
            raise RuntimeError("flaky")
        return 5

    async def broken() -> int:
        raise ValueError("broken")

    actions = [Action("work", work), Action("flaky", flaky, idempotent=True), Action("broken", broken)]
    return Environment(store=store, actions=actions, agents=[Agent("poet", model=ScriptedModel(["one two", "three"]))])


class Witness:
    """What stands beside a run, and holds its states as they were live."""

    def __init__(self, execution_id: str) -> None:
        self.states = [ExecutionState(execution_id)]
        self.live: dict[int, ExecutionState] = {}

    def watch(self, execution) -> None:
        """Take each state that the engine has reached when it tells of events; between them, one event at a time."""

        def told(events: Sequence[Event]) -> None:
            for event in events:
                self.states.append(evolve(self.states[-1], event))
            state = execution.state
            self.live[state.last_sequence] = state

        execution.subscribe(told)
