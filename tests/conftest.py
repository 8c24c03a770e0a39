"""What every test may ask for."""

import gc
import logging
import os
import sys

import pytest
from hypothesis import HealthCheck, settings

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
def notebook_words():
    """Word commands as in a notebook, which has the extension loaded."""
    from divebook.notebook.extension import WORDS
    from divebook.report.hints import worded

    with worded(WORDS):
        yield


@pytest.fixture
def logs(caplog):
    """Return ``logs()``, the messages of the project's own loggers.

    Not those of asyncio, which tells of an earlier test's abandoned tasks when the garbage collector finds them.
    """
    caplog.set_level(logging.WARNING, "divebook")  # whatever was set before
    return lambda: [record.getMessage() for record in caplog.records if record.name.partition(".")[0] == "divebook"]
