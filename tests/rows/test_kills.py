"""A process that maps is killed: ``python -m tests.rows.kills`` does it twenty times."""

from random import Random

import pytest

from tests.rows.kills import A_SECOND, killed


@pytest.mark.parametrize("idempotent", ["yes", "no"])
def test_a_killed_map_loses_a_second_of_rows_at_most_or_asks(tmp_path, idempotent):
    called, told = killed(tmp_path / "map", 1, Random(3), idempotent, rows=300)
    if idempotent == "yes":
        assert told == {"rows": 300, "errors": 0, "asked": []}
        assert sum(called.values()) - 300 <= A_SECOND
    else:
        assert max(called.values()) == 1
        assert told["asked"] == ["Did the call to label.label go through?"]
