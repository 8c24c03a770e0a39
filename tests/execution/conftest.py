import pytest

from divebook.workflow.functions import WORKFLOW_FUNCTIONS


@pytest.fixture(autouse=True)
def functions():
    """Forget the workflow functions that a test defines."""
    before = dict(WORKFLOW_FUNCTIONS)
    yield
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(before)
