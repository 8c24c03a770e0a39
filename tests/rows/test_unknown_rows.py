"""Rows of which nobody knows whether their calls went through: a person is told which, and they are left alone."""

import asyncio
import re
from collections import Counter
from random import Random

import pandas as pd
import pytest

from divebook import Environment, Run
from divebook.mapping import mapped
from tests.rows.kills import SECONDS, killed
from tests.rows.mapping_in_a_process import label

ROWS = 150


@pytest.fixture
def world(tmp_path):
    """Return an environment in which a map was killed that may not call a row twice, and the map, in this process."""
    killed(tmp_path / "map", 1, Random(5), "no", rows=ROWS)
    trace = tmp_path / "map" / "trace"
    with Environment(store=tmp_path / "map" / "store.db") as environment:
        given = {"trace": str(trace), "seconds": SECONDS}
        frame = pd.DataFrame({"n": range(ROWS)})

        def again():
            return mapped(environment, frame, label, parallel=100, idempotent=False, parameters=given)

        yield environment, again, trace


def test_who_is_asked_about_a_range_is_told_which_of_its_rows_are_in_question(world):
    environment, again, trace = world
    with pytest.warns(
        UserWarning, match=r"<label: \d+ of 150 rows; waiting for .*>\. Answer the question; wait\(\) then"
    ):
        rows = again().wait()
    (question,) = rows.run.open_questions
    told = re.search(r"its rows (\d+) have ended and are written; (\d+) may .*: ([^.]*)", question.message)
    ended, left, named = told.groups()
    first = [int(at) for at in re.findall(r"\d+", named.partition(" and ")[0])]
    assert int(ended) + int(left) == 100
    assert first == list(range(20))  # which none of it is written of: a second had not passed

    environment.answer(question.id, {"choice": "done", "result": None})
    rows.wait()
    unknown = rows.failed.index.tolist()
    assert len(unknown) == int(left)
    assert unknown[:20] == first
    assert f", {left} of which failed ({left} with an unknown outcome only if you set unknown=True)" in repr(rows)
    before = trace.read_text()
    assert rows.retry_failed().wait().failed.index.tolist() == unknown
    assert trace.read_text() == before

    assert rows.retry_failed(unknown=True).wait().failed.empty
    assert (rows.frame["label"] == rows.frame["n"] * 2).all()
    assert again().failed.empty  # as in a later kernel
    assert max(Counter(trace.read_text().split()).values()) == 2


def test_those_in_question_are_called_again_where_a_person_says_so(world):
    environment, again, trace = world
    with pytest.warns(UserWarning, match="waiting for"):
        rows = again().wait()
    (question,) = rows.run.open_questions
    environment.answer(question.id, {"choice": "retry"})
    assert rows.wait().failed.empty
    assert repr(rows).startswith("<label: 150 of 150 rows; label: ")
    assert set(Counter(trace.read_text().split()).values()) <= {1, 2}


def test_to_await_a_map_says_what_waits_as_well_and_holds_no_loop_up(world, monkeypatch):
    _, again, _ = world
    monkeypatch.delattr(Run, "wait")

    async def main():
        return await again()

    with pytest.warns(UserWarning, match="waiting for"):
        assert asyncio.run(main()).run.status == "waiting"
