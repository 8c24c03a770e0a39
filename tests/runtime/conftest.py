import pytest

from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.definitions.step import Retry
from divebook.runtime import commit
from divebook.runtime.runner import PARKED_RUNS
from tests.runtime import worlds
from tests.store.remote import RemoteStore

ON_A_SERVER = {
    "test_asking",
    "test_calls",
    "test_children",
    "test_continuing_as_new",
    "test_expiring",
    "test_failing",
    "test_kept_answers",
    "test_leaving",
    "test_meanwhile",
    "test_orphans",
    "test_resuming",
    "test_running",
    "test_signals",
    "test_unknown_outcomes",
}
"""Modules whose tests run a second time, over stores on a server."""
HERE_ONLY = {
    "test_an_execution_that_a_step_starts_on_the_engines_own_thread_takes_signals_at_once",
    "test_waiting_needs_neither_task_nor_thread",
}
"""Those that a server is no place for (test_the_engines_own_thread_waits_for_no_server); calls leave threads."""


@pytest.fixture(autouse=True)
def functions():
    """Forget the workflow functions that a test defines."""
    before = dict(WORKFLOW_FUNCTIONS)
    yield
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(before)


@pytest.fixture
def replayed(monkeypatch):
    """Have all code that waits unwound and replayed, whatever changed, instead of going on where it stands."""
    monkeypatch.setattr(PARKED_RUNS, "most", 0)


def pytest_generate_tests(metafunc):
    name = metafunc.module.__name__.rpartition(".")[2]
    if name in ON_A_SERVER and metafunc.function.__name__ not in HERE_ONLY:
        metafunc.fixturenames.append("stores_are")
        metafunc.parametrize("stores_are", ["here", "on a server"], indirect=True)


@pytest.fixture
def stores_are(request, monkeypatch):
    """Have all stores in memory be on a server; fail if one of them was asked on the engine's thread."""
    made = []

    class Remote(RemoteStore):
        def __init__(self):
            super().__init__()
            made.append(self)

    if request.param == "on a server":
        for module in (worlds, request.module):
            if hasattr(module, "MemoryStore"):
                monkeypatch.setattr(module, "MemoryStore", Remote)
        monkeypatch.setattr(commit, "STORE_PAUSES", Retry(seconds=0.001))
    yield
    assert [store.on_the_loop for store in made if store.on_the_loop] == []
