"""Generated workflows whose steps can be changed one at a time: what a change changes is the truth about causes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from divebook import Each, Environment, Step, Workflow
from divebook.definitions.step import Catch
from divebook.steps.actions import Action


async def work(x: object = 0, plus: int = 0) -> int:
    """Give for equal arguments what it gave before."""
    return (sum(map(ord, str(x))) * 7 + 3) % 89 + plus


@dataclass
class Change:
    """What is changed: the result of a step, or the input where no step is named; nothing by nought."""

    step: str = ""
    by: int = 0


@dataclass
class Made:
    """A workflow, and its steps whose results can be changed, with their variables."""

    workflow: Workflow
    setters: list[tuple[str, str]]


@dataclass
class _Builder:
    rng: random.Random
    change: Change
    steps: list[Step] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    setters: list[tuple[str, str]] = field(default_factory=list)

    def ref(self) -> str:
        name = self.rng.choice(self.known)
        return self.rng.choice([f"state.{name}", f"state['{name}']", f"state.get('{name}', 0)"])

    def script(self, name: str, text: str, var: str, **more: object) -> None:
        """Add a script that sets a variable, changed if it is the one to change."""
        by = self.change.by if self.change.step == name else 0
        self.setters.append((name, var))
        self.steps.append(Step(name, script=f"({text}) % 97 + {by}", store=var, **more))

    def action(self, name: str, x: str, var: str, **more: object) -> None:
        by = self.change.by if self.change.step == name else 0
        self.setters.append((name, var))
        self.steps.append(Step(name, action="work", parameters={"x": x, "plus": by}, store=var, **more))


def _plain(b: _Builder, name: str, var: str) -> None:
    b.script(name, f"{b.ref()} + {b.ref()} * 2 + inputs.n", var)


def _action(b: _Builder, name: str, var: str) -> None:
    b.action(name, f"$({b.ref()})" if b.rng.random() < 0.5 else "say ${" + b.ref() + "}", var)


def _items(b: _Builder, name: str, var: str) -> None:
    side_by_side = b.rng.choice([1, 3])
    x = b.rng.choice(["$(item)", "$(state.item)", f"$(item + {b.ref()})"])
    b.action(name, x, f"l{var}", each=Each(f"$([1, {b.ref()}, 3])", as_="item", parallel=side_by_side))
    b.script(f"{name}sum", f"sum(state.l{var})", var)


def _branch(b: _Builder, name: str, var: str) -> None:
    b.steps.append(Step(name, script="1", next=[f"{name}l", f"{name}r"]))
    b.action(f"{name}l", f"$({b.ref()})", f"{var}l", next=[f"{name}j"])
    b.script(f"{name}r", f"{b.ref()} + 1", f"{var}r", next=[f"{name}j"])
    b.script(f"{name}j", f"state.{var}l + state.{var}r", var, join=True)


def _choice(b: _Builder, name: str, var: str) -> None:
    """Two ways, of which no text says that just one is taken."""
    read = b.ref()
    ways = [(f"{name}a", f"$({read} % 2 == 0)"), (f"{name}b", f"$({read} % 2 == 1)")]
    b.steps.append(Step(name, script="1", next=ways))
    b.action(f"{name}a", "a", var, next=[f"{name}e"])
    b.script(f"{name}b", "22", var, next=[f"{name}e"])
    b.steps.append(Step(f"{name}e", script="0"))


def _either(b: _Builder, name: str, var: str) -> None:
    """One way or the other; only one of them changes an old variable."""
    read, old = b.ref(), b.rng.choice(b.known)
    ways = [(f"{name}a", f"$({read} > 40)"), (f"{name}b", f"$({read} <= 40)")]
    b.steps.append(Step(name, script="1", next=ways))
    b.script(f"{name}a", f"{b.ref()} + 5", old, next=[f"{name}e"])
    b.script(f"{name}b", "11", f"{var}only", next=[f"{name}e"])
    b.script(f"{name}e", f"state.get('{var}only', 3) + 1", var)


def _loop(b: _Builder, name: str, var: str) -> None:
    limit = b.ref()
    b.script(name, "0", var)
    ways = [(f"{name}in", f"$(state.{var} < {limit} % 4)"), (f"{name}out", f"$(not state.{var} < {limit} % 4)")]
    b.steps.append(Step(f"{name}if", script="0", next=ways))
    b.steps.append(Step(f"{name}in", script=f"state.{var} + 1", store=var, next=[f"{name}if"]))
    b.steps.append(Step(f"{name}out", script="0"))


def _catch(b: _Builder, name: str, var: str) -> None:
    b.script(name, f"10 // ({b.ref()} % 2)", var, catch=Catch(f"{name}c", store=f"e{var}"), next=[f"{name}e"])
    b.script(f"{name}c", f"{b.ref()} + 7", var, next=[f"{name}e"])
    b.steps.append(Step(f"{name}e", script="0"))


def _ask(b: _Builder, name: str, var: str) -> None:
    ask = {"question": "How many after ${" + b.ref() + "}?", "schema": {"type": "integer"}}
    b.steps.append(Step(name, type="interrupt", ask=ask, store=f"q{var}"))
    b.script(f"{name}q", f"state.q{var} + {b.ref()}", var)


def _deleted(b: _Builder, name: str, var: str) -> None:
    b.script(name, f"{b.ref()} + 1", var)
    b.steps.append(Step(f"{name}d", script=f"if {b.ref()} % 2:\n    state.delete('{var}')\n0"))
    b.script(f"{name}s", f"state.get('{var}', 50)", f"{var}g")
    b.steps.append(Step(f"{name}a", script=f"state.set('{var}', {b.ref()} + 1)\n0"))


def _whole(b: _Builder, name: str, var: str) -> None:
    b.script(name, "sum(v for v in state.values() if isinstance(v, int)) + len(state)", var)


_BLOCKS = [_plain, _plain, _action, _items, _branch, _choice, _either, _loop, _catch, _ask, _deleted, _whole]


def made(seed: int, change: Change | None = None) -> Made:
    """Return a workflow; the same for equal seeds, but for the change."""
    rng = random.Random(seed)
    b = _Builder(rng, change or Change())
    for number in range(3):
        b.script(f"start{number}", f"inputs.n + {number} * 5" if number else "8", f"v{number}")
        b.known.append(f"v{number}")
    for number in range(3, 3 + rng.randint(3, 7)):
        rng.choice(_BLOCKS)(b, f"s{number}", f"v{number}")
        b.known.append(f"v{number}")
    b.script("last", f"{b.ref()} + {b.ref()}", "total")
    return Made(Workflow(f"made{seed}", b.steps, inputs=["n"]), b.setters)


def ended(seed: int, change: Change | None = None):
    """Return an execution of it that has ended, its questions answered."""
    found = made(seed, change)
    environment = Environment(store="memory:", actions=[Action("work", work, idempotent=True)])
    n = 4 + (change.by if change is not None and not change.step else 0)
    execution = environment.start(found.workflow, {"n": n}).wait(20)
    while execution.open_questions:
        execution.answer(execution.open_questions[0].id, {"data": 6}).wait(20)
    return execution


def changes(seed: int) -> Iterator[tuple[str, Change]]:
    """Yield every change of a workflow, with the variable, or input, that it changes."""
    for by in (1, 2, 35):
        yield "inputs.n", Change("", by)
        for step, variable in made(seed).setters:
            yield variable, Change(step, by)
