"""Random workflows whose result does not depend on timing, and the plan of what goes wrong in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Catch, Each, Edge, Retry, Step
from tests.simulation.functions import FunctionPlan, random_function

ERROR, TIMEOUT, TIMEOUT_AFTER = "error", "timeout", "timeout after the effect"
LOOPS_MOD = 1000
SIGNAL_NAME = "go"


@dataclass(frozen=True)
class StepPlan:
    """How the calls of one step behave."""

    repeatable: bool = False
    failures: tuple[str, ...] = ()
    """How the first calls at each place go wrong; later ones succeed."""
    permanent: bool = False
    """Every call fails."""
    guarded: bool = False
    """One failure too many would change the result, so that a person must not call it failed."""
    operations: int = 1
    """Operations that it makes one after the other."""
    retried: bool = False


@dataclass
class Scenario:
    """A workflow and how its steps behave."""

    workflow: Workflow
    plans: dict[str, StepPlan]
    function: FunctionPlan | None = None


@dataclass
class _Draft:
    """A step on its way."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    next: list[Edge] = field(default_factory=list)

    def made(self) -> Step:
        return Step(self.name, next=self.next, **self.settings)


@dataclass
class _Exit:
    """Where a block is left."""

    draft: _Draft
    condition: str | None = None

    def lead_to(self, step: str) -> None:
        self.draft.next.append(Edge(step, self.condition))


@dataclass
class _Block:
    """A piece of a workflow with one entry; `known` are the variables that every way through it has set."""

    entry: str
    exits: list[_Exit]
    known: list[str]


class Generator:
    """Makes one workflow from a seed."""

    def __init__(self, random: Random, name: str) -> None:
        self._random, self._name = random, name
        self._continues = random.random() < 0.2
        self._drafts: list[_Draft] = []
        self._plans: dict[str, StepPlan] = {}
        self._room = random.randint(3, 14)
        self._function: FunctionPlan | None = None

    def scenario(self) -> Scenario:
        """Return the workflow and its plan."""
        block = self._sequence([], depth=0, in_loop=False, least=2)
        workflow = Workflow(
            self._name,
            [draft.made() for draft in self._drafts],
            outputs=block.known[-3:],
            continue_on_failure=self._continues,
        )
        return Scenario(workflow, self._plans, self._function)

    # --- blocks ----------------------------------------------------------------------------------------------------

    def _sequence(self, known: list[str], depth: int, *, in_loop: bool, least: int = 1) -> _Block:
        block = self._any_block(known, depth, in_loop=in_loop)
        count = 1
        while count < least or (self._room > 0 and self._random.random() < (0.75 if depth == 0 else 0.4)):
            following = self._any_block(block.known, depth, in_loop=in_loop)
            for leave in block.exits:
                leave.lead_to(following.entry)
            block = _Block(block.entry, following.exits, following.known)
            count += 1
        return block

    def _any_block(self, known: list[str], depth: int, *, in_loop: bool) -> _Block:
        kinds: list[tuple[Callable[..., _Block], int]] = [(self._plain, 6), (self._loop_over_items, 3)]
        kinds += [(self._wait, 1), (self._caught, 2)]
        if self._room > 3 and depth < 3:
            kinds += [(self._choice, 2), (self._fork, 3 if not (in_loop and depth > 1) else 0)]
            kinds += [(self._circle, 2 if not in_loop else 0)]
        if depth == 0 and self._function is None:
            kinds.append((self._call_function, 1))
        makers, weights = zip(*kinds, strict=True)
        (make,) = self._random.choices(makers, weights)
        block: _Block = make(known, depth, in_loop)
        return block

    def _plain(self, known: list[str], _depth: int, _in_loop: bool) -> _Block:
        draft = self._action(known)
        return _Block(draft.name, [_Exit(draft)], [*known, draft.name])

    def _loop_over_items(self, known: list[str], _depth: int, _in_loop: bool) -> _Block:
        entry = draft = self._action(known)
        items: Any = list(range(self._random.randint(0, 5)))
        if self._random.random() < 0.3:
            entry = self._action(known, kind="list")
            self._drafts[-2:] = [entry, draft]
            entry.next.append(Edge(draft.name))
            items, known = f"$(state.{entry.name})", [*known, entry.name]
        parallel = self._random.choice([1, 1, 2, 3, 8])
        draft.settings["each"] = Each(items, as_=self._random.choice([f"{draft.name}_item", None]), parallel=parallel)
        return _Block(entry.name, [_Exit(draft)], [*known, draft.name])

    def _wait(self, known: list[str], _depth: int, _in_loop: bool) -> _Block:
        seconds = self._random.choice([0, 0.5, None, 3600])
        draft = self._draft(type="wait", seconds=seconds, signal=SIGNAL_NAME if seconds is None else None)
        return _Block(draft.name, [_Exit(draft)], known)

    def _caught(self, known: list[str], _depth: int, _in_loop: bool) -> _Block:
        failing, rescue = self._action(known, guarded=True), self._action(known)
        if self._random.random() < 0.3:
            failing.settings["each"] = Each([1, 2, 3], parallel=self._random.choice([1, 3]))
        permanent = self._random.random() < 0.6
        errors = self._random.choice([(), ("PlannedError",)])
        failing.settings["catch"] = Catch(rescue.name, errors, store=f"{failing.name}_error" if permanent else None)
        plan = self._plans[failing.name]
        self._plans[failing.name] = StepPlan(
            plan.repeatable, plan.failures, permanent, True, plan.operations, plan.retried
        )
        learned = [f"{failing.name}_error"] if permanent and failing.settings.get("each") is None else []
        return _Block(failing.name, [_Exit(failing), _Exit(rescue)], [*known, *learned])

    def _choice(self, known: list[str], depth: int, in_loop: bool) -> _Block:
        draft = self._action(known)
        left = self._sequence([*known, draft.name], depth + 1, in_loop=in_loop)
        draft.next.append(Edge(left.entry, f"$(state.{draft.name} % 4 < 2)"))
        other = f"$(state.{draft.name} % 4 >= 2)"
        if self._random.random() < 0.5:
            return _Block(draft.name, [*left.exits, _Exit(draft, other)], [*known, draft.name])
        right = self._sequence([*known, draft.name], depth + 1, in_loop=in_loop)
        draft.next.append(Edge(right.entry, other))
        return _Block(draft.name, [*left.exits, *right.exits], [*known, draft.name])

    def _circle(self, known: list[str], depth: int, _in_loop: bool) -> _Block:
        body = self._sequence(known, depth + 1, in_loop=True)
        counter = self._action([], kind="count")
        counter.settings["parameters"]["reads"] = [counter.name]
        for leave in body.exits:
            leave.lead_to(counter.name)
        rounds = self._random.randint(1, 3)
        counter.next.append(Edge(body.entry, f"$(state.{counter.name} % {LOOPS_MOD} < {rounds})"))
        done = f"$(state.{counter.name} % {LOOPS_MOD} >= {rounds})"
        return _Block(body.entry, [_Exit(counter, done)], [*body.known, counter.name])

    def _fork(self, known: list[str], depth: int, in_loop: bool) -> _Block:
        draft = self._action(known)
        known = [*known, draft.name]
        branches = []
        for _ in range(self._random.randint(2, 3)):
            branches.append(self._sequence(known, depth + 2 if in_loop else depth + 1, in_loop=in_loop))
            draft.next.append(Edge(branches[-1].entry))
        learned = [name for branch in branches for name in branch.known if name not in known]
        join = self._action([*known, *learned])
        join.settings["join"] = True
        if not in_loop and self._random.random() < 0.2:  # ends without a join
            draft.next.append(Edge(self._sequence(known, 3, in_loop=in_loop).entry))
        for branch in branches:
            for leave in branch.exits:
                leave.lead_to(join.name)
        return _Block(draft.name, [_Exit(join)], [*known, *learned, join.name])

    def _call_function(self, known: list[str], _depth: int, _in_loop: bool) -> _Block:
        self._function = random_function(self._random, guarded=self._continues)
        draft = self._draft(type="function", script="# made by the simulation")
        draft.settings["store"] = draft.name
        return _Block(draft.name, [_Exit(draft)], [*known, draft.name])

    # --- steps -----------------------------------------------------------------------------------------------------

    def _draft(self, **settings: Any) -> _Draft:
        self._room -= 1
        draft = _Draft(f"s{len(self._drafts) + 1}", settings)
        self._drafts.append(draft)
        return draft

    def _action(self, known: list[str], kind: str = "value", *, guarded: bool = False) -> _Draft:
        random = self._random
        reads = sorted(random.sample(known, min(len(known), random.randint(0, 3))))
        draft = self._draft(action="simulated", parameters={"reads": reads, "kind": kind, "salt": random.randrange(99)})
        draft.settings["store"] = draft.name
        retry = random_retry(random)
        if retry is not None:
            draft.settings["retry"] = retry
        self._plans[draft.name] = self._plan(retry, guarded=guarded or self._continues)
        return draft

    def _plan(self, retry: Retry | None, *, guarded: bool) -> StepPlan:
        random = self._random
        attempts = 1 if retry is None else retry.attempts
        most = attempts - 1 if guarded else attempts + 1
        failures = random_failures(random, most)
        permanent = self._continues and random.random() < 0.1
        repeatable, operations = random.random() < 0.4, random.choice([1, 1, 1, 2])
        return StepPlan(repeatable, failures, permanent, guarded, operations, retry is not None)


def random_retry(random: Random) -> Retry | None:
    """Return a policy, or none."""
    if random.random() < 0.5:
        return None
    seconds, jitter = random.choice([0, 0.5, 30]), random.choice([0, 0.5])
    return Retry(random.randint(1, 4), seconds=seconds, max_seconds=100, jitter=jitter)


def random_failures(random: Random, most: int) -> tuple[str, ...]:
    """Return how up to that many calls go wrong."""
    if random.random() < 0.6:
        return ()
    return tuple(random.choice([ERROR, ERROR, TIMEOUT, TIMEOUT_AFTER]) for _ in range(random.randint(0, most)))
