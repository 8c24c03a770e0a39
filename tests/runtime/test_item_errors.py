"""Items of an Each that fail: the others are kept, the failure is named, and resume runs only what is missing."""

import pytest

from divebook import Catch, Each, Environment, Retry, Step, Workflow
from divebook.definitions.reader import read_definitions
from divebook.errors import BoundExceededError, DefinitionError
from divebook.steps.actions import Action
from tests.runtime.worlds import environment


class Picky:
    """An action that fails for some values, and counts its calls."""

    def __init__(self, *bad, error=KeyError):
        self.bad, self.error, self.calls = set(bad), error, []

    def action(self):
        def pick(value):
            self.calls.append(value)
            if value in self.bad:
                raise self.error(value)
            return value * 10

        return Action("pick", pick, idempotent=True)


def labels(on_item_error="fail", parallel=1, **step):
    each = Each(list(range(5)), as_="i", parallel=parallel, on_item_error=on_item_error)
    given = {"action": "pick", "parameters": {"value": "$(i)"}, "store": "labels", **step}
    return Workflow("w", [Step("x", each=each, **given), Step("after", script="1")])


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_failed_item_is_named_with_its_step_and_cause(parallel):
    execution = environment(labels(parallel=parallel), actions=[Picky(3).action()]).start("w").wait(20)
    assert execution.error.startswith("KeyError: 3 (step x, x[3], tests/runtime/test_item_errors.py:")
    (failed,) = [e.data for e in execution.history() if e.event_type == "iteration_failed"]
    assert (failed.iteration_index, failed.error_names[0], failed.result) == (3, "KeyError", None)
    (step_failed,) = [e.data for e in execution.history() if e.event_type == "step_failed"]
    assert step_failed.iteration_index == 3


@pytest.mark.parametrize("parallel", [1, 3])
def test_resume_runs_only_the_items_that_are_missing(parallel):
    picky = Picky(3)
    world = environment(labels(parallel=parallel), actions=[picky.action()])
    execution = world.start("w").wait(20)
    done = {e.data.iteration_index for e in execution.history() if e.event_type == "iteration_completed"}
    assert {0, 1, 2} <= done
    picky.bad.clear()
    picky.calls.clear()
    resumed = world.run_of(execution.id).resume().wait(20)
    assert resumed.variables["labels"] == [0, 10, 20, 30, 40]
    assert sorted(picky.calls) == sorted(set(range(5)) - done)


@pytest.mark.parametrize("parallel", [1, 3])
def test_failed_items_are_kept_as_data(parallel):
    made = labels("keep", parallel, retry=Retry(2, seconds=0))
    execution = environment(made, actions=[Picky(1, 4).action()]).start("w").wait(20)
    kept = execution.variables["labels"]
    assert (execution.status, kept[0], kept[2:4]) == ("completed", 0, [20, 30])
    told = kept[4]["error"]
    assert (told["type"], told["iteration"], told["item"], told["attempts"]) == ("KeyError", 4, 4, 2)
    failed = [e.data.iteration_index for e in execution.history() if e.event_type == "iteration_failed"]
    assert sorted(failed) == [1, 4]


@pytest.mark.parametrize("parallel", [1, 3])
def test_failed_items_are_left_out_where_that_is_said(parallel):
    execution = environment(labels("skip", parallel), actions=[Picky(0, 4).action()]).start("w").wait(20)
    assert execution.variables["labels"] == [10, 20, 30]
    assert "# i: 4" not in next(e.data.output for e in execution.history() if e.event_type == "step_completed")


def test_kept_failures_survive_a_restart_and_are_not_tried_again():
    picky, gate = Picky(1), Picky(4)
    steps = labels("keep").steps[:1]
    made = Workflow("w", [steps[0], Step("after", action="late", parameters={"value": 4})])
    late = Action("late", gate.action().function, idempotent=True)
    world = environment(made, actions=[picky.action(), late])
    execution = world.start("w").wait(20)
    gate.bad.clear()
    calls = list(picky.calls)
    resumed = world.run_of(execution.id).resume().wait(20)
    assert (resumed.status, picky.calls) == ("completed", calls)
    assert resumed.variables["labels"][1]["error"]["item"] == 1


def test_a_caught_failure_leaves_the_results_so_far_and_says_which_item():
    made = labels(catch=Catch("after", store="error"))
    execution = environment(made, actions=[Picky(2).action()]).start("w").wait(20)
    assert execution.variables["labels"] == [0, 10, None, None, None]
    told = execution.variables["error"]
    assert (told["iteration"], told["item"], told["type"]) == (2, 2, "KeyError")


def test_what_is_not_an_items_own_failure_ends_the_step():
    def over(value):
        return BoundExceededError("too much", "max_tokens", "max_tokens_exceeded")

    execution = environment(labels("keep"), actions=[Picky(2, error=over).action()]).start("w").wait(20)
    assert execution.status == "failed"


def test_the_key_is_read_and_checked():
    text = "Workflows: [{Name: w, Steps: [{Name: s, Script: '1', Each: {Items: [1], OnItemError: keep}}]}]"
    (read,) = read_definitions(text).workflows
    assert read.steps[0].each.on_item_error == "keep"
    (default,) = read_definitions(text.replace(", OnItemError: keep", "")).workflows
    (said,) = read_definitions(text.replace("keep", "fail")).workflows
    assert said.fingerprint == default.fingerprint != read.fingerprint
    with pytest.raises(DefinitionError, match="OnItemError"):
        read_definitions(text.replace("keep", "ignore"))
    with pytest.raises(DefinitionError, match="OnItemError must be one of fail, keep, skip"):
        Environment(store="memory:", workflows=[labels("ignore")])
