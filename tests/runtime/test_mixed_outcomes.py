"""Journals of one commit whose batches have different outcomes: short form of ``mixed_outcomes``."""

import pytest

from tests.runtime.mixed_outcomes import check


@pytest.mark.parametrize("seed", range(40))
def test_each_journal_of_a_commit_gets_the_outcome_of_its_own_batch(seed):
    check(seed)
