"""What every test may ask for."""

import gc
import logging
import os
import sys

import pytest
from hypothesis import HealthCheck, settings

from divebook.steps.actions import REGISTERED
from divebook.store.registry import _stores
from divebook.workflow.functions import WORKFLOW_FUNCTIONS
from divebook.workflow.tools import REGISTERED_TOOLS

# How long examples take says how busy the machine is, and nothing of what is tested.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_collection_finish():
    """Have the garbage collector leave alone what stays: thousands of tests, and the libraries that they import.

    To look through all of it takes a second, and IPython asks for that whenever a shell is reset.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def require():
    """Return ``require(service, available)``, which skips the test if a service it needs is absent.

    With ``DIVEBOOK_REQUIRE=all`` (as in continuous integration) the test fails instead.
    """

    def check(service, available):
        if available:
            return
        if os.environ.get("DIVEBOOK_REQUIRE") == "all":
            pytest.fail(f"{service} is not available, and DIVEBOOK_REQUIRE=all forbids to skip", pytrace=False)
        pytest.skip(f"{service} is not available")

    return check


@pytest.fixture
def counted(record_property):
    """Return ``counted(text)``, which puts a line under the report of all tests."""
    return lambda text: record_property("counted", text)


def pytest_terminal_summary(terminalreporter):
    """Write what tests have counted."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    properties = [entry for report in reports for entry in getattr(report, "user_properties", ())]
    for text in dict.fromkeys(text for name, text in properties if name == "counted"):
        terminalreporter.write_line(text)


@pytest.fixture
def lacking(monkeypatch):
    """Return ``lacking("anthropic")``: from then on the library of that provider is not installed."""

    def lack(library):
        monkeypatch.setitem(sys.modules, library, None)
        for loaded in (f"pydantic_ai.{part}.{library}" for part in ("providers", "models")):  # by another test
            monkeypatch.delitem(sys.modules, loaded, raising=False)

    return lack


@pytest.fixture
def logs(caplog):
    """Return ``logs()``, the messages of the project's own loggers.

    Not those of asyncio, which tells of an earlier test's abandoned tasks when the garbage collector finds them.
    """
    caplog.set_level(logging.WARNING, "divebook")  # whatever was set before
    return lambda: [record.getMessage() for record in caplog.records if record.name.partition(".")[0] == "divebook"]


_MADE_AT_IMPORT = {}
"""By module of tests, what its decorators registered when it was imported: contents for each of `_REGISTRIES`."""
_REGISTRIES = (WORKFLOW_FUNCTIONS, REGISTERED, REGISTERED_TOOLS)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Keep what a module registers at import for its own tests, so that no other module's tests see it."""
    before = [dict(registry) for registry in _REGISTRIES]
    report = yield
    made = [
        {name: entry for name, entry in registry.items() if known.get(name) is not entry}
        for registry, known in zip(_REGISTRIES, before, strict=True)
    ]
    if any(made):
        _MADE_AT_IMPORT[collector.nodeid] = made
    _restore(before)
    return report


@pytest.fixture(autouse=True, scope="module")
def _functions_of_this_module():
    """Forget what fixtures of a module have made, which last longer than a test."""
    before = [dict(registry) for registry in _REGISTRIES]
    yield
    _restore(before)


@pytest.fixture(autouse=True)
def _functions_of_this_test(request):
    """Forget the workflows and actions that a test, or an example of the documentation, has made by decorators."""
    before = [dict(registry) for registry in _REGISTRIES]
    own = _MADE_AT_IMPORT.get(request.node.nodeid.partition("::")[0], [{} for _ in _REGISTRIES])
    for registry, made in zip(_REGISTRIES, own, strict=True):
        registry.update(made)
    yield
    _restore(before)


_MAIN = sys.modules["__main__"]


@pytest.fixture(autouse=True)
def _main_stays():
    """Fail where a test leaves another `__main__`, as IPython makes one: processes are spawned by what it says."""
    yield
    left, sys.modules["__main__"] = sys.modules["__main__"], _MAIN
    assert left is _MAIN


@pytest.fixture(autouse=True)
def _stores_of_this_test():
    """Close the shared stores that a test has opened: a process keeps them, and has only so many open files."""
    before = dict(_stores.items())  # `dict(_stores)` fails where one is collected meanwhile
    yield
    for key, opened in list(_stores.items()):
        if key not in before:
            del _stores[key]
            opened.close()


def _restore(before):
    for registry, known in zip(_REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(known)
