"""The simulation over a real database: the same faults, and the same end, event for event, as over one in memory."""

import pytest

from tests.simulation.on_server import Servers
from tests.simulation.simulation import Simulation


@pytest.mark.parametrize("seed", [8, 15, 75])  # of one execution each: which of two comes first is left to asyncio
def test_whatever_goes_wrong_a_server_has_the_log_that_memory_has(address, seed):
    servers = Servers(address)
    there, here = Simulation(seed, servers), Simulation(seed)
    assert there.run_and_damage() == here.run_and_damage()
    for one, other in zip(there.subjects, here.subjects, strict=True):
        assert there.disk.read_records(one.id) == here.disk.read_records(other.id)
    servers.close()
