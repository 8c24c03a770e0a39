"""What a turn of an agent adds to a store: its rows, as SQLite holds them."""

from benchmarks.turns import MOST_KB, kilobytes, size_after, turn_rows


def test_a_turn_of_20_calls_with_10_tools_adds_at_most_25_kilobytes_beside_its_texts():
    rows, file = kilobytes(20)
    assert 15 < rows <= MOST_KB == 25
    assert file < 40


def test_what_is_kept_once_is_not_in_the_rows_of_a_turn(tmp_path):
    size_after(tmp_path / "log.db", 2, 2)
    told = "".join(map(str, turn_rows(tmp_path / "log.db")))
    assert told.count('"operation_id"') == 12  # what is written together may stand in one row
    assert "Find passages" not in told
