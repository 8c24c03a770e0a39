"""The end of a child and the message that wakes its parent are one commit: a process can die only before or after."""

import pytest

from tests.runtime.ending_children import check_recovery, check_worker


@pytest.mark.parametrize("check", [check_recovery, check_worker])
def test_a_parent_continues_if_the_process_dies_right_after_the_end_of_its_child(check, tmp_path):
    check(tmp_path / "store.db")
