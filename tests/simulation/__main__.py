"""``python -m tests.simulation [--postgres] SEED ...``: run seeds, or ranges of them; those that fail show their logs.

With ``--postgres`` the logs are in a real database, of a server that is started.
"""

# ruff: noqa: T201 - a program: it prints

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from tests.simulation.disk import Disks, SimulatedDisk
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
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="keep the logs in a server, which is started")
    parser.add_argument("seeds", nargs="+", metavar="SEED", help="a number, or a range such as 1-300")
    asked = parser.parse_args()
    if not asked.postgres:
        return run(asked.seeds, SimulatedDisk)
    from tests.postgres.server import postgres_server
    from tests.simulation.on_server import Servers

    with postgres_server("fsync=off") as server:
        servers = Servers(server.url())
        try:
            return run(asked.seeds, servers)
        finally:
            servers.close()


def run(texts: Sequence[str], disks: Disks) -> int:
    """Run seeds; return how many failed."""
    failed = 0
    for seed in seeds(texts):
        simulation = Simulation(seed, disks)
        try:
            print(simulation.run_and_damage())
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is what is looked for
            show(simulation)
            print(SimulationError(seed, error))
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
