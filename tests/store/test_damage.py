"""Bytes changed and files cut at random; `python -m benchmarks.damage` tries many more."""

from benchmarks.damage import EQUAL, REFUSED, try_many


def test_a_damaged_file_gives_what_was_written_or_an_error_of_ours():
    counts, bad = try_many(seed=2, flips=150, cuts=60)
    assert not bad
    assert counts[EQUAL] > 20
    assert counts[REFUSED] > 20
