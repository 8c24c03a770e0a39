"""The button that interrupts a kernel, at any moment; `python -m tests.notebook.stopping` does so for longer."""

from random import Random

import pytest

from tests.notebook.stopping import CELLS, prepared, stopped

TIMES = 8


@pytest.fixture(scope="module")
def stoppable(tmp_path_factory):
    kernel = prepared(tmp_path_factory.mktemp("stopping"))
    yield kernel
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)
    kernel.manager.cleanup_resources()


@pytest.mark.parametrize("kind", CELLS)
def test_a_kernel_that_is_interrupted_at_any_moment_stops_and_goes_on(stoppable, kind):
    chance = Random(kind)
    found = [stopped(stoppable, kind, chance.choice([0, 0, 0.01]) * chance.random()) for _ in range(TIMES)]
    assert [wrong for wrong in found if wrong] == []
