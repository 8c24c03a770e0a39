"""``python -m tests.simulation SEED ...``: run seeds, or ranges of them, and show the log of those that fail."""

# ruff: noqa: T201 - a program: it prints

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from tests.simulation.simulation import Simulation, SimulationError


def seeds(texts: Sequence[str]) -> Iterator[int]:
    """Yield the seeds that ``7`` and ``10-20`` stand for."""
    for text in texts:
        first, _, last = text.partition("-")
        yield from range(int(first), int(last or first) + 1)


def show(simulation: Simulation) -> None:
    """Print workflows and logs."""
    for subject in simulation.subjects:
        for step in subject.workflow.steps:
            print(step.to_dict(), subject.scenario.plans.get(step.name))
        for event in simulation.disk.read(subject.id):
            print(event.sequence, event.path, event.step, event.event_type, event.data.to_data())


def main() -> int:
    """Run what is asked for; return how many failed."""
    failed = 0
    for seed in seeds(sys.argv[1:]):
        simulation = Simulation(seed)
        try:
            print(simulation.run_and_damage())
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is what is looked for
            show(simulation)
            print(SimulationError(seed, error))
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
