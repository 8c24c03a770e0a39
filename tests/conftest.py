"""What every test may ask for."""

import os

import pytest

from divebook.steps.actions import REGISTERED
from divebook.workflow.functions import WORKFLOW_FUNCTIONS


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


@pytest.fixture(autouse=True)
def _functions_of_this_test():
    """Forget the workflows and actions that a test, or an example of the documentation, has made by decorators."""
    registries = (WORKFLOW_FUNCTIONS, REGISTERED)
    known = [dict(registry) for registry in registries]
    yield
    for registry, before in zip(registries, known, strict=True):
        registry.clear()
        registry.update(before)
