"""What every test may ask for."""

import os

import pytest


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
