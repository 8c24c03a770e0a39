"""Random workflows through crashes, torn and doubtful writes, lost answers and impatient people."""

import subprocess
import sys

import pytest

from divebook.engine.operations import AGENT_TURN
from tests.simulation.seeds import COUNT, FIRST, ONCE_FAILED, PENDING
from tests.simulation.simulation import Simulation, SimulationError, simulate

SHARD = 12


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, SHARD))
def test_whatever_goes_wrong_the_result_is_that_of_an_undisturbed_run(first):
    for seed in range(first, first + SHARD):
        if seed not in PENDING:
            simulate(seed)


def of_once_failed():
    for seed in sorted({*ONCE_FAILED, *PENDING}):
        reason = "a fault of the engine that test_found shows"
        marks = [pytest.mark.xfail(raises=SimulationError, reason=reason)] if seed in PENDING else []
        yield pytest.param(seed, marks=marks)


@pytest.mark.parametrize("seed", [*of_once_failed()])
def test_seeds_that_once_failed(seed):
    try:
        Simulation(seed).run()
    except Exception as error:
        raise SimulationError(seed, error) from error


def test_a_seed_always_gives_the_same_run():
    assert simulate(7) == simulate(7)


def test_a_seed_gives_the_same_run_in_another_process():
    command = [sys.executable, "-m", "tests.simulation", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "5"}, timeout=60)
    assert done.stdout.strip() == str(simulate(7))


def test_the_simulation_meets_every_kind_of_event_and_fault():
    seen = set()
    for seed in {*range(1, 60)} - PENDING:
        simulation = Simulation(seed)
        simulation.run()
        for subject in simulation.subjects:
            for event in simulation.disk.read(subject.id):
                seen.add(event.event_type)
                seen |= {getattr(event.data, "operation_type", None)} & {AGENT_TURN}
    assert seen >= {
        AGENT_TURN,
        "condition_evaluated",
        "execution_cancelled",
        "execution_completed",
        "execution_failed",
        "execution_paused",
        "execution_resumed",
        "interrupt_raised",
        "interrupt_resolved",
        "iteration_completed",
        "operation_failed",
        "path_cancelled",
        "path_joined",
        "signal_received",
        "step_caught",
        "step_retried",
    }


def test_a_broken_engine_is_found_and_the_seed_is_named(monkeypatch):
    from divebook.runtime.journal import Journal

    async def at_once(self):
        """Do not wait for the disk."""

    monkeypatch.setattr(Journal, "durable", at_once)
    with pytest.raises(SimulationError, match=r"seed 1: .*\nrepeat it with: python -m tests.simulation 1"):
        simulate(1)
