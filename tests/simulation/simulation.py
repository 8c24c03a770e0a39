"""One seed from beginning to end: a workflow undisturbed, then the same through everything that can go wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from divebook.definitions.functions import WORKFLOW_FUNCTIONS, WorkflowFunction
from divebook.engine.state import ExecutionState
from divebook.events.event import Record, type_id
from divebook.stores.append import Batch
from tests.simulation.damaged import damage_log
from tests.simulation.disk import FAULTS, CommitFault, Disks, FaultyStore, SimulatedDisk
from tests.simulation.functions import made_function
from tests.simulation.machine import Machine
from tests.simulation.process import Life, Process, Subject
from tests.simulation.scenario import Generator, Scenario
from tests.simulation.world import World


class SimulationError(AssertionError):
    """A seed shows something that must not be."""

    def __init__(self, seed: int, cause: BaseException) -> None:
        self.seed, self.reason = seed, leaf(cause)
        found = f"{type(self.reason).__name__}: {self.reason}"
        super().__init__(f"seed {seed}: {found}\nrepeat it with: python -m tests.simulation {seed}")


def leaf(error: BaseException) -> BaseException:
    """Return the first error inside a group, or the error itself."""
    return leaf(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


@dataclass(frozen=True)
class Summary:
    """What a seed was made of."""

    seed: int
    executions: int
    lives: int
    commits: int
    events: int
    virtual_seconds: float
    damages: dict[str, int] = field(default_factory=dict)
    """How often damage to the rows of its logs was found, and how often it changed nothing."""


def simulate(seed: int, disks: Disks = SimulatedDisk) -> Summary:
    """Run one seed.

    Raises
    ------
    SimulationError
        With the seed and the command that repeats it.
    """
    simulation = Simulation(seed, disks)
    try:
        return simulation.run_and_damage()
    except Exception as error:
        raise SimulationError(seed, error) from error


class Simulation:
    """Everything of one seed.

    Attributes
    ----------
    subjects
        The executions of the latest run, with their logs, to look at.
    """

    def __init__(self, seed: int, disks: Disks = SimulatedDisk) -> None:
        self.seed, self.random, self._disks = seed, Random(seed), disks
        count = 2 if self.random.random() < 0.15 else 1
        self.scenarios = [Generator(self.random, f"simulated-{number}").scenario() for number in range(count)]
        self.honest = self.random.random() < 0.6
        self._expected: list[Expected] = []

    def run(self) -> Summary:
        """Run the workflows undisturbed, then through all that goes wrong, and compare."""
        self._expected = expected = [self._undisturbed(scenario) for scenario in self.scenarios]
        machine, disk, subjects = self._computer(self.scenarios, calm=False)
        lives = self._lives(sum(entry.commits for entry in expected), sum(entry.seconds for entry in expected))
        for life in lives:
            self._live(machine, disk, subjects, life)
            machine.uptime += self.random.choice((0, 1, 7200))
            machine.wall += self.random.choice((0, 0, 0, 86_400, -3600))
        for subject, entry in zip(subjects, expected, strict=True):
            subject.audit.check_end(honest=self.honest)
            found = comparable(subject.audit.state)
            assert found == entry.result, f"{subject.id} came to\n{found}\nand undisturbed to\n{entry.result}"
        events = sum(subject.audit.state.last_sequence for subject in subjects)
        seconds = round(machine.uptime, 1)
        return Summary(self.seed, len(subjects), len(lives), disk.total, events, seconds)

    def run_and_damage(self) -> Summary:
        """Run it all, then damage the rows of the logs; those of the undisturbed runs are the foreign ones."""
        summary, outcomes = self.run(), Counter[str]()
        for subject, entry in zip(self.subjects, self._expected, strict=True):
            outcomes += damage_log(Random(self.seed), self.disk.read_records(subject.id), entry.records)
        return replace(summary, damages=dict(outcomes))

    def _undisturbed(self, scenario: Scenario) -> Expected:
        machine, disk, (subject,) = self._computer([scenario], calm=True)
        self._live(machine, disk, [subject], Life(calm=True))
        subject.audit.check_end(honest=True)
        return Expected(comparable(subject.audit.state), disk.commits, machine.uptime, disk.read_records(subject.id))

    def _computer(self, scenarios: Sequence[Scenario], *, calm: bool) -> tuple[Machine, FaultyStore, list[Subject]]:
        machine = Machine(Random(self.seed))
        disk = self._disks()
        disk.begin(machine, Random(self.seed + 1), calm=calm)
        subjects: list[Subject] = []
        for number, scenario in enumerate(scenarios):
            world = World(f"{self.seed}-{number}", scenario, calm=calm, slow=not calm)
            subjects.append(Subject(type_id("exec", machine.now() // 1000, number), scenario, disk, world))
        self.disk, self.subjects = disk, subjects
        audits = {subject.id: subject.audit for subject in subjects}

        def watch(batches: Sequence[Batch]) -> None:
            for batch in batches:
                audits[batch.execution_id].committed(batch)

        disk.watch = watch
        return machine, disk, subjects

    def _live(self, machine: Machine, disk: FaultyStore, subjects: Sequence[Subject], life: Life) -> None:
        process = Process(machine, disk, subjects, Random(self.random.random()), honest=self.honest)
        with functions_of(subjects):
            process.live(life)
        for subject in subjects:
            if subject.audit.state.last_sequence:
                subject.audit.check_log()

    def _lives(self, commits: int, seconds: float) -> list[Life]:
        """Return what goes wrong in each life; the last one is calm."""
        random = self.random
        lives = []
        for _ in range(random.choice((1, 1, 2, 3, 5))):
            kind = random.choice((*FAULTS, None))
            fault = None if kind is None else CommitFault(kind, random.randint(1, max(1, commits)))
            # Undisturbed steps take no time, so that only timers count in `seconds`.
            kill_at = random.uniform(0, seconds + 60) if random.random() < 0.3 else None
            others = [random.uniform(0, seconds + 60) if random.random() < 0.15 else None for _ in range(4)]
            lives.append(Life(fault, kill_at, *others))
        return [*lives, Life(calm=True)]


@dataclass(frozen=True)
class Expected:
    """What an undisturbed run came to."""

    result: dict[str, Any]
    commits: int
    seconds: float
    records: list[Record]


def comparable(state: ExecutionState) -> dict[str, Any]:
    """Return what must be the same however often, and wherever, a run was disturbed.

    Which path goes on after a join, and so the ids of paths behind it, may depend on which path branched first; which
    of the items side by side is the first to fail for good, on which was faster.
    """
    paths = state.paths.values()
    visits = Counter({step: 0 for path in paths for step in path.visits})
    for path in paths:
        visits.update(path.visits)
    return {
        "status": state.status,
        "outputs": {name: _of_any_item(value) for name, value in state.outputs.items()},
        "variables": {name: _of_any_item(value) for name, value in sorted(state.variables.items())},
        "paths": sorted(path.status for path in paths),
        "texts": sorted({item for path in paths for item in path.step_outputs.items()}),
        "visits": sorted(visits.items()),
    }


def _of_any_item(value: Any) -> Any:
    """Return a failure that was caught as one of no item in particular; any other value as it is."""
    if not isinstance(value, dict) or "iteration" not in value:
        return value
    message = value["message"].removeprefix(f"item {value['iteration']}: ")
    return {**value, "message": message, "iteration": None, "item": None}


@contextmanager
def functions_of(subjects: Sequence[Subject]) -> Iterator[None]:
    """Have the process know the workflow functions."""
    known = dict(WORKFLOW_FUNCTIONS)
    for subject in subjects:
        if subject.scenario.function is not None:
            function = made_function(subject.scenario.function, subject.world.invoke)
            WORKFLOW_FUNCTIONS[subject.workflow.name] = WorkflowFunction.from_definition(function, subject.workflow)
    try:
        yield
    finally:
        WORKFLOW_FUNCTIONS.clear()
        WORKFLOW_FUNCTIONS.update(known)
