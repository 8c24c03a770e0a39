"""Rows that give what is odd, and maps that are broken off or asked for otherwise: nothing paid is lost or mixed up."""

import asyncio
import time
from collections import Counter

import pandas as pd
import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import ExecutionError, SetupError, StepError
from divebook.mapping import mapped
from divebook.runtime.loop import ENGINE
from divebook.steps import row_calls as steps_rows
from divebook.steps.actions import REGISTERED

FRAME = pd.DataFrame({"text": list("abcd"), "n": [3, 1, 2, 0]}, index=pd.Index(list("wxyz"), name="key"))


@pytest.fixture(autouse=True)
def _no_actions_left():
    known = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(known)


@pytest.fixture
def environment():
    with Environment(store="memory:") as made:
        yield made


SEVEN = Workflow("seven", [Step("s", script="7", store="result")], outputs=["result"])


def shout(text):
    return {"label": text.upper()}


@pytest.mark.parametrize("odd", ["\ud800", {1: "a", "x": object()}, {"label": {object()}}])
def test_a_value_that_nothing_can_keep_costs_no_other_row_its_result(environment, odd):
    calls = []

    def label(n):
        calls.append(n)
        return odd if n == 1 else {"label": n}

    rows = mapped(environment, FRAME, label).wait()
    assert rows.frame["label"].dropna().tolist() == [3, 2, 0]
    assert rows.failed.index.tolist() == ["x"]
    assert len(calls) == 4


@pytest.mark.parametrize("frame", [pd.DataFrame(index=list("abc")), [{}, {}, {}]], ids=["index only", "empty mappings"])
def test_a_frame_without_columns_calls_once_per_row(environment, frame):
    calls = []

    def count():
        calls.append(1)
        return {"n": 1}

    assert mapped(environment, frame, count).wait().frame["n"].tolist() == [1, 1, 1]
    assert len(calls) == 3
    assert (
        mapped(environment, frame, lambda row: {"row": str(row)}, store="rows").wait().frame["row"].tolist()
        == ["{}"] * 3
    )
    assert mapped(environment, frame, SEVEN).wait().frame["result"].tolist() == [7, 7, 7]


def test_whole_numbers_keep_their_digits_beside_whatever_they_stand(environment, monkeypatch):
    large = 2**53 + 1
    monkeypatch.setattr(steps_rows, "RANGE", 2)

    def number(n):
        if n == 2:
            raise ValueError("no")
        return {3: {"id": large}, 1: {"other": 1}, 0: {"id": large + 1}}[n]

    frame = mapped(environment, FRAME, number).wait().frame
    assert frame["id"].dtype == "Int64"
    assert frame["id"].dropna().tolist() == [large, large + 1]
    mixed = mapped(environment, FRAME, lambda n: large if n else 0.5, store="mixed").wait().frame
    assert mixed["result"].tolist() == [large, large, large, 0.5]
    seen = mapped(environment, [{"a": large}, {"a": None}, {}], lambda a: f"{a}", store="seen").wait().frame
    assert seen["result"].tolist() == [str(large), "None", "None"]


def test_names_that_are_no_texts_become_texts(environment):
    frame = mapped(environment, FRAME, lambda n: {0: n, 1: 2 * n}, store="s").wait().frame
    assert frame[["0", "1"]].to_numpy().tolist() == [[3, 6], [1, 2], [2, 4], [0, 0]]
    levels = pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")]))
    with pytest.raises(StepError, match="one level of names"):
        mapped(environment, levels, lambda row: row, store="t")


def test_parameters_are_no_templates_and_belong_to_what_was_begun(environment):
    def greet(text, word):
        return f"{word} {text}"

    odd = "Hello ${name}! $(1+1)"
    rows = mapped(environment, FRAME, greet, parameters={"word": odd}).wait()
    assert rows.frame["result"].tolist()[0] == f"{odd} a"
    with pytest.raises(SetupError, match="started with other parameters"):
        mapped(environment, FRAME, greet, parameters={"word": "Hi"})


def test_names_that_look_like_rounds_or_repetitions_are_others(environment):
    kept = [mapped(environment, FRAME, shout, store=store).wait() for store in ("z", "z/1", "z #2", "2 z")]
    again = mapped(environment, FRAME, shout, store="z", again=True).wait()
    assert len({rows.run.id for rows in (*kept, again)}) == 5
    assert [len(rows.frame) for rows in kept] == [4] * 4


def test_calls_that_broke_off_go_on_with_the_same_line(environment, monkeypatch):
    calls, fails = [], [True]

    def label(n):
        calls.append(n)
        return n

    noted = steps_rows.RowCalls._note

    def broken(self, key, ended):
        noted(self, key, ended)
        if fails:
            fails.clear()
            raise StepError("something else broke")

    monkeypatch.setattr(steps_rows.RowCalls, "_note", broken)
    rows = mapped(environment, FRAME, label, parallel=1)
    with pytest.raises(ExecutionError, match="something else broke"):
        rows.wait()
    assert mapped(environment, FRAME, label, parallel=1).wait().done == 4
    assert sorted(calls) == [0, 1, 2, 3]


def test_what_was_cancelled_stays_so_and_says_how_to_go_on(environment):
    async def waits(n):
        await asyncio.sleep(3600)

    rows = mapped(environment, FRAME, waits)
    rows.run.cancel()
    rows.run.wait()
    with pytest.warns(UserWarning, match=r"has ended with status cancelled: environment\.run_of\(.*\)\.resume\(\)"):
        assert mapped(environment, FRAME, waits).run.status == "cancelled"


def test_calls_that_may_not_be_made_twice_are_not_made_again_by_the_same_line(environment, monkeypatch):
    calls = []

    def pay(n):
        calls.append(n)
        return n

    def broken(self, key, ended):
        raise StepError("something else broke")

    with monkeypatch.context() as patch:
        patch.setattr(steps_rows.RowCalls, "_note", broken)
        rows = mapped(environment, FRAME, pay, idempotent=False)
        assert rows.run.wait().status == "failed"
    for again in (lambda: mapped(environment, FRAME, pay, idempotent=False), rows.retry_failed):
        with pytest.warns(UserWarning, match="has ended with status failed: environment"):
            again().run.wait()
    assert sorted(calls) == [0, 1, 2, 3]


def test_functions_that_never_wait_let_others_on_the_loop_have_their_turn(environment):
    called, ticks = [], []

    async def busy(n):
        time.sleep(0.006)  # noqa: ASYNC251 - a client that blocks
        called.append(n)
        return n

    async def ticking():
        while len(called) < 40:
            ticks.append(len(called))
            await asyncio.sleep(0)

    rows = mapped(environment, pd.concat([FRAME] * 10), busy, parallel=1)
    ENGINE.call(lambda: ENGINE.promise(ticking())).result(20)
    assert rows.wait().done == 40
    assert len(set(ticks)) > 10


@pytest.mark.parametrize("parallel", [1, 3, 8, 50])
def test_functions_that_wait_leave_no_row_to_be_called_twice_or_not_at_all(environment, parallel):
    called = []

    async def slow(n):
        await asyncio.sleep(2 * steps_rows.MOMENT_SECONDS)
        called.append(n)
        return n

    frame = pd.DataFrame({"n": range(41)})
    assert mapped(environment, frame, slow, parallel=parallel).wait().frame["result"].tolist() == [*range(41)]
    assert sorted(called) == [*range(41)]


def test_a_row_whose_result_cannot_be_stored_is_called_again_only_when_a_person_says_so():
    calls = Counter()

    def pay(n: int) -> object:
        calls[n] += 1
        return object() if n == 1 and calls[n] == 1 else f"receipt {n}"

    with Environment(store="memory:") as made:
        rows = mapped(made, pd.DataFrame({"n": range(3)}), pay, idempotent=False, store="receipt").wait()
        (error,) = rows.failed["error"]
        assert error.startswith("OutcomeUnknownError: the call took effect, and it returned <object object at")
        assert "which could not be recorded: cannot store" in error
        assert rows.retry_failed().wait().failed.index.tolist() == [1]
        assert calls == {0: 1, 1: 1, 2: 1}
        assert rows.retry_failed(unknown=True).wait().failed.empty
        assert calls == {0: 1, 1: 2, 2: 1}
