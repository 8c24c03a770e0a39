"""An action over the rows of a frame: what it is given, what it gives, and what the log has of it."""

import asyncio
import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from divebook import Each, Environment, Step, Workflow, action
from divebook.definitions import step
from divebook.definitions.reader import read_definitions
from divebook.errors import DefinitionError, NotFoundError, SetupError, StepError
from divebook.events import catalog
from divebook.mapping import mapped
from divebook.steps import row_calls as steps_rows
from divebook.steps.actions import REGISTERED


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


FRAME = pd.DataFrame({"text": list("abcd"), "n": [3, 1, 2, 0]}, index=pd.Index(list("wxyz"), name="key"))


def shout(text):
    return {"label": text.upper()}


def facts(execution, kind):
    return [event.data for event in execution.history() if isinstance(event.data, kind)]


def test_what_rows_give_stands_beside_them_and_is_recorded_once(environment):
    rows = mapped(environment, FRAME, shout).wait()
    assert rows.frame["label"].to_dict() == {"w": "A", "x": "B", "y": "C", "z": "D"}
    assert rows.frame["n"].equals(FRAME["n"])
    assert rows.frame["error"].isna().all()
    (written,) = facts(rows.run, catalog.RowsCompleted)
    assert (written.rows, written.failed, written.total) == (4, 0, 4)
    assert rows.run.variables["rows"] == {"rows": 4, "failed": 0}
    assert rows.run.verify().equal


@pytest.mark.parametrize("kind", [pl.from_pandas, pa.Table.from_pandas, lambda frame: frame.to_dict("records")])
def test_a_frame_may_be_one_of_another_library(environment, kind):
    assert mapped(environment, kind(FRAME.reset_index(drop=True)), shout).wait().frame["label"].tolist() == list("ABCD")


def test_a_function_takes_columns_by_name_or_the_row(environment):
    def whole(row):
        return row["n"] * 10

    def some(n, text="", *, by=1):
        return {"told": text * n, "by": by}

    async def anything(**row):
        return sorted(row)

    assert mapped(environment, FRAME, whole).wait().frame["result"].tolist() == [30, 10, 20, 0]
    told = mapped(environment, FRAME, some, parameters={"by": 2}).wait().frame
    assert told["told"].tolist() == ["aaa", "b", "cc", ""]
    assert told["by"].tolist() == [2] * 4
    assert mapped(environment, FRAME, anything).wait().frame["result"].tolist() == [["n", "text"]] * 4


def test_what_does_not_fit_is_said_before_anything_begins(environment):
    def wrong(text, colour):
        return text + colour

    with pytest.raises(StepError, match=r"takes colour; the frame has the columns text, n"):
        mapped(environment, FRAME, wrong)
    with pytest.raises(StepError, match="does not take loud"):
        mapped(environment, FRAME, shout, parameters={"loud": True})
    with pytest.raises(StepError, match="Rows takes a DataFrame"):
        mapped(environment, 3, shout)
    with pytest.raises(StepError, match="two are called 'n'"):
        mapped(environment, FRAME.rename(columns={"text": "n"}), lambda n: n, store="twice")
    with pytest.raises(StepError, match=r"not a list with int in it; convert it: pandas\.DataFrame"):
        mapped(environment, [1, 2], shout)
    with pytest.raises(StepError, match="takes obj by position only, but columns are passed by name"):
        mapped(environment, FRAME, len)
    for no_function in ("label", None):
        with pytest.raises(SetupError, match="map takes a function"):
            mapped(environment, FRAME, no_function, store="s")
    with pytest.raises(SetupError, match="a lambda has no name"):
        mapped(environment, FRAME, lambda row: row)
    assert environment.store.records() == []


@pytest.mark.parametrize(
    "index",
    [
        [7, 7, 7, 8],
        pd.MultiIndex.from_product([list("ab"), [1, 1]]),
        pd.to_datetime(["2026-10-25 02:30"] * 4, utc=True).tz_convert("Europe/Berlin"),
        [float("nan")] * 4,
    ],
    ids=["numbers", "levels", "times", "nothing"],
)
def test_results_stand_beside_their_rows_whatever_the_index(environment, index):
    def fails(n):
        return {"twice": 10 // n}

    frame = FRAME.set_axis(pd.Index(index) if isinstance(index, list) else index)
    rows = mapped(environment, frame, fails).wait()
    assert rows.frame.index.equals(frame.index)
    assert rows.frame["twice"].tolist()[:3] == [3, 10, 5]
    assert rows.frame["error"].notna().tolist() == [False, False, False, True]
    assert len(rows.retry_failed().wait().frame) == 4


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("stop"), GeneratorExit("no")])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_would_end_a_process_ends_its_row(environment, error, is_async):
    def leaves(n):
        if n == 1:
            raise error
        return n

    async def leaves_later(n):
        return leaves(n)

    rows = mapped(environment, FRAME, leaves_later if is_async else leaves, retry=3, store="s").wait()
    assert rows.frame["error"].dropna().to_dict() == {"x": f"{type(error).__name__}: {error}"}
    assert rows.done == 4


def test_what_one_map_said_of_a_function_holds_for_no_other(environment):
    mapped(environment, FRAME, shout, store="first").wait()
    again = mapped(environment, FRAME, shout, store="second", idempotent=False, retry=2).wait()
    made = REGISTERED[again.workflow.steps[0].action]
    assert not made.is_repeatable
    assert made.retry is not None


def test_a_row_that_fails_has_its_error_and_is_called_again_alone(environment):
    broken, called = {1, 2}, []

    def half(n):
        called.append(n)
        if n in broken:
            raise ValueError(f"no {n}")
        return n / 2

    rows = mapped(environment, FRAME, half).wait()
    assert rows.failed["error"].to_dict() == {"x": "ValueError: no 1", "y": "ValueError: no 2"}
    assert "2 of which failed: .retry_failed()" in repr(rows)
    broken.discard(2)
    rows.retry_failed().wait()
    assert rows.frame["result"].fillna(-1).to_dict() == {"w": 1.5, "x": -1, "y": 1, "z": 0}
    assert rows.failed.index.tolist() == ["x"]
    broken.clear()
    again = mapped(environment, FRAME, half)  # as in a later kernel
    assert again.failed.index.tolist() == ["x"]
    assert again.retry_failed().wait().failed.empty
    assert sorted(called) == [0, 1, 1, 1, 2, 2, 3]
    assert again.retry_failed().run is again.run  # nothing is left to be called


def test_the_same_name_has_the_same_results_and_no_others(environment):
    called = []

    def count(n):
        called.append(n)
        return n

    first = mapped(environment, FRAME, count, store="counts").wait()
    assert mapped(environment, FRAME, count, store="counts").wait().run.id == first.run.id
    with pytest.raises(
        SetupError, match=r"counts was started with another frame \(DataFrame 4 x 2\); start it again with again=True"
    ):
        mapped(environment, FRAME.head(2), count, store="counts")
    assert len(called) == 4
    assert len(mapped(environment, FRAME.head(2), count, store="counts", again=True).wait().frame) == 2
    assert len(mapped(environment, FRAME.head(2), count, store="counts").frame) == 2  # the newest holds


def test_other_code_keeps_results_and_says_so(environment):
    def made(factor):
        source = f"def times(n):\n    return n * {factor}\n"
        scope = {"__name__": "cell"}
        import linecache

        linecache.cache[f"<{factor}>"] = (len(source), None, source.splitlines(keepends=True), f"<{factor}>")
        exec(compile(source, f"<{factor}>", "exec"), scope)
        return scope["times"]

    mapped(environment, FRAME, made(2)).wait()
    with pytest.warns(UserWarning, match="times was started with another version of its function"):
        kept = mapped(environment, FRAME, made(3))
    assert kept.frame["result"].tolist() == [6, 2, 4, 0]


def test_a_value_that_cannot_be_kept_is_the_failure_of_its_row(environment):
    def odd(n):
        return {"value": object() if n == 2 else n}

    def clash(n):
        return {"error": n} if n else {"fine": True}

    rows = mapped(environment, FRAME, odd).wait().frame
    assert rows["error"].str.contains("UnstorableValueError").fillna(False).tolist() == [False, False, True, False]
    assert (
        mapped(environment, FRAME, clash)
        .wait()
        .failed["error"]
        .iloc[0]
        .startswith("StepError: its result has a column")
    )


def test_a_row_is_tried_again_as_the_policy_says(environment):
    failures = []

    def flaky(n):
        if n == 3 and len(failures) < 2:
            failures.append(n)
            raise ConnectionError("busy")
        return n

    async def slow(n):
        if n == 3:
            await asyncio.Event().wait()
        return n

    policy = {"attempts": 3, "seconds": 0}
    assert mapped(environment, FRAME, flaky, retry=policy).wait().failed.empty
    failed = mapped(environment, FRAME, slow, timeout=0.05).wait().failed
    assert [error.partition(":")[0] for error in failed["error"]] == ["TimeoutError"]


def test_calls_are_made_side_by_side_and_no_more_than_so_many(environment):
    both = threading.Barrier(2, timeout=20)

    def meet(n):
        both.wait()
        return n

    assert mapped(environment, FRAME, meet, parallel=2).wait().failed.empty


def test_rows_that_were_done_when_a_run_rests_are_not_called_again(environment):
    called, go = [], threading.Event()

    async def steady(n):
        called.append(n)
        if n == 2 and not go.is_set():
            await asyncio.Event().wait()
        return n

    rows = mapped(environment, FRAME, steady, parallel=1)
    listened = threading.Event()
    while 2 not in called:
        listened.wait(0.01)
    rows.run.pause()
    rows.run.wait()
    assert rows.done == 2
    go.set()
    again = mapped(environment, FRAME, steady, parallel=1).wait()
    assert called == [3, 1, 2, 2, 0]
    assert again.frame["result"].tolist() == [3, 1, 2, 0]


def test_an_action_that_may_not_be_called_twice_has_short_ranges(environment, monkeypatch):
    monkeypatch.setattr(steps_rows, "ASKED_RANGE", 3)
    rows = mapped(environment, FRAME, shout, idempotent=False).wait()
    begun = facts(rows.run, catalog.OperationStarted)
    assert [each.parameters["params"] for each in begun] == [{"first": 0, "last": 2}, {"first": 3, "last": 3}]


def test_rows_in_a_definition():
    text = """
    Name: rows
    Workflows:
      - Name: labelling
        Inputs: [{Name: frame}]
        Steps:
          - {Name: label, Action: Rows.Shout, Each: {Rows: $(inputs.frame), Parallel: 2}, Store: told}
    """
    action("Rows.Shout", idempotent=True)(shout)
    with Environment("rows", store="memory:") as environment:
        environment.define(read_definitions(text))
        execution = environment.start("labelling", {"frame": FRAME}).wait()
        assert execution.variables["told"] == {"rows": 4, "failed": 0}
        beside = FRAME.reset_index(drop=True).join(execution.rows())
        assert beside[["text", "label"]].to_numpy().tolist() == [[one, one.upper()] for one in "abcd"]
        assert execution.rows("label").equals(execution.rows())
        with pytest.raises(NotFoundError, match="lable"):
            execution.rows("lable")
        failed = environment.start("labelling", {"frame": "no frame"}).wait()
        assert "Rows takes a DataFrame" in failed.error


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        (
            {"script": "1", "each": Each(rows="$(inputs.f)")},
            "Rows needs a step with an Action or a Prompt, which runs for each row",
        ),
        ({"prompt": "Hi", "thread": "t", "each": Each(rows="$(inputs.f)")}, "Thread has no effect together with Rows"),
        ({"action": "a", "timeout": 3, "each": Each(rows="$(inputs.f)")}, "Timeout has no effect on a step with Rows"),
        ({"action": "a", "each": Each(rows="frame")}, "Rows must be an expression"),
        ({"action": "a", "each": Each("$(inputs.f)", rows="$(inputs.f)")}, "Items has no effect together with Rows"),
        ({"action": "a", "each": Each(rows="$(inputs.f)", as_="x")}, "As has no effect together with Rows"),
        *(
            (
                {"action": "a", "each": Each(rows="$(inputs.f)", on_item_error=what)},
                "OnItemError has no effect together with",
            )
            for what in ("fail", "keep", "skip")
        ),
    ],
)
def test_rows_that_make_no_sense_are_refused(step, complaint):
    with pytest.raises(DefinitionError, match=complaint):
        Workflow("w", [Step("s", **step)], inputs=["f"])


def test_an_action_that_asks_for_approval_is_not_called_for_rows(environment):
    action("Rows.Asked", approval=True)(shout)
    step = Step("s", action="Rows.Asked", each=Each(rows="$(inputs.f)"))
    execution = environment.start(Workflow("w", [step], inputs=["f"]), {"f": FRAME}).wait()
    assert "because it asks for approval of each call: use Each with Items" in execution.error


def crunch(n):
    return sum(range(n))


def test_rows_run_in_other_processes(environment):
    rows = mapped(environment, FRAME, crunch, executor="process", parallel=2).wait()
    assert rows.frame["result"].tolist() == [3, 0, 1, 0]


def test_a_step_is_called_for_rows_wherever_functions_run(environment):
    made = step(idempotent=True)(crunch)
    with ThreadPoolExecutor(1) as pool:
        for number, executor in enumerate((None, "process", pool, functools.partial(ThreadPoolExecutor, 1))):
            rows = mapped(environment, FRAME, made, store=f"crunched {number}", executor=executor).wait()
            assert rows.frame["result"].tolist() == [3, 0, 1, 0]


def test_an_executor_that_is_none_is_refused(environment):
    with pytest.raises(SetupError, match=r"an executor must be a name .*, not 3"):
        mapped(environment, FRAME, crunch, executor=3)
    with pytest.raises(NotFoundError, match="executor not found: nope"):
        mapped(environment, FRAME, crunch, executor="nope")


def test_rows_run_in_the_threads_that_were_given(environment):
    def where(n):
        return threading.current_thread().name.rpartition("_")[0]

    with ThreadPoolExecutor(1, thread_name_prefix="given") as pool:
        assert set(mapped(environment, FRAME, where, executor=pool).wait().frame["result"]) == {"given"}
