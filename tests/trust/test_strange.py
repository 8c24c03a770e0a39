"""Hostile definitions, each way once: `python -m tests.trust.strange` runs hundreds."""

import random

import pytest

from tests.trust.strange import WAYS, faults_of, recording


@pytest.fixture(scope="module")
def recorder():
    with recording() as recorder:
        yield recorder


@pytest.mark.parametrize("name", WAYS)
def test_a_hostile_definition_changes_sends_and_starts_nothing(name, recorder):
    ended, faults = faults_of(name, random.Random(f"{name} 1"), recorder)
    assert faults == []
    assert ended in ("refused", "failed", "waiting", "completed")
